//! Loads: profiles over sizes, jobs, depths and rounds, and those that the lab makes itself, for
//! stages without profiles: filling, zones, cliffs.
//!
//! What must stay true: the name of a load has everything in it that tells it from another one of
//! the same stage.

use super::span::keep_within;
use super::{Maker, Point, START_S, Target, numbered};
use crate::Refusal;
use crate::fio::{JobFile, Section, Setting, value};
use crate::metrics::latency::to_f64;
use crate::plan::file::{Array, Kind, RUNTIME_S};
use crate::plan::mounted::FILL_BLOCK;
use crate::plan::profile::{Fill, Profile, workload};
use crate::record::{ArrayCondition, Workload};

/// Names of the two passes of a preconditioning.
pub const FIRST_FILL: &str = "fill-first";
/// After it a target counts as preconditioned.
pub const SECOND_FILL: &str = "fill-second";
/// Bytes a second that preconditioning is expected to run at, for the estimate only.
pub(in crate::plan) const FILL_BYTES_PER_S: f64 = 500e6;
/// Places at which a zone curve is taken, percent of the width.
const ZONES: [u32; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99];
/// Rounds that SNIA allows for reaching steady state.
const STEADY_ROUNDS: u32 = 25;
/// Blocks of the stage `block-sizes`, unless it says others: small ones for I/Os, large ones for
/// bandwidth.
const BLOCK_SIZES: [&str; 5] = ["4k", "16k", "64k", "256k", "1m"];

impl Maker<'_> {
    /// Profiles x sizes x jobs x depths x rounds, on `targets` at once.
    pub(super) fn matrix(
        &self,
        targets: &[Target],
        condition: ArrayCondition,
    ) -> Result<Vec<Point>, Refusal> {
        let mut points = Vec::new();
        for name in &self.stage.profiles {
            let profile = Profile::named(name, self.plan, self.folder)?;
            for (size, jobs, depth) in self.combinations() {
                let more = size.map_or_else(Vec::new, |size| self.sized(size));
                let fill = Fill { more, ..self.fill_in(targets, depth, jobs) };
                let mut file = profile.filled(&fill)?;
                if let Some(span) = self.span(targets, condition) {
                    keep_within(&mut file, span)?;
                }
                let mut work = asked(name, &file, (jobs, depth));
                if let Some(size) = size {
                    let word = if self.is_of_blocks() { "bs" } else { "ws" };
                    work.name += &format!("-{word}{size}");
                }
                points.extend(self.rounds(targets, condition, &work, &file));
            }
        }
        Ok(points)
    }

    /// Sizes, of the working set or of a block, if the stage goes through any; jobs; depths.
    fn combinations(&self) -> Vec<(Option<&str>, u32, u32)> {
        let sizes = match self.stage.sizes.as_slice() {
            [] if self.is_of_blocks() => BLOCK_SIZES.map(Some).to_vec(),
            [] => vec![None],
            sizes => sizes.iter().map(|size| Some(size.as_str())).collect(),
        };
        let mut all = Vec::new();
        for size in sizes {
            for jobs in &self.stage.jobs {
                all.extend(self.stage.depths.iter().map(|depth| (size, *jobs, *depth)));
            }
        }
        all
    }

    fn is_of_blocks(&self) -> bool {
        self.stage.kind == Kind::BlockSizes
    }

    /// In blocks of `size`, or zipf over the first `size` bytes.
    fn sized(&self, size: &str) -> Vec<Setting> {
        if self.is_of_blocks() {
            return vec![Setting::new("bs", size)];
        }
        let bytes = value::bytes(size).unwrap_or_default().to_string();
        vec![Setting::new("size", bytes), Setting::new("random_distribution", "zipf:1.2")]
    }

    /// How much of the targets was written, if not all of it: the lab writes only that of an array
    /// that it makes, and of a file on a file system.
    fn span(&self, targets: &[Target], condition: ArrayCondition) -> Option<u64> {
        if condition == ArrayCondition::Raw {
            return self.drive_span();
        }
        let array = self.array_of(targets)?;
        let unit = match condition {
            ArrayCondition::FileSystem => FILL_BLOCK,
            _ if array.is_made() => array.stripe_data_bytes().unwrap_or(FILL_BLOCK),
            _ => return None,
        };
        Some(array.span_bytes() / unit.max(1) * unit)
    }

    /// How much of each drive is measured, if not all of it.
    fn drive_span(&self) -> Option<u64> {
        let bytes = value::bytes(self.plan.drive_span.as_deref()?)?;
        Some(bytes / FILL_BLOCK * FILL_BLOCK)
    }

    fn array_of(&self, targets: &[Target]) -> Option<&Array> {
        let is_of = |target: &Target, array: &Array| target.path == array.target_path();
        self.plan.arrays.iter().find(|array| targets.iter().any(|target| is_of(target, array)))
    }

    fn rounds(
        &self,
        targets: &[Target],
        condition: ArrayCondition,
        work: &Workload,
        file: &JobFile,
    ) -> Vec<Point> {
        let rounds = match (self.stage.steady, self.stage.rounds) {
            (true, 1) => STEADY_ROUNDS,
            (_, rounds) => rounds,
        };
        let point = |round| Point {
            kind: self.stage.kind,
            round,
            condition,
            workload: work.clone(),
            jobs: file.clone(),
            targets: numbered(targets),
            expected_s: self.takes_s(file, targets) + START_S,
            until_steady: self.stage.steady,
        };
        (0..rounds).map(point).collect()
    }

    /// What stage or plan say about the time of a point.
    fn given_s(&self) -> Option<u64> {
        self.stage.runtime_s.or(self.plan.runtime_s)
    }

    fn runtime_s(&self) -> u64 {
        self.given_s().unwrap_or(RUNTIME_S)
    }

    /// Seconds that the jobs of `file` take: those that wait for others come after them; those
    /// without a time end when their targets are done.
    fn takes_s(&self, file: &JobFile, targets: &[Target]) -> f64 {
        let whole: u64 = targets.iter().map(|target| (self.size_of)(&target.path)).sum();
        let (mut before, mut together) = (0.0, 0.0_f64);
        for job in file.jobs() {
            if job.get("stonewall").is_some() {
                before += std::mem::take(&mut together);
            }
            let rest =
                job.seconds("ramp_time").unwrap_or(0.0) + job.seconds("startdelay").unwrap_or(0.0);
            let bytes = job.bytes("io_size").or(job.bytes("size")).unwrap_or(whole);
            let moved = to_f64(bytes) / FILL_BYTES_PER_S;
            let runs = job.seconds("runtime").filter(|runs| *runs > 0.0);
            let own = match (runs, job.is_on("time_based")) {
                (Some(runs), true) => runs,
                (Some(runs), false) => runs.min(moved),
                (None, _) => moved,
            };
            together = together.max(rest + own);
        }
        before + together
    }

    fn fill_in<'t>(&'t self, targets: &'t [Target], depth: u32, jobs: u32) -> Fill<'t> {
        let names = (0..).zip(targets);
        Fill {
            targets: names.map(|(at, it)| (format!("t{at}"), it.path.as_path())).collect(),
            ioengine: &self.plan.ioengine,
            depth,
            jobs,
            runtime_s: Some(self.runtime_s()),
            is_given: self.given_s().is_some(),
            ramp_s: self.plan.ramp_s,
            stripe_data_bytes: self.array_of(targets).and_then(Array::stripe_data_bytes),
            more: Vec::new(),
        }
    }

    /// The stage's loads on 1, 2, 4 and so on drives at once, and on all of them.
    pub(super) fn scaling(&self, drives: &[Target]) -> Result<Vec<Point>, Refusal> {
        let doubled = std::iter::successors(Some(1), |count: &usize| count.checked_mul(2));
        let counts = doubled.take_while(|count| *count < drives.len()).chain([drives.len()]);
        let mut points = Vec::new();
        for count in counts {
            let mut more = self.matrix(&drives[..count], ArrayCondition::Raw)?;
            more.iter_mut().for_each(|point| point.workload.name += &format!("-on{count}"));
            points.append(&mut more);
        }
        Ok(points)
    }

    /// A point made by the lab itself: one job at depth 32 with these settings, for the stage's
    /// time, or until its work ends.
    fn own(
        &self,
        target: &Target,
        name: &str,
        settings: &[(&str, &str)],
        expected_s: f64,
    ) -> Point {
        let targets = std::slice::from_ref(target);
        let settings = settings.iter().map(|(key, value)| Setting::new(key, *value)).collect();
        let profile = Profile::of(name, JobFile { sections: vec![Section::new(name, settings)] });
        let runtime_s = (self.stage.kind != Kind::Precondition).then(|| self.runtime_s());
        let fill = Fill { runtime_s, ramp_s: 0, ..self.fill_in(targets, 32, 1) };
        // Nothing in it needs filling in that could be missing.
        let mut jobs = profile.filled(&fill).unwrap_or_default();
        let is_raw = target.engine.name == "raw";
        if let Some(span) = self.drive_span().filter(|_| is_raw) {
            // What does not fit is the whole span.
            let _unchanged = keep_within(&mut jobs, span);
        }
        let work = asked(name, &jobs, (1, 32));
        Point {
            kind: self.stage.kind,
            round: 0,
            condition: if is_raw { ArrayCondition::Raw } else { ArrayCondition::Healthy },
            workload: Workload { name: name.to_owned(), ..work },
            jobs,
            targets: numbered(targets),
            expected_s: expected_s + START_S,
            until_steady: false,
        }
    }

    /// The target written whole, and once more: each pass is a record of its own, for the first one
    /// may cost more, or less.
    pub(super) fn fills(&self, target: &Target) -> [Point; 2] {
        let whole = (self.size_of)(&target.path);
        let bytes = self.drive_span().map_or(whole, |span| span.min(whole));
        let expected_s = to_f64(bytes) / FILL_BYTES_PER_S;
        let settings = [("rw", "write"), ("bs", "1m"), ("size", "100%")];
        [FIRST_FILL, SECOND_FILL].map(|name| self.own(target, name, &settings, expected_s))
    }

    pub(super) fn zones(&self, drive: &Target) -> [Point; 11] {
        ZONES.map(|percent| {
            let (name, place) = (format!("zone-{percent:02}"), format!("{percent}%"));
            let settings = [("rw", "read"), ("bs", "1m"), ("offset", &place), ("size", "1%")];
            self.own(drive, &name, &settings, to_f64(self.runtime_s()))
        })
    }

    pub(super) fn cliff(&self, drive: &Target) -> Point {
        let settings = [("rw", "write"), ("bs", "1m")];
        self.own(drive, "fill-until-cliff", &settings, to_f64(self.runtime_s()))
    }
}

/// What the first job of a filled profile asks for.
fn asked(name: &str, file: &JobFile, (jobs, depth): (u32, u32)) -> Workload {
    workload(name, &file.jobs().into_iter().next().unwrap_or_default(), depth, jobs)
}
