//! The common header of PDUs, and where header, digest, padding and data of one lie.
//!
//! What must stay true: from the first eight bytes alone follows how much to receive next, and that
//! is at most [`HEADER_BYTES_MAX`], whatever they say. Lengths of data are believed only in `open`,
//! behind the header's digest. TCP Transport, "NVMe/TCP PDU Structure" and "Common Header".

use super::fatal::Fatal;
use crate::digest::DIGEST_BYTES;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the common header, in bytes.
pub const COMMON_BYTES: usize = size_of::<CommonHeader>();

/// No header is longer than this with its digest and its padding, in bytes.
pub const HEADER_BYTES_MAX: usize = 128;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct CommonHeader {
    pub kind: u8,
    pub flags: u8,
    pub header_bytes: u8,
    pub data_offset: u8,
    pub bytes: U32,
}

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The initiator, which sends commands.
    Host,
    /// The target, which carries them out.
    Controller,
}

/// The kinds of PDUs (TCP Transport, "PDU Type").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PduKind {
    /// Initialize Connection Request: the host's first PDU.
    IcReq,
    /// Initialize Connection Response: the controller's first PDU.
    IcResp,
    /// The host ends the connection because of an error.
    H2cTermReq,
    /// The controller ends the connection because of an error.
    C2hTermReq,
    /// A command, perhaps with its data.
    CapsuleCmd,
    /// A completion.
    CapsuleResp,
    /// Data of a command that the controller asked for.
    H2cData,
    /// Data of a command for the host.
    C2hData,
    /// The controller is ready to receive data.
    R2t,
}

impl PduKind {
    /// All kinds.
    pub const ALL: [PduKind; 9] = [
        PduKind::IcReq,
        PduKind::IcResp,
        PduKind::H2cTermReq,
        PduKind::C2hTermReq,
        PduKind::CapsuleCmd,
        PduKind::CapsuleResp,
        PduKind::H2cData,
        PduKind::C2hData,
        PduKind::R2t,
    ];

    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            PduKind::IcReq => 0x00,
            PduKind::IcResp => 0x01,
            PduKind::H2cTermReq => 0x02,
            PduKind::C2hTermReq => 0x03,
            PduKind::CapsuleCmd => 0x04,
            PduKind::CapsuleResp => 0x05,
            PduKind::H2cData => 0x06,
            PduKind::C2hData => 0x07,
            PduKind::R2t => 0x09,
        }
    }

    /// The kind of this code.
    pub fn from_code(code: u8) -> Option<PduKind> {
        PduKind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// HLEN: the length of the header without digest, in bytes. Each kind has one.
    pub fn header_bytes(self) -> u8 {
        match self {
            PduKind::IcReq | PduKind::IcResp => 128,
            PduKind::CapsuleCmd => 72,
            PduKind::H2cTermReq
            | PduKind::C2hTermReq
            | PduKind::CapsuleResp
            | PduKind::H2cData
            | PduKind::C2hData
            | PduKind::R2t => 24,
        }
    }

    /// Who sends this kind.
    pub fn sender(self) -> Side {
        match self {
            PduKind::IcReq | PduKind::H2cTermReq | PduKind::CapsuleCmd | PduKind::H2cData => {
                Side::Host
            }
            PduKind::IcResp
            | PduKind::C2hTermReq
            | PduKind::CapsuleResp
            | PduKind::C2hData
            | PduKind::R2t => Side::Controller,
        }
    }

    /// Whether digests that were negotiated are used with this kind.
    pub fn has_digests(self) -> bool {
        match self {
            PduKind::IcReq | PduKind::IcResp | PduKind::H2cTermReq | PduKind::C2hTermReq => false,
            PduKind::CapsuleCmd
            | PduKind::CapsuleResp
            | PduKind::H2cData
            | PduKind::C2hData
            | PduKind::R2t => true,
        }
    }

    /// Whether data that begins at PDO may follow the header.
    pub fn may_have_data(self) -> bool {
        matches!(self, PduKind::CapsuleCmd | PduKind::H2cData | PduKind::C2hData)
    }
}

/// The FLAGS byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PduFlags(pub u8);

impl PduFlags {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: PduFlags = PduFlags(1);
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: PduFlags = PduFlags(2);
    /// LAST_PDU: the last data PDU of its R2T, or of its command.
    pub const LAST: PduFlags = PduFlags(4);
    /// SUCCESS: with the last C2HData the command is done; no completion follows.
    pub const SUCCESS: PduFlags = PduFlags(8);

    /// Whether all flags of `other` are set.
    pub fn has(self, other: PduFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, and `other` if `is_set`.
    #[must_use]
    pub fn with_if(self, other: PduFlags, is_set: bool) -> PduFlags {
        if is_set { PduFlags(self.0 | other.0) } else { self }
    }
}

/// What the two sides agreed on when the connection began, and what the controller announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Every PDU with a header digest carries one.
    pub header_digest: bool,
    /// Data is followed by a digest.
    pub data_digest: bool,
    /// CPDA: alignment of data to the controller, in 4-byte units less one; at most 31.
    pub cpda: u8,
    /// HPDA: alignment of data to the host, in 4-byte units less one; at most 31.
    pub hpda: u8,
    /// Most data within a command capsule, in bytes.
    pub in_capsule_bytes_max: u32,
    /// MAXH2CDATA: most data in one H2CData PDU, in bytes.
    pub h2c_bytes_max: u32,
}

impl Terms {
    /// Before the connection was initialized: no digests, no data.
    pub const NONE: Terms = Terms {
        header_digest: false,
        data_digest: false,
        cpda: 0,
        hpda: 0,
        in_capsule_bytes_max: 0,
        h2c_bytes_max: 0,
    };

    /// Bytes of a header digest behind a header of `kind`.
    pub fn header_digest_bytes(&self, kind: PduKind) -> usize {
        if self.header_digest && kind.has_digests() { DIGEST_BYTES } else { 0 }
    }

    /// Bytes of a data digest behind data of `kind`.
    pub fn data_digest_bytes(&self, kind: PduKind) -> usize {
        if self.data_digest && kind.may_have_data() { DIGEST_BYTES } else { 0 }
    }

    /// The alignment of data that `sender` sends, in bytes.
    pub fn data_alignment(&self, sender: Side) -> usize {
        let units = match sender {
            Side::Host => self.cpda,
            Side::Controller => self.hpda,
        };
        (usize::from(units) + 1) * 4
    }
}

/// A decoded common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PduHead {
    /// What kind of PDU.
    pub kind: PduKind,
    /// FLAGS, unchecked.
    pub flags: PduFlags,
    /// PDO: where data begins, in bytes from the start of the PDU; unchecked.
    pub data_offset: u8,
    /// PLEN: length of the whole PDU in bytes; unchecked.
    pub bytes: u32,
}

impl PduHead {
    /// Decode the first eight bytes of a PDU that `sender` sent.
    ///
    /// # Errors
    /// A [`Fatal`] if the kind is unknown or not the sender's, or HLEN is not that kind's.
    pub fn decode(common: [u8; COMMON_BYTES], sender: Side) -> Result<PduHead, Fatal> {
        let header = CommonHeader::read_from_bytes(&common).map_err(|_| Fatal::field(0))?;
        let kind = PduKind::from_code(header.kind).filter(|kind| kind.sender() == sender);
        let kind = kind.ok_or(Fatal::field(0))?;
        if header.header_bytes != kind.header_bytes() {
            return Err(Fatal::field(2));
        }
        Ok(PduHead {
            kind,
            flags: PduFlags(header.flags),
            data_offset: header.data_offset,
            bytes: header.bytes.get(),
        })
    }

    /// Length of the header with its digest, in bytes: what [`super::Pdu::open`] wants to see.
    pub fn header_bytes(&self, terms: &Terms) -> usize {
        usize::from(self.kind.header_bytes()) + terms.header_digest_bytes(self.kind)
    }
}

const _: () = assert!(COMMON_BYTES == 8);
