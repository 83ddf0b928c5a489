//! The devices of slots as one worker holds them.

use ashlar_device::Device;
use ashlar_ondisk::{MemberEntry, Superblock};
use std::rc::Rc;

/// The devices of one slot.
#[derive(Clone, Default)]
pub(crate) struct SlotDevices {
    /// What fills the slot.
    pub(crate) current: Option<SlotDevice>,
    /// What is being filled to take its place.
    pub(crate) replacement: Option<SlotDevice>,
}

/// A device in a slot, and what the array calls it.
#[derive(Clone)]
pub(crate) struct SlotDevice {
    pub(crate) device: Rc<dyn Device>,
    pub(crate) tags: Tags,
}

/// What the array calls a device, where eight bytes must do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tags {
    /// In the stripe intent log.
    pub(crate) log: u64,
    /// In pages of the write-intent bitmap and of the written map that lie on it.
    pub(crate) pages: u64,
}

impl Tags {
    /// Those of the member of `entry`.
    pub(crate) fn of(superblock: &Superblock, entry: &MemberEntry) -> Tags {
        Tags { log: entry.log_tag, pages: superblock.page_tag(entry.uuid) }
    }
}
