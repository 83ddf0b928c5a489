//! Members that were started separately and split: found, named, and only joined on an explicit
//! word.
//!
//! Why it matters: two halves of a mirror that both took writes look healthy one by one. Joining
//! them by generation alone would silently throw one side's writes away, or mix both.
//!
//! The random lives of `lineages.rs` found starts that took served writes back or mixed two
//! histories. Each of those rules has a test with its story at the end of this file.

use ashlar_ondisk::assembly::{
    AssemblyRequest, ExtraReason, MemberReading, RefusalKind, SlotState, Start, Verdict, assemble,
    has_only_missed,
};
use ashlar_ondisk::{ForcedActions, MemberEntry, MemberEvent, Role, Superblock, Text};
use ashlar_units::MemberIdx;

use crate::assembly::refused;
use crate::samples::{
    DEVICE_BYTES, array, incarnation, lost, member_uuid, path, reading, readings, serial, started,
    updated,
};

fn judge(readings: &[MemberReading], trust: Option<u16>) -> Verdict {
    assemble(readings, &AssemblyRequest { trust: trust.map(incarnation), ..Default::default() })
}

/// The array started as incarnation `number` without `absent`, which the start's own update
/// records.
fn started_without(base: &Superblock, number: u16, absent: &[u16]) -> Superblock {
    let mut next = base.clone();
    next.generation += 1;
    for &slot in absent {
        next.record(member_uuid(slot), MemberEvent::Lost).expect("was active");
    }
    next.generation -= 1;
    next.begin_start(incarnation(number));
    next
}

/// A 2+2 array: slots 0 and 1 started alone as incarnation 2, slots 2 and 3 alone as incarnation 3.
fn split() -> (Superblock, Superblock, Vec<MemberReading>) {
    let base = array(2, 2, 1);
    let left = updated(&updated(&started_without(&base, 2, &[2, 3])));
    let right = started_without(&base, 3, &[0, 1]);
    let all = (0..4).map(|slot| reading(if slot < 2 { &left } else { &right }, slot)).collect();
    (left, right, all)
}

#[test]
fn split_brain_that_lived_on_are_refused_and_both_are_named() {
    let (left, right, all) = split();
    let (kind, line) = refused(&judge(&all, None));
    assert_eq!(kind, RefusalKind::SplitBrain);
    for slot in 0..4 {
        assert!(line.contains(&path(slot)), "{line}");
    }
    assert!(line.contains(&left.incarnation.to_string()), "{line}");
    assert!(line.contains(&right.incarnation.to_string()), "{line}");
}

#[test]
fn each_half_alone_starts_degraded() {
    let (_, _, all) = split();
    assert_eq!(judge(&all[..2], None).slots[0].state, SlotState::Current);
    assert_eq!(judge(&all[..2], None).missing().count(), 2);
    assert_eq!(judge(&all[2..], None).missing().count(), 2);
    assert!(judge(&all[2..], None).refusal().is_none());
}

#[test]
fn the_trusted_half_starts_and_the_other_is_of_no_use() {
    let (_, right, all) = split();
    // The right half has the lower generation; trust decides, not the number.
    let verdict = judge(&all, Some(3));
    assert_eq!(verdict.newest.as_ref().map(|newest| newest.incarnation), Some(right.incarnation));
    assert_eq!(verdict.forced & ForcedActions::CHOSE_SIDE, ForcedActions::CHOSE_SIDE);
    for slot in [0, 1] {
        assert_eq!(verdict.extra(slot), Some(ExtraReason::LivedOn));
        assert_eq!(verdict.slots[slot].state, SlotState::Missing);
    }
    assert!(verdict.refusal().is_none());
    let verdict = judge(&all, Some(2));
    assert_eq!(verdict.extra(2), Some(ExtraReason::LivedOn));
}

#[test]
fn an_unknown_half_cannot_be_trusted() {
    let (_, _, all) = split();
    let (kind, line) = refused(&judge(&all, Some(77)));
    assert_eq!(kind, RefusalKind::NoSuchSide);
    assert!(line.contains(&incarnation(77).to_string()), "{line}");
}

#[test]
fn a_member_that_merely_slept_cannot_be_trusted_over_the_array() {
    let base = array(2, 2, 1);
    let left = started_without(&base, 2, &[3]);
    let all: Vec<_> =
        (0..4).map(|slot| reading(if slot < 3 { &left } else { &base }, slot)).collect();
    assert_eq!(judge(&all, None).slots[3].state, SlotState::Stale { out_since: 11 });
    assert_eq!(refused(&judge(&all, Some(1))).0, RefusalKind::NoSuchSide);
}

#[test]
fn equal_generations_with_different_incarnations_are_split_brain() {
    let base = array(1, 1, 1);
    let all = [reading(&started(&base, 2), 0), reading(&started(&base, 3), 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

#[test]
fn equal_generations_with_different_content_are_split_brain() {
    let base = array(1, 1, 1);
    let other = Superblock { unclean: true, ..base.clone() };
    let all = [reading(&base, 0), reading(&other, 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

#[test]
fn one_generation_behind_under_a_strange_incarnation_is_another_half() {
    let base = array(1, 1, 1);
    let all = [reading(&updated(&started(&base, 2)), 0), reading(&started(&base, 3), 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

/// The generation alone does not show it: the member was recorded as out a few generations after
/// the last one it holds, and was started on its own in between.
#[test]
fn a_member_that_woke_below_the_generation_of_its_loss_is_found_by_its_incarnation() {
    let base = array(1, 1, 1);
    let mut left = updated(&updated(&started(&base, 2)));
    left.generation += 1;
    left.record(member_uuid(1), MemberEvent::Lost).expect("was active");
    let right = started_without(&base, 3, &[0]);
    assert!(right.generation < left.member(member_uuid(1)).expect("listed").out_since);
    let all = [reading(&left, 0), reading(&right, 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

/// An update is in force only when every member that it lists as in service has it. One that counts
/// on a member which went another way was cut off, and nothing was ever served under it: the member
/// that got it was merely away.
#[test]
fn a_member_that_alone_got_an_update_which_counts_on_the_others_was_merely_away() {
    let base = array(1, 1, 1);
    let left = updated(&lost(&base, &[1]));
    let right = updated(&base);
    assert!(right.incarnation == base.incarnation && right.generation == 11);
    let all = [reading(&left, 0), reading(&right, 1)];
    assert_eq!(judge(&all, None).slots[1].state, SlotState::Stale { out_since: 11 });
}

/// The same with an update that says that the others are out: that one was in force.
#[test]
fn a_member_written_after_its_loss_without_the_others_is_another_half() {
    let base = array(1, 1, 1);
    let left = updated(&lost(&base, &[1]));
    let right = lost(&base, &[0]);
    assert!(right.incarnation == base.incarnation && right.generation == 11);
    let all = [reading(&left, 0), reading(&right, 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

/// A start with all members is cut off when some have it; those are lost; the rest start, and
/// record that; all are back.
#[test]
fn a_start_that_only_members_got_which_the_next_start_lacked_is_no_half() {
    let base = array(2, 2, 1);
    let cut_off = started(&base, 2);
    let same_generation = lost(&base, &[0, 1]);
    let later = started_without(&base, 3, &[0, 1]);
    let much_later = updated(&started(&updated(&later), 4));
    assert_eq!(same_generation.generation, cut_off.generation);
    for held in [same_generation, later, much_later] {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
            let one = |slot: u16| reading(if slot < 2 { &cut_off } else { &held }, slot);
            let verdict = judge(&order.map(one), None);
            assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
            let states = verdict.slots.iter().map(|slot| slot.state).collect::<Vec<_>>();
            let stale = SlotState::Stale { out_since: 11 };
            assert_eq!(states, [stale, stale, SlotState::Current, SlotState::Current]);
        }
    }
}

/// Seed 29471 of the universes, at 6389f5f. A start without slot 2 is cut off when slot 0 alone has
/// it, and slot 0 is lost; slot 2 is back, and the next start, without slot 0, has the same
/// generation and is in force. Both put one member out, and the one that nobody served under was
/// believed: the others had split from it.
#[test]
fn of_two_starts_of_one_generation_the_one_in_force_speaks_for_the_array() {
    let base = array(2, 2, 1);
    let (cut_off, served) = (started_without(&base, 2, &[2]), started_without(&base, 3, &[0]));
    assert_eq!(cut_off.generation, served.generation);
    for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
        let one = |slot: u16| reading(if slot == 0 { &cut_off } else { &served }, slot);
        let verdict = judge(&order.map(one), None);
        assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
        let newest = verdict.newest.as_ref().map(|newest| newest.incarnation);
        assert_eq!(newest, Some(served.incarnation));
        let stale = SlotState::Stale { out_since: 11 };
        let states = verdict.slots.iter().map(|slot| slot.state).collect::<Vec<_>>();
        assert_eq!(states, [stale, SlotState::Current, SlotState::Current, SlotState::Current]);
    }
    // Two that each count on nobody of the other's may both have served.
    let (left, right) = (started_without(&base, 2, &[2, 3]), started_without(&base, 3, &[0, 1]));
    for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
        let one = |slot: u16| reading(if slot < 2 { &left } else { &right }, slot);
        assert_eq!(refused(&judge(&order.map(one), None)).0, RefusalKind::SplitBrain);
    }
}

/// A mirror of three whose slot 0 alone got a start that was cut off. The next one, without it, had
/// the others; then slot 1 got another device, and slot 2 was lost. What slots 1 and 2 held when
/// they left, and the newest.
fn all_others_left_since() -> (Superblock, Superblock, Superblock) {
    let base = array(1, 2, 1);
    let held = updated(&started_without(&base, 3, &[0]));
    let mut newest = lost(&held, &[2]);
    newest.record(member_uuid(1), MemberEvent::Dismissed).expect("was active");
    let other = MemberEntry::new(member_uuid(7), MemberIdx(1), Role::Active);
    newest.members.push(other.on_device(DEVICE_BYTES, Text::cut(&serial(7))));
    (started(&base, 2), held, updated(&newest))
}

/// Seeds 11847 and 12371 of the universes: an array did not start. By the time the lost member came
/// back, every member that its superblock lists was out or replaced, so the newest superblock alone
/// did not show that its start was never served.
#[test]
fn a_start_that_was_cut_off_is_no_half_if_a_member_it_lists_went_another_way_and_left_since() {
    let (cut_off, held, newest) = all_others_left_since();
    for witness in [1, 2] {
        let all = [reading(&cut_off, 0), reading(&held, witness), reading(&newest, 7)];
        let verdict = judge(&all, None);
        assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
        assert_eq!(verdict.slots[0].state, SlotState::Stale { out_since: 11 });
        assert_eq!(verdict.slots[1].state, SlotState::Current);
    }
}

/// Seed 28676 of the universes, at 6389f5f: the only member that the start which was cut off counts
/// on is gone. It was in service for long after that, by the newest superblock.
#[test]
fn a_start_that_was_cut_off_is_no_half_if_a_member_it_lists_was_put_out_much_later() {
    let base = array(1, 1, 1);
    let cut_off = started(&base, 2);
    let mut went_on = updated(&started_without(&base, 3, &[0]));
    let other = MemberEntry::new(member_uuid(7), MemberIdx(0), Role::Active);
    went_on.members.push(other.on_device(DEVICE_BYTES, Text::cut(&serial(7))));
    for updates in 0..6 {
        let newest = updated(&lost(&went_on, &[1]));
        let verdict = judge(&[reading(&cut_off, 0), reading(&newest, 7)], None);
        // Two generations may be what it never heard of.
        let is_refused = went_on.generation < cut_off.generation + 2;
        let kind = verdict.refusal().map(|refusal| refusal.kind);
        let is_halves = kind == Some(RefusalKind::SplitBrain);
        assert_eq!(is_halves, is_refused, "{updates}: {:?}", verdict.start);
        went_on = updated(&went_on);
    }
    // One that was started without it lived on, whatever the other did.
    let newest = updated(&lost(&went_on, &[1]));
    let alone = started_without(&base, 2, &[1]);
    let all = [reading(&alone, 0), reading(&newest, 7)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

/// Without one of them nobody can tell, and with one that has it, too, it was in force.
#[test]
fn a_start_that_may_have_served_is_another_half() {
    let (cut_off, held, newest) = all_others_left_since();
    let refused_with = |other: &[MemberReading]| {
        let all = [&[reading(&cut_off, 0), reading(&newest, 7)], other].concat();
        assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain, "{other:?}");
    };
    refused_with(&[]);
    // One that was not written since: it may have been told later.
    refused_with(&[reading(&array(1, 2, 1), 2)]);
    // One that was, under that start or a later one of that side.
    refused_with(&[reading(&updated(&cut_off), 2)]);
    refused_with(&[reading(&updated(&started(&updated(&cut_off), 4)), 2)]);
    // One that it does not count on.
    let alone = started_without(&array(1, 2, 1), 2, &[1, 2]);
    let all = [reading(&alone, 0), reading(&held, 2), reading(&newest, 7)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

#[test]
fn a_member_that_missed_the_very_start_that_lost_it_was_merely_away() {
    let base = array(1, 1, 1);
    // The start's update never reached slot 1; the next one records that.
    let mut left = updated(&started(&base, 2));
    left.record(member_uuid(1), MemberEvent::Lost).expect("was active");
    let all = [reading(&left, 0), reading(&base, 1)];
    let verdict = judge(&all, None);
    assert_eq!(verdict.slots[1].state, SlotState::Stale { out_since: 12 });
    // And still after two more starts without it.
    let later = started(&updated(&started(&left, 4)), 5);
    let all = [reading(&later, 0), reading(&base, 1)];
    assert_eq!(judge(&all, None).slots[1].state, SlotState::Stale { out_since: 12 });
}

#[test]
fn a_member_whose_own_superblock_says_it_is_out_did_not_live_on() {
    let mut left = updated(&array(1, 1, 1));
    left.record(member_uuid(1), MemberEvent::Lost).expect("was active");
    let told = left.clone();
    let later = updated(&updated(&left));
    let all = [reading(&later, 0), reading(&told, 1)];
    assert_eq!(judge(&all, None).slots[1].state, SlotState::Stale { out_since: 11 });
}

/// Crashes cannot look like halves: after any number of starts and losses, cut in the middle of any
/// update at any subset of the members, the array assembles.
#[test]
fn no_crash_in_an_update_is_taken_for_split_brain() {
    let base = array(2, 2, 1);
    let start = started(&base, 2);
    let lost = {
        let mut next = updated(&start);
        next.record(member_uuid(3), MemberEvent::Lost).expect("was active");
        next
    };
    let stopped = Superblock { unclean: false, ..updated(&lost) };
    let again = started(&stopped, 3);
    let history = [base, start, lost, stopped, again];
    for pair in history.windows(2) {
        for reached in 0..16u32 {
            let all: Vec<_> = (0..4)
                .map(|slot| {
                    // Slot 3 keeps what it had when it was lost.
                    let newest = if slot == 3 { pair[1].generation.min(11) } else { u64::MAX };
                    let wanted = if reached & (1 << slot) == 0 { &pair[0] } else { &pair[1] };
                    let held = history
                        .iter()
                        .rfind(|state| state.generation <= wanted.generation.min(newest))
                        .expect("the base");
                    reading(held, slot)
                })
                .collect();
            let verdict = judge(&all, None);
            assert!(verdict.refusal().is_none(), "{reached:#b}: {:?}", verdict.start);
            assert!(verdict.slots[..3].iter().all(|slot| slot.state == SlotState::Current));
        }
    }
    assert_eq!(judge(&readings(&history[1]), None).start, Start::Whole);
}

/// A mirror of three. Slot 0 started alone as incarnation 2 and served; then it took slot 1 back,
/// and a crash came before that update reached slot 1. Slot 1 started alone from what it had. The
/// update that slot 1 was to get never came about, but what was served before it counted on nobody.
#[test]
fn an_update_that_only_rebuilds_on_the_newest_says_nothing_of_what_was_served_before() {
    let base = array(1, 2, 1);
    let mut served = updated(&updated(&started_without(&base, 2, &[1, 2])));
    served.record(member_uuid(1), MemberEvent::Readded).expect("is out");
    let mut newest = started_without(&base, 3, &[0, 2]);
    for _ in 0..4 {
        newest = updated(&newest);
        let all = [reading(&served, 0), reading(&newest, 1), reading(&base, 2)];
        assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain, "{}", newest.generation);
    }
}

/// The newest lists a member as being rebuilt, which never heard of it: it was started on its own
/// from what it had.
#[test]
fn a_member_that_the_newest_believes_is_being_rebuilt_may_have_lived_on() {
    let base = array(1, 1, 1);
    let mut newest = updated(&updated(&started_without(&base, 2, &[1])));
    newest.record(member_uuid(1), MemberEvent::Readded).expect("is out");
    let newest = updated(&newest);
    let alone = updated(&started_without(&base, 3, &[0]));
    assert!(alone.generation + 1 < newest.generation);
    let all = [reading(&newest, 0), reading(&alone, 1)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
    // One that was merely away through all that is no half, and not in sync.
    let verdict = judge(&[reading(&newest, 0), reading(&base, 1)], None);
    assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
    assert_eq!(verdict.slots[1].state, SlotState::Missing);
}

/// Another device took slot 1 while slot 2 was away, and is in sync. Slot 2 started alone later and
/// never heard of it.
#[test]
fn a_member_in_sync_that_the_newest_never_heard_of_is_another_half() {
    let base = array(1, 2, 1);
    let joins = |role: Role| {
        let mut next = updated(&started_without(&base, 2, &[1, 2]));
        next.record(member_uuid(1), MemberEvent::Dismissed).expect("is out");
        let other = MemberEntry::new(member_uuid(7), MemberIdx(1), role);
        next.members.push(other.on_device(DEVICE_BYTES, Text::cut(&serial(7))));
        next
    };
    let mut newest = updated(&started_without(&base, 3, &[0, 1]));
    for _ in 0..4 {
        newest = updated(&newest);
        let all = [reading(&joins(Role::Active), 7), reading(&newest, 2)];
        assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
        // One that was not filled yet holds nothing that was served.
        let verdict = judge(&[reading(&joins(Role::Rebuilding), 7), reading(&newest, 2)], None);
        assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
        assert_eq!(verdict.extra(0), Some(ExtraReason::NotListed));
    }
}

/// Two of one generation that each count on slot 0, which is not there to tell which of them it
/// got.
#[test]
fn of_two_of_one_generation_neither_tells_that_the_other_never_came_about() {
    let base = array(1, 1, 1);
    // A new device is in sync in slot 1 by an update that slot 0 lacks, or has.
    let mut replaced = updated(&base);
    replaced.record(member_uuid(1), MemberEvent::Dismissed).expect("was active");
    let other = MemberEntry::new(member_uuid(7), MemberIdx(1), Role::Active);
    replaced.members.push(other.on_device(DEVICE_BYTES, Text::cut(&serial(7))));
    let next_start = started(&base, 2);
    let (new, old) = (reading(&replaced, 7), reading(&next_start, 1));
    assert_eq!(refused(&judge(&[new.clone(), old.clone()], None)).0, RefusalKind::SplitBrain);
    // Slot 0 tells it.
    let verdict = judge(&[reading(&next_start, 0), old, new], None);
    assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
    assert_eq!(verdict.newest.as_ref().map(|it| it.incarnation), Some(incarnation(2)));
}

/// Universe 3002581, aim `starts`. An update is cut off when slots 0 and 1 have it; they are lost
/// while the next start has all know what the newest knows, which is recorded under the same
/// generation and, the start not being recorded yet, the same incarnation.
#[test]
fn an_update_of_one_generation_and_one_incarnation_that_the_others_lack_never_came_about() {
    let base = started(&array(2, 2, 1), 2);
    let cut_off = Superblock { resync_dirty_regions: true, ..updated(&base) };
    let caught_up = lost(&base, &[0, 1]);
    assert!((cut_off.generation, cut_off.incarnation) == (caught_up.generation, incarnation(2)));
    for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
        let one = |slot: u16| reading(if slot < 2 { &cut_off } else { &caught_up }, slot);
        let verdict = judge(&order.map(one), None);
        assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
        let stale = SlotState::Stale { out_since: caught_up.generation };
        let states = verdict.slots.iter().map(|slot| slot.state).collect::<Vec<_>>();
        assert_eq!(states, [stale, stale, SlotState::Current, SlotState::Current]);
    }
}

/// Universe 4001674, aim `scrubs`. An image of slot 1 from starts ago comes back; a device that was
/// on its way into its place then has gone on with the others.
#[test]
fn an_old_image_that_counts_on_a_joining_device_which_went_on_is_no_half() {
    let joining_device = |number: u16| {
        let entry = MemberEntry::new(member_uuid(number), MemberIdx(1), Role::Replacement);
        entry.on_device(DEVICE_BYTES, Text::cut(&serial(number)))
    };
    let takes_over = |base: &Superblock, (one, other): (u16, u16)| {
        let mut next = updated(base);
        next.record(member_uuid(one), MemberEvent::Dismissed).expect("was active");
        next.record(member_uuid(other), MemberEvent::Completed).expect("was on its way");
        next
    };
    let mut old = updated(&lost(&array(1, 1, 1), &[0]));
    old.members.push(joining_device(8));
    let mut held = takes_over(&started(&started(&started(&old, 3), 4), 5), (1, 8));
    held.members.push(joining_device(9));
    let newest = takes_over(&held, (8, 9));
    let all = [reading(&newest, 9), reading(&old, 1), reading(&held, 8)];
    let verdict = judge(&all, None);
    assert!(verdict.refusal().is_none(), "{:?}", verdict.start);
    assert_eq!(verdict.extra(1), Some(ExtraReason::Removed));
    // One that the newest does not list went some other way.
    let mut stranger = newest.clone();
    stranger.members.retain(|entry| entry.uuid != member_uuid(8));
    let on_its_way = started(&started(&old, 3), 4);
    let all = [reading(&stranger, 9), reading(&old, 1), reading(&on_its_way, 8)];
    assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
}

/// A mirror. An image of slot 1 is kept; slot 0 is lost right after, so nobody is left who shows
/// that the image is from before. Slot 1 goes on alone over some starts, and both slots are given
/// to other devices. The image, plugged in again, is history. A member that was started on its own
/// from where it was put out is not, however far both got.
#[test]
fn an_older_image_of_a_device_whose_slot_was_given_to_another_is_no_half() {
    let joins = |base: &Superblock, (slot, number): (u16, u16)| {
        let mut next = updated(base);
        next.record(member_uuid(slot), MemberEvent::Dismissed).expect("it can be dismissed");
        let entry = MemberEntry::new(member_uuid(number), MemberIdx(slot), Role::Active);
        next.members.push(entry.on_device(DEVICE_BYTES, Text::cut(&serial(number))));
        next
    };
    let image = started(&array(1, 1, 1), 2);
    let alone = started(&started(&started(&lost(&image, &[0]), 3), 4), 5);
    let newest = joins(&joins(&alone, (0, 7)), (1, 8));
    let verdict = judge(&[reading(&newest, 7), reading(&newest, 8), reading(&image, 1)], None);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.extra(2), Some(ExtraReason::Removed));
    let mut elsewhere = started(&alone, 6);
    let mut here = joins(&alone, (0, 7));
    here.record(member_uuid(1), MemberEvent::Lost).expect("was active");
    for _ in 0..4 {
        elsewhere = updated(&elsewhere);
        here = updated(&here);
        let newest = joins(&here, (1, 8));
        let all = [reading(&newest, 7), reading(&newest, 8), reading(&elsewhere, 1)];
        assert_eq!(refused(&judge(&all, None)).0, RefusalKind::SplitBrain);
    }
}

/// A member that was out came back elsewhere and was written there: it has missed more than it
/// says.
#[test]
fn a_member_that_came_back_elsewhere_does_not_come_back_here() {
    let base = array(1, 2, 1);
    // Slot 2 is lost while all run; slots 0 and 1 know the same of that.
    let known = lost(&base, &[2]);
    let here = updated(&started_without(&known, 3, &[0]));
    let found = known.generation;
    let only_missed = |own: &Superblock| {
        let own = own.for_member(member_uuid(2)).expect("is listed");
        has_only_missed(&own, &here, found)
    };
    assert!(only_missed(&base), "it was_away");
    // It was being rebuilt when this start found the array, and was lost with it.
    let mut taken_back = known.clone();
    taken_back.record(member_uuid(2), MemberEvent::Readded).expect("is out");
    assert!(only_missed(&taken_back));
    // The run before this start went on without it, or another start took it back.
    assert!(!only_missed(&updated(&taken_back)));
    let mut elsewhere = started_without(&known, 2, &[1]);
    elsewhere.record(member_uuid(2), MemberEvent::Readded).expect("is out");
    assert!(!only_missed(&elsewhere));
    // Started on its own it is no member that only missed something, nor is one that is in sync
    // here.
    assert!(!only_missed(&started_without(&base, 4, &[0, 1])));
    assert!(!has_only_missed(&base.for_member(member_uuid(1)).expect("is listed"), &here, found));
}
