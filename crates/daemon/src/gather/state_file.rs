//! A file of state that a thread of its own writes.
//!
//! What must stay true: whoever asks for a change waits for no disk, and holds nothing over one.
//! Whoever wants to hear that a change is durable waits a while and not for ever: the file may lie
//! on a volume of this very daemon that is paused. The newest content is written; what came between
//! may never be. Not here: what is in the file (`remembered`).

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a folder may take to make a change durable.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What became of the newest content that was written.
#[derive(Clone, Debug, Default)]
struct Outcome {
    version: u64,
    error: Option<(io::ErrorKind, String)>,
}

/// The file, as its thread keeps it.
#[derive(Debug)]
pub(super) struct StateFile {
    shared: Arc<Shared>,
    patience: Duration,
    outcome: watch::Receiver<Outcome>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    version: u64,
    /// What is to be written, if it was not taken yet.
    content: Option<String>,
    /// Since when the thread has been writing.
    writing_since: Option<Instant>,
    is_over: bool,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change on its way to the disk.
#[must_use]
pub(super) struct OnItsWay {
    version: u64,
    patience: Duration,
    shared: Arc<Shared>,
    outcome: watch::Receiver<Outcome>,
}

impl StateFile {
    /// `write` replaces the file, durable when it returns.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn new(
        write: impl Fn(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<StateFile> {
        let (told, outcome) = watch::channel(Outcome::default());
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let run = move || keep(&own, &told, write);
        std::thread::Builder::new().name("ashlar-state".to_owned()).spawn(run)?;
        Ok(StateFile { shared, patience: ANSWER_MAX, outcome })
    }

    /// From now on the file is to have this content.
    pub(super) fn put(&self, content: String) -> OnItsWay {
        let mut wanted = self.shared.locked();
        wanted.version += 1;
        wanted.content = Some(content);
        self.shared.changed.notify_one();
        self.way_of(wanted.version)
    }

    /// Why the newest content is not on the disk, if its writing failed or does not end.
    pub(super) fn trouble(&self) -> Option<String> {
        let since = self.shared.locked().writing_since;
        if since.is_some_and(|since| since.elapsed() >= self.patience) {
            return Some(no_answer(self.patience));
        }
        self.outcome.borrow().error.as_ref().map(|(_, what)| what.clone())
    }

    /// All that was put so far.
    pub(super) fn all(&self) -> OnItsWay {
        let version = self.shared.locked().version;
        self.way_of(version)
    }

    fn way_of(&self, version: u64) -> OnItsWay {
        let (shared, outcome) = (Arc::clone(&self.shared), self.outcome.clone());
        OnItsWay { version, patience: self.patience, shared, outcome }
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        self.shared.locked().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl OnItsWay {
    /// Wait until it is durable.
    ///
    /// # Errors
    /// What the system says; or that there is no answer: then it may become durable later.
    pub(super) async fn durable(mut self) -> io::Result<()> {
        let since = self.shared.locked().writing_since.unwrap_or_else(Instant::now);
        let version = self.version;
        let is_done = |outcome: &Outcome| outcome.version >= version;
        let until = since + self.patience;
        let done = timeout_at(until, self.outcome.wait_for(is_done)).await;
        let Ok(Ok(outcome)) = done else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, no_answer(self.patience)));
        };
        match &outcome.error {
            None => Ok(()),
            Some((kind, what)) => Err(io::Error::new(*kind, what.clone())),
        }
    }
}

fn no_answer(patience: Duration) -> String {
    format!("its directory does not answer within {} s", patience.as_secs())
}

/// Write what is wanted, until nobody wants anything any more.
fn keep(shared: &Shared, told: &watch::Sender<Outcome>, write: impl Fn(&str) -> io::Result<()>) {
    let mut wanted = shared.locked();
    loop {
        if let Some(content) = wanted.content.take() {
            let version = wanted.version;
            wanted.writing_since = Some(Instant::now());
            drop(wanted);
            let error = write(&content).err().map(|it| (it.kind(), it.to_string()));
            told.send_replace(Outcome { version, error });
            wanted = shared.locked();
            wanted.writing_since = None;
        } else if wanted.is_over {
            return;
        } else {
            wanted = shared.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StateFile;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    type Ends = Sender<io::Result<()>>;
    type Contents = Arc<Mutex<Vec<String>>>;

    /// A file whose writes end when they are told to, and what was written.
    fn slow() -> (StateFile, Ends, Contents) {
        let (end, ended): (_, Receiver<io::Result<()>>) = channel();
        let written = Contents::default();
        let own = Arc::clone(&written);
        let file = StateFile::new(move |content| {
            let outcome = ended.recv().unwrap_or(Ok(()));
            own.lock().expect("ours").push(content.to_owned());
            outcome
        });
        (file.expect("a thread"), end, written)
    }

    #[tokio::test]
    async fn what_is_put_while_the_disk_is_slow_waits_for_nothing_and_the_newest_is_written() {
        let (file, end, written) = slow();
        let first = file.put("1".to_owned());
        // Until the thread has taken it.
        while file.shared.locked().writing_since.is_none() {
            tokio::task::yield_now().await;
        }
        let between = file.put("2".to_owned());
        let last = file.put("3".to_owned());
        end.send(Ok(())).expect("it waits");
        first.durable().await.expect("written");
        end.send(Err(io::ErrorKind::StorageFull.into())).expect("it waits");
        assert_eq!(between.durable().await.expect_err("full").kind(), io::ErrorKind::StorageFull);
        assert!(last.durable().await.is_err());
        assert_eq!(*written.lock().expect("ours"), ["1", "3"]);
        end.send(Ok(())).expect("it waits");
        file.put("4".to_owned()).durable().await.expect("written");
        file.all().durable().await.expect("nothing is on its way");
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let (mut file, end, _) = slow();
        file.patience = std::time::Duration::from_millis(20);
        let stuck = file.put("1".to_owned());
        assert_eq!(stuck.durable().await.expect_err("stuck").kind(), io::ErrorKind::TimedOut);
        end.send(Ok(())).expect("it waits");
        file.patience = super::ANSWER_MAX;
        file.all().durable().await.expect("written");
    }
}
