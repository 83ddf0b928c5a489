//! A file system on an array, for as long as it is measured through it: made, filled, taken away.
//!
//! What must stay true: it is made only on an array that the run may overwrite; it is unmounted and
//! its signature wiped, whatever happened; what is measured was written before, and the rest of it
//! is as full as the plan says.

use super::file::{Array, FileSystem};
use super::made::{fill, place};
use crate::Refusal;
use crate::adapter::commands::{Commands, Live};
use crate::adapter::needs::Devices;
use crate::adapter::word;
use crate::evidence::Evidence;
use crate::metrics::latency::to_f64;
use crate::record::Check;
use crate::rules;
use crate::units;
use std::path::{Path, PathBuf};

/// Blocks in which files are written before they are measured.
pub(super) const FILL_BLOCK: u64 = 1 << 20;
/// Bytes that stay free of a file system for what it keeps of its own while it is filled.
const SPARE_BYTES: u64 = 16 << 20;

pub struct Mounted<'a> {
    /// The file that is measured.
    pub file: PathBuf,
    place: PathBuf,
    kind: FileSystem,
    is_mounted: bool,
    evidence: &'a Evidence,
    commands: &'a Live<'a>,
    devices: Devices<'a>,
}

impl<'a> Mounted<'a> {
    /// Make the file system that `array` names on `served`, mount it, write the file that is
    /// measured, and fill the rest.
    ///
    /// # Errors
    /// If a program refuses. What was made by then is taken away.
    pub fn make(
        (array, served): (&Array, &Path),
        (evidence, commands): (&'a Evidence, &'a Live<'a>),
        run_dir: &Path,
    ) -> Result<(Mounted<'a>, Check), Refusal> {
        let place = place(run_dir, "file-system")?;
        let mut mounted = Mounted {
            file: place.join("measured"),
            place,
            kind: array.file_system.unwrap_or_default(),
            is_mounted: false,
            evidence,
            commands,
            devices: Devices::of(commands, &[served.to_owned()])?,
        };
        match mounted.settle(array) {
            Ok(check) => Ok((mounted, check)),
            Err(refusal) => {
                let _first_failure_counts = mounted.take_away();
                Err(refusal)
            }
        }
    }

    fn settle(&mut self, array: &Array) -> Result<Check, Refusal> {
        let (device, place) = (&self.devices.paths[0], word(&self.place)?);
        let make = [&self.kind.make()[..], &[device]].concat();
        self.commands.done(&make, "a file system on the array")?;
        self.is_mounted = true;
        self.commands.done(&["mount", device, place], "measured through a file system")?;
        self.write(&self.file, array.span_bytes(), "write the file that is measured")?;
        let (size, used) = self.usage()?;
        let wanted = size / 100 * u64::from(array.fill_percent);
        let missing = wanted.min(size.saturating_sub(SPARE_BYTES)).saturating_sub(used);
        if missing >= FILL_BLOCK {
            self.write(&self.place.join("filler"), missing, "fill the file system")?;
        }
        let (size, used) = self.usage()?;
        let share = to_f64(used) / to_f64(size.max(1));
        let is_full = share >= f64::from(array.fill_percent) / 100.0 - 0.02;
        let said = format!(
            "{} of {}: {} used before anything was measured, {} of it the file that is measured",
            self.kind.name(),
            units::bytes(to_f64(size)),
            units::percent(share),
            units::bytes(to_f64(array.span_bytes()))
        );
        Ok(rules::of("file_system.filled").judge(is_full, array.name(), said))
    }

    /// Write `bytes` of `file` in one pass.
    fn write(&self, file: &Path, bytes: u64, why: &str) -> Result<(), Refusal> {
        fill(self.evidence, file, (FILL_BLOCK, bytes), format!("{}: {why}", self.kind.name()))
    }

    /// Bytes of the file system, and how many are used.
    fn usage(&self) -> Result<(u64, u64), Refusal> {
        let argv = ["df", "--block-size=1", "--output=size,used", word(&self.place)?];
        usage(&self.commands.succeed(&argv, "how full is it?")?).ok_or_else(|| {
            let said = format!("df says nothing that is understood about {}", self.place.display());
            Refusal::cannot_run("df.not_understood", said)
                .hint("its output is kept under evidence/")
        })
    }

    /// Unmount it, and wipe its signature.
    ///
    /// # Errors
    /// The first step that failed; the others were made.
    pub fn take_away(self) -> Result<(), Refusal> {
        self.commands.taking_away(|| {
            let place = word(&self.place)?;
            let unmounted = match self.is_mounted {
                true => self.commands.done(&["umount", place], "no more measured"),
                false => Ok(()),
            };
            let wipe = ["wipefs", "--all", &self.devices.paths[0]];
            unmounted.and(self.commands.done(&wipe, "as blank as before"))
        })
    }
}

/// Size and use from what `df --output=size,used` prints.
fn usage(told: &str) -> Option<(u64, u64)> {
    let mut numbers = told.lines().nth(1)?.split_whitespace().map(str::parse::<u64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::usage;

    #[test]
    fn what_df_prints_is_two_numbers_under_a_heading() {
        let told = "     1B-blocks      Used\n   10434699264  28672\n";
        assert_eq!(usage(told), Some((10_434_699_264, 28_672)));
        assert_eq!(usage("1B-blocks Used\n"), None);
        assert_eq!(usage("1B-blocks Used\n- -\n"), None);
    }
}
