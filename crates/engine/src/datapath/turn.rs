//! Has transfers of a volume with limits wait for their turn, before they take a buffer.
//!
//! What must stay true: on a worker, transfers of a kind begin in the order in which they came.
//! Nobody waits at an array that stops: submitting is refused there. A changed limit holds for
//! those who wait already.

use crate::local_array::LocalArray;
use ashlar_volume::Transfer;
use std::time::Duration;

/// How often the first of a line looks whether the limit was changed or the array stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Wait until a transfer of `bytes` may begin; it counts then.
///
/// # Cancellation
/// Dropping the future leaves the line, and nothing is counted.
pub(crate) async fn turn(local: &LocalArray, transfer: Transfer, bytes: u64) {
    let (array, handle) = (&local.array, &local.worker.handle);
    let started = handle.now();
    let _first = local.turns.of(transfer).acquire().await;
    while !array.is_stopping() {
        let now = handle.now();
        match array.tuning.limiter.begin(transfer, bytes, now) {
            Ok(()) => return count(local, now.since(started)),
            Err(wait) => handle.sleep(wait.min(LOOK_EVERY)).await,
        }
    }
}

fn count(local: &LocalArray, waited: Duration) {
    if !waited.is_zero() {
        local.counts().limit_waits.add(1);
        local.counts().limit_wait_us.add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }
}
