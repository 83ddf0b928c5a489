//! The process behind `ashlar serve`: configuration, the control socket, metrics, exports.
//!
//! In reading order:
//! - [`config`]    what a TOML file may say
//! - [`serve`]     from configuration to a running process, and its orderly end
//! - `begin`       starting what the configuration names
//! - [`backend`]   the seam: what the control socket asks, and whoever answers it
//! - [`control`]   the control socket: routes, refusals, the stream of events
//! - [`peer`]      who is at the other end of it, and how much one of them may hold
//! - [`metrics`]   a status as OpenMetrics text
//! - `scrape`      the optional listener for it
//! - `seats`       connections of a listener: how many, and who makes room
//! - `guarded`     a connection that ends when its peer takes too long
//! - `descriptors` how many there are, and who may have them
//! - `arrays`      the engine behind the seam: one function a call
//! - `convert`     between the engine's types and those of the control interface
//! - `exports`     NBD listeners and attached volumes, on the engine's workers
//! - [`mod@bench`] load on the engine itself
//! - `aside`       looks that may wait for somebody who does not answer
//! - `memory`      how much memory this process may have
//! - `look`        what a start would come to, and whether a device may be taken: for dry runs
//! - `process`     this process as heartbeats name it, and whether another one lives
//! - `waits`       which devices are waited for
//! - `repeats`     requests that name a device twice, or ask for what is there already
//!
//! What must stay true: the control side runs on a thread of its own and is never on the path of a
//! request; everything that comes from outside (file, socket) is checked before anything is done.
#![forbid(unsafe_code)]

mod arrays;
mod aside;
pub mod backend;
mod begin;
pub mod bench;
pub mod config;
pub mod control;
mod convert;
mod descriptors;
mod exports;
mod guarded;
mod look;
mod memory;
pub mod metrics;
pub mod peer;
mod process;
mod repeats;
mod scrape;
mod seats;
pub mod serve;
mod waits;

pub use exports::loops;
