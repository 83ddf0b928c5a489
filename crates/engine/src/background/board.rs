//! The progress of an array's jobs, as plain values that any thread may read.
//!
//! What must stay true: only the coordinator writes here. A reader waits for one short lock at
//! most.

use ashlar_ondisk::JobKind;
use ashlar_units::{MemberIdx, StripeNo};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a job is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobStatus {
    /// Its number: counts the jobs of an array since it started.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// The slot it works for; `None` means the whole array.
    pub slot: Option<MemberIdx>,
    /// Stripes visited.
    pub done_stripes: u64,
    /// Stripes to visit, as counted when it began or went on: writes meanwhile may add some.
    pub total_stripes: u64,
    /// Bytes it read and wrote on members.
    pub bytes: u64,
    /// The same in the last seconds, each second.
    pub bytes_per_s: u64,
    /// Blocks found wrong.
    pub mismatches: u64,
    /// Blocks put right.
    pub repaired: u64,
    /// Of a scrub: rows of blocks found wrong that stay as they are.
    pub left: u64,
    /// What is left undone because too much cannot be read: stripes for a rebuild or copy (which
    /// does not end before they are written anew or trimmed) and for a resync, blocks for a scrub.
    pub unrepairable: u64,
    /// The first of those stripes.
    pub lost_stripes: Vec<StripeNo>,
    /// Paused by the operator.
    pub is_paused: bool,
    /// Time left at the present rate; `None` if it stands still.
    pub eta: Option<Duration>,
}

/// How the last scrub since assembly ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubEnd {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// The operator ended it before it was through.
    pub is_cancelled: bool,
    /// What it did until then.
    pub did: JobStatus,
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobEnd {
    /// What it did.
    pub did: JobStatus,
    /// Why it ended before it was done, if it did.
    pub stopped: Option<&'static str>,
}

/// Ended jobs that are remembered.
const ENDS_MAX: usize = 32;

/// The jobs of one array.
#[derive(Debug, Default)]
pub(crate) struct JobBoard {
    jobs: Mutex<Vec<JobStatus>>,
    drawn: AtomicU64,
    ends: Mutex<VecDeque<JobEnd>>,
    last_scrub: Mutex<Option<ScrubEnd>>,
}

impl JobBoard {
    /// All jobs, in the order they began.
    pub(crate) fn status(&self) -> Vec<JobStatus> {
        self.jobs().clone()
    }

    /// Show this in place of what was shown of the same job.
    pub(crate) fn show(&self, status: JobStatus) {
        let mut jobs = self.jobs();
        let key = (status.kind, status.slot);
        match jobs.iter_mut().find(|shown| (shown.kind, shown.slot) == key) {
            Some(shown) => *shown = status,
            None => jobs.push(status),
        }
    }

    /// A number for a job that begins.
    pub(crate) fn draw_id(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A job has ended.
    pub(crate) fn note_end(&self, end: JobEnd) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() == ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back(end);
    }

    /// How the last jobs ended, oldest first.
    pub(crate) fn ends(&self) -> Vec<JobEnd> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// A scrub has ended.
    pub(crate) fn note_scrub(&self, end: ScrubEnd) {
        *self.last_scrub.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// How the last one ended, if one did since assembly.
    pub(crate) fn last_scrub(&self) -> Option<ScrubEnd> {
        self.last_scrub.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The job is over.
    pub(crate) fn take_down(&self, kind: JobKind, slot: Option<MemberIdx>) {
        self.jobs().retain(|shown| (shown.kind, shown.slot) != (kind, slot));
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<JobStatus>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
