//! Volumes over NVMe/TCP to the kernel's host, in Linux 6.12.

use crate::guest::{kills, run};

#[test]
fn a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp() {
    let test = "a_killed_daemon_is_a_pause_for_a_file_system_over_nvme_tcp";
    let kills = kills().to_string();
    if let Some(said) = run(test, "nvme_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}
