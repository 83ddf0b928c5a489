//! The kernel's side of a ring, with submission entries of either size.
//!
//! What must stay true: an operation that fits a narrow entry looks the same to the kernel in a
//! wide one. Not here: what is in the entries (`operation`), and when they are pushed
//! (`in_flight`).

use io_uring::{CompletionQueue, IoUring, Parameters, SubmissionQueue, Submitter, squeue};

/// An io_uring of either kind.
pub(super) enum Uring {
    /// Entries of 64 bytes.
    Narrow(IoUring<squeue::Entry>),
    /// Entries of 128 bytes.
    Wide(IoUring<squeue::Entry128>),
}

impl Uring {
    pub(super) fn is_wide(&self) -> bool {
        matches!(self, Uring::Wide(_))
    }

    pub(super) fn params(&self) -> &Parameters {
        match self {
            Uring::Narrow(uring) => uring.params(),
            Uring::Wide(uring) => uring.params(),
        }
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        match self {
            Uring::Narrow(uring) => uring.submitter(),
            Uring::Wide(uring) => uring.submitter(),
        }
    }

    pub(super) fn completion(&mut self) -> CompletionQueue<'_> {
        match self {
            Uring::Narrow(uring) => uring.completion(),
            Uring::Wide(uring) => uring.completion(),
        }
    }

    /// Whether there is nothing to hand over and nothing to be delivered.
    pub(super) fn is_idle(&mut self) -> bool {
        match self {
            Uring::Narrow(uring) => is_idle(&uring.submission()),
            Uring::Wide(uring) => is_idle(&uring.submission()),
        }
    }

    /// Whether completions are there.
    pub(super) fn has_completions(&mut self) -> bool {
        !self.completion().is_empty()
    }

    /// Whether the kernel says that it keeps completions until it is asked for them. It may say so
    /// after it has delivered them: it sets the flag after it has queued the work, and another call
    /// may have done the work in between. Then the flag stays until the next completion.
    pub(super) fn may_keep_completions(&mut self) -> bool {
        match self {
            Uring::Narrow(uring) => may_keep_completions(&uring.submission()),
            Uring::Wide(uring) => may_keep_completions(&uring.submission()),
        }
    }

    /// Prepares an entry for the next submission.
    ///
    /// # Safety
    /// What the entry points at stays valid until its completion was taken off the queue.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        let pushed = match self {
            // SAFETY: the caller's promise.
            Uring::Narrow(uring) => unsafe { uring.submission().push(entry) },
            // SAFETY: the caller's promise.
            Uring::Wide(uring) => unsafe { uring.submission().push(&entry.clone().into()) },
        };
        pushed.expect("the submission queue has two places for each slot");
    }

    /// As [`Uring::push`], of an entry that only a wide ring takes.
    ///
    /// # Safety
    /// As for [`Uring::push`].
    pub(super) unsafe fn push_wide(&mut self, entry: &squeue::Entry128) {
        let Uring::Wide(uring) = self else {
            panic!("a wide command needs a ring of wide entries")
        };
        // SAFETY: the caller's promise.
        let pushed = unsafe { uring.submission().push(entry) };
        pushed.expect("the submission queue has two places for each slot");
    }
}

fn may_keep_completions<S: squeue::EntryMarker>(queue: &SubmissionQueue<'_, S>) -> bool {
    queue.taskrun() || queue.cq_overflow()
}

fn is_idle<S: squeue::EntryMarker>(queue: &SubmissionQueue<'_, S>) -> bool {
    queue.is_empty() && !may_keep_completions(queue)
}
