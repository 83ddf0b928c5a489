//! Secrets as operators write them, `DHHC-1:hh:base64:`, and the keys that are made from them.
//!
//! What must stay true: a secret is never printed; one with a wrong checksum is refused, so a
//! typing error is told early. Base 2.0, 8.13.5.8 "Secret representation" and 8.13.5.7
//! "DH-HMAC-CHAP Security Requirements".

use crate::nqn::Nqn;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::fmt;
use std::str::FromStr;

/// A hash function of the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// All of them, the strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// Its code in messages and secrets.
    pub fn code(self) -> u8 {
        match self {
            Hash::Sha256 => 1,
            Hash::Sha384 => 2,
            Hash::Sha512 => 3,
        }
    }

    /// The hash of this code.
    pub fn from_code(code: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.code() == code)
    }

    /// Length of its values, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// The hash of some bytes.
    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// HMAC of `parts`, one after the other.
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Hash::Sha256 => hmac::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => hmac::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => hmac::<Hmac<Sha512>>(key, parts),
        }
    }

    /// Whether `value` is the HMAC of `parts`; takes as long whichever byte differs.
    pub fn is_hmac(self, key: &[u8], parts: &[&[u8]], value: &[u8]) -> bool {
        match self {
            Hash::Sha256 => is_hmac::<Hmac<Sha256>>(key, parts, value),
            Hash::Sha384 => is_hmac::<Hmac<Sha384>>(key, parts, value),
            Hash::Sha512 => is_hmac::<Hmac<Sha512>>(key, parts, value),
        }
    }
}

fn fed<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as hmac::digest::KeyInit>::new_from_slice(key).expect("HMAC takes every key");
    for part in parts {
        mac.update(part);
    }
    mac
}

fn hmac<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    fed::<M>(key, parts).finalize().into_bytes().to_vec()
}

fn is_hmac<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]], value: &[u8]) -> bool {
    fed::<M>(key, parts).verify_slice(value).is_ok()
}

/// A secret that a host or a controller shares with the other side.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// How the key is made from it; `None`: it is the key.
    transform: Option<Hash>,
    bytes: Vec<u8>,
}

/// Why text is not a secret. Never says the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotASecret {
    /// Another shape.
    #[error("a secret looks like DHHC-1:01:...: as nvme gen-dhchap-key prints it")]
    Shape,
    /// An unknown transformation.
    #[error("the hash of a DHHC-1 secret is 00, 01, 02 or 03")]
    Hash,
    /// Not 32, 48 or 64 bytes, or not as many as its hash has.
    #[error("a DHHC-1 secret has 32, 48 or 64 bytes, as many as its hash")]
    Length,
    /// The checksum in it does not fit.
    #[error("the checksum of the secret does not fit: it was not copied whole")]
    Checksum,
}

impl FromStr for Secret {
    type Err = NotASecret;

    fn from_str(text: &str) -> Result<Secret, NotASecret> {
        let rest = text.trim().strip_prefix("DHHC-1:").ok_or(NotASecret::Shape)?;
        let (hash, rest) = rest.split_once(':').ok_or(NotASecret::Shape)?;
        let encoded = rest.strip_suffix(':').ok_or(NotASecret::Shape)?;
        let transform = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(NotASecret::Hash),
        };
        let mut bytes = base64(encoded).ok_or(NotASecret::Shape)?;
        let checksum = bytes.len().checked_sub(4).map(|at| bytes.split_off(at));
        let checksum = checksum.ok_or(NotASecret::Length)?;
        let is_right_length = match transform {
            None => matches!(bytes.len(), 32 | 48 | 64),
            Some(hash) => bytes.len() == hash.bytes(),
        };
        if !is_right_length {
            return Err(NotASecret::Length);
        }
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &bytes);
        if sum.to_le_bytes()[..4] != checksum[..] {
            return Err(NotASecret::Checksum);
        }
        Ok(Secret { transform, bytes })
    }
}

impl Secret {
    /// The key by which the side called `nqn` proves itself.
    pub fn key_of(&self, nqn: &Nqn) -> Vec<u8> {
        match self.transform {
            None => self.bytes.clone(),
            Some(hash) => hash.hmac(&self.bytes, &[nqn.as_str().as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Standard base64 with its padding; `None` if it is not.
fn base64(text: &str) -> Option<Vec<u8>> {
    let symbols = text.trim_end_matches('=');
    let padding = text.len() - symbols.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for symbol in symbols.bytes() {
        bits = bits << 6 | u32::from(value_of(symbol)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            let [_, _, _, byte] = (bits >> count & 0xff).to_be_bytes();
            bytes.push(byte);
        }
        bits &= (1 << count) - 1;
    }
    (bits == 0).then_some(bytes)
}

fn value_of(symbol: u8) -> Option<u8> {
    Some(match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
