//! Blocking work, carried out where no request waits for it: opening devices, and running a program
//! that looks for signatures.
//!
//! What must stay true: this crate makes no thread for such work. The caller that starts the engine
//! says where it runs. In a simulated world it runs on the spot, so that a seed decides what
//! happens.

use ashlar_ring::Handle;
use ashlar_ring::mailbox::{Receiver, mailbox};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Carries out work that may block.
pub type Aside = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Have `work` carried out aside, and wait for what it says; this worker does its other work
/// meanwhile.
///
/// # Panics
/// As `work` does: a panic there would otherwise be a wait without end here.
pub(crate) async fn run<T: Send + 'static>(
    handle: &Handle,
    aside: &Aside,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    begin(handle, aside, work).ended().await
}

/// Work that is carried out aside. A caller with several begins all before it waits for the first.
pub(crate) struct Begun<T>(Receiver<std::thread::Result<T>>);

/// Have `work` carried out aside.
pub(crate) fn begin<T: Send + 'static>(
    handle: &Handle,
    aside: &Aside,
    work: impl FnOnce() -> T + Send + 'static,
) -> Begun<T> {
    let (sender, receiver) = mailbox(handle);
    aside(Box::new(move || sender.send(catch_unwind(AssertUnwindSafe(work)))));
    Begun(receiver)
}

impl<T> Begun<T> {
    /// What it says.
    ///
    /// # Panics
    /// As the work does.
    pub(crate) async fn ended(mut self) -> T {
        self.0.receive().await.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
