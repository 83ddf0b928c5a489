//! Whose array it is: a heartbeat on the members while it runs, and a look at it before it is started.
//!
//! What must stay true: an array that another host, or another boot of this one, may be running is watched
//! for several of that runner's intervals before anything is written, and not started if its heartbeat
//! goes on. Within one boot of one host the exclusive open of the members is the fence, and nobody waits.
//! A running array that meets somebody else's heartbeat writes nothing more. No wall clock is compared.
//!
//! What it cannot see: two hosts that start a *cleanly stopped* array in the same moment. Both find out
//! with their next heartbeat, and both stop writing.

use crate::background;
use crate::config::Runner;
use crate::control_io;
use crate::error::Refusal;
use crate::event::names;
use crate::home::{keeper, look, record};
use crate::roster::Roster;
use crate::shard::Shard;
use crate::worker::Worker;
use ashlar_device::{Command, Device};
use ashlar_ondisk::format::{HEARTBEAT_BYTES, HEARTBEAT_OFFSET, HEARTBEAT_SLOTS, HOST_BYTES};
use ashlar_ondisk::{Heartbeat, Superblock, Text};
use ashlar_ring::Pending;
use ashlar_units::{Extent, to_u64, to_usize};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Intervals that a silent heartbeat is watched, and a little more.
const WATCH_INTERVALS: u32 = 3;

impl Runner {
    fn host(&self) -> Text<HOST_BYTES> {
        Text::cut(&self.host_id)
    }

    fn is_other(&self, heartbeat: &Heartbeat) -> bool {
        heartbeat.boot_id.into_bytes() != self.boot_id || heartbeat.host_id != self.host()
    }
}

/// Wait until it is sure that nobody else runs the array; `devices` are its members.
///
/// # Errors
/// A refusal if somebody does.
pub(crate) async fn watch(
    worker: &Worker,
    roster: &Roster,
    superblock: &Superblock,
    devices: &[Rc<dyn Device>],
) -> Result<(), Refusal> {
    let Some(runner) = &roster.config.runner else { return Ok(()) };
    let before = newest(worker, superblock.array_uuid, devices).await;
    let Some(before) = before.filter(|beat| beat.is_running() && runner.is_other(beat)) else {
        return Ok(());
    };
    let interval = Duration::from_millis(u64::from(before.interval_ms));
    worker.handle.sleep(interval * WATCH_INTERVALS + interval / 2).await;
    let after = newest(worker, superblock.array_uuid, devices).await;
    if after == Some(before) {
        return Ok(());
    }
    let name = superblock.array_name.as_str();
    Err(Refusal::new(
        "array.in_use",
        format!("array '{name}' is running on host '{}'", before.host_id.as_str()),
        "stop it there first, or fence that host; nothing was written",
    ))
}

/// The newest heartbeat that any of the devices carries; devices that cannot be read say nothing.
async fn newest(worker: &Worker, array: Uuid, devices: &[Rc<dyn Device>]) -> Option<Heartbeat> {
    let extent = Extent::new(HEARTBEAT_OFFSET, HEARTBEAT_BYTES * to_u64(HEARTBEAT_SLOTS));
    let mut newest: Option<Heartbeat> = None;
    let start = |device: &Rc<dyn Device>| control_io::start_read(worker, device.as_ref(), extent);
    let started: Vec<control_io::Reading> = devices.iter().map(start).collect();
    for reading in started {
        let Ok(blocks) = reading.finish().await else { continue };
        let (first, second) = blocks.split_at(to_usize(HEARTBEAT_BYTES));
        let found = Heartbeat::newest([Some(first), Some(second)], array);
        newest = [newest, found].into_iter().flatten().max_by_key(|beat| beat.sequence);
    }
    newest
}

/// Say on the members that the array runs here, until it stops. Spawned once, on the home worker.
pub(crate) async fn beat(shard: Rc<Shard>, runner: Runner) {
    let handle = shard.worker.handle.clone();
    let shard = {
        let weak = Rc::downgrade(&shard);
        drop(shard);
        weak
    };
    let mut last: Option<u64> = None;
    loop {
        let Some(shard) = shard.upgrade() else { return };
        if shard.array.is_stopping() {
            return;
        }
        match beat_once(&shard, &runner, last, runner.interval).await {
            Beat::Written(sequence) => last = Some(sequence),
            Beat::TakenOver(by) => return give_up(&shard, &by).await,
        }
        look::look_at_all(&shard);
        drop(shard);
        handle.sleep(runner.interval).await;
    }
}

/// The array stops here: the next one to start it need not watch.
pub(crate) async fn last_beat(shard: &Rc<Shard>, runner: &Runner) {
    // Not having written it costs the next host a wait, nothing else.
    let _written = beat_once(shard, runner, None, Duration::ZERO).await;
}

enum Beat {
    Written(u64),
    TakenOver(Heartbeat),
}

async fn beat_once(
    shard: &Rc<Shard>,
    runner: &Runner,
    last: Option<u64>,
    interval: Duration,
) -> Beat {
    let superblock = shard.home().superblock();
    let devices = keeper::devices_in_service(shard);
    let devices: Vec<Rc<dyn Device>> = devices.into_iter().map(|(_, device)| device).collect();
    let found = newest(&shard.worker, superblock.array_uuid, &devices).await;
    if let (Some(found), Some(last)) = (found, last)
        && found.incarnation != superblock.incarnation
        && found.sequence >= last
    {
        return Beat::TakenOver(found);
    }
    let heartbeat = Heartbeat {
        array_uuid: superblock.array_uuid,
        incarnation: superblock.incarnation,
        sequence: found.map_or(0, |found| found.sequence).max(last.unwrap_or(0)) + 1,
        interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
        host_id: runner.host(),
        boot_id: Uuid::from_bytes(runner.boot_id),
    };
    let block = record::aligned(&heartbeat.encode());
    let offset = HEARTBEAT_OFFSET + to_u64(heartbeat.slot()) * HEARTBEAT_BYTES;
    let start = |device: &Rc<dyn Device>| {
        shard.start_on(device.as_ref(), offset, Command::Write(block.clone()))
    };
    let writes: Vec<Pending<_>> = devices.iter().map(start).collect();
    for write in writes {
        // A member that fails says so where data goes to it; a heartbeat alone puts nobody out.
        let _written = write.await;
    }
    Beat::Written(heartbeat.sequence)
}

/// Somebody else runs the array: nothing more is written from here, and nothing read, since what the other
/// one writes may be half done. Stopping it then records nothing either.
async fn give_up(shard: &Rc<Shard>, by: &Heartbeat) {
    shard.array.set_read_only(true);
    shard.array.set_stopping();
    background::stopped(shard).await;
    let fields = vec![("host", by.host_id.as_str().to_owned())];
    shard.array.record(names::ARRAY_TAKEN_OVER, fields);
}
