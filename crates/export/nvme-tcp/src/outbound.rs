//! The sending half of a connection: what an answer looks like.
//!
//! What must stay true: the parts of one PDU (header, data, digest) are neighbours on the wire, and
//! a completion comes behind the data of its command.

use ashlar_iobuf::Buf;
use ashlar_nvme_protocol::Completion;
use ashlar_nvme_protocol::digest::{DIGEST_BYTES, digest};
use ashlar_nvme_protocol::pdu::{Body, C2hData, HEADER_BYTES_MAX, Terms, encode};
use ashlar_session::{Batch, Encoder, PlainSocket, Ticket};

/// Answers on their way to a host.
pub type Outbound = ashlar_session::Outbound<PlainSocket, PduEncoder>;

/// What is ready to leave: data, a PDU without data, or both in this order.
#[derive(Default)]
pub struct Outgoing {
    pub data: Option<(C2hData, Buf)>,
    pub body: Option<Body>,
    /// A whole PDU that is encoded already. Nothing follows it: it says why the connection ends.
    pub raw: Option<Buf>,
    /// Released when it left.
    pub _ticket: Option<Ticket>,
}

impl Outgoing {
    /// A completion and nothing else.
    pub fn completion(completion: Completion, ticket: Option<Ticket>) -> Outgoing {
        let body = Some(Body::CapsuleResp(completion));
        Outgoing { body, _ticket: ticket, ..Outgoing::default() }
    }
}

/// The PDUs of answers.
pub struct PduEncoder {
    pub terms: Terms,
}

impl Encoder for PduEncoder {
    type Answer = Outgoing;

    /// Header and digest of data, and a completion with its digest behind them.
    const HEAD_BYTES_MAX: usize = HEADER_BYTES_MAX + DIGEST_BYTES + 32;

    fn encode(&self, outgoing: &Outgoing, batch: &mut Batch) {
        if let Some((header, data)) = &outgoing.data {
            let length = u32::try_from(data.len()).expect("a command has at most 1 GiB");
            let header = encode(&Body::C2hData(*header), length, &self.terms);
            batch.head(header.as_bytes());
            batch.data(data.clone());
            if header.has_data_digest {
                batch.head(&digest(data));
            }
        }
        if let Some(body) = &outgoing.body {
            batch.head(encode(body, 0, &self.terms).as_bytes());
        }
        if let Some(raw) = &outgoing.raw {
            batch.data(raw.clone());
        }
    }
}
