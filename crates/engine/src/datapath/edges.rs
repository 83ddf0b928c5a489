//! Completes a write of partial blocks: its first and last block get their old content around the
//! new. Rare, because file systems write whole blocks.
//!
//! What must stay true: this runs under the row lock of the write, so the blocks do not change in
//! between. The buffer does not come from the payload pool, because clients that wait for this
//! write may hold all of that. A write takes it after the row lock and before stripe buffers. While
//! a write has one it waits neither for locks nor for another one, so every waiting write is
//! served.

use super::reconstruct;
use crate::datapath::payload::Payload;
use crate::local_array::LocalArray;
use crate::stripe::work::StripeWrite;
use ashlar_iobuf::BufMut;
use ashlar_layout::{RowRange, Stripe, strips_of};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, to_usize};
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// The write as whole blocks.
pub(super) async fn widen(
    local: &Rc<LocalArray>,
    write: Payload,
) -> Result<Payload, VolumeErrorKind> {
    let wide = write.extent.widened_to(BLOCK_BYTES);
    let mut bytes = local.worker.wide.get(to_usize(wide.bytes)).await;
    let last = wide.end() - BLOCK_BYTES;
    let (stripe, new) = (write.stripe(), write.whole());
    read_block(local, stripe, wide.offset, &mut bytes[..BLOCK_BYTES_USIZE]).await?;
    if last != wide.offset {
        let tail = to_usize(last - wide.offset);
        read_block(local, stripe, last, &mut bytes[tail..]).await?;
    }
    let start = to_usize(write.extent.offset - wide.offset);
    bytes[start..start + new.len()].copy_from_slice(new);
    let whole = StripeWrite { stripe, extent: wide, bytes: bytes.freeze() };
    Ok(Payload::new(&local.array, whole))
}

/// Read the block at `offset` of the stripe's data, whatever it takes.
async fn read_block(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    offset: u64,
    target: &mut [u8],
) -> Result<(), VolumeErrorKind> {
    let run = strips_of(local.array.geometry_of(stripe), Extent::new(offset, BLOCK_BYTES))
        .next()
        .expect("a block lies in one strip");
    let row = u32::try_from(run.extent.offset / BLOCK_BYTES).expect("a strip has few rows");
    let rows = RowRange::new(row, row + 1);
    let buffer: BufMut = reconstruct::read_rows(local, stripe, run.strip, rows).await?;
    target.copy_from_slice(&buffer);
    Ok(())
}
