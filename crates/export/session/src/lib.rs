//! What every export's sessions have in common: what a client may ask, hold and wait for.
//!
//! What must stay true: this crate knows [`Volume`](ashlar_volume::Volume) and no protocol; every
//! wait of a session and every buffer that it takes falls under a bound that is fixed when it
//! begins; a session that ends gives everything back.
//!
//! Map, in reading order:
//! - `limits`: the bounds of one session
//! - `admission`: pure; whether a volume can carry out what a client asks
//! - `carry_out`: a request in the pieces that a volume takes; how its failure is told
//! - `credit`: what a session has in flight; `slots`: the tasks that carry it out
//! - `stream`: a connection as bytes; `inbound`, `outbound`: its two directions
//! - `register`: the sessions of all workers, so that a volume's users can be told to leave
//! - `seats`: how many of them come from one address; `share`: what they may hold together
//! - `listening`: how they come in

#![forbid(unsafe_code)]

mod admission;
mod carry_out;
mod credit;
mod inbound;
mod limits;
mod listening;
mod outbound;
mod register;
mod seats;
mod share;
mod slots;
mod stream;

pub use admission::{Admission, Kind, Refusal};
pub use carry_out::{PieceGroup, errno_of, pieces, read};
pub use credit::{Credit, Ticket};
pub use inbound::Inbound;
pub use limits::SessionLimits;
pub use listening::{Acceptor, Listen, OpenSession, SessionCounters, listen};
pub use outbound::{Batch, Encoder, Outbound};
pub use register::{SessionEntry, Sessions};
pub use seats::{Seat, Seats, peer_of};
pub use share::Share;
pub use slots::Slots;
pub use stream::{PlainSocket, Stream};
