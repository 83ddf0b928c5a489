//! What a judgement rests on besides the logs: the written map, and blocks that lean records are
//! about.
//!
//! What must stay true: a block counts only as found on a member that is in sync; of any other
//! nothing is said. Nothing is written to find out. A block that cannot be read is made one that is
//! neither old nor new, durably, before anything is done that would be wrong if it were the old
//! one: a restart that begins again judges alike, though the block may be readable by then.

use super::mend::{lose_holder, read_strips, result};
use crate::canary::{Canary, sings};
use crate::error::Refusal;
use crate::member::SlotState;
use crate::shard::Shard;
use ashlar_device::{Command, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::log::{Found, FoundBlock, Home, HomeBlock, StripeReplay, block_checksum};
use ashlar_units::{BLOCK_BYTES_USIZE, MemberIdx, StripIdx, StripSet, StripeNo};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Blocks that are read at once.
const READS_MAX: usize = 256;
/// How often a block is read before it counts as one that cannot be.
const ATTEMPTS: usize = 4;

/// What was found in place.
pub(super) struct InPlace<'s> {
    shard: &'s Shard,
    blocks: BTreeMap<HomeBlock, FoundBlock>,
}

/// Read these blocks where they lie.
pub(super) async fn read(shard: &Rc<Shard>, wanted: BTreeSet<HomeBlock>) -> InPlace<'_> {
    let array = &shard.array;
    let in_sync =
        |block: &HomeBlock| array.slot(home_of(shard, *block)).state() == SlotState::InSync;
    let unread = |block| (block, FoundBlock::Unreadable);
    let mut blocks: BTreeMap<_, _> = wanted.into_iter().filter(in_sync).map(unread).collect();
    for _ in 0..ATTEMPTS {
        let is_unread = |(block, found): (&HomeBlock, &FoundBlock)| {
            (*found == FoundBlock::Unreadable).then_some(*block)
        };
        let unread: Vec<HomeBlock> = blocks.iter().filter_map(is_unread).collect();
        for some in unread.chunks(READS_MAX) {
            read_some(shard, some, &mut blocks).await;
        }
    }
    InPlace { shard, blocks }
}

async fn read_some(
    shard: &Rc<Shard>,
    some: &[HomeBlock],
    blocks: &mut BTreeMap<HomeBlock, FoundBlock>,
) {
    let mut started = Vec::new();
    for block in some {
        let stripe = shard.array.layouts.recorded(block.stripe);
        let (member, offset) = shard.array.place(stripe, block.strip, block.row);
        let read = Command::Read(BufMut::zeroed(BLOCK_BYTES_USIZE));
        started.push((*block, shard.start(member, offset, read)));
    }
    for (block, pending) in started {
        let Some(pending) = pending else { continue };
        if let Some(Outcome { result: Ok(()), buffer: Some(bytes) }) = pending.await {
            blocks.insert(block, FoundBlock::Holds(block_checksum(&bytes)));
        }
    }
}

fn home_of(shard: &Shard, block: HomeBlock) -> MemberIdx {
    shard.array.member_of(shard.array.layouts.recorded(block.stripe), block.strip)
}

impl Found for InPlace<'_> {
    fn is_written(&self, stripe: StripeNo) -> bool {
        let array = &self.shard.array;
        array.written.is_written(array.layouts.recorded(stripe))
    }

    fn block(&self, block: HomeBlock) -> FoundBlock {
        let state = self.shard.array.slot(home_of(self.shard, block)).state();
        if state != SlotState::InSync || sings(Canary::LeanBlockNotAsked) {
            return FoundBlock::Gone;
        }
        self.blocks.get(&block).copied().unwrap_or(FoundBlock::Gone)
    }
}

/// Overwrite the blocks that cannot be read, if they can be computed.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn spoil(shard: &Rc<Shard>, stripes: &[StripeReplay]) -> Result<(), Refusal> {
    let unreadable = |replay: &StripeReplay| {
        let stripe = shard.array.layouts.recorded(replay.stripe);
        let blocks: Vec<_> =
            replay.lost.iter().filter(|block| !block.is_readable).copied().collect();
        blocks.into_iter().map(move |block| (stripe, block))
    };
    for (stripe, block) in stripes.iter().flat_map(unreadable) {
        let strip = block.home.strip;
        let member = shard.array.member_of(stripe, strip);
        let Some(device) = shard.device(member) else { continue };
        if !is_replaceable(shard, (stripe, strip, block.row)).await? {
            continue;
        }
        let offset = shard.array.device_offset(stripe, strip, block.row);
        let parts = vec![neither(block.home).freeze()];
        let is_durable = device.facts().has_volatile_cache;
        let write = shard.start_on(&*device, offset, Command::WriteParts { parts, is_durable });
        if let Err(fault) = result(write).await {
            lose_holder(shard, stripe, strip, fault).await?;
        }
    }
    Ok(())
}

/// Whether enough of the row is readable without this block: what is not to be had again stays as
/// it is, and is not read.
async fn is_replaceable(
    shard: &Rc<Shard>,
    (stripe, strip, row): (Stripe, StripIdx, u32),
) -> Result<bool, Refusal> {
    let others = shard.array.view(stripe).readable.minus(StripSet::only(strip));
    let read = read_strips(shard, stripe, others, RowRange::new(row, row + 1)).await?;
    let left = read.map_or_else(|unreadable| others.minus(unreadable), |_| others);
    Ok(left.count() >= shard.array.geometry_of(stripe).data_strips())
}

/// A block that is neither what it was nor what it was to be.
fn neither(home: Home) -> BufMut {
    let mut block = BufMut::zeroed(BLOCK_BYTES_USIZE);
    for byte in [0xA5, 0x5A, 0x3C] {
        block.fill(byte);
        let checksum = block_checksum(&block);
        if checksum != home.old && checksum != home.new {
            break;
        }
    }
    block
}
