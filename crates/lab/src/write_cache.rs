//! A drive's volatile write cache: whether it is on, and switching it, so that it can be switched back.
//!
//! - SCSI, SATA and virtio drives: `cache_type` in sysfs, which tells drive and kernel at once. `hdparm -W` tells the drive alone, and the
//!   kernel then sends no flushes to a cache that it believes to be off.
//! - NVMe drives: feature 6 by `nvme`.
//!
//! What must stay true: what was set is read back; a drive's setting is written to the run's directory before it is changed, so
//! that it can be restored after the lab itself was killed; restoring is not kept from being done by an interruption.

use crate::adapter::commands::{Commands, Unlogged};
use crate::adapter::word;
use crate::record::Check;
use crate::refusal::Refusal;
use crate::validity::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where settings wait to be restored, within a run's directory.
const PENDING: &str = "write-cache.json";
const ON: &str = "write back";
const OFF: &str = "write through";

/// How a drive's cache is switched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    device: PathBuf,
    way: Way,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Way {
    /// A file that holds `write back` or `write through`.
    File(PathBuf),
    /// The controller: to a namespace the drive answers that this feature is not specific to it.
    Nvme(PathBuf),
}

impl Switch {
    /// The switch of `device`; `sysfs` is `/sys`.
    ///
    /// # Errors
    /// If it has none: why not.
    pub fn of(device: &Path, sysfs: &Path) -> Result<Switch, Refusal> {
        let none = |why: &str| {
            let said = format!("{}: its write cache cannot be switched: {why}", device.display());
            Refusal::cannot_run("cache.no_switch", said, "")
        };
        let real = fs::canonicalize(device).map_err(|error| none(&error.to_string()))?;
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let block = sysfs.join("block").join(&name);
        if !block.is_dir() {
            return Err(none("it is no whole drive"));
        }
        let device = device.to_owned();
        if name.starts_with("nvme") {
            let controller = controller(&block, &name);
            let way = Way::Nvme(real.with_file_name(controller));
            return Ok(Switch { device, way });
        }
        let scsi = fs::read_dir(block.join("device/scsi_disk")).into_iter().flatten();
        let files = scsi.filter_map(Result::ok).map(|item| item.path().join("cache_type"));
        let file = files.chain([block.join("cache_type")]).find(|file| file.is_file());
        match file {
            Some(file) => Ok(Switch { device, way: Way::File(file) }),
            None => Err(none("the kernel has no cache_type for it")),
        }
    }

    /// Whether the cache is on.
    ///
    /// # Errors
    /// If the drive does not say.
    pub fn is_on(&self, commands: &dyn Commands) -> Result<bool, Refusal> {
        let (said, is_on) = match &self.way {
            Way::File(file) => {
                let text =
                    fs::read_to_string(file).map_err(|error| Refusal::file(file, &error, ""))?;
                let is_on = match text.trim() {
                    ON => Some(true),
                    OFF => Some(false),
                    _ => None,
                };
                (text, is_on)
            }
            Way::Nvme(controller) => {
                let argv = ["nvme", "get-feature", word(controller)?, "--feature-id=6"];
                let text = commands.succeed(&argv, "is the write cache on?")?.stdout;
                let is_on = feature(&text);
                (text, is_on)
            }
        };
        is_on.ok_or_else(|| {
            let said = format!(
                "{}: its write cache is neither on nor off: {}",
                self.device.display(),
                said.trim()
            );
            Refusal::cannot_run("cache.not_understood", said, "")
        })
    }

    /// Switch it on or off.
    ///
    /// # Errors
    /// If the drive refuses, or does not do what it said.
    pub fn set(&self, commands: &dyn Commands, on: bool) -> Result<(), Refusal> {
        match &self.way {
            Way::File(file) => fs::write(file, if on { ON } else { OFF })
                .map_err(|error| Refusal::file(file, &error, "the cache is as it was"))?,
            Way::Nvme(controller) => {
                let value = if on { "--value=1" } else { "--value=0" };
                let argv = ["nvme", "set-feature", word(controller)?, "--feature-id=6", value];
                commands.succeed(&argv, "switch the write cache")?;
            }
        }
        if self.is_on(commands)? == on {
            return Ok(());
        }
        let wanted = if on { "on" } else { "off" };
        let said = format!(
            "{} was told to switch its write cache {wanted} and did not",
            self.device.display()
        );
        Err(Refusal::cannot_run("cache.not_switched", said, ""))
    }
}

/// `nvme0` of the namespace `nvme0n1`: what sysfs says, or else by its name.
fn controller(block: &Path, name: &str) -> String {
    let link = fs::canonicalize(block.join("device")).ok();
    let told = link.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let is_one =
        |name: &String| name.strip_prefix("nvme").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let digits: String =
        name.trim_start_matches("nvme").chars().take_while(char::is_ascii_digit).collect();
    told.filter(is_one).unwrap_or_else(|| format!("nvme{digits}"))
}

/// `get-feature:0x06 (Volatile Write Cache), Current value:0x00000001`, and as older ones print it.
fn feature(text: &str) -> Option<bool> {
    let value = text.rsplit_once("value:")?.1.split_whitespace().next()?;
    let digits = value.trim_start_matches("0x");
    u32::from_str_radix(digits, 16).ok().map(|value| value & 1 == 1)
}

/// Caches that were switched in a run, and how they were before.
#[derive(Debug)]
pub struct Caches {
    file: PathBuf,
    sysfs: PathBuf,
    before: Before,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Before {
    /// Device -> whether its cache was on.
    was_on: BTreeMap<PathBuf, bool>,
}

impl Caches {
    /// Of the run in `dir`. What an earlier lab left switched when it was killed is known again.
    ///
    /// # Errors
    /// If the file with it cannot be read.
    pub fn open(dir: &Path, sysfs: &Path) -> Result<Caches, Refusal> {
        let file = dir.join(PENDING);
        let before = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let hint = "write caches may be switched: look, and remove the file";
                Refusal::cannot_run("cache.not_known", format!("{}: {error}", file.display()), hint)
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Before::default(),
            Err(error) => return Err(Refusal::file(&file, &error, "")),
        };
        Ok(Caches { file, sysfs: sysfs.to_owned(), before })
    }

    /// Switch the cache of `device`, after having written down how it was.
    ///
    /// # Errors
    /// If it has no switch, does not obey, or how it was cannot be written down: then it is as it was.
    pub fn set(&mut self, commands: &dyn Commands, device: &Path, on: bool) -> Result<(), Refusal> {
        let switch = Switch::of(device, &self.sysfs)?;
        if !self.before.was_on.contains_key(device) {
            let is_on = switch.is_on(commands)?;
            self.before.was_on.insert(device.to_owned(), is_on);
            self.write()?;
        }
        switch.set(commands, on)
    }

    /// Switch everything back; one check for each drive.
    ///
    /// # Errors
    /// If the file cannot be removed. A drive that does not obey is a check that failed, and stays in the file.
    pub fn restore(&mut self) -> Result<Vec<Check>, Refusal> {
        self.restore_with(&Unlogged)
    }

    fn restore_with(&mut self, commands: &dyn Commands) -> Result<Vec<Check>, Refusal> {
        let mut checks = Vec::new();
        let mut left = BTreeMap::new();
        for (device, was_on) in std::mem::take(&mut self.before.was_on) {
            let switch = Switch::of(&device, &self.sysfs);
            let restored = switch.and_then(|switch| switch.set(commands, was_on));
            let state = if was_on { "on" } else { "off" };
            let (outcome, found, next) = match restored {
                Ok(()) => (
                    Outcome::Pass,
                    format!("the write cache is {state} again, as it was before"),
                    None,
                ),
                Err(refusal) => {
                    left.insert(device.clone(), was_on);
                    let next = format!("switch it {state} by hand");
                    (
                        Outcome::Fail,
                        format!("the write cache was {state} and could not be restored: {refusal}"),
                        Some(next),
                    )
                }
            };
            let target = device.display().to_string();
            checks.push(Check {
                name: "drive.write_cache_restored".to_owned(),
                target,
                outcome,
                found,
                next,
            });
        }
        self.before.was_on = left;
        self.write()?;
        Ok(checks)
    }

    fn write(&self) -> Result<(), Refusal> {
        let fault = |error: std::io::Error| {
            Refusal::file(&self.file, &error, "no write cache was switched")
        };
        if self.before.was_on.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec(&self.before).unwrap_or_default();
        let new = self.file.with_extension("new");
        fs::write(&new, text).map_err(fault)?;
        let synced = fs::File::open(&new).and_then(|file| file.sync_all());
        synced.and_then(|()| fs::rename(&new, &self.file)).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::{Caches, PENDING, Switch, feature};
    use crate::adapter::commands::Recorded;
    use crate::validity::Outcome;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// A sysfs with a SATA drive, a virtio drive and one without a switch, and files that stand for their devices.
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
        let mut caches = Caches::open(place.path(), &sysfs).expect("opened");
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
        let mut killed = Caches::open(place.path(), &sysfs).expect("opened");
        killed.set(&Recorded::default(), &sda, false).expect("switched");
        drop(killed);
        assert_eq!(state(place.path()), "write through");
        let mut next = Caches::open(place.path(), &sysfs).expect("opened");
        assert_eq!(next.restore_with(&Recorded::default()).expect("restored").len(), 1);
        assert_eq!(state(place.path()), "write back");
    }

    #[test]
    fn a_drive_that_cannot_be_restored_is_a_failed_check_and_is_not_forgotten() {
        let place = tempfile::tempdir().expect("a directory");
        let [sda, ..] = machine(place.path());
        let sysfs = place.path().join("sys");
        let mut caches = Caches::open(place.path(), &sysfs).expect("opened");
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
        let told = include_str!("../tests/data/drive-guest.txt");
        let told = Recorded::parse(&told.replace("/dev/", &format!("{}/", real.display())));
        let mut caches = Caches::open(&real, &real.join("sys")).expect("opened");
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
        let told = |value: &str| {
            format!("get-feature:0x06 (Volatile Write Cache), Current value:{value}\n")
        };
        let set = format!("$ nvme set-feature {path} --feature-id=6 --value=0\n");
        let obeys = Recorded::parse(&format!("{set}{get}{}", told("00000000")));
        switch.set(&obeys, false).expect("switched");
        let stays = Recorded::parse(&format!("{set}{get}{}", told("0x00000001")));
        assert_eq!(switch.set(&stays, false).expect_err("it did not").code, "cache.not_switched");
        assert_eq!((feature(&told("00000001")), feature("no such thing")), (Some(true), None));
    }
}
