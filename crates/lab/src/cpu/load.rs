//! What is run while the machine is sampled: nothing (time passes), a command, or a fio job.
//!
//! What must stay true: a command that fails is said, and what was sampled until then is kept;
//! fio's output goes through the forensic log, untouched. Not here: judging fio's figures.

use crate::evidence::{Evidence, Interrupt, Order};
use crate::fio::FioResult;
use crate::fio::measure::{Figures, figures};
use crate::metrics::latency::to_f64;
use crate::{AtPath, Refusal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(Clone, Debug)]
pub enum Load {
    Wait(f64),
    Command(Vec<String>),
    Fio(PathBuf),
}

/// Longest that a load may take.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

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
            Load::Fio(job) => fio(dir, job, "the load that is accounted for").map(Some),
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
    let end = crate::evidence::process::monotonic() + Duration::from_secs_f64(seconds);
    loop {
        let now = crate::evidence::process::monotonic();
        if now >= end || interrupt.is_raised() {
            return Ok(());
        }
        std::thread::park_timeout((end - now).min(Duration::from_millis(100)));
    }
}

fn command(words: &[String]) -> Result<(), Refusal> {
    let status = Command::new(&words[0]).args(&words[1..]).status().map_err(|error| {
        Refusal::cannot_run(
            "cpu.command_missing",
            format!("{}: {error}; nothing was sampled", words[0]),
        )
        .hint("check the command")
    })?;
    match status.success() {
        true => Ok(()),
        false => {
            let what = format!("{}: ended with {status}; its CPU is not accounted for", words[0]);
            Err(Refusal::cannot_run("cpu.command_failed", what).hint("correct the command"))
        }
    }
}

/// Run a fio job through the forensic log in `dir`.
fn fio(dir: &Path, job: &Path, why: &str) -> Result<Figures, Refusal> {
    let evidence = Evidence::open(dir, interrupt()?)?;
    let order =
        Order::new(["fio", "--output-format=json+", &job.display().to_string()], why).limit(LIMIT);
    let ran = evidence.run(&order)?;
    if !ran.entry.exit.is_success() {
        let what = format!("fio {}: {}", job.display(), ran.complaint());
        return Err(
            Refusal::cannot_run("fio.failed", what).hint("its output is in the forensic log")
        );
    }
    parse(&ran.stdout()?)
}

/// CPU nanoseconds that fio takes for an I/O that does nothing: the same job on its null engine, a
/// few seconds.
pub fn generator_ns_per_io(dir: &Path, job: &Path) -> Result<Option<f64>, Refusal> {
    let text = std::fs::read_to_string(job).at(job, "give a fio job file")?;
    let null = dir.join("null.fio");
    std::fs::write(&null, null_job(&text)).at(&null, "choose a directory that you may write to")?;
    let work = fio(dir, &null, "the load generator's own cost: the same job on the null engine")?;
    let ios = work.read.ios + work.write.ios;
    Ok((ios > 0).then(|| work.client_s * 1e9 / to_f64(ios)))
}

/// The job on the null engine: no device is opened; three seconds are enough.
fn null_job(text: &str) -> String {
    const REPLACED: [&str; 7] =
        ["ioengine", "filename", "directory", "runtime", "time_based", "size", "ramp_time"];
    let mut out = String::new();
    for line in text.lines() {
        let name = line.split('=').next().unwrap_or(line).trim();
        if !REPLACED.contains(&name) {
            out.push_str(line);
            out.push('\n');
        }
        if line.trim_start().starts_with('[') {
            out.push_str("ioengine=null\nsize=1g\nruntime=3\ntime_based=1\n");
        }
    }
    out
}

pub fn parse(output: &[u8]) -> Result<Figures, Refusal> {
    let result = FioResult::parse(output)?;
    match result.jobs.iter().find(|job| job.error != 0) {
        None => Ok(figures(&result, |_| true)),
        Some(job) => {
            let what = format!("a fio job ended with error {}", job.error);
            let hint = "the output is kept untouched";
            Err(Refusal::cannot_run("fio.output_unusable", what).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, null_job, parse};

    #[test]
    fn output_that_is_cut_short_or_failed_is_one_clear_line() {
        for text in ["", "fio: no", "{\"jobs\":[{\"usr_cpu\":1", "{\"jobs\":[{\"error\":5}]}"] {
            let refusal = parse(text.as_bytes()).expect_err("refused");
            assert_eq!(refusal.exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn the_null_job_touches_no_device() {
        let job = "[global]\nioengine=libaio\nfilename=/dev/md0\nruntime=1200\nbs=128k\n[a]\n\
                   rw=write\nsize=20g\n";
        let null = null_job(job);
        assert!(!null.contains("/dev/md0") && !null.contains("libaio") && !null.contains("20g"));
        assert!(
            null.contains("bs=128k") && null.contains("rw=write") && null.contains("ioengine=null")
        );
    }

    #[test]
    fn a_command_s_own_threads_are_its_client() {
        let load = Load::Command(vec!["/usr/bin/a.very-long-name-indeed".into(), "x".into()]);
        assert_eq!(load.client_pattern(), r"^(fio|a\.very\-long\-nam)");
    }
}
