//! Ownership of an array: a heartbeat on the members while it runs, and a look at it before a
//! start.
//!
//! What must stay true: a start refuses an array that another process may be running.
//! - If the heartbeat's process lives on this host, the start is refused.
//! - If that process has ended here, the start goes on at once. Every member must have been open by
//!   the same node or file, which keeps this start out until the last write has landed.
//! - Otherwise the start watches for several intervals, and is refused if the heartbeat goes on.
//!
//! Before any other write, a start claims the array in both heartbeat places. Of several starts at
//! the same time at most one goes on. A running array that meets a foreign heartbeat writes nothing
//! more. No wall clock is compared. Not here: whether a process lives ([`Runner::look`]).
//!
//! - here        the watch before a start, and the heartbeat while the array runs
//! - `claim`     the claim of a start
//! - `speaker`   reads and writes of heartbeat blocks
//! - `beats`     what the coordinator remembers of its own

pub(crate) mod beats;
mod claim;
mod speaker;

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::config::{ProcessState, Runner};
use crate::coordinator::look;
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::read_only::WhyReadOnly;
use crate::worker::Worker;
use crate::{background, control_io};
use ashlar_device::{Device, DeviceFacts};
use ashlar_ondisk::format::{HEARTBEAT_BYTES, HEARTBEAT_OFFSET, HEARTBEAT_SLOTS};
use ashlar_ondisk::{Heartbeat, RunnerName, Superblock, tag_of};
use ashlar_units::{Extent, to_u64, to_usize};
pub(crate) use claim::claim;
use speaker::Speaker;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Intervals that a silent heartbeat is watched, and a little more.
const WATCH_INTERVALS: u32 = 3;

/// The newest heartbeat before a start, when it was found that nobody runs the array.
#[derive(Clone, Copy)]
pub(crate) struct Seen(Option<Heartbeat>);

/// What a device carries, and what it is open by here.
struct Found {
    heartbeats: Vec<Heartbeat>,
    opened: u32,
}

impl Found {
    fn newest(&self) -> Option<&Heartbeat> {
        self.heartbeats.iter().max_by_key(|beat| beat.sequence)
    }

    /// Whether the runner of `beat` had this device open by the same node or file as this process
    /// now.
    fn was_open_in(&self, beat: &Heartbeat) -> bool {
        let is_its = |own: &&Heartbeat| own.incarnation == beat.incarnation;
        let opened = self.newest().filter(is_its).map(|own| RunnerName::of(&own.host_id).opened);
        opened.is_some_and(|opened| opened != 0 && opened == self.opened)
    }
}

fn opened_by(facts: &DeviceFacts) -> u32 {
    facts.exclusion.map_or(0, tag_of)
}

/// Wait until it is sure that nobody else runs the array; `devices` are its members. Nothing is
/// written.
///
/// # Errors
/// A refusal if somebody does.
pub(crate) async fn watch(
    worker: &Worker,
    engine_state: &EngineState,
    superblock: &Superblock,
    devices: &[Rc<dyn Device>],
) -> Result<Seen, Refusal> {
    let Some(runner) = &engine_state.config.runner else { return Ok(Seen(None)) };
    let array = superblock.array_uuid;
    let found = read(worker, array, devices).await;
    let before = newest_of(&found);
    let Some(running) = before.filter(Heartbeat::is_running) else { return Ok(Seen(before)) };
    if sings(Canary::SameBootTrusted) && running.boot_id.into_bytes() == runner.boot_id {
        return Ok(Seen(before));
    }
    let name = superblock.array_name.as_str();
    match state_of(runner, &running) {
        ProcessState::Lives => return Err(in_use(name, &running, runner)),
        ProcessState::Ended if found.iter().all(|found| found.was_open_in(&running)) => {
            return Ok(Seen(before));
        }
        ProcessState::Ended | ProcessState::Unknown => {}
    }
    let interval = Duration::from_millis(u64::from(running.interval_ms));
    worker.handle.sleep(interval * WATCH_INTERVALS + interval / 2).await;
    match newest_of(&read(worker, array, devices).await) {
        after if after == before => Ok(Seen(before)),
        after => Err(in_use(name, &after.unwrap_or(running), runner)),
    }
}

/// Whether the process that wrote the heartbeat lives, as far as can be told from here.
fn state_of(runner: &Runner, beat: &Heartbeat) -> ProcessState {
    let is_here = beat.boot_id.into_bytes() == runner.boot_id && runner.boot_id != [0; 16];
    match RunnerName::of(&beat.host_id).process {
        // An array that runs in this process was refused before.
        Some(process) if is_here && Some(process) == runner.process => ProcessState::Ended,
        Some(process) if is_here => (runner.look)(process),
        _ => ProcessState::Unknown,
    }
}

fn in_use(name: &str, by: &Heartbeat, runner: &Runner) -> Refusal {
    let is_here = by.boot_id.into_bytes() == runner.boot_id;
    let by = RunnerName::of(&by.host_id);
    let next = match by.process.filter(|_| is_here) {
        Some(process) => format!(
            "it may use other paths to the same drives; stop it there (ashlar stop {name}), or end \
             process {}; nothing was written",
            process.id
        ),
        None => "stop it there first, or fence that host; nothing was written".to_owned(),
    };
    Refusal::new("array.in_use", format!("array '{name}' is running {by}"), next)
}

fn newest_of(found: &[Found]) -> Option<Heartbeat> {
    found.iter().filter_map(Found::newest).max_by_key(|beat| beat.sequence).copied()
}

/// The heartbeats on the devices; those that cannot be read say nothing.
async fn read(worker: &Worker, array: Uuid, devices: &[Rc<dyn Device>]) -> Vec<Found> {
    let extent = Extent::new(HEARTBEAT_OFFSET, HEARTBEAT_BYTES * to_u64(HEARTBEAT_SLOTS));
    let start = |device: &Rc<dyn Device>| control_io::start_read(worker, device.as_ref(), extent);
    let started: Vec<control_io::ControlRead> = devices.iter().map(start).collect();
    let mut found = Vec::new();
    for (device, reading) in devices.iter().zip(started) {
        let blocks = reading.finish().await.ok();
        found.push(found_in(array, blocks.as_deref(), device.facts()));
    }
    found
}

/// What a device says of the array.
fn found_in(array: Uuid, blocks: Option<&[u8]>, facts: &DeviceFacts) -> Found {
    let blocks = blocks.iter().flat_map(|blocks| blocks.chunks(to_usize(HEARTBEAT_BYTES)));
    let beats = blocks.filter_map(Heartbeat::decode);
    let heartbeats = beats.filter(|beat| beat.array_uuid == array).collect();
    Found { heartbeats, opened: opened_by(facts) }
}

/// Somebody else's heartbeat that is newer than `last`.
fn other_since<'f>(
    found: impl IntoIterator<Item = &'f Found>,
    last: u64,
    incarnation: Uuid,
) -> Option<Heartbeat> {
    let all = found.into_iter().flat_map(|found| &found.heartbeats);
    let is_other = |beat: &&Heartbeat| beat.sequence > last && beat.incarnation != incarnation;
    all.filter(is_other).max_by_key(|beat| beat.sequence).copied()
}

/// Say on the members that the array runs here, as `incarnation`, until it stops. Spawned once, on
/// the coordinator.
pub(crate) async fn beat(local: Rc<LocalArray>, runner: Runner, incarnation: Uuid) {
    let handle = local.worker.handle.clone();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    loop {
        handle.sleep(runner.interval).await;
        let Some(local) = local.upgrade() else { return };
        if local.array.is_stopping() {
            return;
        }
        if let Some(by) = beat_once(&local, &runner, incarnation).await {
            return give_up(&local, &by).await;
        }
        look::look_at_all(&local);
    }
}

/// An array that is only read gives up as soon as somebody runs it. Spawned once, on the
/// coordinator worker.
pub(crate) async fn stand_by(local: Rc<LocalArray>, runner: Runner, seen: Seen) {
    let handle = local.worker.handle.clone();
    let local = {
        let weak = Rc::downgrade(&local);
        drop(local);
        weak
    };
    let last = seen.0.map_or(0, |beat| beat.sequence);
    loop {
        handle.sleep(runner.interval).await;
        let Some(local) = local.upgrade() else { return };
        if local.array.is_stopping() {
            return;
        }
        let speaker = Speaker::new(&local, &runner, Uuid::nil());
        if let Some(by) = other_since(&speaker.read().await, last, Uuid::nil()) {
            return give_up(&local, &by).await;
        }
    }
}

/// Write the next block. Writes nothing if the array is being stopped, or if another process runs
/// it; that one is returned then.
async fn beat_once(
    local: &Rc<LocalArray>,
    runner: &Runner,
    incarnation: Uuid,
) -> Option<Heartbeat> {
    let beats = &local.coordinator().beats;
    let _turn = beats.turn.acquire().await;
    if local.array.is_stopping() {
        return None;
    }
    let speaker = Speaker::new(local, runner, incarnation);
    let last = beats.last.get().unwrap_or(0);
    if let Some(other) = other_since(&speaker.read().await, last, incarnation) {
        return Some(other);
    }
    beats.last.set(Some(last + 1));
    let interval = beats.interval_from(speaker.now(), runner.interval);
    speaker.write(last + 1, interval).await;
    None
}

/// Nobody else claimed the array since this start did: looked at once more, on every device, before
/// the start is recorded.
///
/// # Errors
/// A refusal if somebody did: then nothing more is written from here.
pub(crate) async fn confirm(
    local: &Rc<LocalArray>,
    runner: &Runner,
    incarnation: Uuid,
) -> Result<(), Refusal> {
    let beats = &local.coordinator().beats;
    let other = {
        let _turn = beats.turn.acquire().await;
        let speaker = Speaker::new(local, runner, incarnation);
        let last = beats.last.get().unwrap_or(0);
        let found = read(&local.worker, speaker.array, &speaker.devices()).await;
        other_since(&found, last, incarnation)
    };
    if let Some(other) = other {
        give_up(local, &other).await;
    }
    check(&local.array)
}

/// The array does not run here any more: the next one to start it need not watch. It is called
/// stopping already.
pub(crate) async fn last_beat(local: &Rc<LocalArray>, runner: &Runner, incarnation: Uuid) {
    let beats = &local.coordinator().beats;
    let _turn = beats.turn.acquire().await;
    let speaker = Speaker::new(local, runner, incarnation);
    let Some(last) = beats.last.get() else { return };
    if other_since(&speaker.read().await, last, incarnation).is_none() {
        // Not having written it costs the next one a wait, nothing else.
        speaker.write(last + 1, Duration::ZERO).await;
    }
}

/// Somebody else runs the array: nothing more is written from here, and nothing read, since what
/// the other one writes may be half done. Stopping it then records nothing either.
async fn give_up(local: &Rc<LocalArray>, by: &Heartbeat) {
    local.array.read_only.set(Some(WhyReadOnly::TakenOver));
    local.array.set_stopping();
    let by = RunnerName::of(&by.host_id);
    local.array.set_taken_over(by.to_string());
    background::stopped(local.coordinator()).await;
    let process = by.process.map_or_else(String::new, |process| process.id.to_string());
    let fields = vec![("host", by.host), ("process", process)];
    local.array.record(names::ARRAY_TAKEN_OVER, fields);
}

/// Whether somebody else runs the array: the refusal of a start that it came in between.
///
/// # Errors
/// Who does.
pub(crate) fn check(array: &Array) -> Result<(), Refusal> {
    let Some(by) = array.taken_over_by() else { return Ok(()) };
    Err(Refusal::new(
        "array.in_use",
        format!(
            "array '{}' was taken over while it was being started: it is running {by}",
            array.name()
        ),
        "stop it there, and look at its members with `ashlar examine`",
    ))
}
