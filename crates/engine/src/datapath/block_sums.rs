//! Checksums in the short way of one block: the same steps as the general path's, with fewer looks
//! into tables.
//!
//! What must stay true: the pages of all blocks that will be stored are held before the update is
//! recorded. No parity is computed from a block that is not what was written there.

use super::block::{StripPlaces, strips};
use super::gather::NotRead;
use crate::blame::read_failed;
use crate::canary::{Canary, sings};
use crate::checksums;
use crate::checksums::pins::{Noted, Pins, pin};
use crate::local_array::LocalArray;
use crate::slot::MemberDevice;
use ashlar_iobuf::Buf;
use ashlar_layout::{BlockUpdate, StripIo, Stripe};
use ashlar_units::BLOCK_BYTES;
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// The pages of the update's blocks on every device that will store them.
///
/// # Errors
/// As [`pin`].
pub(super) async fn hold(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    update: BlockUpdate,
    places: &StripPlaces,
) -> Result<Option<Pins>, VolumeErrorKind> {
    match held_at_once(local, places) {
        Some(pins) => Ok(Some(pins)),
        None => {
            let ios = strips(update).map(|strip| StripIo { strip, rows: update.rows });
            Box::pin(pin(local, stripe, ios)).await
        }
    }
}

/// The same, where blocks are stored where they are read and nowhere else, and the pages are in
/// memory.
fn held_at_once(local: &LocalArray, places: &StripPlaces) -> Option<Pins> {
    if local.array.spare_cells.is_some() || local.has_replacements() {
        return None;
    }
    let mut pins = Pins::default();
    for (member, offset) in places.iter().flatten() {
        let device_epoch = local.device_epochs(*member).0;
        let owner = MemberDevice { member: *member, device_epoch };
        pins.hold(&local.array, owner, block_at(local, *offset))?;
    }
    Some(pins)
}

/// The number of the block at this offset of a member in its data area.
fn block_at(local: &LocalArray, offset: u64) -> u64 {
    (offset - local.array.data_offset) / BLOCK_BYTES
}

/// Whether a block that was read is what was written there.
///
/// # Errors
/// It is not, or its device cannot say.
pub(super) async fn prove(
    local: &Rc<LocalArray>,
    pins: &Pins,
    owner: MemberDevice,
    offset: u64,
    block: &[u8],
) -> Result<(), NotRead> {
    let number = block_at(local, offset);
    let is_right = match pins.is_right(owner, number, block) {
        Some(is_right) => Ok(is_right),
        // Another device has come into the slot since, or strips lie elsewhere.
        None => Box::pin(checksums::is_right(local, owner, number, block)).await,
    };
    match is_right {
        Ok(is_right) if is_right || sings(Canary::GatherUnverified) => Ok(()),
        Ok(_) => Err(NotRead::Broken),
        Err(fault) => {
            read_failed(local, owner, fault);
            Err(NotRead::Failed)
        }
    }
}

/// The block was stored at this offset of its device.
#[inline]
pub(super) fn note(local: &LocalArray, pins: &Pins, owner: MemberDevice, offset: u64, block: &Buf) {
    pins.note(&local.array, &Noted::new(owner, block_at(local, offset), block.clone()));
}
