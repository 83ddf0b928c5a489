//! The rules of assembly, one test a rule (halves that lived on separately: `halves.rs`).

use ashlar_ondisk::assembly::{
    ArrayChoice, AssemblyRequest, ExtraReason, MemberReading, ReadLabel, ReadOnlyReason,
    RefusalKind, SlotState, Start, Verdict, arrays, assemble,
};
use ashlar_ondisk::examine::split_copies;
use ashlar_ondisk::{
    ArrayName, ConsistencyPolicy, Features, ForcedActions, MemberEntry, MemberEvent, Role,
    Superblock, SuperblockCopies, SuperblockFault, Text,
};
use ashlar_units::MemberIdx;

use crate::examine::ends;
use crate::samples::{
    DEVICE_BYTES, array, array_uuid, lost, member_uuid, of_slot, path, raid6, reading, readings,
    serial, started, updated, uuid,
};
use crate::superblock::spare;

fn judge(readings: &[MemberReading]) -> Verdict {
    assemble(readings, &AssemblyRequest::default())
}

/// The refusal's kind and line; every line is one line and says that nothing was written.
pub fn refused(verdict: &Verdict) -> (RefusalKind, String) {
    let refusal = verdict.refusal().unwrap_or_else(|| panic!("started: {:?}", verdict.start));
    assert!(!refusal.line.contains('\n'), "{}", refusal.line);
    assert!(refusal.line.contains("nothing was written"), "{}", refusal.line);
    (refusal.kind, refusal.line.clone())
}

fn damaged(slot: u16) -> MemberReading {
    MemberReading { label: ReadLabel::Damaged, ..reading(&raid6(), slot) }
}

#[test]
fn all_members_of_one_generation_are_whole() {
    let verdict = judge(&readings(&raid6()));
    assert_eq!(verdict.start, Start::Whole);
    assert!(verdict.extras.is_empty() && verdict.forced == 0);
    for (at, slot) in verdict.slots.iter().enumerate() {
        assert_eq!((slot.state, slot.reading), (SlotState::Current, Some(at)));
    }
}

#[test]
fn the_order_of_the_devices_does_not_matter() {
    let mut reversed = readings(&raid6());
    reversed.reverse();
    let verdict = judge(&reversed);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.slots[0].reading, Some(5));
}

#[test]
fn m_members_with_all_copies_destroyed_still_assemble_and_one_more_does_not() {
    for [one, two] in [[0, 1], [2, 5], [4, 3]] {
        let mut all = readings(&raid6());
        all[one] = damaged(u16::try_from(one).expect("small"));
        all[two] = damaged(u16::try_from(two).expect("small"));
        let verdict = judge(&all);
        assert_eq!(verdict.start, Start::Degraded);
        assert_eq!(verdict.missing().count(), 2);
        assert_eq!(verdict.extra(one), Some(ExtraReason::Damaged));
        let third = (0..6).find(|at| *at != one && *at != two).expect("six members");
        all[third] = damaged(u16::try_from(third).expect("small"));
        let (kind, line) = refused(&judge(&all));
        assert_eq!(kind, RefusalKind::TooManyMissing);
        assert!(line.contains("lacks 3 of 6 members and can do without 2"), "{line}");
        assert!(line.contains(&serial(u16::try_from(third).expect("small"))), "{line}");
    }
}

/// The promise about metadata, from bytes to verdict: m members wholly destroyed, and on each of
/// the others all copies but one, whichever that is.
#[test]
fn m_members_destroyed_and_one_copy_left_on_the_others_still_assemble() {
    for intact in 0..4 {
        let all: Vec<MemberReading> = (0..6u16)
            .map(|slot| {
                let (mut head, mut tail) = ends(&of_slot(&raid6(), slot).encode().expect("valid"));
                for copy in
                    (0..4).filter(|copy| slot < 2 || *copy != (intact + usize::from(slot)) % 4)
                {
                    let range = if copy < 2 { &mut head } else { &mut tail };
                    range[copy % 2 * 65_536..][..65_536].fill(0xDB);
                }
                let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
                MemberReading::new(&path(slot), DEVICE_BYTES, &serial(slot), choice)
            })
            .collect();
        let verdict = judge(&all);
        assert_eq!(verdict.start, Start::Degraded, "copy {intact}");
        assert_eq!(verdict.missing().map(|slot| slot.slot.0).collect::<Vec<_>>(), [0, 1]);
    }
}

#[test]
fn missing_members_are_counted_per_group() {
    let grouped = array(1, 1, 4);
    let mut all = readings(&grouped);
    for slot in [6, 4, 2, 0] {
        all.remove(slot);
    }
    assert_eq!(judge(&all).start, Start::Degraded, "one of each mirror is there");
    let mut all = readings(&grouped);
    all.drain(4..6);
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::TooManyMissing);
    assert!(line.contains("group 2 lacks 2 of 2"), "{line}");
}

#[test]
fn an_array_without_parity_needs_all_members() {
    let mut all = readings(&array(4, 0, 1));
    assert_eq!(judge(&all).start, Start::Whole);
    all.pop();
    assert_eq!(refused(&judge(&all)).0, RefusalKind::TooManyMissing);
}

#[test]
fn a_member_one_generation_behind_is_current() {
    let old = raid6();
    let new = started(&old, 2);
    let all: Vec<_> =
        (0..6).map(|slot| reading(if slot < 2 { &new } else { &old }, slot)).collect();
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.newest.as_ref().map(|newest| newest.generation), Some(11));
}

#[test]
fn a_member_listed_as_current_but_two_generations_behind_stays_out() {
    let old = raid6();
    let new = updated(&updated(&old));
    let mut all = readings(&new);
    all[3] = reading(&old, 3);
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Degraded);
    assert_eq!(verdict.slots[3].state, SlotState::Missing);
    assert_eq!(verdict.extra(3), Some(ExtraReason::Incoherent { generation: 10 }));
}

#[test]
fn a_member_that_merely_slept_is_a_candidate_for_re_adding() {
    let new = updated(&lost(&raid6(), &[4]));
    let mut all = readings(&new);
    all[4] = reading(&raid6(), 4);
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Degraded);
    assert_eq!(verdict.slots[4].state, SlotState::Stale { out_since: 11 });
    assert_eq!(verdict.slots[4].reading, Some(4));
    assert!(verdict.extras.is_empty());
}

#[test]
fn stale_members_do_not_count_towards_the_data() {
    let new = lost(&lost(&raid6(), &[0]), &[1]);
    let mut all = readings(&new);
    all[0] = reading(&raid6(), 0);
    all[1] = reading(&raid6(), 1);
    assert_eq!(judge(&all).start, Start::Degraded);
    all.remove(5);
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::TooManyMissing);
    assert!(line.contains("slot 0 serial SER0000 (out since generation 11)"), "{line}");
}

fn with_joining_device(role: Role, base: Superblock) -> Superblock {
    let mut next = updated(&base);
    next.members.push(
        MemberEntry::new(member_uuid(100), MemberIdx(2), role)
            .on_device(DEVICE_BYTES, Text::cut(&serial(100))),
    );
    next
}

#[test]
fn a_member_being_rebuilt_is_attached_but_does_not_count() {
    let next = with_joining_device(Role::Rebuilding, lost(&raid6(), &[2]));
    let mut all = readings(&next);
    all[2] = reading(&next, 100);
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Degraded);
    assert_eq!(verdict.slots[2].state, SlotState::Missing);
    let joining_device = verdict.slots[2].joining_device.expect("listed");
    assert_eq!((joining_device.entry.role, joining_device.reading), (Role::Rebuilding, Some(2)));
}

#[test]
fn a_member_being_copied_still_holds_its_slot() {
    let next = with_joining_device(Role::Replacement, raid6());
    let mut all = readings(&next);
    all.push(reading(&next, 100));
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.slots[2].state, SlotState::Current);
    assert_eq!(
        verdict.slots[2].joining_device.and_then(|joining_device| joining_device.reading),
        Some(6)
    );
}

#[test]
fn a_removed_member_is_not_attached() {
    let mut next = lost(&raid6(), &[1]);
    next.record(member_uuid(1), MemberEvent::Dismissed).expect("was out");
    let mut all = readings(&next);
    all[1] = reading(&raid6(), 1);
    let verdict = judge(&all);
    assert_eq!(verdict.extra(1), Some(ExtraReason::Removed));
    assert_eq!(verdict.start, Start::Degraded);
}

#[test]
fn a_member_the_newest_does_not_list_is_not_attached() {
    let mut next = updated(&lost(&raid6(), &[1]));
    next.members.retain(|entry| entry.uuid != member_uuid(1));
    let mut all: Vec<_> =
        (0..6).filter(|slot| *slot != 1).map(|slot| reading(&next, slot)).collect();
    all.push(reading(&raid6(), 1));
    assert_eq!(judge(&all).extra(5), Some(ExtraReason::NotListed));
}

#[test]
fn the_same_member_on_two_devices_is_refused() {
    let mut all = readings(&raid6());
    let clone =
        MemberReading { path: "/dev/clone".into(), serial: Text::cut("OTHER"), ..all[2].clone() };
    all.push(clone);
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::SameMemberTwice);
    assert!(
        line.contains("/dev/slot2 and /dev/clone") && line.contains("clone of the other"),
        "{line}"
    );
    all[6].serial = all[2].serial;
    assert!(refused(&judge(&all)).1.contains("two paths to one device"));
}

#[test]
fn a_device_that_shrank_is_not_attached() {
    let mut all = readings(&raid6());
    all[0].device_bytes -= 4096;
    let verdict = judge(&all);
    assert_eq!(verdict.extra(0), Some(ExtraReason::TooSmall { needed_bytes: DEVICE_BYTES }));
    assert_eq!(verdict.start, Start::Degraded);
    all[0].device_bytes += 8192;
    assert_eq!(judge(&all).start, Start::Whole, "a larger device is fine");
}

#[test]
fn another_serial_is_not_attached_unless_accepted_and_then_recorded() {
    let mut all = readings(&raid6());
    all[0].serial = Text::cut("MOVED");
    let verdict = judge(&all);
    assert_eq!(verdict.extra(0), Some(ExtraReason::SerialDiffers));
    let request = AssemblyRequest { accept_serials: true, ..AssemblyRequest::default() };
    let verdict = assemble(&all, &request);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.forced, ForcedActions::SERIAL_CHANGED);
    all[0].serial = Text::EMPTY;
    assert_eq!(judge(&all).start, Start::Whole, "no serial is no contradiction");
}

/// Its new owner's metadata was overwritten by the old array, which started clean.
#[test]
fn a_device_that_was_given_to_somebody_else_is_not_attached_unless_accepted() {
    let mut all = readings(&raid6());
    all[2].foreign = Some("xfs at byte 0".to_owned());
    let verdict = judge(&all);
    assert_eq!((verdict.extra(2), verdict.start), (Some(ExtraReason::Reused), Start::Degraded));
    for reading in &mut all {
        reading.foreign = Some("xfs at byte 0".to_owned());
    }
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::TooManyMissing);
    assert!(line.contains("/dev/slot3 carries xfs at byte 0"), "{line}");
    assert!(line.contains("ashlar assemble --accept-signatures"), "{line}");
    let request = AssemblyRequest { accept_signatures: true, ..AssemblyRequest::default() };
    let verdict = assemble(&all, &request);
    assert_eq!(verdict.start, Start::Whole);
    assert_eq!(verdict.forced, ForcedActions::OVERWROTE_SIGNATURE);
    all[0].serial = Text::cut("MOVED");
    assert_eq!(assemble(&all, &request).extra(0), Some(ExtraReason::SerialDiffers), "both count");
}

/// Only what lies where no client writes tells that a device was given away.
#[test]
fn signatures_count_before_the_areas_and_behind_the_data() {
    let reading = reading(&raid6(), 0);
    let areas = raid6().areas;
    let guarded = [0, 510, (256 << 10) - 1, areas.data.end(), DEVICE_BYTES - 512];
    assert!(guarded.into_iter().all(|at| reading.guards(at)));
    let of_clients = [areas.intent_log.offset, areas.data.offset, areas.data.end() - 1];
    assert!(!of_clients.into_iter().any(|at| reading.guards(at)));
}

#[test]
fn drives_that_all_show_another_serial_are_told_of_with_the_way_out() {
    let mut all = readings(&raid6());
    for (slot, reading) in all.iter_mut().enumerate() {
        reading.serial = Text::cut(&format!("DOCK{slot}"));
    }
    let (_, line) = refused(&judge(&all));
    assert!(line.contains("/dev/slot4 shows serial DOCK4"), "{line}");
    assert!(line.contains(&format!("serial {}", serial(4))), "{line}");
    assert!(line.contains("ashlar assemble --accept-serials"), "{line}");
}

#[test]
fn unclean_and_degraded_is_read_only_without_a_log() {
    for policy in [ConsistencyPolicy::Bitmap, ConsistencyPolicy::None] {
        let mut all = readings(&Superblock { policy, ..started(&raid6(), 2) });
        assert_eq!(judge(&all).start, Start::Whole, "unclean but whole: resync will do");
        all.pop();
        assert_eq!(judge(&all).start, Start::ReadOnly(ReadOnlyReason::DirtyDegraded));
        let request = AssemblyRequest { accept_dirty_degraded: true, ..AssemblyRequest::default() };
        let verdict = assemble(&all, &request);
        assert_eq!(verdict.start, Start::Degraded);
        assert_eq!(verdict.forced, ForcedActions::DIRTY_DEGRADED);
    }
}

#[test]
fn the_log_lets_an_unclean_degraded_array_start_unless_more_is_in_doubt() {
    let mut logged = started(&raid6(), 2);
    logged.policy = ConsistencyPolicy::Log;
    logged.features.incompatible = Features::INTENT_LOG;
    let mut all = readings(&logged);
    all.pop();
    assert_eq!(judge(&all).start, Start::Degraded);
    for unclean in [true, false] {
        let doubtful = Superblock { unclean, resync_dirty_regions: true, ..logged.clone() };
        let mut all = readings(&doubtful);
        assert_eq!(judge(&all).start, Start::Whole, "a resync will do");
        all.pop();
        assert_eq!(judge(&all).start, Start::ReadOnly(ReadOnlyReason::DirtyDegraded));
        let request = AssemblyRequest { accept_dirty_degraded: true, ..AssemblyRequest::default() };
        assert_eq!(assemble(&all, &request).forced, ForcedActions::DIRTY_DEGRADED);
    }
}

#[test]
fn an_unclean_degraded_mirror_starts_because_no_parity_can_lie() {
    let mut all = readings(&started(&array(1, 2, 1), 2));
    all.pop();
    assert_eq!(judge(&all).start, Start::Degraded);
}

#[test]
fn unknown_read_only_features_start_read_only() {
    let mut newer = raid6();
    newer.features.read_only_compatible = 1 << 20;
    let verdict = judge(&readings(&newer));
    assert_eq!(
        verdict.start,
        Start::ReadOnly(ReadOnlyReason::UnknownFeatures { unknown: 1 << 20 })
    );
}

#[test]
fn one_member_a_newer_program_wrote_stops_the_array() {
    let fault = SuperblockFault::UnknownFeatures { bits: 8 };
    let mut all = readings(&raid6());
    all[5].label = ReadLabel::Unsupported { array: array_uuid(), fault };
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::Unsupported);
    assert!(line.contains("/dev/slot5") && line.contains("0x8"), "{line}");
    all[5].label = ReadLabel::Unsupported { array: uuid(0xBB, 0), fault };
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Degraded, "another array's device does not matter");
    assert_eq!(verdict.extra(5), Some(ExtraReason::Unsupported { fault }));
}

/// What it would write soon would not be believed when it is read again.
#[test]
fn an_array_that_has_no_generations_left_is_not_started() {
    let at = |generation: u64| judge(&readings(&Superblock { generation, ..raid6() }));
    let end = (1 << 31) - (1 << 24);
    assert_eq!(at(end - 1).start, Start::Whole);
    let (kind, line) = refused(&at(end));
    assert_eq!(kind, RefusalKind::GenerationsUsedUp);
    assert!(line.contains(&end.to_string()) && line.contains("salvage"), "{line}");
}

#[test]
fn where_a_newer_program_wrote_all_members_it_is_said() {
    let fault = SuperblockFault::UnknownFeatures { bits: 8 };
    let mut all = readings(&raid6());
    all.iter_mut().for_each(|it| it.label = ReadLabel::Unsupported { array: array_uuid(), fault });
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::Unsupported);
    assert!(line.contains("0x8") && line.contains(&array_uuid().to_string()), "{line}");
    let request = AssemblyRequest { array: ArrayChoice::Uuid(uuid(0xBB, 0)), ..Default::default() };
    assert_eq!(refused(&assemble(&all, &request)).0, RefusalKind::NoArray);
}

fn other_array() -> Superblock {
    Superblock {
        array_uuid: uuid(0xBB, 0),
        array_name: ArrayName::new("other").expect("a name"),
        ..array(1, 1, 1)
    }
}

#[test]
fn several_arrays_are_refused_until_one_is_named() {
    let mut all = readings(&raid6());
    all.extend(readings(&other_array()));
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::SeveralArrays);
    assert!(line.contains("tank0") && line.contains("other"), "{line}");
    let found: Vec<_> = arrays(&all).iter().map(|array| (array.uuid, array.members)).collect();
    assert_eq!(found, [(array_uuid(), 6), (uuid(0xBB, 0), 2)]);
    for choice in [
        ArrayChoice::Uuid(uuid(0xBB, 0)),
        ArrayChoice::Name(ArrayName::new("other").expect("a name")),
    ] {
        let verdict = assemble(&all, &AssemblyRequest { array: choice, ..Default::default() });
        assert_eq!(verdict.start, Start::Whole);
        assert_eq!(verdict.extra(0), Some(ExtraReason::OtherArray { array: array_uuid() }));
    }
}

#[test]
fn strangers_are_named_for_what_they_are() {
    let mut all = readings(&raid6());
    for label in [ReadLabel::Spare(spare()), ReadLabel::Foreign, ReadLabel::Blank] {
        all.push(MemberReading { label, ..reading(&raid6(), 0) });
    }
    let verdict = judge(&all);
    assert_eq!(verdict.start, Start::Whole);
    let reasons: Vec<_> =
        verdict.extras.iter().map(|extra| (extra.reading, extra.reason)).collect();
    assert_eq!(
        reasons,
        [(6, ExtraReason::Spare), (7, ExtraReason::Foreign), (8, ExtraReason::Blank)]
    );
}

/// What cannot be read may be a member: it is never called none.
#[test]
fn devices_that_cannot_be_read_are_named_before_what_is_missing() {
    let unread = |slot| {
        let blank = MemberReading { label: ReadLabel::Blank, ..reading(&raid6(), slot) };
        blank.after_fault(Some("media error (errno 5)"))
    };
    let said = |reading: &MemberReading| format!("{} cannot be read: media error", reading.path);
    let all: Vec<MemberReading> = (0..3).map(unread).collect();
    let (kind, line) = refused(&judge(&all));
    assert_eq!(kind, RefusalKind::NoArray);
    assert!(all.iter().all(|it| line.contains(&said(it))) && !line.contains("no member"), "{line}");
    let mut some = readings(&raid6());
    (0..3).for_each(|slot| some[slot] = all[slot].clone());
    let verdict = judge(&some);
    assert_eq!(verdict.extra(0), Some(ExtraReason::Unread));
    let (kind, line) = refused(&verdict);
    assert_eq!(kind, RefusalKind::TooManyMissing);
    assert!(all.iter().all(|it| line.contains(&said(it))), "{line}");
    // One that tells something after all was read.
    let told = reading(&raid6(), 0).after_fault(Some("media error"));
    assert_eq!(told.unread, None);
}

#[test]
fn nothing_found_is_refused_with_a_hint() {
    let (kind, line) = refused(&judge(&[]));
    assert_eq!(kind, RefusalKind::NoArray);
    assert!(line.contains("examine"), "{line}");
    let request =
        AssemblyRequest { array: ArrayChoice::Uuid(uuid(9, 9)), ..AssemblyRequest::default() };
    assert_eq!(refused(&assemble(&readings(&raid6()), &request)).0, RefusalKind::NoArray);
}
