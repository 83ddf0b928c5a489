//! What is run while the machine is sampled: nothing (time passes), a command, or a fio job.
//!
//! What must stay true: a command that fails is said, and what was sampled until then is kept;
//! fio's output goes through the forensic log, untouched. Not here: judging fio's figures.

use crate::evidence::process::monotonic;
use crate::evidence::{Evidence, Interrupt};
use crate::fio::measure::{Figures, figures};
use crate::fio::run::{FioOrder, run as run_fio};
use crate::fio::{JobFile, Setting};
use crate::metrics::latency::to_f64;
use crate::{AtPath, Refusal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(Clone, Debug)]
pub enum Load {
    /// So many seconds pass.
    Wait(f64),
    Command(Vec<String>),
    /// A fio job file.
    Fio(PathBuf),
}

/// Longest that fio may take, seconds.
const LIMIT_S: f64 = 24.0 * 3600.0;

impl Load {
    pub fn name(&self) -> String {
        match self {
            Load::Wait(seconds) => format!("whole machine, {seconds} s"),
            Load::Command(words) => words.join(" "),
            Load::Fio(job) => format!("fio {}", job.display()),
        }
    }

    /// Names of the threads it has, as a regular expression.
    pub fn client_pattern(&self) -> String {
        let Load::Command(words) = self else { return "^fio".into() };
        let name = Path::new(&words[0]).file_name().unwrap_or_default().to_string_lossy();
        // The kernel keeps 15 bytes of a thread's name.
        let kept: String = name.chars().take(15).collect();
        format!("^(fio|{})", regex::escape(&kept))
    }

    /// Run it to its end, its outputs below `dir`. What fio did, if it was fio.
    pub fn run(&self, dir: &Path) -> Result<Option<Figures>, Refusal> {
        match self {
            Load::Wait(seconds) => wait(*seconds).map(|()| None),
            Load::Command(words) => command(words).map(|()| None),
            Load::Fio(job) => fio(dir, jobs(job)?, "the load that is accounted for").map(Some),
        }
    }
}

fn interrupt() -> Result<Interrupt, Refusal> {
    Interrupt::from_signals().map_err(|error| {
        Refusal::cannot_run("lab.no_signals", error.to_string()).hint("nothing was sampled")
    })
}

/// Let time pass; the first SIGINT ends it early.
fn wait(seconds: f64) -> Result<(), Refusal> {
    let interrupt = interrupt()?;
    let end = monotonic() + Duration::from_secs_f64(seconds);
    while !interrupt.is_raised()
        && let Some(left) = end.checked_sub(monotonic()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left.min(Duration::from_millis(100)));
    }
    Ok(())
}

fn command(words: &[String]) -> Result<(), Refusal> {
    let program = &words[0];
    let ran = Command::new(program).args(&words[1..]).status();
    let (code, what, hint) = match ran {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => {
            let what = format!("ended with {status}; its CPU is not accounted for");
            ("cpu.command_failed", what, "correct the command")
        }
        Err(error) => {
            let what = format!("{error}; nothing was sampled");
            ("cpu.command_missing", what, "check the command")
        }
    };
    Err(Refusal::cannot_run(code, format!("{program}: {what}")).hint(hint))
}

fn jobs(path: &Path) -> Result<JobFile, Refusal> {
    JobFile::parse(&std::fs::read_to_string(path).at(path, "give a fio job file")?)
}

/// Run fio jobs through the forensic log in `dir`.
fn fio(dir: &Path, jobs: JobFile, why: &str) -> Result<Figures, Refusal> {
    let evidence = Evidence::open(dir, interrupt()?)?;
    let order = FioOrder { jobs, why: why.into(), expected_s: LIMIT_S, log_bandwidth: false };
    Ok(figures(&run_fio(&evidence, &order)?.result, |_| true))
}

/// CPU nanoseconds that fio takes for an I/O that does nothing: the same job on its null engine, a
/// few seconds.
pub fn generator_ns_per_io(dir: &Path, job: &Path) -> Result<Option<f64>, Refusal> {
    let why = "the load generator's own cost: the same job on the null engine";
    let work = fio(dir, on_null(jobs(job)?), why)?;
    let ios = work.read.ios + work.write.ios;
    Ok((ios > 0).then(|| work.client_s * 1e9 / to_f64(ios)))
}

/// The jobs on the null engine: no device is opened; three seconds are enough.
fn on_null(mut jobs: JobFile) -> JobFile {
    let replaced = ["filename", "directory", "ramp_time"];
    let set = [("ioengine", "null"), ("size", "1g"), ("runtime", "3"), ("time_based", "1")];
    for section in &mut jobs.sections {
        let is_set = |key: &str| set.iter().any(|it| it.0 == key);
        section.settings.retain(|it| !replaced.contains(&it.key.as_str()) && !is_set(&it.key));
        section.settings.extend(set.map(|(key, value)| Setting::new(key, value)));
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::{Load, on_null};
    use crate::fio::JobFile;

    #[test]
    fn the_null_job_touches_no_device_and_a_command_s_own_threads_are_its_client() {
        let job = "[global]\nioengine=libaio\nfilename=/dev/md0\nruntime=1200\nbs=128k\n[a]\n\
                   rw=write\nsize=20g\n";
        let null = on_null(JobFile::parse(job).expect("sound")).to_string();
        assert!(["/dev/md0", "libaio", "20g"].iter().all(|word| !null.contains(word)), "{null}");
        let kept = ["bs=128k", "rw=write", "ioengine=null"];
        assert!(kept.iter().all(|word| null.contains(word)), "{null}");
        let load = Load::Command(vec!["/usr/bin/a.very-long-name-indeed".into(), "x".into()]);
        assert_eq!(load.client_pattern(), r"^(fio|a\.very\-long\-nam)");
    }
}
