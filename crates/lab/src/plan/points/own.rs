//! Points that the lab makes itself, for stages that have no profiles: filling, zones, cliffs, and
//! the matrices in which something of a drive is switched.

use super::{Group, Maker, Point, START_S, Target, numbered};
use crate::Refusal;
use crate::fio::{JobFile, Setting};
use crate::metrics::latency::to_f64;
use crate::plan::file::Kind;
use crate::plan::profile::{Fill, Profile, workload};
use crate::record::{ArrayCondition, Workload};
use crate::switch::{Switch, WRITE_CACHE};
use std::path::Path;

/// Names of the two passes of a preconditioning.
pub const FIRST_FILL: &str = "fill-first";
/// After it a target counts as preconditioned.
pub const SECOND_FILL: &str = "fill-second";
/// Bytes a second that preconditioning is expected to run at, for the estimate only.
pub(super) const FILL_BYTES_PER_S: f64 = 500e6;
/// Places at which a zone curve is taken, percent of the width.
const ZONES: [u32; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99];
/// Depths of the write-cache matrix, unless the stage says others.
const CACHE_DEPTHS: [u32; 3] = [1, 32, 128];
/// What is asked of a write in the write-cache matrix, and fio's setting for it: nothing, force
/// unit access, a flush after it.
const GUARANTEES: [(&str, Option<&str>); 3] =
    [("plain", None), ("fua", Some("sync")), ("flush", Some("fsync"))];

impl Maker<'_> {
    /// The stage's loads on 1, 2, 4 and so on drives at once, and on all of them.
    pub(super) fn scaling(&self, drives: &[Target]) -> Result<Vec<Point>, Refusal> {
        let doubled = std::iter::successors(Some(1), |count: &usize| count.checked_mul(2));
        let counts = doubled.take_while(|count| *count < drives.len()).chain([drives.len()]);
        let mut points = Vec::new();
        for count in counts {
            let mut more = self.matrix(&drives[..count], ArrayCondition::Raw)?;
            for point in &mut more {
                point.workload.name = format!("{}-on{count}", point.workload.name);
            }
            points.append(&mut more);
        }
        Ok(points)
    }

    /// A point made by the lab itself, from these settings.
    fn own(&self, target: &Target, name: &str, settings: Vec<Setting>, expected_s: f64) -> Point {
        let section = crate::fio::Section::new(name, settings);
        let profile = Profile::of(name, JobFile { sections: vec![section] });
        let targets = numbered(std::slice::from_ref(target));
        let timed = self.stage.kind != Kind::Precondition;
        let fill = Fill {
            runtime_s: timed.then(|| self.runtime_s()),
            ramp_s: 0,
            ..self.fill_in(&targets, 32, 1)
        };
        // Nothing in it needs filling in that could be missing.
        let jobs = profile.filled(&fill).unwrap_or_default();
        let first = jobs.jobs().into_iter().next().unwrap_or_default();
        Point {
            kind: self.stage.kind,
            round: 0,
            condition: if target.engine.name == "raw" {
                ArrayCondition::Raw
            } else {
                ArrayCondition::Healthy
            },
            workload: Workload { name: name.to_owned(), ..workload(name, &first, 32, 1) },
            jobs,
            targets,
            expected_s: expected_s + START_S,
            until_steady: false,
        }
    }

    /// The target written whole, and once more: each pass is a record of its own, for the first one
    /// may cost more, or less.
    pub(super) fn fills(&self, target: &Target) -> Vec<Point> {
        let set = |key: &str, value: &str| Setting::new(key, value);
        let expected_s = to_f64((self.size_of)(&target.path)) / FILL_BYTES_PER_S;
        let pass = |name: &&str| {
            let settings = vec![set("rw", "write"), set("bs", "1m"), set("size", "100%")];
            self.own(target, name, settings, expected_s)
        };
        [FIRST_FILL, SECOND_FILL].iter().map(pass).collect()
    }

    pub(super) fn zones(&self, drive: &Target) -> Vec<Point> {
        let point = |percent: u32| {
            let set = |key: &str, value: String| Setting::new(key, value);
            let settings = vec![
                set("rw", "read".into()),
                set("bs", "1m".into()),
                set("offset", format!("{percent}%")),
                set("size", "1%".into()),
            ];
            self.own(drive, &format!("zone-{percent:02}"), settings, to_f64(self.runtime_s()))
        };
        ZONES.into_iter().map(point).collect()
    }

    /// The matrix of the talk: no guarantee, FUA (sync) or a flush after each write, small and
    /// large blocks, three depths, sequential and random, with the drive's cache on and off; as it
    /// is, if it cannot be switched.
    pub(super) fn caching(&self, drive: &Target) -> Vec<Group> {
        let states: &[Option<bool>] =
            if has_switch(drive) { &[Some(false), Some(true)] } else { &[None] };
        let group = |state: &Option<bool>| {
            let name = state.map_or("as it is", on_or_off);
            let points = self.guarantees(&switched(drive, name), &name.replace(' ', "-"));
            let switch = state.map(|on| (drive.path.clone(), on));
            Group { points, switch, ..Group::default() }
        };
        states.iter().map(group).collect()
    }

    fn guarantees(&self, drive: &Target, state: &str) -> Vec<Point> {
        let depths = match self.stage.depths.as_slice() {
            [32] => &CACHE_DEPTHS,
            depths => depths,
        };
        let mut points = Vec::new();
        for (guarantee, setting) in GUARANTEES {
            for (block, mix) in
                [("4k", "write"), ("4k", "randwrite"), ("4m", "write"), ("4m", "randwrite")]
            {
                for depth in depths {
                    let mut settings = vec![Setting::new("rw", mix), Setting::new("bs", block)];
                    settings.extend(setting.map(|key| Setting::new(key, "1")));
                    let name = format!("cache-{state}-{guarantee}-{mix}-{block}");
                    points.extend(self.repeated(drive, &name, &settings, (1, *depth)));
                }
            }
        }
        points
    }

    /// The rounds of a point on one drive that the lab makes up itself.
    fn repeated(
        &self,
        drive: &Target,
        name: &str,
        settings: &[Setting],
        (jobs, depth): (u32, u32),
    ) -> Vec<Point> {
        let section = crate::fio::Section::new(name, settings.to_vec());
        let profile = Profile::of(name, JobFile { sections: vec![section] });
        let targets = std::slice::from_ref(drive);
        let numbered = numbered(targets);
        let fill = self.fill_in(&numbered, depth, jobs);
        let file = profile.filled(&fill).unwrap_or_default();
        let first = file.jobs().into_iter().next().unwrap_or_default();
        let work = workload(name, &first, depth, jobs);
        self.rounds(targets, ArrayCondition::Raw, &work, &file)
    }

    pub(super) fn cliff(&self, drive: &Target) -> Point {
        let settings = vec![Setting::new("rw", "write"), Setting::new("bs", "1m")];
        self.own(drive, "fill-until-cliff", settings, to_f64(self.runtime_s()))
    }
}

fn has_switch(drive: &Target) -> bool {
    Switch::of(&drive.path, Path::new("/sys")).is_ok()
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The drive with a state as part of its identity: points of different states are never merged.
fn switched(drive: &Target, state: &str) -> Target {
    let mut drive = drive.clone();
    drive.engine.tunables.insert(WRITE_CACHE.to_owned(), state.to_owned());
    drive
}
