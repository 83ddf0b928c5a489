//! Starting fio through the forensic log and reading what it printed.
//!
//! What must stay true: the job file that ran, fio's output and its logs are evidence; a result
//! with errors in it is handed on with its diagnostics, never as if nothing had happened.

use super::job::JobFile;
use super::result::FioResult;
use super::series::Series;
use crate::Refusal;
use crate::evidence::process::PLACE;
use crate::evidence::{Evidence, Exit, Order, Ran};
use std::time::Duration;

/// Interval of the bandwidth logs, milliseconds.
pub const INTERVAL_MS: u64 = 1000;
/// What fio may take beyond the time it was asked for: laying out files, ending its jobs.
const MARGIN: Duration = Duration::from_secs(300);

/// Lines of fio's complaints that go into a refusal.
const REASONS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct FioOrder {
    pub jobs: JobFile,
    pub why: String,
    /// How long it should take, seconds; it is ended five minutes later.
    pub expected_s: f64,
    /// Whether logs of bandwidth and latency are written, one sample a second.
    pub log_bandwidth: bool,
}

#[derive(Clone, Debug)]
pub struct FioRan {
    /// Its line in the forensic log and its outputs.
    pub ran: Ran,
    pub result: FioResult,
    /// Bandwidth and latency over time, if they were logged.
    pub series: Series,
}

/// Run fio.
///
/// # Errors
/// If it cannot be started, is ended before its time, prints no result, or reports an error of a
/// job; everything it printed is kept in the evidence either way.
pub fn run(evidence: &Evidence, order: &FioOrder) -> Result<FioRan, Refusal> {
    let limit = Duration::try_from_secs_f64(order.expected_s).unwrap_or_default() + MARGIN;
    let command = Order::new(["fio", "--output-format=json+"], &order.why).limit(limit);
    let ran = evidence.run(&Order { job: Some(job(order)), ..command })?;
    let failed = |why: &str| failure(&ran, why);
    match &ran.entry.exit {
        Exit::Code(_) => {}
        Exit::Interrupted => {
            return Err(Refusal::new("run.interrupted", "interrupted; what was measured is kept")
                .hint("start it again; a run goes on with --resume"));
        }
        Exit::NotStarted(why) => {
            let hint = "install fio 3.0 or later (package fio)";
            return Err(Refusal::cannot_run(
                "fio.missing",
                format!("fio could not be started: {why}"),
            )
            .hint(hint));
        }
        other => return Err(failed(&other.to_string())),
    }
    let result =
        FioResult::parse(&ran.stdout()?).map_err(|refusal| match ran.entry.exit.is_success() {
            true => refusal,
            false => failed(&reasons(&ran)),
        })?;
    if let Some(job) = result.jobs.iter().find(|job| job.error != 0) {
        let errno = i32::try_from(job.error).unwrap_or(0);
        let reason = rustix::io::Errno::from_raw_os_error(errno);
        return Err(failed(&format!("job {}: {reason}: {}", job.name, reasons(&ran))));
    }
    if !ran.entry.exit.is_success() {
        return Err(failed(&format!("{}: {}", ran.entry.exit, reasons(&ran))));
    }
    let series = logged(&ran)?;
    Ok(FioRan { ran, result, series })
}

/// The job file, with logs of what it does: a job's own settings win.
fn job(order: &FioOrder) -> String {
    let logs = format!(
        "[global]\nwrite_bw_log={PLACE}\nwrite_lat_log={PLACE}\nlog_avg_msec={INTERVAL_MS}\n\
         per_job_logs=1\n\n"
    );
    format!("{}{}", if order.log_bandwidth { &logs } else { "" }, order.jobs)
}

fn logged(ran: &Ran) -> Result<Series, Refusal> {
    let mut series = Series::default();
    for log in ran.entry.files.iter().filter(|kept| kept.file.ends_with(".log")) {
        let text = || ran.read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match log.file.as_str() {
            name if name.contains("_bw.") => series.add(job_of(name), &text()?, INTERVAL_MS),
            name if name.contains("_clat.") => series.add_latency(&text()?, INTERVAL_MS),
            _ => {}
        }
    }
    Ok(series)
}

/// The job's number in `..._bw.1.log`; 0 if there is none.
fn job_of(name: &str) -> u32 {
    let number = name.split_once("_bw.").and_then(|(_, rest)| rest.split('.').next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn failure(ran: &Ran, why: &str) -> Refusal {
    let said = format!("fio failed ({}): {why}", ran.entry.why);
    Refusal::cannot_run("fio.failed", said)
        .hint(format!("its output is kept in {}", ran.entry.stderr.file))
}

/// What fio complained about: on stderr, and before or instead of its result on stdout.
fn reasons(ran: &Ran) -> String {
    let stdout = ran.stdout().unwrap_or_default();
    let stderr = ran.stderr().unwrap_or_default();
    let text = [stderr, stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("fio: "))
        .take(REASONS_MAX)
        .collect();
    if lines.is_empty() { ran.complaint() } else { lines.join("; ") }
}
