//! What a judgement needs besides the logs: the written map, and the blocks of parity-only records.
//!
//! What must stay true: a block counts as found only on a member that is in sync. Reading writes
//! nothing. A block that cannot be read is first overwritten, durably, with content that is neither
//! old nor new, before any step that would be wrong for the old one. So a repeated restart judges
//! alike, even if the block is readable by then.

use super::apply::{lose_holder, read_strips, result};
use crate::array::Array;
use crate::canary::{Canary, sings};
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::log::{
    BlockChange, ChangedBlock, Found, FoundBlock, StripeReplay, block_checksum,
};
use ashlar_units::{BLOCK_BYTES_USIZE, StripIdx, StripSet, StripeNo};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Blocks that are read at once.
const READS_MAX: usize = 256;
/// How often a block is read before it counts as one that cannot be.
const ATTEMPTS: usize = 4;

/// What was found in place.
pub(super) struct InPlace<'s> {
    local: &'s LocalArray,
    blocks: BTreeMap<ChangedBlock, FoundBlock>,
}

/// Read these blocks where they lie.
pub(super) async fn read(local: &Rc<LocalArray>, wanted: BTreeSet<ChangedBlock>) -> InPlace<'_> {
    let array = &local.array;
    let in_sync = |block: &ChangedBlock| is_in_service(array, *block);
    let unread = |block| (block, FoundBlock::Unreadable);
    let mut blocks: BTreeMap<_, _> = wanted.into_iter().filter(in_sync).map(unread).collect();
    for _ in 0..ATTEMPTS {
        let is_unread = |(block, found): (&ChangedBlock, &FoundBlock)| {
            (*found == FoundBlock::Unreadable).then_some(*block)
        };
        let unread: Vec<ChangedBlock> = blocks.iter().filter_map(is_unread).collect();
        for some in unread.chunks(READS_MAX) {
            read_some(local, some, &mut blocks).await;
        }
    }
    InPlace { local, blocks }
}

async fn read_some(
    local: &Rc<LocalArray>,
    some: &[ChangedBlock],
    blocks: &mut BTreeMap<ChangedBlock, FoundBlock>,
) {
    let mut started = Vec::new();
    for block in some {
        let stripe = local.array.layouts.recorded(block.stripe);
        let (member, offset) = local.array.place(stripe, block.strip, block.row);
        let read = Command::Read(BufMut::zeroed(BLOCK_BYTES_USIZE));
        started.push((*block, local.start(member, offset, read)));
    }
    for (block, pending) in started {
        let Some(pending) = pending else { continue };
        if let Some(Outcome { result: Ok(()), buffer: Some(bytes) }) = pending.await {
            blocks.insert(block, FoundBlock::Holds(block_checksum(&bytes)));
        }
    }
}

/// Whether the block lies on a member that is in sync.
fn is_in_service(array: &Array, block: ChangedBlock) -> bool {
    let stripe = array.layouts.recorded(block.stripe);
    let member = array.member_of(stripe, block.strip);
    array.slot(member).state() == SlotState::InSync
        && (array.spare_cells.is_none() || array.is_readable(stripe, block.strip))
}

impl Found for InPlace<'_> {
    fn is_written(&self, stripe: StripeNo) -> bool {
        let array = &self.local.array;
        array.written.is_written(array.layouts.recorded(stripe))
    }

    fn block(&self, block: ChangedBlock) -> FoundBlock {
        if !is_in_service(&self.local.array, block) || sings(Canary::ParityOnlyBlockNotAsked) {
            return FoundBlock::Gone;
        }
        self.blocks.get(&block).copied().unwrap_or(FoundBlock::Gone)
    }
}

/// Overwrite the blocks that cannot be read, if they can be computed.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn spoil(local: &Rc<LocalArray>, stripes: &[StripeReplay]) -> Result<(), Refusal> {
    let unreadable = |replay: &StripeReplay| {
        let stripe = local.array.layouts.recorded(replay.stripe);
        let blocks: Vec<_> =
            replay.lost.iter().filter(|block| !block.is_readable).copied().collect();
        blocks.into_iter().map(move |block| (stripe, block))
    };
    for (stripe, block) in stripes.iter().flat_map(unreadable) {
        let strip = block.change.strip;
        let member = local.array.member_of(stripe, strip);
        let Some(device) = local.device(member) else { continue };
        if !is_replaceable(local, stripe, strip, block.row).await? {
            continue;
        }
        let offset = local.array.device_offset(stripe, strip, block.row);
        let parts = vec![neither(block.change).freeze()];
        let is_durable = device.facts().has_volatile_cache;
        let write = local.start_on(&*device, offset, Command::WriteParts { parts, is_durable });
        if let Err(fault) = result(write).await {
            lose_holder(local, member, fault).await?;
        }
    }
    Ok(())
}

/// Whether enough of the row is readable without this block: what is not to be had again stays as
/// it is, and is not read.
async fn is_replaceable(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    strip: StripIdx,
    row: u32,
) -> Result<bool, Refusal> {
    let others = local.array.view(stripe).readable.minus(StripSet::only(strip));
    let read = read_strips(local, stripe, others, RowRange::new(row, row + 1)).await?;
    let left = read.map_or_else(|unreadable| others.minus(unreadable), |_| others);
    Ok(left.count() >= local.array.geometry_of(stripe).data_strips())
}

/// A block that is neither what it was nor what it was to be.
fn neither(change: BlockChange) -> BufMut {
    let mut block = BufMut::zeroed(BLOCK_BYTES_USIZE);
    for byte in [0xA5, 0x5A, 0x3C] {
        block.fill(byte);
        let checksum = block_checksum(&block);
        if checksum != change.old && checksum != change.new {
            break;
        }
    }
    block
}
