//! A guest's memory and rings as bytes: what a chain of descriptors and its request come to. All
//! of a frontend as bytes: `frontend`.
//!
//! What must stay true: whatever the bytes are, nothing panics and nothing runs for ever; spans lie
//! within the memory and are not empty; a request that is admitted fits the volume.

mod frontend;

pub use frontend::{Heard, MEMORY_BYTES, hear, step};

use crate::chain::{Chain, DESCRIPTOR_BYTES, Fault, GuestBytes, Table};
use crate::request::{Status, VhostRequest};
use crate::spans;
use ashlar_units::{Extent, to_u64};
use ashlar_volume::{MemVolume, Volume, VolumeFacts};

/// How far a request came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// The device is broken.
    Broken(Fault),
    /// It has a status.
    Refused,
    /// It would be carried out.
    Admitted,
}

/// Where a guest has its memory.
pub const MEMORY_AT: u64 = 0x1_0000;
/// Entries of the ring whose table begins the memory.
pub const ENTRIES: u16 = 16;

/// Memory that is all there is, from [`MEMORY_AT`] on.
struct Plain<'a>(&'a [u8]);

impl GuestBytes for Plain<'_> {
    fn load(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let from = usize::try_from(at.checked_sub(MEMORY_AT)?).ok()?;
        let end = from.checked_add(into.len())?;
        into.copy_from_slice(self.0.get(from..end)?);
        Some(())
    }

    fn holds(&self, at: u64, bytes: u64) -> bool {
        let from = at.checked_sub(MEMORY_AT);
        let end = from.and_then(|from| from.checked_add(bytes));
        end.is_some_and(|end| end <= to_u64(self.0.len()))
    }
}

fn facts() -> VolumeFacts {
    let facts = MemVolume::new("disk", 1 << 20).facts();
    VolumeFacts { logical_block_bytes: 4096, ..facts }
}

/// Meet a request. The first byte says where it begins; the others are the guest's memory, which
/// begins with the table of its ring.
///
/// # Panics
/// If something that must stay true does not.
pub fn meet(input: &[u8]) -> Met {
    let Some((head, memory)) = input.split_first() else { return Met::Refused };
    let memory = Plain(memory);
    let table = Table { at: MEMORY_AT, entries: ENTRIES, may_be_indirect: head & 0x80 == 0 };
    let mut chain = Chain::default();
    let gathered = chain.gather(&memory, table, u16::from(head & 0x7f));
    for span in chain.readable.iter().chain(&chain.writable) {
        assert!(span.bytes > 0 && memory.holds(span.at, span.bytes), "{span:?}");
    }
    let most = usize::from(crate::chain::CHAIN_MAX);
    assert!(chain.readable.len() + chain.writable.len() <= most);
    let parts = gathered.and_then(|()| spans::take_apart(&memory, &chain));
    let parts = match parts {
        Ok(parts) => parts,
        Err(fault) => return Met::Broken(fault),
    };
    assert!(memory.holds(parts.status_at, 1));
    match parts.asked.admit(&facts()) {
        Err(Status::Done) => panic!("refused as done"),
        Err(Status::Failed | Status::Unsupported) => Met::Refused,
        Ok(request) => {
            check(&memory, &chain, request);
            Met::Admitted
        }
    }
}

/// Whether the request can be carried out as it was admitted.
fn check(memory: &Plain<'_>, chain: &Chain, request: VhostRequest) {
    let fits = |extent: Extent| assert!(facts().covers(extent) && extent.bytes > 0, "{extent:?}");
    match request {
        VhostRequest::Read(extent) => {
            fits(extent);
            assert_eq!(chain.writable_bytes(), extent.bytes + 1);
        }
        VhostRequest::Write(extent) => {
            fits(extent);
            let bytes = usize::try_from(extent.bytes).expect("within a small volume");
            let mut payload = vec![0; bytes];
            let loaded = spans::load(memory, &chain.readable, 16, &mut payload);
            assert_eq!(loaded, Ok(()));
        }
        VhostRequest::Discard(extent) | VhostRequest::WriteZeroes { extent, .. } => fits(extent),
        VhostRequest::Flush | VhostRequest::Identify => {}
    }
}

/// A descriptor as a guest writes it: address, length, flags, next.
pub fn descriptor(at: u64, bytes: u32, (flags, next): (u16, u16)) -> [u8; DESCRIPTOR_BYTES] {
    let mut out = [0; DESCRIPTOR_BYTES];
    out[..8].copy_from_slice(&at.to_le_bytes());
    out[8..12].copy_from_slice(&bytes.to_le_bytes());
    out[12..14].copy_from_slice(&flags.to_le_bytes());
    out[14..].copy_from_slice(&next.to_le_bytes());
    out
}
