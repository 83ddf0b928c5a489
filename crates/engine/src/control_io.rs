//! Reads and writes of the control side: whole areas of a device, one after the other, no stripes.
//!
//! What must stay true: every failure names the device. The data path does not use this file. No
//! call waits for a silent device without end: a read is abandoned, and for any other command the
//! device is given up, because its late write may still land.

use crate::error::Refusal;
use crate::worker::Worker;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::Buf;
use ashlar_iobuf::BufMut;
use ashlar_ondisk::UPDATE_ORDER;
use ashlar_ondisk::format::copy_slots;
use ashlar_ring::{Handle, Pending, until, within};
use ashlar_units::{Extent, Nanos, to_u64, to_usize};
use std::time::Duration;

/// Bytes of one control read or zeroing write.
const STEP_BYTES: u64 = 1 << 20;
/// How long a read is waited for.
const READ_TIME: Duration = Duration::from_secs(10);
/// The same for everything else: a device may have to zero a large area.
const CHANGE_TIME: Duration = Duration::from_secs(120);

pub(crate) async fn run(
    worker: &Worker,
    device: &dyn Device,
    at: u64,
    command: Command,
) -> Outcome {
    let time = if matches!(command, Command::Read(_)) { READ_TIME } else { CHANGE_TIME };
    let mut pending = start(worker, device, at, command);
    match within(&worker.handle, time, ended(&mut pending)).await {
        Some(outcome) => outcome,
        None => {
            device.give_up();
            ended(&mut pending).await
        }
    }
}

/// Start a command that nobody looks at.
pub(crate) fn start(
    worker: &Worker,
    device: &dyn Device,
    at: u64,
    command: Command,
) -> Pending<Outcome> {
    let (completion, pending) = worker.outcomes.pair();
    device.submit(at, command, completion);
    pending
}

async fn ended(pending: &mut Pending<Outcome>) -> Outcome {
    pending.await.unwrap_or(Outcome { result: Err(Fault::GONE), buffer: None })
}

/// A read under way. A caller with many devices starts all reads before it waits for the first.
pub(crate) struct ControlRead {
    pending: Pending<Outcome>,
    handle: Handle,
    until: Nanos,
}

/// Start reading `extent` of a device.
pub(crate) fn start_read(worker: &Worker, device: &dyn Device, extent: Extent) -> ControlRead {
    start_read_into(worker, device, extent.offset, BufMut::zeroed(to_usize(extent.bytes)))
}

/// The same, into a buffer that there is already.
pub(crate) fn start_read_into(
    worker: &Worker,
    device: &dyn Device,
    offset: u64,
    buffer: BufMut,
) -> ControlRead {
    let pending = start(worker, device, offset, Command::Read(buffer));
    let until = worker.handle.now().after(READ_TIME);
    ControlRead { pending, handle: worker.handle.clone(), until }
}

impl ControlRead {
    /// The bytes.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) async fn finish(mut self) -> Result<BufMut, Fault> {
        let outcome = until(ended(&mut self.pending), self.handle.sleep_until(self.until)).await;
        let outcome = outcome.ok_or(Fault::TIMED_OUT)?;
        outcome.result?;
        outcome.buffer.ok_or(Fault { kind: FaultKind::Media, errno: 0 })
    }
}

/// The bytes of `extent` of a device.
///
/// # Errors
/// The device's fault.
pub(crate) async fn read(
    worker: &Worker,
    device: &dyn Device,
    extent: Extent,
) -> Result<BufMut, Fault> {
    start_read(worker, device, extent).finish().await
}

/// Make `extent` of a device read as zeros: by the device's own means, else by writing them.
///
/// # Errors
/// The device's fault.
pub(crate) async fn zero(
    worker: &Worker,
    device: &dyn Device,
    extent: Extent,
) -> Result<(), Fault> {
    let command = Command::WriteZeroes { bytes: extent.bytes };
    match run(worker, device, extent.offset, command).await.result {
        Err(Fault { kind: FaultKind::Unsupported, .. }) => {}
        result => return result,
    }
    let mut offset = extent.offset;
    while offset < extent.end() {
        let bytes = to_usize(STEP_BYTES.min(extent.end() - offset));
        let write = Command::Write(worker.zeros.slice(0..bytes));
        run(worker, device, offset, write).await.result?;
        offset += to_u64(bytes);
    }
    Ok(())
}

/// Write all four copies of a superblock, in the order that survives a crash at any point.
///
/// # Errors
/// The device's fault.
pub(crate) async fn write_copies(
    worker: &Worker,
    device: &dyn Device,
    member_bytes: u64,
    superblock: &[u8],
) -> Result<(), Fault> {
    let slots = copy_slots(member_bytes).expect("checked when the areas were planned");
    let buffer = aligned(superblock);
    for pair in UPDATE_ORDER {
        for copy in pair {
            let write = Command::Write(buffer.clone());
            run(worker, device, slots[copy].offset, write).await.result?;
        }
        run(worker, device, 0, Command::Flush).await.result?;
    }
    Ok(())
}

/// A fault as a refusal that names the device.
pub(crate) fn refused(path: &str, what: &str, fault: Fault) -> Refusal {
    Refusal::new(
        "device.failed",
        format!("{path}: {what} failed: {fault}"),
        "check the device and its cabling (dmesg, smartctl), or leave it out",
    )
}

/// Bytes of a control structure in memory that devices accept.
pub(crate) fn aligned(bytes: &[u8]) -> Buf {
    let mut buffer = BufMut::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer.freeze()
}
