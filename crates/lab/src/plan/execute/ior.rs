//! IOR on a file system that is mounted: files are written and synced, caches are dropped, files
//! are read.
//!
//! What must stay true: what is read was written by the phase before, in this mount; a figure above
//! what fio did on the array below it says so.

use super::super::file::Kind;
use super::super::points::Point;
use super::super::progress::Progress;
use super::again::above_layer_below;
use super::{Session, told, whole_seconds};
use crate::Refusal;
use crate::adapter::commands::{Answer, Commands, Live};
use crate::adapter::ior::{Phase, command, direction, parse};
use crate::record::{ArrayCondition, Direction, Measurement};
use crate::validity::{Finding, Mark};
use std::path::PathBuf;

impl Session<'_> {
    /// Measure one phase and write it down.
    pub(super) fn ior(&mut self, point: &Point, progress: &mut Progress) -> Result<(), Refusal> {
        let point = &self.placed(point);
        let (Some(target), Some(mounted)) = (point.targets.first(), &self.mounted) else {
            return Ok(());
        };
        let folder =
            mounted.file().parent().map_or_else(PathBuf::new, std::borrow::ToOwned::to_owned);
        let phase = if point.workload.mix == "write" { Phase::Write } else { Phase::Read };
        let bytes = self.array_of(point).map_or(0, |array| array.span_bytes());
        let argv = |phase| command(phase, point.workload.jobs, bytes, &folder);
        progress.begin(&format!(
            "{} {} on {}",
            point.kind.name(),
            point.workload.name,
            target.path.display()
        ));
        if phase == Phase::Read {
            // A run that was resumed has no files of its own yet.
            if !holds_files(&folder) {
                self.started(&argv(Phase::Write), "files to be read")?;
            }
            let drop = ["sh", "-c", "sync && echo 3 > /proc/sys/vm/drop_caches"];
            self.commands.succeed(&drop, "reads must not come from the client's memory")?;
        }
        let words = argv(phase);
        let answer = self.started(&words, "IOR after RAID")?;
        let moved = direction(parse(&answer.stdout, phase)?);
        let measured = self.of_ior(point, (phase, moved), words, answer.evidence);
        let said = told(&measured, &Mark::of(&measured.findings));
        self.keep(measured)?;
        progress.end(point.expected_s, Some(&said));
        Ok(())
    }

    fn started(&self, argv: &[String], why: &str) -> Result<Answer, Refusal> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        Live::patient(self.run.evidence).succeed(&words, why)
    }

    fn of_ior(
        &self,
        point: &Point,
        (phase, moved): (Phase, Direction),
        argv: Vec<String>,
        evidence: Option<u64>,
    ) -> Measurement {
        let target = &point.targets[0];
        let (read, write) = match phase {
            Phase::Read => (moved, Direction::default()),
            Phase::Write => (Direction::default(), moved),
        };
        let mut measured = Measurement {
            stage: Kind::Ior.name().to_owned(),
            read,
            write,
            argv,
            evidence,
            began_unix_s: whole_seconds(crate::evidence::log::unix_now_s()),
            ..point.blank(target)
        };
        measured.findings.extend(self.above_fio(&measured));
        measured
    }

    /// F14: IOR above the best that fio did with the array below in the same direction,
    /// sequentially.
    fn above_fio(&self, measured: &Measurement) -> Option<Finding> {
        let below = self.known.values().filter(|it| {
            it.condition == ArrayCondition::Healthy
                && it.target == measured.target
                && it.workload.mix == measured.workload.mix
                && Mark::of(&it.findings) != Mark::Invalid
        });
        let best = below.map(Measurement::bytes_per_s).max_by(f64::total_cmp)?;
        let share = (best > 0.0).then(|| measured.bytes_per_s() / best)?;
        above_layer_below(share)
    }
}

/// Whether files of IOR are there: `ior.00000000`.
fn holds_files(folder: &std::path::Path) -> bool {
    let items = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    items.into_iter().any(|item| item.file_name().to_string_lossy().starts_with("ior."))
}
