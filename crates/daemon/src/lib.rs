//! The process behind `ashlar serve`: configuration, the control socket, metrics, exports.
//!
//! In reading order:
//! - [`config`]    the TOML configuration
//! - [`serve`]     from configuration to a running process, and its orderly end
//! - `begin`       starts the arrays of the configuration
//! - [`backend`]   the interface between the control socket and the owner of the arrays
//! - [`control`]   the control socket: routes, refusals, the stream of events
//! - [`peer`]      the peers of the control socket, and the share of the daemon that one may hold
//! - [`metrics`]   a status as OpenMetrics text
//! - `page`        the same status as a page for people, with the last hour
//! - `scrape`      the optional listener for both
//! - `seats`       connections of a listener: how many, and which makes room
//! - `gather`      brings arrays together as their devices appear, and what is remembered of them
//! - `services`    what the daemon does beside running arrays, and what of it is missing
//! - `handover`    the end of a daemon whose successor goes on
//! - `guarded`     a connection that ends when its peer takes too long
//! - `erase`       erases the RAID metadata of a device
//! - `drives`      lights of bays, and the health of drives
//! - `descriptors` how many there are, and how many are reserved
//! - `arrays`      the engine behind the control interface: one function a call
//! - `domains`     failure domains beside where drives are plugged in
//! - `convert`     between the engine's types and those of the control interface
//! - [`events`]    carries events to the journal, to a history on disk, to the operators
//! - `configured`  arrays that the configuration names, and why some do not run
//! - `exports`     listeners and attached volumes, on the engine's workers
//! - [`mod@bench`] load on the engine itself
//! - `aside`       looks at devices that may not answer
//! - `memory`      the memory limit of this process
//! - `memory_devices` members that are memory of this process
//! - `look`        how a start would end, and whether a device may be taken: for dry runs
//! - [`keeper`]    the holder of attached files' descriptors while no daemon runs
//! - `kept_memory` memory that outlives a killed daemon, for maps of written stripes
//! - [`partition`] partitions on whole drives, and [`udev`], which names them
//! - `panics`      what a panic of this process does
//! - `process`     this process as heartbeats name it, and whether another one lives
//! - `unit`        what the service manager is told
//! - `waits`       devices that take long to open
//! - `reclaim`     this process while the kernel is short of memory
//! - `repeats`     requests that name a device twice, or ask for a state that holds already
//!
//! What must stay true: the control side runs on a thread of its own and is never on the path of a
//! request. Everything that comes from outside (file, socket) is checked before anything is done.
#![forbid(unsafe_code)]

mod arrays;
mod aside;
pub mod backend;
mod begin;
pub mod bench;
pub mod config;
mod configured;
pub mod control;
mod convert;
mod descriptors;
mod domains;
mod drives;
mod erase;
pub mod events;
mod exports;
mod gather;
mod guarded;
mod handover;
pub mod keeper;
mod kept_memory;
mod look;
mod memory;
mod memory_devices;
pub mod metrics;
mod nested;
mod page;
mod panics;
pub mod partition;
pub mod peer;
mod placement;
mod process;
mod reclaim;
mod repeats;
mod scrape;
mod seats;
pub mod serve;
mod services;
mod system_program;
pub mod udev;
mod unit;
mod waits;

pub use exports::loops;
