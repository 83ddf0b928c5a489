//! Compute what a plan stores besides the data: the parity strips of each band.
//!
//! What must stay true: pure memory work, no I/O, no waiting. The result holds one entry for each
//! parity write of the plan, so that storing needs no further copy.

use crate::array::Array;
use crate::datapath::payload::Payload;
use crate::layouts::Layout;
use crate::local_array::LocalArray;
use crate::rows::RowSet;
use crate::scratch::StripeBuffers;
use ashlar_layout::{Band, Stripe, WriteKind, WritePlan};
use ashlar_parity::{Change, Locality};
use ashlar_units::{STRIPS_MAX, StripIdx, StripSet, to_usize};
use smallvec::SmallVec;

/// Parities a code has at most.
const PARITIES_MAX: usize = 32;
/// Above this many bytes of one strip the stripe no longer fits the second-level cache next to its
/// neighbours, and parity that goes straight to memory is faster.
const STREAMING_BYTES: u64 = 256 << 10;

/// The parity rows that `plan` writes. `old` is what its gather read.
pub(super) fn compute(
    local: &LocalArray,
    plan: &WritePlan,
    payload: &Payload,
    old: RowSet,
    buffers: &mut StripeBuffers,
) -> RowSet {
    let data_strips = local.array.geometry_of(payload.stripe()).data_strips();
    let (old_data, old_parity) = part(local, old, data_strips);
    if plan.bands().iter().all(|band| band.kind == WriteKind::ReadModifyWrite) {
        // The rows read are the rows written: update them where they lie.
        let mut parity = old_parity;
        for band in plan.bands() {
            update(&local.array, band, payload, &old_data, &mut parity);
        }
        return parity;
    }
    let mut parity = RowSet::new(&local.pools.rows);
    for io in plan.writes().filter(|io| io.strip.at() >= data_strips) {
        let mut buffer = buffers.pop().expect("one buffer for each parity write of the plan");
        buffer.truncate(to_usize(io.rows.bytes()));
        parity.push(io.strip, io.rows, buffer);
    }
    for band in plan.bands().iter().filter(|band| !band.parity.is_empty()) {
        match band.kind {
            WriteKind::ReadModifyWrite => {
                copy_rows(band, &old_parity, &mut parity);
                update(&local.array, band, payload, &old_data, &mut parity);
            }
            WriteKind::DecodeThenWrite => {
                let old = [&old_data, &old_parity];
                let decoded = decode(local, payload.stripe(), band, old, buffers);
                generate(local, band, payload, [&old_data, &decoded], &mut parity);
            }
            WriteKind::FullStripe | WriteKind::ReconstructWrite => {
                generate(
                    local,
                    band,
                    payload,
                    [&old_data, &RowSet::new(&local.pools.rows)],
                    &mut parity,
                );
            }
        }
    }
    parity
}

/// Buffers that [`compute`] takes beyond those of the gather.
pub(super) fn buffers_needed(plan: &WritePlan, data_strips: usize) -> usize {
    let all_modify = plan.bands().iter().all(|band| band.kind == WriteKind::ReadModifyWrite);
    let outputs = plan.writes().filter(|io| io.strip.at() >= data_strips).count();
    let decoded: usize = plan.bands().iter().map(|band| band.decoded.count()).sum();
    decoded + if all_modify { 0 } else { outputs }
}

fn part(local: &LocalArray, mut set: RowSet, data_strips: usize) -> (RowSet, RowSet) {
    let mut parity = RowSet::new(&local.pools.rows);
    parity.entries.extend(set.entries.extract_if(.., |entry| entry.strip.at() >= data_strips));
    (set, parity)
}

fn copy_rows(band: &Band, old: &RowSet, parity: &mut RowSet) {
    for strip in band.parity.iter() {
        let targets: [_; 1] = parity.slices_mut(StripSet::only(strip), band.rows, strip.at());
        for target in targets.into_iter().flatten() {
            target.copy_from_slice(old.slice(strip, band.rows));
        }
    }
}

fn update(array: &Array, band: &Band, payload: &Payload, old: &RowSet, parity: &mut RowSet) {
    let change = |strip: StripIdx| Change {
        column: strip.at(),
        old: old.slice(strip, band.rows),
        new: payload.slice(strip, band.rows),
    };
    let changes: SmallVec<[Change<'_>; 8]> = band.written.iter().map(change).collect();
    let Layout { geometry, code } = array.layout_of(payload.stripe());
    let data_strips = geometry.data_strips();
    let mut targets: [_; PARITIES_MAX] = parity.slices_mut(band.parity, band.rows, data_strips);
    let targets = &mut targets[..geometry.parity_strips()];
    code.update(&changes, targets, Locality::Cached).expect("slices of one band are equally long");
}

fn generate(
    local: &LocalArray,
    band: &Band,
    payload: &Payload,
    old: [&RowSet; 2],
    parity: &mut RowSet,
) {
    let Layout { geometry, code } = local.array.layout_of(payload.stripe());
    let data_strips = geometry.data_strips();
    let mut data: [&[u8]; STRIPS_MAX] = [&[]; STRIPS_MAX];
    for strip in geometry.data().iter() {
        data[strip.at()] = if band.written.contains(strip) {
            payload.slice(strip, band.rows)
        } else if band.zeroed.contains(strip) {
            &local.worker.zeros[..to_usize(band.rows.bytes())]
        } else if band.decoded.contains(strip) {
            old[1].slice(strip, band.rows)
        } else {
            old[0].slice(strip, band.rows)
        };
    }
    let mut targets: [_; PARITIES_MAX] = parity.slices_mut(band.parity, band.rows, data_strips);
    let targets = &mut targets[..geometry.parity_strips()];
    let locality =
        if band.rows.bytes() > STREAMING_BYTES { Locality::Streaming } else { Locality::Cached };
    code.generate(&data[..data_strips], targets, locality)
        .expect("slices of one band are equally long");
}

fn decode(
    local: &LocalArray,
    stripe: Stripe,
    band: &Band,
    [old_data, old_parity]: [&RowSet; 2],
    buffers: &mut StripeBuffers,
) -> RowSet {
    let data_strips = local.array.geometry_of(stripe).data_strips();
    let source = |strip: StripIdx| {
        let set = if strip.at() < data_strips { old_data } else { old_parity };
        set.slice(strip, band.rows)
    };
    let mut decoded = RowSet::new(&local.pools.rows);
    for strip in band.decoded.iter() {
        let mut buffer = buffers.pop().expect("one buffer for each decoded strip");
        buffer.truncate(to_usize(band.rows.bytes()));
        decoded.push(strip, band.rows, buffer);
    }
    let mut outputs: SmallVec<[&mut [u8]; 8]> = SmallVec::new();
    outputs.extend(decoded.entries.iter_mut().map(|entry| &mut entry.bytes[..]));
    local.decode_plan(stripe, band.gather, band.decoded).run(source, &mut outputs);
    drop(outputs);
    decoded
}
