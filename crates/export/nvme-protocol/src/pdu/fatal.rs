//! Errors after which nobody knows where the next PDU begins, and the PDU that tells the peer
//! before the connection ends.
//!
//! TCP Transport, "Fatal Error", "Host to Controller Terminate Connection Request PDU" and its
//! counterpart.

use super::head::{CommonHeader, PduKind, Side};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FES: what was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FatalStatus {
    /// A field of a PDU's header; FEI is its offset in bytes.
    InvalidHeaderField,
    /// A PDU that may not come now.
    SequenceError,
    /// The header digest does not fit; FEI is the digest that was received.
    HeaderDigest,
    /// Data outside what was asked for.
    DataOutOfRange,
    /// More data in one PDU, or more R2Ts at a time, than announced.
    LimitExceeded,
    /// A parameter that is not supported; FEI is its offset in bytes.
    UnsupportedParameter,
}

impl FatalStatus {
    /// The code on the wire.
    pub fn code(self) -> u16 {
        match self {
            FatalStatus::InvalidHeaderField => 1,
            FatalStatus::SequenceError => 2,
            FatalStatus::HeaderDigest => 3,
            FatalStatus::DataOutOfRange => 4,
            FatalStatus::LimitExceeded => 5,
            FatalStatus::UnsupportedParameter => 6,
        }
    }

    /// The status of this code.
    pub fn from_code(code: u16) -> Option<FatalStatus> {
        Some(match code {
            1 => FatalStatus::InvalidHeaderField,
            2 => FatalStatus::SequenceError,
            3 => FatalStatus::HeaderDigest,
            4 => FatalStatus::DataOutOfRange,
            5 => FatalStatus::LimitExceeded,
            6 => FatalStatus::UnsupportedParameter,
            _ => return None,
        })
    }
}

/// Why a connection must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{status:?}, at or with {info:#x}")]
pub struct Fatal {
    /// FES.
    pub status: FatalStatus,
    /// FEI: what it means depends on the status.
    pub info: u32,
}

impl Fatal {
    /// A header field at this offset, in bytes.
    pub fn field(offset: u32) -> Fatal {
        Fatal { status: FatalStatus::InvalidHeaderField, info: offset }
    }

    /// A fault that needs no further information.
    pub fn of(status: FatalStatus) -> Fatal {
        Fatal { status, info: 0 }
    }
}

/// A received H2CTermReq or C2HTermReq.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermReq {
    /// FES, if it is a known one.
    pub status: Option<FatalStatus>,
    /// FEI.
    pub info: u32,
}

/// Most bytes of the offending header that are sent back.
const ECHO_BYTES_MAX: usize = 128;
const TERM_BYTES: usize = 24;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct TermFields {
    pub status: U16,
    pub info: U32,
    pub reserved: [u8; 10],
}

const _: () = assert!(super::head::COMMON_BYTES + size_of::<TermFields>() == TERM_BYTES);

/// The PDU by which `sender` ends the connection; `header` is what of the offending PDU was
/// received, from its start.
pub fn encode_term_req(sender: Side, fatal: Fatal, header: &[u8]) -> Vec<u8> {
    let kind = match sender {
        Side::Host => PduKind::H2cTermReq,
        Side::Controller => PduKind::C2hTermReq,
    };
    let echo = &header[..header.len().min(ECHO_BYTES_MAX)];
    let bytes = u32::try_from(TERM_BYTES + echo.len()).expect("short");
    let common = CommonHeader {
        kind: kind.code(),
        flags: 0,
        header_bytes: kind.header_bytes(),
        data_offset: 0,
        bytes: U32::new(bytes),
    };
    let fields = TermFields {
        status: U16::new(fatal.status.code()),
        info: U32::new(fatal.info),
        reserved: [0; 10],
    };
    [common.as_bytes(), fields.as_bytes(), echo].concat()
}
