//! What one image says about itself: its four superblock copies, and which of them counts.
//!
//! What must stay true: damage to copies is never worse than their absence; the choice among intact
//! copies is the one of docs/on-disk-format.md.

use crate::bytes::{Uuid, array_at, checksum, index, is_blank, u32_at, u64_at};
use crate::image::ReadAt;
use crate::superblock::{Copy, SLOT_BYTES, Superblock};
use std::collections::BTreeSet;

/// The four copies of one image.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Copies 0 to 3; `None`: those bytes cannot be read.
    pub copies: [Option<Copy>; 4],
    /// Size of the image.
    pub size_bytes: u64,
    /// Whether zeros lie where both copies at the end were.
    pub has_blank_end: bool,
    /// Its newest flush mark, and the mark which that one calls flushed; zeros: none.
    pub mark: (u64, u64),
}

impl Reading {
    /// Read the places of all four copies of each image. One that grew and whose front is damaged
    /// has copies where the others record that a member ended; what it was before it grew, and
    /// perhaps was again since, lies at the smaller of these ends.
    pub fn of_all(images: &[impl ReadAt]) -> Vec<Reading> {
        let mut readings: Vec<Reading> = images.iter().map(Reading::of).collect();
        let entries = readings.iter().filter_map(Reading::superblock).flat_map(|it| &it.entries);
        let ends: BTreeSet<u64> = entries.map(|entry| entry.member_bytes).collect();
        for (reading, image) in readings.iter_mut().zip(images) {
            for end in ends.iter().rev() {
                if reading.superblock().is_none() && *end < reading.size_bytes {
                    reading.look_at_an_end(image, *end);
                }
            }
        }
        readings
    }

    /// Read the places of all four copies.
    pub fn of(image: &impl ReadAt) -> Reading {
        let size_bytes = image.size_bytes();
        let end = size_bytes / 4096 * 4096;
        let tail = |slots: u64| end.checked_sub(slots * SLOT_BYTES);
        let mut reading = Reading {
            copies: [
                copy_at(image, Some(0)),
                copy_at(image, Some(SLOT_BYTES)),
                copy_at(image, tail(2)),
                copy_at(image, tail(1)),
            ],
            size_bytes,
            has_blank_end: false,
            mark: (0, 0),
        };
        if let Some(end) = reading.superblock().map(|superblock| superblock.member_bytes) {
            reading.look_at_an_end(image, end);
        }
        reading
    }

    fn look_at_marks(&mut self, image: &impl ReadAt) {
        let array = self.superblock().map(|superblock| superblock.array_uuid);
        self.mark = array.map_or((0, 0), |array| newest_mark(image, &array));
    }

    /// An image that grew has its tail copies where its end was.
    fn look_at_an_end(&mut self, image: &impl ReadAt, end: u64) {
        for (number, slots) in [(2, 2), (3, 1)] {
            let found = copy_at(image, end.checked_sub(slots * SLOT_BYTES));
            if matches!(&found, Some(Copy::Good(copy)) if copy.member_bytes == end) {
                self.copies[number] = found;
            }
        }
        self.has_blank_end = [2, 1].iter().all(|slots| {
            let mut block = [0; 4096];
            let at = end.checked_sub(slots * SLOT_BYTES);
            at.is_some_and(|at| image.read_at(at, &mut block).is_ok()) && is_blank(&block)
        });
        self.look_at_marks(image);
    }

    fn good(&self) -> impl Iterator<Item = &Superblock> {
        self.copies.iter().filter_map(|copy| match copy {
            Some(Copy::Good(superblock)) => Some(superblock.as_ref()),
            _ => None,
        })
    }

    /// How many copies are intact and say what the chosen one says.
    pub fn intact_copies(&self) -> usize {
        let chosen = self.superblock();
        self.good().filter(|copy| Some(*copy) == chosen).count()
    }

    /// Whether one of the copies at the front is intact: then nobody overwrote the areas behind
    /// them blindly.
    pub fn has_head(&self) -> bool {
        self.copies[..2].iter().any(|copy| matches!(copy, Some(Copy::Good(_))))
    }

    /// Whether one of these copies is intact and this member's own, or may be: it cannot be read.
    pub fn may_have_own(&self, copies: [usize; 2]) -> bool {
        let name = |copy: &Superblock| -> (Uuid, Uuid) { (copy.array_uuid, copy.member_uuid) };
        let own = self.superblock().map(name);
        copies.iter().any(|number| match &self.copies[*number] {
            Some(Copy::Good(copy)) => Some(name(copy)) == own,
            Some(_) => false,
            None => true,
        })
    }

    /// The copy that counts: of the array and member that most copies name (the one of the lowest
    /// copy on a tie), the one with the highest generation.
    pub fn superblock(&self) -> Option<&Superblock> {
        let name = |copy: &Superblock| -> (Uuid, Uuid) { (copy.array_uuid, copy.member_uuid) };
        let votes = |wanted: &Superblock| self.good().filter(|c| name(c) == name(wanted)).count();
        let most = self.good().map(votes).max()?;
        let winner = name(self.good().find(|copy| votes(copy) == most)?);
        let highest = self.good().filter(|copy| name(copy) == winner).map(|copy| copy.generation);
        let highest = highest.max()?;
        self.good().find(|copy| name(copy) == winner && copy.generation == highest)
    }

    /// Why there is no superblock, in plain words.
    pub fn lacks(&self) -> &'static str {
        let any = |wanted: fn(&Copy) -> bool| self.copies.iter().flatten().any(wanted);
        if any(|copy| matches!(copy, Copy::Newer)) {
            "written by a newer version of this program"
        } else if any(|copy| matches!(copy, Copy::Spare)) {
            "a spare without data"
        } else if any(|copy| matches!(copy, Copy::Damaged(_))) {
            "all copies of its superblock are damaged"
        } else if self.copies.iter().all(Option::is_none) {
            "cannot be read"
        } else {
            "no superblock of an array"
        }
    }
}

/// The newest of the two flush marks of an array; zeros if there is none.
fn newest_mark(image: &impl ReadAt, array: &Uuid) -> (u64, u64) {
    let marks = [136 << 10, 140 << 10].into_iter().filter_map(|offset| {
        let mut block = vec![0; 4096];
        image.read_at(offset, &mut block).ok()?;
        let is_mark = block.starts_with(b"ASHLARFM")
            && u32_at(&block, 8) == checksum(&block, 8)
            && u32_at(&block, 12) == 1
            && array_at(&block, 16) == *array
            && is_blank(&block[64..]);
        let mark = (u64_at(&block, 48), u64_at(&block, 56));
        (is_mark && mark.0 < 1 << 40 && mark.1 < mark.0).then_some(mark)
    });
    marks.max().unwrap_or((0, 0))
}

/// The copy at `offset`. A superblock near the end of a truncated image may be shorter than its
/// slot.
fn copy_at(image: &impl ReadAt, offset: Option<u64>) -> Option<Copy> {
    let offset = offset?;
    let mut slot = vec![0; index(SLOT_BYTES)];
    for length in [SLOT_BYTES, SLOT_BYTES / 4, 8192, 4096] {
        let part = &mut slot[..index(length)];
        if image.read_at(offset, part).is_ok() {
            return Some(Copy::decode(part));
        }
    }
    None
}
