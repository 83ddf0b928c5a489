//! The five rules of the ledger, one by one.

use super::{Change, Crash, Ending, Ledger, Relaxed};
use crate::config::Payload;
use crate::content::{self, WriteId};
use ashlar_units::Extent;

const UNIT: Extent = Extent { offset: 0, bytes: 512 };

fn ledger() -> Ledger {
    Ledger::new(2, 512, Payload::Tags, None)
}

fn bytes(id: WriteId) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    if id != WriteId(0) {
        content::fill(Payload::Tags, 0, id, &mut bytes);
    }
    bytes
}

fn write(ledger: &mut Ledger, ending: Ending) -> WriteId {
    let begun = ledger.begin(Change::Write, UNIT, 1);
    ledger.end(begun, ending);
    begun.id
}

fn may_be(ledger: &Ledger, id: WriteId) -> bool {
    let mut copy = ledger.clone();
    copy.readers.clear();
    let begun = copy.begin_read();
    copy.observe(begun, UNIT, &bytes(id)).is_ok()
}

#[test]
fn an_answered_write_hides_what_was_there() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Done);
    assert!(may_be(&ledger, one));
    assert!(!may_be(&ledger, WriteId(0)));
}

#[test]
fn a_crash_brings_unflushed_writes_into_question_and_flushed_ones_not() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Done);
    let begun = ledger.tick();
    let two = write(&mut ledger, Ending::Done);
    ledger.flushed(begun);
    ledger.crashed(Crash::Power, false);
    assert!(!may_be(&ledger, WriteId(0)), "one was flushed");
    assert!(may_be(&ledger, one) && may_be(&ledger, two));
    let begun = ledger.tick();
    ledger.observe(begun, UNIT, &bytes(one)).unwrap();
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, one));
    assert!(!may_be(&ledger, two), "what was read once stays");
}

#[test]
fn fua_is_durable_at_once_and_a_failed_write_is_never() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Durable);
    let two = write(&mut ledger, Ending::Failed);
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, one) && may_be(&ledger, two));
    assert!(!may_be(&ledger, WriteId(0)));
}

#[test]
fn of_two_writes_at_once_either_may_be_on_top_until_a_read_shows_which() {
    let mut ledger = ledger();
    let one = ledger.begin(Change::Write, UNIT, 1);
    let two = ledger.begin(Change::Write, UNIT, 2);
    ledger.end(two, Ending::Done);
    ledger.end(one, Ending::Done);
    assert!(may_be(&ledger, one.id) && may_be(&ledger, two.id));
    let begun = ledger.tick();
    ledger.observe(begun, UNIT, &bytes(one.id)).unwrap();
    assert!(!may_be(&ledger, two.id));
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, two.id), "but neither was flushed");
}

#[test]
fn a_discard_shows_or_does_not_and_that_stays() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Durable);
    let begun = ledger.begin(Change::Discard, UNIT, 1);
    ledger.end(begun, Ending::Done);
    assert!(may_be(&ledger, one) && may_be(&ledger, WriteId(0)));
    let begun = ledger.tick();
    ledger.observe(begun, UNIT, &bytes(WriteId(0))).unwrap();
    assert!(!may_be(&ledger, one));
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, one), "it was not flushed");
}

#[test]
fn what_was_settled_and_flushed_is_all_that_is_left() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Done);
    let begun = ledger.tick();
    ledger.observe(begun, UNIT, &bytes(one)).unwrap();
    let begun = ledger.tick();
    ledger.flushed(begun);
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, one));
    assert_eq!(ledger.units[0].len(), 1);
}

#[test]
fn a_read_that_began_before_a_write_was_answered_may_still_see_what_was_there() {
    let mut ledger = ledger();
    let reader = ledger.begin_read();
    write(&mut ledger, Ending::Durable);
    ledger.observe(reader, UNIT, &bytes(WriteId(0))).unwrap();
    assert!(!may_be(&ledger, WriteId(0)));
}

#[test]
fn a_mix_of_two_writes_is_wrong() {
    let mut ledger = ledger();
    let one = ledger.begin(Change::Write, UNIT, 1);
    let two = ledger.begin(Change::Write, UNIT, 2);
    let mut mixed = bytes(one.id);
    mixed[256..].copy_from_slice(&bytes(two.id)[256..]);
    let begun = ledger.tick();
    let wrong = ledger.observe(begun, UNIT, &mixed).unwrap_err();
    assert_eq!(wrong.unit, 0);
    assert_eq!(wrong.allowed.len(), 3);
}

/// A ledger with an array of two units a stripe, whose whole stripes are relaxed.
fn relaxed() -> Ledger {
    Ledger::new(
        2,
        512,
        Payload::Tags,
        Some(super::Relaxed { stripe_units: 2, torn_at: 512, leaves_junk: false }),
    )
}

#[test]
fn units_are_flushed_until_something_is_written_and_again_after_a_start() {
    let mut ledger = relaxed();
    write(&mut ledger, Ending::Done);
    let begun = ledger.tick();
    ledger.flushed(begun);
    ledger.crashed(Crash::Power, false);
    assert!(ledger.are_flushed(0..2));
    write(&mut ledger, Ending::Done);
    ledger.crashed(Crash::Power, false);
    assert!(!ledger.are_flushed(0..2) && ledger.are_flushed(1..2), "it may be in a cache");
    ledger.crashed(Crash::Power, false);
    assert!(!ledger.are_flushed(0..1), "a start that was cut off has settled nothing");
    ledger.started(|_| false);
    ledger.crashed(Crash::Power, false);
    assert!(ledger.are_flushed(0..2), "a start flushes what it found");
}

/// Seed 1540587 of the universes: zeros were taken for those of the discard, and so for what lay
/// above the zeroing.
#[test]
fn zeros_that_two_may_have_written_do_not_say_which_of_them_is_above() {
    let mut ledger = ledger();
    write(&mut ledger, Ending::Done);
    let zeroes = ledger.begin(Change::Zeroes, UNIT, 1);
    let discard = ledger.begin(Change::Discard, UNIT, 2);
    ledger.end(discard, Ending::Done);
    let over = ledger.begin(Change::Write, UNIT, 2);
    ledger.end(zeroes, Ending::Done);
    let begun = ledger.begin_read();
    ledger.observe(begun, UNIT, &bytes(WriteId(0))).expect("the zeroing shows, or the discard");
    ledger.end(over, Ending::Done);
    assert!(may_be(&ledger, WriteId(0)), "the zeroing may be above the write");
    assert!(may_be(&ledger, over.id), "and the write above the zeroing");
}

/// Whichever of two showed, what ended before both began is gone.
#[test]
fn zeros_that_two_may_have_written_hide_what_is_under_both() {
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Done);
    let first = ledger.begin(Change::Discard, UNIT, 1);
    let second = ledger.begin(Change::Discard, UNIT, 2);
    ledger.end(first, Ending::Done);
    ledger.end(second, Ending::Done);
    assert!(may_be(&ledger, one), "a discard may do nothing");
    let begun = ledger.begin_read();
    ledger.observe(begun, UNIT, &bytes(WriteId(0))).expect("one of them shows");
    assert!(may_be(&ledger, WriteId(0)));
    assert!(!may_be(&ledger, one), "it has been seen to be gone");
}

/// Seed 1811125 of the universes. A device fails a write and tears it; a read gets a part from
/// there, and ends after the write was answered, for the others have it.
#[test]
fn a_read_that_crossed_a_failing_write_may_show_pieces_of_it_and_a_later_one_not() {
    let block = Extent { offset: 0, bytes: 4096 };
    let mut ledger = Ledger::new(1, 4096, Payload::Tags, None);
    ledger.writes_fail = true;
    let begun = ledger.begin_read();
    let write = ledger.begin(Change::Write, block, 1);
    ledger.end(write, Ending::Done);
    let mut torn = vec![0; 4096];
    content::fill(Payload::Tags, 0, write.id, &mut torn);
    torn[512..].fill(0);
    assert!(ledger.clone().observe(begun, block, &torn).is_ok());
    ledger.readers.clear();
    let begun = ledger.begin_read();
    assert!(ledger.observe(begun, block, &torn).is_err());
}

/// Seed 6902 of the universes: a device tears a write that meets no space, and a read ends before
/// the write's worker knows.
#[test]
fn a_read_that_crossed_a_write_without_space_may_show_pieces_unless_the_engine_knew() {
    let mut ledger = Ledger::new(1, 4096, Payload::Tags, None);
    let block = Extent { offset: 0, bytes: 4096 };
    ledger.set_no_space(true);
    let write = ledger.begin(Change::Write, block, 1);
    let mut torn = vec![0; 4096];
    content::fill(Payload::Tags, 0, write.id, &mut torn);
    torn[512..].fill(0);
    let begun = ledger.begin_read();
    assert!(ledger.clone().observe(begun, block, &torn).is_err(), "it was to wait");
    assert!(ledger.clone().observe_crossing(begun, block, &torn).is_ok());
    ledger.set_no_space(false);
    assert!(ledger.clone().observe_crossing(begun, block, &torn).is_ok());
    ledger.readers.clear();
    let begun = ledger.begin_read();
    assert!(ledger.observe_crossing(begun, block, &torn).is_err(), "there was space");
}

#[test]
fn a_kill_loses_nothing_that_was_answered_and_a_power_cut_after_it_may() {
    const KILL: Crash = Crash::Kill { discards_stay: false };
    let mut ledger = ledger();
    let one = write(&mut ledger, Ending::Durable);
    let two = write(&mut ledger, Ending::Done);
    let three = ledger.begin(Change::Write, UNIT, 1).id;
    ledger.crashed(KILL, false);
    assert!(!may_be(&ledger, one), "two was answered after it");
    assert!(may_be(&ledger, two) && may_be(&ledger, three));
    let mut cut = ledger.clone();
    cut.crashed(Crash::Power, false);
    assert!(may_be(&cut, one) && may_be(&cut, two) && may_be(&cut, three));
    let begun = ledger.tick();
    ledger.observe(begun, UNIT, &bytes(two)).unwrap();
    ledger.crashed(Crash::Power, false);
    assert!(may_be(&ledger, two) && !may_be(&ledger, one) && !may_be(&ledger, three));
}

#[test]
fn a_discard_that_was_seen_stays_over_a_kill_where_the_map_is_kept() {
    for discards_stay in [true, false] {
        let mut ledger = ledger();
        let one = write(&mut ledger, Ending::Durable);
        let begun = ledger.begin(Change::Discard, UNIT, 1);
        ledger.end(begun, Ending::Done);
        let begun = ledger.begin_read();
        ledger.observe(begun, UNIT, &bytes(WriteId(0))).unwrap();
        ledger.crashed(Crash::Kill { discards_stay }, false);
        assert!(may_be(&ledger, WriteId(0)));
        assert_eq!(may_be(&ledger, one), !discards_stay);
    }
}

#[test]
fn a_whole_stripe_that_was_answered_before_a_kill_is_in_doubt_after_the_next_power_cut_only() {
    let relaxed = Relaxed { stripe_units: 1, torn_at: 128, leaves_junk: false };
    let mut ledger = Ledger::new(1, 512, Payload::Tags, Some(relaxed));
    let one = write(&mut ledger, Ending::Done);
    let pieces = |ids: [WriteId; 2]| {
        let [mut first, second] = ids.map(bytes);
        first[256..].copy_from_slice(&second[256..]);
        first
    };
    let is_allowed = |ledger: &Ledger, found: &[u8]| {
        let mut copy = ledger.clone();
        let begun = copy.begin_read();
        copy.observe(begun, UNIT, found).is_ok()
    };
    let torn = pieces([one, WriteId(0)]);
    ledger.crashed(Crash::Kill { discards_stay: true }, false);
    assert!(!is_allowed(&ledger, &torn) && !may_be(&ledger, WriteId(0)) && may_be(&ledger, one));
    ledger.crashed(Crash::Power, false);
    assert!(is_allowed(&ledger, &torn) && may_be(&ledger, WriteId(0)) && may_be(&ledger, one));
}

const KILL: Crash = Crash::Kill { discards_stay: true };

/// A write under way at a kill, sent again.
fn sent_again(ledger: &mut Ledger) -> super::Begun {
    let begun = ledger.begin(Change::Write, UNIT, 1);
    ledger.crashed(KILL, false);
    ledger.resume(begun, false)
}

#[test]
fn a_replayed_write_is_there_once_it_is_answered_and_before_that_perhaps() {
    let mut ledger = ledger();
    let one = sent_again(&mut ledger);
    assert!(may_be(&ledger, one.id) && may_be(&ledger, WriteId(0)));
    // A read that finds the old content settles nothing: the write is still under way.
    let begun = ledger.begin_read();
    ledger.observe(begun, UNIT, &bytes(WriteId(0))).unwrap();
    ledger.end(one, Ending::Done);
    assert!(may_be(&ledger, one.id));
    assert!(!may_be(&ledger, WriteId(0)), "a lost answer");
}

#[test]
fn a_replayed_write_does_not_come_over_a_write_that_began_after_its_answer() {
    let mut ledger = ledger();
    let one = sent_again(&mut ledger);
    ledger.end(one, Ending::Done);
    let two = write(&mut ledger, Ending::Done);
    assert!(may_be(&ledger, two));
    assert!(!may_be(&ledger, one.id), "carried out once more after its answer");
}

#[test]
fn a_replayed_write_may_come_over_one_that_was_answered_before_it() {
    let mut ledger = ledger();
    let one = sent_again(&mut ledger);
    let two = write(&mut ledger, Ending::Done);
    assert!(may_be(&ledger, one.id) && may_be(&ledger, two));
    ledger.end(one, Ending::Done);
    assert!(may_be(&ledger, one.id) && may_be(&ledger, two));
}

#[test]
fn a_replayed_write_that_had_shown_stays() {
    let mut ledger = ledger();
    let one = ledger.begin(Change::Write, UNIT, 1);
    ledger.crashed(KILL, false);
    let begun = ledger.begin_read();
    ledger.observe(begun, UNIT, &bytes(one.id)).unwrap();
    let one = ledger.resume(one, false);
    assert!(may_be(&ledger, one.id) && !may_be(&ledger, WriteId(0)));
    // While it is under way another may come below it or above it.
    let two = write(&mut ledger, Ending::Done);
    assert!(may_be(&ledger, one.id) && may_be(&ledger, two));
}

/// It had shown, so it was durable; then another came above it, and then it was carried out once
/// more (`starts` 20261129641).
#[test]
fn a_replayed_whole_stripe_is_in_doubt_until_it_is_flushed_though_it_had_shown() {
    let relaxed = Relaxed { stripe_units: 1, torn_at: 128, leaves_junk: false };
    let mut ledger = Ledger::new(1, 512, Payload::Tags, Some(relaxed));
    let one = ledger.begin(Change::Write, UNIT, 1);
    ledger.crashed(KILL, false);
    let begun = ledger.begin_read();
    ledger.observe(begun, UNIT, &bytes(one.id)).unwrap();
    let one = ledger.resume(one, false);
    let two = write(&mut ledger, Ending::Done);
    let mut torn = bytes(one.id);
    torn[256..].copy_from_slice(&bytes(two)[256..]);
    let is_allowed = |ledger: &Ledger, crash: Crash| {
        let mut copy = ledger.clone();
        copy.crashed(crash, false);
        let begun = copy.begin_read();
        copy.observe(begun, UNIT, &torn).is_ok()
    };
    assert!(is_allowed(&ledger, KILL), "it was under way");
    ledger.end(one, Ending::Done);
    assert!(is_allowed(&ledger, Crash::Power) && !is_allowed(&ledger, KILL));
    let begun = ledger.tick();
    ledger.flushed(begun);
    assert!(!is_allowed(&ledger, Crash::Power), "it was flushed");
}
