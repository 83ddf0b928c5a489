//! What an array with a log does not promise: blocks of a whole-stripe write that was not durable
//! at a crash.
//!
//! What must stay true:
//! - A write is *relaxed* only if it covered its stripe, alone or with others under way at the same
//!   moment: the engine joins writes that wait for a stripe, and does not log a whole stripe.
//! - A write is not relaxed if a member of its group is missing, because the engine then logs whole
//!   stripes, too. Before it plans a write there, it makes earlier answered whole stripes durable.
//!   They are in doubt no more once that write is answered.
//! - At a crash a unit of a relaxed write that was not durable holds one of its possible states,
//!   or, where devices tear it, pieces of several. If its member is missing at the next start, it
//!   may hold anything.
//! - Once a read has shown a state, it stays, as for every other block.
//! - Where the operator starts an array for writing that a crash left without a proof, blocks of
//!   missing members may be anything, once.
//! - On an array with checksums, rot in a row in doubt may count as found. This does not hold for a
//!   row that was flushed and has no more wrong or missing blocks than parity replaces: its blocks
//!   are as they were (`damaged::believed`).

use super::{Begun, Crash, Ledger, NEVER, State};
use crate::config::Payload;
use crate::content::{self, WriteId};
use ashlar_units::{Extent, to_u64, to_usize};
use std::sync::Arc;

/// What is excepted on an array whose log relaxes whole stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relaxed {
    /// Units of a stripe.
    pub stripe_units: usize,
    /// Bytes that no device tears.
    pub torn_at: usize,
    /// Devices may leave junk where a write over sectors that could not be read was cut off.
    pub leaves_junk: bool,
}

/// So many stripes after one that continues a stream of whole stripes may have a record already.
const STRIPES_AHEAD: usize = 64;
/// No device tears into smaller pieces, bytes.
const TORN_AT_LEAST: usize = 128;

/// What a state holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// Zeros.
    Zeros,
    /// What its write put there.
    Payload,
    /// What a read found where there was doubt.
    Found(Arc<[u8]>),
    /// Pieces of any of these.
    Torn(Vec<(WriteId, Holds)>),
    /// Anything: the member was lost with the crash.
    Anything(Vec<(WriteId, Holds)>),
}

/// What a read showed of a unit.
#[derive(Clone, Copy)]
pub(super) struct Seen<'b> {
    pub(super) payload: Payload,
    pub(super) unit: u64,
    pub(super) bytes: &'b [u8],
}

impl Holds {
    pub(super) fn is_uncertain(&self) -> bool {
        matches!(self, Holds::Torn(_) | Holds::Anything(_))
    }

    pub(super) fn what(&self) -> Option<&'static str> {
        match self {
            Holds::Zeros | Holds::Payload => None,
            Holds::Found(_) => Some("what was read before"),
            Holds::Torn(_) => Some("pieces, for a whole stripe was under way at a crash"),
            Holds::Anything(_) => Some("anything, for a whole stripe was under way at a crash"),
        }
    }

    /// Whether the bytes are that of write `id`.
    pub(super) fn are(&self, id: WriteId, seen: Seen<'_>, torn_at: usize) -> bool {
        match self {
            Holds::Zeros => content::is_zero(seen.bytes),
            Holds::Payload => content::is_of(seen.payload, seen.unit, id, seen.bytes),
            Holds::Found(bytes) => bytes[..] == *seen.bytes,
            Holds::Torn(parts) => parts_cover(parts, seen, torn_at),
            Holds::Anything(_) => true,
        }
    }

    fn fill(&self, id: WriteId, (payload, unit): (Payload, u64), target: &mut [u8]) {
        match self {
            Holds::Payload => content::fill(payload, unit, id, target),
            Holds::Found(bytes) => target.copy_from_slice(bytes),
            _ => target.fill(0),
        }
    }
}

/// Whether the bytes are pieces of what the unit may hold, and a write of it was under way after
/// the read had `begun`, or has failed.
pub(super) fn is_crossed(states: &[State], seen: Seen<'_>, begun: u64) -> bool {
    let is_open = |state: &State| state.end >= begun || state.is_failed;
    let parts: Vec<(WriteId, Holds)> = states
        .iter()
        .filter(|state| !state.holds.is_uncertain())
        .map(|state| (state.id, state.holds.clone()))
        .collect();
    states.iter().any(is_open) && parts_cover(&parts, seen, TORN_AT_LEAST)
}

/// Whether every piece is that of some part.
fn parts_cover(parts: &[(WriteId, Holds)], seen: Seen<'_>, torn_at: usize) -> bool {
    let whole = |(id, holds): &(WriteId, Holds)| {
        let mut bytes = vec![0; seen.bytes.len()];
        holds.fill(*id, (seen.payload, seen.unit), &mut bytes);
        bytes
    };
    let wholes: Vec<Vec<u8>> = parts.iter().map(whole).collect();
    (0..seen.bytes.len()).step_by(torn_at).all(|at| {
        let piece = at..(at + torn_at).min(seen.bytes.len());
        wholes.iter().any(|whole| whole[piece.clone()] == seen.bytes[piece.clone()])
    })
}

/// The doubt that a crash at `now` leaves about a unit, if a relaxed write was not durable.
pub(super) fn of(states: &[State], now: u64, (relaxed, crash): (Relaxed, Crash)) -> Option<State> {
    let is_open = |state: &State| {
        let is_of_last_run = !state.is_past || state.outlived;
        let is_open = !state.is_durable && is_of_last_run && !state.outlives(crash);
        // Cut off, or in caches.
        let is_again = state.is_again && (state.end == NEVER || crash == Crash::Power);
        state.is_relaxed && (is_open || is_again)
    };
    let newest = states.iter().filter(|state| is_open(state)).map(|state| state.begin).max()?;
    let mut parts = Vec::new();
    // What was answered before a kill hides what was before.
    let is_hidden =
        |state: &State| states.iter().any(|other| other.outlives(crash) && state.is_under(other));
    for state in states.iter().filter(|state| !is_hidden(state)) {
        match &state.holds {
            Holds::Torn(older) => parts.extend(older.iter().cloned()),
            Holds::Anything(_) => {}
            holds => parts.push((state.id, holds.clone())),
        }
    }
    // Where anything may have been, anything may be left.
    let is_anything =
        relaxed.leaves_junk || states.iter().any(|state| matches!(state.holds, Holds::Anything(_)));
    let holds = if is_anything { Holds::Anything(parts) } else { Holds::Torn(parts) };
    // Until the array has started: a member that is not there then was lost with the crash.
    Some(uncertain_state(now, newest, holds, true))
}

fn uncertain_state(now: u64, begin: u64, holds: Holds, is_relaxed: bool) -> State {
    State {
        id: WriteId(NEVER - now),
        holds,
        begin,
        end: now,
        sure: NEVER,
        is_durable: false,
        is_again: false,
        is_discard: false,
        outlived: false,
        is_failed: false,
        is_past: true,
        is_relaxed,
        is_relaxed_if_whole: false,
    }
}

impl Ledger {
    /// If all of a stripe is being written now, all of these writes may go to the members as one
    /// whole stripe.
    pub(super) fn note_whole_stripes(&mut self, extent: Extent, lacks: bool) {
        let Some(relaxed) = self.relaxed else { return };
        let units = self.range(extent);
        let stripes = units.start / relaxed.stripe_units..units.end.div_ceil(relaxed.stripe_units);
        let is_under_way = |state: &State| state.end == NEVER;
        for stripe in stripes {
            let own = stripe * relaxed.stripe_units..(stripe + 1) * relaxed.stripe_units;
            let units = &mut self.units[own];
            if !units.iter().all(|states| states.iter().any(is_under_way)) {
                continue;
            }
            self.maybe_in_doubt.insert(stripe);
            if self.maybe_in_doubt.contains(&stripe.wrapping_sub(1)) {
                self.maybe_in_doubt.extend(stripe..stripe + STRIPES_AHEAD);
            }
            let all = units.iter_mut().flatten();
            for state in all.filter(|state| is_under_way(state)) {
                // What lacks a member is logged in full, whole stripes too.
                state.is_relaxed |= !lacks;
                state.is_relaxed_if_whole |= lacks;
            }
        }
    }

    /// A write was answered that began, and ended, on an array that lacked a member: what whole
    /// stripes were answered before it began are durable, whatever the log says of them. True if
    /// there are such; unless a slot `was_rebuilt` meanwhile: then nothing is known.
    pub fn planned_degraded(&mut self, begun: Begun, was_rebuilt: impl FnOnce() -> bool) -> bool {
        let is_settled =
            |state: &State| state.is_relaxed && state.sure.max(state.end) < begun.begin;
        if !self.units.iter().flatten().any(is_settled) || was_rebuilt() {
            return false;
        }
        let settled = self.units.iter_mut().flatten().filter(|state| is_settled(state));
        settled.for_each(|state| state.is_relaxed = false);
        true
    }

    /// Whether all that was written to these units was flushed before the host stopped, and nothing
    /// was being written to them.
    pub fn are_flushed(&self, mut units: std::ops::Range<u64>) -> bool {
        units.all(|unit| !self.unflushed.contains(&to_usize(unit)))
    }

    /// An array with checksums has started: in some rows in doubt what was found was believed.
    /// Where `is_believed`, a device had lied about it, or it follows from what one had. Gives back
    /// in how many units anything may be found.
    pub fn taken_as_found(&mut self, is_believed: impl Fn(u64) -> bool) -> u64 {
        let Some(relaxed) = self.relaxed else { return 0 };
        let (now, mut count) = (self.tick(), 0);
        for stripe in &self.maybe_in_doubt {
            let end = ((stripe + 1) * relaxed.stripe_units).min(self.units.len());
            for unit in (stripe * relaxed.stripe_units).min(end)..end {
                if !is_believed(to_u64(unit)) {
                    continue;
                }
                let states = &mut self.units[unit];
                let begin = states.iter().map(|state| state.begin).max().unwrap_or(0);
                states.push(uncertain_state(now, begin, Holds::Anything(Vec::new()), false));
                count += 1;
            }
        }
        count
    }

    /// The operator accepts what a crash may have cost: units for which `is_lost` lay on members
    /// that are not there. Gives back in how many of them anything may be found.
    pub fn accepted(&mut self, is_lost: impl Fn(u64) -> bool) -> u64 {
        let (now, mut count) = (self.tick(), 0);
        for (unit, states) in self.units.iter_mut().enumerate() {
            if is_lost(to_u64(unit)) {
                let begin = states.iter().map(|state| state.begin).max().unwrap_or(0);
                states.push(uncertain_state(now, begin, Holds::Anything(Vec::new()), false));
                count += 1;
            }
        }
        count
    }

    /// The array has started: units for which `is_lost` lay on members that are not there, or could
    /// not be read. Gives back in how many of them anything may be found.
    pub fn started(&mut self, is_lost: impl Fn(u64) -> bool) -> u64 {
        let mut count = 0;
        self.maybe_in_doubt.clear();
        self.unflushed.clear();
        for (unit, states) in self.units.iter_mut().enumerate() {
            let is_open = |state: &&mut State| state.holds.is_uncertain() && state.is_relaxed;
            for state in states.iter_mut().filter(is_open) {
                state.is_relaxed = false;
                if is_lost(to_u64(unit))
                    && let Holds::Torn(parts) = &mut state.holds
                {
                    state.holds = Holds::Anything(std::mem::take(parts));
                    count += 1;
                }
            }
        }
        count
    }

    /// What was seen in doubt is what is there from now on.
    pub(super) fn keep_found(&mut self, unit: usize, at: usize, bytes: &[u8]) {
        let states = &mut self.units[unit];
        if states[at].holds.is_uncertain() {
            self.found_in_doubt += 1;
            states[at].holds = Holds::Found(Arc::from(bytes));
        }
    }
}
