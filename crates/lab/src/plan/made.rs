//! Arrays that the lab makes itself, through the engines' adapters: made, filled, degraded,
//! rebuilt, taken away.
//!
//! What must stay true: one array at a time, for arrays may share their members; whatever was made
//! is taken away at the end, whatever happened; nothing is measured while an engine works in the
//! background, except a rebuild that is asked for.

use super::file::Array;
use super::points::{FILL_BYTES_PER_S, Group, START_S};
use crate::adapter::commands::{Commands, Live};
use crate::adapter::needs::Devices;
use crate::adapter::{self, Engine, Wanted, by_name, lost, word};
use crate::evidence::Evidence;
use crate::evidence::process::monotonic;
use crate::fio::run::{FioOrder, run as run_fio};
use crate::fio::{JobFile, Section, Setting, escaped};
use crate::metrics::latency::to_f64;
use crate::record::EngineIdentity;
use crate::{AtPath, Refusal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks at background work before it is given up, and the time between.
const LOOKS_MAX: u32 = 7200;
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub struct Made<'a> {
    pub name: String,
    pub identity: EngineIdentity,
    /// Where the load generator finds it.
    pub path: PathBuf,
    engine: Box<dyn Engine>,
    out: usize,
    evidence: &'a Evidence,
    devices: Devices<'a>,
    unset: Vec<Vec<String>>,
}

impl<'a> Made<'a> {
    /// Make `array`, and write the part of it that is measured.
    ///
    /// # Errors
    /// If the engine refuses, or fio fails. What was made by then is taken away.
    pub fn make(
        array: &Array,
        evidence: &'a Evidence,
        commands: &'a Live<'a>,
        run_dir: &Path,
    ) -> Result<Made<'a>, Refusal> {
        let place = place(run_dir, &array.name())?;
        let mut made = Made {
            name: array.name(),
            identity: EngineIdentity::default(),
            path: PathBuf::new(),
            engine: by_name(&array.engine)?,
            out: 0,
            evidence,
            devices: Devices::of(commands, &array.members)?,
            unset: array.unset.clone(),
        };
        let wanted = Wanted {
            members: made.devices.paths.clone(),
            level: array.level.clone(),
            strip_bytes: array.strip_bytes(),
            place: word(&place)?.to_owned(),
        };
        match made.settle(commands, array, &wanted) {
            Ok(()) => Ok(made),
            Err(refusal) => {
                let _first_failure_counts = made.take_away(commands);
                Err(refusal)
            }
        }
    }

    /// Everything before the first measurement.
    fn settle(
        &mut self,
        commands: &Live<'_>,
        array: &Array,
        wanted: &Wanted,
    ) -> Result<(), Refusal> {
        let why = "a setting that is compared";
        array.set.iter().try_for_each(|argv| commands.planned(argv, why))?;
        self.path = self.engine.create(commands, wanted)?;
        self.identity = self.engine.identity(commands)?;
        if !array.set.is_empty() {
            self.identity.tunables.insert("set by".to_owned(), shown(&array.set).join("; "));
        }
        let configuration = self.engine.configuration();
        if !configuration.is_empty() {
            let argv: Vec<&str> = configuration.iter().map(String::as_str).collect();
            // What it does not say is no fault.
            commands.run(&argv, "the array's whole configuration")?;
        }
        self.await_idle()?;
        let block = array.stripe_data_bytes().unwrap_or(1 << 20);
        let why = format!("{}: write what is measured", self.name);
        fill(self.evidence, &self.path, (block, array.span_bytes()), why)
    }

    /// Whether this is `array` with no more than `out` members out.
    pub fn serves(&self, array: &Array, out: usize) -> bool {
        self.name == array.name() && self.out <= out
    }

    /// Take members out until `out` of them are, and wait until the engine is idle.
    pub fn degrade(&mut self, out: usize) -> Result<(), Refusal> {
        if out > self.out {
            let members = lost(self.out..out, self.devices.paths.len());
            self.engine.take_out(&Live::new(self.evidence), &members)?;
            self.out = out;
        }
        self.await_idle()
    }

    /// Put the member that was taken out first in again: a rebuild begins, now.
    pub fn rebuild(&mut self) -> Result<Duration, Refusal> {
        let began = monotonic();
        self.engine.put_in(&Live::new(self.evidence), 0)?;
        // What follows wants a whole array or a fresh one.
        self.out = usize::MAX;
        Ok(began)
    }

    /// Do `work` while it is watched when the rebuild that `began` ends; seconds that it took, if
    /// it ended meanwhile.
    pub fn meanwhile<T>(
        &self,
        began: Duration,
        work: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<(T, Option<f64>), Refusal> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let commands = Live::new(self.evidence);
                while !is_over.load(Ordering::Relaxed) {
                    if matches!(self.engine.is_busy(&commands), Ok(false)) {
                        return Some((monotonic() - began).as_secs_f64());
                    }
                    commands.pause(LOOK_EVERY);
                }
                None
            });
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            let ended = watcher.join().ok().flatten();
            done.map(|value| (value, ended))
        })
    }

    /// Wait for the end of the rebuild that `began`; seconds that it took.
    pub fn await_rebuilt(&self, began: Duration) -> Result<f64, Refusal> {
        self.await_idle()?;
        Ok((monotonic() - began).as_secs_f64())
    }

    pub fn member_bytes(&self) -> Option<u64> {
        let mut file = std::fs::File::open(self.devices.paths.first()?).ok()?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).ok()
    }

    fn await_idle(&self) -> Result<(), Refusal> {
        let commands = Live::new(self.evidence);
        for _ in 0..LOOKS_MAX {
            if !self.engine.is_busy(&commands)? {
                return Ok(());
            }
            commands.pause(LOOK_EVERY);
        }
        let said = format!("{} still works in the background after an hour", self.name);
        Err(Refusal::cannot_run("engine.busy", said).hint("measure with smaller members"))
    }

    /// Take it away and its settings back: all of it, whatever fails.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn take_away(mut self, commands: &Live<'_>) -> Result<(), Refusal> {
        commands.taking_away(|| {
            let gone = self.engine.destroy(commands);
            let why = "a setting that was compared is taken back";
            self.unset.iter().map(|argv| commands.planned(argv, why)).fold(gone, Result::and)
        })
    }
}

/// An empty directory of its own in a run's directory.
pub(super) fn place(run_dir: &Path, name: &str) -> Result<PathBuf, Refusal> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let place = std::path::absolute(run_dir.join("made").join(name)).at(run_dir, "")?;
    std::fs::create_dir_all(&place).at(&place, "")?;
    Ok(place)
}

/// Commands as their user wrote them: without the shell that runs them.
fn shown(all: &[Vec<String>]) -> Vec<String> {
    let one = |argv: &Vec<String>| match &argv[..] {
        [shell, run, line] if shell == "sh" && run == "-c" => line.clone(),
        argv => argv.join(" "),
    };
    all.iter().map(one).collect()
}

/// What its engine would be told to make `array`, take `out` members out, and take it away.
pub fn told(array: &Array, out: usize) -> Vec<String> {
    let wanted = Wanted {
        members: array.members.iter().map(|it| it.display().to_string()).collect(),
        level: array.level.clone(),
        strip_bytes: array.strip_bytes(),
        place: "MADE".to_owned(),
    };
    let engine = adapter::told(&array.engine, &wanted, out)
        .unwrap_or_else(|refusal| vec![format!("# {refusal}")]);
    [shown(&array.set), engine, shown(&array.unset)].concat()
}

/// The array that a group needs, if the lab makes it.
pub fn needed<'p>(arrays: &'p [Array], group: &Group) -> Option<&'p Array> {
    group.points.first()?.array_among(arrays).filter(|array| array.is_made())
}

/// Note how long making and filling an array takes, in each group for which none stands that
/// serves: the same decisions as when groups are measured.
pub(super) fn estimate(arrays: &[Array], groups: &mut [Group]) {
    let mut stands: Option<(PathBuf, usize)> = None;
    for group in groups {
        let array = needed(arrays, group);
        let own = array.map(|array| (array.target_path(), group.out));
        let serves = |made: &(PathBuf, usize)| {
            own.as_ref().is_some_and(|own| made.0 == own.0 && made.1 <= own.1) && !group.is_fresh
        };
        if let Some(array) = array.filter(|_| !stands.as_ref().is_some_and(serves)) {
            group.made_s = to_f64(array.span_bytes()) / FILL_BYTES_PER_S + START_S;
        }
        // What a file system leaves, or a rebuild, is made anew.
        stands = own.filter(|_| !group.has_file_system && !group.is_rebuild);
    }
}

/// Write the first bytes of `target` once, in whole blocks of `(block, span)`: nothing is read that
/// was never written.
pub(super) fn fill(
    evidence: &Evidence,
    target: &Path,
    (block, span): (u64, u64),
    why: String,
) -> Result<(), Refusal> {
    let span = span / block * block;
    let settings = [
        ("filename", escaped(target)),
        ("ioengine", "io_uring".to_owned()),
        ("direct", "1".to_owned()),
        ("thread", "1".to_owned()),
        ("rw", "write".to_owned()),
        ("bs", block.to_string()),
        ("iodepth", "8".to_owned()),
        ("refill_buffers", "1".to_owned()),
        ("end_fsync", "0".to_owned()),
        ("size", span.to_string()),
    ];
    let settings = settings.map(|(key, value)| Setting::new(key, value)).to_vec();
    let jobs = JobFile { sections: vec![Section::new("fill", settings)] };
    let order = FioOrder { jobs, why, expected_s: to_f64(span) / 1e6, log_bandwidth: false };
    run_fio(evidence, &order).map(drop)
}
