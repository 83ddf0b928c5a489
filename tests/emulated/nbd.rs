//! Volumes over NBD to the kernel's client, in Linux 6.12.

use crate::guest::{kills, run, skipped};
use crate::kernel::install_missing;

/// The kernel's client gives its users errors. What was synced is there when it is connected and
/// the file system mounted again.
#[test]
fn a_killed_daemon_costs_a_file_system_over_nbd_a_mount_and_no_synced_byte() {
    let test = "a_killed_daemon_costs_a_file_system_over_nbd_a_mount_and_no_synced_byte";
    if let Err(why) = install_missing(&[("nbd-client", "nbd-client")]) {
        return skipped(test, &why);
    }
    let kills = kills().to_string();
    if let Some(said) = run(test, "nbd_killed.sh", &[("KILLS", &kills)]) {
        println!("{said}");
    }
}
