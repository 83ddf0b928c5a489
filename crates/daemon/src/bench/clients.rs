//! The clients of `ashlar bench`: a number on each worker, each with one request after the other.
//!
//! What must stay true: a client runs on the worker whose requests it makes, so the worker's CPU
//! time includes the client's. Not here: the array, and the figures.

use super::Load;
use super::places::{Pattern, Places, seed_of};
use ashlar_engine::ArrayVolume;
use ashlar_ring::Handle;
use ashlar_ring::local::Signal;
use ashlar_units::{Extent, Nanos, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeError};
use rustix::time::ClockId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Piece in which the span is filled before anything is measured, in bytes.
pub(super) const FILL_BYTES: u64 = 1 << 20;

/// One of so many requests of a client is timed: two looks at the clock for each would be a tenth
/// of a read. The engine's own times go from turn to turn of its worker, which is 0 for a request
/// whose members answer within the call.
const TIMED_OF: u64 = 16;

/// Write the whole span once.
pub(super) async fn fill(volume: &ArrayVolume, span: u64) -> Result<(), VolumeError> {
    for offset in (0..span).step_by(to_usize(FILL_BYTES)) {
        let mut buffer = volume.buffer(to_usize(FILL_BYTES)).await;
        let mark = u8::try_from((offset / FILL_BYTES) & 0xFF).unwrap_or(0);
        buffer.fill(mark);
        let extent = Extent::new(offset, FILL_BYTES);
        volume
            .submit(Request { command: Command::Write(buffer.freeze()), extent, fua: false })
            .await?;
    }
    Ok(())
}

/// Make all that was written last.
pub(super) async fn flush(volume: &ArrayVolume) -> Result<(), VolumeError> {
    let extent = Extent::new(0, 0);
    volume.submit(Request { command: Command::Flush, extent, fua: false }).await.map(drop)
}

/// Which part of the load this worker has.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) worker: usize,
    /// Of so many that have clients.
    pub(super) workers: usize,
    pub(super) span: u64,
}

/// What the clients of one worker did, and the CPU time that its thread had meanwhile.
pub(super) struct ClientEffort {
    pub(super) requests: u64,
    /// Times of one in [`TIMED_OF`] requests (of a mixed load: that write), in nanoseconds.
    pub(super) nanos: Vec<u32>,
    pub(super) cpu: Duration,
}

/// All tasks of one worker, for as long as they run.
pub(super) async fn drive(
    volume: ArrayVolume,
    load: Load,
    part: Part,
    run_time: Duration,
) -> Result<ClientEffort, VolumeError> {
    let handle = volume.handle();
    let cpu = cpu_time(ClockId::ThreadCPUTime);
    let end = handle.now().after(run_time);
    let (total, running, failed) =
        (Rc::new(Cell::new(0)), Rc::new(Cell::new(load.depth)), Rc::new(Cell::new(None)));
    let nanos = Rc::new(RefCell::new(Vec::new()));
    let ended = Signal::new();
    let places = Rc::new(RefCell::new(Places::of(pattern(load, part), seed_of(part.worker))));
    for _ in 0..load.depth {
        let places = Rc::clone(&places);
        let (volume, handle_of_client) = (volume.clone(), handle.clone());
        let nanos = Rc::clone(&nanos);
        let client = Client { volume, handle: handle_of_client, load, places, nanos };
        let (total, running, failed) = (Rc::clone(&total), Rc::clone(&running), Rc::clone(&failed));
        let ended = ended.clone();
        handle.spawn(async move {
            match client.ask_until(end).await {
                Ok(count) => total.set(total.get() + count),
                Err(error) => failed.set(Some(error)),
            }
            running.set(running.get() - 1);
            ended.notify_all();
        });
    }
    while running.get() > 0 {
        ended.changed().await;
    }
    let cpu = cpu_time(ClockId::ThreadCPUTime).saturating_sub(cpu);
    let nanos = nanos.take();
    failed.get().map_or(Ok(ClientEffort { requests: total.get(), nanos, cpu }), Err)
}

/// The sequences of a worker begin where no other worker's do.
fn pattern(load: Load, part: Part) -> Pattern {
    let Load { is_random, streams, bytes, start_bytes, .. } = load;
    let client = (part.worker, part.workers);
    Pattern { is_random, streams, client, bytes, start_bytes, span_bytes: part.span }
}

/// CPU time so far.
pub(super) fn cpu_time(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// One task: one request after the other.
struct Client {
    volume: ArrayVolume,
    handle: Handle,
    load: Load,
    places: Rc<RefCell<Places>>,
    nanos: Rc<RefCell<Vec<u32>>>,
}

impl Client {
    async fn ask_until(self, end: Nanos) -> Result<u64, VolumeError> {
        // One buffer each at any time: the pool was sized for that.
        let bytes = to_usize(self.load.bytes);
        let mut kept = None;
        let mut count = 0;
        while self.handle.turn_now() < end {
            let mut buffer = match kept.take() {
                Some(buffer) => buffer,
                None => self.volume.buffer(bytes).await,
            };
            let (extent, is_read) = {
                let mut places = self.places.borrow_mut();
                let is_read = !self.load.is_write || places.is_among(self.load.reads_percent);
                if !is_read {
                    places.renew(&mut buffer);
                }
                (Extent::new(places.next_offset(is_read), self.load.bytes), is_read)
            };
            let command = match is_read {
                true => Command::Read(buffer),
                false => Command::Write(buffer.freeze()),
            };
            let fua = self.load.is_fua && command.is_change();
            let is_timed = count % TIMED_OF == TIMED_OF / 2 && is_read != self.load.is_write;
            let since = is_timed.then(|| self.handle.now());
            let reply = self.volume.submit(Request { command, extent, fua }).await?;
            if let Some(since) = since {
                let nanos =
                    u32::try_from(self.handle.now().since(since).as_nanos()).unwrap_or(u32::MAX);
                self.nanos.borrow_mut().push(nanos);
            }
            if let Reply::Data(buffer) = reply {
                kept = Some(buffer);
            }
            count += 1;
            // Members that complete at once must not keep the other tasks waiting.
            if count % 16 == 0 {
                self.handle.yield_now().await;
            }
        }
        Ok(count)
    }
}
