//! Commands of I/O queues.
//!
//! What must stay true: decoding checks what a command says by itself; [`Blocks::within`] is the
//! one place that decides whether blocks exist. Numbers of blocks are counts here, never "less
//! one". NVM Command Set 1.0, 3 "I/O Commands"; Base 2.0, 7 "I/O Commands" (Flush and
//! reservations).

use crate::reservation::ReservationType;
use crate::{Status, Submission, Transfer};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Opcodes of I/O queues that are known here.
pub mod opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Reservation Register.
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// Reservation Release.
    pub const RESERVATION_RELEASE: u8 = 0x15;
    /// All of them.
    pub const ALL: [u8; 10] = [
        FLUSH,
        WRITE,
        READ,
        COMPARE,
        WRITE_ZEROES,
        DATASET_MANAGEMENT,
        RESERVATION_REGISTER,
        RESERVATION_REPORT,
        RESERVATION_ACQUIRE,
        RESERVATION_RELEASE,
    ];
}

/// Most ranges in one Dataset Management.
pub const DSM_RANGES_MAX: u16 = 256;

const FUA: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;

/// Consecutive logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u32,
}

impl Blocks {
    /// Refuse blocks that a namespace of `total` blocks does not have.
    ///
    /// # Errors
    /// [`Status::LBA_OUT_OF_RANGE`].
    pub fn within(self, total: u64) -> Result<(), Status> {
        let end = self.first.checked_add(u64::from(self.count));
        if end.is_some_and(|end| end <= total) { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE) }
    }

    /// Length of these blocks' data in bytes, if a block has `block_bytes`.
    pub fn bytes(self, block_bytes: u32) -> u64 {
        u64::from(self.count) * u64::from(block_bytes)
    }
}

/// One range of a Dataset Management.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes: hints, ignored.
    pub attributes: U32,
    /// Blocks.
    pub count: U32,
    /// The first block.
    pub first: U64,
}

const RANGE_BYTES: u64 = 16;
const _: () = assert!(size_of::<DsmRange>() == 16);

impl DsmRange {
    /// The range as blocks.
    pub fn blocks(&self) -> Blocks {
        Blocks { first: self.first.get(), count: self.count.get() }
    }
}

/// What Reservation Register does with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterAction {
    /// Register the new key.
    Register,
    /// Give the registration up.
    Unregister,
    /// Put the new key in place of the current one.
    Replace,
}

/// Reservation Register: the fields of its entry. Its data are the current key and the new key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationRegister {
    /// RREGA.
    pub action: RegisterAction,
    /// IEKEY: the current key is not compared.
    pub ignores_key: bool,
    /// CPTPL: whether reservations survive a power loss from now on, if that changes.
    pub persists: Option<bool>,
}

/// Reservation Acquire. Its data are the current key and the key to preempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationAcquire {
    /// Become the holder.
    Acquire(ReservationType),
    /// Take it from others; their commands end on their own.
    Preempt(ReservationType),
    /// Take it from others, and abort their commands.
    PreemptAndAbort(ReservationType),
}

/// Reservation Release. Its data is the current key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationRelease {
    /// Give the reservation up.
    Release(ReservationType),
    /// Give it up, and all registrations with it.
    Clear,
}

/// A command of an I/O queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoCommand {
    /// Make everything durable that was answered before.
    Flush,
    /// Send blocks.
    Read {
        /// Which.
        blocks: Blocks,
        /// Read from what is durable.
        fua: bool,
    },
    /// Store blocks.
    Write {
        /// Which.
        blocks: Blocks,
        /// Answer when durable.
        fua: bool,
    },
    /// Compare blocks with data of the host.
    Compare {
        /// Which.
        blocks: Blocks,
    },
    /// The blocks read as zeros afterwards.
    WriteZeroes {
        /// Which.
        blocks: Blocks,
        /// Answer when durable.
        fua: bool,
        /// DEAC: their space may be given back.
        may_unmap: bool,
    },
    /// Hints about ranges; with `deallocate` their content is no longer needed.
    DatasetManagement {
        /// How many ranges the data holds.
        ranges: u16,
        /// AD.
        deallocate: bool,
    },
    /// Change a registration.
    ReservationRegister(ReservationRegister),
    /// The registrants and the holder.
    ReservationReport {
        /// EDS: with 128-bit host identifiers, the only ones over fabrics.
        is_extended: bool,
        /// Length of the answer, in bytes.
        bytes: u64,
    },
    /// Become the holder.
    ReservationAcquire(ReservationAcquire),
    /// Give up.
    ReservationRelease(ReservationRelease),
}

impl IoCommand {
    /// Decode a command of an I/O queue that is no fabrics command.
    ///
    /// # Errors
    /// The [`Status`] to answer with.
    pub fn decode(entry: &Submission) -> Result<IoCommand, Status> {
        let fua = entry.dword(12) & FUA != 0;
        let command = match entry.opcode {
            opcode::FLUSH => IoCommand::Flush,
            opcode::READ => IoCommand::Read { blocks: blocks(entry), fua },
            opcode::WRITE => IoCommand::Write { blocks: blocks(entry), fua },
            opcode::COMPARE => IoCommand::Compare { blocks: blocks(entry) },
            opcode::WRITE_ZEROES => {
                let may_unmap = entry.dword(12) & DEALLOCATE != 0;
                IoCommand::WriteZeroes { blocks: blocks(entry), fua, may_unmap }
            }
            opcode::DATASET_MANAGEMENT => IoCommand::DatasetManagement {
                ranges: u16::from(entry.dword(10).to_le_bytes()[0]) + 1,
                deallocate: entry.dword(11) & 4 != 0,
            },
            opcode::RESERVATION_REGISTER => IoCommand::ReservationRegister(register(entry)?),
            opcode::RESERVATION_REPORT => IoCommand::ReservationReport {
                is_extended: entry.dword(11) & 1 == 1,
                bytes: (u64::from(entry.dword(10)) + 1) * 4,
            },
            opcode::RESERVATION_ACQUIRE => IoCommand::ReservationAcquire(acquire(entry)?),
            opcode::RESERVATION_RELEASE => IoCommand::ReservationRelease(release(entry)?),
            _ => return Err(Status::INVALID_OPCODE),
        };
        if entry.is_fused() { Err(Status::INVALID_FIELD) } else { Ok(command) }
    }

    /// Which data moves, if a block has `block_bytes`.
    pub fn transfer(&self, block_bytes: u32) -> Transfer {
        match self {
            IoCommand::Flush | IoCommand::WriteZeroes { .. } => Transfer::None,
            IoCommand::Read { blocks, .. } => Transfer::ToHost(blocks.bytes(block_bytes)),
            IoCommand::Write { blocks, .. } | IoCommand::Compare { blocks } => {
                Transfer::to_controller(blocks.bytes(block_bytes))
            }
            // Hosts send all 256 entries, however many of them count.
            IoCommand::DatasetManagement { ranges, .. } => Transfer::ToController {
                least: u64::from(*ranges) * RANGE_BYTES,
                most: u64::from(DSM_RANGES_MAX) * RANGE_BYTES,
            },
            IoCommand::ReservationRegister(_) | IoCommand::ReservationAcquire(_) => {
                Transfer::to_controller(16)
            }
            IoCommand::ReservationRelease(_) => Transfer::to_controller(8),
            IoCommand::ReservationReport { bytes, .. } => Transfer::ToHost(*bytes),
        }
    }

    /// Whether the command changes the namespace, as reservations see it: Flush counts.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            IoCommand::Flush
                | IoCommand::Write { .. }
                | IoCommand::WriteZeroes { .. }
                | IoCommand::DatasetManagement { .. }
        )
    }

    /// Whether the command reads the namespace, as reservations see it.
    pub fn is_read(&self) -> bool {
        matches!(self, IoCommand::Read { .. } | IoCommand::Compare { .. })
    }
}

/// The first `ranges` ranges of the data of a Dataset Management.
///
/// # Errors
/// [`Status::SGL_LENGTH_INVALID`] if the data is shorter.
pub fn decode_ranges(data: &[u8], ranges: u16) -> Result<&[DsmRange], Status> {
    let (ranges, _) = <[DsmRange]>::ref_from_prefix_with_elems(data, usize::from(ranges))
        .map_err(|_| Status::SGL_LENGTH_INVALID)?;
    Ok(ranges)
}

fn blocks(entry: &Submission) -> Blocks {
    let count = (entry.dword(12) & 0xffff) + 1;
    Blocks { first: entry.quad(10), count }
}

fn register(entry: &Submission) -> Result<ReservationRegister, Status> {
    let dword = entry.dword(10);
    let action = match dword & 7 {
        0 => RegisterAction::Register,
        1 => RegisterAction::Unregister,
        2 => RegisterAction::Replace,
        _ => return Err(Status::INVALID_FIELD),
    };
    let persists = match dword >> 30 {
        0 => None,
        2 => Some(false),
        3 => Some(true),
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(ReservationRegister { action, ignores_key: dword & 8 != 0, persists })
}

/// RTYPE. With keys defined as since revision 1.3, IEKEY is a fault in Acquire and Release.
fn reservation_type(dword: u32) -> Result<ReservationType, Status> {
    let [low, kind, _, _] = dword.to_le_bytes();
    let kind = ReservationType::from_code(kind).ok_or(Status::INVALID_FIELD)?;
    if low & 8 == 0 { Ok(kind) } else { Err(Status::INVALID_FIELD) }
}

fn acquire(entry: &Submission) -> Result<ReservationAcquire, Status> {
    let dword = entry.dword(10);
    let kind = reservation_type(dword)?;
    Ok(match dword & 7 {
        0 => ReservationAcquire::Acquire(kind),
        1 => ReservationAcquire::Preempt(kind),
        2 => ReservationAcquire::PreemptAndAbort(kind),
        _ => return Err(Status::INVALID_FIELD),
    })
}

fn release(entry: &Submission) -> Result<ReservationRelease, Status> {
    let dword = entry.dword(10);
    match dword & 7 {
        0 => Ok(ReservationRelease::Release(reservation_type(dword)?)),
        1 if dword & 8 == 0 => Ok(ReservationRelease::Clear),
        _ => Err(Status::INVALID_FIELD),
    }
}
