//! The vhost-user export: a volume as a disk of a virtual machine, without a copy of its requests
//! through the machine's program.
//!
//! The program (the frontend: QEMU for instance) connects to a Unix socket, and shares the
//! guest's memory and an eventfd for each queue. From then on the guest's driver virtio_blk and
//! this process speak through that memory. One queue belongs to one worker.
//!
//! What must stay true: this crate knows [`Volume`](ashlar_volume::Volume) and nothing else of the
//! engine; whatever a guest writes is loaded once and judged then; a guest that does what no driver
//! does loses its own device and nothing else; a request is answered exactly once by this process,
//! and one that a killed process left without an answer is carried out by the next.
//! Not here: which volume is served, where, and by which workers. The daemon says so.
//!
//! Map, in reading order:
//! - `session`: one connection; its messages
//! - `device`: what the frontend has said, and the queues that run because of it
//! - `growth`: the size of a device, and telling of a new one
//! - `queue`: the requests of one queue, on one worker
//! - `vring`: a ring in the guest's memory
//! - `chain`: pure; the descriptors of a request
//! - `spans`: its bytes; `request`: pure; what it asks for
//! - `in_flight`: what is under way, kept by the frontend while nobody serves
//! - `memory`: the guest's memory, and which memory is refused
//! - `config`: pure; what the device says of itself
//! - `wire`: pure; the protocol's bytes
//! - `counters`; `hostile`: all of a guest's bytes at once, for tests

#![forbid(unsafe_code)]

mod chain;
mod config;
mod counters;
mod device;
mod growth;
#[doc(hidden)]
pub mod hostile;
mod in_flight;
mod memory;
mod queue;
mod request;
mod session;
mod spans;
#[cfg(test)]
mod tests;
mod vring;
mod wire;

pub use chain::Fault;
pub use counters::VhostCounters;
pub use memory::MemoryError;
pub use queue::{QueueServer, QueueStart};
pub use session::{SessionError, VhostServer};
