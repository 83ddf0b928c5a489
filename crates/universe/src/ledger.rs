//! The oracle: for every unit of the window, which writes may be found in it.
//!
//! What must stay true:
//! - *order*: a write that was answered before another began is under it. Writes under way at the
//!   same time may end up in either order, but once a read has shown the order it stays.
//! - *flush*: a write answered before a flush began is durable once that flush is answered. So is
//!   one with FUA once it is answered itself. A durable write and all later ones above it survive
//!   any crash.
//! - *kill*: a killed program loses nothing that was answered.
//! - *crash*: of the rest each unit keeps any one state, old or new. The first read afterwards
//!   settles which.
//! - *replay*: a write under way at a kill that is sent again is carried out once or again. From
//!   the start on it is under way, and its answer puts it over everything that ended before. A
//!   crash may leave pieces of it on what lies above it, though it was durable when it was sent
//!   first.
//! - *trim*: reads as before or as zeros. A read settles which.
//! - *uncertain*: only one kind of block is excepted from the rule of crashes: blocks of a
//!   whole-stripe write that an array with a log had not made durable at a crash. `uncertain` has
//!   the limits.
//!
//! Time is a counter of its own: it rises with every event here. Not here: what is promised when
//! (`config`), and the clients.

mod uncertain;

use crate::config::Payload;
use crate::content::{self, WriteId};
use ashlar_units::{Extent, to_u64, to_usize};
use std::collections::BTreeSet;
use std::fmt;
use uncertain::Holds;
pub use uncertain::Relaxed;

const NEVER: u64 = u64::MAX;

/// A state that a unit may be in.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    id: WriteId,
    holds: Holds,
    /// It was submitted then, or is known to be above everything that ended before.
    begin: u64,
    /// It was answered then, well or badly, or given up at a crash.
    end: u64,
    /// Since then whoever reads sees it, or what is above it.
    sure: u64,
    is_durable: bool,
    /// It was durable or seen when it was sent again, and is carried out once more: what that puts
    /// over others is not durable.
    is_again: bool,
    /// It is zeros that may come and go until they are flushed, on an array without a kept map.
    is_discard: bool,
    /// The program was killed after it was answered: it is there until the power goes.
    outlived: bool,
    /// It was answered with an error: it may come and go.
    is_failed: bool,
    /// The array was started since.
    is_past: bool,
    /// It may have gone to the members as part of a whole stripe.
    is_relaxed: bool,
    /// The same, but only if the array lacked no member any more when the engine planned it.
    is_relaxed_if_whole: bool,
}

impl State {
    fn is_under(&self, other: &State) -> bool {
        other.id != self.id && other.begin > self.end
    }
}

/// What a change is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Payload.
    Write,
    /// Zeros.
    Zeroes,
    /// Zeros, or nothing at all.
    Discard,
}

/// How everything came to a sudden end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The power went.
    Power,
    /// The program was killed. Whether discards that were seen stay seen.
    Kill {
        /// They do.
        discards_stay: bool,
    },
}

/// How a change ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Answered with success.
    Done,
    /// Answered with success, and durable.
    Durable,
    /// Answered with an error: it may have happened in part.
    Failed,
}

/// A change under way.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its number.
    pub id: WriteId,
    begin: u64,
    /// Bytes of the window.
    pub extent: Extent,
    /// What it is.
    pub change: Change,
}

/// All units of a window.
#[derive(Clone)]
pub struct Ledger {
    units: Vec<Vec<State>>,
    unit_bytes: u64,
    payload: Payload,
    /// What is excepted, where the array has a log that relaxes whole stripes.
    relaxed: Option<Relaxed>,
    now: u64,
    writes: u64,
    /// A device fails writes in this life.
    writes_fail: bool,
    /// Until then devices had no space; [`NEVER`]: they have none.
    no_space_until: u64,
    /// Stripes that the log may call in doubt at the next start, counted in the window.
    maybe_in_doubt: BTreeSet<usize>,
    /// Units with a change that was not flushed when the host stopped, since the last start that
    /// got through.
    unflushed: BTreeSet<usize>,
    /// What was known before a life that may record nothing.
    before: Option<(Vec<Vec<State>>, BTreeSet<usize>)>,
    /// That life records nothing.
    records_nothing: bool,
    /// When the reads under way began: what was above then is all that hides anything from them.
    readers: Vec<u64>,
    /// States that were durable and hid others, or were settled by a read: what a run has really
    /// tested.
    pub(crate) settled_by_read: u64,
    /// Reads that found something where there was doubt.
    pub(crate) found_in_doubt: u64,
}

/// A unit held what it may not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Unit of the window.
    pub unit: u64,
    /// What it held.
    pub found: String,
    /// What it may hold.
    pub allowed: Vec<String>,
    /// Everything known of it.
    pub history: Vec<String>,
}

impl Ledger {
    /// A window of `units` units that read as zeros.
    pub fn new(units: u64, unit_bytes: u64, payload: Payload, relaxed: Option<Relaxed>) -> Ledger {
        let zeros = State {
            id: WriteId(0),
            holds: Holds::Zeros,
            begin: 0,
            end: 0,
            sure: 0,
            is_durable: true,
            is_again: false,
            is_discard: false,
            outlived: false,
            is_failed: false,
            is_past: false,
            is_relaxed: false,
            is_relaxed_if_whole: false,
        };
        Ledger {
            units: vec![vec![zeros]; to_usize(units)],
            unit_bytes,
            payload,
            relaxed,
            now: 0,
            writes: 0,
            writes_fail: false,
            no_space_until: 0,
            maybe_in_doubt: BTreeSet::new(),
            unflushed: BTreeSet::new(),
            before: None,
            records_nothing: false,
            readers: Vec::new(),
            settled_by_read: 0,
            found_in_doubt: 0,
        }
    }

    /// A device fails writes from now on, until the next start. What it was writing may be there in
    /// pieces, and a read that crosses the write may see them: nobody promises more of a write that
    /// was not answered.
    pub fn writes_may_fail(&mut self) {
        self.writes_fail = true;
    }

    /// Devices have no space from now on, or have some again: see [`Self::observe_crossing`].
    pub fn set_no_space(&mut self, has_none: bool) {
        self.no_space_until = if has_none { NEVER } else { self.tick() };
    }

    /// A moment of its own.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// How often something happened so far.
    pub fn moment(&self) -> u64 {
        self.now
    }

    /// A read is submitted; to be ended by [`observe`](Self::observe) or
    /// [`end_read`](Self::end_read).
    pub fn begin_read(&mut self) -> u64 {
        let begun = self.tick();
        self.readers.push(begun);
        begun
    }

    /// The read that began then has ended, or will not.
    pub fn end_read(&mut self, begun: u64) {
        self.readers.retain(|reader| *reader != begun);
    }

    fn oldest_reader(&self) -> u64 {
        self.readers.iter().copied().min().unwrap_or(NEVER)
    }

    /// Bytes of the window.
    pub fn bytes(&self) -> u64 {
        to_u64(self.units.len()) * self.unit_bytes
    }

    /// A client submits a change of `extent` (bytes of the window, whole units).
    pub fn begin(&mut self, change: Change, extent: Extent, client: usize) -> Begun {
        self.begin_on(change, extent, (client, false))
    }

    /// The same on an array that lacks a member wherever the change goes, or does not.
    pub fn begin_on(
        &mut self,
        change: Change,
        extent: Extent,
        (client, lacks): (usize, bool),
    ) -> Begun {
        self.writes += 1;
        let id = WriteId(self.writes * 16 + to_u64(client));
        let begun = Begun { id, begin: self.tick(), extent, change };
        for unit in self.range(extent) {
            self.units[unit].push(State::under_way(&begun));
        }
        if change != Change::Discard {
            self.note_whole_stripes(extent, lacks);
        }
        begun
    }

    /// A change that was not answered when the program was killed is submitted once more, before
    /// anything else. It is under way again, from now on: where it has shown it stays, and what
    /// begins before it is answered may be under it or above it.
    pub fn resume(&mut self, begun: Begun, lacks: bool) -> Begun {
        let begun = Begun { begin: self.tick(), ..begun };
        for unit in self.range(begun.extent) {
            let states = &mut self.units[unit];
            match states.iter().position(|state| state.id == begun.id) {
                Some(at) if states[at].sure != NEVER => {
                    let state = &mut states[at];
                    (state.end, state.is_again, state.is_past) = (NEVER, true, false);
                }
                Some(at) => {
                    states.remove(at);
                    states.push(State::under_way(&begun));
                }
                None => states.push(State::under_way(&begun)),
            }
        }
        if begun.change != Change::Discard {
            self.note_whole_stripes(begun.extent, lacks);
        }
        begun
    }

    /// The payload of a write that has begun.
    pub fn fill(&self, begun: Begun, target: &mut [u8]) {
        let first = begun.extent.offset / self.unit_bytes;
        for (unit, part) in (first..).zip(target.chunks_mut(to_usize(self.unit_bytes))) {
            content::fill(self.payload, unit, begun.id, part);
        }
    }

    /// The change was answered.
    pub fn end(&mut self, begun: Begun, ending: Ending) {
        let (now, oldest) = (self.tick(), self.oldest_reader());
        for unit in self.range(begun.extent) {
            let states = &mut self.units[unit];
            let Some(state) = states.iter_mut().find(|state| state.id == begun.id) else {
                continue;
            };
            state.end = now;
            state.is_failed = ending == Ending::Failed;
            if begun.change == Change::Discard || ending == Ending::Failed {
                continue;
            }
            state.sure = now;
            state.is_durable |= ending == Ending::Durable;
            state.is_again &= ending != Ending::Durable;
            prune(states, oldest);
        }
    }

    /// A flush that was submitted at `begun` was answered with success.
    pub fn flushed(&mut self, begun: u64) {
        self.tick();
        let oldest = self.oldest_reader();
        for states in &mut self.units {
            let mut is_news = false;
            for state in states.iter_mut() {
                is_news |= !state.is_durable && state.sure < begun;
                state.is_durable |= state.sure < begun;
                state.is_again &= state.sure >= begun || state.end >= begun;
            }
            if is_news {
                prune(states, oldest);
            }
        }
    }

    /// The array was stopped cleanly: everything answered is durable.
    pub fn stopped(&mut self) {
        let now = self.tick();
        self.flushed(now);
        self.crashed(Crash::Power, false);
        self.maybe_in_doubt.clear();
    }

    /// The power went or the program died: what was under way is given up. If the power went, what
    /// is not durable may be gone. `was_rebuilt`: a slot came into sync since the start, so what
    /// began on an array that lacked a member may have been planned on one that did not.
    pub fn crashed(&mut self, crash: Crash, was_rebuilt: bool) {
        let now = self.tick();
        self.writes_fail = false;
        self.no_space_until = 0;
        self.readers.clear();
        for (unit, states) in self.units.iter_mut().enumerate() {
            for state in states.iter_mut().filter(|state| state.is_relaxed_if_whole) {
                state.is_relaxed |= was_rebuilt;
                state.is_relaxed_if_whole = false;
            }
            prune(states, NEVER);
            let is_open = |state: &State| !state.is_durable || state.is_again;
            if states.iter().any(|state| is_open(state) && !state.is_past) {
                self.unflushed.insert(unit);
            }
            let uncertain =
                self.relaxed.and_then(|relaxed| uncertain::of(states, now, (relaxed, crash)));
            states.extend(uncertain);
            for state in states.iter_mut() {
                state.end = state.end.min(now);
                state.is_failed = false;
                state.is_past = true;
                state.is_again &= crash != Crash::Power;
                state.outlived = state.outlives(crash);
                if !state.is_durable && !state.outlived {
                    state.sure = NEVER;
                }
            }
        }
    }

    /// A life begins that may record nothing, while a device is away that the array knows in
    /// service: what is known now is known again after it.
    pub fn remember(&mut self) {
        self.before = Some((self.units.clone(), self.unflushed.clone()));
    }

    /// That life has begun: it is read-only, or has recorded something.
    pub fn begins(&mut self, is_read_only: bool) {
        self.records_nothing = is_read_only;
    }

    /// A life is over. If it recorded nothing, what it read settled nothing: with the device back,
    /// that may be gone.
    pub fn recall(&mut self) {
        let records_nothing = std::mem::take(&mut self.records_nothing);
        if let Some((units, unflushed)) = self.before.take().filter(|_| records_nothing) {
            (self.units, self.unflushed) = (units, unflushed);
        }
    }

    /// Whether unit content may be `bytes` for a read submitted at `begun` that is answered now;
    /// what it says is settled.
    ///
    /// # Errors
    /// The first unit that is wrong.
    pub fn observe(&mut self, begun: u64, extent: Extent, bytes: &[u8]) -> Result<(), Box<Wrong>> {
        self.observe_unless_crossed(begun, extent, bytes, self.writes_fail)
    }

    /// As [`Self::observe`], of a read while the engine knew of no write without space. One may
    /// have begun all the same: what its device had written by then may be there in pieces.
    ///
    /// # Errors
    /// The first unit that is wrong.
    pub fn observe_crossing(
        &mut self,
        begun: u64,
        extent: Extent,
        bytes: &[u8],
    ) -> Result<(), Box<Wrong>> {
        let may_cross = self.writes_fail || begun < self.no_space_until;
        self.observe_unless_crossed(begun, extent, bytes, may_cross)
    }

    fn observe_unless_crossed(
        &mut self,
        begun: u64,
        extent: Extent,
        bytes: &[u8],
        may_cross: bool,
    ) -> Result<(), Box<Wrong>> {
        let now = self.tick();
        self.end_read(begun);
        let size = to_usize(self.unit_bytes);
        for (unit, part) in self.range(extent).zip(bytes.chunks(size)) {
            let (states, payload) = (&self.units[unit], self.payload);
            let is_hidden = |state: &State| {
                states.iter().any(|other| other.sure < begun && state.is_under(other))
            };
            let seen = uncertain::Seen { payload, unit: to_u64(unit), bytes: part };
            let torn_at = self.relaxed.map_or(part.len(), |relaxed| relaxed.torn_at);
            let is_it = |state: &State| state.holds.are(state.id, seen, torn_at);
            // Of states with zeros it may be any. Doubt comes last, newest first.
            let among = |is_uncertain: bool| -> Vec<usize> {
                let may_be = |state: &State| {
                    state.holds.is_uncertain() == is_uncertain && is_it(state) && !is_hidden(state)
                };
                (0..states.len()).filter(|at| may_be(&states[*at])).collect()
            };
            let mut shown = among(false);
            if shown.is_empty() {
                shown.extend(among(true).last());
            }
            match shown.last() {
                Some(newest) => {
                    self.keep_found(unit, *newest, part);
                    self.settle(unit, &shown, (begun, now));
                }
                None if may_cross && uncertain::is_crossed(states, seen, begun) => {}
                None => return Err(Box::new(self.wrong(unit, begun, part))),
            }
        }
        Ok(())
    }

    /// A read showed one of these states: if all of them had ended when the read began, which of
    /// the others may still be shown?
    fn settle(&mut self, unit: usize, shown: &[usize], (begun, now): (u64, u64)) {
        let states = &mut self.units[unit];
        let has_failed = states.iter().any(|state| state.is_failed);
        let is_under_way = shown.iter().any(|at| states[*at].end >= begun);
        if is_under_way || has_failed || states.len() == 1 {
            return;
        }
        // What is under the first of them is under the one that showed, whichever it was.
        let first = shown.iter().copied().min_by_key(|at| states[*at].begin);
        let seen = states[first.expect("one showed")].clone();
        let ids: Vec<WriteId> = shown.iter().map(|at| states[*at].id).collect();
        let is_past = shown.iter().all(|at| states[*at].is_past);
        states.retain(|state| {
            // What a crash left open is settled by this; a discard after the state that shows did
            // nothing.
            let is_refuted = is_past && state.is_past;
            let did_nothing =
                ids.len() == 1 && state.is_idle_discard(begun) && seen.is_under(state);
            ids.contains(&state.id) || !(is_refuted || did_nothing)
        });
        let is_it = |state: &&mut State| state.id == seen.id;
        let state = states.iter_mut().find(is_it).expect("it was kept");
        if ids.len() == 1 {
            state.begin = state.begin.max(begun);
        }
        state.sure = state.sure.min(now);
        state.is_durable |= is_past;
        state.is_again &= !is_past;
        self.settled_by_read += 1;
        prune(states, self.readers.iter().copied().min().unwrap_or(NEVER));
    }

    fn range(&self, extent: Extent) -> std::ops::Range<usize> {
        assert!(extent.is_aligned_to(self.unit_bytes), "{extent} in units");
        to_usize(extent.offset / self.unit_bytes)..to_usize(extent.end() / self.unit_bytes)
    }

    fn wrong(&self, unit: usize, begun: u64, part: &[u8]) -> Wrong {
        let states = &self.units[unit];
        let is_hidden =
            |state: &State| states.iter().any(|other| other.sure < begun && state.is_under(other));
        let allowed = states.iter().filter(|state| !is_hidden(state)).map(State::name).collect();
        Wrong {
            unit: to_u64(unit),
            found: content::describe(self.payload, part),
            allowed,
            history: states.iter().map(ToString::to_string).collect(),
        }
    }
}

impl State {
    fn under_way(begun: &Begun) -> State {
        State {
            id: begun.id,
            holds: if begun.change == Change::Write { Holds::Payload } else { Holds::Zeros },
            begin: begun.begin,
            end: NEVER,
            sure: NEVER,
            is_durable: false,
            is_again: false,
            is_discard: begun.change == Change::Discard,
            outlived: false,
            is_failed: false,
            is_past: false,
            is_relaxed: false,
            is_relaxed_if_whole: false,
        }
    }

    /// Whether it was answered and is there after this end.
    fn outlives(&self, crash: Crash) -> bool {
        match crash {
            Crash::Power => false,
            Crash::Kill { discards_stay } => {
                self.sure != NEVER && (discards_stay || !self.is_discard)
            }
        }
    }

    /// Whether it is a discard that ended before `begun` and has not shown.
    fn is_idle_discard(&self, begun: u64) -> bool {
        self.holds == Holds::Zeros && self.sure == NEVER && self.end < begun && !self.is_past
    }

    fn name(&self) -> String {
        if self.id == WriteId(0) {
            return "the zeros it began with".to_owned();
        }
        match self.holds.what() {
            Some(what) => what.to_owned(),
            None if self.holds == Holds::Zeros => format!("zeros of {}", self.id),
            None => format!("data of {}", self.id),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.end == NEVER { "under way".to_owned() } else { self.end.to_string() };
        write!(f, "{}: {} to {end}", self.name(), self.begin)?;
        for (is_so, word) in [
            (self.is_durable, "durable"),
            (self.is_failed, "failed"),
            (self.is_past, "before the last start"),
        ] {
            if is_so {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}

/// Forget what is under a durable state that every read under way must see.
fn prune(states: &mut Vec<State>, oldest_reader: u64) {
    let counts = |state: &&State| state.is_durable && state.sure < oldest_reader;
    let newest = states.iter().filter(counts).map(|state| state.begin).max();
    let Some(newest) = newest else { return };
    states.retain(|state| state.end >= newest || (state.is_durable && state.begin == newest));
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "unit {} holds {}", self.unit, self.found)?;
        writeln!(f, "  it may hold  {}", self.allowed.join(" or "))?;
        write!(f, "  known of it  {}", self.history.join("\n               "))
    }
}

#[cfg(test)]
mod tests;
