//! Arrays that the lab makes itself, through the engines' adapters: made, filled, degraded,
//! rebuilt, taken away.
//!
//! What must stay true: one array at a time, for arrays may share their members; whatever was made
//! is taken away at the end, whatever happened; nothing is measured while an engine works in the
//! background, except a rebuild that is asked for.

use super::file::Array;
use super::points::{FILL_BYTES_PER_S, Group, Point, START_S};
use crate::adapter::commands::{Commands, Live};
use crate::adapter::loops::Devices;
use crate::adapter::{Engine, Served, Wanted, by_name, imagined, keep_configuration};
use crate::evidence::Evidence;
use crate::evidence::process::monotonic;
use crate::fio::run::{FioOrder, run as run_fio};
use crate::fio::{JobFile, Section, Setting};
use crate::metrics::latency::to_f64;
use crate::record::EngineIdentity;
use crate::{AtPath, Refusal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks at background work before it is given up, and the time between.
const LOOKS_MAX: u32 = 7200;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An array that stands.
pub struct Made<'a> {
    /// Which array of the plan.
    name: String,
    engine: Box<dyn Engine>,
    identity: EngineIdentity,
    served: Served,
    out: usize,
    evidence: &'a Evidence,
    devices: Devices<'a>,
    unset: Vec<Vec<String>>,
}

/// A rebuild that was begun.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilding {
    began: Duration,
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
        let name = array.name();
        let place =
            std::path::absolute(run_dir.join("made").join(file_name(&name))).at(run_dir, "")?;
        std::fs::create_dir_all(&place).at(&place, "")?;
        let devices = Devices::of(commands, &array.members)?;
        let wanted = Wanted {
            members: devices.paths.clone(),
            level: array.level.clone(),
            strip_bytes: array.strip_bytes(),
            place,
        };
        let mut engine = by_name(&array.engine)?;
        let set = all_of(commands, &array.set, "a setting that is compared");
        let served = match set.and_then(|()| engine.create(commands, &wanted)) {
            Ok(served) => served,
            Err(refusal) => {
                let unset = || gone(engine.as_mut(), &array.unset, commands);
                let _first_failure_counts = commands.taking_away(unset);
                return Err(refusal);
            }
        };
        let mut made = Made {
            name,
            engine,
            identity: EngineIdentity::default(),
            served,
            out: 0,
            evidence,
            devices,
            unset: array.unset.clone(),
        };
        match made.settle(commands, array) {
            Ok(()) => Ok(made),
            Err(refusal) => {
                let _first_failure_counts = made.take_away(commands);
                Err(refusal)
            }
        }
    }

    /// What comes between making it and the first measurement.
    fn settle(&mut self, commands: &Live<'_>, array: &Array) -> Result<(), Refusal> {
        self.identity = self.engine.identity(commands)?;
        if !array.set.is_empty() {
            let told = array.set.iter().map(|argv| shown(argv)).collect::<Vec<_>>().join("; ");
            self.identity.tunables.insert("set by".to_owned(), told);
        }
        keep_configuration(self.engine.as_ref(), commands)?;
        self.await_idle()?;
        self.fill(array)
    }

    fn fill(&self, array: &Array) -> Result<(), Refusal> {
        let block = array.stripe_data_bytes().unwrap_or(1 << 20);
        let span = array.span_bytes() / block * block;
        let order = FioOrder {
            jobs: fill(&self.served.path, block, span),
            why: format!("{}: write what is measured", self.name),
            expected_s: to_f64(span) / 1e6,
            log_bandwidth: false,
        };
        run_fio(self.evidence, &order).map(|_| ())
    }

    /// Whether this is `array` with no more than `out` members out.
    pub fn serves(&self, array: &Array, out: usize) -> bool {
        self.name == array.name() && self.out <= out
    }

    /// What it is called in the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the load generator finds it.
    pub fn path(&self) -> &Path {
        &self.served.path
    }

    pub fn identity(&self) -> &EngineIdentity {
        &self.identity
    }

    /// Take members out until `out` of them are, and wait until the engine is idle. Every third
    /// one, so that neighbours stay.
    pub fn degrade(&mut self, out: usize) -> Result<(), Refusal> {
        if out > self.out {
            let count = self.devices.paths.len();
            let members: Vec<usize> = (self.out..out).map(|at| at * 3 % count).collect();
            self.engine.take_out(&Live::new(self.evidence), &members)?;
            self.out = out;
        }
        self.await_idle()
    }

    /// Put the member that was taken out first in again: a rebuild begins.
    pub fn rebuild(&mut self) -> Result<Rebuilding, Refusal> {
        let began = monotonic();
        self.engine.put_in(&Live::new(self.evidence), 0)?;
        // What follows wants a whole array or a fresh one.
        self.out = usize::MAX;
        Ok(Rebuilding { began })
    }

    /// Do `work` while it is watched when the rebuild ends; seconds from its beginning, if it ended
    /// meanwhile.
    pub fn meanwhile<T>(
        &self,
        rebuilding: Rebuilding,
        work: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<(T, Option<f64>), Refusal> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let commands = Live::new(self.evidence);
                while !is_over.load(Ordering::Relaxed) {
                    if matches!(self.engine.is_busy(&commands), Ok(false)) {
                        return Some((monotonic() - rebuilding.began).as_secs_f64());
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

    /// Wait for the rebuild's end; seconds since it began.
    pub fn await_rebuilt(&self, rebuilding: Rebuilding) -> Result<f64, Refusal> {
        self.await_idle()?;
        Ok((monotonic() - rebuilding.began).as_secs_f64())
    }

    /// Bytes of the member that is rebuilt.
    pub fn member_bytes(&self) -> Option<u64> {
        let path = self.devices.paths.first()?;
        let mut file = std::fs::File::open(path).ok()?;
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

    /// Take it away.
    ///
    /// # Errors
    /// The first step that failed; the others were made.
    pub fn take_away(mut self, commands: &Live<'_>) -> Result<(), Refusal> {
        commands.taking_away(|| gone(self.engine.as_mut(), &self.unset, commands))
    }
}

/// Take the engine's array away and its settings back: all of it, whatever fails.
fn gone(
    engine: &mut dyn Engine,
    unset: &[Vec<String>],
    commands: &Live<'_>,
) -> Result<(), Refusal> {
    let gone = engine.destroy(commands);
    let back = unset.iter().map(|argv| {
        all_of(commands, std::slice::from_ref(argv), "a setting that was compared is taken back")
    });
    back.fold(gone, Result::and)
}

fn all_of(commands: &dyn Commands, all: &[Vec<String>], why: &str) -> Result<(), Refusal> {
    all.iter().try_for_each(|argv| {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        commands.succeed(&words, why).map(|_| ())
    })
}

/// A command as its user wrote it: without the shell that runs it.
fn shown(argv: &[String]) -> String {
    match argv {
        [shell, run, line] if shell == "sh" && run == "-c" => line.clone(),
        argv => argv.join(" "),
    }
}

/// What its engine would be told to make `array`, take `out` members out, and take it away.
pub fn told(array: &Array, out: usize) -> Vec<String> {
    let wanted = Wanted {
        members: array.members.clone(),
        level: array.level.clone(),
        strip_bytes: array.strip_bytes(),
        place: PathBuf::from("MADE"),
    };
    let engine = imagined::told(&array.engine, &wanted, out)
        .unwrap_or_else(|refusal| vec![format!("# {refusal}")]);
    let lines = |all: &[Vec<String>]| all.iter().map(|argv| shown(argv)).collect::<Vec<_>>();
    [lines(&array.set), engine, lines(&array.unset)].concat()
}

/// The array that a group needs, if the lab makes it.
pub fn needed<'p>(arrays: &'p [Array], group: &Group) -> Option<&'p Array> {
    of(arrays, group.points.first()?)
}

/// The array that a point is about, if it has members.
fn of<'p>(arrays: &'p [Array], point: &Point) -> Option<&'p Array> {
    let target = point.targets.first()?;
    arrays.iter().find(|array| array.is_made() && array.target_path() == target.path)
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

/// Members of all arrays that are made of them and that `groups` measure: their content is lost.
pub fn members(arrays: &[Array], groups: &[Group]) -> Vec<PathBuf> {
    let points = groups.iter().filter_map(|group| group.points.first());
    points.filter_map(|point| of(arrays, point)).flat_map(|it| it.members.clone()).collect()
}

/// Writes the first `span` bytes of `target` once: nothing is read that was never written.
pub(super) fn fill(target: &Path, block_bytes: u64, span: u64) -> JobFile {
    let (block, span) = (block_bytes.to_string(), span.to_string());
    let name = target.to_string_lossy().replace(':', "\\:");
    let settings = [
        ("filename", name.as_str()),
        ("ioengine", "io_uring"),
        ("direct", "1"),
        ("thread", "1"),
        ("rw", "write"),
        ("bs", &block),
        ("iodepth", "8"),
        ("refill_buffers", "1"),
        ("end_fsync", "0"),
        ("size", &span),
    ];
    let settings = settings.map(|(key, value)| Setting::new(key, value)).to_vec();
    JobFile { sections: vec![Section::new("fill", settings)] }
}

fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(plain).collect()
}
