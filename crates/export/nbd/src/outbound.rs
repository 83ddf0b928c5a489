//! The sending half of a connection: what a reply looks like.
//!
//! What must stay true: the parts of one reply part (head, payload) are neighbours on the wire.

use crate::counters::{NbdCounters, add};
use crate::reply::{REPLY_HEAD_BYTES_MAX, ReplyBody, ReplyHead};
use crate::socket::Socket;
use crate::wire::Dialect;
use ashlar_iobuf::Buf;
use ashlar_session::{Batch, Encoder, Ticket};
use ashlar_units::to_u64;
use std::sync::Arc;

/// Replies on their way to a client.
pub type Outbound = ashlar_session::Outbound<Socket, ReplyEncoder>;

/// One reply part that is ready to leave.
pub struct Outgoing {
    pub head: ReplyHead,
    pub payload: Option<Buf>,
    /// Released when the reply left.
    pub _ticket: Ticket,
}

/// The bytes of replies, and the count of what they say.
pub struct ReplyEncoder {
    pub dialect: Dialect,
    pub counters: Arc<NbdCounters>,
}

impl ReplyEncoder {
    /// Count data that a client asked for.
    pub fn count_read(&self, bytes: u64) {
        add(&self.counters.read_bytes, bytes);
    }

    /// Count a request that failed.
    pub fn count_error(&self) {
        add(&self.counters.errors, 1);
    }
}

impl Encoder for ReplyEncoder {
    type Answer = Outgoing;

    const HEAD_BYTES_MAX: usize = REPLY_HEAD_BYTES_MAX;

    fn encode(&self, outgoing: &Outgoing, batch: &mut Batch) {
        batch.head_with(|room| outgoing.head.encode(self.dialect, room));
        let Some(payload) = &outgoing.payload else { return };
        batch.data(payload.clone());
        if matches!(outgoing.head.body, ReplyBody::Data { .. }) {
            self.count_read(to_u64(payload.len()));
        }
    }
}
