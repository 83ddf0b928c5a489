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
use ashlar_api::v1::status::MissingService;
use ashlar_api::v1::tuning::Tuning;
use ashlar_nbd::only_we_change;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// What was accepted at starts since its last clean stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
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
        let is_plain = self.attach.is_none() && self.absent.is_empty() && self.forced.is_empty();
        !self.start && is_plain && is_default(&self.tuning)
    }
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    #[serde(default)]
    array: BTreeMap<Uuid, Remembered>,
    /// Devices that were made spares by hand and wait for a slot.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    spares: BTreeSet<String>,
}

/// What is called missing: changes that are not on the disk, and what was there before.
pub const UNWRITTEN: &str = "what is remembered of arrays";
/// See [`UNWRITTEN`].
pub const DAMAGED: &str = "what was remembered of arrays";

/// A file that made no sense, and is told of until somebody takes it away.
#[derive(Debug)]
struct Damage {
    file: PathBuf,
    reason: String,
    is_there: AtomicBool,
}

impl Damage {
    fn new(file: PathBuf, what: &str) -> Damage {
        let reason = format!(
            "{what}; arrays that were assembled or attached by hand do not start by themselves; \
             start each again, which is remembered: ashlar assemble DEVICE...; then: rm {}",
            file.display()
        );
        Damage { file, reason, is_there: AtomicBool::new(true) }
    }

    /// What an earlier start set aside.
    fn of_before(file: &Path) -> Option<Damage> {
        let aside = aside_of(file);
        let what = format!("an earlier start found it damaged and kept it as {}", aside.display());
        aside.exists().then(|| Damage::new(aside, &what))
    }
}

/// What is remembered of all arrays.
#[derive(Debug, Default)]
pub struct RememberedArrays {
    file: Option<StateFile>,
    folder: PathBuf,
    /// Why there is no file.
    lacks: Option<String>,
    /// What made no sense at the start.
    damage: Option<Damage>,
    kept: Mutex<Kept>,
}

impl RememberedArrays {
    /// As the file in `folder` says; without a folder it is forgotten with the process. Also what
    /// is to be told.
    pub fn read(folder: Option<&Path>) -> (RememberedArrays, Option<String>) {
        let Some(folder) = folder else { return (RememberedArrays::default(), None) };
        let file = folder.join(FILE);
        let (kept, damage) = match read(&file) {
            Ok(kept) => (kept, Damage::of_before(&file)),
            Err(error) => (Kept::default(), Some(set_aside(&file, &error))),
        };
        let told = damage.as_ref().map(|it| format!("{}: {}", file.display(), it.reason));
        let own = folder.to_owned();
        let (file, lacks) = match StateFile::new(move |text| write(&own, text)) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (folder, kept) = (folder.to_owned(), Mutex::new(kept));
        (RememberedArrays { file, folder, lacks, damage, kept }, told)
    }

    fn locked(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is remembered over a restart of the daemon.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// What is remembered of this array.
    pub fn of(&self, array: Uuid) -> Option<Remembered> {
        self.locked().array.get(&array).cloned()
    }

    /// What is remembered of all arrays.
    pub fn all(&self) -> Vec<(Uuid, Remembered)> {
        self.locked().array.iter().map(|(uuid, it)| (*uuid, it.clone())).collect()
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
        self.durable(self.put(array, change)).await
    }

    async fn durable(&self, on_its_way: Option<OnItsWay>) -> io::Result<()> {
        if let Some(lacks) = &self.lacks {
            return Err(io::Error::other(lacks.clone()));
        }
        match on_its_way {
            Some(on_its_way) => on_its_way.durable().await,
            None => Ok(()),
        }
    }

    /// The devices that were made spares by hand.
    pub fn spares(&self) -> BTreeSet<String> {
        self.locked().spares.clone()
    }

    /// Remember a spare, durable afterwards.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub async fn remember_spare(&self, path: &str) -> io::Result<()> {
        let on_its_way = self.put_spares(|spares| spares.insert(path.to_owned()));
        self.durable(on_its_way).await
    }

    /// It is no spare any more.
    pub fn forget_spare(&self, path: &str) {
        drop(self.put_spares(|spares| spares.remove(path)));
    }

    fn put_spares(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) -> Option<OnItsWay> {
        let mut kept = self.locked();
        let has_changed = change(&mut kept.spares);
        let file = self.file.as_ref()?;
        if has_changed { Some(file.put(text_of(&kept))) } else { Some(file.all()) }
    }

    /// The same for what nobody waits for: it is written soon.
    pub fn note(&self, array: Uuid, change: impl FnOnce(&mut Remembered)) {
        drop(self.put(array, change));
    }

    /// Wait until all that was noted is written; not for ever. What to tell if it is not.
    pub async fn settle(&self) -> Option<String> {
        let written = match &self.file {
            Some(file) if file.trouble().is_none() => file.all().durable().await.is_ok(),
            _ => false,
        };
        if !written {
            self.try_again().await;
        }
        let missing = self.missing().into_iter().find(|it| it.name == UNWRITTEN);
        missing.map(|it| format!("{} is missing: {}", it.name, it.reason))
    }

    /// Write what could not be written.
    pub async fn try_again(&self) {
        let on_its_way = {
            let kept = self.locked();
            let file = self.file.as_ref().filter(|file| file.trouble().is_some());
            file.map(|file| file.put(text_of(&kept)))
        };
        if let Some(on_its_way) = on_its_way {
            // It is told as missing.
            let _failed_again = on_its_way.durable().await;
        }
    }

    /// What is not remembered though it should be, for the status.
    pub fn missing(&self) -> Vec<MissingService> {
        let file = self.folder.join(FILE);
        let trouble = self.file.as_ref().map_or_else(|| self.lacks.clone(), StateFile::trouble);
        let unwritten = trouble.map(|why| MissingService {
            name: UNWRITTEN.to_owned(),
            reason: format!(
                "{}: {why}; arrays run, and after a restart those that were started meanwhile \
                 do not; make room or mend that, and it is written by itself",
                file.display()
            ),
            is_way: false,
        });
        let damage = self.damage.iter().filter(|it| it.is_there.load(Ordering::Acquire));
        let damaged = damage.map(|it| MissingService {
            name: DAMAGED.to_owned(),
            reason: it.reason.clone(),
            is_way: true,
        });
        damaged.chain(unwritten).collect()
    }

    /// Look whether somebody took away what was damaged. It reads a directory.
    pub fn look_at_damage(&self) {
        if let Some(damage) = &self.damage {
            damage.is_there.store(damage.file.exists(), Ordering::Release);
        }
    }

    fn put(&self, array: Uuid, change: impl FnOnce(&mut Remembered)) -> Option<OnItsWay> {
        let mut kept = self.locked();
        let mut own = kept.array.get(&array).cloned().unwrap_or_default();
        let before = own.clone();
        change(&mut own);
        if own == before {
            let file = self.file.as_ref()?;
            return match file.trouble() {
                Some(_) => Some(file.put(text_of(&kept))),
                None => Some(file.all()),
            };
        }
        match own.says_nothing() {
            true => drop(kept.array.remove(&array)),
            false => drop(kept.array.insert(array, own)),
        }
        // With the lock in hand: the newest content is that of the last change.
        let file = self.file.as_ref()?;
        Some(file.put(text_of(&kept)))
    }
}

fn text_of(kept: &Kept) -> String {
    let text = toml::to_string(kept);
    text.expect("names, numbers and lists of them")
}

/// The devices of all arrays that the file in `folder` remembers; none if it cannot be read.
pub fn devices(folder: &Path) -> Vec<String> {
    let kept = read(&folder.join(FILE)).unwrap_or_default();
    kept.array.into_values().flat_map(|own| own.devices).collect()
}

fn read(file: &Path) -> io::Result<Kept> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        opened => opened?,
    };
    only_we_change(&opened.metadata()?).map_err(io::Error::other)?;
    toml::from_str(&io::read_to_string(opened)?).map_err(io::Error::other)
}

fn aside_of(file: &Path) -> PathBuf {
    file.with_extension("toml.damaged")
}

/// Out of the way of what is remembered from now on.
fn set_aside(file: &Path, error: &io::Error) -> Damage {
    let aside = aside_of(file);
    let error = error.to_string();
    let error = error.lines().next().unwrap_or_default();
    match fs::rename(file, &aside) {
        Ok(()) => {
            let what = format!("it is damaged ({error}) and kept as {}", aside.display());
            Damage::new(aside, &what)
        }
        Err(moved) => {
            let what = format!("it is damaged ({error}) and cannot be moved away: {moved}");
            Damage::new(file.to_owned(), &what)
        }
    }
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
        let aside = folder.path().join("arrays.toml.damaged");
        assert!(!file.exists() && aside.exists());
        let (again, told) = RememberedArrays::read(Some(folder.path()));
        assert!(told.is_some(), "until it is taken away");
        assert_eq!((arrays.missing().len(), again.missing().len()), (1, 1));
        std::fs::remove_file(aside).expect("there");
        again.look_at_damage();
        assert!(again.missing().is_empty());
    }
}
