//! Rows in doubt of arrays with checksums: blocks that are not what the table says they are, and that the rest of their row
//! proves, are decoded and put back.
//!
//! What must stay true: a row is changed only where afterwards every block that is here is what the table says of it, and
//! the row is a codeword. The table is as of the last flush or later, so each of them was stored there, or was being
//! stored, and nothing becomes what nobody wrote. Nor is a write taken back that is in place: its row and the one that
//! would be put back are codewords, two of which differ in more strips than parity replaces, so that too few of the
//! blocks found would be what the table says. Where that is not so nothing is changed: what is found is believed
//! (`docs/adr/0013-checksums-of-blocks.md`, point 7, says what that leaves).

use super::mend::{lose_holder, read_strips, result};
use crate::checksums::{block_of, is_known_right};
use crate::error::Refusal;
use crate::shard::Shard;
use ashlar_device::Command;
use ashlar_iobuf::BufMut;
use ashlar_layout::RowRange;
use ashlar_parity::Locality;
use ashlar_units::{BLOCK_BYTES_USIZE, StripIdx, StripSet, StripeNo};
use std::rc::Rc;

/// Put back what can be proven of these rows; how many blocks. Nothing, if the array keeps no checksums.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn put_back(
    shard: &Rc<Shard>,
    (stripe, rows): (StripeNo, RowRange),
) -> Result<u64, Refusal> {
    if shard.array.checksums.is_none() {
        return Ok(0);
    }
    let strips = shard.array.view(stripe).readable;
    let mut count = 0;
    match read_strips(shard, stripe, strips, rows).await? {
        Ok(read) => {
            for (at, row) in (rows.start..rows.end).enumerate() {
                let of_row = at * BLOCK_BYTES_USIZE..(at + 1) * BLOCK_BYTES_USIZE;
                let blocks = read.iter().map(|bytes| &bytes[of_row.clone()]);
                let found = Row { stripe, row, blocks: strips.iter().zip(blocks).collect() };
                count += found.put_back(shard, StripSet::EMPTY).await?;
            }
        }
        // The media do not give all of it back: perhaps of this row they do.
        Err(_) if rows.blocks() > 1 => {
            for row in rows.start..rows.end {
                count += Box::pin(put_back(shard, (stripe, RowRange::new(row, row + 1)))).await?;
            }
        }
        Err(unreadable) => {
            let here = shard.array.view(stripe).readable;
            let strips = here.minus(unreadable);
            if let Ok(read) = read_strips(shard, stripe, strips, rows).await? {
                let blocks = strips.iter().zip(read.iter().map(|bytes| &bytes[..])).collect();
                let found = Row { stripe, row: rows.start, blocks };
                count += found.put_back(shard, here.and(unreadable)).await?;
            }
        }
    }
    Ok(count)
}

/// A row as its devices hold it.
struct Row<'b> {
    stripe: StripeNo,
    row: u32,
    /// Strips rising.
    blocks: Vec<(StripIdx, &'b [u8])>,
}

impl Row<'_> {
    /// Store the blocks that are not what was stored there, and those of the strips that are `unreadable`, if the others
    /// prove them; how many.
    async fn put_back(&self, shard: &Rc<Shard>, unreadable: StripSet) -> Result<u64, Refusal> {
        let mut right = StripSet::EMPTY;
        for (strip, block) in &self.blocks {
            if self.is_what_was_stored(shard, *strip, block).await {
                right = right.with(*strip);
            }
        }
        let all: StripSet = self.blocks.iter().map(|(strip, _)| *strip).collect();
        let all = all.or(unreadable);
        let needed = shard.array.geometry.data_strips();
        if right == all || right.count() < needed {
            return Ok(0);
        }
        let mut missing = Vec::new();
        for (strip, block) in self.decode(shard, right.lowest(needed), all) {
            let is_found = self.blocks.contains(&(strip, &block[..]));
            let is_proven = match right.contains(strip) {
                true => is_found,
                false => self.is_what_was_stored(shard, strip, &block).await,
            };
            if !is_proven {
                return Ok(0);
            }
            if !is_found {
                missing.push((strip, block));
            }
        }
        self.store(shard, missing).await
    }

    /// Whether the table knows of the block and says that this is it.
    async fn is_what_was_stored(&self, shard: &Rc<Shard>, strip: StripIdx, block: &[u8]) -> bool {
        let member = shard.array.member_of(self.stripe, strip);
        let owner = (member, shard.tenures(member).0);
        let number = block_of(&shard.array, self.stripe, strip, self.row);
        is_known_right(shard, owner, (number, block)).await.unwrap_or(false)
    }

    /// All strips but the survivors, as they follow from these.
    fn decode(&self, shard: &Shard, survivors: StripSet, all: StripSet) -> Vec<(StripIdx, BufMut)> {
        let wanted = all.minus(survivors);
        let cached = shard.decode_plan(survivors, wanted);
        let is_source = |strip: StripIdx| cached.plan.sources().contains(strip.at());
        let sources = self.blocks.iter().filter(|(strip, _)| is_source(*strip));
        let sources: Vec<&[u8]> = sources.map(|(_, bytes)| *bytes).collect();
        let mut made: Vec<BufMut> =
            wanted.iter().map(|_| BufMut::zeroed(BLOCK_BYTES_USIZE)).collect();
        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|block| &mut block[..]).collect();
        let decoded = cached.plan.run(&sources, &mut targets, Locality::Cached);
        decoded.expect("a slice for each survivor, all one block");
        wanted.iter().zip(made).collect()
    }

    async fn store(
        &self,
        shard: &Rc<Shard>,
        blocks: Vec<(StripIdx, BufMut)>,
    ) -> Result<u64, Refusal> {
        let offset = |strip| shard.array.device_offset(self.stripe, strip, self.row);
        let start = |(strip, block): (StripIdx, BufMut)| {
            let device = shard.device(shard.array.member_of(self.stripe, strip))?;
            let write = Command::Write(block.freeze());
            Some((strip, shard.start_on(&*device, offset(strip), write)))
        };
        let started: Vec<_> = blocks.into_iter().filter_map(start).collect();
        let mut count = 0;
        for (strip, write) in started {
            match result(write).await {
                Ok(()) => count += 1,
                Err(fault) => lose_holder(shard, self.stripe, strip, fault).await?,
            }
        }
        Ok(count)
    }
}
