//! What the daemon remembers of arrays over its restarts: which were created or assembled by hand,
//! what is attached, tunables, and which members were not there when an array started degraded.
//!
//! What must stay true: the members hold the truth about arrays. If this file is lost, a scan still
//! finds every array on block devices of this host. A change is durable before the command that
//! made it is answered, or the answer says that it is not. A file that cannot be read is kept
//! aside, and the daemon starts without. Nobody waits for the disk with a lock in hand: see
//! `state_file`.

use super::state_file::{OnItsWay, StateFile};
use ashlar_api::v1::export::Via;
use ashlar_api::v1::tuning::Tuning;
use ashlar_nbd::only_we_change;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The file in the state folder.
const FILE: &str = "arrays.toml";

/// What is remembered of one array.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Remembered {
    /// Its name, for people and for arrays that are not there.
    pub name: String,
    /// It was created or assembled by hand: it is started wherever it ran last.
    pub start: bool,
    /// Its devices then.
    pub devices: Vec<String>,
    /// It was assembled read-only.
    pub read_only: bool,
    /// Pools it takes spares from.
    pub spare_pools: Vec<String>,
    /// How it was attached by hand.
    pub attach: Option<RememberedAttach>,
    /// Slots whose members were not there when it started: they merely missed something.
    pub absent: BTreeSet<u16>,
    /// Tunables that were set by hand.
    #[serde(skip_serializing_if = "is_default")]
    pub tuning: Tuning,
}

fn is_default(tuning: &Tuning) -> bool {
    *tuning == Tuning::default()
}

/// An attachment that was made by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RememberedAttach {
    /// The way.
    pub via: Via,
    /// Logical block of a loop device, in bytes.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
}

impl Remembered {
    fn says_nothing(&self) -> bool {
        let is_plain = self.attach.is_none() && self.absent.is_empty();
        !self.start && is_plain && is_default(&self.tuning)
    }
}

/// The file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    #[serde(default)]
    array: BTreeMap<Uuid, Remembered>,
}

/// What is remembered of all arrays.
#[derive(Debug, Default)]
pub struct RememberedArrays {
    file: Option<StateFile>,
    /// Why there is no file.
    lacks: Option<String>,
    arrays: Mutex<BTreeMap<Uuid, Remembered>>,
}

impl RememberedArrays {
    /// As the file in `folder` says; without a folder it is forgotten with the process. Also what
    /// is to be told.
    pub fn read(folder: Option<&Path>) -> (RememberedArrays, Option<String>) {
        let Some(folder) = folder else { return (RememberedArrays::default(), None) };
        let file = folder.join(FILE);
        let (arrays, told) = match read(&file) {
            Ok(arrays) => (arrays, None),
            Err(error) => (BTreeMap::new(), Some(set_aside(&file, &error))),
        };
        let own = folder.to_owned();
        let (file, lacks) = match StateFile::new(move |text| write(&own, text)) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        (RememberedArrays { file, lacks, arrays: Mutex::new(arrays) }, told)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Uuid, Remembered>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is remembered over a restart of the daemon.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// What is remembered of this array.
    pub fn of(&self, array: Uuid) -> Option<Remembered> {
        self.locked().get(&array).cloned()
    }

    /// What is remembered of all arrays.
    pub fn all(&self) -> Vec<(Uuid, Remembered)> {
        self.locked().iter().map(|(uuid, it)| (*uuid, it.clone())).collect()
    }

    /// Change what is remembered of an array, durable afterwards.
    ///
    /// # Errors
    /// What the system says, or that it does not answer: it holds until the daemon ends.
    pub async fn change(
        &self,
        array: Uuid,
        change: impl FnOnce(&mut Remembered),
    ) -> io::Result<()> {
        let on_its_way = self.put(array, change);
        if let Some(lacks) = &self.lacks {
            return Err(io::Error::other(lacks.clone()));
        }
        match on_its_way {
            Some(on_its_way) => on_its_way.durable().await,
            None => Ok(()),
        }
    }

    /// The same for what nobody waits for: it is written soon.
    pub fn note(&self, array: Uuid, change: impl FnOnce(&mut Remembered)) {
        drop(self.put(array, change));
    }

    /// Wait until all that was noted is written; not for ever.
    pub async fn settle(&self) {
        if let Some(file) = &self.file {
            // Whoever wanted to know has heard it.
            let _late = file.all().durable().await;
        }
    }

    fn put(&self, array: Uuid, change: impl FnOnce(&mut Remembered)) -> Option<OnItsWay> {
        let mut arrays = self.locked();
        let mut own = arrays.get(&array).cloned().unwrap_or_default();
        let before = own.clone();
        change(&mut own);
        if own == before {
            return None;
        }
        match own.says_nothing() {
            true => drop(arrays.remove(&array)),
            false => drop(arrays.insert(array, own)),
        }
        // With the lock in hand: the newest content is that of the last change.
        let file = self.file.as_ref()?;
        let text = toml::to_string(&Kept { array: arrays.clone() });
        Some(file.put(text.expect("names, numbers and lists of them")))
    }
}

/// The devices of all arrays that the file in `folder` remembers; none if it cannot be read.
pub fn devices(folder: &Path) -> Vec<String> {
    let arrays = read(&folder.join(FILE)).unwrap_or_default();
    arrays.into_values().flat_map(|own| own.devices).collect()
}

fn read(file: &Path) -> io::Result<BTreeMap<Uuid, Remembered>> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened?,
    };
    only_we_change(&opened.metadata()?).map_err(io::Error::other)?;
    let kept: Kept = toml::from_str(&io::read_to_string(opened)?).map_err(io::Error::other)?;
    Ok(kept.array)
}

/// Out of the way of what is remembered from now on.
fn set_aside(file: &Path, error: &io::Error) -> String {
    let aside = file.with_extension("toml.damaged");
    let moved = match fs::rename(file, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("it cannot be moved away: {error}"),
    };
    let error = error.to_string();
    let error = error.lines().next().unwrap_or_default();
    format!(
        "{}: {error}; {moved}; nothing is remembered of arrays that were assembled or attached by \
         hand: see 'ashlar status', and repeat what is missing",
        file.display()
    )
}

fn write(folder: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let fresh = folder.join(format!("{FILE}.new"));
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(&fresh)?;
    opened.write_all(b"# Written by the Ashlar daemon; see ashlar.service(8).\n")?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    fs::rename(&fresh, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{Remembered, RememberedArrays, RememberedAttach};
    use ashlar_api::v1::export::Via;
    use uuid::Uuid;

    #[tokio::test]
    async fn what_is_changed_is_there_the_next_time_and_what_says_nothing_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("state");
        let [one, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let attach = Some(RememberedAttach { via: Via::Loop, sector_bytes: Some(512) });
        let (arrays, told) = RememberedArrays::read(Some(&folder));
        assert_eq!(told, None);
        let filled = |it: &mut Remembered| {
            it.name = "tank".to_owned();
            it.start = true;
            it.devices = vec!["/dev/a \"b\"".to_owned()];
            it.attach = attach;
            it.absent = [3, 1].into();
            it.tuning.job_floor = Some(7 << 20);
        };
        arrays.change(one, filled).await.expect("written");
        arrays.note(other, filled);
        arrays.change(other, |it| *it = Remembered::default()).await.expect("written");
        let (again, told) = RememberedArrays::read(Some(&folder));
        assert_eq!((again.all(), told), (arrays.all(), None));
        let kept = again.of(one).expect("remembered");
        assert_eq!((kept.attach, kept.devices.len(), again.of(other)), (attach, 1, None));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_kept_aside_and_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("arrays.toml");
        std::fs::write(&file, "array = 7\n").expect("written");
        let (arrays, told) = RememberedArrays::read(Some(folder.path()));
        assert!(arrays.all().is_empty());
        assert!(told.expect("told").contains("arrays.toml.damaged"));
        assert!(!file.exists() && folder.path().join("arrays.toml.damaged").exists());
    }
}
