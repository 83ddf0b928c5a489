//! More members than parity replaces fail together for a moment, and are whole again.
//!
//! A shelf of three drives answered errors for half a second. The others recorded two of them as
//! out, and could not do without the third: it stayed in service and lacked two updates. "Attach
//! the missing devices" was the answer for ever, although nothing was lost.
//!
//! What must stay true: with all devices the array starts, and it never takes a member as current
//! that lacks what was answered, whichever devices are there.

use ashlar_ondisk::assembly::{
    AssemblyRequest, ExtraReason, MemberReading, ReadOnlyReason, RefusalKind, SlotState, Start,
    Verdict, assemble,
};
use ashlar_ondisk::{Features, FlushMark, ForcedActions, MemberEvent, Role, Superblock};
use ashlar_units::MemberIdx;

use crate::samples::{
    array, array_uuid, incarnation, lost, member_uuid, readings, started, updated,
};

/// An array that runs, and what its devices have.
struct Running {
    next: Superblock,
    disks: Vec<Superblock>,
    /// Whether a device holds all that was answered.
    holds: Vec<bool>,
    in_service: Vec<bool>,
}

impl Running {
    fn new((data, parity, groups): (u16, u16, u16)) -> Running {
        let base = array(data, parity, groups);
        let slots = base.geometry.slots();
        let own = |slot| base.for_member(member_uuid(slot)).expect("listed");
        let disks: Vec<Superblock> = (0..slots).map(own).collect();
        let all = vec![true; disks.len()];
        Running { next: base, disks, holds: all.clone(), in_service: all }
    }

    fn is_needed(&self, slot: usize) -> bool {
        let parity = usize::from(self.next.geometry.parity_strips);
        let sets = self.next.geometry.failure_sets();
        let set = sets.into_iter().find(|set| set.contains(&slot)).expect("of a group");
        set.filter(|other| *other == slot || !self.in_service[*other]).count() > parity
    }

    /// An update that the devices in `failing` do not take, as the engine records it: those that
    /// the array can do without are out by the next one. Something is answered if all have it.
    fn update(&mut self, failing: u32) {
        self.next.generation += 1;
        let all = 0..self.disks.len();
        let lacks = |slot: &usize| failing & 1 << slot != 0;
        let failed: Vec<usize> =
            all.clone().filter(|it| self.in_service[*it] && lacks(it)).collect();
        for slot in all.clone().filter(|it| self.in_service[*it] && !lacks(it)) {
            let uuid = self.disks[slot].member_uuid;
            self.disks[slot] = self.next.for_member(uuid).expect("listed");
        }
        if failed.is_empty() {
            for slot in all {
                self.holds[slot] &= self.in_service[slot];
            }
            return;
        }
        // The next one says so.
        self.next.generation += 1;
        for slot in failed {
            if !self.is_needed(slot) {
                self.next.record(self.disks[slot].member_uuid, MemberEvent::Lost).expect("active");
                self.in_service[slot] = false;
            }
        }
        self.next.generation -= 1;
    }

    fn readings(&self, here: u32) -> (Vec<usize>, Vec<MemberReading>) {
        let slots: Vec<usize> = (0..self.disks.len()).filter(|it| here & 1 << it != 0).collect();
        let reading = |slot: &usize| {
            let slot = u16::try_from(*slot).expect("few");
            crate::samples::reading(&self.disks[usize::from(slot)], slot)
        };
        (slots.clone(), slots.iter().map(reading).collect())
    }

    /// A start with these devices takes none as current that lacks what was answered.
    fn judge(&self, here: u32, story: &str) -> Verdict {
        let (slots, all) = self.readings(here);
        let verdict = assemble(&all, &AssemblyRequest::default());
        let current = verdict.slots.iter().filter(|slot| slot.state == SlotState::Current);
        // Where nobody is left who knows of it, nobody can.
        let is_known = slots.iter().any(|slot| self.holds[*slot]);
        if verdict.refusal().is_none() && is_known {
            for at in current.filter_map(|slot| slot.reading) {
                let slot = slots[at];
                assert!(self.holds[slot], "{story}: slot {slot} lacks what was answered");
            }
        }
        verdict
    }
}

/// Every set of members that fails at every step of two updates and what follows from them.
fn in_every_way(shape: (u16, u16, u16)) {
    let members = u32::from((shape.0 + shape.1) * shape.2);
    let (mut starts, mut fewer) = (0, 0);
    for failures in 0..1_u32 << (3 * members) {
        let step = |number: u32| failures >> (number * members) & ((1 << members) - 1);
        let story = format!("{shape:?}: {:b} {:b} {:b}", step(0), step(1), step(2));
        let mut running = Running::new(shape);
        running.update(step(0));
        running.update(step(1));
        running.update(step(2));
        let all = (1 << members) - 1;
        let verdict = running.judge(all, &story);
        assert!(verdict.refusal().is_none(), "{story}: {:?}", verdict.refusal());
        starts += 1;
        for without in 0..members {
            fewer += u32::from(running.judge(all & !(1 << without), &story).refusal().is_none());
        }
    }
    println!("{shape:?}: {starts} starts with all members, {fewer} without one of them");
}

#[test]
fn members_that_fail_together_are_all_there_afterwards() {
    for shape in [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 1, 2), (3, 1, 1)] {
        in_every_way(shape);
    }
}

/// Four of six fail: two are recorded as out, two are needed, and only the last two know it.
fn four_of_six(parity: u16) -> Running {
    let mut running = Running::new((6 - parity, parity, 1));
    running.update(0b00_1111);
    running.update(0b00_1111);
    running.update(0b00_1111);
    running
}

#[test]
fn one_that_dies_for_good_after_all_failed_together_costs_nothing() {
    let running = four_of_six(2);
    let outs = running.next.members.iter().filter(|entry| entry.role == Role::Out).count();
    assert_eq!(outs, 2);
    for gone in [0b10_0000, 0b01_0000, 0b11_0000, 0b10_1000, 0b00_0001] {
        let verdict = running.judge(!gone & 0b11_1111, "four of six");
        assert!(verdict.refusal().is_none(), "{gone:b}: {:?}", verdict.refusal());
    }
    // Nobody is left who shows that nothing was answered without the others.
    let verdict = running.judge(0b11_0011, "four of six");
    let refusal = verdict.refusal().expect("the two that are out may lack something");
    assert_eq!(refusal.kind, RefusalKind::TooManyMissing);
    assert!(refusal.line.contains("--accept-older-members"), "{}", refusal.line);
}

/// An update was cut off on the members that stayed: without the two that are out its stripes could
/// not be put right, and the array would be read-only.
#[test]
fn an_array_that_needs_all_members_to_be_put_right_takes_them_back() {
    let mut running = four_of_six(2);
    for disk in &mut running.disks {
        disk.resync_dirty_regions = true;
    }
    assert_eq!(running.judge(0b11_1111, "four of six").start, Start::Whole);
    assert_eq!(
        running.judge(0b11_0111, "four of six").start,
        Start::ReadOnly(ReadOnlyReason::DirtyDegraded)
    );
}

/// Whoever takes a member back writes down what its log is called there.
#[test]
fn a_member_that_is_taken_back_keeps_its_name_in_the_log() {
    let mut running = four_of_six(2);
    for disk in &mut running.disks {
        for entry in disk.members.iter_mut().filter(|entry| entry.role == Role::Active) {
            entry.log_tag = 100 + u64::from(entry.slot.0);
        }
    }
    let verdict = running.judge(0b01_1111, "four of six");
    let newest = verdict.newest.expect("it starts");
    let tag = |slot| newest.holder(MemberIdx(slot)).map(|entry| (entry.role, entry.log_tag));
    assert!((0..5).all(|slot| tag(slot) == Some((Role::Active, 100 + u64::from(slot)))));
    assert_eq!(newest.generation, running.disks[4].generation + 1);
    assert_eq!(newest.incarnation, incarnation(1));
}

#[test]
fn older_copies_are_not_taken_for_members_that_failed() {
    let mut old = Running::new((4, 2, 1));
    let copies = old.readings(0b00_0111).1;
    (0..3).for_each(|_| old.update(0));
    let (_, mut all) = old.readings(0b11_1111);
    // Of the same run, and the others know of a flush since.
    let mark = |sequence, flushed| {
        let (array_uuid, incarnation) = (array_uuid(), incarnation(1));
        Some(FlushMark { array_uuid, incarnation, sequence, flushed })
    };
    let with_marks = |reading: &mut MemberReading, mark| {
        let mut own = reading.superblock().expect("a member").clone();
        own.features.compatible |= Features::FLUSH_MARKS;
        reading.label = ashlar_ondisk::assembly::ReadLabel::Member(Box::new(own));
        reading.mark = mark;
    };
    all.iter_mut().for_each(|reading| with_marks(reading, mark(9, 8)));
    for (at, copy) in copies.into_iter().enumerate() {
        all[at] = copy;
        with_marks(&mut all[at], mark(7, 6));
    }
    let verdict = assemble(&all, &AssemblyRequest::default());
    let refusal = verdict.refusal().expect("three older copies");
    assert!(refusal.line.contains("is an older copy of it"), "{}", refusal.line);
    // Of an earlier run: a start has all its members at one generation.
    let later = updated(&updated(&started(&array(4, 2, 1), 5)));
    let mut all = readings(&later);
    (0..3).for_each(|at| all[at] = readings(&array(4, 2, 1)).swap_remove(at));
    let verdict = assemble(&all, &AssemblyRequest::default());
    assert_eq!(verdict.refusal().map(|it| it.kind), Some(RefusalKind::TooManyMissing));
    assert_eq!(verdict.extra(1), Some(ExtraReason::Incoherent { generation: 10 }));
}

#[test]
fn the_freshest_are_taken_if_the_operator_says_so_and_no_more_than_it_needs() {
    let first = lost(&array(4, 2, 1), &[0]);
    let second = lost(&first, &[1]);
    let mut all = readings(&updated(&second));
    all.truncate(5);
    all[0] = readings(&array(4, 2, 1)).swap_remove(0);
    all[1] = readings(&first).swap_remove(1);
    let verdict = assemble(&all, &AssemblyRequest::default());
    let refusal = verdict.refusal().expect("two out, one gone");
    assert!(refusal.line.contains("--accept-older-members"), "{}", refusal.line);
    let request = AssemblyRequest { accept_older_members: true, ..AssemblyRequest::default() };
    let verdict = assemble(&all, &request);
    assert_eq!(verdict.start, Start::Degraded);
    assert_eq!(verdict.forced, ForcedActions::OLDER_MEMBERS);
    let taken: Vec<(usize, bool)> =
        verdict.may_be_older.iter().map(|it| (it.reading, it.was_out)).collect();
    assert_eq!(taken, [(1, true)]);
    let newest = verdict.newest.as_ref().expect("it starts");
    assert_eq!(newest.generation, 14);
    let own = newest.for_member(member_uuid(1)).expect("listed");
    assert!(own.encode().is_ok(), "what the start writes can be read");
    assert_eq!(verdict.slots[0].state, SlotState::Stale { out_since: 11 });
    assert_eq!(verdict.slots[1].state, SlotState::Current);
    // If all that is needed is there, nobody is asked.
    all.push(readings(&updated(&second)).swap_remove(5));
    let verdict = assemble(&all, &request);
    assert_eq!((verdict.start, verdict.forced), (Start::Degraded, 0));
    assert!(verdict.may_be_older.is_empty());
}

/// Marks of members that are taken for what they are not say nothing: the start makes new ones.
#[test]
fn an_older_copy_that_is_taken_has_its_marks_made_anew() {
    let mut base = array(4, 2, 1);
    base.features.compatible |= Features::FLUSH_MARKS;
    let mut all = readings(&base);
    let mark = |sequence, flushed| {
        let (array_uuid, incarnation) = (array_uuid(), incarnation(1));
        Some(FlushMark { array_uuid, incarnation, sequence, flushed })
    };
    all.iter_mut().for_each(|reading| reading.mark = mark(9, 8));
    (0..3).for_each(|at| all[at].mark = mark(5 + u64::try_from(at).expect("small"), 0));
    assert!(assemble(&all, &AssemblyRequest::default()).refusal().is_some());
    let request = AssemblyRequest { accept_older_members: true, ..AssemblyRequest::default() };
    let verdict = assemble(&all, &request);
    assert_eq!((verdict.start.clone(), verdict.flushed), (Start::Degraded, 0));
    let taken: Vec<(usize, bool)> =
        verdict.may_be_older.iter().map(|it| (it.reading, it.was_out)).collect();
    assert_eq!(taken, [(2, false)], "the one with the newest mark");
    let newest = verdict.newest.expect("it starts");
    assert!(!newest.has_flush_marks() && newest.generation == 11);
}
