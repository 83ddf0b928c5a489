//! Profiles over sizes, jobs, depths and rounds: what most stages are made of.
//!
//! What must stay true: the name of a load has everything in it that tells it from another one of
//! the same stage.

use super::own::FILL_BYTES_PER_S;
use super::span::keep_within;
use super::{Maker, Point, START_S, Target, numbered};
use crate::Refusal;
use crate::fio::{JobFile, Setting, value};
use crate::metrics::latency::to_f64;
use crate::plan::file::{Array, Kind, RUNTIME_S};
use crate::plan::mounted::FILL_BLOCK;
use crate::plan::profile::{Fill, Profile, workload};
use crate::record::{ArrayCondition, Workload};

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
        let sizes = self.sizes();
        let mut points = Vec::new();
        for name in &self.stage.profiles {
            let profile = Profile::named(name, self.plan, self.folder)?;
            for size in &sizes {
                for (jobs, depth) in self
                    .stage
                    .jobs
                    .iter()
                    .flat_map(|jobs| self.stage.depths.iter().map(move |depth| (*jobs, *depth)))
                {
                    let more = size.map_or_else(Vec::new, |size| self.sized(size));
                    let mut file =
                        profile.filled(&Fill { more, ..self.fill_in(targets, depth, jobs) })?;
                    if let Some(span) = self.span(targets, condition) {
                        keep_within(&mut file, span)?;
                    }
                    let work = self.load(&file, (name, *size), (jobs, depth));
                    points.extend(self.rounds(targets, condition, &work, &file));
                }
            }
        }
        Ok(points)
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
    pub(super) fn drive_span(&self) -> Option<u64> {
        let bytes = value::bytes(self.plan.drive_span.as_deref()?)?;
        Some(bytes / FILL_BLOCK * FILL_BLOCK)
    }

    fn array_of(&self, targets: &[Target]) -> Option<&Array> {
        let is_of = |target: &Target, array: &Array| target.path == array.target_path();
        self.plan.arrays.iter().find(|array| targets.iter().any(|target| is_of(target, array)))
    }

    /// What is asked for, by whom, and its name.
    fn load(
        &self,
        file: &JobFile,
        (name, size): (&str, Option<&str>),
        (jobs, depth): (u32, u32),
    ) -> Workload {
        let first = file.jobs().into_iter().next().unwrap_or_default();
        let mut work = workload(name, &first, depth, jobs);
        if let Some(size) = size {
            let word = match self.stage.kind {
                Kind::BlockSizes => "bs",
                _ => "ws",
            };
            work.name = format!("{}-{word}{size}", work.name);
        }
        work
    }

    fn is_of_blocks(&self) -> bool {
        self.stage.kind == Kind::BlockSizes
    }

    /// Sizes that the stage goes through, of the working set or of a block; none if it
    /// has none.
    fn sizes(&self) -> Vec<Option<&str>> {
        match self.stage.sizes.as_slice() {
            [] if self.is_of_blocks() => BLOCK_SIZES.map(Some).to_vec(),
            [] => vec![None],
            sizes => sizes.iter().map(|size| Some(size.as_str())).collect(),
        }
    }

    fn sized(&self, size: &str) -> Vec<Setting> {
        match self.is_of_blocks() {
            true => vec![Setting::new("bs", size)],
            false => working_set(size),
        }
    }

    pub(super) fn rounds(
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

    pub(super) fn runtime_s(&self) -> u64 {
        self.given_s().unwrap_or(RUNTIME_S)
    }

    /// What stage or plan say about the time of a point.
    fn given_s(&self) -> Option<u64> {
        self.stage.runtime_s.or(self.plan.runtime_s)
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

    pub(super) fn fill_in<'t>(&'t self, targets: &'t [Target], depth: u32, jobs: u32) -> Fill<'t> {
        let names = targets
            .iter()
            .enumerate()
            .map(|(at, target)| (format!("t{at}"), target.path.as_path()));
        let array = self.array_of(targets);
        Fill {
            targets: names.collect(),
            ioengine: &self.plan.ioengine,
            depth,
            jobs,
            runtime_s: Some(self.runtime_s()),
            is_given: self.given_s().is_some(),
            ramp_s: self.plan.ramp_s,
            stripe_data_bytes: array.and_then(Array::stripe_data_bytes),
            more: Vec::new(),
        }
    }
}

/// Zipf over the first `size` bytes.
fn working_set(size: &str) -> Vec<Setting> {
    let bytes = value::bytes(size).unwrap_or_default();
    vec![Setting::new("size", bytes.to_string()), Setting::new("random_distribution", "zipf:1.2")]
}
