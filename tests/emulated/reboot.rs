//! Arrays and their file systems come back by themselves: after a reboot, a power cut, with a drive
//! missing, with the drive back. They stay while the daemon is killed, the package is upgraded and
//! a drive is pulled.
//!
//! Each boot is a step of `reboot_guest.sh`. Two arrays and two ways are tried at once: a RAID 6 by
//! ublk with XFS, and a RAID 5 by a loop device over a file with ext4.

use crate::guest::{alone, skipped};
use crate::machine::{DebianMachine, Setting};

/// Drives of the RAID 6, then of the RAID 5, with their sizes in bytes.
const DRIVES: [(&str, u64); 7] = [
    ("tank0", 320 << 20),
    ("tank1", 320 << 20),
    ("tank2", 320 << 20),
    ("tank3", 320 << 20),
    ("safe0", 96 << 20),
    ("safe1", 96 << 20),
    ("safe2", 96 << 20),
];

#[test]
fn file_systems_of_fstab_are_mounted_after_reboots_power_cuts_and_lost_drives() {
    let test = "file_systems_of_fstab_are_mounted_after_reboots_power_cuts_and_lost_drives";
    let _alone = alone();
    let setting = Setting {
        script: "reboot_guest.sh",
        drives: &DRIVES,
        files: &[],
        slow: None,
        // On a quiet machine a boot takes a minute, on a busy one six.
        patience_seconds: "3600",
    };
    let machine = match DebianMachine::new(&setting) {
        Ok(machine) => machine,
        Err(why) => return skipped(test, &why),
    };
    let all = DRIVES.map(|(name, _)| name);
    let lacking: Vec<&str> =
        all.into_iter().filter(|name| !["tank1", "safe2"].contains(name)).collect();
    let tell = |said: String| println!("{said}");
    tell(machine.boot(1, &all, |_| {}));
    tell(machine.boot_and_cut(2, &all));
    tell(machine.boot(3, &all, |_| {}));
    tell(machine.boot(4, &lacking, |_| {}));
    tell(machine.boot(5, &all, |talk| {
        talk.wait_for("pull tank2");
        machine.pull("tank2");
        talk.wait_for("plug tank2");
        machine.plug("tank2");
    }));
}
