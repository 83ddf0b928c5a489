//! `ashlar job`: background work by its number.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::{rate, table};
use crate::wait;
use ashlar_api::ApiError;
use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::job::{JobAction, JobControl, JobStatus};
use ashlar_api::v1::status::GetStatus;
use std::str::FromStr;

/// List background jobs, or wait for, pause, resume or cancel a job.
///
/// The name of a job is ARRAY/NUMBER, as `job list` shows. Numbers begin at 1 again when the array
/// starts.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: ashlar job wait tank0/3")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List the jobs that run, and how the last jobs ended.
    List {
        /// List only jobs of this array.
        array: Option<String>,
    },
    /// Wait until a job has ended. Exit code 1 if the job failed, was cancelled, or left wrong or
    /// lost blocks.
    Wait {
        /// The job.
        #[arg(value_name = "ARRAY/NUMBER")]
        job: JobName,
    },
    /// Pause a job. The job keeps its position.
    Pause {
        /// The job.
        #[arg(value_name = "ARRAY/NUMBER")]
        job: JobName,
    },
    /// Resume a paused job.
    Resume {
        /// The job.
        #[arg(value_name = "ARRAY/NUMBER")]
        job: JobName,
    },
    /// Cancel a job. The command is refused if redundancy depends on the job.
    Cancel {
        /// The job.
        #[arg(value_name = "ARRAY/NUMBER")]
        job: JobName,
    },
}

/// What a job is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobName {
    pub array: String,
    pub id: u64,
}

impl FromStr for JobName {
    type Err = String;

    fn from_str(typed: &str) -> Result<JobName, String> {
        // No name of an array has a slash.
        let name = typed.split_once('/').and_then(|(array, id)| {
            let id = id.parse().ok()?;
            (!array.is_empty()).then(|| JobName { array: array.to_owned(), id })
        });
        name.ok_or_else(|| "write ARRAY/NUMBER, as 'ashlar job list' shows it".to_owned())
    }
}

impl std::fmt::Display for JobName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.array, self.id)
    }
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    match args.action {
        Action::List { array } => list(reach, array.as_deref()),
        Action::Wait { job } => wait::until_ended(reach, &job),
        Action::Pause { job } => control(reach, job, JobAction::Pause),
        Action::Resume { job } => control(reach, job, JobAction::Resume),
        Action::Cancel { job } => control(reach, job, JobAction::Cancel),
    }
}

fn control(reach: &Reach, job: JobName, action: JobAction) -> Result<(), Fault> {
    let status = reach.call(&GetStatus {})?;
    let array = status.arrays.into_iter().find(|it| it.name == job.array);
    let array = array.ok_or_else(|| ApiError::no_array(&job.array))?;
    let Some(kind) = array.jobs.iter().find(|it| it.id == job.id).map(|it| it.kind) else {
        return Err(not_running(&job));
    };
    reach.change(&JobControl { array: job.array, kind, action, id: Some(job.id) }).map(drop)
}

/// The job is not under way.
pub fn not_running(job: &JobName) -> Fault {
    let message = format!("no job {job} is under way; nothing was changed");
    Fault::new("job.unknown", message, "see 'ashlar job list'")
}

fn list(reach: &Reach, array: Option<&str>) -> Result<(), Fault> {
    let mut arrays = reach.call(&GetStatus {})?.arrays;
    if let Some(name) = array {
        arrays.retain(|it| it.name == name);
        if arrays.is_empty() {
            return Err(ApiError::no_array(name).into());
        }
    }
    let documents: Vec<Listed<'_>> = arrays.iter().map(Listed::of).collect();
    reach.print(&documents, |_| text(&arrays))
}

/// The jobs of an array, as JSON.
#[derive(serde::Serialize)]
struct Listed<'a> {
    array: &'a str,
    jobs: &'a [JobStatus],
    ended_jobs: &'a [ashlar_api::v1::job::JobEnd],
}

impl<'a> Listed<'a> {
    fn of(array: &'a ArrayStatus) -> Listed<'a> {
        Listed { array: &array.name, jobs: &array.jobs, ended_jobs: &array.ended_jobs }
    }
}

fn text(arrays: &[ArrayStatus]) -> String {
    let slot = |slot: Option<u16>| slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
    let mut rows = Vec::new();
    for array in arrays {
        let row = |id: u64, kind: String, on: Option<u16>, how: String| {
            vec![format!("{}/{id}", array.name), kind, slot(on), how]
        };
        rows.extend(array.ended_jobs.iter().map(|end| {
            let how = end.stopped.as_ref().map_or("done".to_owned(), |why| format!("ended: {why}"));
            row(end.id, end.kind.to_string(), end.slot, how)
        }));
        rows.extend(
            array
                .jobs
                .iter()
                .map(|job| row(job.id, job.kind.to_string(), job.slot, rate::progress(job))),
        );
    }
    if rows.is_empty() {
        return "no job runs, and none has run since the arrays started".to_owned();
    }
    rows.insert(0, ["job", "kind", "slot", "state"].map(str::to_owned).to_vec());
    table::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::JobName;

    #[test]
    fn a_job_is_called_by_its_array_and_its_number() {
        let job: JobName = "my array/12".parse().expect("a job");
        assert_eq!((job.array.as_str(), job.id), ("my array", 12));
        assert_eq!(job.to_string(), "my array/12");
        for typed in ["tank0", "tank0/", "/3", "tank0/x", "tank0/-1", "tank0/3/4"] {
            assert!(typed.parse::<JobName>().is_err(), "{typed}");
        }
    }
}
