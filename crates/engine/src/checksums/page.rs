//! The checksums of one page of one device, in memory.
//!
//! What must stay true: a change is dirty until a flush round has taken it. A page that is dirty or
//! held stays in memory.

use crate::slot::MemberDevice;
use ashlar_ondisk::checksums::{SUMS_PER_PAGE, Sums, UNKNOWN};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The identity of a page: its device and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) member: u16,
    pub(crate) device_epoch: u32,
    pub(crate) page: u32,
}

impl Key {
    pub(crate) fn new(owner: MemberDevice, page: u32) -> Key {
        Key { member: owner.member.0, device_epoch: owner.device_epoch.0, page }
    }

    pub(crate) fn owner(self) -> MemberDevice {
        MemberDevice {
            member: ashlar_units::MemberIdx(self.member),
            device_epoch: crate::slot::DeviceEpoch(self.device_epoch),
        }
    }
}

/// As one word: page and member differ in most tables, device epochs hardly ever.
impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let device = u64::from(self.member) ^ u64::from(self.device_epoch).rotate_left(16);
        state.write_u64(u64::from(self.page) ^ device.rotate_left(32));
    }
}

/// One page.
pub(crate) struct Page {
    pub(crate) key: Key,
    sums: Box<[AtomicU32]>,
    is_dirty: AtomicBool,
    /// Somebody asked for it since the cache last looked for a page to let go.
    pub(crate) was_used: AtomicBool,
    /// Which of its places on the device is written next: 0 or 1.
    next_place: AtomicU8,
    /// There if the media did not give back its other place, which may be the newer one: of each
    /// entry, whether it was set since. A block that does not match one that was not may be right
    /// all the same.
    set_since: Option<Box<[AtomicBool]>>,
}

impl Page {
    /// What was found on the device, in which place; `None` if neither place can be used: nothing
    /// is known.
    pub(crate) fn new(key: Key, found: Option<(&Sums, u64)>) -> Page {
        let (sums, next) = match found {
            Some((sums, place)) => {
                (sums.iter().map(|sum| AtomicU32::new(*sum)).collect(), 1 - place)
            }
            None => ((0..SUMS_PER_PAGE).map(|_| AtomicU32::new(UNKNOWN)).collect(), 0),
        };
        Page {
            key,
            sums,
            is_dirty: AtomicBool::new(false),
            was_used: AtomicBool::new(true),
            next_place: AtomicU8::new(u8::try_from(next).expect("0 or 1")),
            set_since: None,
        }
    }

    /// The same, if the media did not give back the other place.
    pub(crate) fn beside_an_unread_one(self) -> Page {
        let set_since = (0..SUMS_PER_PAGE).map(|_| AtomicBool::new(false)).collect();
        Page { set_since: Some(set_since), ..self }
    }

    /// Whether a newer page may have been there, which said something else of this entry.
    pub(crate) fn may_be_old(&self, entry: usize) -> bool {
        self.set_since.as_ref().is_some_and(|since| !since[entry].load(Ordering::Acquire))
    }

    /// The checksum of an entry.
    pub(crate) fn sum(&self, entry: usize) -> u32 {
        self.sums[entry].load(Ordering::Acquire)
    }

    /// The block of this entry has that checksum from now on. The caller says that the page is
    /// dirty.
    pub(crate) fn set(&self, entry: usize, sum: u32) {
        self.sums[entry].store(sum, Ordering::Release);
        if let Some(since) = &self.set_since {
            since[entry].store(true, Ordering::Release);
        }
    }

    /// It waits to be stored; true if it did not before. To be called after the change.
    pub(crate) fn mark_dirty(&self) -> bool {
        !self.is_dirty.swap(true, Ordering::AcqRel)
    }

    /// The checksums as they are to be stored; the page counts as stored from now on.
    pub(crate) fn take(&self) -> Sums {
        self.is_dirty.swap(false, Ordering::AcqRel);
        std::array::from_fn(|entry| self.sum(entry))
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Acquire)
    }

    /// The place that is written next.
    pub(crate) fn next_place(&self) -> u64 {
        self.next_place.load(Ordering::Acquire).into()
    }

    /// It was stored, durably: next time its other place is written.
    pub(crate) fn turn(&self) {
        self.next_place.fetch_xor(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Page};
    use ashlar_ondisk::checksums::SUMS_PER_PAGE;

    #[test]
    fn only_what_was_not_set_since_may_be_old() {
        let key = Key { member: 0, device_epoch: 0, page: 0 };
        let whole = Page::new(key, Some((&[7; SUMS_PER_PAGE], 0)));
        assert!(!whole.may_be_old(3));
        let page = whole.beside_an_unread_one();
        page.set(3, 8);
        assert_eq!((page.sum(3), page.may_be_old(3)), (8, false));
        assert_eq!((page.sum(4), page.may_be_old(4)), (7, true));
    }
}
