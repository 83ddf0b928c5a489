//! Looks at devices, each on a thread of its own, because a device or file system may not answer.
//!
//! What must stay true: the control side has one thread. It never touches a device or a foreign
//! file system itself: a stuck one would block status, detach and stop.

use std::panic::resume_unwind;

/// Carries out `work` aside, and waits for what it says; other requests are answered meanwhile.
///
/// # Panics
/// As `work` does.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
}
