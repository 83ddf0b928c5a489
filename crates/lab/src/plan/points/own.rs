//! Points that the lab makes itself, for stages that have no profiles: filling, zones, cliffs.

use super::span::keep_within;
use super::{Maker, Point, START_S, Target, numbered};
use crate::Refusal;
use crate::fio::{JobFile, Setting};
use crate::metrics::latency::to_f64;
use crate::plan::file::Kind;
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

    /// A load that the lab makes up itself, on `targets` at once, `(jobs, depth)`, for so many
    /// seconds, or until its work ends.
    pub(super) fn made_up(
        &self,
        targets: &[Target],
        (name, settings): (&str, &[Setting]),
        (jobs, depth): (u32, u32),
        runtime_s: Option<u64>,
    ) -> (Workload, JobFile) {
        let section = crate::fio::Section::new(name, settings.to_vec());
        let profile = Profile::of(name, JobFile { sections: vec![section] });
        let numbered = numbered(targets);
        let fill = Fill { runtime_s, ramp_s: 0, ..self.fill_in(&numbered, depth, jobs) };
        // Nothing in it needs filling in that could be missing.
        let mut file = profile.filled(&fill).unwrap_or_default();
        if let Some(span) =
            self.drive_span().filter(|_| targets.iter().all(|it| it.engine.name == "raw"))
        {
            // What does not fit is the whole span.
            let _unchanged = keep_within(&mut file, span);
        }
        let first = file.jobs().into_iter().next().unwrap_or_default();
        (workload(name, &first, depth, jobs), file)
    }

    /// A point made by the lab itself, from these settings.
    fn own(&self, target: &Target, name: &str, settings: &[Setting], expected_s: f64) -> Point {
        let targets = std::slice::from_ref(target);
        let timed = (self.stage.kind != Kind::Precondition).then(|| self.runtime_s());
        let (work, jobs) = self.made_up(targets, (name, settings), (1, 32), timed);
        let is_raw = target.engine.name == "raw";
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
    pub(super) fn fills(&self, target: &Target) -> Vec<Point> {
        let set = |key: &str, value: &str| Setting::new(key, value);
        let whole = (self.size_of)(&target.path);
        let bytes = self.drive_span().map_or(whole, |span| span.min(whole));
        let expected_s = to_f64(bytes) / FILL_BYTES_PER_S;
        let pass = |name: &&str| {
            let settings = vec![set("rw", "write"), set("bs", "1m"), set("size", "100%")];
            self.own(target, name, &settings, expected_s)
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
            self.own(drive, &format!("zone-{percent:02}"), &settings, to_f64(self.runtime_s()))
        };
        ZONES.into_iter().map(point).collect()
    }

    pub(super) fn cliff(&self, drive: &Target) -> Point {
        let settings = vec![Setting::new("rw", "write"), Setting::new("bs", "1m")];
        self.own(drive, "fill-until-cliff", &settings, to_f64(self.runtime_s()))
    }
}
