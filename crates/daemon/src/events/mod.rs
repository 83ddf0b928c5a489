//! Carries events out of the process: to the journal, to the history on disk, to the operators.
//!
//! - `journal`   one datagram an event, with fields, to systemd-journald
//! - [`history`] JSON lines on disk, bounded, that survive the daemon
//! - `notify`    programs, mail and HTTP, with retry and a rate limit
//! - `fields`    an event as named values for journal and programs
//!
//! What must stay true: each way has a thread of its own that follows the event log, so a way that
//! hangs holds up neither workers nor the control side nor another way. The event log is the queue:
//! a way that falls behind too far misses events and says how many.

mod fields;
pub mod history;
mod journal;
mod notify;

use crate::config::Config;
use crate::exports::Say;
use ashlar_api::v1::notify::{HistoryStatus, NotifyStatus, NotifyTested};
use ashlar_engine::{Event, EventLog};
use history::HistoryKeeper;
use journal::Journal;
pub(crate) use notify::Address;
use notify::Way;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long a follower sleeps at most: events that were counted appear with nobody recording.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the start of the process waits until the history is open.
const OPEN_MAX: Duration = Duration::from_secs(2);
/// How long the end of the process waits for events to arrive everywhere.
const END_MAX: Duration = Duration::from_secs(5);

/// Names of the events of the process itself.
mod names {
    /// The daemon began. Fields: `version`, `pid`.
    pub(super) const STARTED: &str = "daemon.started";
    /// The daemon ends, all arrays are stopped. Field: `because`.
    pub(super) const STOPPED: &str = "daemon.stopped";
}

/// Whether the process ends.
#[derive(Clone, Default)]
pub(crate) struct Ending(Arc<AtomicBool>);

impl Ending {
    pub(crate) fn is_now(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The ways out of the process.
pub struct Events {
    log: Arc<EventLog>,
    ending: Ending,
    recorder: Arc<HistoryKeeper>,
    ways: Vec<Arc<Way>>,
    /// Closed once every follower has ended.
    ended: std::sync::Mutex<Receiver<()>>,
}

impl Events {
    /// Begin to follow `log`. What is kept on disk lies below `state`. The daemon's own work with
    /// an event is `work`, on a thread where it may block.
    pub(crate) fn begin(
        log: Arc<EventLog>,
        config: &Config,
        state: &Path,
        say: Say<'_>,
        work: impl Fn(&Event) + Send + 'static,
    ) -> Arc<Events> {
        let (alive, ended) = channel();
        let ending = Ending::default();
        let pid = std::process::id().to_string();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        log.record(names::STARTED, "", vec![("version", version), ("pid", pid)]);
        let recorder =
            Arc::new(HistoryKeeper::new(&history_folder(state), config.events.limit_bytes()));
        let ways: Vec<Arc<Way>> = notify::ways(&config.notify).map(Arc::new).collect();
        let events = Events {
            log: Arc::clone(&log),
            ending: ending.clone(),
            recorder: Arc::clone(&recorder),
            ways: ways.clone(),
            ended: std::sync::Mutex::new(ended),
        };
        let (own_log, own_ending) = (Arc::clone(&log), ending.clone());
        let (opened_in, opened) = channel();
        follow(&alive, "ashlar-history", move || {
            // Nobody may wait for it any more.
            let _late = opened_in.send(recorder.open());
            recorder.follow(&own_log, &own_ending);
        });
        // Where its directory does not answer, arrays start all the same.
        match opened.recv_timeout(OPEN_MAX) {
            Ok(Ok(mended)) => mended.iter().for_each(|line| say(line)),
            Ok(Err(error)) => say(&format!("{error}; events are not kept on disk")),
            Err(_) => say("the directory of the history does not answer; events wait for it"),
        }
        let (own_log, own_ending) = (Arc::clone(&log), ending.clone());
        follow(&alive, "ashlar-own", move || each(&own_log, &own_ending, work));
        if let Some(journal) = Journal::at(&config.events.journal()) {
            let (log, ending) = (Arc::clone(&log), ending.clone());
            follow(&alive, "ashlar-journal", move || journal.follow(&log, &ending));
        }
        for way in ways {
            let (log, ending) = (Arc::clone(&log), ending.clone());
            follow(&alive, "ashlar-notify", move || way.follow(&log, &ending));
        }
        Arc::new(events)
    }

    /// How the ways to the operators are doing.
    pub(crate) fn notify_status(&self) -> Vec<NotifyStatus> {
        self.ways.iter().map(|way| way.status()).collect()
    }

    /// How the history on disk is doing.
    pub(crate) fn history_status(&self) -> HistoryStatus {
        self.recorder.status()
    }

    /// Send one message each way, side by side, and wait.
    pub(crate) fn test(&self) -> NotifyTested {
        let started = self.ways.iter().map(|way| {
            let way = Arc::clone(way);
            std::thread::spawn(move || way.test())
        });
        // All begin before the first is waited for.
        let started: Vec<_> = started.collect();
        let ways = started.into_iter().filter_map(|test| test.join().ok()).collect();
        NotifyTested { ways }
    }

    /// Tell of the end, and wait a few seconds until that arrived everywhere.
    pub(crate) fn end(&self, because: &str) {
        self.ending.0.store(true, Ordering::Release);
        // It wakes everybody who follows.
        self.log.record(names::STOPPED, "", vec![("because", because.to_owned())]);
        let ended = self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nobody sends: the channel closes with the last follower.
        let _late = ended.recv_timeout(END_MAX);
    }
}

/// A thread that holds `alive` until `work` is done. Without one, the process goes on all the same.
fn follow(alive: &Sender<()>, name: &str, work: impl FnOnce() + Send + 'static) {
    let alive = alive.clone();
    let run = move || {
        work();
        drop(alive);
    };
    let _refused = std::thread::Builder::new().name(name.to_owned()).spawn(run);
}

/// Do `work` with every event from the first one on, until the process ends.
fn each(log: &EventLog, ending: &Ending, work: impl Fn(&Event)) {
    let mut seen = 0;
    loop {
        let is_last = ending.is_now();
        let events = log.wait_since(seen, if is_last { Duration::ZERO } else { LOOK_EVERY });
        if events.is_empty() && is_last {
            return;
        }
        for event in &events {
            seen = event.sequence;
            work(event);
        }
    }
}

/// Where the history lies below a folder for state.
pub fn history_folder(state: &Path) -> PathBuf {
    state.join("events")
}

/// The folder for state that goes with a control socket: the usual one of the system for the usual
/// socket, else one beside the socket, so that two daemons never share it.
pub fn usual_state(socket: &Path) -> PathBuf {
    if socket == Path::new("/run/ashlar/control.sock") {
        return PathBuf::from("/var/lib/ashlar");
    }
    socket.parent().unwrap_or(Path::new("/")).join("state")
}

#[cfg(test)]
mod tests;
