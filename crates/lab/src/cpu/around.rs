//! Stacks around one measurement of a run: whose CPU time it was, and flame graphs, without the
//! user's extra work.
//!
//! What must stay true: a measurement is made whether or not stacks can be taken; why they could
//! not be taken is said once. The samples themselves are folded and then let go; folded stacks stay
//! beside the run.

use super::account::{self, CpuAccount, ProfilerCost};
use super::files::How;
use super::groups::Groups;
use super::live::pictures;
use super::perf::{self, Sampler};
use crate::host_cpu::HostCpu;
use crate::metrics::share::{Unit, Window};
use crate::metrics::spread::SPIKE_POINTS;
use crate::{AtPath, Refusal};
use regex::Regex;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Samples a second on each core: off every round frequency, so that nothing periodic hides.
pub const HZ: f64 = 99.0;
/// Folder within a run's directory.
const FOLDER: &str = "stacks";

/// Takes stacks around measurements.
#[derive(Debug)]
pub struct Around {
    groups: Groups,
    client: Regex,
    trouble: RefCell<Option<Refusal>>,
}

/// A measurement that is being sampled.
#[derive(Debug)]
pub struct Going {
    sampler: Sampler,
    run_dir: PathBuf,
    folder: String,
    of: String,
}

impl Around {
    /// With the function groups that ship; fio is the client.
    ///
    /// # Errors
    /// The groups that ship are unsound, which is a fault of the lab.
    pub fn new() -> Result<Around, Refusal> {
        let none: [&Path; 0] = [];
        let client = Regex::new("^fio").map_err(|error| {
            Refusal::cannot_run("cpu.client_malformed", error.to_string())
                .hint("a fault of the lab")
        })?;
        Ok(Around { groups: Groups::load(&none)?, client, trouble: RefCell::default() })
    }

    /// Why stacks could not be taken, if they could not.
    pub fn trouble(&self) -> Option<Refusal> {
        self.trouble.borrow().clone()
    }

    /// Begin; `None` if stacks cannot be taken here, now or before.
    pub fn begin(&self, run_dir: &Path, of: &str) -> Option<Going> {
        if self.trouble.borrow().is_some() {
            return None;
        }
        let folder = format!("{FOLDER}/{}", file_name(of));
        self.kept(begin(run_dir, folder, of))
    }

    /// End, and account for what was sampled.
    pub fn end(&self, going: Going) -> Option<CpuAccount> {
        self.kept(self.account(going))
    }

    fn account(&self, going: Going) -> Result<CpuAccount, Refusal> {
        let Going { sampler, run_dir, folder, of } = going;
        let dir = run_dir.join(&folder);
        let data = dir.join("perf.data");
        let sampled = sampler.end()?;
        let how = How { groups: &self.groups, client: &self.client, keep_stacks: true };
        let read = perf::read(&data, how)?;
        let cores = HostCpu::now()?.cores();
        let window = Window { cores, hz: HZ, seconds: sampled.seconds };
        let taken = account::Taken {
            of: &of,
            source: read.event.as_deref().unwrap_or("unknown"),
            window,
            unit: Some(Unit::Samples),
            spike_points: SPIKE_POINTS,
        };
        let mut account = CpuAccount::of(&read.counts, &self.groups, &taken)?;
        account.profiler = Some(ProfilerCost {
            own_cpu_s: sampled.own_cpu_s,
            own_share: sampled.own_cpu_s / (f64::from(cores) * sampled.seconds),
            ns_per_io: None,
            busy_share: None,
        });
        let drawn = pictures(&dir, &read.counts, &self.groups, &account)?;
        account.flame_graphs =
            drawn.into_iter().map(|(zoom, file)| (zoom, format!("{folder}/{file}"))).collect();
        // Large, and of no use on another machine; the folded stacks say the same.
        std::fs::remove_file(&data).at(&data, "")?;
        Ok(account)
    }

    fn kept<T>(&self, result: Result<T, Refusal>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(refusal) => {
                *self.trouble.borrow_mut() = Some(refusal);
                None
            }
        }
    }
}

fn begin(run_dir: &Path, folder: String, of: &str) -> Result<Going, Refusal> {
    let dir = run_dir.join(&folder);
    std::fs::create_dir_all(&dir).at(&dir, "")?;
    let mut sampler = Sampler::start(&dir.join("perf.data"), HZ)?;
    sampler.begin()?;
    Ok(Going { sampler, run_dir: run_dir.to_owned(), folder, of: of.to_owned() })
}

/// A measurement's id as one name of a folder.
fn file_name(of: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    of.chars().map(plain).collect::<String>().trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn an_id_becomes_one_name_that_stays_in_its_folder() {
        assert_eq!(file_name("compare/ashlar/2 out/rr-4k#0"), "compare-ashlar-2-out-rr-4k-0");
        assert_eq!(file_name("../../x"), "x");
    }
}
