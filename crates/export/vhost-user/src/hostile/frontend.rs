//! A frontend as bytes: its messages and the files that come with them, its guest's memory and
//! rings, and the memory of requests under way. Device and queues are the real ones.
//!
//! What must stay true: whatever the bytes are, nothing panics and nothing waits for ever (in
//! virtual time that is a panic); replies have their length; no queue outlives its device.

use crate::counters::VhostCounters;
use crate::device::{Answer, Device, DeviceSetting};
use crate::growth::Growth;
use crate::queue::{self, QueueStart};
use crate::session::{Message, SessionError};
use crate::wire::{self, HEADER_BYTES, Header};
use ashlar_ring::local::Signal;
use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
use ashlar_session::SessionLimits;
use ashlar_volume::{MemVolume, Volume};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use std::cell::Cell;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// Length of the guest's memory.
pub const MEMORY_BYTES: u16 = 0x4000;
const VOLUME_BYTES: u64 = 64 << 10;
/// So many requests of a queue at once.
const SLOTS: usize = 8;

/// What a step does: its first byte, modulo [`STEPS`]. That divided by [`STEPS`], modulo four, is
/// how many files come with a message beyond the first.
pub mod step {
    /// A message as on the wire: header and content.
    pub const SAY: u8 = 0;
    /// The same, with eventfds.
    pub const SAY_WITH_EVENTS: u8 = 1;
    /// With the guest's memory.
    pub const SAY_WITH_MEMORY: u8 = 2;
    /// With memory that can be made shorter.
    pub const SAY_WITH_OPEN_MEMORY: u8 = 3;
    /// With the memory of requests under way that came last.
    pub const SAY_WITH_IN_FLIGHT: u8 = 4;
    /// Place (two bytes), length (one byte), and bytes for the guest's memory.
    pub const PUT: u8 = 5;
    /// The same for the memory of requests under way.
    pub const PUT_IN_FLIGHT: u8 = 6;
    /// All queues hear that there are requests.
    pub const KICK: u8 = 7;
    /// How many there are.
    pub const STEPS: u8 = 8;
}
use step::STEPS;

/// How far a frontend came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// Messages that were obeyed.
    pub obeyed: u64,
    /// It was dropped: for a message, or for its guest.
    pub is_dropped: bool,
    /// Queues that began.
    pub queues: u64,
    /// Requests that were carried out.
    pub requests: u64,
    /// Of these, requests that somebody else had left.
    pub repeated: u64,
}

/// Hear a frontend, step by step.
///
/// # Panics
/// If something that must stay true does not.
pub fn hear(input: &[u8]) -> Heard {
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    let backend = Rc::new(Backend::new(executor.handle()));
    let counters = Arc::<VhostCounters>::default();
    let setting = DeviceSetting {
        facts: backend.volume.facts(),
        growth: Rc::new(Growth::new(VOLUME_BYTES)),
        counters: Arc::clone(&counters),
        limits: SessionLimits { slots: SLOTS, ..SessionLimits::default() },
        notify: |event| match fcntl_get_seals(event) {
            Ok(_memory) => Err(io::ErrorKind::InvalidInput.into()),
            Err(_eventfd) => Ok(None),
        },
    };
    let own = Rc::clone(&backend);
    let mut device = Device::new(&backend.handle, setting, move |start| own.serve(start));
    let mut frontend = Frontend::new();
    let end = executor.block_on(async {
        let end = frontend.converse(input, &mut device, &backend).await;
        device.stop_all().await;
        end
    });
    assert_eq!(backend.running.get(), 0, "a queue outlives its device");
    Heard {
        obeyed: frontend.obeyed,
        is_dropped: end.is_err(),
        queues: backend.begun.get(),
        requests: counters.requests(),
        repeated: counters.repeated.load(Ordering::Relaxed),
    }
}

/// The workers.
struct Backend {
    handle: Handle,
    volume: MemVolume,
    kicks: Signal,
    begun: Cell<u64>,
    running: Cell<u64>,
}

impl Backend {
    fn new(handle: Handle) -> Backend {
        let volume = MemVolume::new("disk", VOLUME_BYTES);
        let (begun, running) = (Cell::new(0), Cell::new(0));
        Backend { handle, volume, kicks: Signal::new(), begun, running }
    }

    fn serve(self: &Rc<Backend>, start: QueueStart) {
        self.begun.set(self.begun.get() + 1);
        self.running.set(self.running.get() + 1);
        let own = Rc::clone(self);
        self.handle.spawn(async move {
            let kicked = async || {
                own.kicks.changed().await;
                true
            };
            queue::serve(&own.handle, own.volume.clone(), start, kicked).await;
            own.running.set(own.running.get() - 1);
        });
    }

    /// Why a queue cannot go on, once all have done what they can.
    async fn broken<P: Fn(QueueStart)>(&self, device: &mut Device<P>) -> Option<SessionError> {
        self.handle.sleep(Duration::from_millis(1)).await;
        let mut broken = pin!(device.wait_until_broken());
        poll_fn(|context| match broken.as_mut().poll(context) {
            Poll::Ready(error) => Poll::Ready(Some(error)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}

/// What is left of an input.
struct Steps<'a>(&'a [u8]);

/// See [`mod@step`].
enum Step<'a> {
    Say { kind: u8, files: u8, request: u32, content: &'a [u8] },
    Put { kind: u8, at: u64, bytes: &'a [u8] },
    Kick,
    Malformed { request: u32 },
}

impl<'a> Steps<'a> {
    /// The next one that is there as a whole.
    fn next(&mut self) -> Option<Step<'a>> {
        let first = self.byte()?;
        match first % STEPS {
            kind @ (step::PUT | step::PUT_IN_FLIGHT) => {
                let at = u16::from_ne_bytes(self.take(2)?.try_into().expect("two"));
                let length = self.byte()?;
                Some(Step::Put { kind, at: at.into(), bytes: self.take(length.into())? })
            }
            step::KICK => Some(Step::Kick),
            kind => self.message(kind, 1 + first / STEPS % 4),
        }
    }

    fn message(&mut self, kind: u8, files: u8) -> Option<Step<'a>> {
        let header: Header = wire::content(self.take(HEADER_BYTES)?).expect("any bytes are one");
        let request = header.request;
        match wire::content_bytes(&header) {
            Some(bytes) => Some(Step::Say { kind, files, request, content: self.take(bytes)? }),
            None => Some(Step::Malformed { request }),
        }
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        self.0.split_off(..bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }
}

/// What a frontend has.
struct Frontend {
    memory: File,
    open_memory: File,
    in_flight: Option<File>,
    obeyed: u64,
}

impl Frontend {
    fn new() -> Frontend {
        let (sealed, open_memory) = (memory(), memory());
        fcntl_add_seals(&sealed, SealFlags::SHRINK).expect("sealed");
        Frontend { memory: sealed, open_memory, in_flight: None, obeyed: 0 }
    }

    /// Until the frontend is dropped, or has no more to say.
    async fn converse<P: Fn(QueueStart)>(
        &mut self,
        input: &[u8],
        device: &mut Device<P>,
        backend: &Backend,
    ) -> Result<(), SessionError> {
        let mut steps = Steps(input);
        while let Some(step) = steps.next() {
            match step {
                Step::Say { kind, files, request, content } => {
                    let (content, files) = (content.to_vec(), self.files(kind, files));
                    self.say(Message { request, content, files }, device).await?;
                }
                Step::Put { kind, at, bytes } => self.put(kind, at, bytes),
                Step::Kick => backend.kicks.notify_all(),
                Step::Malformed { request } => return Err(SessionError::Malformed { request }),
            }
            if let Some(error) = backend.broken(device).await {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn say<P: Fn(QueueStart)>(
        &mut self,
        message: Message,
        device: &mut Device<P>,
    ) -> Result<(), SessionError> {
        let request = message.request;
        match device.obey(message).await? {
            Answer::Obeyed => {}
            Answer::Content(content) => drop(wire::reply(request, &content)),
            Answer::WithFile(content, file) => {
                drop(wire::reply(request, &content));
                self.in_flight = Some(File::from(file));
            }
        }
        self.obeyed += 1;
        Ok(())
    }

    fn files(&self, kind: u8, count: u8) -> Vec<OwnedFd> {
        let file = |_| match kind {
            step::SAY_WITH_EVENTS => Some(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")),
            step::SAY_WITH_MEMORY => Some(again(&self.memory)),
            step::SAY_WITH_OPEN_MEMORY => Some(again(&self.open_memory)),
            step::SAY_WITH_IN_FLIGHT => self.in_flight.as_ref().map(again),
            _ => None,
        };
        (0..count).filter_map(file).collect()
    }

    fn put(&self, kind: u8, at: u64, bytes: &[u8]) {
        let file = match kind {
            step::PUT => Some((&self.memory, at % u64::from(MEMORY_BYTES))),
            _ => self.in_flight.as_ref().map(|file| (file, at)),
        };
        if let Some((file, at)) = file {
            // It may be beyond the end of a file that cannot be made longer.
            let _not_there = file.write_at(bytes, at);
        }
    }
}

fn memory() -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("guest", flags).expect("a memfd");
    ftruncate(&memory, u64::from(MEMORY_BYTES)).expect("room");
    File::from(memory)
}

fn again(file: &File) -> OwnedFd {
    file.try_clone().expect("a descriptor").into()
}
