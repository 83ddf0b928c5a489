//! A simulated disk as the program under test sees it: an ordinary device.
//!
//! What must stay true: an operation takes the latency drawn when it was submitted, and meets the
//! faults of the moment when it completes. Once its host is stopped it never completes. A silent
//! disk completes nothing until it speaks again. An operation that was given up keeps its buffers
//! until it completes, and still changes the disk. Not here: what the disk holds (`state`).

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ashlar_device::{
    self as device, Command, CommandKind, Device, DeviceFacts, Fault, FaultKind, Flights, Look,
    Opened, Outcome, Owed,
};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completion, Handle};
use ashlar_units::{Nanos, to_u64, to_usize};

use crate::state::{Change, DiskState, Performed};
use crate::world::{State, World};

/// Junk for a discarded range is made only up to here: more of it would tell nothing more.
const JUNK_BYTES_MAX: u64 = 1 << 20;

pub(crate) struct SimOpened {
    pub(crate) world: Arc<World>,
    pub(crate) at: usize,
    /// There if it is the exclusive one.
    pub(crate) hold: Option<Arc<Hold>>,
    pub(crate) facts: DeviceFacts,
}

/// What an exclusive opening, all devices attached to it and their operations under way share: the
/// disk is free when the last of them is gone.
pub(crate) struct Hold {
    pub(crate) world: Arc<World>,
    pub(crate) at: usize,
    /// By which name.
    pub(crate) path: String,
    /// Number of the opening.
    pub(crate) opening: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let disk = &mut self.world.lock().disks[self.at];
        if disk.holders.get(&self.path) == Some(&self.opening) {
            disk.holders.remove(&self.path);
        }
    }
}

impl Opened for SimOpened {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        Rc::new(SimDevice {
            world: Arc::clone(&self.world),
            at: self.at,
            facts: self.facts.clone(),
            handle: handle.clone(),
            hold: self.hold.clone(),
            flights: Rc::default(),
        })
    }
}

struct SimDevice {
    world: Arc<World>,
    at: usize,
    facts: DeviceFacts,
    handle: Handle,
    hold: Option<Arc<Hold>>,
    flights: Rc<Flights<Held>>,
}

/// What the disk has of an operation until it is done.
#[derive(Default)]
struct Held {
    /// Of a read.
    buffer: Option<BufMut>,
    /// What a write was given.
    sources: Vec<Buf>,
}

/// An operation under way.
struct Flight {
    command: Performed,
    is_inside: bool,
    /// The host that submitted it.
    host: u64,
}

impl Device for SimDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn look_at_commands(&self) -> Owed {
        self.flights.look()
    }

    fn give_up(&self) {
        let kept = self.flights.give_up();
        self.flights.for_each(|held| {
            held.buffer.iter().for_each(BufMut::write_off);
            held.sources.iter().for_each(Buf::write_off);
        });
        let mut state = self.world.lock();
        // A host that is stopped owes nobody anything.
        if !state.is_stopped() {
            state.disks[self.at].owed += kept;
        }
    }

    fn look(&self) -> Option<Look> {
        let (world, at) = (Arc::clone(&self.world), self.at);
        Some(Box::new(move || {
            let disk = &world.lock().disks[at];
            let is_cut = disk.faults.ends_at.is_some_and(|end| end < disk.options.size_bytes);
            is_cut.then_some(device::Change::Shorter)
        }))
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        if self.flights.is_given_up() {
            return done.complete(Outcome::refused(command, Fault::TIMED_OUT));
        }
        let is_inside = self.facts.contains(offset, &command);
        let wait = {
            let mut state = self.world.lock();
            if state.is_stopped() {
                None
            } else {
                let at = self.handle.now();
                let number = state.note_submitted(at, self.at, offset, &command);
                let host = state.host;
                let disk = &mut state.disks[self.at];
                let kind = command.kind();
                let (rate, bytes) = (disk.options.bytes_per_second, command.bytes());
                let wait =
                    disk.draw_latency(kind) + disk.gate.pass(at, rate, (kind, offset, bytes));
                let begun = begin(disk, Place { number, host, offset, is_inside }, command);
                state.stop_if_due(number, (kind, offset));
                Some((wait, begun))
            }
        };
        let (wait, held) = match wait {
            Some((wait, (flight, held))) => (Some((wait, flight)), held),
            None => (None, Held::default()),
        };
        let (world, at, handle) = (Arc::clone(&self.world), self.at, self.handle.clone());
        let hold = self.hold.clone();
        let (flights, ticket) = (Rc::clone(&self.flights), self.flights.begin(held, done));
        self.handle.spawn(async move {
            if let Some((wait, operation)) = wait {
                handle.sleep(wait).await;
                speaks(&world, at).await;
                let mut flight = flights.take(ticket);
                let buffer = flight.job.buffer.as_mut();
                let ended = world.lock().finish(at, handle.now(), (&operation, buffer));
                drop(hold);
                if let Some(result) = ended {
                    let buffer = flight.job.buffer.take();
                    flights.free(ticket);
                    if flight.answer(Outcome { result, buffer }) {
                        world.lock().disks[at].owed -= 1;
                    }
                    return;
                }
                flights.put_back(ticket, flight);
            }
            // Nobody is left whom an answer could reach; the completion is held so that it is not
            // taken for one.
            std::future::pending::<()>().await;
            drop(flights);
        });
    }
}

/// Waits until the disk is not silent.
async fn speaks(world: &World, at: usize) {
    poll_fn(|context| {
        let disk = &mut world.lock().disks[at];
        if !disk.faults.is_silent {
            return Poll::Ready(());
        }
        disk.waiting.push(context.waker().clone());
        Poll::Pending
    })
    .await;
}

struct Place {
    number: u64,
    host: u64,
    offset: u64,
    is_inside: bool,
}

fn begin(disk: &mut DiskState, place: Place, command: Command) -> (Flight, Held) {
    let Place { number, host, offset, is_inside } = place;
    let kind = command.kind();
    let flush_mark = disk.flush_mark();
    let bytes = command.bytes();
    let mut held = Held::default();
    let data = match command {
        Command::Read(target) => {
            held.buffer = Some(target);
            None
        }
        Command::Write(source) | Command::WriteWhole(source) | Command::WriteDurable(source) => {
            let data = Arc::from(&source[..]);
            held.sources.push(source);
            Some(Some(data))
        }
        Command::WriteParts { parts, .. } => {
            held.sources = parts;
            Some(Some(Arc::from(joined(&held.sources))))
        }
        Command::WriteZeroes { .. } => Some(None),
        Command::Discard { .. } if disk.options.discard_reads_zeros => Some(None),
        Command::Discard { bytes } => Some(Some(junk(disk, bytes.min(JUNK_BYTES_MAX)))),
        Command::Flush => None,
    };
    if let Some(data) = data
        && is_inside
    {
        disk.changes += 1;
        let bytes = data.as_ref().map_or(bytes, |data: &Arc<[u8]>| to_u64(data.len()));
        let is_durable = kind == CommandKind::WriteDurable;
        disk.in_flight.insert(number, Change { number, offset, bytes, data, is_durable });
    }
    let command = Performed { number, kind, offset, flush_mark };
    (Flight { command, is_inside, host }, held)
}

fn joined(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

fn junk(disk: &mut DiskState, bytes: u64) -> Arc<[u8]> {
    let mut random = disk.random.clone();
    disk.random.next_u64();
    (0..to_usize(bytes)).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect()
}

impl State {
    /// How an operation ended; `None` if nobody can hear it any more.
    fn finish(
        &mut self,
        at: usize,
        now: Nanos,
        (flight, mut buffer): (&Flight, Option<&mut BufMut>),
    ) -> Option<Result<(), Fault>> {
        if self.is_stopped() || self.host != flight.host {
            return None;
        }
        let Flight { command, is_inside, .. } = flight;
        let Performed { number, kind, .. } = *command;
        let disk = &mut self.disks[at];
        let result = match disk.fault_of(kind) {
            Some(fault) => Err(fault),
            None if !*is_inside && kind == CommandKind::Read => Err(Fault::MEDIA),
            None if !*is_inside => Err(Fault::NO_SPACE),
            None => disk.perform(command, buffer.as_deref_mut()),
        };
        // A write that failed may have changed anything it covers, like one that was cut off.
        if result.is_err() {
            disk.fail_write(number);
        }
        self.trace.add(number);
        self.trace.add(now.0);
        self.trace.add(result.err().map_or(0, |fault| 1 + to_u64(fault_number(fault.kind))));
        if let Some(buffer) = buffer
            && result.is_ok()
        {
            self.trace.add_sample(buffer);
        }
        Some(result)
    }
}

fn fault_number(kind: FaultKind) -> usize {
    match kind {
        FaultKind::Media => 0,
        FaultKind::Gone => 1,
        FaultKind::NoSpace => 2,
        FaultKind::Unsupported => 3,
        FaultKind::TimedOut => 4,
    }
}
