//! One core: executor, reactor, timers, messages between cores, io_uring.
//!
//! A worker of the engine is one thread with one [`Executor`]. In reading order:
//!
//! - [`executor`](Executor): runs tasks, hands out [`Handle`]s; `tasks` holds them and their
//!   wakers, `timer` their sleeps
//! - `reactor`: the seam to the world ([`Reactor`]); `virtual_time` is a world without I/O
//!   ([`VirtualReactor`])
//! - `ring`: the io_uring of one core ([`Ring`]), and the reactor that drives it
//! - `oneshot`: pooled one-shots within an executor ([`Completions`]); `group`: several answers for
//!   one waiter ([`Group`])
//! - `race`: whichever of two futures ends first ([`within`] a time, [`until`] something happens)
//! - [`contained`]: work whose panic ends that work alone
//! - [`mailbox`]: messages to an executor from any thread
//! - `notifier`: signals to another process ([`Notifier`])
//! - [`local`]: waiting within an executor
//! - [`affinity`]: binding the thread to its core
//! - [`clone_fuse_device`]: a descriptor of a FUSE connection for each core
//! - [`inherited_descriptors`]: what the service manager hands over at the start
//!
//! What must stay true: nothing here allocates per I/O once warm, and an I/O operation owns its
//! buffers and its file until the kernel is done with them, whatever happens to the future that
//! waits. Not here: RAID, devices, protocols.

pub mod affinity;
mod cloning;
mod contained;
mod executor;
mod group;
mod inherited;
pub mod local;
pub mod mailbox;
mod notifier;
mod oneshot;
mod race;
mod random;
mod reactor;
mod ring;
mod tasks;
mod timer;
mod virtual_time;

pub use cloning::clone_fuse_device;
pub use contained::{contained, is_contained};
pub use executor::{Callable, Executor, Handle, Schedule, YieldNow};
pub use group::{GROUP_MAX, Group};
pub use inherited::inherited_descriptors;
pub use notifier::Notifier;
pub use oneshot::{Completion, Completions, Pending};
pub use race::{until, within};
pub use reactor::{Park, Reactor, Unpark};
pub use ring::{
    AREA_BYTES, BufResult, DESCRIPTORS_MAX, DeviceCommand, EntryBytes, FuseEntry, KernelCalls,
    Operation, OperationOutcome, PARTS_MAX, ReceivedDescriptors, Ring, RingConfig, RingLoad,
    SendHold, SentDescriptors, Sink, WIDE_AREA_BYTES, WideCommand,
};
pub use timer::Sleep;
pub use virtual_time::{VirtualClock, VirtualReactor};
