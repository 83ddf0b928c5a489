//! Checksums of data blocks, by the rules of docs/on-disk-format.md (Checksum table).
//! docs/adr/0013-checksums-of-blocks.md has the reasons.
//!
//! - here       compares a block with its checksum
//! - `page`     the checksums of some thousand blocks of one device, in memory
//! - `cache`    which pages are in memory, and how they come and go
//! - `pins`     keeps the pages of a write in memory, and updates them
//! - `load`     brings pages into memory
//! - `table`    where they lie
//!
//! Not here: changed pages go to the members (`coordinator/checksum_pages.rs`), wrong blocks are
//! decoded and stored anew (`datapath/heal.rs`).
//!
//! What must stay true:
//! - A checksum is set only after the block's record is durable in the log, and before its update
//!   ends. (Or the block does not count before the next flush round.) So after a crash, all entries
//!   of the table are right except those that the log sets again.
//! - A block that does not match is never decoded from, never computed with and never handed out. A
//!   block that was read without the rows' lock may cross a write. It is only suspected, and read
//!   again under the lock.
//! - A device is known here by its slot and device epoch: facts about one device never count
//!   against the next.

pub(crate) mod cache;
pub(crate) mod load;
pub(crate) mod page;
pub(crate) mod pins;
pub(crate) mod table;

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::checksums::page::Key;
use crate::local_array::LocalArray;
use crate::slot::MemberDevice;
use ashlar_device::Fault;
use ashlar_layout::{Place, Stripe};
use ashlar_ondisk::checksums::{UNKNOWN, block_sum, locate};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, MemberIdx, StripIdx, to_u64};
use page::Page;
use std::rc::Rc;
use std::sync::Arc;

/// What a block's checksum says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    Right,
    Wrong,
    /// No checksum is known.
    Unknown,
}

/// Whether there are too many changed pages in memory, so that they should be stored before more
/// change.
pub(crate) fn are_mostly_dirty(array: &Array) -> bool {
    array.checksums.as_ref().is_some_and(|sums| sums.cache.is_mostly_dirty())
}

/// The number of the block in the member's data area at which a row of a strip lies.
pub(crate) fn block_of(array: &Array, stripe: Stripe, strip: StripIdx, row: u32) -> u64 {
    (array.device_offset(stripe, strip, row) - array.data_offset) / BLOCK_BYTES
}

/// The same for a place.
pub(crate) fn block_in(array: &Array, place: Place, row: u32) -> u64 {
    (array.offset_of(place, row) - array.data_offset) / BLOCK_BYTES
}

/// Whether `bytes`, read from the device at this block of its data area and on, are what was
/// written there; always, if the array keeps no checksums.
///
/// # Errors
/// The device's fault, if the checksums could not be read.
pub(crate) async fn is_right(
    local: &Rc<LocalArray>,
    owner: MemberDevice,
    first_block: u64,
    bytes: &[u8],
) -> Result<bool, Fault> {
    if let Some(is_right) = is_right_at_once(&local.array, owner, first_block, bytes) {
        return Ok(is_right);
    }
    // Boxed: rare, and it would make every read's future larger.
    let pages = Box::pin(pages_of(local, owner, first_block, bytes)).await?;
    let find = |key: Key| pages.iter().find(|page| page.key == key).map(Arc::clone);
    Ok(are_right(owner, first_block, bytes, find) == Some(true))
}

/// The same, if the checksums are in memory.
pub(crate) fn is_right_at_once(
    array: &Array,
    owner: MemberDevice,
    first_block: u64,
    bytes: &[u8],
) -> Option<bool> {
    let Some(sums) = &array.checksums else { return Some(true) };
    are_right(owner, first_block, bytes, |key| sums.cache.get(key))
}

/// Whether the blocks are right by the pages that `find` has; `None` if it lacks one.
fn are_right(
    owner: MemberDevice,
    first_block: u64,
    bytes: &[u8],
    find: impl Fn(Key) -> Option<Arc<Page>>,
) -> Option<bool> {
    let mut held: Option<Arc<Page>> = None;
    for (at, block) in bytes.chunks(BLOCK_BYTES_USIZE).enumerate() {
        let number = first_block + to_u64(at);
        let (page, entry) = locate(number);
        let key = Key::new(owner, page);
        let known = held.take().filter(|held| held.key == key).or_else(|| find(key))?;
        if judge(owner, number, block, known.sum(entry)) != Judgement::Right {
            return Some(false);
        }
        held = Some(known);
    }
    Some(true)
}

/// The pages of these blocks, brought into memory.
async fn pages_of(
    local: &Rc<LocalArray>,
    owner: MemberDevice,
    first_block: u64,
    bytes: &[u8],
) -> Result<Vec<Arc<Page>>, Fault> {
    let last = first_block + to_u64(bytes.len().div_ceil(BLOCK_BYTES_USIZE)).max(1) - 1;
    let mut pages = Vec::new();
    for page in locate(first_block).0..=locate(last).0 {
        pages.push(load::load(local, Key::new(owner, page)).await?);
    }
    Ok(pages)
}

/// Whether this is the block that was stored last at this number of the device's data area, as far
/// as the table knows: false of a block of which it knows nothing.
///
/// # Errors
/// The device's fault, if its page could not be read.
pub(crate) async fn is_known_right(
    local: &Rc<LocalArray>,
    owner: MemberDevice,
    number: u64,
    block: &[u8],
) -> Result<bool, Fault> {
    let (page, entry) = locate(number);
    let page = load::load(local, Key::new(owner, page)).await?;
    Ok(judge(owner, number, block, page.sum(entry)) == Judgement::Right)
}

/// The checksum of a block of a member's data area.
pub(crate) fn sum_of(member: MemberIdx, number: u64, block: &[u8]) -> u32 {
    let number = if sings(Canary::AddressLeftOut) { 0 } else { number };
    block_sum(member, number, block)
}

pub(crate) fn judge(owner: MemberDevice, number: u64, block: &[u8], known: u32) -> Judgement {
    match known {
        UNKNOWN => Judgement::Unknown,
        known if known == sum_of(owner.member, number, block) => Judgement::Right,
        _ => Judgement::Wrong,
    }
}
