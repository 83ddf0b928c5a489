//! Pages that a host reads after an asynchronous event: which namespaces changed, and what happened
//! to reservations.
//!
//! What must stay true: both are bounded; reading a page empties what it showed; a list that
//! overflowed says so. Base 2.0, 5.16.1.5 and 5.16.1.25.

use std::collections::{BTreeSet, VecDeque};

/// Namespaces that changed since the page was last read.
#[derive(Clone, Debug, Default)]
pub struct ChangedNamespaces {
    ids: BTreeSet<u32>,
    has_overflowed: bool,
}

/// Entries of the list: 1,024 in 4 KiB.
const CHANGED_MAX: usize = 1024;

impl ChangedNamespaces {
    /// Namespace `id` changed.
    pub fn add(&mut self, id: u32) {
        if self.ids.len() < CHANGED_MAX || self.ids.contains(&id) {
            self.ids.insert(id);
        } else {
            self.has_overflowed = true;
        }
    }

    /// Whether the page would say anything.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The page.
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; CHANGED_MAX * 4];
        if self.has_overflowed {
            page[..4].fill(0xff);
            return page;
        }
        for (entry, id) in page.chunks_exact_mut(4).zip(&self.ids) {
            entry.copy_from_slice(&id.to_le_bytes());
        }
        page
    }

    /// The page was read.
    pub fn clear(&mut self) {
        *self = ChangedNamespaces::default();
    }
}

/// What happened to a host's registration, or to a reservation of a namespace where it is
/// registered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ReservationNoticeKind {
    /// Another host ended this host's registration.
    RegistrationPreempted,
    /// The holder gave the reservation up.
    ReservationReleased,
    /// Another host took or ended the reservation.
    ReservationPreempted,
}

impl ReservationNoticeKind {
    /// The code in the page, and the bit of the Reservation Notification Mask.
    pub fn code(self) -> u8 {
        match self {
            ReservationNoticeKind::RegistrationPreempted => 1,
            ReservationNoticeKind::ReservationReleased => 2,
            ReservationNoticeKind::ReservationPreempted => 3,
        }
    }

    /// Whether this mask keeps it from being told.
    pub fn is_masked(self, mask: u32) -> bool {
        mask & 1 << self.code() != 0
    }
}

/// One notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationNotice {
    /// NSID.
    pub namespace: u32,
    /// What happened.
    pub kind: ReservationNoticeKind,
}

/// Notices that wait to be read, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ReservationNotices {
    waiting: VecDeque<ReservationNotice>,
    /// LPC: pages that there ever were.
    pages: u64,
}

/// Notices that wait at most; more push the oldest out, and the count shows it.
const NOTICES_MAX: usize = 255;

impl ReservationNotices {
    /// Something happened.
    pub fn add(&mut self, notice: ReservationNotice) {
        if self.waiting.len() == NOTICES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(notice);
        self.pages = self.pages.wrapping_add(1).max(1);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The page of the oldest notice; empty if there is none.
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; 64];
        let Some(notice) = self.waiting.front() else { return page };
        let behind = self.waiting.len() - 1;
        let count = self.pages.wrapping_sub(u64::try_from(behind).unwrap_or(0));
        page[..8].copy_from_slice(&count.to_le_bytes());
        page[8] = notice.kind.code();
        page[9] = u8::try_from(behind).unwrap_or(u8::MAX);
        page[12..16].copy_from_slice(&notice.namespace.to_le_bytes());
        page
    }

    /// The page was read.
    pub fn pop(&mut self) {
        self.waiting.pop_front();
    }
}
