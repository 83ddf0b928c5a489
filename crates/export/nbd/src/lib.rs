//! The NBD export: volumes for every client that speaks the Network Block Device protocol.
//!
//! What must stay true: this crate knows [`Volume`] and nothing else of the engine; what a client
//! sends is believed only after it was checked; a session holds no more than its slots and bytes,
//! however slow or hostile its client is.
//!
//! Spoken: fixed newstyle handshake, structured replies and extended headers, `base:allocation`,
//! block size constraints, FUA, several connections to one volume, TLS 1.3 with certificates on
//! both sides (demanded of everybody or offered to nobody). Not spoken: oldstyle, resize. The
//! protocol has no message for a resize: a session keeps the size it was told, and a new session
//! sees the new one.
//!
//! Map, in reading order:
//! - `session`: one connection from greeting to end; how bytes from a client become a request
//! - `slot`: how a request is carried out and its reply put together
//! - `admit`: pure; what a request header asks for, or why it is refused
//! - `negotiate`: pure; the handshake, and `options`: its bytes
//! - `wire`, `reply`: pure; the bytes of requests and of replies
//! - `inbound`, `outbound`: the two directions of a connection
//! - `socket`: its bytes, in clear text or through `tls`
//! - `hostile`: pure; all of a client's bytes at once, for tests
//! - `limits`: what a session may hold; `counters`: what sessions did
//!
//! Listening, admission, credit and waits are those of every protocol: see `ashlar_session`.

#![forbid(unsafe_code)]

mod admit;
mod counters;
#[doc(hidden)]
pub mod hostile;
mod inbound;
mod limits;
mod negotiate;
mod options;
mod outbound;
mod reply;
mod session;
mod slot;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
pub mod wire;

pub use counters::NbdCounters;
pub use limits::Limits;
pub use negotiate::PAYLOAD_BYTES_MAX;
pub use session::{NbdServer, SessionEnd, SessionError};
pub use tls::{TlsFileError, TlsFiles, TlsTerms, only_we_change};

use ashlar_volume::Volume;

/// The volumes that clients may open by name. Cheap to clone; a clone lives on one worker.
pub trait Exports: Clone + 'static {
    /// The kind of volume.
    type Volume: Volume;

    /// The names that a client may list.
    fn names(&self) -> Vec<String>;

    /// The volume of this name. An empty name asks for the default: the only one, or a chosen one.
    fn open(&self, name: &str) -> Option<Self::Volume>;

    /// The handshake is over: from now on the client sends requests to the volume it opened last.
    fn began(&self) {}
}

/// One volume, opened by its own name or by the empty one.
#[derive(Clone)]
pub struct OneExport<V>(pub V);

impl<V: Volume> Exports for OneExport<V> {
    type Volume = V;

    fn names(&self) -> Vec<String> {
        vec![self.0.facts().name]
    }

    fn open(&self, name: &str) -> Option<V> {
        (name.is_empty() || name == self.0.facts().name).then(|| self.0.clone())
    }
}
