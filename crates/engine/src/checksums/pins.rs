//! Brings the pages of a write into memory before it, keeps them there, and records afterwards what
//! was stored.
//!
//! What must stay true: the pages are in memory before the write gets a number in the log, so
//! nothing waits for them between its record and its end. A device that joins in between has no
//! page here and needs none: the job that fills it comes to these rows afterwards. A block that a
//! device failed to store is not recorded, because the device may still hold the old one.

use super::load::{begin, load};
use super::page::Page;
use super::{Judgement, are_mostly_dirty, block_in, judge, sum_of};
use crate::array::Array;
use crate::blame::{FailedMembers, blame, take_out_failed};
use crate::checksums::page::Key;
use crate::coordinator::map_writer;
use crate::coordinator::messages::on_coordinator;
use crate::local_array::LocalArray;
use crate::slot::MemberDevice;
use crate::slot::WriteTarget;
use ashlar_device::Fault;
use ashlar_iobuf::Buf;
use ashlar_layout::{Place, RowRange, StripIo, Stripe};
use ashlar_ondisk::checksums::locate;
use ashlar_units::{BLOCK_BYTES_USIZE, to_u64};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// The pages of a write, held.
#[derive(Clone, Default)]
pub(crate) struct Pins {
    pages: SmallVec<[Arc<Page>; 4]>,
}

/// What is being stored on one device.
pub(crate) struct Noted {
    owner: MemberDevice,
    first_block: u64,
    bytes: Buf,
}

impl Noted {
    pub(crate) fn new(owner: MemberDevice, first_block: u64, bytes: Buf) -> Noted {
        Noted { owner, first_block, bytes }
    }
}

/// Wait, if so much has changed that what is to come might find no room. Before buffers and numbers
/// are taken.
///
/// # Errors
/// As a flush.
pub(crate) async fn before_write(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    if !are_mostly_dirty(&local.array) {
        return Ok(());
    }
    local.counts().checksum_waits.add(1);
    let flush =
        on_coordinator(local, async |local: Rc<LocalArray>| map_writer::flush(&local).await);
    Box::pin(flush).await.unwrap_or(Err(VolumeErrorKind::Stopped))
}

/// The pages of these rows on every device that would store them now. A device whose pages cannot
/// be had goes, as if it had failed the write.
///
/// # Errors
/// If the array cannot do without a device that goes.
pub(crate) async fn pin(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    ios: impl Iterator<Item = StripIo>,
) -> Result<Option<Pins>, VolumeErrorKind> {
    let Some(sums) = &local.array.checksums else { return Ok(None) };
    let mut pins = Pins::default();
    let mut missing: SmallVec<[(WriteTarget, Key); 4]> = SmallVec::new();
    for StripIo { strip, rows } in ios {
        for (target, owner, place) in targets(local, stripe, strip) {
            let first = block_in(&local.array, place, rows.start);
            let last = first + u64::from(rows.blocks()) - 1;
            for page in locate(first).0..=locate(last).0 {
                let key = Key::new(owner, page);
                match sums.cache.get(key) {
                    Some(page) => pins.add(page),
                    None => missing.push((target, key)),
                }
            }
        }
    }
    if !missing.is_empty() {
        Box::pin(fetch(local, missing, &mut pins)).await?;
    }
    Ok(Some(pins))
}

/// The devices that a write of this strip goes to, as far as this worker knows, and where.
fn targets(
    local: &LocalArray,
    stripe: Stripe,
    strip: ashlar_units::StripIdx,
) -> impl Iterator<Item = (WriteTarget, MemberDevice, Place)> {
    let (place, copies) = local.array.write_places(stripe, strip);
    let member = place.member;
    let replacing = MemberDevice { member, device_epoch: local.device_epochs(member).1 };
    let replacing =
        local.replacement(member).map(|_| (WriteTarget::replacement(replacing), replacing, place));
    let current = std::iter::once(place).chain(copies).filter_map(|place| {
        let member = place.member;
        let current = MemberDevice { member, device_epoch: local.device_epochs(member).0 };
        local.device(member).map(|_| (WriteTarget::current(current), current, place))
    });
    current.chain(replacing)
}

/// Blocks of a device are what they are: they have these checksums from now on.
///
/// # Errors
/// The device's fault, if its pages cannot be had.
pub(crate) async fn note_alone(local: &Rc<LocalArray>, noted: Noted) -> Result<(), Fault> {
    if local.array.checksums.is_none() {
        return Ok(());
    }
    let mut pins = Pins::default();
    let last = noted.first_block + to_u64(noted.bytes.len() / BLOCK_BYTES_USIZE) - 1;
    for page in locate(noted.first_block).0..=locate(last).0 {
        pins.add(load(local, Key::new(noted.owner, page)).await?);
    }
    pins.note(&local.array, &noted);
    Ok(())
}

/// Fetch them all at once.
async fn fetch(
    local: &Rc<LocalArray>,
    missing: SmallVec<[(WriteTarget, Key); 4]>,
    pins: &mut Pins,
) -> Result<(), VolumeErrorKind> {
    let begun: Vec<_> =
        missing.into_iter().map(|(target, key)| (target, begin(local, key))).collect();
    let mut failed = FailedMembers::new();
    for (target, begun) in begun {
        let fetched = match begun {
            Ok(page) => Ok(page),
            Err(waits) => waits.await.unwrap_or(Err(Fault::GONE)),
        };
        match fetched {
            Ok(page) => pins.add(page),
            Err(fault) => blame(local, target, fault, &mut failed).await,
        }
    }
    if failed.is_empty() { Ok(()) } else { Box::pin(take_out_failed(local, failed)).await }
}

impl Pins {
    /// Hold the page of a block from now on; `None` if it is not in memory.
    #[inline]
    pub(crate) fn hold(&mut self, array: &Array, owner: MemberDevice, number: u64) -> Option<()> {
        let page = array.checksums.as_ref()?.cache.get(Key::new(owner, locate(number).0))?;
        self.add(page);
        Some(())
    }

    /// Whether a block is what was written there, by its page; `None` if that is not held.
    #[inline]
    pub(crate) fn is_right(&self, owner: MemberDevice, number: u64, block: &[u8]) -> Option<bool> {
        let (page, entry) = locate(number);
        let page = self.page(Key::new(owner, page))?;
        Some(judge(owner, number, block, page.sum(entry)) == Judgement::Right)
    }

    fn page(&self, key: Key) -> Option<&Arc<Page>> {
        self.pages.iter().find(|page| page.key == key)
    }

    fn add(&mut self, page: Arc<Page>) {
        self.pages.push(page);
    }

    /// It was stored: its blocks have these checksums from now on.
    pub(crate) fn note(&self, array: &Array, noted: &Noted) {
        let Some(sums) = &array.checksums else { return };
        let mut known: Option<&Arc<Page>> = None;
        for (at, block) in noted.bytes.chunks(BLOCK_BYTES_USIZE).enumerate() {
            let number = noted.first_block + to_u64(at);
            let (page, entry) = locate(number);
            let key = Key::new(noted.owner, page);
            if known.is_none_or(|known| known.key != key) {
                known.inspect(|known| sums.cache.note_dirty(known));
                known = self.page(key);
            }
            if let Some(page) = known {
                page.set(entry, sum_of(noted.owner.member, number, block));
            }
        }
        known.inspect(|known| sums.cache.note_dirty(known));
    }
}

/// Rows of one strip as what a plan stores.
pub(crate) fn one(strip: ashlar_units::StripIdx, rows: RowRange) -> impl Iterator<Item = StripIo> {
    std::iter::once(StripIo { strip, rows })
}
