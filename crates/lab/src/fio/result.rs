//! fio's results: `json` and `json+`, whatever stands before and after them.
//!
//! What must stay true: no input makes this panic; text around the document is kept as diagnostics,
//! because fio prints errors into the same file; a document that ends in the middle is refused, not
//! repaired; what is no count, or negative, is 0; bins of several jobs are added, percentiles never
//! averaged. Of several documents (`--status-interval`) the last whole one counts.

use super::job::Job;
use crate::Refusal;
use crate::metrics::latency::Bins;
use crate::units;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Places at which a document is looked for before giving up.
const TRIES: usize = 64;

/// I/Os that one bin is believed to hold: a year at 30 million a second. More is garbage, and would
/// overflow sums.
const BIN_MAX: u64 = 1 << 50;

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
    /// Lines that stood around the document: fio's errors and notes.
    pub diagnostics: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobResult {
    pub name: String,
    /// errno of the first error; 0 without.
    pub error: i64,
    /// Options as fio repeats them; flags without a value (`time_based`) are missing from it in fio
    /// 3.33.
    pub options: BTreeMap<String, String>,
    pub read: Side,
    pub write: Side,
    /// Run time of the job, milliseconds, added over the jobs of a group.
    pub job_runtime_ms: u64,
    /// Time of the jobs in user mode, percent of `job_runtime_ms`.
    pub user_percent: f64,
    /// Time of the jobs in the kernel, percent of `job_runtime_ms`: the client's, not the engine's.
    pub system_percent: f64,
    /// Share of the time at each depth, percent; keys as fio prints them: `1`, `2`, `>=64`.
    pub depth_percent: BTreeMap<String, f64>,
}

/// Reads or writes of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    pub bytes: u64,
    pub ios: u64,
    pub runtime_ms: u64,
    pub bytes_per_s: f64,
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
    /// 0 if it was not measured.
    pub samples: u64,
    pub mean_ns: f64,
    /// `json+` bins: latency -> I/Os.
    pub bins: Bins,
}

impl FioResult {
    pub fn parse(output: &[u8]) -> Result<FioResult, Refusal> {
        let text = String::from_utf8_lossy(output);
        let (document, diagnostics) = find(&text)?;
        let field = |name: &str| document.get(name).unwrap_or(&Value::Null);
        let Some(jobs) = field("jobs").as_array() else { return Err(strange("it has no jobs")) };
        let version = text_of(field("fio version"));
        let Some(number) = version.strip_prefix("fio-") else {
            return Err(strange("it names no fio version"));
        };
        let major = number.split('.').next().unwrap_or_default();
        if major.parse::<u32>().is_ok_and(|major| major < 3) {
            let why = "reports latency in other units; fio 3 is needed";
            return Err(strange(&format!("{version} {why}")));
        }
        Ok(FioResult {
            timestamp_ms: count(field("timestamp_ms")),
            global: texts(field("global options")),
            jobs: jobs.iter().filter(|it| it.is_object()).map(job).collect(),
            diagnostics,
            version,
        })
    }

    /// Its jobs as [`Job`]s, for the rules that look at options.
    pub fn as_jobs(&self) -> Vec<Job> {
        let job =
            |job: &JobResult| Job::from_options(&job.name, self.global.iter().chain(&job.options));
        self.jobs.iter().map(job).collect()
    }
}

fn job(value: &Value) -> JobResult {
    JobResult {
        name: text_of(&value["jobname"]),
        error: value["error"].as_i64().unwrap_or(0),
        options: texts(&value["job options"]),
        read: side(&value["read"]),
        write: side(&value["write"]),
        job_runtime_ms: count(&value["job_runtime"]),
        user_percent: float(&value["usr_cpu"]),
        system_percent: float(&value["sys_cpu"]),
        depth_percent: fields(&value["iodepth_level"], float),
    }
}

fn side(value: &Value) -> Side {
    Side {
        bytes: count(&value["io_bytes"]),
        ios: count(&value["total_ios"]),
        runtime_ms: count(&value["runtime"]),
        bytes_per_s: float(&value["bw_bytes"]),
        iops: float(&value["iops"]),
        short_ios: count(&value["short_ios"]),
        dropped_ios: count(&value["drop_ios"]),
        completion: latency(&value["clat_ns"]),
        total: latency(&value["lat_ns"]),
    }
}

fn latency(value: &Value) -> Latency {
    let mut bins = Bins::new();
    for (latency_ns, ios) in fields(&value["bins"], count) {
        if let Ok(latency_ns) = latency_ns.parse::<u64>() {
            let sum = bins.entry(latency_ns).or_default();
            *sum = sum.saturating_add(ios.min(BIN_MAX));
        }
    }
    Latency { samples: count(&value["N"]), mean_ns: float(&value["mean"]), bins }
}

/// What fio prints as a count; some of them have a decimal point.
fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| units::whole(value.as_f64().unwrap_or(0.0)))
}

fn float(value: &Value) -> f64 {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0).unwrap_or(0.0)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What stands in an object, by its names; nothing if it is none.
fn fields<T>(value: &Value, of: impl Fn(&Value) -> T) -> BTreeMap<String, T> {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), of(value))).collect()
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    fields(value, |it| it.as_str().map_or_else(|| it.to_string(), str::to_owned))
}

/// The last whole document in `text`, and the lines around it.
fn find(text: &str) -> Result<(Map<String, Value>, Vec<String>), Refusal> {
    let (mut around, mut rest) = (Vec::new(), text);
    let (mut last, mut other, mut failure) = (None, false, None);
    for _ in 0..TRIES {
        let Some(at) = next_brace(rest) else { break };
        note(&mut around, &rest[..at]);
        rest = &rest[at..];
        let mut documents =
            serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        match documents.next() {
            Some(Ok(document)) => {
                rest = &rest[documents.byte_offset()..];
                // An object among the diagnostics, or within a torn document, is not a result.
                if document.contains_key("fio version") {
                    (last, failure) = (Some(document), None);
                } else {
                    other = true;
                }
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
            Ok((document, around))
        }
        (None, Some(error)) => Err(strange(&error.to_string())),
        (None, None) if other => Err(strange("it names no fio version")),
        (None, None) => {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            let said = format!("fio printed no result: {}", first.unwrap_or("nothing at all"));
            Err(Refusal::cannot_run("fio.no_result", said)
                .hint("run it with --output-format=json+"))
        }
    }
}

fn truncated(bytes: usize, at: usize) -> Refusal {
    let said = format!(
        "fio's output of {bytes} bytes ends in the middle of the result that begins at byte {at}"
    );
    let hint = "fio was killed or the disk was full; measure this point again";
    Refusal::cannot_run("fio.output_truncated", said).hint(hint)
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
    Refusal::cannot_run("fio.output_not_understood", said)
        .hint("give the file that fio --output-format=json+ wrote")
}
