//! Clients that come while an array starts, or while a dry run looks at it: they ask for its volume
//! again and again, and have a request ready for the moment in which it is found.
//!
//! What must stay true: what they read is held against the ledger as any other read, once that
//! knows what the start met. Nobody gets an answer of an array that is only looked at.

use crate::config::number;
use crate::director::TANK;
use crate::ledger::{Change, Ending};
use crate::life::DEADLINE;
use crate::stage::Stage;
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_ring::Handle;
use ashlar_sim::Random;
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume, VolumeErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No other client has it.
const NUMBER: usize = 15;
/// No client writes it.
const POISON: u8 = 0xB7;
/// Bytes of one read.
const READ_BYTES: u64 = 64 << 10;
/// Time between two looks whether all have had their answers.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A read that was answered, and is not held against the ledger yet.
struct Answered {
    begun: u64,
    extent: Extent,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    clients: AtomicUsize,
    reads: Mutex<Vec<Answered>>,
    errors: Mutex<Vec<VolumeErrorKind>>,
}

/// The clients of one start.
pub(crate) struct Early(Arc<Shared>);

/// One of them.
struct Client {
    stage: Stage,
    shared: Arc<Shared>,
    random: Random,
    is_rehearsal: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Early {
    /// One on each worker, if this universe has any. Of a dry run they have garbage to write.
    pub(crate) fn begin(engine: &Engine, stage: &Stage, is_rehearsal: bool) -> Early {
        let shared = Arc::<Shared>::default();
        if !stage.config().has_early_clients {
            return Early(shared);
        }
        let moment = stage.ledger().moment();
        for worker in 0..engine.worker_count() {
            let purpose = 0xEA_0000 + moment * 16 + number(worker);
            let random = Random::stream(stage.config().seed, purpose);
            shared.clients.fetch_add(1, Ordering::Relaxed);
            let (stage, shared) = (stage.clone(), Arc::clone(&shared));
            let mut client = Client { stage, shared, random, is_rehearsal };
            engine.run_on(worker, move |context| {
                let context = context.again();
                context.handle().spawn(async move {
                    // They look once more when the start is over, but not when a dry run is: the
                    // start that follows is another one.
                    let mut is_last = false;
                    while !is_last {
                        is_last = client.is_over();
                        if is_last && client.is_rehearsal {
                            return;
                        }
                        if let Some(volume) = context.volume(TANK) {
                            return client.ask(&volume).await;
                        }
                        let wait = Duration::from_micros(client.random.below(400));
                        context.handle().sleep(wait).await;
                    }
                });
            });
        }
        Early(shared)
    }

    /// The start, or the dry run, is over: nobody comes any more.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// The array has started, and the ledger knows how: what they were answered is judged.
    pub(crate) async fn judge(self, handle: &Handle, stage: &Stage) {
        let began = handle.now();
        while self.0.clients.load(Ordering::Relaxed) > 0 {
            if handle.now().since(began) > DEADLINE {
                stage.fail("a request sent during a start does not end within an hour");
            }
            handle.sleep(LOOK_EVERY).await;
        }
        for Answered { begun, extent, bytes } in locked(&self.0.reads).drain(..) {
            if let Err(wrong) = stage.ledger().observe_crossing(begun, extent, &bytes) {
                stage.fail(format!("a read at {extent}, sent during a start: {wrong}"));
            }
            stage.mark("client.came_during_a_start");
        }
        for kind in locked(&self.0.errors).drain(..) {
            if kind != VolumeErrorKind::Stopped && !stage.errors_are_allowed() {
                stage.fail(format!("a request sent during a start: {kind:?} within the budget"));
            }
        }
    }
}

impl Client {
    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    async fn ask(&mut self, volume: &ArrayVolume) {
        if self.is_rehearsal {
            return self.must_not_be_answered(volume).await;
        }
        let window = self.stage.ledger().bytes();
        let mut offset = 0;
        while offset < window && !(self.is_over() && offset > 0) {
            let extent = Extent::new(offset, READ_BYTES.min(window - offset));
            self.read(volume, extent).await;
            offset = extent.end();
        }
        self.flush(volume).await;
        let block = self.random.below(window / BLOCK_BYTES);
        self.write(volume, Extent::new(block * BLOCK_BYTES, BLOCK_BYTES)).await;
    }

    async fn read(&self, volume: &ArrayVolume, extent: Extent) {
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        buffer.fill(POISON);
        let begun = self.stage.ledger().begin_read();
        match self.submit(volume, Command::Read(buffer), extent).await {
            Ok(Reply::Data(bytes)) => {
                let bytes = bytes.to_vec();
                locked(&self.shared.reads).push(Answered { begun, extent, bytes });
            }
            Ok(Reply::Done) => self.stage.fail("a read was answered without data"),
            Err(kind) => {
                self.stage.ledger().end_read(begun);
                locked(&self.shared.errors).push(kind);
            }
        }
    }

    async fn flush(&self, volume: &ArrayVolume) {
        let begun = self.stage.ledger().tick();
        match self.submit(volume, Command::Flush, Extent::default()).await {
            Ok(_) => self.stage.ledger().flushed(begun),
            Err(kind) => locked(&self.shared.errors).push(kind),
        }
    }

    async fn write(&self, volume: &ArrayVolume, extent: Extent) {
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        let begun = {
            let mut ledger = self.stage.ledger();
            let begun = ledger.begin(Change::Write, extent, NUMBER);
            ledger.fill(begun, &mut buffer);
            begun
        };
        let answer = self.submit(volume, Command::Write(buffer.freeze()), extent).await;
        let ending = if answer.is_ok() { Ending::Done } else { Ending::Failed };
        self.stage.ledger().end(begun, ending);
        if let Err(kind) = answer {
            locked(&self.shared.errors).push(kind);
        }
    }

    /// What is only looked at answers nobody.
    async fn must_not_be_answered(&self, volume: &ArrayVolume) {
        let extent = Extent::new(0, BLOCK_BYTES);
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        buffer.fill(POISON);
        let answer = self.submit(volume, Command::Write(buffer.freeze()), extent).await;
        if answer.is_ok() {
            self.stage.fail("a write was answered by an array that was only looked at");
        }
    }

    async fn submit(
        &self,
        volume: &ArrayVolume,
        command: Command,
        extent: Extent,
    ) -> Result<Reply, VolumeErrorKind> {
        let request = Request { command, extent: self.stage.place(extent), fua: false };
        volume.submit(request).await.map_err(|error| error.kind)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
