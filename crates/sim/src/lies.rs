//! Writes that a disk acknowledges and does not store as told, blocks that change by themselves,
//! and the books about such damage.
//!
//! What must stay true: every difference from the right content, in a read or on the medium, is in
//! the books. They may hold more (bytes that happen to be right anyway), never less.

use ashlar_units::{Extent, to_u64, to_usize};

use crate::state::{Change, DiskState, part};

/// The grain of the books in bytes: no write is torn into less.
pub(crate) const GRAIN_BYTES: usize = 128;

/// What becomes of a write that is acknowledged all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Nothing of it is stored.
    Lost,
    /// Its first half is stored, and inside its sectors.
    Torn,
    /// It is stored elsewhere: as far from this offset as it should be from where the lie was told
    /// about.
    Misdirected(u64),
}

/// Everything untrue about a disk.
#[derive(Clone, Default)]
pub(crate) struct Lies {
    /// What is to become of the next write that lies in each of these.
    next: Vec<(Extent, Lie)>,
    /// Pieces that are wrong as long as they are this.
    wrong: Vec<(u64, [u8; GRAIN_BYTES])>,
    told: u64,
}

impl Lies {
    pub(crate) fn about_next(&mut self, extent: Extent, lie: Lie) {
        self.next.push((extent, lie));
    }

    pub(crate) fn stop(&mut self) {
        self.next.clear();
    }

    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// The lie about this write, which is used up.
    fn take(&mut self, change: &Change) -> Option<(Extent, Lie)> {
        change.data.as_ref()?;
        let end = change.offset + change.bytes;
        let is_in =
            |(extent, _): &(Extent, Lie)| extent.offset <= change.offset && end <= extent.end();
        let at = self.next.iter().position(is_in)?;
        self.told += 1;
        Some(self.next.swap_remove(at))
    }

    /// Whether a write there is still to be lied about.
    fn is_awaited(&self, asked: Extent) -> bool {
        let overlaps = |start: u64, bytes: u64| start < asked.end() && asked.offset < start + bytes;
        self.next.iter().any(|(extent, lie)| {
            let elsewhere = match lie {
                Lie::Misdirected(to) => overlaps(*to, extent.bytes),
                Lie::Lost | Lie::Torn => false,
            };
            overlaps(extent.offset, extent.bytes) || elsewhere
        })
    }
}

impl DiskState {
    /// What of an acknowledged write is stored, and where; the books say what is wrong now.
    pub(crate) fn store_lying(&mut self, change: Change) {
        let Some((extent, lie)) = self.faults.lies.take(&change) else { return self.apply(change) };
        let (offset, wanted) = (change.offset, change.data.clone().expect("only such are taken"));
        match lie {
            Lie::Lost => {}
            Lie::Torn => {
                let grain = to_u64(GRAIN_BYTES);
                let grains = change.bytes / grain;
                self.apply(part(&change, offset / grain, grains / 2, grain));
            }
            Lie::Misdirected(to) => {
                let there = Extent::new(to + (offset - extent.offset), change.bytes);
                let before = self.seen(there);
                self.apply(Change { offset: there.offset, ..change });
                self.note_wrong(there.offset, &before);
            }
        }
        self.note_wrong(offset, &wanted);
    }

    /// Every byte of `extent` changes silently and durably.
    pub(crate) fn rot(&mut self, extent: Extent) {
        let before = self.seen(extent);
        let mut bytes = before.clone();
        for byte in &mut bytes {
            *byte ^= u8::try_from(1 + self.random.below(255)).expect("below 256");
        }
        self.content.put(extent.offset, &bytes);
        self.faults.lies.told += 1;
        self.note_wrong(extent.offset, &before);
    }

    /// Whether something in `extent` is wrong, may be after a power cut, or is to be by the next
    /// write.
    pub(crate) fn is_damaged(&self, extent: Extent) -> bool {
        let lies = &self.faults.lies;
        lies.is_awaited(extent) || lies.wrong.iter().any(|wrong| self.is_still(wrong, extent))
    }

    pub(crate) fn is_damaged_anywhere(&self) -> bool {
        let lies = &self.faults.lies;
        let all = Extent::new(0, self.options.size_bytes);
        !lies.next.is_empty() || lies.wrong.iter().any(|wrong| self.is_still(wrong, all))
    }

    fn is_still(&self, (offset, held): &(u64, [u8; GRAIN_BYTES]), within: Extent) -> bool {
        let is_within = *offset < within.end() && within.offset < offset + to_u64(GRAIN_BYTES);
        let mut found = [0; GRAIN_BYTES];
        is_within && {
            self.content.read(*offset, &mut found);
            found == *held || {
                self.content.read_durable(*offset, &mut found);
                found == *held
            }
        }
    }

    fn seen(&self, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(extent.bytes)];
        self.content.read(extent.offset, &mut bytes);
        bytes
    }

    /// These bytes should be there.
    fn note_wrong(&mut self, offset: u64, wanted: &[u8]) {
        let found = self.seen(Extent::new(offset, to_u64(wanted.len())));
        let pieces = found.chunks_exact(GRAIN_BYTES).zip(wanted.chunks_exact(GRAIN_BYTES));
        for (at, (found, wanted)) in (0..).zip(pieces) {
            if found != wanted {
                let held = found.try_into().expect("chunks of that size");
                self.faults.lies.wrong.push((offset + at * to_u64(GRAIN_BYTES), held));
            }
        }
    }
}
