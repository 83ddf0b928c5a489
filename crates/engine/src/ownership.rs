//! Ownership of an array: a heartbeat on the members while it runs, and a look at it before a
//! start.
//!
//! What must stay true: a start refuses an array that another process may be running.
//! - If the heartbeat's process lives on this host, the start is refused.
//! - If that process has ended here, the start goes on at once. Every member must have been open by
//!   the same node or file, which keeps this start out until the last write has landed.
//! - Otherwise the start watches for several intervals, and is refused if the heartbeat goes on.
//!
//! Before any other write, a start claims the array in both heartbeat places in turn. Of several
//! starts at the same time at most one goes on. A running array that meets a foreign heartbeat
//! writes nothing more. No wall clock is compared.
//!
//! Why at most one goes on: a start writes the first place, finds no other start in the second,
//! writes that, and finds only itself in the first. This is Lamport's fast mutual exclusion without
//! its wait: a start that meets another gives up. One member that both can read and write is
//! enough. Not here: whether a process lives ([`Runner::look`]).

pub(crate) mod beats;

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::config::{ProcessState, Runner};
use crate::control_io::aligned;
use crate::coordinator::holders::devices_in_service;
use crate::coordinator::look;
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::worker::Worker;
use crate::{background, control_io};
use ashlar_device::{Command, Device, DeviceFacts, Outcome};
use ashlar_ondisk::format::{HEARTBEAT_BYTES, HEARTBEAT_OFFSET, HEARTBEAT_SLOTS};
use ashlar_ondisk::{Heartbeat, RunnerName, Superblock, tag_of};
use ashlar_ring::{Pending, within};
use ashlar_units::{Extent, to_u64, to_usize};
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
    read_within(worker, array, devices, None).await
}

/// The same; those that take longer than `time` say nothing, either.
async fn read_within(
    worker: &Worker,
    array: Uuid,
    devices: &[Rc<dyn Device>],
    time: Option<Duration>,
) -> Vec<Found> {
    let extent = Extent::new(HEARTBEAT_OFFSET, HEARTBEAT_BYTES * to_u64(HEARTBEAT_SLOTS));
    let start = |device: &Rc<dyn Device>| {
        let reading = control_io::start_read(worker, device.as_ref(), extent);
        match time {
            Some(time) => reading.within(time),
            None => reading,
        }
    };
    let started: Vec<control_io::ControlRead> = devices.iter().map(start).collect();
    let mut found = Vec::new();
    for (device, reading) in devices.iter().zip(started) {
        let blocks = reading.finish().await.ok();
        let blocks = blocks.iter().flat_map(|blocks| blocks.chunks(to_usize(HEARTBEAT_BYTES)));
        let beats = blocks.filter_map(Heartbeat::decode);
        let heartbeats = beats.filter(|beat| beat.array_uuid == array).collect();
        found.push(Found { heartbeats, opened: opened_by(device.facts()) });
    }
    found
}

/// Who says what of an array.
struct Speaker<'s> {
    local: &'s Rc<LocalArray>,
    runner: &'s Runner,
    array: Uuid,
    incarnation: Uuid,
}

impl Speaker<'_> {
    fn devices(&self) -> Vec<Rc<dyn Device>> {
        let devices = devices_in_service(self.local).into_iter().map(|(_, device)| device);
        let beats = &self.local.coordinator().beats;
        devices.filter(|device| !beats.is_late(device)).collect()
    }

    /// How long a heartbeat waits for one device: others listen for it on the rest.
    fn patience(&self) -> Duration {
        self.runner.interval / 2
    }

    async fn read(&self) -> Vec<Found> {
        let time = Some(self.patience());
        read_within(&self.local.worker, self.array, &self.devices(), time).await
    }

    /// Write the block of this number to all devices in service. An `interval` of zero: the array
    /// does not run here.
    async fn write(&self, sequence: u64, interval: Duration) {
        self.write_to(self.devices(), sequence, interval).await;
    }

    async fn write_to(&self, devices: Vec<Rc<dyn Device>>, sequence: u64, interval: Duration) {
        let mut writes: Vec<(Rc<dyn Device>, Pending<Outcome>)> = Vec::new();
        for device in devices {
            let heartbeat = self.heartbeat(sequence, interval, device.facts());
            let block = aligned(&heartbeat.encode());
            let offset = HEARTBEAT_OFFSET + to_u64(heartbeat.slot()) * HEARTBEAT_BYTES;
            // Nobody watches these: an idle array would look at them for ever. The sweep looks
            // whether one is stuck.
            let write = Command::Write(block);
            let pending = control_io::start(&self.local.worker, device.as_ref(), offset, write);
            writes.push((device, pending));
        }
        let handle = &self.local.worker.handle;
        for (device, mut write) in writes {
            // A member that fails says so where data goes to it; a heartbeat alone puts nobody out.
            if within(handle, self.patience(), &mut write).await.is_none() {
                self.local.coordinator().beats.late.borrow_mut().push((device, write));
            }
        }
    }

    fn heartbeat(&self, sequence: u64, interval: Duration, facts: &DeviceFacts) -> Heartbeat {
        let name = RunnerName {
            host: self.runner.host_id.clone(),
            process: self.runner.process,
            opened: opened_by(facts),
        };
        Heartbeat {
            array_uuid: self.array,
            incarnation: self.incarnation,
            sequence,
            interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
            host_id: name.to_text(),
            boot_id: Uuid::from_bytes(self.runner.boot_id),
        }
    }

    /// Take back the claims that begin at `first`, where they still are: the array does not run
    /// here. The numbers stay, because the start that goes on would take a higher one for another
    /// claim.
    async fn release(&self, first: u64) {
        let devices = self.devices();
        let found = read(&self.local.worker, self.array, &devices).await;
        for sequence in [first, first + 1] {
            let is_own = |found: &Found| {
                let mut all = found.heartbeats.iter();
                all.any(|it| it.sequence == sequence && it.incarnation == self.incarnation)
            };
            let own = devices.iter().zip(&found).filter(|(_, found)| is_own(found));
            let own = own.map(|(device, _)| Rc::clone(device)).collect();
            self.write_to(own, sequence, Duration::ZERO).await;
        }
    }
}

/// Claim the array for the start `incarnation`, before that writes anything else.
///
/// # Errors
/// A refusal if somebody else claimed it since `seen`.
pub(crate) async fn claim(
    local: &Rc<LocalArray>,
    runner: &Runner,
    incarnation: Uuid,
    seen: Seen,
) -> Result<(), Refusal> {
    let array = local.coordinator().superblock().array_uuid;
    let speaker = Speaker { local, runner, array, incarnation };
    let last = seen.0.map_or(0, |beat| beat.sequence);
    // The first look is before anything is written.
    for claimed in 0..=to_u64(HEARTBEAT_SLOTS) {
        if claimed > 0 {
            speaker.write(last + claimed, runner.interval).await;
        }
        if let Some(other) = other_since(&speaker.read().await, last, incarnation) {
            if claimed > 0 {
                speaker.release(last + 1).await;
            }
            let name = local.array.name();
            return Err(in_use(name, &other, runner));
        }
    }
    local.coordinator().beats.last.set(Some(last + to_u64(HEARTBEAT_SLOTS)));
    Ok(())
}

/// Somebody else's heartbeat that is newer than `last`.
fn other_since(found: &[Found], last: u64, incarnation: Uuid) -> Option<Heartbeat> {
    let all = found.iter().flat_map(|found| &found.heartbeats);
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
        let (array, runner) = (local.coordinator().superblock().array_uuid, &runner);
        let speaker = Speaker { local: &local, runner, array, incarnation: Uuid::nil() };
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
    let array = local.coordinator().superblock().array_uuid;
    let speaker = Speaker { local, runner, array, incarnation };
    let last = beats.last.get().unwrap_or(0);
    if let Some(other) = other_since(&speaker.read().await, last, incarnation) {
        return Some(other);
    }
    beats.last.set(Some(last + 1));
    speaker.write(last + 1, runner.interval).await;
    None
}

/// The array does not run here any more: the next one to start it need not watch. It is called
/// stopping already.
pub(crate) async fn last_beat(local: &Rc<LocalArray>, runner: &Runner, incarnation: Uuid) {
    let beats = &local.coordinator().beats;
    let _turn = beats.turn.acquire().await;
    let array = local.coordinator().superblock().array_uuid;
    let speaker = Speaker { local, runner, array, incarnation };
    let Some(last) = beats.last.get() else { return };
    if other_since(&speaker.read().await, last, incarnation).is_none() {
        // Not having written it costs the next one a wait, nothing else.
        speaker.write(last + 1, Duration::ZERO).await;
    }
}

/// Somebody else runs the array: nothing more is written from here, and nothing read, since what
/// the other one writes may be half done. Stopping it then records nothing either.
async fn give_up(local: &Rc<LocalArray>, by: &Heartbeat) {
    local.array.set_read_only(true);
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
