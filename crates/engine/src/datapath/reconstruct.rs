//! Reads that cannot be served straight from the members. They run on the stripe's owner, under the
//! row lock, as one piece of work for each stripe.
//!
//! What must stay true: each returned block was read from its own member, or computed from k strips
//! that were read under one row lock and whose parity is trusted. Otherwise the answer is an error.
//! Every strip is read at most once, and goes into the client's own buffer if it is the client's.
//! All lost strips are decoded in one pass. After a media error the block is written back, so that
//! the next read finds it whole.

use super::gather::{Gathered, gather_within};
use super::heal::heal;
use super::store::{Stored, repair};
use crate::array::Array;
use crate::blame::block_lost;
use crate::canary::{Canary, sings};
use crate::event::names;
use crate::local_array::LocalArray;
use crate::log::update::Piece;
use crate::rows::RowSet;
use crate::scratch::{Leave, StripeBuffers};
use crate::stripe::StripRun;
use crate::stripe::lock::Hold;
use crate::stripe::work::{Missing, StripeRead};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{
    Geometry, ReadBand, ReadPlan, RowRange, StripIo, Stripe, plan_read, rows_touched, strips_of,
};
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64, to_usize};
use ashlar_volume::VolumeErrorKind;
use smallvec::SmallVec;
use std::rc::Rc;

/// Read part of a stripe from whatever holds it.
///
/// # Errors
/// `Io` if too few strips can be read, or parity is not trusted after an unclean stop.
pub(crate) async fn read_stripe(
    local: &Rc<LocalArray>,
    read: StripeRead,
) -> Result<BufMut, VolumeErrorKind> {
    let StripeRead { stripe, extent, buffer, missing } = read;
    let rows = rows_touched(local.array.geometry_of(stripe), extent);
    let mut search = Search::new(stripe, extent, missing);
    let mut buffer = Some(buffer);
    loop {
        // To repair is to write.
        let is_repair = !search.missing.broken.is_empty();
        let hold = if is_repair { Hold::Exclusive } else { Hold::Shared };
        let _rows = local.locks.lock(stripe.id(), rows, hold).await;
        if is_repair {
            search.heal(local).await?;
        }
        if let Some(found) = search.attempt(local, buffer.take()).await? {
            return Ok(found);
        }
    }
}

/// Rows of a data strip, from its member or the survivors. The caller holds the rows' exclusive
/// lock.
///
/// # Errors
/// As [`read_stripe`].
pub(crate) async fn read_rows(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    strip: StripIdx,
    rows: RowRange,
) -> Result<BufMut, VolumeErrorKind> {
    let start = to_u64(strip.at()) * local.array.geometry_of(stripe).strip_bytes();
    let extent = Extent::new(start + rows.offset_bytes(), rows.bytes());
    let mut search = Search::new(stripe, extent, Missing::default());
    loop {
        if let Some(found) = search.attempt(local, None).await? {
            return Ok(found);
        }
        search.heal(local).await?;
    }
}

/// A read that goes on until all is there or too much is missing.
struct Search {
    stripe: Stripe,
    extent: Extent,
    missing: Missing,
    /// Slow members are waited for: without them there is no answer.
    is_patient: bool,
    /// How often the rows were healed.
    heals: u32,
    /// What could not be read was asked for once more.
    has_asked_again: bool,
}

/// Times that the rows of one read are healed: a device may spoil again what it was given.
const HEALS_MAX: u32 = 3;

impl Search {
    fn new(stripe: Stripe, extent: Extent, missing: Missing) -> Search {
        Search { stripe, extent, missing, is_patient: false, heals: 0, has_asked_again: false }
    }

    /// Plan with what is known to be missing, read, decode. `None` if more turned out to be
    /// missing, which happens at most once for each strip. The caller holds the rows' lock,
    /// exclusively if blocks are broken.
    async fn attempt(
        &mut self,
        local: &Rc<LocalArray>,
        buffer: Option<BufMut>,
    ) -> Result<Option<BufMut>, VolumeErrorKind> {
        // The devices that let an earlier attempt down may still own parts of the buffer it had.
        let mut buffer = buffer.unwrap_or_else(|| BufMut::zeroed(to_usize(self.extent.bytes)));
        if !local.array.written.is_written(self.stripe) {
            buffer.fill(0);
            return Ok(Some(buffer));
        }
        let plan = self.plan(local)?;
        let (mut work, _leave) = Work::prepare(local, &plan, self.extent, buffer).await;
        let Gathered { rows: read, missing } = gather_within(
            local,
            self.stripe,
            plan.reads(),
            &mut work.buffers,
            self.patience(&local.array),
        )
        .await;
        if !missing.all().is_empty() {
            self.missing = self.missing.and(missing);
            return Ok(None);
        }
        for band in plan.bands().iter().filter(|band| !band.decoded.is_empty()) {
            decode_band(local, self.stripe, band, &read, &mut work.parts);
        }
        for strip in self.missing.broken.and(plan.decoded()).iter() {
            let part = work.parts.entries.iter().find(|part| part.strip == strip);
            let part = part.expect("what is decoded is asked for");
            let run = StripRun { stripe: self.stripe, strip, rows: part.rows };
            write_back(local, run, &part.bytes).await;
        }
        let geometry = local.array.geometry_of(self.stripe);
        Ok(Some(work.finish(geometry, &plan, self.extent, read)))
    }

    /// Broken blocks of an array with checksums are put right first, as far as they can be. The
    /// caller holds the rows' lock exclusively, if anything is broken.
    ///
    /// # Errors
    /// If a block that is asked for cannot be proven right.
    async fn heal(&mut self, local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
        let broken = self.missing.broken;
        if broken.is_empty() || local.array.checksums.is_none() {
            return Ok(());
        }
        let geometry = local.array.geometry_of(self.stripe);
        self.missing.broken = StripSet::EMPTY;
        self.heals += 1;
        if self.heals > HEALS_MAX {
            self.missing.failed = self.missing.failed.or(broken);
            return Ok(());
        }
        let rows = rows_touched(geometry, self.extent);
        let healed = Box::pin(heal(local, self.stripe, rows)).await.unwrap_or_default();
        if geometry.data_strips() == 1 {
            // Any other copy of a mirror will do.
            self.missing.failed = self.missing.failed.or(healed.unusable());
            return Ok(());
        }
        let is_wanted = |(strip, row): &(StripIdx, u32)| {
            let (start, end) = (u64::from(*row) * BLOCK_BYTES, (u64::from(*row) + 1) * BLOCK_BYTES);
            strips_of(geometry, self.extent).any(|run| {
                run.strip == *strip && run.extent.offset < end && start < run.extent.end()
            })
        };
        if healed.lost.iter().any(is_wanted) {
            return Err(block_lost(local, self.stripe));
        }
        self.missing.failed = self.missing.failed.or(healed.unstored);
        Ok(())
    }

    fn plan(&mut self, local: &LocalArray) -> Result<ReadPlan, VolumeErrorKind> {
        let array = &local.array;
        let view = array.view(self.stripe);
        let geometry = array.geometry_of(self.stripe);
        let mut plan = plan_read(geometry, self.extent, &view, self.missing.all());
        if plan.is_err() && !self.missing.slow.is_empty() {
            // Late is better than never.
            self.is_patient = true;
            self.missing.slow = StripSet::EMPTY;
            plan = plan_read(geometry, self.extent, &view, self.missing.all());
        }
        let failed =
            if sings(Canary::SuccessorNotAsked) { StripSet::EMPTY } else { self.missing.failed };
        let unread = self.missing.broken.or(failed);
        if plan.is_err() && !unread.is_empty() && !self.has_asked_again {
            // A repair or a write may have made it right since, before another strip went. Or the
            // device left its slot with the read under way: its successor was not asked.
            self.has_asked_again = true;
            self.missing.broken = StripSet::EMPTY;
            self.missing.failed = StripSet::EMPTY;
            plan = plan_read(geometry, self.extent, &view, self.missing.all());
        }
        plan.map_err(|_| block_lost(local, self.stripe))
    }

    fn patience(&self, array: &Array) -> Option<std::time::Duration> {
        let has_others = array.geometry_of(self.stripe).parity_strips() > 0;
        (has_others && !self.is_patient).then(|| array.tuning.read_deadline())
    }
}

/// The buffers of one attempt.
struct Work {
    /// One for each read of the plan, the first one last.
    buffers: StripeBuffers,
    /// What is asked of each strip and not read right where it belongs, in rising order: to be
    /// decoded, or copied from a longer read.
    parts: RowSet,
    /// The client's buffer, if the extent is not whole blocks. Else `parts` and `buffers` are cut
    /// from it.
    rest: BufMut,
    is_whole_blocks: bool,
}

impl Work {
    async fn prepare(
        local: &LocalArray,
        plan: &ReadPlan,
        extent: Extent,
        mut buffer: BufMut,
    ) -> (Work, Leave) {
        let is_whole_blocks = extent.is_aligned_to(BLOCK_BYTES);
        let is_wanted = |io: &StripIo| plan.wanted().any(|wanted| wanted == *io);
        let beside = plan.reads().filter(|io| !is_wanted(io)).count();
        let count = beside + if is_whole_blocks { 0 } else { plan.wanted().count() };
        let (mut spare, leave) = local.scratch.take(count, to_usize(plan.rows().bytes())).await;
        let mut parts = RowSet::new(&local.pools.rows);
        for StripIo { strip, rows } in plan.wanted() {
            let bytes = to_usize(rows.bytes());
            let part =
                if is_whole_blocks { buffer.split_to(bytes) } else { cut_from(&mut spare, bytes) };
            parts.push(strip, rows, part);
        }
        let mut buffers = local.scratch.no_buffers();
        for io in plan.reads() {
            let own = parts.take(io.strip, io.rows);
            buffers.push(own.unwrap_or_else(|| cut_from(&mut spare, to_usize(io.rows.bytes()))));
        }
        buffers.reverse();
        (Work { buffers, parts, rest: buffer, is_whole_blocks }, leave)
    }

    /// The client's buffer, filled: from `parts`, where what was decoded is, and from what was
    /// `read`.
    fn finish(
        mut self,
        geometry: &Geometry,
        plan: &ReadPlan,
        extent: Extent,
        mut read: RowSet,
    ) -> BufMut {
        for part in self.parts.entries.iter_mut() {
            if !plan.decoded().contains(part.strip) {
                part.bytes.copy_from_slice(read.slice(part.strip, part.rows));
            }
        }
        for StripIo { strip, rows } in plan.wanted() {
            if let Some(bytes) = read.take(strip, rows) {
                self.parts.push(strip, rows, bytes);
            }
        }
        self.parts.entries.sort_unstable_by_key(|part| part.strip);
        if self.is_whole_blocks {
            let parts = self.parts.entries.drain(..).map(|part| part.bytes);
            let joined = parts.reduce(|front, back| {
                front.try_join(back).expect("they were cut from one buffer, in this order")
            });
            return joined.expect("a read asks for something");
        }
        let runs = strips_of(geometry, extent);
        for (run, part) in runs.zip(self.parts.entries.iter()) {
            let start = to_usize(run.extent.offset - part.rows.offset_bytes());
            let (from, bytes) = (to_usize(run.piece_offset), to_usize(run.extent.bytes));
            self.rest[from..from + bytes].copy_from_slice(&part.bytes[start..start + bytes]);
        }
        self.rest
    }
}

fn cut_from(spare: &mut StripeBuffers, bytes: usize) -> BufMut {
    let mut buffer = spare.pop().expect("all that are needed were counted");
    buffer.truncate(bytes);
    buffer
}

/// Compute what a band decodes, into `parts`.
fn decode_band(
    local: &LocalArray,
    stripe: Stripe,
    band: &ReadBand,
    read: &RowSet,
    parts: &mut RowSet,
) {
    let mut lost: SmallVec<[&mut [u8]; 4]> = parts.slices_in(band.decoded, band.rows).collect();
    let plan = local.decode_plan(stripe, band.sources, band.decoded);
    plan.run(|strip| read.slice(strip, band.rows), &mut lost);
}

/// Compute `strip` from the gathered survivors, into one of `buffers`.
pub(crate) fn decode_one(
    local: &LocalArray,
    StripRun { stripe, strip, rows }: StripRun,
    survivors: StripSet,
    old: &RowSet,
    buffers: &mut StripeBuffers,
) -> BufMut {
    let mut target = buffers.pop().expect("one buffer more than survivors");
    target.truncate(to_usize(rows.bytes()));
    let plan = local.decode_plan(stripe, survivors, StripSet::only(strip));
    plan.run(|strip| old.slice(strip, rows), &mut [&mut target[..]]);
    if sings(Canary::WrongDecode) {
        target[0] ^= 1;
    }
    target
}

/// Store a reconstructed block where it could not be read; true if it is there. If that fails too
/// the member goes out.
pub(crate) async fn write_back(
    local: &Rc<LocalArray>,
    StripRun { stripe, strip, rows }: StripRun,
    content: &[u8],
) -> bool {
    // Not from the pool: who calls may hold buffers of it, and must not wait for more. This is
    // rare.
    let piece = Piece::new(strip, rows, Buf::copied(content));
    let is_stored = repair(local, stripe, &[piece]).await == Stored::All;
    let member = local.array.member_of(stripe, strip);
    let fields = vec![("slot", member.to_string()), ("stripe", stripe.to_string())];
    if is_stored {
        let blocks = u64::from(rows.blocks());
        local.counts().repaired_blocks.add(blocks);
        local.tally(member).counters.repaired_blocks.add(blocks);
        local.array.record(names::MEMBER_BLOCK_REPAIRED, fields);
    } else {
        // The read itself succeeded; that the member is out is recorded all the same.
        local.array.record(names::MEMBER_BLOCK_UNREPAIRED, fields);
    }
    is_stored
}
