//! Faults planted in the engine that universes would meet too rarely: for each there is a test of
//! the program `engine` that must go wrong with it, and go well without.
//!
//! What must stay true: every canary of `Canary::STAGED` is here, and no other. Built with the
//! feature `canaries` only.
#![forbid(unsafe_code)]

#[path = "engine/world/mod.rs"]
mod world;

#[path = "engine/crashes_in_a_row.rs"]
mod crashes_in_a_row;
#[path = "engine/drives.rs"]
mod drives;
#[path = "engine/exchanged.rs"]
mod exchanged;
#[path = "engine/grown.rs"]
mod grown;
#[path = "engine/kept_map.rs"]
mod kept_map;
#[path = "engine/log.rs"]
mod log;
#[path = "engine/lost_before_replay.rs"]
mod lost_before_replay;
#[path = "engine/older_copies.rs"]
mod older_copies;
#[path = "engine/rebuild_passes.rs"]
mod rebuild_passes;
#[path = "engine/successors.rs"]
mod successors;
#[path = "engine/swept.rs"]
mod swept;
#[path = "engine/together.rs"]
mod together;

use ashlar_engine::{Canary, set_canary};
use std::panic::{catch_unwind, set_hook, take_hook};
use std::thread;

/// What finds the canary.
fn test_of(canary: Canary) -> fn() {
    match canary {
        Canary::SweptUnflushed => {
            swept::a_region_is_called_clean_when_all_members_have_flushed_what_was_written_there
        }
        Canary::CatchUpSkipped => {
            crashes_in_a_row::a_start_cut_off_twice_leaves_an_array_that_starts
        }
        Canary::ReplayBeforeLossRecorded => {
            lost_before_replay::nothing_is_rolled_forward_before_a_loss_is_recorded
        }
        Canary::ShorterMemberRepaired => {
            drives::a_member_that_became_smaller_is_out_before_a_superblock_gives_it_its_size_back
        }
        Canary::UpdateCutOffTrusted => {
            together::mirrors_that_lost_a_pair_answer_nothing_that_the_next_start_does_not_have
        }
        Canary::RebuiltTogetherLastLeft => {
            rebuild_passes::two_members_are_rebuilt_with_the_reads_of_one
        }
        Canary::SuccessorNotAsked => {
            exchanged::what_is_under_way_on_a_device_that_leaves_its_slot_is_asked_of_the_next
        }
        Canary::CopySpeaksOn => {
            successors::a_copy_that_ends_late_says_nothing_about_the_device_that_came_next
        }
        Canary::AwayBelieved => {
            kept_map::a_drive_that_lost_its_power_while_nobody_ran_the_array_takes_no_part
        }
        Canary::ProvenWithoutFailing => {
            older_copies::a_proof_while_members_go_does_not_make_them_older_copies
        }
        _ => panic!("{canary:?} is not staged"),
    }
}

/// From now on a panic of this thread says nothing.
fn be_quiet() {
    let (hook, own) = (take_hook(), thread::current().id());
    set_hook(Box::new(move |panic| {
        if thread::current().id() != own {
            hook(panic);
        }
    }));
}

fn is_found(canary: Canary) -> bool {
    let test = test_of(canary);
    set_canary(Some(canary));
    let is_found = catch_unwind(test).is_err();
    set_canary(None);
    println!("{canary:?}: {}", if is_found { "found" } else { "not found" });
    // One that goes wrong anyway shows nothing.
    if catch_unwind(test).is_err() {
        println!("{canary:?}: wrong without it, too");
        return false;
    }
    is_found
}

#[test]
fn every_staged_canary_is_found() {
    be_quiet();
    let canaries = Canary::STAGED.iter().copied();
    let missed: Vec<Canary> = canaries.filter(|canary| !is_found(*canary)).collect();
    let is_all = missed.is_empty();
    // The last word is for everybody to read.
    drop(take_hook());
    assert!(is_all, "not found: {missed:?}");
}
