//! Knows which devices take long to open, so that the daemon can say what it waits for.
//!
//! What must stay true: an opening takes its course as without this. An answer may be outdated when
//! it is read.

use ashlar_device::{Access, OpenRefusal, Opened, Opener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Opens as `inner` does, and records openings under way. Clones share the record.
#[derive(Clone)]
pub struct Waits {
    inner: Arc<dyn Opener>,
    opening: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl Waits {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Opener>) -> Waits {
        Waits { inner, opening: Arc::default() }
    }

    /// The devices whose opening has taken longer than `time`: another process has them, or they do
    /// not answer.
    pub fn longer_than(&self, time: Duration) -> Vec<String> {
        let is_long = |(_, since): &&(String, Instant)| since.elapsed() > time;
        self.locked().iter().filter(is_long).map(|(path, _)| path.clone()).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opener for Waits {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let entry = (path.to_owned(), Instant::now());
        self.locked().push(entry.clone());
        let opened = self.inner.open(path, access);
        let mut opening = self.locked();
        let own = opening.iter().position(|other| *other == entry);
        opening.swap_remove(own.expect("it was noted"));
        opened
    }
}
