//! The bytes of requests in the transmission phase, and what requests and replies have in common.
//!
//! What must stay true: everything here is pure and total. No input causes a panic. Lengths and
//! offsets of a header are only passed on, never acted upon. All integers are big-endian. Not here:
//! replies (`reply`), the handshake (`negotiate`), and what a request means for a volume (`admit`).

use ashlar_volume::VolumeErrorKind;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REQUEST_EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// No request header is longer than this, in bytes.
pub const REQUEST_BYTES_MAX: usize = size_of::<RequestHeaderExtended>();

/// Which headers a session uses, as negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// 28-byte requests and 16-byte replies.
    #[default]
    Simple,
    /// 28-byte requests; a reply may come in several parts.
    Structured,
    /// 32-byte requests with 64-bit lengths; all replies have 32-byte headers.
    Extended,
}

impl Dialect {
    /// Length of a request header in bytes.
    pub fn request_bytes(self) -> usize {
        match self {
            Dialect::Simple | Dialect::Structured => size_of::<RequestHeader>(),
            Dialect::Extended => size_of::<RequestHeaderExtended>(),
        }
    }

    /// Whether a reply may consist of several parts.
    pub fn has_parts(self) -> bool {
        self != Dialect::Simple
    }
}

/// Error codes that may stand on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NbdError {
    /// EPERM: a change on a read-only volume.
    Permission,
    /// EIO.
    Io,
    /// EINVAL.
    Invalid,
    /// ENOSPC: also a write beyond the end.
    NoSpace,
    /// EOVERFLOW: a read too long for one reply part, or for the server.
    Overflow,
    /// ENOTSUP: zeroing would not be fast.
    NotSupported,
    /// ESHUTDOWN.
    Shutdown,
}

impl NbdError {
    /// The code on the wire.
    pub fn code(self) -> u32 {
        match self {
            NbdError::Permission => 1,
            NbdError::Io => 5,
            NbdError::Invalid => 22,
            NbdError::NoSpace => 28,
            NbdError::Overflow => 75,
            NbdError::NotSupported => 95,
            NbdError::Shutdown => 108,
        }
    }
}

impl From<VolumeErrorKind> for NbdError {
    fn from(kind: VolumeErrorKind) -> NbdError {
        match kind {
            VolumeErrorKind::Io => NbdError::Io,
            VolumeErrorKind::BadExtent => NbdError::Invalid,
            VolumeErrorKind::ReadOnly => NbdError::Permission,
            VolumeErrorKind::NoSpace => NbdError::NoSpace,
            VolumeErrorKind::Stopped => NbdError::Shutdown,
        }
    }
}

/// The request types this server knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestType {
    /// Data from the volume.
    Read,
    /// Data to the volume; the only type with a payload in the simple and structured dialects.
    Write,
    /// The client leaves.
    Disconnect,
    /// Make answered changes durable.
    Flush,
    /// The extent's content is no longer needed.
    Trim,
    /// The client will soon use the extent.
    Cache,
    /// Zeros without a payload.
    WriteZeroes,
    /// The allocation map.
    BlockStatus,
}

impl RequestType {
    fn from_code(code: u16) -> Option<RequestType> {
        Some(match code {
            0 => RequestType::Read,
            1 => RequestType::Write,
            2 => RequestType::Disconnect,
            3 => RequestType::Flush,
            4 => RequestType::Trim,
            5 => RequestType::Cache,
            6 => RequestType::WriteZeroes,
            7 => RequestType::BlockStatus,
            _ => return None,
        })
    }
}

/// Command flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestFlags(pub u16);

impl RequestFlags {
    /// Reply when the change is durable.
    pub const FUA: RequestFlags = RequestFlags(1);
    /// Zeros must be backed by space.
    pub const NO_HOLE: RequestFlags = RequestFlags(2);
    /// One data part at most.
    pub const DF: RequestFlags = RequestFlags(4);
    /// One run of the allocation map at most.
    pub const REQ_ONE: RequestFlags = RequestFlags(8);
    /// Zero only if that is faster than writing.
    pub const FAST_ZERO: RequestFlags = RequestFlags(16);
    /// A payload follows (extended dialect only).
    pub const PAYLOAD_LEN: RequestFlags = RequestFlags(32);

    /// Whether all flags of `other` are set.
    pub fn has(self, other: RequestFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no flag outside `allowed` is set.
    pub fn only(self, allowed: &[RequestFlags]) -> bool {
        let mask = allowed.iter().fold(0, |mask, flag| mask | flag.0);
        self.0 & !mask == 0
    }
}

/// One request header, whichever dialect it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// Command flags.
    pub flags: RequestFlags,
    /// The raw type; see [`RequestHead::kind`].
    pub type_code: u16,
    /// The client's name for the request, given back in its replies.
    pub cookie: u64,
    /// First byte of the volume.
    pub offset: u64,
    /// Length of the payload or of the extent, in bytes.
    pub bytes: u64,
    /// Bytes of payload that follow the header.
    pub payload_bytes: u64,
}

impl RequestHead {
    /// The type, if this server knows it.
    pub fn kind(&self) -> Option<RequestType> {
        RequestType::from_code(self.type_code)
    }
}

/// Why bytes are not a request header: the connection cannot go on, as nobody knows where the next
/// begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request magic is {found:#010x}")]
pub struct BadMagic {
    /// What stood there.
    pub found: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RequestHeader {
    magic: U32,
    flags: U16,
    type_code: U16,
    cookie: U64,
    offset: U64,
    bytes: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RequestHeaderExtended {
    magic: U32,
    flags: U16,
    type_code: U16,
    cookie: U64,
    offset: U64,
    bytes: U64,
}

const _: () = assert!(size_of::<RequestHeader>() == 28);
const _: () = assert!(size_of::<RequestHeaderExtended>() == 32);

/// Decode one request header. `bytes` has exactly [`Dialect::request_bytes`] bytes.
///
/// # Errors
/// [`BadMagic`] if it does not begin as a header of this dialect does (or has another length).
pub fn decode_request(dialect: Dialect, bytes: &[u8]) -> Result<RequestHead, BadMagic> {
    let found = U32::read_from_prefix(bytes).map_or(0, |(magic, _)| magic.get());
    let bad = BadMagic { found };
    if dialect == Dialect::Extended {
        let header = RequestHeaderExtended::read_from_bytes(bytes).map_err(|_| bad)?;
        let flags = RequestFlags(header.flags.get());
        let payload_bytes =
            if flags.has(RequestFlags::PAYLOAD_LEN) { header.bytes.get() } else { 0 };
        let head = RequestHead {
            flags,
            type_code: header.type_code.get(),
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            bytes: header.bytes.get(),
            payload_bytes,
        };
        return if found == REQUEST_EXTENDED_MAGIC { Ok(head) } else { Err(bad) };
    }
    let header = RequestHeader::read_from_bytes(bytes).map_err(|_| bad)?;
    let is_write = RequestType::from_code(header.type_code.get()) == Some(RequestType::Write);
    let head = RequestHead {
        flags: RequestFlags(header.flags.get()),
        type_code: header.type_code.get(),
        cookie: header.cookie.get(),
        offset: header.offset.get(),
        bytes: u64::from(header.bytes.get()),
        payload_bytes: if is_write { u64::from(header.bytes.get()) } else { 0 },
    };
    if found == REQUEST_MAGIC { Ok(head) } else { Err(bad) }
}

/// Encode a request as a client would. For tests and tools.
pub fn encode_request(dialect: Dialect, head: &RequestHead) -> Vec<u8> {
    if dialect == Dialect::Extended {
        let header = RequestHeaderExtended {
            magic: U32::new(REQUEST_EXTENDED_MAGIC),
            flags: U16::new(head.flags.0),
            type_code: U16::new(head.type_code),
            cookie: U64::new(head.cookie),
            offset: U64::new(head.offset),
            bytes: U64::new(head.bytes),
        };
        return header.as_bytes().to_vec();
    }
    let header = RequestHeader {
        magic: U32::new(REQUEST_MAGIC),
        flags: U16::new(head.flags.0),
        type_code: U16::new(head.type_code),
        cookie: U64::new(head.cookie),
        offset: U64::new(head.offset),
        bytes: U32::new(u32::try_from(head.bytes).unwrap_or(u32::MAX)),
    };
    header.as_bytes().to_vec()
}
