//! Why an array takes no changes, and how that ends.
//!
//! What must stay true: every reason names what ends it, for there is no other way to learn it. A
//! reason that a resync can settle is none (`assemble/doubt.rs`).
//!
//! Not here: an array that another process runs (`ownership.rs`): it is read-only and stopping, and
//! says so itself.

use crate::array::Array;
use crate::error::Refusal;
use ashlar_ondisk::assembly::ReadOnlyReason;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Code of the refusal when the array takes no changes.
pub(crate) const TAKES_NO_CHANGES: &str = "array.read_only";

/// Why an array is not to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyReadOnly {
    /// The operator says so.
    Asked,
    /// The judgement of its start does.
    Judged(ReadOnlyReason),
    /// A write ended half way, and the members could not be told: nothing could vouch for the next.
    DoubtNotRecorded,
    /// Another process runs it.
    TakenOver,
}

impl WhyReadOnly {
    /// The reason: what follows "because".
    pub fn because(self) -> String {
        match self {
            WhyReadOnly::Asked => "it was started so on request".to_owned(),
            WhyReadOnly::Judged(ReadOnlyReason::DirtyDegraded) => {
                "it was not shut down cleanly, and blocks of missing members that were being \
                 written then cannot be proved right"
                    .to_owned()
            }
            WhyReadOnly::Judged(ReadOnlyReason::UnknownFeatures { unknown }) => {
                format!("a newer program uses features {unknown:#x} on it")
            }
            WhyReadOnly::DoubtNotRecorded => {
                "a write ended half way, and no member could record it".to_owned()
            }
            WhyReadOnly::TakenOver => "another process runs it".to_owned(),
        }
    }

    /// What ends it, for an array of this name.
    pub fn way_out(self, name: &str) -> String {
        let again = |options: &str| {
            format!("ashlar stop {name}; ashlar assemble{options} --name {name} DEVICE...")
        };
        match self {
            WhyReadOnly::Asked => format!("to write to it, run: {}", again("")),
            WhyReadOnly::Judged(ReadOnlyReason::DirtyDegraded) => format!(
                "attach the missing members that were in service then, and run: {}; if they are \
                 lost, accept that those blocks may be wrong: {}",
                again(""),
                again(" --accept-dirty-degraded")
            ),
            WhyReadOnly::Judged(ReadOnlyReason::UnknownFeatures { .. }) => {
                format!("with the program that wrote it, or a newer one, run: {}", again(""))
            }
            WhyReadOnly::DoubtNotRecorded => format!(
                "when its members answer again, run: {}; the start puts right what ended half way",
                again("")
            ),
            WhyReadOnly::TakenOver => "use it there, or stop it there first".to_owned(),
        }
    }
}

/// Whether an array takes no changes, and why.
#[derive(Debug, Default)]
pub(crate) struct ReadOnly {
    is_set: AtomicBool,
    why: Mutex<Option<WhyReadOnly>>,
}

impl ReadOnly {
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(crate) fn why(&self) -> Option<WhyReadOnly> {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this is why, or there is no reason.
    pub(crate) fn set(&self, why: Option<WhyReadOnly>) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.is_set.store(why.is_some(), Ordering::Release);
    }
}

/// The refusal of a command that would change the array, if it takes no changes now.
///
/// # Errors
/// Why it takes none, and what ends that.
pub(crate) fn takes_changes(array: &Array) -> Result<(), Refusal> {
    let name = array.name();
    let (why, next) = match array.read_only.why() {
        Some(why) => (format!("is read-only, because {}", why.because()), why.way_out(name)),
        None if array.is_stopping() => {
            ("is being stopped".to_owned(), "assemble it again first".to_owned())
        }
        None => return Ok(()),
    };
    let what = format!("array '{name}' takes no changes now: it {why}; nothing was changed");
    Err(Refusal::new(TAKES_NO_CHANGES, what, next))
}
