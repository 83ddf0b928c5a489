//! Writes what a plan stores: data and parity strips, all in parallel, on the member and on the
//! device that is being filled to replace it.
//!
//! What must stay true: when this returns, every write has ended, and the caller learns which
//! members failed.

use super::log;
use crate::array::Array;
use crate::blame::{FailedMembers, blame, take_out_failed};
use crate::canary::{Canary, sings};
use crate::checksums::pins::{Noted, Pins, pin};
use crate::coordinator::changed_beneath::fault_of;
use crate::coordinator::writes::try_again;
use crate::datapath::payload::Payload;
use crate::datapath::write_times::time_writes;
use crate::in_flight::StoreWrite;
use crate::lists::List;
use crate::local_array::LocalArray;
use crate::log::update::NewUpdate;
use crate::log::update::Piece;
use crate::slot::MemberDevice;
use crate::slot::WriteTarget;
use ashlar_device::{Command, Fault, FaultKind, Outcome};
use ashlar_iobuf::Buf;
use ashlar_layout::{Place, RowRange, StripIo, Stripe, WritePlan};
use ashlar_ondisk::log::RecordKind;
use ashlar_ring::Pending;
use ashlar_units::{MemberIdx, Nanos, StripSet, to_u64, to_usize};
use std::rc::Rc;

/// Writes that met no room: the how manieth each was, where it goes, and what it is.
pub(super) type NoRoom = Vec<(usize, WriteTarget, (u64, Buf))>;

/// Writes under way.
pub(crate) struct Writes {
    started: List<StoreWrite>,
    began: Nanos,
    /// On an array with checksums: the pages that learn what was stored, and what that is, one for
    /// each write.
    noted: Option<(Pins, Vec<Noted>)>,
    /// How a slot's own device is told of a write.
    command: fn(Buf) -> Command,
}

/// Carry out the writes of `plan`.
pub(super) async fn store(
    local: &Rc<LocalArray>,
    plan: &WritePlan,
    payload: &Payload,
    mut parity: List<Piece>,
    pins: Option<Pins>,
) -> FailedMembers {
    let stripe = payload.stripe();
    let data_strips = local.array.geometry_of(stripe).data_strips();
    let mut writes = Writes::noting(local, pins);
    for io in plan.writes().filter(|io| io.strip.at() < data_strips) {
        start_data(local, plan, io, payload, &mut writes);
    }
    for piece in parity.drain(..).filter(|_| !sings(Canary::ParityNotStored)) {
        writes.start(local, stripe, piece);
    }
    writes.finish(local).await
}

/// Start the writes of one data strip: a run of rows from the request, or of zeros, each one I/O.
fn start_data(
    local: &LocalArray,
    plan: &WritePlan,
    io: StripIo,
    payload: &Payload,
    writes: &mut Writes,
) {
    let mut run: Option<(RowRange, bool)> = None;
    let mut flush = |run: (RowRange, bool)| {
        let (rows, is_zero) = run;
        let bytes = to_usize(rows.bytes());
        let buffer = if is_zero {
            local.worker.zeros.slice(0..bytes)
        } else {
            payload.shared(io.strip, rows)
        };
        writes.start(local, payload.stripe(), Piece::new(io.strip, rows, buffer));
    };
    for band in plan.bands() {
        let is_zero = band.zeroed.contains(io.strip);
        let is_zeroed = is_zero && !sings(Canary::OldContentLeft);
        let is_stored = is_zeroed || band.written.contains(io.strip);
        let in_io = io.rows.start <= band.rows.start && band.rows.end <= io.rows.end;
        if !(is_stored && in_io) {
            continue;
        }
        run = match run {
            Some((rows, zero)) if zero == is_zero && rows.end == band.rows.start => {
                Some((rows.union(band.rows), zero))
            }
            before => {
                before.map(&mut flush);
                Some((band.rows, is_zero))
            }
        };
    }
    run.map(&mut flush);
}

/// What became of rows that were to be stored anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stored {
    /// All of them are in place.
    All,
    /// All other writes were for members that are recorded as out, whose content does not count.
    Without,
    /// Some are not, and the old content there still counts.
    NotAll,
}

/// Store rows anew that could not be read or were wrong, strips rising; the caller holds their
/// lock. It is an update like any other: a write that is cut off would leave a readable block, half
/// of it old. Members that cannot take it are recorded as out, if the array can do without them.
pub(crate) async fn repair(local: &Rc<LocalArray>, stripe: Stripe, pieces: &[Piece]) -> Stored {
    let ios = pieces.iter().map(|piece| StripIo { strip: piece.part.strip, rows: piece.part.rows });
    let Ok(pins) = pin(local, stripe, ios).await else { return Stored::NotAll };
    let log = local.log().filter(|_| !sings(Canary::RepairNotLogged));
    let (Some(log), Some(rows)) = (log, rows_of(pieces)) else {
        return store_pieces(local, stripe, pieces, pins).await;
    };
    let step = log.rows_max();
    let mut all = Stored::All;
    let mut start = rows.start;
    while start < rows.end {
        let rows = RowRange::new(start, rows.end.min(start.saturating_add(step)));
        start = rows.end;
        let mut own = local.pools.pieces.list();
        own.extend(pieces.iter().filter_map(|piece| piece.within(rows)));
        let mut pieces = local.pools.pieces.list();
        pieces.extend_from_slice(&own);
        let stored = own.iter().fold(StripSet::EMPTY, |all, piece| all.with(piece.part.strip));
        let Some(rows) = rows_of(&own) else { continue };
        let new = NewUpdate { stripe, kind: RecordKind::Full, rows, stored, pieces };
        all = all.max(match log::record(local, new).await {
            Ok(_update) => {
                let stored = store_pieces(local, stripe, &own, pins.clone()).await;
                log.note_in_place(stripe);
                stored
            }
            Err(_) => Stored::NotAll,
        });
    }
    all
}

fn rows_of(pieces: &[Piece]) -> Option<RowRange> {
    pieces.iter().map(|piece| piece.part.rows).reduce(RowRange::union)
}

async fn store_pieces(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    pieces: &[Piece],
    pins: Option<Pins>,
) -> Stored {
    let mut failed = changed_members(local, stripe, pieces).await;
    let mut writes = Writes::noting(local, pins);
    for piece in pieces {
        let member = local.array.member_of(stripe, piece.part.strip);
        if failed.iter().all(|(changed, _)| changed.member != member) {
            writes.start(local, stripe, piece.clone());
        }
    }
    failed.extend(writes.finish(local).await);
    let is_stored = failed.is_empty();
    // A member that cannot take it goes out; what it should hold is carried by the others.
    match take_out_failed(local, failed).await {
        _ if is_stored => Stored::All,
        Ok(()) => Stored::Without,
        Err(_) => Stored::NotAll,
    }
}

/// Members of the pieces whose device is not what it was: a repair would hide what is lost on them.
async fn changed_members(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    pieces: &[Piece],
) -> FailedMembers {
    let mut changed = FailedMembers::new();
    for piece in pieces {
        let member = local.array.member_of(stripe, piece.part.strip);
        let (device_epoch, _) = local.device_epochs(member);
        let Some(device) = local.device(member) else { continue };
        if let Some(fault) = fault_of(local, device.as_ref()).await {
            changed.push((MemberDevice { member, device_epoch }, fault));
        }
    }
    changed
}

impl Writes {
    /// None yet. Of an array with checksums the pages of all that will be written are handed in.
    pub(crate) fn noting(local: &LocalArray, pins: Option<Pins>) -> Writes {
        let noted = pins.map(|pins| (pins, Vec::new()));
        let (started, command) = (local.pools.writes.list(), Command::Write);
        Writes { started, began: Nanos::default(), noted, command }
    }

    /// None yet, of a block that its device is to write whole.
    pub(crate) fn of_whole_block(local: &LocalArray) -> Writes {
        Writes { command: Command::WriteWhole, ..Writes::noting(local, None) }
    }

    /// Start writing a piece of `stripe`, on the slot's device and on its replacement.
    pub(crate) fn start(&mut self, local: &LocalArray, stripe: Stripe, piece: Piece) {
        let Piece { part, bytes: buffer } = piece;
        let array = &local.array;
        self.began = local.worker.handle.turn_now();
        let (place, copies) = array.write_places(stripe, part.strip);
        // Copies are of cells that move, as long as no member is lost.
        let has_losses = || array.spare_cells.as_ref().is_some_and(|cells| cells.has_losses());
        let misses = sings(Canary::SpareCopyMissesWrites)
            || sings(Canary::MovingCellMissesWrites) && !has_losses();
        for copy in copies.into_iter().filter(|_| !misses) {
            let offset = array.offset_of(copy, part.rows.start);
            self.start_current(local, copy.member, offset, buffer.clone());
        }
        let (member, offset) = (place.member, array.offset_of(place, part.rows.start));
        let (_, replacement) = local.device_epochs(member);
        let replacing = local.replacement(member);
        if let Some(device) = replacing.filter(|_| !sings(Canary::ReplacementMissesWrites)) {
            let owner = MemberDevice { member, device_epoch: replacement };
            self.note(array, owner, offset, &buffer);
            let pending = local.start_on(device.as_ref(), offset, Command::Write(buffer.clone()));
            let target = WriteTarget::replacement(owner);
            self.started.push((target, pending, Some((offset, buffer.clone()))));
        }
        self.start_current(local, member, offset, buffer);
    }

    /// Start writing a piece in this place alone. False if there is no device.
    pub(crate) fn start_in(&mut self, local: &LocalArray, place: Place, piece: Piece) -> bool {
        self.began = local.worker.handle.turn_now();
        let Piece { part, bytes } = piece;
        let offset = local.array.offset_of(place, part.rows.start);
        let before = self.started.len();
        self.start_current(local, place.member, offset, bytes);
        self.started.len() > before
    }

    /// On the slot's device.
    fn start_current(&mut self, local: &LocalArray, member: MemberIdx, offset: u64, buffer: Buf) {
        let array = &local.array;
        let again = buffer.clone();
        let bytes = to_u64(buffer.len());
        local.counts().member_writes.add(1);
        // A slot whose device has just been taken away is out: its content is carried by parity,
        // and the slots that were left out are recorded before the client is answered.
        let started = local.start_named(member, offset, (self.command)(buffer));
        if let Some((owner, pending)) = started {
            local.tally(member).begin_write(bytes);
            let target = WriteTarget::current(owner);
            self.note(array, owner, offset, &again);
            self.started.push((target, pending, Some((offset, again))));
        }
    }

    pub(super) fn note(&mut self, array: &Array, owner: MemberDevice, offset: u64, bytes: &Buf) {
        if let Some((_, noted)) = &mut self.noted {
            let block = (offset - array.data_offset) / ashlar_units::BLOCK_BYTES;
            noted.push(Noted::new(owner, block, bytes.clone()));
        }
    }

    /// Wait for all of them.
    pub(crate) async fn finish(mut self, local: &Rc<LocalArray>) -> FailedMembers {
        time_writes(local, &mut self.started, self.began).await;
        let mut failed = FailedMembers::new();
        // They are tried again when all have ended, so that each that has no room has said so.
        let mut without_room = NoRoom::new();
        for (at, (target, pending, again)) in self.started.drain(..).enumerate() {
            let result = ended(pending).await;
            if !target.is_replacement {
                let tally = local.tally(target.device.member);
                tally.counters.completed.add(1);
                tally.write_latency.record(local.worker.handle.turn_now().since(self.began));
            }
            match result {
                Ok(()) => {
                    local.array.slot(target.device.member).set_unflushed();
                    if let Some((pins, noted)) = &self.noted {
                        pins.note(&local.array, &noted[at]);
                    }
                }
                Err(_) if sings(Canary::FailedWriteIgnored) => {}
                Err(fault) => match again.filter(|_| fault.kind == FaultKind::NoSpace) {
                    Some(again) => without_room.push((at, target, again)),
                    None => blame(local, target, fault, &mut failed).await,
                },
            }
        }
        if !without_room.is_empty() {
            Box::pin(self.store_when_there_is_room(local, without_room, &mut failed)).await;
        }
        failed
    }

    pub(super) async fn store_when_there_is_room(
        &self,
        local: &Rc<LocalArray>,
        without_room: NoRoom,
        failed: &mut FailedMembers,
    ) {
        let _torn = local.array.room.tear();
        for (_, target, _) in &without_room {
            local.array.room.note_full(target.device.member);
        }
        for (at, target, (offset, bytes)) in without_room {
            match local.device_of(target.device) {
                None => blame(local, target, Fault::GONE, failed).await,
                Some(device) => {
                    match try_again(local, target.device.member, &device, offset, &bytes).await {
                        Ok(()) => {
                            local.array.slot(target.device.member).set_unflushed();
                            if let Some((pins, noted)) = &self.noted {
                                pins.note(&local.array, &noted[at]);
                            }
                        }
                        Err(fault) => blame(local, target, fault, failed).await,
                    }
                }
            }
        }
    }
}

async fn ended(pending: Pending<Outcome>) -> Result<(), Fault> {
    pending.await.map_or(Err(Fault::GONE), |outcome| outcome.result)
}
