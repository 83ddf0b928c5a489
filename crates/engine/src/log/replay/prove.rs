//! Rows in doubt of arrays with checksums: finds the blocks that differ from the table and that the
//! rest of their row proves. `apply` then restores them, and generates the row from the others.
//!
//! What must stay true: blocks are named only if afterwards the row is a codeword, of which every
//! present block matches the table or more blocks were found than decode it. The table is as of the
//! last flush or later. So each of these blocks was stored there, or was being stored, and no block
//! gets contents that nobody wrote.
//!
//! A write that is in place is not taken back either. Its row and the restored row are two
//! codewords, which differ in more strips than parity replaces. So too few of the blocks found
//! would match the table, unless devices acknowledged the write and stored nothing: what they hold
//! matches. Therefore a newer codeword goes first: if more blocks agree with each other than are
//! needed to decode, and more than match the table, these are what was written last, and the others
//! follow from them. In all other cases nothing is named, and the row counts as found
//! (docs/on-disk-format.md, rule R9; docs/adr/0013-checksums-of-blocks.md lists the consequences).

use super::apply::read_strips;
use crate::checksums::{block_of, is_known_right};
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::slot::MemberDevice;
use ashlar_iobuf::BufMut;
use ashlar_layout::{RowRange, Stripe};
use ashlar_units::{BLOCK_BYTES_USIZE, StripIdx, StripSet, to_usize};
use std::rc::Rc;

/// How many blocks of a row are tried as the one that does not belong to the others.
const TRIES_MAX: usize = 16;

/// For each of these rows the strips whose blocks are to be put back; none, if the array keeps no
/// checksums.
///
/// # Errors
/// If more members fail than the parity replaces.
pub(super) async fn to_put_back(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    rows: RowRange,
) -> Result<Vec<StripSet>, Refusal> {
    if local.array.checksums.is_none() {
        return Ok(vec![StripSet::EMPTY; to_usize(rows.blocks().into())]);
    }
    let strips = local.array.view(stripe).readable;
    let mut named = Vec::new();
    match read_strips(local, stripe, strips, rows).await? {
        Ok(read) => {
            for (at, row) in (rows.start..rows.end).enumerate() {
                let of_row = at * BLOCK_BYTES_USIZE..(at + 1) * BLOCK_BYTES_USIZE;
                let blocks = read.iter().map(|bytes| &bytes[of_row.clone()]);
                let found = Row { stripe, row, blocks: strips.iter().zip(blocks).collect() };
                named.push(found.to_put_back(local, StripSet::EMPTY).await);
            }
        }
        // The media do not give all of it back: perhaps of this row they do.
        Err(_) if rows.blocks() > 1 => {
            for row in rows.start..rows.end {
                let row = RowRange::new(row, row + 1);
                named.extend(Box::pin(to_put_back(local, stripe, row)).await?);
            }
        }
        Err(unreadable) => {
            let here = local.array.view(stripe).readable;
            let strips = here.minus(unreadable);
            named.push(match read_strips(local, stripe, strips, rows).await? {
                Ok(read) => {
                    let blocks = strips.iter().zip(read.iter().map(|bytes| &bytes[..])).collect();
                    let found = Row { stripe, row: rows.start, blocks };
                    found.to_put_back(local, here.and(unreadable)).await
                }
                Err(_) => StripSet::EMPTY,
            });
        }
    }
    Ok(named)
}

/// A row as its devices hold it.
struct Row<'b> {
    stripe: Stripe,
    row: u32,
    /// Strips rising.
    blocks: Vec<(StripIdx, &'b [u8])>,
}

impl Row<'_> {
    /// The strips whose blocks are not what was stored there, and those that are `unreadable`, if
    /// the others prove what they were.
    async fn to_put_back(&self, local: &Rc<LocalArray>, unreadable: StripSet) -> StripSet {
        let mut right = StripSet::EMPTY;
        for (strip, block) in &self.blocks {
            if self.is_what_was_stored(local, *strip, block).await {
                right = right.with(*strip);
            }
        }
        let all: StripSet = self.blocks.iter().map(|(strip, _)| *strip).collect();
        let all = all.or(unreadable);
        let needed = local.array.geometry_of(self.stripe).data_strips();
        if let Some(newest) = self.newest(local, right) {
            return all.minus(newest);
        }
        if right == all || right.count() < needed {
            return StripSet::EMPTY;
        }
        for (strip, block) in self.decode(local, right.lowest(needed), all) {
            let is_proven = match right.contains(strip) {
                true => self.blocks.contains(&(strip, &block[..])),
                false => self.is_what_was_stored(local, strip, &block).await,
            };
            if !is_proven {
                return StripSet::EMPTY;
            }
        }
        all.minus(right)
    }

    /// The blocks of what was written last, if the table does not know it yet and most of the row
    /// has it: more agree with each other than are needed to decode, so nothing else has made them.
    fn newest(&self, local: &LocalArray, known: StripSet) -> Option<StripSet> {
        let needed = local.array.geometry_of(self.stripe).data_strips();
        let read: StripSet = self.blocks.iter().map(|(strip, _)| *strip).collect();
        let newer = read.minus(known);
        // One that rotted besides agrees with no others.
        let but_one = newer.iter().take(TRIES_MAX).map(|strip| newer.without(strip));
        std::iter::once(newer)
            .chain(but_one)
            .filter(|sources| sources.count() >= needed)
            .map(|sources| self.agreeing(local, sources.lowest(needed), read))
            .find(|found| found.count() > needed && found.count() > known.count())
    }

    /// The blocks that are as they follow from the survivors, and these.
    fn agreeing(&self, local: &LocalArray, survivors: StripSet, read: StripSet) -> StripSet {
        let decoded = self.decode(local, survivors, read);
        let is_found =
            |(strip, block): &&(StripIdx, BufMut)| self.blocks.contains(&(*strip, &block[..]));
        let others: StripSet = decoded.iter().filter(is_found).map(|(strip, _)| *strip).collect();
        survivors.or(others)
    }

    /// Whether the table knows of the block and says that this is it.
    async fn is_what_was_stored(
        &self,
        local: &Rc<LocalArray>,
        strip: StripIdx,
        block: &[u8],
    ) -> bool {
        let member = local.array.member_of(self.stripe, strip);
        let owner = MemberDevice { member, device_epoch: local.device_epochs(member).0 };
        let number = block_of(&local.array, self.stripe, strip, self.row);
        is_known_right(local, owner, number, block).await.unwrap_or(false)
    }

    /// All strips but the survivors, as they follow from these.
    fn decode(
        &self,
        local: &LocalArray,
        survivors: StripSet,
        all: StripSet,
    ) -> Vec<(StripIdx, BufMut)> {
        let wanted = all.minus(survivors);
        let block = |strip| self.blocks.iter().find(|(it, _)| *it == strip);
        let mut made: Vec<BufMut> =
            wanted.iter().map(|_| BufMut::zeroed(BLOCK_BYTES_USIZE)).collect();
        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|block| &mut block[..]).collect();
        let plan = local.decode_plan(self.stripe, survivors, wanted);
        plan.run(|strip| block(strip).expect("a survivor was read").1, &mut targets);
        wanted.iter().zip(made).collect()
    }
}
