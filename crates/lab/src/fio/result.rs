//! fio's results: `json` and `json+`, whatever stands before and after them.
//!
//! What must stay true: no input makes this panic; text around the document is kept as diagnostics,
//! because fio prints errors into the same file; a document that ends in the middle is refused, not
//! repaired; bins of several jobs are added, percentiles never averaged. Of several documents
//! (`--status-interval`) the last whole one counts.

use super::job::Job;
use crate::Refusal;
use crate::metrics::latency::Bins;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Places at which a document is looked for before giving up.
const TRIES: usize = 64;

/// I/Os that one bin is believed to hold: a year at 30 million a second. More is garbage, and would
/// overflow sums.
const BIN_MAX: u64 = 1 << 50;

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FioResult {
    #[serde(rename = "fio version", deserialize_with = "text")]
    pub version: String,
    /// End of the run, milliseconds since 1970, UTC.
    #[serde(deserialize_with = "count")]
    pub timestamp_ms: u64,
    /// Options of `[global]`; none if everything came from the command line.
    #[serde(rename = "global options", deserialize_with = "texts")]
    pub global: BTreeMap<String, String>,
    /// Jobs, or groups of jobs with `group_reporting`.
    #[serde(deserialize_with = "list")]
    pub jobs: Vec<JobResult>,
    /// Lines that stood around the document: fio's errors and notes.
    #[serde(skip)]
    pub diagnostics: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobResult {
    #[serde(rename = "jobname", deserialize_with = "text")]
    pub name: String,
    /// errno of the first error; 0 without.
    #[serde(deserialize_with = "error")]
    pub error: i64,
    /// Options as fio repeats them; flags without a value (`time_based`) are missing from it in fio
    /// 3.33.
    #[serde(rename = "job options", deserialize_with = "texts")]
    pub options: BTreeMap<String, String>,
    #[serde(deserialize_with = "part")]
    pub read: Side,
    #[serde(deserialize_with = "part")]
    pub write: Side,
    /// Run time of the job, milliseconds, added over the jobs of a group.
    #[serde(rename = "job_runtime", deserialize_with = "count")]
    pub job_runtime_ms: u64,
    /// Time of the jobs in user mode, percent of `job_runtime_ms`.
    #[serde(rename = "usr_cpu", deserialize_with = "float")]
    pub user_percent: f64,
    /// Time of the jobs in the kernel, percent of `job_runtime_ms`: the client's, not the engine's.
    #[serde(rename = "sys_cpu", deserialize_with = "float")]
    pub system_percent: f64,
    /// Share of the time at each depth, percent; keys as fio prints them: `1`, `2`, `>=64`.
    #[serde(rename = "iodepth_level", deserialize_with = "shares")]
    pub depth_percent: BTreeMap<String, f64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Side {
    #[serde(rename = "io_bytes", deserialize_with = "count")]
    pub bytes: u64,
    #[serde(rename = "total_ios", deserialize_with = "count")]
    pub ios: u64,
    #[serde(rename = "runtime", deserialize_with = "count")]
    pub runtime_ms: u64,
    #[serde(rename = "bw_bytes", deserialize_with = "float")]
    pub bytes_per_s: f64,
    #[serde(deserialize_with = "float")]
    pub iops: f64,
    /// I/Os that moved less than was asked for.
    #[serde(deserialize_with = "count")]
    pub short_ios: u64,
    #[serde(rename = "drop_ios", deserialize_with = "count")]
    pub dropped_ios: u64,
    /// From submission to completion.
    #[serde(rename = "clat_ns", deserialize_with = "part")]
    pub completion: Latency,
    /// From before the submission to completion.
    #[serde(rename = "lat_ns", deserialize_with = "part")]
    pub total: Latency,
}

/// A latency as fio sums it up, nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Samples; 0 if it was not measured.
    #[serde(rename = "N", deserialize_with = "count")]
    pub samples: u64,
    #[serde(rename = "mean", deserialize_with = "float")]
    pub mean_ns: f64,
    /// `json+` bins: latency -> I/Os.
    #[serde(deserialize_with = "bins")]
    pub bins: Bins,
}

impl FioResult {
    pub fn parse(output: &[u8]) -> Result<FioResult, Refusal> {
        let text = String::from_utf8_lossy(output);
        let Found { document, around } = find(&text)?;
        if !document.get("jobs").is_some_and(Value::is_array) {
            return Err(strange("it has no jobs"));
        }
        let read = FioResult::deserialize(Value::Object(document));
        let result = read.map_err(|error| strange(&error.to_string()))?;
        if !result.version.starts_with("fio-") {
            return Err(strange("it names no fio version"));
        }
        let major = result.version.trim_start_matches("fio-").split('.').next().unwrap_or_default();
        if major.parse::<u32>().is_ok_and(|major| major < 3) {
            let why = "reports latency in other units; fio 3 is needed";
            return Err(strange(&format!("{} {why}", result.version)));
        }
        Ok(FioResult { diagnostics: around, ..result })
    }

    /// Its jobs as [`Job`]s, for the rules that look at options.
    pub fn as_jobs(&self) -> Vec<Job> {
        let job =
            |job: &JobResult| Job::from_options(&job.name, self.global.iter().chain(&job.options));
        self.jobs.iter().map(job).collect()
    }
}

struct Found {
    document: Map<String, Value>,
    around: Vec<String>,
}

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

/// What fio prints as a count; some of them have a decimal point. What is no count, or negative, is
/// 0: no input makes the lab stop.
fn count<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    Ok(number_of(&Value::deserialize(value)?))
}

fn number_of(value: &Value) -> u64 {
    let whole =
        |number: &Value| format!("{:.0}", number.as_f64().unwrap_or(0.0)).parse().unwrap_or(0);
    value.as_u64().unwrap_or_else(|| whole(value))
}

fn error<'de, D: Deserializer<'de>>(value: D) -> Result<i64, D::Error> {
    Ok(Value::deserialize(value)?.as_i64().unwrap_or(0))
}

fn float<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    Ok(float_of(&Value::deserialize(value)?))
}

fn float_of(value: &Value) -> f64 {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0).unwrap_or(0.0)
}

fn text<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    Ok(Value::deserialize(value)?.as_str().unwrap_or_default().to_owned())
}

/// What stands in an object, by its names; nothing if it is none.
fn fields<'de, D: Deserializer<'de>, T>(
    value: D,
    of: impl Fn(&Value) -> T,
) -> Result<BTreeMap<String, T>, D::Error> {
    let value = Value::deserialize(value)?;
    let pairs = value.as_object().into_iter().flatten();
    Ok(pairs.map(|(key, value)| (key.clone(), of(value))).collect())
}

fn texts<'de, D: Deserializer<'de>>(value: D) -> Result<BTreeMap<String, String>, D::Error> {
    fields(value, |it| it.as_str().map_or_else(|| it.to_string(), str::to_owned))
}

fn counts<'de, D: Deserializer<'de>>(value: D) -> Result<BTreeMap<String, u64>, D::Error> {
    fields(value, number_of)
}

fn shares<'de, D: Deserializer<'de>>(value: D) -> Result<BTreeMap<String, f64>, D::Error> {
    fields(value, float_of)
}

fn bins<'de, D: Deserializer<'de>>(value: D) -> Result<Bins, D::Error> {
    let mut bins = Bins::new();
    for (latency_ns, ios) in counts(value)? {
        if let Ok(latency_ns) = latency_ns.parse::<u64>() {
            let ios_before = bins.entry(latency_ns).or_default();
            *ios_before = ios_before.saturating_add(ios.min(BIN_MAX));
        }
    }
    Ok(bins)
}

/// Elements of a list that can be read; the others are left out.
fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(value: D) -> Result<Vec<T>, D::Error> {
    let value = Value::deserialize(value)?;
    let all = value.as_array().into_iter().flatten().filter(|it| it.is_object());
    Ok(all.filter_map(|it| T::deserialize(it).ok()).collect())
}

/// An object, or what there is without one.
fn part<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(value: D) -> Result<T, D::Error> {
    Ok(T::deserialize(Value::deserialize(value)?).unwrap_or_default())
}
