//! Many callers, one round of work: callers that come while a round runs share the next one.
//!
//! What must stay true: a caller is answered by a round that *started* after it came, so the round
//! covers everything that the caller did before. One round runs at a time. If the caller that runs
//! the round goes away, another one can run it.

use ashlar_ring::local::Signal;
use std::cell::{Cell, RefCell};
use std::future::Future;

/// Rounds of one kind of work.
pub(crate) struct Rounds {
    started: Cell<u64>,
    is_running: Cell<bool>,
    /// Results of the newest rounds, as (round, went well).
    results: RefCell<Vec<(u64, bool)>>,
    changed: Signal,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds {
            started: Cell::new(0),
            is_running: Cell::new(false),
            results: RefCell::default(),
            changed: Signal::new(),
        }
    }
}

/// Results kept: a caller looks at its result in the same turn in which it is woken, so few
/// suffice.
const RESULTS_KEPT: usize = 64;

impl Rounds {
    /// Be served by a round that starts now or later; `work` is run by one of the callers.
    pub(crate) async fn join<F: Future<Output = bool>>(&self, work: impl FnOnce() -> F) -> bool {
        let wanted = self.started.get() + 1;
        let mut work = Some(work);
        loop {
            if let Some(went_well) = self.result_of(wanted) {
                return went_well;
            }
            if self.is_running.get() {
                self.changed.changed().await;
                continue;
            }
            let work = work.take().expect("a round that was run has a result");
            let running = Running::begin(self);
            let went_well = work().await;
            running.end(went_well);
            return went_well;
        }
    }

    /// The result of round `wanted` or a later one, if one has ended.
    fn result_of(&self, wanted: u64) -> Option<bool> {
        let results = self.results.borrow();
        results.iter().find(|(round, _)| *round >= wanted).map(|(_, went_well)| *went_well)
    }
}

struct Running<'r> {
    rounds: &'r Rounds,
    round: u64,
}

impl<'r> Running<'r> {
    fn begin(rounds: &'r Rounds) -> Self {
        rounds.is_running.set(true);
        rounds.started.set(rounds.started.get() + 1);
        Running { rounds, round: rounds.started.get() }
    }

    fn end(self, went_well: bool) {
        let mut results = self.rounds.results.borrow_mut();
        if results.len() == RESULTS_KEPT {
            results.remove(0);
        }
        results.push((self.round, went_well));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.rounds.is_running.set(false);
        self.rounds.changed.notify_all();
    }
}
