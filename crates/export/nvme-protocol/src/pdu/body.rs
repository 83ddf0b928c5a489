//! The fields of each kind of PDU behind the common header.
//!
//! What must stay true: decoding is total and every field is passed on as it stands; reserved
//! fields are ignored when received and zero when sent. Who may rely on a field is decided in
//! `open`, `connection` and `transfer`. TCP Transport, "PDU Definitions".

use super::fatal::{FatalStatus, TermFields, TermReq};
use super::head::PduKind;
use crate::{Completion, Submission};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Initialize Connection Request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcReq {
    /// PFV: version of the PDU format; 0 is the only one.
    pub format: u16,
    /// HPDA: alignment of data to the host, in 4-byte units less one.
    pub hpda: u8,
    /// The host wants header digests.
    pub header_digest: bool,
    /// The host wants data digests.
    pub data_digest: bool,
    /// MAXR2T: R2Ts for one command that the host can take at the same time, less one.
    pub r2t_max_less_one: u32,
}

/// Initialize Connection Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcResp {
    /// PFV.
    pub format: u16,
    /// CPDA: alignment of data to the controller, in 4-byte units less one.
    pub cpda: u8,
    /// Header digests are used from now on.
    pub header_digest: bool,
    /// Data digests are used from now on.
    pub data_digest: bool,
    /// MAXH2CDATA: most data in one H2CData PDU, in bytes.
    pub h2c_bytes_max: u32,
}

/// Header of data to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct H2cData {
    /// CCCID: the command.
    pub command: u16,
    /// TTAG of the R2T that asked for the data.
    pub transfer: u16,
    /// DATAO: where the data belongs, in bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL, in bytes.
    pub bytes: u32,
    /// LAST_PDU: the last of its R2T.
    pub is_last: bool,
}

/// Header of data to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct C2hData {
    /// CCCID: the command.
    pub command: u16,
    /// DATAO: where the data belongs, in bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL, in bytes.
    pub bytes: u32,
    /// LAST_PDU: the last of its command.
    pub is_last: bool,
    /// SUCCESS: the command is done without a completion.
    pub is_success: bool,
}

/// Ready to Transfer: the controller asks for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct R2t {
    /// CCCID: the command.
    pub command: u16,
    /// TTAG: the controller's name for this transfer.
    pub transfer: u16,
    /// R2TO: from which byte of the command's data on.
    pub offset: u32,
    /// R2TL: how many bytes.
    pub bytes: u32,
}

/// A PDU's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// The host's first PDU.
    IcReq(IcReq),
    /// The controller's first PDU.
    IcResp(IcResp),
    /// The host gives up.
    H2cTermReq(TermReq),
    /// The controller gives up.
    C2hTermReq(TermReq),
    /// A command.
    CapsuleCmd(Submission),
    /// A completion.
    CapsuleResp(Completion),
    /// Data to the controller.
    H2cData(H2cData),
    /// Data to the host.
    C2hData(C2hData),
    /// A request for data.
    R2t(R2t),
}

const HEADER_DIGEST_BIT: u8 = 1;
const DATA_DIGEST_BIT: u8 = 2;

/// Both initialization PDUs: the last field means one thing in a request and another in a response.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct IcFields {
    format: U16,
    alignment: u8,
    digests: u8,
    limit: U32,
    reserved: [u8; 112],
}

/// H2CData, C2HData and R2T share one shape.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DataFields {
    command: U16,
    transfer: U16,
    offset: U32,
    bytes: U32,
    reserved: [u8; 4],
}

const _: () = assert!(size_of::<IcFields>() == 120);
const _: () = assert!(size_of::<DataFields>() == 16);

/// Decode the bytes between the common header and the digest.
///
/// `None` if there are not exactly as many as the kind has.
pub(super) fn decode(kind: PduKind, is_last: bool, is_success: bool, rest: &[u8]) -> Option<Body> {
    Some(match kind {
        PduKind::IcReq => Body::IcReq(decode_ic_req(rest)?),
        PduKind::IcResp => Body::IcResp(decode_ic_resp(rest)?),
        PduKind::H2cTermReq => Body::H2cTermReq(decode_term(rest)?),
        PduKind::C2hTermReq => Body::C2hTermReq(decode_term(rest)?),
        PduKind::CapsuleCmd => Body::CapsuleCmd(Submission::read_from_bytes(rest).ok()?),
        PduKind::CapsuleResp => Body::CapsuleResp(Completion::read_from_bytes(rest).ok()?),
        PduKind::H2cData => {
            let fields = DataFields::read_from_bytes(rest).ok()?;
            Body::H2cData(H2cData {
                command: fields.command.get(),
                transfer: fields.transfer.get(),
                offset: fields.offset.get(),
                bytes: fields.bytes.get(),
                is_last,
            })
        }
        PduKind::C2hData => {
            let fields = DataFields::read_from_bytes(rest).ok()?;
            let (offset, bytes) = (fields.offset.get(), fields.bytes.get());
            let command = fields.command.get();
            Body::C2hData(C2hData { command, offset, bytes, is_last, is_success })
        }
        PduKind::R2t => {
            let fields = DataFields::read_from_bytes(rest).ok()?;
            Body::R2t(R2t {
                command: fields.command.get(),
                transfer: fields.transfer.get(),
                offset: fields.offset.get(),
                bytes: fields.bytes.get(),
            })
        }
    })
}

fn decode_ic_req(rest: &[u8]) -> Option<IcReq> {
    let fields = IcFields::read_from_bytes(rest).ok()?;
    Some(IcReq {
        format: fields.format.get(),
        hpda: fields.alignment,
        header_digest: fields.digests & HEADER_DIGEST_BIT != 0,
        data_digest: fields.digests & DATA_DIGEST_BIT != 0,
        r2t_max_less_one: fields.limit.get(),
    })
}

fn decode_ic_resp(rest: &[u8]) -> Option<IcResp> {
    let fields = IcFields::read_from_bytes(rest).ok()?;
    Some(IcResp {
        format: fields.format.get(),
        cpda: fields.alignment,
        header_digest: fields.digests & HEADER_DIGEST_BIT != 0,
        data_digest: fields.digests & DATA_DIGEST_BIT != 0,
        h2c_bytes_max: fields.limit.get(),
    })
}

fn decode_term(rest: &[u8]) -> Option<TermReq> {
    let fields = TermFields::read_from_bytes(rest).ok()?;
    Some(TermReq { status: FatalStatus::from_code(fields.status.get()), info: fields.info.get() })
}

impl Body {
    /// What kind of PDU this is.
    pub fn kind(&self) -> PduKind {
        match self {
            Body::IcReq(_) => PduKind::IcReq,
            Body::IcResp(_) => PduKind::IcResp,
            Body::H2cTermReq(_) => PduKind::H2cTermReq,
            Body::C2hTermReq(_) => PduKind::C2hTermReq,
            Body::CapsuleCmd(_) => PduKind::CapsuleCmd,
            Body::CapsuleResp(_) => PduKind::CapsuleResp,
            Body::H2cData(_) => PduKind::H2cData,
            Body::C2hData(_) => PduKind::C2hData,
            Body::R2t(_) => PduKind::R2t,
        }
    }

    /// Hand the bytes between common header and digest to `write`.
    pub(super) fn with_bytes(&self, write: impl FnOnce(&[u8])) {
        match self {
            Body::IcReq(request) => {
                write(ic_req_fields(request).as_bytes());
            }
            Body::IcResp(response) => write(ic_resp_fields(response).as_bytes()),
            Body::H2cTermReq(term) | Body::C2hTermReq(term) => write(term_fields(term).as_bytes()),
            Body::CapsuleCmd(submission) => write(submission.as_bytes()),
            Body::CapsuleResp(completion) => write(completion.as_bytes()),
            Body::H2cData(data) => {
                write(
                    data_fields((data.command, data.transfer), data.offset, data.bytes).as_bytes(),
                );
            }
            Body::C2hData(data) => {
                write(data_fields((data.command, 0), data.offset, data.bytes).as_bytes());
            }
            Body::R2t(r2t) => {
                write(data_fields((r2t.command, r2t.transfer), r2t.offset, r2t.bytes).as_bytes());
            }
        }
    }
}

fn digest_bits(header: bool, data: bool) -> u8 {
    u8::from(header) * HEADER_DIGEST_BIT + u8::from(data) * DATA_DIGEST_BIT
}

fn ic_req_fields(request: &IcReq) -> IcFields {
    IcFields {
        format: U16::new(request.format),
        alignment: request.hpda,
        digests: digest_bits(request.header_digest, request.data_digest),
        limit: U32::new(request.r2t_max_less_one),
        reserved: [0; 112],
    }
}

fn ic_resp_fields(response: &IcResp) -> IcFields {
    IcFields {
        format: U16::new(response.format),
        alignment: response.cpda,
        digests: digest_bits(response.header_digest, response.data_digest),
        limit: U32::new(response.h2c_bytes_max),
        reserved: [0; 112],
    }
}

fn term_fields(term: &TermReq) -> TermFields {
    TermFields {
        status: U16::new(term.status.map_or(0, FatalStatus::code)),
        info: U32::new(term.info),
        reserved: [0; 10],
    }
}

fn data_fields((command, transfer): (u16, u16), offset: u32, bytes: u32) -> DataFields {
    DataFields {
        command: U16::new(command),
        transfer: U16::new(transfer),
        offset: U32::new(offset),
        bytes: U32::new(bytes),
        reserved: [0; 4],
    }
}
