//! NVMe over TCP as plain data: PDUs, commands, structures and state machines, and no I/O.
//!
//! What must stay true: no input makes anything here panic; what a peer claims is believed only
//! after it was checked; time and randomness come from outside. Nothing here knows sockets, volumes
//! or threads: a server moves bytes between this crate and the world, and so could a host.
//!
//! By the public specifications of NVM Express: Base 2.0, NVM Command Set 1.0 and NVMe/TCP
//! Transport 1.0. Documentation of items names the sections. What is not spoken: fused commands,
//! metadata, protection information, PRPs, namespaces that are managed, firmware updates.
//!
//! Map, in reading order:
//! - `pdu`: what stands on a connection; `digest`: its checksums; `connection`: how one begins
//! - `queue_entry`, `status`, `sgl`: commands and completions, and where a command's data is
//! - `command`: what a command asks for: fabrics, admin, I/O
//! - `queue`: which commands are under way; `transfer`: data that was asked for
//! - `property`: enabled, ready, shut down; `keep_alive`: whether the host lives; `events`: what it
//!   is told
//! - `controller`: what a controller answers, from `identify` and `log`
//! - `reservation`: which host may do what, and what survives a restart
//! - `nqn`: names, and who may connect; `auth`: who proves it
//! - `hostile`: all of a host's bytes at once, for tests

#![forbid(unsafe_code)]

pub mod auth;
pub mod command;
pub mod connection;
pub mod controller;
pub mod digest;
pub mod events;
#[doc(hidden)]
pub mod hostile;
pub mod identify;
pub mod keep_alive;
pub mod log;
pub mod nqn;
pub mod pdu;
pub mod property;
pub mod queue;
mod queue_entry;
pub mod reservation;
mod sgl;
mod status;
pub mod transfer;

pub use command::InvalidParameter;
pub use queue_entry::{Completion, SUBMISSION_BYTES, Submission};
pub use sgl::{Data, Sgl, Transfer, place};
pub use status::Status;
