//! Submission and completion queue entries: commands and their outcomes, 64 and 16 bytes.
//!
//! What must stay true: both are plain bytes with names; every bit pattern is one. What a command
//! asks for is decided in `command`, and what a completion says is whatever was put into it. Base
//! 2.0, 3.3.3.1 "Submission Queue Entry" and 3.3.3.2 "Common Completion Queue Entry".

use crate::Status;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a submission queue entry, in bytes.
pub const SUBMISSION_BYTES: usize = size_of::<Submission>();

/// A submission queue entry.
#[derive(
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
)]
#[repr(C)]
pub struct Submission {
    /// OPC.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// CID: the host's name for the command.
    pub command: U16,
    /// NSID; of a fabrics command FCTYPE in the lowest byte.
    pub namespace: U32,
    /// Command dwords 2 and 3.
    pub dwords_2_3: [U32; 2],
    /// MPTR.
    pub metadata: U64,
    /// SGL1; see [`Sgl`](crate::Sgl).
    pub sgl: [u8; 16],
    /// Command dwords 10 to 15.
    pub dwords_10: [U32; 6],
}

/// A completion queue entry. Over fabrics it has no phase bit, and its SQID is reserved.
#[derive(
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
)]
#[repr(C)]
pub struct Completion {
    /// Dwords 0 and 1: what the command returns.
    pub result: U64,
    /// SQHD: the submission queue's head.
    pub queue_head: U16,
    /// Reserved over fabrics.
    pub queue: U16,
    /// CID.
    pub command: U16,
    /// The status field; see [`Completion::status`].
    pub status_field: U16,
}

const _: () = assert!(SUBMISSION_BYTES == 64);
const _: () = assert!(size_of::<Completion>() == 16);

impl Submission {
    /// Command dword `number`, of 10 to 15.
    ///
    /// # Panics
    /// If `number` is not of these.
    pub fn dword(&self, number: usize) -> u32 {
        self.dwords_10[number - 10].get()
    }

    /// Set command dword `number`, of 10 to 15.
    ///
    /// # Panics
    /// If `number` is not of these.
    #[must_use]
    pub fn with_dword(mut self, number: usize, value: u32) -> Submission {
        self.dwords_10[number - 10] = U32::new(value);
        self
    }

    /// Dwords `number` and `number + 1` as one number.
    ///
    /// # Panics
    /// If either is not of 10 to 15.
    pub fn quad(&self, number: usize) -> u64 {
        u64::from(self.dword(number)) | u64::from(self.dword(number + 1)) << 32
    }

    /// Whether the command points at its data by an SGL, as it must over fabrics (PSDT is 01b or
    /// 10b).
    pub fn has_sgl(&self) -> bool {
        matches!(self.flags >> 6, 1 | 2)
    }

    /// Whether the command is one half of a fused pair.
    pub fn is_fused(&self) -> bool {
        self.flags & 3 != 0
    }
}

impl Completion {
    /// The outcome of `command`. `queue_head` is filled in when it is sent.
    pub fn new(command: u16, status: Status, result: u64) -> Completion {
        Completion {
            result: U64::new(result),
            command: U16::new(command),
            status_field: U16::new(status.field()),
            ..Completion::default()
        }
    }

    /// How the command ended.
    pub fn status(&self) -> Status {
        Status::from_field(self.status_field.get())
    }
}
