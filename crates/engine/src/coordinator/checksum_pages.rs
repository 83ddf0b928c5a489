//! Writes changed pages of the checksum table to the members, as the first step of a flush round.
//!
//! What must stay true: pages are taken after those of the written map and before the members are
//! flushed. So no stripe is called written, and no update settled, before its checksums are
//! durable. A page is written to its other place only after the round before has ended well, so a
//! torn write leaves the page before it.

use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::checksums::page::Page;
use crate::control_io::aligned;
use crate::coordinator::holders::{Holder, lose};
use crate::coordinator::writes::DeviceWrites;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::slot::MemberDevice;
use ashlar_device::{Device, Fault};
use ashlar_ondisk::checksums::{SumPageIdentity, place_offset};
use std::rc::Rc;
use std::sync::Arc;

/// Pages under way at once.
const PAGES_AT_ONCE: usize = 256;

/// The pages that a round has stored, or tried to.
pub(crate) struct Round {
    pages: Vec<Arc<Page>>,
    /// Whether every device that could not take them is out.
    pub(crate) is_kept: bool,
}

/// Write every changed page to its device. On the coordinator.
pub(crate) async fn store(
    local: &Rc<LocalArray>,
    devices: &[(Holder, Rc<dyn Device>)],
    next_sequence: impl Fn() -> u64,
) -> Round {
    let mut round = Round { pages: Vec::new(), is_kept: true };
    let Some(sums) = local.array.checksums.as_ref().filter(|_| !sings(Canary::SumsNotStored))
    else {
        return round;
    };
    let changed = sums.cache.take_dirty();
    for some in changed.chunks(PAGES_AT_ONCE) {
        let mut under_way = Vec::new();
        for page in some {
            let is_its = |(holder, _): &&(Holder, _)| holder.owner() == page.key.owner();
            let Some((holder, device)) = devices.iter().find(is_its) else {
                put_back_unless_gone(&local.array, page);
                continue;
            };
            under_way.push((page, *holder, start(local, *holder, device, page, next_sequence())));
        }
        for (_, _, write) in &mut under_way {
            write.end(&local.array).await;
        }
        let mut failed: Vec<(Holder, Fault)> = Vec::new();
        for (page, holder, write) in under_way {
            let stored = write.finish(local).await;
            holder.set_unflushed(&local.array);
            if let Err(fault) = stored
                && failed.iter().all(|(known, _)| known.owner() != holder.owner())
            {
                failed.push((holder, fault));
            }
            round.pages.push(Arc::clone(page));
        }
        for (holder, fault) in failed {
            round.is_kept &= lose(local, holder, "a checksum page", fault).await;
        }
    }
    local.counts().checksum_page_writes.add(ashlar_units::to_u64(round.pages.len()));
    round
}

fn start(
    local: &LocalArray,
    holder: Holder,
    device: &Rc<dyn Device>,
    page: &Page,
    sequence: u64,
) -> DeviceWrites {
    let sums = local.array.checksums.as_ref().expect("kept");
    let identity = SumPageIdentity { array_tag: sums.array_tag, page: page.key.page };
    let bytes = aligned(&identity.encode(sequence, &page.take()));
    let offset = sums.area.offset + place_offset(page.key.page, page.next_place());
    let mut write = DeviceWrites::new(holder.member, device);
    write.start(local, offset, bytes);
    write
}

/// A page of a device that is not in service: nobody needs it any more, unless the device is only
/// about to go.
fn put_back_unless_gone(array: &Array, page: &Arc<Page>) {
    let MemberDevice { member, device_epoch } = page.key.owner();
    let slot = array.slot(member);
    // What the page says is not on the device; when that comes back its dirty regions are rebuilt.
    let _unstored = page.take();
    if slot.device_epoch() == device_epoch && slot.state() == SlotState::Failing {
        array.checksums.as_ref().expect("kept").cache.note_dirty(page);
    }
}

impl Round {
    /// The members were flushed: the pages are durable. Or they were not, or not all: they are
    /// written again, to the same places.
    pub(crate) fn end(self, array: &Array, is_kept: bool) {
        let Some(sums) = &array.checksums else { return };
        for page in self.pages {
            if is_kept {
                page.turn();
            } else {
                sums.cache.note_dirty(&page);
            }
        }
    }
}
