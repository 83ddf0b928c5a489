//! What a write puts into a unit, and which write a unit's data comes from.
//!
//! What must stay true: no two writes put the same bytes into any unit, except zeros. Content
//! depends on the unit and the write alone.

use crate::config::Payload;
use ashlar_sim::Random;
use std::fmt;

/// Number of a write: counts up, the low four bits are the client. 0 is nobody: zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WriteId(pub u64);

impl WriteId {
    /// The client that wrote.
    pub fn client(self) -> u64 {
        self.0 & 15
    }
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {} (client {})", self.0, self.client())
    }
}

/// Fill `target` with what write `id` puts into unit `unit`.
pub fn fill(payload: Payload, unit: u64, id: WriteId, target: &mut [u8]) {
    match payload {
        Payload::Tags => {
            let tag = tag(unit, id);
            let (parts, rest) = target.as_chunks_mut::<16>();
            parts.fill(tag);
            rest.copy_from_slice(&tag[..rest.len()]);
        }
        Payload::Random => Random::stream(id.0, unit).fill(target),
    }
}

/// Whether `bytes` are what write `id` puts into unit `unit`.
pub fn is_of(payload: Payload, unit: u64, id: WriteId, bytes: &[u8]) -> bool {
    match payload {
        Payload::Tags => {
            let tag = tag(unit, id);
            let (parts, rest) = bytes.as_chunks::<16>();
            parts.iter().all(|part| *part == tag) && rest == &tag[..rest.len()]
        }
        Payload::Random => {
            let mut random = Random::stream(id.0, unit);
            bytes.chunks(8).all(|part| part == &random.next_u64().to_le_bytes()[..part.len()])
        }
    }
}

/// Whether all of it is zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (groups, rest) = bytes.as_chunks::<32>();
    groups.iter().all(|group| *group == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

/// What the bytes look like, for a person.
pub fn describe(payload: Payload, bytes: &[u8]) -> String {
    if is_zero(bytes) {
        return "zeros".to_owned();
    }
    if payload == Payload::Random {
        return format!("{:02x?}...", &bytes[..bytes.len().min(16)]);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let mut runs: Vec<String> = Vec::new();
    let mut last = None;
    for at in (0..bytes.len()).step_by(16) {
        let found = (word(at), word(at + 8));
        if last.replace(found) == Some(found) {
            continue;
        }
        runs.push(match found {
            (0, 0) => format!("zeros from byte {at}"),
            (unit, id) if unit < 1 << 32 && id < 1 << 32 => {
                format!("{} for unit {unit} from byte {at}", WriteId(id))
            }
            _ => format!("garbage from byte {at}"),
        });
        if runs.len() == 8 {
            runs.push("...".to_owned());
            break;
        }
    }
    runs.join(", ")
}

fn tag(unit: u64, id: WriteId) -> [u8; 16] {
    let mut tag = [0; 16];
    tag[..8].copy_from_slice(&unit.to_le_bytes());
    tag[8..].copy_from_slice(&id.0.to_le_bytes());
    tag
}

#[cfg(test)]
mod tests {
    use super::{WriteId, describe, fill, is_of};
    use crate::config::Payload;

    #[test]
    fn content_tells_its_write_and_its_unit() {
        for payload in [Payload::Tags, Payload::Random] {
            let mut bytes = [0; 512];
            fill(payload, 7, WriteId(33), &mut bytes);
            assert!(is_of(payload, 7, WriteId(33), &bytes));
            assert!(!is_of(payload, 8, WriteId(33), &bytes));
            assert!(!is_of(payload, 7, WriteId(34), &bytes));
            bytes[511] ^= 1;
            assert!(!is_of(payload, 7, WriteId(33), &bytes));
        }
    }

    #[test]
    fn a_mix_of_two_writes_is_described_as_one() {
        let mut bytes = [0; 64];
        fill(Payload::Tags, 1, WriteId(18), &mut bytes[..32]);
        fill(Payload::Tags, 2, WriteId(35), &mut bytes[32..48]);
        let said = describe(Payload::Tags, &bytes);
        let wanted = "write 18 (client 2) for unit 1 from byte 0, \
                      write 35 (client 3) for unit 2 from byte 32, zeros from byte 48";
        assert_eq!(said, wanted);
    }
}
