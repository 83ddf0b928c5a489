//! Tells the operators: a program, mail, or a JSON document posted to a URL.
//!
//! - here     a way: its thread, its figures, and what it says of itself
//! - `outbox` what waits: retries, the rate, the summary of what was too much
//! - `send`   one delivery by one way, with a time limit; `http`: the part that speaks HTTP
//!
//! What must stay true: a way never tells of its own failures, and tells once of those of another
//! way, so failures make no loop. A delivery that hangs is ended after the time limit.

mod http;
mod outbox;
mod send;

use super::{Ending, LOOK_EVERY};
use crate::config::NotifyConfig;
use crate::convert;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::notify::{NotifyOutcome, NotifyStatus};
use ashlar_api::v1::severity::{Severity, messages};
use ashlar_engine::EventLog;
pub(crate) use http::Address;
use outbox::{Next, Outbox};
use send::Target;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Names of the events of the ways themselves.
mod names {
    /// A way began to fail; told once until it works. Fields: `way`, `target`, `reason`.
    pub(super) const FAILED: &str = "notify.failed";
    /// It works again. Fields: `way`, `target`.
    pub(super) const RECOVERED: &str = "notify.recovered";
}

/// The ways that are configured.
pub(super) fn ways(config: &NotifyConfig) -> impl Iterator<Item = Way> {
    let (severity, per_minute) = (config.severity(), config.per_minute());
    let make = move |target| Way { target, severity, per_minute, figures: Mutex::default() };
    send::targets(config).into_iter().map(make)
}

/// A way to the operators.
pub(super) struct Way {
    target: Target,
    severity: Severity,
    per_minute: u32,
    figures: Mutex<Figures>,
}

#[derive(Clone, Default)]
struct Figures {
    delivered: u64,
    failed: u64,
    summed_up: u64,
    waiting: u64,
    error: Option<String>,
}

impl Way {
    fn figures(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.figures.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn status(&self) -> NotifyStatus {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        NotifyStatus {
            way: self.target.way().to_owned(),
            target: self.target.name(),
            delivered: figures.delivered,
            failed: figures.failed,
            summed_up: figures.summed_up,
            waiting: figures.waiting,
            error: figures.error,
        }
    }

    /// Send one message now, past the queue.
    pub(super) fn test(&self) -> NotifyOutcome {
        let sent = self.target.send(&message(messages::TEST, Severity::Info, BTreeMap::new()));
        NotifyOutcome {
            way: self.target.way().to_owned(),
            target: self.target.name(),
            error: sent.err(),
        }
    }

    /// Deliver what matters, from the first event on, until the process ends.
    pub(super) fn follow(&self, log: &EventLog, ending: &Ending) {
        let mut outbox = Outbox::new(self.per_minute, Instant::now());
        let mut seen = 0;
        loop {
            let is_last = ending.is_now();
            let wait = match outbox.next(Instant::now()) {
                Next::Send(event) => {
                    self.deliver(&event, &mut outbox, log);
                    Duration::ZERO
                }
                Next::Wait(_) if is_last => Duration::ZERO,
                Next::Wait(time) => time.min(LOOK_EVERY),
            };
            let events = log.wait_since(seen, wait);
            if events.is_empty() && is_last && !outbox.can_send(Instant::now()) {
                return;
            }
            for event in events {
                let event = convert::event(event);
                outbox.missed(event.sequence - seen - 1);
                seen = event.sequence;
                if self.tells_of(&event) {
                    outbox.push(event);
                }
            }
            self.figures(|it| (it.waiting, it.summed_up) = outbox.figures());
        }
    }

    fn tells_of(&self, event: &Event) -> bool {
        let is_own = [names::FAILED, names::RECOVERED].contains(&event.name.as_str())
            && event.fields.get("way").is_some_and(|way| way == self.target.way());
        event.severity >= self.severity && !is_own
    }

    fn deliver(&self, event: &Event, outbox: &mut Outbox, log: &EventLog) {
        let sent = self.target.send(event);
        let now = Instant::now();
        let mut fields =
            vec![("way", self.target.way().to_owned()), ("target", self.target.name())];
        match sent {
            Ok(()) => {
                outbox.delivered();
                let mut failed_before = false;
                self.figures(|it| {
                    it.delivered += 1;
                    failed_before = it.error.take().is_some();
                });
                if failed_before {
                    log.record(names::RECOVERED, "", fields);
                }
            }
            Err(reason) => {
                outbox.failed(now);
                let mut is_first = false;
                self.figures(|it| {
                    it.failed += 1;
                    is_first = it.error.replace(reason.clone()).is_none();
                });
                if is_first {
                    fields.push(("reason", reason));
                    log.record(names::FAILED, "", fields);
                }
            }
        }
    }
}

/// A message that is no event of the log.
fn message(name: &str, severity: Severity, fields: BTreeMap<String, String>) -> Event {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Event {
        sequence: 0,
        unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        name: name.to_owned(),
        severity,
        array: None,
        fields,
    }
}

#[cfg(test)]
mod tests;
