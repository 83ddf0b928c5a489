//! Following background work to its end: a bar for people, silence for programs.

use crate::cmd::job::{JobName, not_running};
use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::rate;
use ashlar_api::v1::array::{ArrayStatus, ScrubResult};
use ashlar_api::v1::job::{JobKind, JobStatus};
use ashlar_api::v1::member::{MemberState, MemberStatus};
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{ApiError, Client, codes};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const POLL: Duration = Duration::from_millis(200);
/// How often to look for a device that takes a slot before saying that there is none.
const JOIN_LOOKS: u32 = 5;

/// Wait until every slot of `array` is in sync, or what it lost is on distributed spares.
///
/// # Errors
/// The array is not there (any more), a slot has no device and gets none, or the daemon does not
/// answer.
pub fn until_rebuilt(reach: &Reach, array: &str) -> Result<(), Fault> {
    // A spare that waits takes its slot a moment after the member went out.
    let mut looks = JOIN_LOOKS;
    loop {
        let status = follow(reach, array, JobStatus::is_rebuild)?;
        let mut waiting = status.members.iter().filter(|it| it.state != MemberState::InSync);
        let Some(first) = waiting.next() else {
            return reach.tell(format_args!("every slot of '{array}' is in sync"));
        };
        let is_on_spares = !status.lost_members.is_empty()
            && status.tolerates == status.parity_strips
            && status.members.iter().all(|it| it.state != MemberState::Rebuilding);
        if is_on_spares {
            return reach.tell(format_args!("what '{array}' lost is on its distributed spares"));
        }
        let is_hopeless = [first].into_iter().chain(waiting).all(|it| it.state == MemberState::Out);
        if is_hopeless && looks == 0 {
            return Err(Fault::new(
                "array.degraded",
                format!("slot {} of {array} has no device, and no rebuild runs", first.slot),
                format!("give it one: ashlar replace {array} {} DEVICE", first.slot),
            ));
        }
        looks = if is_hopeless { looks - 1 } else { JOIN_LOOKS };
        std::thread::sleep(POLL);
    }
}

/// Wait until `device` holds everything of the slot that it was put into.
///
/// # Errors
/// As [`until_rebuilt`]; also if the device failed meanwhile.
pub fn until_filled(reach: &Reach, array: &str, device: &str) -> Result<(), Fault> {
    let client = reach.client()?;
    let holds = |member: &&MemberStatus| {
        member.path == device || member.replacement.as_deref() == Some(device)
    };
    loop {
        let slot = status_of(&client, array)?.members.iter().find(holds).map(|member| member.slot);
        let status = follow(reach, array, |job| job.is_rebuild() && job.slot == slot)?;
        match status.members.iter().find(holds) {
            Some(it) if it.state == MemberState::InSync && it.path == device => {
                return reach.tell(format_args!("slot {} of '{array}' is in sync", it.slot));
            }
            // The job has ended and the members are being told.
            Some(it) if it.state != MemberState::Out => std::thread::sleep(POLL),
            _ => {
                return Err(Fault::new(
                    "member.failed",
                    format!(
                        "{device} was not filled; the other members of {array} are as they were"
                    ),
                    "see 'ashlar events' for the reason, and give the slot another device",
                ));
            }
        }
    }
}

/// Wait until the scrub of `array` has ended, and print what it found.
///
/// # Errors
/// As [`until_rebuilt`]; also if something that is wrong stayed, or it was cancelled.
pub fn until_scrubbed(reach: &Reach, array: &str) -> Result<(), Fault> {
    let status = follow(reach, array, |job| job.kind == JobKind::Scrub)?;
    let Some(result) = &status.last_scrub else {
        let hint = "see 'ashlar events' for the reason";
        return Err(Fault::new(codes::SYSTEM_FAULT, "the scrub ended without a result", hint));
    };
    if result.cancelled {
        return Err(Fault::new("job.cancelled", cancelled(array, result), again(array)));
    }
    reach.print(result, |it| format!("scrub of {array}: {}", found(it)))?;
    if result.unrepairable > 0 {
        return Err(Fault::answered(
            "block.lost",
            format!(
                "{} blocks of {array} are lost: too much of their rows cannot be read",
                result.unrepairable
            ),
            "write them anew, or restore them; 'ashlar events' names their stripes".to_owned(),
        ));
    }
    if result.left > 0 {
        return Err(Fault::answered(
            "array.mismatched",
            format!("{} blocks of {array} {}", result.left, status.mismatch()),
            located(&status),
        ));
    }
    Ok(())
}

/// Wait until `array` has grown.
///
/// # Errors
/// The array is not there (any more), or the daemon does not answer.
pub fn until_grown(reach: &Reach, array: &str) -> Result<(), Fault> {
    follow(reach, array, |job| job.kind == JobKind::Grow)?;
    reach.tell(format_args!("'{array}' has grown"))
}

/// Wait until this job has ended, and say how.
///
/// # Errors
/// It is not there, it ended before it was done, or it left wrong blocks.
pub fn until_ended(reach: &Reach, job: &JobName) -> Result<(), Fault> {
    let status = follow(reach, &job.array, |it| it.id == job.id)?;
    let Some(end) = status.ended_jobs.iter().find(|it| it.id == job.id) else {
        return Err(not_running(job));
    };
    if let Some(why) = &end.stopped {
        let message = format!("{} {job} ended before it was done: {why}", end.kind);
        return Err(Fault::new("job.stopped", message, "see 'ashlar events' and 'ashlar status'"));
    }
    if end.unrepairable > 0 {
        let message = format!("{} {job} left {} undone", end.kind, end.unrepairable);
        return Err(Fault::new("block.lost", message, "'ashlar events' names their stripes"));
    }
    if end.left > 0 {
        let message = format!("{} blocks of {} {}", end.left, job.array, status.mismatch());
        return Err(Fault::new("array.mismatched", message, "see 'ashlar status --members'"));
    }
    reach.print(end, |end| format!("{} {job} is done", end.kind))
}

/// What a scrub found, half a sentence.
fn found(result: &ScrubResult) -> String {
    let right = match result.repaired {
        0 => String::new(),
        repaired => format!(", {repaired} blocks put right"),
    };
    format!("{} mismatches{right}", result.mismatches)
}

fn cancelled(array: &str, result: &ScrubResult) -> String {
    format!(
        "the scrub of {array} was cancelled after {} of {} stripes, with {} until then",
        result.done_stripes,
        result.total_stripes,
        found(result)
    )
}

fn again(array: &str) -> String {
    format!("the others were not looked at; begin again with: ashlar scrub {array}")
}

/// Which members the others of their stripes point at, and what to do.
fn located(array: &ArrayStatus) -> String {
    let (name, named) = (&array.name, array.members.iter().filter(|it| it.located_mismatches > 0));
    let named: Vec<String> = named
        .map(|it| format!("slot {} ({}, {} blocks)", it.slot, it.path, it.located_mismatches))
        .collect();
    let repair = format!("ashlar scrub {name} --repair");
    if named.is_empty() {
        return match array.is_mirrored() {
            true => format!("make the copies equal, by the one in the lower slot, with: {repair}"),
            false => format!("make parity match the data with: {repair}"),
        };
    }
    let witness = if array.is_mirrored() { "the other copies point" } else { "parity points" };
    format!(
        "{witness} at {}, an inference without checksums; store these blocks anew with: {repair}",
        named.join(" and ")
    )
}

/// Watch the jobs that are meant until there is none, and return the last status.
fn follow(
    reach: &Reach,
    array: &str,
    is_meant: impl Fn(&JobStatus) -> bool,
) -> Result<ArrayStatus, Fault> {
    let client = reach.client()?;
    let bar = if reach.json { ProgressBar::hidden() } else { bar() };
    loop {
        let status = status_of(&client, array)?;
        let jobs: Vec<&JobStatus> = status.jobs.iter().filter(|job| is_meant(job)).collect();
        // With several at once the slowest decides.
        let Some(slowest) = jobs.iter().min_by_key(|job| job.percent()) else {
            bar.finish_and_clear();
            return Ok(status);
        };
        bar.set_length(slowest.total_stripes);
        bar.set_position(slowest.done_stripes);
        bar.set_message(format!("{} of {array}  {}", slowest.kind, rate::progress(slowest)));
        std::thread::sleep(POLL);
    }
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
