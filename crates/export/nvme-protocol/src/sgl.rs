//! Where a command's data is: in its capsule, or to be moved by data PDUs.
//!
//! What must stay true: only the two descriptors of NVMe/TCP are accepted; an accepted one has
//! exactly as many bytes as the command moves, and data in a capsule is all of the capsule's data.
//! Base 2.0, 4.1.2 "Scatter Gather List (SGL)"; TCP Transport, "Capsules and Data Transfers".

use crate::{Status, Submission};

const OFFSET_IN_CAPSULE: u8 = 0x01;
const TRANSPORT: u8 = 0x5a;

/// The descriptor of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sgl {
    /// SGL Data Block with an offset: data within the capsule.
    InCapsule {
        /// From the start of the capsule's data, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// Transport SGL Data Block: data moves in PDUs of its own.
    Transport {
        /// Length in bytes.
        bytes: u32,
    },
}

impl Sgl {
    /// Decode a command's SGL1.
    ///
    /// # Errors
    /// [`Status::SGL_TYPE_INVALID`] for every other type.
    pub fn decode(raw: [u8; 16]) -> Result<Sgl, Status> {
        let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, _, _, _, kind] = raw;
        let offset = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        match kind {
            OFFSET_IN_CAPSULE => Ok(Sgl::InCapsule { offset, bytes }),
            TRANSPORT => Ok(Sgl::Transport { bytes }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// As it stands in a command.
    pub fn encode(self) -> [u8; 16] {
        let (offset, bytes, kind) = match self {
            Sgl::InCapsule { offset, bytes } => (offset, bytes, OFFSET_IN_CAPSULE),
            Sgl::Transport { bytes } => (0, bytes, TRANSPORT),
        };
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&offset.to_le_bytes());
        raw[8..12].copy_from_slice(&bytes.to_le_bytes());
        raw[15] = kind;
        raw
    }

    /// Length in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Sgl::InCapsule { bytes, .. } | Sgl::Transport { bytes } => bytes,
        }
    }
}

/// Which way a command's data moves, and how much there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// No data.
    None,
    /// To the controller: at least `least` and at most `most` bytes.
    ToController {
        /// What the command needs, in bytes.
        least: u64,
        /// What it may bring, in bytes; more than needed is ignored.
        most: u64,
    },
    /// To the host, exactly this many bytes.
    ToHost(u64),
}

impl Transfer {
    /// Exactly `bytes` to the controller.
    pub fn to_controller(bytes: u64) -> Transfer {
        Transfer::ToController { least: bytes, most: bytes }
    }
}

/// Where the data of an admitted command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// There is none.
    None,
    /// In the capsule: all of its data.
    InCapsule(u32),
    /// To be requested by R2T, this many bytes.
    Ask(u32),
    /// To be sent, this many bytes.
    Send(u32),
}

/// Decide where the data of a command is. `capsule_bytes` is what its capsule carries.
///
/// # Errors
/// [`Status::SGL_TYPE_INVALID`], [`Status::SGL_OFFSET_INVALID`], [`Status::SGL_LENGTH_INVALID`] or,
/// for a command that uses PRPs, [`Status::INVALID_FIELD`].
pub fn place(
    submission: &Submission,
    transfer: Transfer,
    capsule_bytes: u32,
) -> Result<Data, Status> {
    if !submission.has_sgl() {
        return Err(Status::INVALID_FIELD);
    }
    if transfer == Transfer::None {
        return if capsule_bytes == 0 { Ok(Data::None) } else { Err(Status::SGL_LENGTH_INVALID) };
    }
    let sgl = Sgl::decode(submission.sgl)?;
    let bytes = sgl.bytes();
    let is_right_length = match transfer {
        Transfer::None => true,
        Transfer::ToController { least, most } => (least..=most).contains(&u64::from(bytes)),
        Transfer::ToHost(exactly) => u64::from(bytes) == exactly,
    };
    if !is_right_length {
        return Err(Status::SGL_LENGTH_INVALID);
    }
    match (sgl, transfer) {
        (Sgl::InCapsule { .. }, Transfer::ToHost(_)) => Err(Status::SGL_TYPE_INVALID),
        (Sgl::InCapsule { offset: 1.., .. }, _) => Err(Status::SGL_OFFSET_INVALID),
        (Sgl::InCapsule { .. }, _) if bytes == capsule_bytes => {
            Ok(if bytes == 0 { Data::None } else { Data::InCapsule(bytes) })
        }
        (Sgl::Transport { .. }, _) if capsule_bytes == 0 => Ok(match (transfer, bytes) {
            (_, 0) | (Transfer::None, _) => Data::None,
            (Transfer::ToController { .. }, _) => Data::Ask(bytes),
            (Transfer::ToHost(_), _) => Data::Send(bytes),
        }),
        _ => Err(Status::SGL_LENGTH_INVALID),
    }
}
