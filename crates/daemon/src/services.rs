//! What the daemon does beside running arrays, and what of it cannot be had now: listeners,
//! attachments, folders, settings that this machine cannot follow.
//!
//! What must stay true: nothing of this keeps an array from running. What is missing is told once
//! for each reason, stands in the status, and is tried again until it is there, ever more seldom
//! and at least each half minute. A look that does not end is not begun a second time. Not here:
//! what the services are (`exports`, `scrape`), and a configuration that makes no sense (`config`),
//! which is refused before anything starts.

use crate::aside::aside;
use crate::exports::Say;
use ashlar_api::v1::status::MissingService;
use ashlar_engine::EventLog;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The pause before what is missing is tried again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a folder or a file may take to answer.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How long an address may be held by a predecessor that was killed.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(5);

/// Names of the events.
mod names {
    /// Something beside the arrays cannot be had; told once for each reason. Fields: `service`,
    /// `reason`.
    pub(super) const MISSING: &str = "service.missing";
    /// It is there. Field: `service`.
    pub(super) const RETURNED: &str = "service.returned";
}

/// Something that is served, by name.
#[derive(Clone, Debug)]
pub struct Service {
    /// What it is called: `NBD at 192.0.2.1:10809`.
    pub name: String,
    /// The array it is about; empty if it is about none.
    pub array: String,
    /// Clients of volumes do without it.
    pub is_way: bool,
}

impl Service {
    /// A way to all volumes.
    pub fn way(name: String) -> Service {
        Service { name, array: String::new(), is_way: true }
    }

    /// A way to the volume of one array.
    pub fn way_to(array: &str, name: String) -> Service {
        Service { name, array: array.to_owned(), is_way: true }
    }

    /// Something that no client of a volume needs.
    pub fn side(name: String) -> Service {
        Service { name, array: String::new(), is_way: false }
    }
}

/// What is missing, and when it is tried again.
pub struct Services {
    log: Arc<EventLog>,
    known: Mutex<Known>,
    /// Looks that have not ended.
    looking: Arc<Mutex<BTreeSet<String>>>,
}

struct Known {
    missing: BTreeMap<String, MissingService>,
    next_try: Instant,
    pause: Duration,
    /// Until then an address may be held by a predecessor.
    patience_until: Option<Instant>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Services {
    /// Nothing is missing yet.
    pub fn new(log: Arc<EventLog>) -> Services {
        let known = Known {
            missing: BTreeMap::new(),
            next_try: Instant::now(),
            pause: PAUSE_FIRST,
            patience_until: None,
        };
        Services { log, known: Mutex::new(known), looking: Arc::default() }
    }

    /// What is missing, for the status.
    pub fn missing(&self) -> Vec<MissingService> {
        locked(&self.known).missing.values().cloned().collect()
    }

    /// Whether this one is missing.
    pub fn lacks(&self, name: &str) -> bool {
        locked(&self.known).missing.contains_key(name)
    }

    /// Whether something is missing and it is time to try again. Each time later.
    pub fn is_due(&self, now: Instant) -> bool {
        let mut known = locked(&self.known);
        if known.missing.is_empty() || now < known.next_try {
            return false;
        }
        known.pause = (known.pause * 2).min(PAUSE_MAX);
        known.next_try = now + known.pause;
        true
    }

    /// Whether an address that is taken may be a killed predecessor's still.
    pub fn has_patience(&self) -> bool {
        let now = Instant::now();
        let mut known = locked(&self.known);
        now < *known.patience_until.get_or_insert(now + PREDECESSOR_WAIT)
    }

    /// How it went: what to say if it is there, or why it is not.
    pub fn note(&self, service: Service, went: Result<Option<String>, String>, say: Say<'_>) {
        match went {
            Ok(line) => {
                self.there(&service.name);
                line.iter().for_each(|line| say(line));
            }
            Err(reason) => {
                let line = format!(
                    "{} is missing: {reason}; the arrays run, and it is tried again",
                    service.name
                );
                if self.lost(service, reason) {
                    say(&line);
                }
            }
        }
    }

    /// It is missing. Whether that is news.
    pub fn lost(&self, service: Service, reason: String) -> bool {
        let Service { name, array, is_way } = service;
        let mut known = locked(&self.known);
        let before = known.missing.get(&name);
        if before.is_some_and(|it| it.reason == reason) {
            return false;
        }
        if before.is_none() {
            known.pause = PAUSE_FIRST;
            known.next_try = Instant::now() + PAUSE_FIRST;
        }
        let fields = vec![("service", name.clone()), ("reason", reason.clone())];
        let entry = MissingService { name: name.clone(), reason, is_way };
        known.missing.insert(name, entry);
        drop(known);
        self.log.record(names::MISSING, &array, fields);
        true
    }

    /// It is there.
    pub fn there(&self, name: &str) {
        if self.forget(name) {
            self.log.record(names::RETURNED, "", vec![("service", name.to_owned())]);
        }
    }

    /// Nobody wants it any more. Whether it was missing.
    pub fn forget(&self, name: &str) -> bool {
        locked(&self.known).missing.remove(name).is_some()
    }

    /// Carry out `work` of this service on files that may not answer.
    ///
    /// # Errors
    /// What the work says; or that there is no answer.
    pub async fn look<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        if !locked(&self.looking).insert(name.to_owned()) {
            return Err(no_answer());
        }
        let (looking, own) = (Arc::clone(&self.looking), name.to_owned());
        let work = aside(move || {
            let done = work();
            locked(&looking).remove(&own);
            done
        });
        tokio::time::timeout(LOOK_MAX, work).await.unwrap_or_else(|_| Err(no_answer()))
    }
}

fn no_answer() -> String {
    format!("no answer within {} s", LOOK_MAX.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{Service, Services};
    use ashlar_engine::EventLog;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;

    fn named(services: &Services) -> Vec<(String, String)> {
        services.missing().into_iter().map(|it| (it.name, it.reason)).collect()
    }

    #[test]
    fn what_is_missing_is_told_once_for_each_reason_and_tried_ever_more_seldom() {
        let log = Arc::new(EventLog::new(16));
        let services = Services::new(Arc::clone(&log));
        let metrics = || Service::side("metrics".to_owned());
        let began = Instant::now();
        assert!(!services.is_due(began + Duration::from_secs(600)));
        assert!(services.lost(metrics(), "taken".to_owned()));
        assert!(!services.lost(metrics(), "taken".to_owned()));
        let after = |seconds| began + Duration::from_secs(seconds);
        let tries = (1..=600).filter(|seconds| services.is_due(after(*seconds))).count();
        assert!((600 / 30..30).contains(&tries), "{tries}");
        assert!(services.lost(metrics(), "gone".to_owned()));
        assert_eq!(named(&services), [("metrics".to_owned(), "gone".to_owned())]);
        services.there("metrics");
        services.there("metrics");
        assert!(named(&services).is_empty() && !services.is_due(after(9999)));
        let told: Vec<&str> = log.since(0).iter().map(|event| event.name).collect();
        assert_eq!(told, ["service.missing", "service.missing", "service.returned"]);
    }

    #[tokio::test]
    async fn a_look_that_does_not_end_is_not_begun_again() {
        let services = Services::new(Arc::new(EventLog::new(4)));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let stuck = services.look("keys", move || Ok(ended.recv().is_err()));
        let mut stuck = std::pin::pin!(stuck);
        let mut now = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(stuck.as_mut().poll(&mut now).is_pending());
        let refused = services.look("keys", || Ok(())).await.expect_err("one at a time");
        assert!(refused.contains("no answer"), "{refused}");
        assert_eq!(services.look("other", || Ok(7)).await, Ok(7));
        drop(end);
        assert_eq!(stuck.await, Ok(true));
        assert_eq!(services.look("keys", || Ok(8)).await, Ok(8));
    }
}
