//! How a command ended: status code type, status code, and whether trying again is of use.
//!
//! What must stay true: a [`Status`] that says "do not retry" is for faults that stay while the
//! command stays as it is. Base 2.0, 3.3.3.2.1 "Status Field Definition"; NVM Command Set 1.0,
//! "Status Values".

use std::fmt;

/// The outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// SCT: which table `code` is from.
    pub kind: u8,
    /// SC.
    pub code: u8,
    /// DNR: the same command would fail again.
    pub do_not_retry: bool,
}

const GENERIC: u8 = 0;
const COMMAND_SPECIFIC: u8 = 1;
const MEDIA: u8 = 2;
const PATH: u8 = 3;

/// Try again: it may work then.
const fn passing(kind: u8, code: u8) -> Status {
    Status { kind, code, do_not_retry: false }
}

/// Trying again is of no use.
const fn lasting(kind: u8, code: u8) -> Status {
    Status { kind, code, do_not_retry: true }
}

impl Status {
    /// The command was carried out.
    pub const SUCCESS: Status = passing(GENERIC, 0x00);
    /// The opcode is not supported here.
    pub const INVALID_OPCODE: Status = lasting(GENERIC, 0x01);
    /// A field has a value that is reserved or not supported.
    pub const INVALID_FIELD: Status = lasting(GENERIC, 0x02);
    /// The command identifier is in use.
    pub const COMMAND_ID_CONFLICT: Status = lasting(GENERIC, 0x03);
    /// The data did not arrive as it was sent, by its digest.
    pub const TRANSIENT_TRANSPORT_ERROR: Status = passing(GENERIC, 0x22);
    /// Something inside failed.
    pub const INTERNAL_ERROR: Status = passing(GENERIC, 0x06);
    /// The host asked for an abort.
    pub const ABORT_REQUESTED: Status = passing(GENERIC, 0x07);
    /// The namespace does not exist.
    pub const INVALID_NAMESPACE: Status = lasting(GENERIC, 0x0b);
    /// The command may not come now.
    pub const SEQUENCE_ERROR: Status = lasting(GENERIC, 0x0c);
    /// The SGL's length is not what the command needs.
    pub const SGL_LENGTH_INVALID: Status = lasting(GENERIC, 0x0f);
    /// The SGL descriptor is of a type that is not supported.
    pub const SGL_TYPE_INVALID: Status = lasting(GENERIC, 0x11);
    /// Denied, whatever the reason.
    pub const OPERATION_DENIED: Status = lasting(GENERIC, 0x15);
    /// The offset into the capsule's data is not supported.
    pub const SGL_OFFSET_INVALID: Status = lasting(GENERIC, 0x16);
    /// The keep-alive timeout is beyond what is supported.
    pub const KEEP_ALIVE_INVALID: Status = lasting(GENERIC, 0x1a);
    /// A reservation was preempted, and the command aborted with it.
    pub const ABORTED_BY_PREEMPT: Status = lasting(GENERIC, 0x1b);
    /// The namespace is write protected.
    pub const WRITE_PROTECTED: Status = lasting(GENERIC, 0x20);
    /// The blocks do not exist.
    pub const LBA_OUT_OF_RANGE: Status = lasting(GENERIC, 0x80);
    /// No space is left for the data.
    pub const CAPACITY_EXCEEDED: Status = lasting(GENERIC, 0x81);
    /// The namespace is being stopped or not there yet.
    pub const NAMESPACE_NOT_READY: Status = passing(GENERIC, 0x82);
    /// Another host holds a reservation.
    pub const RESERVATION_CONFLICT: Status = lasting(GENERIC, 0x83);
    /// Abort names more commands than may be aborted at a time.
    pub const ABORT_LIMIT: Status = passing(COMMAND_SPECIFIC, 0x03);
    /// More asynchronous event requests than may wait.
    pub const ASYNC_EVENT_LIMIT: Status = lasting(COMMAND_SPECIFIC, 0x05);
    /// The log page is not supported.
    pub const INVALID_LOG_PAGE: Status = lasting(COMMAND_SPECIFIC, 0x09);
    /// The feature cannot be saved.
    pub const FEATURE_NOT_SAVEABLE: Status = lasting(COMMAND_SPECIFIC, 0x0d);
    /// The feature cannot be changed.
    pub const FEATURE_NOT_CHANGEABLE: Status = lasting(COMMAND_SPECIFIC, 0x0e);
    /// The feature is not one of a namespace.
    pub const FEATURE_NOT_PER_NAMESPACE: Status = lasting(COMMAND_SPECIFIC, 0x0f);
    /// Connect: its data or its format has no meaning here.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = lasting(COMMAND_SPECIFIC, 0x80);
    /// Connect: no controller or queue is free, or this one is in use.
    pub const CONNECT_BUSY: Status = passing(COMMAND_SPECIFIC, 0x81);
    /// Connect: a parameter, which result dword 0 points at
    /// ([`InvalidParameter`](crate::InvalidParameter)).
    pub const CONNECT_INVALID_PARAMETERS: Status = lasting(COMMAND_SPECIFIC, 0x82);
    /// Connect: this host may not.
    pub const CONNECT_INVALID_HOST: Status = lasting(COMMAND_SPECIFIC, 0x84);
    /// A command before the authentication that is demanded.
    pub const AUTHENTICATION_REQUIRED: Status = lasting(COMMAND_SPECIFIC, 0x91);
    /// More than one command may carry.
    pub const COMMAND_SIZE_LIMIT: Status = lasting(COMMAND_SPECIFIC, 0x83);
    /// The blocks cannot be written.
    pub const WRITE_FAULT: Status = passing(MEDIA, 0x80);
    /// The blocks cannot be read or proved right.
    pub const UNRECOVERED_READ: Status = passing(MEDIA, 0x81);
    /// The blocks are not those that the host compared with.
    pub const COMPARE_FAILURE: Status = lasting(MEDIA, 0x85);
    /// The controller gave the command up, and whether it took effect is not known.
    pub const PATH_ERROR: Status = passing(PATH, 0x00);

    /// Whether the command was carried out.
    pub fn is_success(self) -> bool {
        (self.kind, self.code) == (GENERIC, 0)
    }

    /// The status field of a completion: its last two bytes, with the phase bit at 0.
    pub fn field(self) -> u16 {
        let kind = u16::from(self.kind & 7) << 9;
        u16::from(self.do_not_retry) << 15 | kind | u16::from(self.code) << 1
    }

    /// The status in a completion's status field.
    pub fn from_field(field: u16) -> Status {
        let [low, high] = (field >> 1).to_le_bytes();
        Status { kind: high & 7, code: low, do_not_retry: field >> 15 != 0 }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.do_not_retry { ", do not retry" } else { "" };
        write!(f, "status {:x}.{:02x}{end}", self.kind, self.code)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Status {}
