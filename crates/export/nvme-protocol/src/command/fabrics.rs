//! Fabrics commands: how a queue comes to be and how it ends.
//!
//! What must stay true: a decoded Connect has well-formed names; what is wrong with one is told by
//! the offset of the field. Base 2.0, 6 "Fabrics Command Set".

use crate::nqn::{Host, HostId, NQN_FIELD_BYTES, Nqn};
use crate::{Status, Submission, Transfer};
use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// OPC of every fabrics command.
pub const FABRICS_OPCODE: u8 = 0x7f;

/// CNTLID by which a host asks for any controller.
pub const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// Length of the data of Connect, in bytes.
pub const CONNECT_DATA_BYTES: usize = size_of::<RawConnectData>();

/// FCTYPE.
mod kind {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTH_SEND: u8 = 0x05;
    pub const AUTH_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Connect: the fields of its submission queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// RECFMT: format of the data; 0 is the only one.
    pub format: u16,
    /// QID: 0 for the admin queue.
    pub queue: u16,
    /// SQSIZE: entries of the submission queue, less one.
    pub entries_less_one: u16,
    /// CATTR bit 2: the host does without SQ flow control.
    pub is_without_flow_control: bool,
    /// KATO: keep-alive timeout in milliseconds; 0 is none.
    pub keep_alive_ms: u32,
}

/// Connect: its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectData {
    /// Who connects.
    pub host: Host,
    /// CNTLID: [`DYNAMIC_CONTROLLER`], or for an I/O queue the controller of its admin queue.
    pub controller: u16,
    /// SUBNQN: to what.
    pub subsystem: Nqn,
}

/// Authentication Send or Receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthTransfer {
    /// SECP: 0xe9 for in-band authentication.
    pub protocol: u8,
    /// SPSP0 and SPSP1, both 1.
    pub specific: [u8; 2],
    /// TL or AL: length of the data, in bytes.
    pub bytes: u32,
}

/// A fabrics command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricsCommand {
    /// Make this connection a queue.
    Connect(Connect),
    /// Read a property.
    PropertyGet {
        /// OFST, in bytes.
        offset: u32,
        /// Whether 8 bytes are asked for, and not 4.
        is_wide: bool,
    },
    /// Write a property.
    PropertySet {
        /// OFST, in bytes.
        offset: u32,
        /// Whether 8 bytes are written, and not 4.
        is_wide: bool,
        /// VALUE.
        value: u64,
    },
    /// A message of the authentication to the controller.
    AuthSend(AuthTransfer),
    /// A message of the authentication to the host.
    AuthReceive(AuthTransfer),
    /// End this I/O queue.
    Disconnect,
}

/// Which parameter of a Connect was wrong: result dword 0 of
/// [`Status::CONNECT_INVALID_PARAMETERS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidParameter {
    /// At this offset of the submission queue entry, in bytes.
    InCommand(u16),
    /// At this offset of the data, in bytes.
    InData(u16),
}

impl InvalidParameter {
    /// HOSTID in the data.
    pub const HOST_ID: InvalidParameter = InvalidParameter::InData(0);
    /// CNTLID in the data.
    pub const CONTROLLER: InvalidParameter = InvalidParameter::InData(16);
    /// SUBNQN in the data.
    pub const SUBSYSTEM: InvalidParameter = InvalidParameter::InData(256);
    /// HOSTNQN in the data.
    pub const HOST_NQN: InvalidParameter = InvalidParameter::InData(512);
    /// QID in the command.
    pub const QUEUE: InvalidParameter = InvalidParameter::InCommand(42);
    /// SQSIZE in the command.
    pub const ENTRIES: InvalidParameter = InvalidParameter::InCommand(44);

    /// The completion's result.
    pub fn result(self) -> u64 {
        match self {
            InvalidParameter::InCommand(offset) => u64::from(offset),
            InvalidParameter::InData(offset) => 1 << 16 | u64::from(offset),
        }
    }
}

/// The result of a Connect that succeeded: the controller, and whether it must authenticate first
/// (AUTHREQ, ATR).
pub fn connect_result(controller: u16, must_authenticate: bool) -> u64 {
    u64::from(controller) | u64::from(must_authenticate) << 17
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawConnectData {
    host_id: [u8; 16],
    controller: U16,
    reserved: [u8; 238],
    subsystem: [u8; NQN_FIELD_BYTES],
    host: [u8; NQN_FIELD_BYTES],
    reserved_too: [u8; 256],
}

const _: () = assert!(CONNECT_DATA_BYTES == 1024);

impl ConnectData {
    /// Decode the data of a Connect.
    ///
    /// # Errors
    /// [`InvalidParameter`]: the name that is none.
    pub fn decode(bytes: &[u8; CONNECT_DATA_BYTES]) -> Result<ConnectData, InvalidParameter> {
        let raw = RawConnectData::ref_from_bytes(bytes).map_err(|_| InvalidParameter::HOST_ID)?;
        let subsystem = Nqn::from_field(&raw.subsystem).map_err(|_| InvalidParameter::SUBSYSTEM)?;
        let nqn = Nqn::from_field(&raw.host).map_err(|_| InvalidParameter::HOST_NQN)?;
        let host = Host { id: HostId(raw.host_id), nqn };
        Ok(ConnectData { host, controller: raw.controller.get(), subsystem })
    }

    /// The data of a Connect, as a host sends it.
    pub fn encode(&self) -> [u8; CONNECT_DATA_BYTES] {
        let raw = RawConnectData {
            host_id: self.host.id.0,
            controller: U16::new(self.controller),
            reserved: [0; 238],
            subsystem: self.subsystem.field(),
            host: self.host.nqn.field(),
            reserved_too: [0; 256],
        };
        let mut bytes = [0; CONNECT_DATA_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

impl FabricsCommand {
    /// Decode a command whose opcode is [`FABRICS_OPCODE`].
    ///
    /// # Errors
    /// The [`Status`] to answer with.
    pub fn decode(entry: &Submission) -> Result<FabricsCommand, Status> {
        if entry.opcode != FABRICS_OPCODE {
            return Err(Status::INVALID_OPCODE);
        }
        let [kind, ..] = entry.namespace.get().to_le_bytes();
        Ok(match kind {
            kind::CONNECT => FabricsCommand::Connect(connect(entry)),
            kind::PROPERTY_GET => {
                FabricsCommand::PropertyGet { offset: entry.dword(11), is_wide: is_wide(entry)? }
            }
            kind::PROPERTY_SET => FabricsCommand::PropertySet {
                offset: entry.dword(11),
                is_wide: is_wide(entry)?,
                value: entry.quad(12),
            },
            kind::AUTH_SEND => FabricsCommand::AuthSend(auth_transfer(entry)),
            kind::AUTH_RECEIVE => FabricsCommand::AuthReceive(auth_transfer(entry)),
            kind::DISCONNECT => FabricsCommand::Disconnect,
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// Encode the dwords of this command into an entry, as a host does.
    pub fn encode(&self) -> Submission {
        let entry = Submission { opcode: FABRICS_OPCODE, flags: 0x40, ..Submission::default() };
        let (kind, entry) = match *self {
            FabricsCommand::Connect(connect) => {
                let first = u32::from(connect.format) | u32::from(connect.queue) << 16;
                let flow = u32::from(connect.is_without_flow_control) << 18;
                let entry = entry
                    .with_dword(10, first)
                    .with_dword(11, u32::from(connect.entries_less_one) | flow)
                    .with_dword(12, connect.keep_alive_ms);
                (kind::CONNECT, entry)
            }
            FabricsCommand::PropertyGet { offset, is_wide } => {
                let entry = entry.with_dword(10, u32::from(is_wide)).with_dword(11, offset);
                (kind::PROPERTY_GET, entry)
            }
            FabricsCommand::PropertySet { offset, is_wide, value } => {
                let [low, high] = halves(value);
                let entry = entry.with_dword(10, u32::from(is_wide)).with_dword(11, offset);
                (kind::PROPERTY_SET, entry.with_dword(12, low).with_dword(13, high))
            }
            FabricsCommand::AuthSend(auth) => (kind::AUTH_SEND, auth.encode(entry)),
            FabricsCommand::AuthReceive(auth) => (kind::AUTH_RECEIVE, auth.encode(entry)),
            FabricsCommand::Disconnect => (kind::DISCONNECT, entry),
        };
        Submission { namespace: u32::from(kind).into(), ..entry }
    }

    /// Which data moves.
    pub fn transfer(&self) -> Transfer {
        match self {
            FabricsCommand::Connect(_) => Transfer::to_controller(1024),
            FabricsCommand::AuthSend(auth) => Transfer::to_controller(u64::from(auth.bytes)),
            FabricsCommand::AuthReceive(auth) => Transfer::ToHost(u64::from(auth.bytes)),
            FabricsCommand::PropertyGet { .. }
            | FabricsCommand::PropertySet { .. }
            | FabricsCommand::Disconnect => Transfer::None,
        }
    }
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn connect(entry: &Submission) -> Connect {
    let [f0, f1, q0, q1] = entry.dword(10).to_le_bytes();
    let [s0, s1, attributes, _] = entry.dword(11).to_le_bytes();
    Connect {
        format: u16::from_le_bytes([f0, f1]),
        queue: u16::from_le_bytes([q0, q1]),
        entries_less_one: u16::from_le_bytes([s0, s1]),
        is_without_flow_control: attributes & 4 != 0,
        keep_alive_ms: entry.dword(12),
    }
}

fn is_wide(entry: &Submission) -> Result<bool, Status> {
    match entry.dword(10) & 7 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::INVALID_FIELD),
    }
}

fn auth_transfer(entry: &Submission) -> AuthTransfer {
    let [_, first, second, protocol] = entry.dword(10).to_le_bytes();
    AuthTransfer { protocol, specific: [first, second], bytes: entry.dword(11) }
}

impl AuthTransfer {
    /// SECP and SPSP of in-band authentication.
    pub fn of_messages(bytes: u32) -> AuthTransfer {
        AuthTransfer { protocol: 0xe9, specific: [1, 1], bytes }
    }

    /// Refuse other security protocols, and messages longer than `bytes_max`.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`].
    pub fn check(&self, bytes_max: u32) -> Result<(), Status> {
        let is_good = AuthTransfer::of_messages(self.bytes) == *self;
        if is_good && (1..=bytes_max).contains(&self.bytes) {
            Ok(())
        } else {
            Err(Status::INVALID_FIELD)
        }
    }

    fn encode(self, entry: Submission) -> Submission {
        let [first, second] = self.specific;
        let dword = u32::from_le_bytes([0, first, second, self.protocol]);
        entry.with_dword(10, dword).with_dword(11, self.bytes)
    }
}
