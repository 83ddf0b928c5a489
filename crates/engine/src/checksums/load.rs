//! Brings pages of the checksum table into memory.
//!
//! What must stay true: one reader fetches a page for all that wait. Places that the medium does
//! not give back are no fault: then nothing is known of the page.

use super::cache::Fetched;
use super::page::Page;
use crate::checksums::page::Key;
use crate::local_array::LocalArray;
use ashlar_device::{Command, Device, Fault, FaultKind, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::checksums::{SumPageIdentity, place_offset};
use ashlar_units::BLOCK_BYTES_USIZE;
use futures_channel::oneshot;
use std::rc::Rc;
use std::sync::Arc;

/// How often a place is read before it counts as one that cannot be.
const ATTEMPTS: usize = 4;

/// The page, from the device if need be.
///
/// # Errors
/// The device's fault. Places that the medium does not give back are none: then nothing is known of
/// the page.
pub(crate) async fn load(local: &Rc<LocalArray>, key: Key) -> Fetched {
    match begin(local, key) {
        Ok(page) => Ok(page),
        Err(waits) => waits.await.unwrap_or(Err(Fault::GONE)),
    }
}

/// The page, or where to wait for it; somebody fetches it when this returns.
pub(super) fn begin(
    local: &Rc<LocalArray>,
    key: Key,
) -> Result<Arc<Page>, oneshot::Receiver<Fetched>> {
    let sums = local.array.checksums.as_ref().expect("asked only where they are kept");
    let (waits, is_to_fetch) = match sums.cache.get_or_wait(key) {
        Ok(page) => return Ok(page),
        Err(waits) => waits,
    };
    if is_to_fetch {
        let local = Rc::clone(local);
        // A task of its own: who asked may go away, and others may wait.
        local.worker.handle.clone().spawn(async move {
            let _under_way = local.begin();
            let fetched = fetch(&local, key).await;
            let sums = local.array.checksums.as_ref().expect("kept");
            sums.cache.put(key, fetched);
        });
    }
    Err(waits)
}

async fn fetch(local: &Rc<LocalArray>, key: Key) -> Fetched {
    let sums = local.array.checksums.as_ref().expect("kept");
    let device = local.device_of(key.owner()).ok_or(Fault::GONE)?;
    local.counts().checksum_page_reads.add(1);
    let at = |place: u64| sums.area.offset + place_offset(key.page, place);
    let identity = SumPageIdentity { array_tag: sums.array_tag, page: key.page };
    let both = read(local, device.as_ref(), at(0), 2 * BLOCK_BYTES_USIZE).await;
    let mut is_one_unread = false;
    let places = match both {
        Ok(bytes) => {
            let (first, second) = bytes.split_at(BLOCK_BYTES_USIZE);
            identity.newest([Some(first), Some(second)])
        }
        Err(fault) if fault.kind == FaultKind::Media => {
            let mut each = [None, None];
            for (bytes, place) in each.iter_mut().zip(0..) {
                *bytes = insist(local, device.as_ref(), at(place)).await?;
            }
            is_one_unread = each.iter().any(Option::is_none);
            identity.newest([each[0].as_deref(), each[1].as_deref()])
        }
        Err(fault) => return Err(fault),
    };
    let found = places.as_ref().map(|(page, place)| (&page.sums, *place));
    let page = Page::new(key, found);
    Ok(Arc::new(if is_one_unread { page.beside_an_unread_one() } else { page }))
}

/// A place, asked for some times; `None` if the media do not give it back. If it is the newer one,
/// the other speaks of blocks as they were: right ones do not match, their device is named for
/// that, and without the rest of the row they are errors.
async fn insist(
    local: &LocalArray,
    device: &dyn Device,
    offset: u64,
) -> Result<Option<BufMut>, Fault> {
    for _ in 0..ATTEMPTS {
        match read(local, device, offset, BLOCK_BYTES_USIZE).await {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(fault) if fault.kind == FaultKind::Media => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

async fn read(
    local: &LocalArray,
    device: &dyn Device,
    offset: u64,
    bytes: usize,
) -> Result<BufMut, Fault> {
    let pending = local.start_on(device, offset, Command::Read(BufMut::zeroed(bytes)));
    let Outcome { result, buffer } = pending.await.ok_or(Fault::GONE)?;
    result?;
    buffer.ok_or(Fault::GONE)
}
