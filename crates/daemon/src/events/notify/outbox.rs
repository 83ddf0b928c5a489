//! What waits to be delivered by one way: retries with back-off, a rate, and a summary of the rest.
//!
//! What must stay true: the queue is bounded, whatever happens. No event is dropped without being
//! counted in a summary. The last delivery that the rate allows is a summary of all that waits, so
//! a flood is a few messages and not one for each event.

use super::message;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::severity::{Severity, messages};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Events that wait one by one; more are summed up.
const QUEUE_MAX: usize = 64;
/// The pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// After this time a message is given up, and counted in the next summary.
const GIVE_UP: Duration = Duration::from_secs(3600);
/// Names of events in one summary.
const NAMES_MAX: usize = 16;

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Deliver this.
    Send(Box<Event>),
    /// Nothing before this time is over, unless an event comes.
    Wait(Duration),
}

/// What waits.
pub(super) struct Outbox {
    queue: VecDeque<Event>,
    rest: Rest,
    /// What is being delivered, and since when.
    current: Option<(Event, Instant)>,
    failures: u32,
    not_before: Option<Instant>,
    rate: Rate,
    summed_up: u64,
}

/// Events that are told by their number.
#[derive(Default)]
struct Rest {
    count: u64,
    names: BTreeMap<String, u64>,
    worst: Option<Event>,
}

/// So many deliveries a minute, all of them at once if there were none before.
struct Rate {
    most: u32,
    left: u32,
    since: Instant,
}

impl Rate {
    fn every(&self) -> Duration {
        Duration::from_secs(60) / self.most
    }

    fn refill(&mut self, now: Instant) {
        while self.left < self.most && now.saturating_duration_since(self.since) >= self.every() {
            self.left += 1;
            self.since += self.every();
        }
        if self.left == self.most {
            self.since = now;
        }
    }
}

impl Outbox {
    pub(super) fn new(per_minute: u32, now: Instant) -> Outbox {
        let most = per_minute.max(1);
        Outbox {
            queue: VecDeque::new(),
            rest: Rest::default(),
            current: None,
            failures: 0,
            not_before: None,
            rate: Rate { most, left: most, since: now },
            summed_up: 0,
        }
    }

    /// Messages that wait, and events that were summed up.
    pub(super) fn figures(&self) -> (u64, u64) {
        let waiting = self.queue.len() + usize::from(self.current.is_some());
        (ashlar_units::to_u64(waiting) + u64::from(self.rest.count > 0), self.summed_up)
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() < QUEUE_MAX { self.queue.push_back(event) } else { self.sum_up(event) }
    }

    /// So many events were gone before they were seen.
    pub(super) fn missed(&mut self, count: u64) {
        self.rest.count += count;
        self.summed_up += count;
    }

    /// What to do now. What it hands out is the same until it was delivered or given up.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let pause = self.not_before.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        if !pause.is_zero() {
            return Next::Wait(pause);
        }
        if self.current.is_none() {
            self.rate.refill(now);
            if self.queue.is_empty() && self.rest.count == 0 {
                return Next::Wait(Duration::MAX);
            }
            if self.rate.left == 0 {
                let passed = now.saturating_duration_since(self.rate.since);
                return Next::Wait(self.rate.every().saturating_sub(passed));
            }
            self.rate.left -= 1;
            self.current = self.take().map(|event| (event, now));
        }
        match &self.current {
            Some((event, _)) => Next::Send(Box::new(event.clone())),
            None => Next::Wait(Duration::MAX),
        }
    }

    /// Whether something could be delivered now.
    pub(super) fn can_send(&mut self, now: Instant) -> bool {
        matches!(self.next(now), Next::Send(_))
    }

    pub(super) fn delivered(&mut self) {
        self.current = None;
        self.failures = 0;
        self.not_before = None;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.failures.min(16));
        self.failures += 1;
        self.not_before = Some(now + pause.min(PAUSE_MAX));
        let is_over =
            |(_, since): &mut (Event, Instant)| now.saturating_duration_since(*since) >= GIVE_UP;
        if let Some((event, _)) = self.current.take_if(is_over) {
            self.sum_up(event);
        }
    }

    /// The next message: an event, or a summary of all that waits if no other will be allowed soon.
    fn take(&mut self) -> Option<Event> {
        let is_flood = self.rate.left == 0 && self.queue.len() > 1;
        if self.rest.count == 0 && !is_flood {
            return self.queue.pop_front();
        }
        // In order: events that came before those that were too many.
        if !is_flood && self.rate.left > 0 && !self.queue.is_empty() {
            return self.queue.pop_front();
        }
        while let Some(event) = self.queue.pop_front() {
            self.sum_up(event);
        }
        Some(std::mem::take(&mut self.rest).message())
    }

    fn sum_up(&mut self, event: Event) {
        self.summed_up += 1;
        self.rest.add(event);
    }
}

impl Rest {
    fn add(&mut self, event: Event) {
        // A summary that could not be delivered counts for what it stood for.
        let is_summary = event.name == messages::SUMMARY;
        let count = event.fields.get("count").filter(|_| is_summary);
        self.count += count.and_then(|count| count.parse().ok()).unwrap_or(1);
        if !is_summary && (self.names.len() < NAMES_MAX || self.names.contains_key(&event.name)) {
            *self.names.entry(event.name.clone()).or_default() += 1;
        }
        if self.worst.as_ref().is_none_or(|worst| event.severity > worst.severity) {
            self.worst = Some(event);
        }
    }

    fn message(self) -> Event {
        let mut fields = BTreeMap::from([("count".to_owned(), self.count.to_string())]);
        let named: Vec<String> =
            self.names.iter().map(|(name, count)| format!("{count} {name}")).collect();
        fields.insert("names".to_owned(), named.join(", "));
        let severity = self.worst.as_ref().map_or(Severity::Warning, |worst| worst.severity);
        if let Some(worst) = self.worst {
            fields.insert("worst".to_owned(), worst.message());
        }
        message(messages::SUMMARY, severity, fields)
    }
}
