//! How many losses the stripes of an array with distributed spares still survive, as counted, and
//! how fast its critical stripes are being made safer.
//!
//! What must stay true: counts are shown only if they are those of the spare table and of the slot
//! states as they are now. A count goes on while cells are filled: what is filled below the slice
//! that it has come to is subtracted as it was and added as it is.
//!
//! Not here: when slices are counted (`background/exposure.rs`).

use crate::array::Array;
use crate::member::SlotState;
use crate::spare_cells::SpareCells;
use ashlar_layout::declustered::Exposure;
use ashlar_units::{MemberIdx, Nanos};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Slices that are counted before others have their turn.
const SLICES_AT_ONCE: u64 = 256;
/// Batches that ended longer ago say nothing of the rate, if there is a newer one.
const RATE_OVER: Duration = Duration::from_secs(60);

/// Stripes of an array with distributed spares, written or not, by the losses they survive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayExposure {
    /// Stripes by the number of further losses that they survive: first those that survive none,
    /// last those that lack nothing.
    pub surviving: Vec<u64>,
    /// Stripes that lack more strips than parity replaces.
    pub beyond_parity: u64,
    /// The stripes that survive the fewest losses, if some lack anything and can be read.
    pub critical: Option<CriticalStripes>,
}

/// The stripes that survive the fewest losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CriticalStripes {
    /// Further losses that they survive.
    pub survive: usize,
    /// How many they are.
    pub stripes: u64,
    /// Those of them that no rebuild can make safer: no spare is free for what they lack.
    pub waiting: u64,
    /// Time until they are made safer at the rate of the last minute. `None` if that is unknown:
    /// before the first of them are, while nothing is rebuilt, or if some of them wait.
    pub time_left: Option<Duration>,
}

/// Counts of the stripes of an array. On the coordinator.
#[derive(Default)]
pub(crate) struct ExposureBoard {
    tally: RefCell<Option<Tally>>,
    batches: RefCell<VecDeque<Filled>>,
}

/// The slices that have been counted.
struct Tally {
    of: Moment,
    slices_done: u64,
    sum: Exposure,
}

/// What counts depend on.
#[derive(Clone, PartialEq, Eq)]
struct Moment {
    /// Of the spare table.
    version: u64,
    /// Members that serve nothing, in the table or not.
    gone: Vec<MemberIdx>,
}

/// Counts of the slices whose cells are being filled, as they are before.
pub(crate) struct CountsBefore {
    of: Moment,
    slices: BTreeMap<u64, Exposure>,
}

/// Cells that were filled together.
pub(crate) struct Filled {
    /// Strips that its stripes lacked.
    lost: usize,
    began: Nanos,
    ended: Nanos,
    /// Stripes that lack less.
    stripes: u64,
}

impl Filled {
    /// That of stripes which lacked so much, and that begins now.
    pub(crate) fn begun(lost: usize, now: Nanos) -> Filled {
        Filled { lost, began: now, ended: now, stripes: 0 }
    }

    /// It ends now.
    pub(crate) fn ended(self, now: Nanos) -> Filled {
        Filled { ended: now, ..self }
    }
}

impl Moment {
    fn now(array: &Array, cells: &SpareCells) -> Moment {
        let all = (0..array.slots.len()).map(MemberIdx::from_at);
        let gone = all.filter(|member| is_gone(array, cells, *member)).collect();
        Moment { version: cells.version(), gone }
    }

    fn count(&self, cells: &SpareCells, slice: u64) -> Exposure {
        cells.table().exposure_of(&cells.map(), slice, &self.gone)
    }
}

/// Whether a member serves nothing.
fn is_gone(array: &Array, cells: &SpareCells, member: MemberIdx) -> bool {
    let slot = array.slot(member);
    match slot.state() {
        SlotState::InSync => slot.fails(),
        SlotState::Rebuilding => slot.fails() || !cells.is_lost(member),
        SlotState::Failing | SlotState::Out => true,
    }
}

impl ExposureBoard {
    /// Whether the counts are those of this moment, so that there is nothing to do.
    pub(crate) fn is_current(&self, array: &Array) -> bool {
        self.counts(array).is_some()
    }

    /// Whether no member is lost.
    pub(crate) fn is_whole(array: &Array) -> bool {
        let is_whole =
            |cells: &SpareCells| !cells.has_losses() && Moment::now(array, cells).gone.is_empty();
        array.spare_cells.as_deref().is_none_or(is_whole)
    }

    /// Count some slices more; from the first one on if the counts are of another moment.
    pub(crate) fn count_some(&self, array: &Array) {
        let Some(cells) = array.spare_cells.as_deref() else { return };
        let now = Moment::now(array, cells);
        let mut kept = self.tally.borrow_mut();
        let map = cells.map();
        let mut tally = kept.take().filter(|tally| tally.of == now).unwrap_or_else(|| Tally {
            of: now,
            slices_done: 0,
            sum: Exposure::none(map.parts().parity_strips),
        });
        let end = map.slices().min(tally.slices_done + SLICES_AT_ONCE);
        for slice in tally.slices_done..end {
            tally.sum.add(&tally.of.count(cells, slice));
        }
        tally.slices_done = end;
        *kept = Some(tally);
    }

    fn counts(&self, array: &Array) -> Option<Exposure> {
        let cells = array.spare_cells.as_deref()?;
        let map = cells.map();
        if Self::is_whole(array) {
            return Some(Exposure::whole(map.parts().parity_strips, map.stripe_count()));
        }
        let tally = self.tally.borrow();
        let tally = tally.as_ref().filter(|it| it.of == Moment::now(array, cells))?;
        (tally.slices_done == map.slices()).then(|| tally.sum.clone())
    }

    /// The counts as they are; `None` while they are being counted, and of arrays without
    /// distributed spares.
    pub(crate) fn status(&self, array: &Array, now: Nanos) -> Option<ArrayExposure> {
        let counts = self.counts(array)?;
        let parity = counts.by_left().len() - 1;
        let critical = counts.critical().map(|it| CriticalStripes {
            survive: it.left,
            stripes: it.stripes,
            waiting: it.waiting,
            time_left: match it.waiting {
                0 => time_left(&self.batches.borrow(), parity - it.left, it.stripes, now),
                _ => None,
            },
        });
        let (surviving, beyond_parity) = (counts.by_left(), counts.beyond());
        Some(ArrayExposure { surviving, beyond_parity, critical })
    }

    /// Nothing is rebuilt at present.
    pub(crate) fn stands_still(&self) {
        self.batches.borrow_mut().clear();
    }

    /// The cells of a batch have been filled, and the table says so since this moment.
    pub(crate) fn filled(&self, cells: &SpareCells, before: &CountsBefore, batch: Filled) {
        let mut tally = self.tally.borrow_mut();
        let mut tally = tally.as_mut().filter(|tally| tally.of == before.of);
        let mut stripes = 0;
        for (slice, old) in &before.slices {
            let new = before.of.count(cells, *slice);
            stripes += old.lacking(batch.lost).saturating_sub(new.lacking(batch.lost));
            if let Some(tally) = tally.as_mut().filter(|tally| *slice < tally.slices_done) {
                tally.sum.subtract(old);
                tally.sum.add(&new);
            }
        }
        if let Some(tally) = tally {
            tally.of.version = cells.version();
        }
        self.note(Filled { stripes, ..batch });
    }

    fn note(&self, batch: Filled) {
        if batch.lost == 0 {
            return;
        }
        let mut batches = self.batches.borrow_mut();
        let is_of_use =
            |old: &Filled| old.lost == batch.lost && batch.ended.since(old.ended) <= RATE_OVER;
        batches.retain(is_of_use);
        batches.push_back(batch);
    }
}

/// Count the stripes of these slices before cells of them are filled.
pub(crate) fn before(
    array: &Array,
    cells: &SpareCells,
    slices: impl Iterator<Item = u64>,
) -> CountsBefore {
    let of = Moment::now(array, cells);
    let slices = slices.map(|slice| (slice, of.count(cells, slice))).collect();
    CountsBefore { of, slices }
}

/// Time until so many stripes that lack so many strips lack less.
fn time_left(
    batches: &VecDeque<Filled>,
    lost: usize,
    stripes: u64,
    now: Nanos,
) -> Option<Duration> {
    let first = batches.front().filter(|batch| batch.lost == lost)?;
    let done: u64 = batches.iter().map(|batch| batch.stripes).sum();
    let passed = now.since(first.began).as_nanos();
    let left = (u128::from(stripes) * passed).checked_div(u128::from(done))?;
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::{ExposureBoard, Filled, time_left};
    use ashlar_units::Nanos;
    use std::time::Duration;

    fn batch(lost: usize, seconds: (u64, u64), stripes: u64) -> Filled {
        let [began, ended] =
            [seconds.0, seconds.1].map(|at| Nanos(0).after(Duration::from_secs(at)));
        Filled { lost, began, ended, stripes }
    }

    fn left(board: &ExposureBoard, lost: usize, stripes: u64, now_s: u64) -> Option<u64> {
        let now = Nanos(0).after(Duration::from_secs(now_s));
        time_left(&board.batches.borrow(), lost, stripes, now).map(|it| it.as_secs())
    }

    #[test]
    fn the_time_left_follows_the_rate_of_the_last_minute() {
        let board = ExposureBoard::default();
        assert_eq!(left(&board, 2, 1000, 5), None, "nothing is done yet");
        board.note(batch(2, (0, 10), 100));
        assert_eq!(left(&board, 2, 900, 10), Some(90));
        assert_eq!(left(&board, 2, 900, 20), Some(180), "the next batch takes its time");
        board.note(batch(2, (10, 20), 300));
        assert_eq!(left(&board, 2, 600, 20), Some(30));
        board.note(batch(2, (70, 80), 50));
        assert_eq!(left(&board, 2, 500, 80), Some(100), "the first batch is too long ago");
    }

    #[test]
    fn stripes_that_lacked_something_else_say_nothing_of_the_time() {
        let board = ExposureBoard::default();
        board.note(batch(2, (0, 10), 100));
        assert_eq!(left(&board, 1, 900, 10), None);
        board.note(batch(1, (10, 20), 200));
        assert_eq!(left(&board, 1, 200, 20), Some(10));
        assert_eq!(left(&board, 2, 200, 20), None);
        board.note(batch(0, (20, 40), 0));
        assert_eq!(left(&board, 1, 200, 40), Some(30), "copies back make nothing safer");
        board.stands_still();
        assert_eq!(left(&board, 1, 200, 40), None);
    }
}
