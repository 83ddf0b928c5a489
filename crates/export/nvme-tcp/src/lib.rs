//! The NVMe/TCP target: volumes as namespaces of one subsystem, for every NVMe host on the network.
//!
//! What must stay true: this crate knows [`Volume`] and nothing else of the engine; what a host
//! sends is believed only after `nvme-protocol` checked it; a connection holds no more than its
//! slots and bytes, however slow or hostile its host is; the receive loop of a connection never
//! waits for what only the receive loop can bring.
//!
//! Spoken: discovery and I/O controllers, several I/O queues on any worker, data in capsules and by
//! R2T, header and data digests, reservations, asynchronous events, keep-alive, Abort, one
//! optimized ANA path, access by host name, DH-HMAC-CHAP. Not spoken: TLS, referrals, persistent
//! discovery.
//!
//! Map, in reading order:
//! - `target`: what all workers share: the subsystem, its hosts, its limits
//! - `table`: the namespaces, and what is kept of each; `registry`: the controllers
//! - `reservations`: how a reservation changes, survives, and fences
//! - `session`: one connection from its first byte to its last
//! - `handshake`: ICReq, Connect, authentication; `exchange`: its steps
//! - `admin`: the admin queue of a controller
//! - `io`: an I/O queue: how bytes from a host become a request; `starting`: when it may begin
//! - `slot`: how a request is carried out; `compare`, `reserve`: those that are not one request
//! - `inbound`, `outbound`: the two directions of a connection
//! - `limits`: what a connection may hold; `counters`: what all of them did

#![forbid(unsafe_code)]

mod admin;
mod counters;
mod exchange;
mod handshake;
mod inbound;
mod io;
mod limits;
mod outbound;
mod registry;
mod reservations;
mod reserve;
mod session;
mod slot;
mod starting;
mod table;
mod target;

pub use counters::NvmeCounters;
pub use limits::Limits;
pub use reservations::{Aside, ReservationStore};
pub use session::{NvmeServer, SessionEnd, SessionError};
pub use table::Namespace;
pub use target::{HostTerms, Identity, Target, TargetConfig};

use ashlar_volume::Volume;

/// The volumes of one worker, by name. Cheap to clone; a clone lives on that worker.
pub trait Volumes: Clone + 'static {
    /// The kind of volume.
    type Volume: Volume;

    /// The volume of this name.
    fn open(&self, name: &str) -> Option<Self::Volume>;

    /// The handshake is over: the connection is a queue of this host now.
    fn began(&self, _host: &str) {}
}
