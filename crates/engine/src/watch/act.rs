//! What follows from silence, on the coordinator: devices are given up, or an event says that
//! requests wait for them.
//!
//! What must stay true: a device is given up before any task waits for the gate of superblock
//! updates, because its holder may wait for that device. The member is failing from then on, so no
//! write that left it out is answered before the others record it. Until a start is recorded, no
//! member is put out from here: the start meets the faults of its commands and records them itself.
//!
//! Not here: looks (`watch.rs`), the decision (`judge.rs`).

use super::{Judged, Standing, Why, judge};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::coordinator;
use crate::coordinator::messages::on_every_local;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::{SlotEvent, SlotState};
use crate::slot::MemberDevice;
use crate::watch::silence::{DevicePlace, LOOK_EVERY, Silence};
use ashlar_device::{Command, Device};
use ashlar_iobuf::BufMut;
use ashlar_units::{BLOCK_BYTES_USIZE, MemberIdx, Nanos};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Some worker has found a device to be silent, or found one to answer that was waited for.
pub(super) fn act(local: &Rc<LocalArray>) {
    // Before the array has a coordinator there is nobody to tell.
    if local.try_coordinator().is_none() || sings(Canary::SilenceNotWatched) {
        return;
    }
    let slots = || (0..local.array.slots.len()).map(MemberIdx::from_at);
    let found: Vec<[Silence; 2]> = slots().map(|member| local.array.silences(member)).collect();
    let members: Vec<Standing> =
        slots().map(|at| of_member(local, at, found[at.at()][0])).collect();
    let others: Vec<Standing> =
        slots().map(|at| of_replacement(local, at, found[at.at()][1])).collect();
    ask_others(local, &members);
    let array = &local.array;
    let is_beyond =
        |member: MemberIdx, is_lost: &dyn Fn(MemberIdx) -> bool| array.is_beyond(member, is_lost);
    let (members_judged, others_judged) = judge(&members, &others, is_beyond);
    let mut waited_for = BTreeSet::new();
    for member in slots() {
        let slot = local.array.slot(member);
        let pairs = [
            ((member, false, slot.device_epoch()), &members, &members_judged),
            ((member, true, slot.replacement_device_epoch()), &others, &others_judged),
        ];
        for (place, standings, judged) in pairs {
            let silence = standings[member.at()].silence;
            match judged[member.at()] {
                Judged::Stays => {}
                Judged::GivenUp if may_answer_soon(local, place, standings[member.at()].limit) => {
                    waited_for.insert(place);
                }
                Judged::GivenUp => give_up(local, place, silence),
                Judged::WaitedFor(_) if local.array.waits_no_longer() => let_go(local, place),
                Judged::WaitedFor(why) => {
                    waited_for.insert(place);
                    local.coordinator().silences.free_since.borrow_mut().remove(&place);
                    tell_once(local, place, silence, why);
                }
            }
        }
    }
    let due = |place: &DevicePlace| waited_for.contains(place);
    local.coordinator().silences.free_since.borrow_mut().retain(|place, _| due(place));
    tell_who_answers(local, waited_for);
}

fn of_member(local: &LocalArray, member: MemberIdx, silence: Silence) -> Standing {
    let slot = local.array.slot(member);
    let device = local.device(member);
    let is_used = matches!(slot.state(), SlotState::InSync | SlotState::Rebuilding);
    Standing {
        is_in_service: is_used && device.is_some(),
        is_missing: slot.state() != SlotState::InSync || slot.fails(),
        silence,
        limit: limit(&local.array, device.as_ref()),
    }
}

fn of_replacement(local: &LocalArray, member: MemberIdx, silence: Silence) -> Standing {
    let device = local.replacement(member);
    let (is_in_service, limit) = (device.is_some(), limit(&local.array, device.as_ref()));
    Standing { is_in_service, is_missing: false, silence, limit }
}

fn limit(array: &Array, device: Option<&Rc<dyn Device>>) -> u16 {
    device.map_or(u16::MAX, |device| array.tuning.get().silence.looks_of(device.facts()))
}

/// A device that nobody asks for anything is not known to answer. When some member is half-way to
/// being given up, all others are asked for a block: who does not answer that is as silent.
fn ask_others(local: &Rc<LocalArray>, members: &[Standing]) {
    let is_half_way = |it: &&Standing| it.is_in_service && it.is_half_way();
    let Some(limit) = members.iter().filter(is_half_way).map(|it| it.limit).min() else { return };
    let silences = &local.coordinator().silences;
    let now = local.worker.handle.turn_now();
    let pause = LOOK_EVERY * u32::from(limit.div_ceil(2));
    if silences.asked_at.get() != Nanos::default() && now.since(silences.asked_at.get()) < pause {
        return;
    }
    silences.asked_at.set(now);
    for (at, standing) in members.iter().enumerate() {
        let device = local.device(MemberIdx::from_at(at));
        let is_to_be_asked = standing.is_in_service && standing.silence.looks == 0;
        if let (Some(device), true) = (device, is_to_be_asked) {
            let block = Command::Read(BufMut::zeroed(BLOCK_BYTES_USIZE));
            // Nobody waits for what it says: looks see whether it says anything.
            drop(local.start_on(device.as_ref(), 0, block));
        }
    }
}

/// Whether a device was waited for until just now. Those that fell silent together, for one cause,
/// come back one after the other: with each that answers again, it has its whole limit once more.
/// Besides, what is known of it may be older than what is known of the others.
fn may_answer_soon(local: &Rc<LocalArray>, place: DevicePlace, limit: u16) -> bool {
    let silences = &local.coordinator().silences;
    if !silences.told.borrow().contains(&place) {
        return false;
    }
    let now = local.worker.handle.turn_now();
    let since = *silences.free_since.borrow_mut().entry(place).or_insert(now);
    now.since(since) < LOOK_EVERY * u32::from(limit)
}

fn give_up(local: &Rc<LocalArray>, place: DevicePlace, silence: Silence) {
    local.coordinator().silences.told.borrow_mut().remove(&place);
    let (member, is_replacement, device_epoch) = place;
    let device = MemberDevice { member, device_epoch };
    let waited = silence.time().max(LOOK_EVERY * u32::from(silence.oldest));
    let why = format!("it did not answer for {} ms", waited.as_millis());
    if is_replacement {
        let_go(local, place);
        let local = Rc::clone(local);
        let handle = local.worker.handle.clone();
        handle.spawn(async move {
            coordinator::replacement_failed(&local, device, why).await;
        });
        return;
    }
    if !local.coordinator().jobs.have_begun() {
        return let_go(local, place);
    }
    put_out(local, member, &why);
    coordinator::take_out_soon(local, device, why);
}

/// A member is failing from now on, for this reason, and tasks that wait for its device are
/// answered. `coordinator::take_out_alone` still has to record it on the others. Its group can do
/// without it.
pub(crate) fn put_out(local: &Rc<LocalArray>, member: MemberIdx, why: &str) {
    let slot = local.array.slot(member);
    let (device_epoch, state) = (slot.device_epoch(), slot.state());
    if state == SlotState::Out {
        return;
    }
    let reasons = &local.coordinator().silences.reasons;
    reasons.borrow_mut().insert(member, (device_epoch, why.to_owned()));
    local.array.set_slot_state(member, state.next(SlotEvent::Fault).expect("any state can fail"));
    let_go(local, (member, false, device_epoch));
}

/// Every worker gives the device up.
fn let_go(local: &Rc<LocalArray>, (member, is_replacement, device_epoch): DevicePlace) {
    on_every_local(local, move |local| {
        let (current, replacement) = local.device_epochs(member);
        let (device, of) = match is_replacement {
            false => (local.device(member), current),
            true => (local.replacement(member), replacement),
        };
        if let Some(device) = device.filter(|_| of == device_epoch) {
            device.give_up();
        }
    });
}

fn tell_once(local: &Rc<LocalArray>, place: DevicePlace, silence: Silence, why: Why) {
    if local.coordinator().silences.told.borrow_mut().insert(place) {
        let mut fields = fields(local, place);
        fields.push(("silent_ms", silence.time().as_millis().to_string()));
        fields.push(("reason", why.words().to_owned()));
        local.array.record(names::MEMBER_SILENT, fields);
    }
}

fn tell_who_answers(local: &Rc<LocalArray>, waited_for: BTreeSet<DevicePlace>) {
    let silences = &local.coordinator().silences;
    let told = &silences.told;
    let answered: Vec<DevicePlace> = told.borrow().difference(&waited_for).copied().collect();
    if !answered.is_empty() {
        // As long as one after the other comes back, the rest may.
        silences.free_since.borrow_mut().clear();
    }
    for place in answered {
        let (member, is_replacement, device_epoch) = place;
        let slot = local.array.slot(member);
        let of = if is_replacement { slot.replacement_device_epoch() } else { slot.device_epoch() };
        if of == device_epoch && slot.state() != SlotState::Out {
            local.array.record(names::MEMBER_ANSWERED, fields(local, place));
        }
    }
    local.array.set_waits_for_silent(!waited_for.is_empty());
    *told.borrow_mut() = waited_for;
}

fn fields(
    local: &LocalArray,
    (member, is_replacement, _): DevicePlace,
) -> Vec<(&'static str, String)> {
    let device = if is_replacement { local.replacement(member) } else { local.device(member) };
    let mut fields = vec![("slot", member.to_string())];
    fields.extend(device.map(|device| ("path", device.facts().path.clone())));
    if is_replacement {
        fields.push(("role", "replacement".to_owned()));
    }
    fields
}
