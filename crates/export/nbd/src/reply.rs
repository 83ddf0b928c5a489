//! The bytes of replies in the transmission phase.
//!
//! What must stay true: everything here is pure; a reply says the same in all dialects, as far as
//! they have words for it; a head tells the length of what follows it exactly. Not here: when a
//! reply is sent, and with what data (`slot`, `outbound`).

use crate::wire::{Dialect, NbdError};
use ashlar_volume::AllocationRun;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

const REPLY_SIMPLE_MAGIC: u32 = 0x6744_6698;
const REPLY_STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const REPLY_EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// The one metadata context there is: `base:allocation`.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;

/// No reply head (header and fixed fields, without data) is longer than this, in bytes.
pub const REPLY_HEAD_BYTES_MAX: usize = 128;

/// Error messages are cut at this length, so that a head always fits.
const MESSAGE_BYTES_MAX: usize = 64;

/// What one part of a reply says. Data and allocation runs follow the head as a payload of their
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// Success without data, and the last part.
    Done,
    /// `bytes` bytes of data from `offset` of the volume follow.
    Data {
        /// Where they were read, in bytes of the volume.
        offset: u64,
        /// How many follow.
        bytes: u32,
        /// Whether this is the last part.
        is_last: bool,
    },
    /// `payload_bytes` bytes of allocation runs follow; always the last part.
    Status {
        /// Length of what [`encode_status`] made, in bytes.
        payload_bytes: u32,
    },
    /// The request failed.
    Error {
        /// With which code.
        error: NbdError,
        /// For humans; dialects without room for it drop it.
        message: &'static str,
        /// Where in the volume, when only a part of a read failed.
        offset: Option<u64>,
        /// Whether this is the last part.
        is_last: bool,
    },
}

/// One part of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHead {
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset; the extended dialect repeats it.
    pub request_offset: u64,
    /// What it says.
    pub body: ReplyBody,
}

const PART_NONE: u16 = 0;
const PART_OFFSET_DATA: u16 = 1;
const PART_BLOCK_STATUS: u16 = 5;
const PART_BLOCK_STATUS_EXTENDED: u16 = 6;
const PART_ERROR: u16 = 1 << 15 | 1;
const PART_ERROR_OFFSET: u16 = 1 << 15 | 2;
const PART_IS_LAST: u16 = 1;

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct SimpleHeader {
    magic: U32,
    error: U32,
    cookie: U64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct StructuredHeader {
    magic: U32,
    flags: U16,
    part: U16,
    cookie: U64,
    bytes: U32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ExtendedHeader {
    magic: U32,
    flags: U16,
    part: U16,
    cookie: U64,
    offset: U64,
    bytes: U64,
}

impl ReplyHead {
    /// Write the head to the front of `out` and say how long it is, in bytes.
    ///
    /// The simple dialect has no parts: only the last one is encoded, and a data head says just
    /// "success".
    ///
    /// # Panics
    /// If `out` is shorter than [`REPLY_HEAD_BYTES_MAX`].
    pub fn encode(&self, dialect: Dialect, out: &mut [u8]) -> usize {
        let mut writer = Writer { out, at: 0 };
        if dialect == Dialect::Simple {
            let error = match self.body {
                ReplyBody::Error { error, .. } => error.code(),
                ReplyBody::Done | ReplyBody::Data { .. } | ReplyBody::Status { .. } => 0,
            };
            writer.put(&SimpleHeader {
                magic: U32::new(REPLY_SIMPLE_MAGIC),
                error: U32::new(error),
                cookie: U64::new(self.cookie),
            });
            return writer.at;
        }
        let part = |part, is_last, bytes| Part { part, is_last, bytes };
        match self.body {
            ReplyBody::Done => self.header(dialect, &mut writer, part(PART_NONE, true, 0)),
            ReplyBody::Data { offset, bytes, is_last } => {
                let all = 8 + u64::from(bytes);
                self.header(dialect, &mut writer, part(PART_OFFSET_DATA, is_last, all));
                writer.put(&U64::new(offset));
            }
            ReplyBody::Status { payload_bytes } => {
                let status = match dialect {
                    Dialect::Extended => PART_BLOCK_STATUS_EXTENDED,
                    Dialect::Simple | Dialect::Structured => PART_BLOCK_STATUS,
                };
                self.header(dialect, &mut writer, part(status, true, u64::from(payload_bytes)));
            }
            ReplyBody::Error { .. } => self.encode_error(dialect, &mut writer),
        }
        writer.at
    }

    fn encode_error(&self, dialect: Dialect, writer: &mut Writer<'_>) {
        let ReplyBody::Error { error, message, offset, is_last } = self.body else { return };
        let text = &message.as_bytes()[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
        let text_bytes = u16::try_from(text.len()).expect("cut above");
        let part = if offset.is_some() { PART_ERROR_OFFSET } else { PART_ERROR };
        let bytes = 6 + u64::from(text_bytes) + if offset.is_some() { 8 } else { 0 };
        self.header(dialect, writer, Part { part, is_last, bytes });
        writer.put(&U32::new(error.code()));
        writer.put(&U16::new(text_bytes));
        writer.put(text);
        if let Some(offset) = offset {
            writer.put(&U64::new(offset));
        }
    }

    fn header(&self, dialect: Dialect, writer: &mut Writer<'_>, part: Part) {
        let Part { part, is_last, bytes } = part;
        let flags = U16::new(if is_last { PART_IS_LAST } else { 0 });
        if dialect == Dialect::Extended {
            writer.put(&ExtendedHeader {
                magic: U32::new(REPLY_EXTENDED_MAGIC),
                flags,
                part: U16::new(part),
                cookie: U64::new(self.cookie),
                offset: U64::new(self.request_offset),
                bytes: U64::new(bytes),
            });
        } else {
            writer.put(&StructuredHeader {
                magic: U32::new(REPLY_STRUCTURED_MAGIC),
                flags,
                part: U16::new(part),
                cookie: U64::new(self.cookie),
                bytes: U32::new(
                    u32::try_from(bytes).expect("a part is at most 32 MiB and its head"),
                ),
            });
        }
    }
}

/// What the header of a part says of it.
struct Part {
    part: u16,
    is_last: bool,
    bytes: u64,
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, value: &(impl IntoBytes + Immutable + ?Sized)) {
        let bytes = value.as_bytes();
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Length of the payload that [`encode_status`] makes of `run_count` runs, in bytes.
pub fn status_bytes(dialect: Dialect, run_count: usize) -> usize {
    match dialect {
        Dialect::Extended => 8 + 16 * run_count,
        Dialect::Simple | Dialect::Structured => 4 + 8 * run_count,
    }
}

/// Encode allocation runs as the payload of [`ReplyBody::Status`].
///
/// # Panics
/// If `out` is shorter than [`status_bytes`]. In the structured dialect a run longer than 32 bits
/// can tell is cut there, which the protocol allows for the last one: callers ask for 32-bit
/// extents.
pub fn encode_status(dialect: Dialect, runs: &[AllocationRun], out: &mut [u8]) {
    const HOLE_AND_ZERO: u32 = 3;
    let mut writer = Writer { out, at: 0 };
    writer.put(&U32::new(ALLOCATION_CONTEXT_ID));
    if dialect == Dialect::Extended {
        writer.put(&U32::new(u32::try_from(runs.len()).expect("callers bound the runs")));
    }
    for run in runs {
        let state = if run.is_written { 0 } else { HOLE_AND_ZERO };
        if dialect == Dialect::Extended {
            writer.put(&[U64::new(run.bytes), U64::new(u64::from(state))]);
        } else {
            let bytes = u32::try_from(run.bytes).unwrap_or(!4095);
            writer.put(&[U32::new(bytes), U32::new(state)]);
        }
    }
}
