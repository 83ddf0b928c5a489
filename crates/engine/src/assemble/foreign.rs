//! Signatures of somebody else on devices that carry a superblock of ours.
//!
//! What must stay true: whatever a device carried when it joined was wiped. So a signature where
//! only Ashlar writes was put there since: the device was given to somebody else, and is not taken
//! and not written, unless the operator says so by name. Then the start overwrites all that is
//! there before anything else. What lies where data of clients lies says nothing.

use super::plan::Plan;
use super::{FoundDevice, MemberReading};
use crate::array::Array;
use crate::aside;
use crate::blank::BACK_BYTES;
use crate::config::{Ends, ForeignSignature};
use crate::control_io::{self, refused};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::worker::Worker;
use ashlar_device::{Command, Device, Fault, Opened};
use ashlar_ondisk::assembly::{Extra, ExtraReason, ReadLabel, Verdict};
use ashlar_ondisk::format::{
    DRIVE_PAGE_MAGIC, FIRST_AREA_OFFSET, FLUSH_MARK_MAGIC, HEAD_COPIES_BYTES, HEARTBEAT_MAGIC,
    SUPERBLOCK_SLOT_BYTES, copy_slots,
};
use ashlar_ondisk::{MemberEntry, Superblock};
use ashlar_ring::within;
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, MemberIdx, to_u64, to_usize};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long the devices may take to be looked at. They have answered reads just now.
const LOOK_TIME: Duration = Duration::from_secs(10);

/// Look for signatures on all of the devices that are ours. A prober is a program to start: where
/// only zeros and what Ashlar writes is, there is nothing to be found.
pub(super) async fn look(
    worker: &Worker,
    engine_state: &EngineState,
    found: &[FoundDevice],
    readings: &mut [MemberReading],
) {
    let config = &engine_state.config;
    let Some(signatures) = &config.signatures else { return };
    let gaps =
        found.iter().zip(&*readings).map(|(found, reading)| Gaps::start(worker, found, reading));
    let mut looks = Vec::new();
    for (gaps, (found, reading)) in
        gaps.collect::<Vec<_>>().into_iter().zip(found.iter().zip(&*readings))
    {
        let is_ours = matches!(reading.label, ReadLabel::Member(_) | ReadLabel::Spare(_));
        let is_blank = match gaps {
            Some(gaps) => gaps.are_zero().await,
            None => false,
        };
        let ends = if is_blank { Ends::Ours } else { Ends::Unknown };
        looks.push(is_ours.then(|| {
            let signatures = Arc::clone(signatures);
            // Of the open device: its path may lead elsewhere by now.
            let at = found.opened.descriptor_path().unwrap_or_else(|| reading.path.clone());
            aside::begin(&worker.handle, &config.aside, move || signatures(&at, ends))
        }));
    }
    for (reading, look) in readings.iter_mut().zip(looks) {
        let Some(look) = look else { continue };
        let ended = std::pin::pin!(look.ended());
        let signatures = within(&worker.handle, LOOK_TIME, ended).await.unwrap_or_default();
        reading.foreign = first_guarded(reading, &signatures);
    }
}

/// What of a member belongs to nobody, beside its ends: behind its data, and behind the member.
struct Gaps(Vec<control_io::ControlRead>);

impl Gaps {
    /// Begin to read them, if its ends are ours alone.
    fn start(worker: &Worker, found: &FoundDevice, reading: &MemberReading) -> Option<Gaps> {
        let own = reading.superblock().filter(|_| found.has_only_ours)?;
        let device = found.opened.attach(&worker.handle);
        let gaps = gaps(device.as_ref(), own, reading.device_bytes)?.into_iter();
        let gaps = gaps.filter(|gap| gap.bytes > 0);
        Some(Gaps(gaps.map(|gap| control_io::start_read(worker, device.as_ref(), gap)).collect()))
    }

    async fn are_zero(self) -> bool {
        for read in self.0 {
            if !read.finish().await.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                return false;
            }
        }
        true
    }
}

/// Where they are. Before the last MiB of a device nobody has a label.
fn gaps(device: &dyn Device, own: &Superblock, device_bytes: u64) -> Option<[Extent; 2]> {
    let tail = copy_slots(device_bytes)?;
    let block = u64::from(device.facts().logical_block_bytes);
    let end = device.facts().size_bytes / block * block;
    let begin = own.areas.data.end().max(tail[2].offset.saturating_sub(BACK_BYTES));
    let behind = tail[3].end();
    Some([
        Extent::new(begin, tail[2].offset.saturating_sub(begin)),
        Extent::new(behind, end.saturating_sub(behind)),
    ])
}

/// The first of the signatures that lies where only Ashlar writes.
fn first_guarded(reading: &MemberReading, signatures: &[ForeignSignature]) -> Option<String> {
    let is_guarded = |it: &&ForeignSignature| it.offset.is_some_and(|at| reading.guards(at));
    signatures.iter().find(is_guarded).map(|it| it.words.clone())
}

/// The members that carry one and are taken all the same: their devices, and their entries.
pub(super) fn accepted(
    verdict: &Verdict,
    found: &[FoundDevice],
    readings: &[MemberReading],
) -> Vec<(Arc<dyn Opened>, MemberEntry)> {
    let holders = verdict.slots.iter().filter_map(|slot| slot.reading.zip(slot.holder));
    let joining = verdict.slots.iter().filter_map(|slot| slot.joining_device);
    let joining = joining.filter_map(|it| it.reading.map(|reading| (reading, it.entry)));
    let is_reused = |(at, _): &(usize, MemberEntry)| readings[*at].foreign.is_some();
    let opened = |(at, entry): (usize, MemberEntry)| (Arc::clone(&found[at].opened), entry);
    holders.chain(joining).filter(is_reused).map(opened).collect()
}

/// Say which devices stay out for that, and which were taken.
pub(super) fn tell(array: &Array, readings: &[MemberReading], verdict: &Verdict) {
    let is_left = |extra: &&Extra| extra.reason == ExtraReason::Reused;
    let left: Vec<usize> =
        verdict.extras.iter().filter(is_left).map(|extra| extra.reading).collect();
    let own = verdict.newest.as_ref().map(|newest| newest.array_uuid);
    let is_own = |uuid: Uuid| own == Some(uuid);
    for (at, reading) in readings.iter().enumerate() {
        let (Some(signature), Some(superblock)) = (&reading.foreign, reading.superblock()) else {
            continue;
        };
        if !is_own(superblock.array_uuid) {
            continue;
        }
        let done = if left.contains(&at) { "nothing: it stays out" } else { "overwritten" };
        let slot = verdict.newest.as_ref().and_then(|it| it.member(superblock.member_uuid));
        let slot = slot.map_or(MemberIdx(0), |entry| entry.slot);
        let fields = vec![
            ("slot", slot.to_string()),
            ("path", reading.path.clone()),
            ("signature", signature.clone()),
            ("done", done.to_owned()),
        ];
        array.record(names::MEMBER_REUSED, fields);
    }
}

/// Overwrite what was accepted: the superblock of the member as it was, and zeros in all that
/// belongs to nobody.
///
/// # Errors
/// A device fails.
pub(super) async fn overwrite(local: &Rc<LocalArray>, plan: &Plan) -> Result<(), Refusal> {
    for (opened, entry) in &plan.reused {
        let device = opened.attach(&local.worker.handle);
        let done = overwrite_on(&local.worker, device.as_ref(), &plan.found, entry).await;
        done.map_err(|fault| refused(&opened.facts().path, "overwriting a signature", fault))?;
    }
    Ok(())
}

async fn overwrite_on(
    worker: &Rc<Worker>,
    device: &dyn Device,
    found: &Superblock,
    entry: &MemberEntry,
) -> Result<(), Fault> {
    let own = found.for_member(entry.uuid).expect("it is listed");
    let mut slot = own.encode().expect("it was read");
    slot.resize(to_usize(SUPERBLOCK_SLOT_BYTES), 0);
    control_io::write_copies(worker, device, entry.bytes, &slot).await?;
    let copies = copy_slots(entry.bytes).expect("it has a superblock");
    let block = u64::from(device.facts().logical_block_bytes);
    let end = device.facts().size_bytes / block * block;
    let (before_tail, behind) = (own.areas.data.end(), copies[3].end());
    for extent in [
        Extent::new(before_tail, copies[2].offset - before_tail),
        Extent::new(behind, end.saturating_sub(behind)),
    ] {
        control_io::zero(worker, device, extent).await?;
    }
    let marks = Extent::new(HEAD_COPIES_BYTES, FIRST_AREA_OFFSET - HEAD_COPIES_BYTES);
    let blocks = control_io::read(worker, device, marks).await?;
    for (number, bytes) in blocks.chunks(BLOCK_BYTES_USIZE).enumerate() {
        let ours = [HEARTBEAT_MAGIC, FLUSH_MARK_MAGIC, DRIVE_PAGE_MAGIC];
        if !ours.iter().any(|magic| bytes.starts_with(magic)) {
            let at = marks.offset + to_u64(number) * BLOCK_BYTES;
            control_io::zero(worker, device, Extent::new(at, BLOCK_BYTES)).await?;
        }
    }
    control_io::run(worker, device, 0, Command::Flush).await.result
}
