//! What follows when a member is slow, on the coordinator: an event, reads that go around it, or a
//! spare that takes its slot.
//!
//! What must stay true: the figures of a device are forgotten when another one comes into its slot,
//! or when it goes out. A spare is taken for a slow member only while no member is missing and no
//! other is being replaced, because a missing member needs the spare more. Nothing on the members
//! names a slow member: a new start finds out anew.
//!
//! Not here: the judgement (`judge.rs`), what reads do (`avoid.rs`), how a spare joins
//! (`background/sparing.rs`).

use super::SlowReaction;
use super::judge::{SlowFigures, Timed, Turn};
use super::members::Counted;
use super::timing::Total;
use crate::array::Array;
use crate::background;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// Commands that must be timed of a kind that is slow: reads go around such a member, and few are
/// left that tell how it is.
const PROBES_MIN: u64 = 4;

/// Compare the members as long as the array runs. Spawned once, on the coordinator.
pub(crate) async fn watch(local: Rc<LocalArray>) {
    let handle = local.worker.handle.clone();
    let mut period = local.array.tuning.get().slow.period();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    loop {
        handle.sleep(period).await;
        let Some(local) = local.upgrade() else { return };
        if local.array.is_stopping() {
            return;
        }
        end_period(&local);
        period = local.array.tuning.get().slow.period();
    }
}

fn members(array: &Array) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..array.slots.len()).map(MemberIdx::from_at)
}

fn end_period(local: &Rc<LocalArray>) {
    let (slow, limits) = (&local.coordinator().slow, &local.array.tuning.get().slow);
    slow.counted.borrow_mut().resize(local.array.slots.len(), Counted::default());
    let timed: Vec<Timed> = members(&local.array).map(|member| timed_of(local, member)).collect();
    let layouts = &local.array.layouts;
    let has_parity = layouts.parity_strips_max() > 0;
    let is_too_many = |member: MemberIdx, is_slow: &dyn Fn(MemberIdx) -> bool| {
        local.array.is_beyond(member, is_slow)
    };
    let turns = slow.judge.borrow_mut().end_period(&timed, limits, is_too_many);
    for (member, turn) in turns {
        tell(local, member, turn);
    }
    for member in members(&local.array) {
        let is_slow = slow.figures(member, limits).is_some();
        let is_avoided = is_slow && limits.reaction == SlowReaction::Avoid && has_parity;
        local.array.avoided.set(member, is_avoided);
        if !is_slow {
            slow.without_spare.borrow_mut().remove(&member);
        } else if limits.reaction == SlowReaction::Replace && has_parity && may_copy(local) {
            take_spare(local, member);
        }
    }
}

/// What was timed of the member since its last period, which ends here.
fn timed_of(local: &LocalArray, member: MemberIdx) -> Timed {
    let (slow, limits) = (&local.coordinator().slow, &local.array.tuning.get().slow);
    let slot = local.array.slot(member);
    let mut totals = [Total::default(); 2];
    for tally in local.array.tallies(member) {
        let own = [&tally.timings.reads, &tally.timings.writes];
        totals = [0, 1].map(|kind| totals[kind].and(own[kind].total()));
    }
    let mut counted = slow.counted.borrow_mut();
    let counted = &mut counted[member.at()];
    let is_in_sync = slot.state() == SlotState::InSync;
    if !is_in_sync || counted.device_epoch != Some(slot.device_epoch()) {
        *counted = Counted { device_epoch: is_in_sync.then(|| slot.device_epoch()), totals };
        slow.judge.borrow_mut().forget(member);
        return Timed::default();
    }
    let mean = |kind: usize| {
        let is_slow = slow.judge.borrow().is_slow(member, kind);
        let since = totals[kind].since(counted.totals[kind]);
        let count_min = if is_slow { PROBES_MIN } else { limits.commands_min };
        if !is_slow || since.count >= count_min {
            counted.totals[kind] = totals[kind];
        }
        since.mean(count_min)
    };
    let means = [0, 1].map(mean);
    Timed { may_be_judged: local.replacement(member).is_none(), means }
}

fn tell(local: &LocalArray, member: MemberIdx, turn: Turn) {
    let mut fields = vec![("slot", member.to_string())];
    fields.extend(local.device(member).map(|device| ("path", device.facts().path.clone())));
    let limits = &local.array.tuning.get().slow;
    match (turn, local.coordinator().slow.figures(member, limits)) {
        (Turn::Slow, Some(SlowFigures { kind, own, peers, lasts })) => {
            fields.push(("commands", kind.to_string()));
            fields.push(("own_us", own.as_micros().to_string()));
            fields.push(("peers_us", peers.as_micros().to_string()));
            fields.push(("lasts_s", lasts.as_secs().to_string()));
            fields.push(("reaction", limits.reaction.word().to_owned()));
            local.array.record(names::MEMBER_SLOW, fields);
        }
        _ => local.array.record(names::MEMBER_SLOW_NO_MORE, fields),
    }
}

/// Whether a spare may be spent on a member that works.
fn may_copy(local: &LocalArray) -> bool {
    let array = &local.array;
    let is_at_rest = |member| {
        array.slot(member).state() == SlotState::InSync && local.replacement(member).is_none()
    };
    let takes_changes = !array.is_read_only() && !array.is_stopping();
    takes_changes && local.coordinator().jobs.have_begun() && members(&local.array).all(is_at_rest)
}

fn take_spare(local: &Rc<LocalArray>, member: MemberIdx) {
    if local.coordinator().slow.take_turn() {
        background::copy_to_spare(local, member);
    }
}
