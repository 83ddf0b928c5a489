//! Switches in a made-up sysfs, and as an emulated NVMe drive answered.

use super::before::PENDING;
use super::{Switch, Switched, feature};
use crate::adapter::commands::Recorded;
use crate::validity::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

/// A sysfs with a SATA drive, a virtio drive and one without a switch, and files that stand for
/// their devices.
fn machine(place: &Path) -> [PathBuf; 3] {
    let sysfs = place.join("sys");
    let scsi = sysfs.join("block/sda/device/scsi_disk/0:0:0:0");
    fs::create_dir_all(&scsi).expect("made");
    fs::write(scsi.join("cache_type"), "write back\n").expect("written");
    for name in ["vda", "loop0"] {
        fs::create_dir_all(sysfs.join("block").join(name)).expect("made");
    }
    fs::write(sysfs.join("block/vda/cache_type"), "write through\n").expect("written");
    ["sda", "vda", "loop0"].map(|name| {
        let device = place.join(name);
        fs::write(&device, "").expect("written");
        device
    })
}

fn state(place: &Path) -> String {
    let file = place.join("sys/block/sda/device/scsi_disk/0:0:0:0/cache_type");
    fs::read_to_string(file).expect("there").trim().to_owned()
}

#[test]
fn a_cache_is_switched_and_afterwards_as_it_was() {
    let place = tempfile::tempdir().expect("a directory");
    let [sda, vda, none] = machine(place.path());
    let sysfs = place.path().join("sys");
    let nobody = Recorded::default();
    let mut caches = Switched::open(place.path(), &sysfs).expect("opened");
    caches.set(&nobody, &sda, false).expect("switched");
    caches.set(&nobody, &vda, true).expect("switched");
    caches.set(&nobody, &sda, true).expect("switched");
    caches.set(&nobody, &sda, false).expect("switched");
    assert_eq!(state(place.path()), "write through");
    assert!(
        caches
            .set(&nobody, &none, false)
            .expect_err("no switch")
            .message
            .contains("cannot be switched")
    );
    let checks = caches.restore_with(&nobody).expect("restored");
    assert_eq!(state(place.path()), "write back");
    let outcomes: Vec<Outcome> = checks.iter().map(|check| check.outcome).collect();
    assert_eq!(outcomes, [Outcome::Pass, Outcome::Pass]);
    assert_eq!(
        fs::read_to_string(sysfs.join("block/vda/cache_type")).expect("there"),
        "write through"
    );
    assert!(!place.path().join(PENDING).exists());
    assert_eq!(caches.restore_with(&nobody).expect("nothing to do"), []);
}

#[test]
fn a_cache_that_a_killed_lab_left_switched_is_restored_by_the_next_one() {
    let place = tempfile::tempdir().expect("a directory");
    let [sda, ..] = machine(place.path());
    let sysfs = place.path().join("sys");
    let mut killed = Switched::open(place.path(), &sysfs).expect("opened");
    killed.set(&Recorded::default(), &sda, false).expect("switched");
    drop(killed);
    assert_eq!(state(place.path()), "write through");
    let mut next = Switched::open(place.path(), &sysfs).expect("opened");
    assert_eq!(next.restore_with(&Recorded::default()).expect("restored").len(), 1);
    assert_eq!(state(place.path()), "write back");
}

#[test]
fn a_drive_that_cannot_be_restored_is_a_failed_check_and_is_not_forgotten() {
    let place = tempfile::tempdir().expect("a directory");
    let [sda, ..] = machine(place.path());
    let sysfs = place.path().join("sys");
    let mut caches = Switched::open(place.path(), &sysfs).expect("opened");
    caches.set(&Recorded::default(), &sda, false).expect("switched");
    fs::remove_dir_all(sysfs.join("block/sda")).expect("gone");
    let checks = caches.restore_with(&Recorded::default()).expect("said");
    assert_eq!(checks[0].outcome, Outcome::Fail);
    assert!(place.path().join(PENDING).exists());
}

#[test]
fn what_an_nvme_drive_answered_in_an_emulated_machine_is_understood() {
    let place = tempfile::tempdir().expect("a directory");
    let real = fs::canonicalize(place.path()).expect("there");
    fs::create_dir_all(real.join("sys/block/nvme0n1")).expect("made");
    let device = real.join("nvme0n1");
    fs::write(&device, "").expect("written");
    let told = include_str!("../../tests/data/drive-guest.txt");
    let told = Recorded::parse(&told.replace("/dev/", &format!("{}/", real.display())));
    let mut caches = Switched::open(&real, &real.join("sys")).expect("opened");
    caches.set(&told, &device, false).expect("switched off");
    caches.set(&told, &device, true).expect("switched on");
    assert!(told.coming().is_some_and(|next| next.starts_with("nvme format ")));
}

#[test]
fn an_nvme_drive_is_asked_by_feature_six_and_one_that_does_not_obey_is_said() {
    let place = tempfile::tempdir().expect("a directory");
    let sysfs = place.path().join("sys");
    fs::create_dir_all(sysfs.join("block/nvme0n1")).expect("made");
    let device = place.path().join("nvme0n1");
    fs::write(&device, "").expect("written");
    let switch = Switch::of(&device, &sysfs).expect("a switch");
    let path = std::fs::canonicalize(place.path()).expect("there").join("nvme0");
    let path = path.display();
    let get = format!("$ nvme get-feature {path} --feature-id=6\n");
    let told =
        |value: &str| format!("get-feature:0x06 (Volatile Write Cache), Current value:{value}\n");
    let set = format!("$ nvme set-feature {path} --feature-id=6 --value=0\n");
    let obeys = Recorded::parse(&format!("{set}{get}{}", told("00000000")));
    switch.set(&obeys, false).expect("switched");
    let stays = Recorded::parse(&format!("{set}{get}{}", told("0x00000001")));
    assert_eq!(switch.set(&stays, false).expect_err("it did not").code, "switch.not_obeyed");
    assert_eq!((feature(&told("00000001")), feature("no such thing")), (Some(1), None));
}

/// As an emulated drive answered (crates/lab/drive-guest).
#[test]
fn a_drive_that_refuses_to_be_switched_has_nothing_to_restore() {
    let place = tempfile::tempdir().expect("a directory");
    let real = fs::canonicalize(place.path()).expect("there");
    fs::create_dir_all(real.join("sys/block/nvme0n1")).expect("made");
    let device = real.join("nvme0n1");
    fs::write(&device, "").expect("written");
    let controller = real.join("nvme0");
    let get = format!(
        "$ nvme get-feature {} --feature-id=6\n\
         get-feature:0x06 (Volatile Write Cache), Current value:00000001\n",
        controller.display()
    );
    let refused = format!(
        "$ nvme set-feature {} --feature-id=6 --value=0\n\
         NVMe status: Feature Not Changeable(0x410e)\n? 1\n",
        controller.display()
    );
    let commands = Recorded::parse(&format!("{get}{refused}{get}"));
    let mut switched = Switched::open(&real, &real.join("sys")).expect("opened");
    let refusal = switched.set(&commands, &device, false).expect_err("refused");
    assert!(refusal.message.contains("Not Changeable"), "{refusal}");
    assert_eq!((commands.left(), real.join(PENDING).exists()), (0, false));
    assert_eq!(switched.restore_with(&commands).expect("nothing to do"), []);
}
