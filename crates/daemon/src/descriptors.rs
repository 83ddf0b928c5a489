//! Limits on descriptors: some of the process's are reserved for devices and the control socket.
//!
//! What must stay true: whatever peers do, half of the descriptors stay for members, workers and
//! files. A listener that finds none left closes the new connection instead of trying again and
//! again.

use ashlar_units::to_u64;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;

/// With fewer descriptors nothing is started.
pub const DESCRIPTORS_MIN: u64 = 256;

/// Pause after an accept that failed for want of something else.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// As many descriptors as this process may have; how many these are.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // With fewer it runs as well, for fewer clients.
    let _kept = setrlimit(Resource::Nofile, raised);
    // No limit is as many as a number can say.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many NBD connections `descriptors` are enough for, beside `others` connections.
pub fn nbd_connections(descriptors: u64, others: usize) -> u64 {
    (descriptors / 2).saturating_sub(to_u64(others)).max(1)
}

/// A descriptor that is kept, so that one can be given up when there are no others.
#[derive(Debug)]
pub struct Spare(Option<File>);

impl Spare {
    /// One.
    pub fn kept() -> Spare {
        Spare(File::open("/dev/null").ok())
    }

    /// After an accept that failed with `error`: close one connection that waits at a listener, if
    /// descriptors have run out, so that it is not asked again at once for the same one.
    pub async fn close_one<T>(
        &mut self,
        error: &io::Error,
        mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) {
        use rustix::io::Errno;
        let has_run_out = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        if has_run_out && self.0.take().is_some() {
            let closed = poll_fn(|context| Poll::Ready(accept(context).map(drop))).await;
            *self = Spare::kept();
            if closed.is_ready() && self.0.is_some() {
                return;
            }
        }
        sleep(ACCEPT_RETRY).await;
        if self.0.is_none() {
            *self = Spare::kept();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nbd_connections;

    #[test]
    fn half_of_the_descriptors_stay_for_devices_and_files() {
        assert_eq!(nbd_connections(256, 96), 32);
        assert_eq!(nbd_connections(1024, 96), 416);
        assert_eq!(nbd_connections(u64::MAX, 96), u64::MAX / 2 - 96);
        assert_eq!(nbd_connections(10, 96), 1);
    }
}
