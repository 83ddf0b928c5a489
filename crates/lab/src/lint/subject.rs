//! What is looked at: jobs, perhaps their result, and what it is meant to show.

use crate::Refusal;
use crate::fio::args::CommandLine;
use crate::fio::{FioResult, Job, JobFile};
use crate::metrics::plausible::Ceiling;

/// What is linted.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Jobs with everything they inherit.
    pub jobs: Vec<Job>,
    /// Their result, if they have run.
    pub result: Option<FioResult>,
    /// What it is meant to show.
    pub intent: Intent,
}

/// What a benchmark is meant to show; rules weigh accordingly.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Intent {
    /// Figures will be published or compared with others'.
    pub publish: bool,
    /// Writes are claimed to survive a power cut.
    pub durable: bool,
    /// All devices are stressed at once to find the slow one.
    pub stress: bool,
    /// Strip of the array under test, bytes.
    pub strip_bytes: Option<u64>,
    /// Data of a full stripe of the array under test, bytes.
    pub stripe_bytes: Option<u64>,
    /// Targets have been written whole, and the record of it is kept.
    pub preconditioned: bool,
    /// Governor, turbo, C-states, SMT and mitigations are recorded beside the result.
    pub environment_recorded: bool,
    /// Interrupt coalescing of the drives, if it is known.
    pub coalescing: Option<bool>,
    /// Serials or paths that may be destroyed.
    pub named: Vec<String>,
    /// What no figure can be above, bytes a second.
    pub ceilings: Vec<Ceiling>,
    /// What fio itself complained about when it read the jobs.
    pub complaints: Vec<String>,
}

impl Subject {
    /// Read a job file, or a result if the text has one.
    ///
    /// # Errors
    /// If it is neither.
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

    /// Take a command line; `read` gives the text of the job files it names.
    ///
    /// # Errors
    /// If it, or a job file, is not understood.
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
