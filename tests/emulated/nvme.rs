//! Volumes over NVMe/TCP to the kernel's host, in Linux 6.12.

use crate::guest::run;

/// `ASHLAR_EMULATED_KILLS` says how often.
#[test]
fn a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp() {
    let test = "a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp";
    let kills = std::env::var("ASHLAR_EMULATED_KILLS").unwrap_or_else(|_| "5".to_owned());
    let kills = kills.parse::<u32>().expect("a number").to_string();
    if let Some(said) = run(test, "nvme_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}
