//! The state of a namespace's reservations as bytes that outlive the process.
//!
//! What must stay true: bytes that were written here are read back as they were; others are
//! refused, never half believed. Layout, all little-endian: magic `ASHLRSV1`; NGUID (16); GEN (4);
//! persists (1); RTYPE or 0 (1); registrants (2); holder (16); for each registrant host (16) and
//! key (8); CRC-32C of all before it (4).

use super::access::ReservationType;
use super::state::{Held, REGISTRANTS_MAX, Registrant, Reservations};
use crate::digest::{DIGEST_BYTES, digest};
use crate::nqn::HostId;

const MAGIC: &[u8; 8] = b"ASHLRSV1";
const HEAD_BYTES: usize = 48;
const REGISTRANT_BYTES: usize = 24;

/// No state is longer, in bytes.
pub const RESERVATION_BYTES_MAX: usize =
    HEAD_BYTES + REGISTRANTS_MAX * REGISTRANT_BYTES + DIGEST_BYTES;

/// Why bytes are not the reservations of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReservations {
    /// They do not begin as they must, or are shorter or longer than they say.
    #[error("they are not reservations of this version")]
    Shape,
    /// The checksum does not fit.
    #[error("their checksum does not fit")]
    Checksum,
    /// They are of another namespace.
    #[error("they are of another namespace")]
    Namespace,
    /// They cannot be: a holder that is not registered, a host twice, a key of 0.
    #[error("they contradict themselves")]
    Contradiction,
}

impl Reservations {
    /// The state of the namespace with this NGUID.
    pub fn to_bytes(&self, nguid: &[u8; 16]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(nguid);
        bytes.extend(self.generation.to_le_bytes());
        bytes.push(u8::from(self.persists));
        bytes.push(self.held.map_or(0, |held| held.kind.code()));
        bytes.extend(u16::try_from(self.registrants.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(self.held.map_or([0; 16], |held| held.holder.0));
        for registrant in &self.registrants {
            bytes.extend(registrant.host.0);
            bytes.extend(registrant.key.to_le_bytes());
        }
        let sum = digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// Read back what [`Reservations::to_bytes`] wrote for the namespace with this NGUID.
    ///
    /// # Errors
    /// [`NotReservations`].
    pub fn from_bytes(bytes: &[u8], nguid: &[u8; 16]) -> Result<Reservations, NotReservations> {
        let split = bytes.len().checked_sub(DIGEST_BYTES).ok_or(NotReservations::Shape)?;
        let (body, sum) = bytes.split_at(split);
        let (head, rest) = body.split_at_checked(HEAD_BYTES).ok_or(NotReservations::Shape)?;
        let count = usize::from(u16::from_le_bytes([head[30], head[31]]));
        let is_ours = head.starts_with(MAGIC) && rest.len() == count * REGISTRANT_BYTES;
        if !is_ours || count > REGISTRANTS_MAX {
            return Err(NotReservations::Shape);
        }
        if digest(body) != sum {
            return Err(NotReservations::Checksum);
        }
        if head[8..24] != nguid[..] {
            return Err(NotReservations::Namespace);
        }
        let registrants = rest.chunks_exact(REGISTRANT_BYTES).map(registrant).collect();
        let holder = HostId(<[u8; 16]>::try_from(&head[32..48]).unwrap_or_default());
        let held = match head[29] {
            0 => None,
            code => {
                let kind =
                    ReservationType::from_code(code).ok_or(NotReservations::Contradiction)?;
                Some(Held { kind, holder })
            }
        };
        let generation = u32::from_le_bytes([head[24], head[25], head[26], head[27]]);
        let state = Reservations { registrants, held, generation, persists: head[28] == 1 };
        if state.is_consistent() { Ok(state) } else { Err(NotReservations::Contradiction) }
    }

    /// Whether what must stay true of this state holds.
    pub fn is_consistent(&self) -> bool {
        let is_registered = |host: HostId| self.registrants.iter().any(|it| it.host == host);
        let is_single = |at: usize| {
            let host = self.registrants[at].host;
            !self.registrants[..at].iter().any(|it| it.host == host)
        };
        self.registrants.len() <= REGISTRANTS_MAX
            && self.held.is_none_or(|held| is_registered(held.holder))
            && self.registrants.iter().all(|it| it.key != 0 && it.host.is_set())
            && (0..self.registrants.len()).all(is_single)
    }
}

fn registrant(bytes: &[u8]) -> Registrant {
    let host = <[u8; 16]>::try_from(&bytes[..16]).unwrap_or_default();
    let key = <[u8; 8]>::try_from(&bytes[16..]).unwrap_or_default();
    Registrant { host: HostId(host), key: u64::from_le_bytes(key) }
}
