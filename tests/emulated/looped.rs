//! Volumes as loop devices over files of FUSE, in Linux 6.12.

use crate::guest::run;

/// `ASHLAR_EMULATED_KILLS` says how often.
#[test]
fn a_killed_daemon_is_a_pause_and_nothing_else_for_a_file_system_on_a_loop_device() {
    let test = "a_killed_daemon_is_a_pause_and_nothing_else_for_a_file_system_on_a_loop_device";
    let kills = std::env::var("ASHLAR_EMULATED_KILLS").unwrap_or_else(|_| "5".to_owned());
    if let Some(said) = run(test, "loop_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}
