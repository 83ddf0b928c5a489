//! What is run while the machine is sampled: nothing (time passes), a command, or a fio job.
//!
//! What must stay true: a command that fails is said, and what was sampled until then is kept;
//! fio's output goes through the forensic log, untouched. Not here: judging fio's figures.

use crate::Refusal;
use crate::evidence::{Evidence, Interrupt, Order};
use crate::metrics::latency::to_f64;
use crate::metrics::per_work::ClientCpu;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A load.
#[derive(Clone, Debug)]
pub enum Load {
    /// So many seconds pass.
    Wait(f64),
    /// A command with its arguments.
    Command(Vec<String>),
    /// A fio job file.
    Fio(PathBuf),
}

/// What fio did, over all jobs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FioWork {
    /// I/Os.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// I/Os a second.
    pub iops: f64,
    /// fio's own `usr_cpu`, percent, mean of the jobs.
    pub user_percent: f64,
    /// fio's own `sys_cpu`, percent, mean of the jobs.
    pub system_percent: f64,
    /// User and system time of fio's own processes, nanoseconds.
    pub own_ns: f64,
}

impl FioWork {
    /// fio's view of its own CPU.
    pub fn client(&self) -> ClientCpu {
        ClientCpu {
            iops: self.iops,
            user_percent: self.user_percent,
            system_percent: self.system_percent,
        }
    }
}

/// Longest that a load may take.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

impl Load {
    /// How it is called in an account.
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
    ///
    /// # Errors
    /// It cannot be started, or it failed.
    pub fn run(&self, dir: &Path) -> Result<Option<FioWork>, Refusal> {
        match self {
            Load::Wait(seconds) => wait(*seconds).map(|()| None),
            Load::Command(words) => command(words).map(|()| None),
            Load::Fio(job) => fio(dir, job, "the load that is accounted for").map(Some),
        }
    }
}

fn interrupt() -> Result<Interrupt, Refusal> {
    Interrupt::from_signals().map_err(|error| {
        Refusal::cannot_run("lab.no_signals", error.to_string(), "nothing was sampled")
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
            "check the command",
        )
    })?;
    match status.success() {
        true => Ok(()),
        false => {
            let what = format!("{}: ended with {status}; its CPU is not accounted for", words[0]);
            Err(Refusal::cannot_run("cpu.command_failed", what, "correct the command"))
        }
    }
}

/// Run a fio job through the forensic log in `dir`.
fn fio(dir: &Path, job: &Path, why: &str) -> Result<FioWork, Refusal> {
    let evidence = Evidence::open(dir, interrupt()?)?;
    let order =
        Order::new(["fio", "--output-format=json+", &job.display().to_string()], why).limit(LIMIT);
    let ran = evidence.run(&order)?;
    if !ran.entry.exit.is_success() {
        let what = format!("fio {}: {}", job.display(), ran.complaint());
        return Err(Refusal::cannot_run("fio.failed", what, "its output is in the forensic log"));
    }
    parse(&ran.stdout()?)
}

/// CPU nanoseconds that fio takes for an I/O that does nothing: the same job on its null engine, a
/// few seconds.
///
/// # Errors
/// The job cannot be read, or fio failed.
pub fn generator_ns_per_io(dir: &Path, job: &Path) -> Result<Option<f64>, Refusal> {
    let text = std::fs::read_to_string(job)
        .map_err(|error| Refusal::file(job, &error, "give a fio job file"))?;
    let null = dir.join("null.fio");
    std::fs::write(&null, null_job(&text)).map_err(|error| {
        Refusal::file(&null, &error, "choose a directory that you may write to")
    })?;
    let work = fio(dir, &null, "the load generator's own cost: the same job on the null engine")?;
    Ok((work.ios > 0).then(|| work.own_ns / to_f64(work.ios)))
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

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    error: i64,
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
    #[serde(default)]
    job_runtime: u64,
    #[serde(default)]
    read: Side,
    #[serde(default)]
    write: Side,
    #[serde(default)]
    trim: Side,
}

#[derive(Default, Deserialize)]
struct Side {
    #[serde(default)]
    total_ios: u64,
    #[serde(default)]
    io_bytes: u64,
    #[serde(default)]
    iops: f64,
}

/// Read fio's JSON. fio prints notes before it, so it begins at the first brace.
///
/// # Errors
/// There is no JSON, it is cut short, or a job ended with an error.
pub fn parse(output: &[u8]) -> Result<FioWork, Refusal> {
    let start = output.iter().position(|byte| *byte == b'{').unwrap_or(output.len());
    let refuse = |what: String| {
        Refusal::cannot_run("fio.output_unusable", what, "the output is kept untouched")
    };
    let read: Output = serde_json::from_slice(&output[start..])
        .map_err(|error| refuse(format!("fio's output cannot be understood: {error}")))?;
    if let Some(job) = read.jobs.iter().find(|job| job.error != 0) {
        return Err(refuse(format!("a fio job ended with error {}", job.error)));
    }
    let jobs = to_f64(u64::try_from(read.jobs.len()).unwrap_or(u64::MAX));
    let mut work = FioWork::default();
    for job in &read.jobs {
        for side in [&job.read, &job.write, &job.trim] {
            work.ios = work.ios.saturating_add(side.total_ios);
            work.bytes = work.bytes.saturating_add(side.io_bytes);
            work.iops += side.iops;
        }
        work.user_percent += job.usr_cpu / jobs;
        work.system_percent += job.sys_cpu / jobs;
        work.own_ns += (job.usr_cpu + job.sys_cpu) / 100.0 * to_f64(job.job_runtime) * 1e6;
    }
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::{Load, null_job, parse};

    #[test]
    fn fio_s_output_is_summed_over_jobs_and_directions() {
        let text = "note: before\n{\"jobs\":[
            {\"usr_cpu\":10.0,\"sys_cpu\":20.0,\"job_runtime\":2000,\
            \"read\":{\"total_ios\":100,\"io_bytes\":409600,\"iops\":50.0}},
            {\"usr_cpu\":20.0,\"sys_cpu\":40.0,\"job_runtime\":2000,\
            \"write\":{\"total_ios\":10,\"io_bytes\":40960,\"iops\":5.0}}]}";
        let work = parse(text.as_bytes()).expect("understood");
        assert_eq!((work.ios, work.bytes), (110, 450_560));
        assert!((work.iops - 55.0).abs() < 1e-9 && (work.system_percent - 30.0).abs() < 1e-9);
        assert!((work.own_ns - 1.8e9).abs() < 1.0);
    }

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
