//! fio's results: `json` and `json+`, whatever stands before and after them.
//!
//! What must stay true: no input makes this panic; text around the document is kept as diagnostics,
//! because fio prints errors into the same file; a document that ends in the middle is refused, not
//! repaired; bins of several jobs are added, percentiles never averaged. Of several documents
//! (`--status-interval`) the last whole one counts.

use super::job::Job;
use crate::Refusal;
use crate::metrics::latency::Bins;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Places at which a document is looked for before giving up.
const TRIES: usize = 64;

/// I/Os that one bin is believed to hold: a year at 30 million a second. More is garbage, and would
/// overflow sums.
const BIN_MAX: u64 = 1 << 50;

/// What fio said about a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FioResult {
    /// `fio-3.33`.
    pub version: String,
    /// End of the run, milliseconds since 1970, UTC.
    pub timestamp_ms: u64,
    /// Options of `[global]`; none if everything came from the command line.
    pub global: BTreeMap<String, String>,
    /// Jobs, or groups of jobs with `group_reporting`.
    pub jobs: Vec<JobResult>,
    /// Devices below, as fio counted them.
    pub disks: Vec<DiskUse>,
    /// Lines that stood around the document: fio's errors and notes.
    pub diagnostics: Vec<String>,
}

/// A job's result.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobResult {
    /// Its name.
    pub name: String,
    /// errno of the first error; 0 without.
    pub error: i64,
    /// Options as fio repeats them; flags without a value (`time_based`) are missing from it in fio
    /// 3.33.
    pub options: BTreeMap<String, String>,
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Trims.
    pub trim: Side,
    /// Run time of the job, milliseconds, added over the jobs of a group.
    pub job_runtime_ms: u64,
    /// Time of the jobs in user mode, percent of `job_runtime_ms`.
    pub user_percent: f64,
    /// Time of the jobs in the kernel, percent of `job_runtime_ms`: the client's, not the engine's.
    pub system_percent: f64,
    /// Share of the time at each depth, percent; keys as fio prints them: `1`, `2`, `>=64`.
    pub depth_percent: BTreeMap<String, f64>,
}

/// Reads, writes or trims of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    /// Bytes moved.
    pub bytes: u64,
    /// I/Os done.
    pub ios: u64,
    /// Run time, milliseconds.
    pub runtime_ms: u64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// I/Os a second.
    pub iops: f64,
    /// I/Os that moved less than was asked for.
    pub short_ios: u64,
    /// I/Os that were given up.
    pub dropped_ios: u64,
    /// From submission to completion.
    pub completion: Latency,
    /// From before the submission to completion.
    pub total: Latency,
}

/// A latency as fio sums it up, nanoseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latency {
    /// Samples; 0 if it was not measured.
    pub samples: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// `json+` bins: latency -> I/Os.
    pub bins: Bins,
    /// Percentile -> latency, as fio gives it; keys are percents: `99.900000`.
    pub percentiles: BTreeMap<String, u64>,
}

/// A block device as fio counted it over the run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DiskUse {
    /// `sda`.
    pub name: String,
    /// Reads it completed.
    pub reads: u64,
    /// Writes it completed.
    pub writes: u64,
    /// Busy share of the time, percent.
    pub busy_percent: f64,
}

impl FioResult {
    /// Read what fio printed.
    ///
    /// # Errors
    /// If there is no document, it ends in the middle, or it is not a result of fio 3.
    pub fn parse(output: &[u8]) -> Result<FioResult, Refusal> {
        let text = String::from_utf8_lossy(output);
        let found = find(&text)?;
        let mut result = FioResult { diagnostics: found.around, ..FioResult::default() };
        result.version = text_of(&found.document, "fio version");
        if !result.version.starts_with("fio-") {
            return Err(strange("it names no fio version"));
        }
        let major = result.version.trim_start_matches("fio-").split('.').next().unwrap_or_default();
        if major.parse::<u32>().is_ok_and(|major| major < 3) {
            return Err(strange(&format!(
                "{} reports latency in other units; fio 3 is needed",
                result.version
            )));
        }
        result.timestamp_ms = number(&found.document, "timestamp_ms");
        result.global = texts(found.document.get("global options"));
        let jobs = found.document.get("jobs").and_then(Value::as_array);
        let jobs = jobs.ok_or_else(|| strange("it has no jobs"))?;
        result.jobs = jobs.iter().filter_map(Value::as_object).map(job).collect();
        let disks = found.document.get("disk_util").and_then(Value::as_array);
        result.disks = disks.into_iter().flatten().filter_map(Value::as_object).map(disk).collect();
        Ok(result)
    }

    /// Its jobs as [`Job`]s, for the rules that look at options.
    pub fn as_jobs(&self) -> Vec<Job> {
        let job =
            |job: &JobResult| Job::from_options(&job.name, self.global.iter().chain(&job.options));
        self.jobs.iter().map(job).collect()
    }
}

/// A document, and the lines around it.
struct Found {
    document: Map<String, Value>,
    around: Vec<String>,
}

/// The last whole document in `text`.
fn find(text: &str) -> Result<Found, Refusal> {
    let mut around = Vec::new();
    let mut last: Option<Map<String, Value>> = None;
    let mut other = false;
    let mut rest = text;
    let mut failure = None;
    for _ in 0..TRIES {
        let Some(at) = next_brace(rest) else { break };
        note(&mut around, &rest[..at]);
        rest = &rest[at..];
        let mut documents =
            serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        match documents.next() {
            Some(Ok(document)) => {
                let end = documents.byte_offset();
                // An object among the diagnostics, or within a torn document, is not a result.
                if document.contains_key("fio version") {
                    last = Some(document);
                    failure = None;
                } else {
                    other = true;
                }
                rest = &rest[end..];
            }
            Some(Err(error)) if error.is_eof() => {
                return Err(truncated(text.len(), text.len() - rest.len()));
            }
            Some(Err(error)) => {
                failure.get_or_insert(error);
                note(&mut around, "{");
                rest = &rest[1..];
            }
            None => break,
        }
    }
    match (last, failure) {
        (Some(document), _) => {
            note(&mut around, rest);
            Ok(Found { document, around })
        }
        (None, Some(error)) => Err(strange(&error.to_string())),
        (None, None) if other => Err(strange("it names no fio version")),
        (None, None) => {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            let said = format!("fio printed no result: {}", first.unwrap_or("nothing at all"));
            Err(Refusal::cannot_run("fio.no_result", said, "run it with --output-format=json+"))
        }
    }
}

fn truncated(bytes: usize, at: usize) -> Refusal {
    let said = format!(
        "fio's output of {bytes} bytes ends in the middle of the result that begins at byte {at}"
    );
    let hint = "fio was killed or the disk was full; measure this point again";
    Refusal::cannot_run("fio.output_truncated", said, hint)
}

/// The next `{` that begins a line: fio's documents do, braces in its messages do not.
fn next_brace(text: &str) -> Option<usize> {
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        let blank = line.len() - line.trim_start().len();
        if line[blank..].starts_with('{') {
            return Some(from + blank);
        }
        from += line.len();
    }
    None
}

fn note(around: &mut Vec<String>, text: &str) {
    around.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
}

fn strange(what: &str) -> Refusal {
    let said = format!("this is not a result of fio: {what}");
    Refusal::cannot_run(
        "fio.output_not_understood",
        said,
        "give the file that fio --output-format=json+ wrote",
    )
}

fn job(value: &Map<String, Value>) -> JobResult {
    let side = |key: &str| value.get(key).and_then(Value::as_object).map(side).unwrap_or_default();
    let levels = value.get("iodepth_level").and_then(Value::as_object);
    JobResult {
        name: text_of(value, "jobname"),
        error: value.get("error").and_then(Value::as_i64).unwrap_or(0),
        options: texts(value.get("job options")),
        read: side("read"),
        write: side("write"),
        trim: side("trim"),
        job_runtime_ms: number(value, "job_runtime"),
        user_percent: float(value, "usr_cpu"),
        system_percent: float(value, "sys_cpu"),
        depth_percent: levels
            .into_iter()
            .flatten()
            .map(|(key, share)| (key.clone(), float_of(share)))
            .collect(),
    }
}

fn side(value: &Map<String, Value>) -> Side {
    let latency =
        |key: &str| value.get(key).and_then(Value::as_object).map(latency).unwrap_or_default();
    Side {
        bytes: number(value, "io_bytes"),
        ios: number(value, "total_ios"),
        runtime_ms: number(value, "runtime"),
        bytes_per_s: float(value, "bw_bytes"),
        iops: float(value, "iops"),
        short_ios: number(value, "short_ios"),
        dropped_ios: number(value, "drop_ios"),
        completion: latency("clat_ns"),
        total: latency("lat_ns"),
    }
}

fn latency(value: &Map<String, Value>) -> Latency {
    let pairs = |key: &str| value.get(key).and_then(Value::as_object).into_iter().flatten();
    let mut bins = Bins::new();
    for (latency_ns, ios) in pairs("bins") {
        if let Ok(latency_ns) = latency_ns.parse::<u64>() {
            let ios_before = bins.entry(latency_ns).or_default();
            *ios_before = ios_before.saturating_add(number_of(ios).min(BIN_MAX));
        }
    }
    Latency {
        samples: number(value, "N"),
        min_ns: number(value, "min"),
        max_ns: number(value, "max"),
        mean_ns: float(value, "mean"),
        bins,
        percentiles: pairs("percentile").map(|(key, ns)| (key.clone(), number_of(ns))).collect(),
    }
}

fn disk(value: &Map<String, Value>) -> DiskUse {
    DiskUse {
        name: text_of(value, "name"),
        reads: number(value, "read_ios"),
        writes: number(value, "write_ios"),
        busy_percent: float(value, "util"),
    }
}

fn text_of(value: &Map<String, Value>, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: Option<&Value>) -> BTreeMap<String, String> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = value.and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), plain(value))).collect()
}

fn number(value: &Map<String, Value>, key: &str) -> u64 {
    value.get(key).map_or(0, number_of)
}

/// A count; fio writes some of them with a decimal point. What is no count, or negative, is 0.
fn number_of(value: &Value) -> u64 {
    let whole =
        |number: &Value| format!("{:.0}", number.as_f64().unwrap_or(0.0)).parse().unwrap_or(0);
    value.as_u64().unwrap_or_else(|| whole(value))
}

fn float(value: &Map<String, Value>, key: &str) -> f64 {
    value.get(key).map_or(0.0, float_of)
}

fn float_of(value: &Value) -> f64 {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0).unwrap_or(0.0)
}
