//! Volumes as block devices by ublk, in Linux 6.12.

use crate::guest::{fsx, kills, run};

#[test]
fn xfs_on_a_ublk_device_knows_the_stripe_and_survives_lost_members() {
    let test = "xfs_on_a_ublk_device_knows_the_stripe_and_survives_lost_members";
    if let Some(said) = run(test, "ublk_file_system.sh", &[("FSX", &fsx(test))]) {
        println!("{said}");
    }
}

#[test]
fn a_killed_daemon_is_a_pause_and_nothing_else_for_a_mounted_file_system() {
    let test = "a_killed_daemon_is_a_pause_and_nothing_else_for_a_mounted_file_system";
    let kills = kills().to_string();
    if let Some(said) = run(test, "ublk_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}

/// Emulation tells nothing of speed: the limits are wide.
#[test]
fn a_device_that_nobody_uses_costs_little_and_the_program_tells_what_a_request_costs() {
    let test = "a_device_that_nobody_uses_costs_little_and_the_program_tells_what_a_request_costs";
    if let Some(said) = run(test, "ublk_cost.sh", &[]) {
        println!("{said}");
    }
}

#[test]
fn devices_that_others_end_and_daemons_that_end_with_users_leave_nothing_behind() {
    let test = "devices_that_others_end_and_daemons_that_end_with_users_leave_nothing_behind";
    if let Some(said) = run(test, "ublk_states.sh", &[]) {
        println!("{said}");
    }
}

/// Linux 6.12 cannot resize a device: that is told, and a device made anew has the room.
#[test]
fn a_device_that_cannot_grow_with_its_volume_is_told_of_and_a_new_one_has_the_room() {
    let test = "a_device_that_cannot_grow_with_its_volume_is_told_of_and_a_new_one_has_the_room";
    if let Some(said) = run(test, "ublk_grown.sh", &[("RESIZES", "no")]) {
        println!("{said}");
    }
}
