//! What follows when a member is slow, on the home worker: it is told, reads go around it, or a
//! spare takes its slot.
//!
//! What must stay true: what is known of a device is forgotten when another one comes into its
//! slot, or when it goes out. A spare is taken for a slow member only while no member is missing
//! and nobody else is being replaced: one that is missing needs it more. Nothing is written that
//! names a slow member: a new start finds out anew.
//!
//! Not here: who is slow (`judge.rs`), what reads do (`avoid.rs`), how a spare joins
//! (`background/sparing.rs`).

use super::judge::{Judge, SlowFigures, Timed, Turn};
use super::timing::Total;
use super::{SlowLimits, SlowReaction};
use crate::background;
use crate::event::names;
use crate::member::SlotState;
use crate::shard::Shard;
use crate::slot::Tenure;
use ashlar_units::MemberIdx;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Commands that must be timed of a kind that is slow: reads go around such a member, and few are
/// left that tell how it is.
const PROBES_MIN: u64 = 4;

/// What the home worker of an array keeps of slow members.
#[derive(Default)]
pub(crate) struct SlowMembers {
    judge: RefCell<Judge>,
    counted: RefCell<Vec<Counted>>,
    /// Members for which no spare was found, if that was told.
    without_spare: RefCell<BTreeSet<MemberIdx>>,
    /// A spare is on its way into a slot.
    is_taking_spare: Cell<bool>,
}

/// What was timed of a slot's device when its last period began.
#[derive(Clone, Copy, Default)]
struct Counted {
    tenure: Option<Tenure>,
    totals: [Total; 2],
}

impl SlowMembers {
    /// Why the member is slow, if it is.
    pub(crate) fn figures(&self, member: MemberIdx, limits: &SlowLimits) -> Option<SlowFigures> {
        self.judge.borrow().figures(member, limits)
    }

    /// Whether a spare may be taken for a slow member now; then nobody else may until
    /// `spare_taken`.
    fn take_turn(&self) -> bool {
        !self.is_taking_spare.replace(true)
    }

    /// A spare has been taken for this member, or none was there.
    pub(crate) fn spare_taken(&self, member: MemberIdx, was_there: bool) -> bool {
        self.is_taking_spare.set(false);
        !was_there && self.without_spare.borrow_mut().insert(member)
    }
}

/// Compare the members as long as the array runs. Spawned once, on the home worker.
pub(crate) async fn watch(shard: Rc<Shard>) {
    let (handle, period) = (shard.worker.handle.clone(), shard.array.tuning.slow.period());
    let shard = {
        let weak = Rc::downgrade(&shard);
        drop(shard);
        weak
    };
    loop {
        handle.sleep(period).await;
        let Some(shard) = shard.upgrade() else { return };
        if shard.array.is_stopping() {
            return;
        }
        end_period(&shard);
    }
}

fn members(shard: &Shard) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..shard.array.slots.len()).map(MemberIdx::from_at)
}

fn end_period(shard: &Rc<Shard>) {
    let (slow, limits) = (&shard.home().slow, &shard.array.tuning.slow);
    slow.counted.borrow_mut().resize(shard.array.slots.len(), Counted::default());
    let timed: Vec<Timed> = members(shard).map(|member| timed_of(shard, member)).collect();
    let layouts = &shard.array.layouts;
    let has_parity = layouts.parity_strips_max() > 0;
    let is_too_many =
        |member: MemberIdx, is_slow: &dyn Fn(MemberIdx) -> bool| layouts.is_beyond(member, is_slow);
    let turns = slow.judge.borrow_mut().end_period(&timed, limits, is_too_many);
    for (member, turn) in turns {
        tell(shard, member, turn);
    }
    for member in members(shard) {
        let is_slow = slow.figures(member, limits).is_some();
        let is_avoided = is_slow && limits.reaction == SlowReaction::Avoid && has_parity;
        shard.array.avoided.set(member, is_avoided);
        if !is_slow {
            slow.without_spare.borrow_mut().remove(&member);
        } else if limits.reaction == SlowReaction::Replace && has_parity && may_copy(shard) {
            take_spare(shard, member);
        }
    }
}

/// What was timed of the member since its last period, which ends here.
fn timed_of(shard: &Shard, member: MemberIdx) -> Timed {
    let (slow, limits) = (&shard.home().slow, &shard.array.tuning.slow);
    let slot = shard.array.slot(member);
    let mut totals = [Total::default(); 2];
    for tally in shard.array.tallies(member) {
        let own = [&tally.timings.reads, &tally.timings.writes];
        totals = [0, 1].map(|kind| totals[kind].and(own[kind].total()));
    }
    let mut counted = slow.counted.borrow_mut();
    let counted = &mut counted[member.at()];
    let is_in_sync = slot.state() == SlotState::InSync;
    if !is_in_sync || counted.tenure != Some(slot.tenure()) {
        *counted = Counted { tenure: is_in_sync.then(|| slot.tenure()), totals };
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
    Timed { may_be_judged: shard.replacement(member).is_none(), means }
}

fn tell(shard: &Shard, member: MemberIdx, turn: Turn) {
    let mut fields = vec![("slot", member.to_string())];
    fields.extend(shard.device(member).map(|device| ("path", device.facts().path.clone())));
    let limits = &shard.array.tuning.slow;
    match (turn, shard.home().slow.figures(member, limits)) {
        (Turn::Slow, Some(SlowFigures { kind, own, peers, lasts })) => {
            fields.push(("commands", kind.to_string()));
            fields.push(("own_us", own.as_micros().to_string()));
            fields.push(("peers_us", peers.as_micros().to_string()));
            fields.push(("lasts_s", lasts.as_secs().to_string()));
            fields.push(("reaction", limits.reaction.word().to_owned()));
            shard.array.record(names::MEMBER_SLOW, fields);
        }
        _ => shard.array.record(names::MEMBER_SLOW_NO_MORE, fields),
    }
}

/// Whether a spare may be spent on a member that works.
fn may_copy(shard: &Shard) -> bool {
    let array = &shard.array;
    let is_at_rest = |member| {
        array.slot(member).state() == SlotState::InSync && shard.replacement(member).is_none()
    };
    let takes_changes = !array.is_read_only() && !array.is_stopping();
    takes_changes && shard.home().jobs.have_begun() && members(shard).all(is_at_rest)
}

fn take_spare(shard: &Rc<Shard>, member: MemberIdx) {
    if shard.home().slow.take_turn() {
        background::copy_to_spare(shard, member);
    }
}
