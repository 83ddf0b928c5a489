//! Protocol data units: what stands on a TCP connection, one after the other.
//!
//! - `head`: the first eight bytes of each, and where its parts lie
//! - `body`: the fields behind them, kind by kind
//! - `open`: a received header with its digest and every length checked
//! - `write`: a header to send
//! - `fatal`: errors that end the connection, and the PDU that says so

mod body;
mod fatal;
mod head;
mod open;
mod write;

pub use body::{Body, C2hData, H2cData, IcReq, IcResp, R2t};
pub use fatal::{Fatal, FatalStatus, TermReq, encode_term_req};
pub use head::{COMMON_BYTES, HEADER_BYTES_MAX, PduFlags, PduHead, PduKind, Side, Terms};
pub use open::Pdu;
pub use write::{Header, encode};
