//! Which appearance of its disk each member's device is, in memory that survives a killed process.
//!
//! What must stay true: a drive that loses its power forgets what was answered and not flushed. A
//! running array sees it go. One whose process was killed does not, and the drive looks as before
//! when it is back. The kernel counts appearances of disks, so another number at the next start
//! tells. The memory is gone with the boot, after which nothing that was not flushed counts.
//!
//! A place that cannot be made, written or read says nothing: that is as safe as without one. Not
//! here: what a start makes of it (`assemble/reappeared.rs`).

use crate::written::kept::{KeptMemory, KeptPlace, place_name};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, to_u64, to_usize};
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use uuid::Uuid;

/// A member and the appearance of its device.
pub(crate) type Appearance = (Uuid, u64);

const MAGIC: &[u8; 8] = b"ASHLARAP";
/// Magic and count, then entries: a kill leaves each page as before or after.
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;
const PER_PAGE: usize = (BLOCK_BYTES_USIZE - HEAD_BYTES) / ENTRY_BYTES;

/// What the coordinator of a running array keeps.
#[derive(Default)]
pub(crate) struct Appearances {
    place: OnceCell<Arc<dyn KeptPlace>>,
    kept: RefCell<Vec<Appearance>>,
}

fn name_of(array: Uuid, incarnation: Uuid) -> String {
    format!("{}.drives", place_name(array, incarnation))
}

/// A place for so many devices.
pub(crate) fn make(
    memory: &dyn KeptMemory,
    (array, incarnation): (Uuid, Uuid),
    devices_max: usize,
) -> Option<Arc<dyn KeptPlace>> {
    let pages = to_u64(devices_max.div_ceil(PER_PAGE));
    memory.make(&name_of(array, incarnation), pages * BLOCK_BYTES).ok()
}

/// What was kept of a start.
pub(crate) fn read(
    memory: &dyn KeptMemory,
    array: Uuid,
    incarnation: Uuid,
) -> Option<Vec<Appearance>> {
    let place = memory.open(&name_of(array, incarnation)).ok()??;
    let mut bytes = vec![0; to_usize(place.bytes().ok()?)];
    place.read(0, &mut bytes).ok()?;
    let mut all = Vec::new();
    for page in bytes.chunks_exact(BLOCK_BYTES_USIZE).filter(|page| page.starts_with(MAGIC)) {
        let count = to_usize(u64_at(page, MAGIC.len())).min(PER_PAGE);
        for entry in page[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(count) {
            let uuid = Uuid::from_slice(&entry[..16]).expect("16 bytes");
            all.push((uuid, u64_at(entry, 16)));
        }
    }
    Some(all)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Appearances {
    /// Keep them there from now on.
    pub(crate) fn keep_in(&self, place: Arc<dyn KeptPlace>) {
        // A start has one place.
        let _first = self.place.set(place);
    }

    /// These are the devices in service now.
    pub(crate) fn keep(&self, now: Vec<Appearance>) {
        let Some(place) = self.place.get() else { return };
        if *self.kept.borrow() == now {
            return;
        }
        let pages = now.len().max(self.kept.borrow().len()).div_ceil(PER_PAGE);
        let mut bytes = vec![0; pages * BLOCK_BYTES_USIZE];
        let entries = now.chunks(PER_PAGE);
        for (page, entries) in bytes.chunks_exact_mut(BLOCK_BYTES_USIZE).zip(entries) {
            page[..MAGIC.len()].copy_from_slice(MAGIC);
            page[MAGIC.len()..HEAD_BYTES].copy_from_slice(&to_u64(entries.len()).to_le_bytes());
            let places = page[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES);
            for (place, (uuid, appearance)) in places.zip(entries) {
                place[..16].copy_from_slice(uuid.as_bytes());
                place[16..].copy_from_slice(&appearance.to_le_bytes());
            }
        }
        if place.write(0, &bytes).is_err() {
            // What it says may be old.
            place.forget();
        }
        *self.kept.borrow_mut() = now;
    }

    /// All is flushed: nobody asks any more.
    pub(crate) fn forget(&self) {
        self.place.get().inspect(|place| place.forget());
    }
}
