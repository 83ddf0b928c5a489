//! Two futures, and what comes of the first that ends.
//!
//! What must stay true: when both are ready at once the work has won, so an answer that came in
//! time is never taken for one that came late; the loser is dropped, if it was not lent.

use crate::executor::Handle;
use futures_lite::future::or;
use std::time::Duration;

/// The output of `work`, or `None` if `wait` is over first.
pub async fn within<T>(
    handle: &Handle,
    wait: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    until(work, handle.sleep(wait)).await
}

/// The output of `work`, or `None` if `stop` comes first.
pub async fn until<T>(work: impl Future<Output = T>, stop: impl Future) -> Option<T> {
    let stopped = async {
        stop.await;
        None
    };
    or(async { Some(work.await) }, stopped).await
}
