//! A connection's beginning, seen from the controller: ICReq first, then everything else.
//!
//! What must stay true: nothing but ICReq is accepted before it, and it is accepted once; digests
//! are used exactly if the host asked for them; after a termination request nothing is accepted.
//! TCP Transport, "Transport Connection Initialization" (ICReq and ICResp).

use crate::Submission;
use crate::pdu::{Body, Fatal, FatalStatus, H2cData, IcReq, IcResp, TermReq, Terms};

/// What the controller announces to every host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// MAXH2CDATA: most data in one H2CData PDU, in bytes: at least 4,096, a multiple of 4.
    pub h2c_bytes_max: u32,
    /// Most data within a command capsule, in bytes.
    pub in_capsule_bytes_max: u32,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connection {
    /// Nothing came yet.
    New(Offer),
    /// Under these terms.
    Open(Terms),
    /// The host ended it.
    Ended,
}

/// What a PDU is for the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send this.
    Greet(IcResp),
    /// A command came; its data may follow.
    Command(Submission),
    /// Data came.
    Data(H2cData),
    /// The host ended the connection, and says why.
    End(TermReq),
}

/// HPDA and CPDA are at most this.
const ALIGNMENT_MAX: u8 = 31;

impl Connection {
    /// A connection that was just accepted.
    pub fn new(offer: Offer) -> Connection {
        Connection::New(offer)
    }

    /// The terms under which PDUs are sent and received now.
    pub fn terms(&self) -> Terms {
        match self {
            Connection::New(_) | Connection::Ended => Terms::NONE,
            Connection::Open(terms) => *terms,
        }
    }

    /// A PDU of the host came.
    ///
    /// # Errors
    /// A [`Fatal`] to tell the host before the connection ends.
    pub fn receive(&mut self, body: &Body) -> Result<Step, Fatal> {
        match (*self, body) {
            (_, Body::H2cTermReq(term)) => {
                *self = Connection::Ended;
                Ok(Step::End(*term))
            }
            (Connection::New(offer), Body::IcReq(request)) => {
                let (terms, response) = agree(&offer, request)?;
                *self = Connection::Open(terms);
                Ok(Step::Greet(response))
            }
            (Connection::Open(_), Body::CapsuleCmd(submission)) => Ok(Step::Command(*submission)),
            (Connection::Open(_), Body::H2cData(data)) => Ok(Step::Data(*data)),
            _ => Err(Fatal::of(FatalStatus::SequenceError)),
        }
    }
}

fn agree(offer: &Offer, request: &IcReq) -> Result<(Terms, IcResp), Fatal> {
    if request.format != 0 {
        return Err(Fatal { status: FatalStatus::UnsupportedParameter, info: 8 });
    }
    if request.hpda > ALIGNMENT_MAX {
        return Err(Fatal::field(10));
    }
    let terms = Terms {
        header_digest: request.header_digest,
        data_digest: request.data_digest,
        cpda: 0,
        hpda: request.hpda,
        in_capsule_bytes_max: offer.in_capsule_bytes_max,
        h2c_bytes_max: offer.h2c_bytes_max,
    };
    let response = IcResp {
        format: 0,
        cpda: 0,
        header_digest: request.header_digest,
        data_digest: request.data_digest,
        h2c_bytes_max: offer.h2c_bytes_max,
    };
    Ok((terms, response))
}

/// The terms of a connection, seen from the host: its request and the controller's response.
///
/// # Errors
/// A [`Fatal`] if the response is not one to this request.
pub fn agreed_by_host(request: &IcReq, response: &IcResp) -> Result<Terms, Fatal> {
    if response.format != request.format {
        return Err(Fatal { status: FatalStatus::UnsupportedParameter, info: 8 });
    }
    if response.cpda > ALIGNMENT_MAX {
        return Err(Fatal::field(10));
    }
    let has_what_it_wants = response.header_digest == request.header_digest
        && response.data_digest == request.data_digest;
    if !has_what_it_wants {
        return Err(Fatal { status: FatalStatus::UnsupportedParameter, info: 11 });
    }
    if response.h2c_bytes_max < 4096 || !response.h2c_bytes_max.is_multiple_of(4) {
        return Err(Fatal::field(12));
    }
    Ok(Terms {
        header_digest: response.header_digest,
        data_digest: response.data_digest,
        cpda: response.cpda,
        hpda: request.hpda,
        in_capsule_bytes_max: 0,
        h2c_bytes_max: response.h2c_bytes_max,
    })
}
