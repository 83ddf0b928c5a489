//! Following background work to its end: a bar for people, silence for programs.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::rate;
use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::job::{JobKind, JobStatus};
use ashlar_api::v1::member::MemberState;
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{ApiError, Client, codes};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const POLL: Duration = Duration::from_millis(200);

/// Wait until no job of `kind` runs on `array`.
///
/// # Errors
/// The array is not there (any more), has failed, or the daemon does not answer.
pub fn until_done(reach: &Reach, array: &str, kind: JobKind) -> Result<(), Fault> {
    let status = follow(reach, array, kind)?;
    match status.members.iter().find(|member| member.state == MemberState::Out) {
        Some(member) if kind == JobKind::Rebuild => Err(Fault::new(
            "array.degraded",
            format!(
                "slot {} of {array} is still {}, and no rebuild runs",
                member.slot, member.state
            ),
            format!("give it a device: ashlar replace {array} {} DEVICE", member.slot),
        )),
        _ => Ok(()),
    }
}

/// Wait until the scrub of `array` has ended, and print what it found.
///
/// # Errors
/// As [`until_done`]; also if mismatches stayed.
pub fn until_scrubbed(reach: &Reach, array: &str, repair: bool) -> Result<(), Fault> {
    let status = follow(reach, array, JobKind::Scrub)?;
    let Some(result) = status.last_scrub else {
        let hint = "see 'ashlar events' for the reason";
        return Err(Fault::new(codes::SYSTEM_FAULT, "the scrub ended without a result", hint));
    };
    reach.print(&result, |it| format!("scrub of {array}: {} mismatches", it.mismatches))?;
    if result.mismatches > 0 && !repair {
        return Err(Fault::new(
            "array.mismatched",
            format!("{} blocks of {array} have parity that does not match", result.mismatches),
            format!("make parity match the data with: ashlar scrub {array} --repair"),
        ));
    }
    Ok(())
}

/// Watch the jobs of `kind` until there is none, and return the last status.
fn follow(reach: &Reach, array: &str, kind: JobKind) -> Result<ArrayStatus, Fault> {
    let client = reach.client()?;
    let bar = if reach.json { ProgressBar::hidden() } else { bar() };
    loop {
        let status = status_of(&client, array)?;
        let jobs: Vec<&JobStatus> = status.jobs.iter().filter(|job| is_meant(job, kind)).collect();
        // With several at once the slowest decides.
        let Some(slowest) = jobs.iter().min_by_key(|job| job.percent()) else {
            bar.finish_and_clear();
            return Ok(status);
        };
        bar.set_length(slowest.total_stripes);
        bar.set_position(slowest.done_stripes);
        bar.set_message(format!("{kind} of {array}  {}", rate::progress(slowest)));
        std::thread::sleep(POLL);
    }
}

/// A copy to a replacement counts as a rebuild.
fn is_meant(job: &JobStatus, kind: JobKind) -> bool {
    if kind == JobKind::Rebuild { job.is_rebuild() } else { job.kind == kind }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn status_of(client: &Client, array: &str) -> Result<ArrayStatus, Fault> {
    let status = client.call(&GetStatus {})?;
    let mut arrays = status.arrays.into_iter();
    arrays.find(|it| it.name == array).ok_or_else(|| ApiError::no_array(array).into())
}
