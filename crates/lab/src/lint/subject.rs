//! What is looked at: jobs, perhaps their result, and what it is meant to show.

use crate::Refusal;
use crate::fio::args::CommandLine;
use crate::fio::{FioResult, Job, JobFile, value};
use crate::metrics::plausible::Ceiling;

#[derive(Clone, Debug, Default)]
pub struct Subject {
    pub jobs: Vec<Job>,
    pub result: Option<FioResult>,
    pub intent: Intent,
}

/// What a benchmark is meant to show; rules weigh accordingly. As flags of `lab lint`.
#[derive(Clone, PartialEq, Debug, Default, clap::Args)]
pub struct Intent {
    /// Apply the stricter rules for results to be published: some warnings become errors.
    #[arg(long)]
    pub publish: bool,
    /// State that the benchmark claims durable writes.
    #[arg(long)]
    pub durable: bool,
    /// State that the benchmark is a stress test of all drives at once.
    #[arg(long)]
    pub stress: bool,
    /// Strip size of the array under test, for instance 64K.
    #[arg(long = "strip-size", value_name = "SIZE", value_parser = size)]
    pub strip_bytes: Option<u64>,
    /// Data in a full stripe of the array under test, for instance 512K.
    #[arg(long = "stripe-data", value_name = "SIZE", value_parser = size)]
    pub stripe_bytes: Option<u64>,
    /// State that the targets were written completely before the benchmark, and that a record of
    /// this writing is kept.
    #[arg(long)]
    pub preconditioned: bool,
    /// State that CPU governor, turbo, SMT and mitigations are recorded with the result.
    #[arg(long)]
    pub environment_recorded: bool,
    /// State whether the drives coalesce interrupts.
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    pub coalescing: Option<bool>,
    /// Rate that no result can exceed, such as the rate of a link, in bytes per second: NAME=7.8g,
    /// where g is 10^9. Choose any NAME; the output shows NAME. Repeatable.
    #[arg(long = "ceiling", value_name = "NAME=BYTES", value_parser = ceiling)]
    pub ceilings: Vec<Ceiling>,
    /// Do not report that the job overwrites this target; `lint` itself writes nothing. Name a
    /// drive by its serial number, a file by its path. Repeatable.
    #[arg(long = "destroy", value_name = "SERIAL|FILE")]
    pub named: Vec<String>,
    /// What fio itself complained about when it read the jobs.
    #[arg(skip)]
    pub complaints: Vec<String>,
}

fn size(text: &str) -> Result<u64, String> {
    value::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| "a size such as 64k".to_owned())
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

fn ceiling(text: &str) -> Result<Ceiling, String> {
    let expected = || "NAME=BYTES, such as 'SATA link=600m' (decimal: 600,000,000)".to_owned();
    let (name, rate) = text.split_once('=').ok_or_else(expected)?;
    let lower = rate.trim().to_ascii_lowercase();
    // Links are sold in powers of 1000.
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let (digits, unit) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if lower.ends_with('k') => (digits, 1e3),
        Some(digits) if lower.ends_with('m') => (digits, 1e6),
        Some(digits) => (digits, 1e9),
        None => (lower, 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    let value = number * unit;
    if value.is_finite() && value > 0.0 {
        Ok(Ceiling { name: name.to_owned(), value })
    } else {
        Err(expected())
    }
}

impl Subject {
    pub fn read(text: &[u8], intent: Intent) -> Result<Subject, Refusal> {
        let line = String::from_utf8_lossy(text);
        let begins = |c: char| line.lines().any(|line| line.trim_start().starts_with(c));
        // Results begin with a brace; fio's own messages may stand before it, and never begin with
        // a bracket.
        if begins('{') && !line.trim_start().starts_with(['[', ';', '#']) {
            let result = FioResult::parse(text)?;
            return Ok(Subject { jobs: result.as_jobs(), result: Some(result), intent });
        }
        let jobs = JobFile::parse(&line)?.jobs();
        if jobs.is_empty() {
            return Err(no_job("this job file"));
        }
        Ok(Subject { jobs, result: None, intent })
    }

    pub fn from_arguments(
        arguments: &[String],
        intent: Intent,
        read: impl Fn(&str) -> Result<String, Refusal>,
    ) -> Result<Subject, Refusal> {
        let line = CommandLine::parse(arguments)?;
        let mut jobs = line.jobs.jobs();
        for name in &line.files {
            jobs.extend(JobFile::parse(&read(name)?)?.jobs());
        }
        if jobs.is_empty() {
            return Err(no_job("this fio command line"));
        }
        Ok(Subject { jobs, result: None, intent })
    }
}

fn no_job(what: &str) -> Refusal {
    let said = format!("{what} has no job: fio would measure nothing");
    Refusal::new("fio.no_job", said).hint("add a [section] for a job, or --name=NAME")
}

/// Targets of a job, with `directory` in front of relative names; none if fio makes the name up.
pub fn targets(job: &Job) -> Vec<String> {
    let folder = job.get("directory");
    let full = |name: String| match folder {
        Some(folder) if !name.starts_with('/') => {
            format!("{}/{name}", folder.trim_end_matches('/'))
        }
        _ => name,
    };
    job.filenames().into_iter().map(full).collect()
}

#[cfg(test)]
mod tests {
    use super::ceiling;

    #[test]
    fn ceilings_are_decimal() {
        assert_eq!(ceiling("SATA=600m").unwrap().value.to_bits(), 600e6_f64.to_bits());
        assert_eq!(ceiling("x4=7.8GB").unwrap().value.to_bits(), 7.8e9_f64.to_bits());
        assert_eq!(ceiling("x4 = 7.8G").unwrap().value.to_bits(), 7.8e9_f64.to_bits());
        assert!(ceiling("7.8g").is_err() && ceiling("a=fast").is_err() && ceiling("a=-1").is_err());
    }
}
