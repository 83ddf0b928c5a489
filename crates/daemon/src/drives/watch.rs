//! Asks for the health of members and spares again and again, and tells what changed.
//!
//! What must stay true: one drive is asked at a time, aside. A concern is told once when it begins
//! and once when it is over. Media errors are told when they become more. A start tells of no old
//! media errors: they are in the history.

use super::{Failed, Tools};
use crate::arrays::Arrays;
use crate::aside::aside;
use crate::config::DrivesConfig;
use ashlar_api::v1::member::{Concern, DriveHealth};
use ashlar_api::v1::status::Status;
use ashlar_device::disk_at;
use ashlar_engine::EventLog;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The event names.
pub mod names {
    /// A drive says that it is failing.
    pub const FAILING: &str = "drive.failing";
    /// A drive is too hot. Field: `temperature_c`.
    pub const HOT: &str = "drive.hot";
    /// A drive has more media errors than before. Fields: `media_errors`, `before`.
    pub const MEDIA_ERRORS: &str = "drive.media_errors";
    /// A concern about a drive is over. Field: `concern`, the name of the event that told it.
    pub const RECOVERED: &str = "drive.recovered";
    /// A drive has fewer spare blocks than its maker wants.
    pub const SPARE_LOW: &str = "drive.spare_low";
    /// A drive has used most of its rated life.
    pub const WORN: &str = "drive.worn";
}

/// How often to look for drives that were not asked for long enough.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A drive of an array or a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Its array; empty for a spare.
    pub array: String,
    /// Its slot.
    pub slot: Option<u16>,
    /// Its path.
    pub path: String,
    /// Its serial.
    pub serial: Option<String>,
}

/// What is known of the health of drives.
pub struct Watch {
    /// The programs that are asked.
    pub tools: Tools,
    every: Duration,
    hot_c: i64,
    known: Mutex<BTreeMap<Key, Known>>,
}

/// Path and serial: another drive at the same path is another.
type Key = (String, Option<String>);

struct Known {
    at: Instant,
    /// `None`: it is no drive, or no program knows it.
    health: Option<DriveHealth>,
    /// What it said when it answered last: news is what differs from that.
    answered: Option<DriveHealth>,
    /// No program was there that knows such a drive.
    is_missing: bool,
}

impl Watch {
    /// Nothing is known yet.
    pub fn new(config: &DrivesConfig) -> Watch {
        Watch {
            tools: Tools::of(config),
            every: config.health_every(),
            hot_c: config.hot_c(),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Put what is known into a status.
    pub fn fill(&self, status: &mut Status) {
        let known = self.known();
        let health = |path: &str, serial: &Option<String>| {
            let known = known.get(&(path.to_owned(), serial.clone()))?;
            let age_seconds = known.at.elapsed().as_secs();
            known.health.clone().map(|health| DriveHealth { age_seconds, ..health })
        };
        for member in status.arrays.iter_mut().flat_map(|array| &mut array.members) {
            member.health = health(&member.path, &member.serial);
        }
        for spare in status.spare_pools.iter_mut().flat_map(|pool| &mut pool.spares) {
            spare.health = health(&spare.path, &spare.serial);
        }
        let is_missing = known.values().any(|known| known.is_missing);
        status.health_unknown = is_missing.then(|| {
            "the health of drives is unknown: install smartmontools (or nvme-cli for NVMe)"
                .to_owned()
        });
    }

    /// Ask all drives again and again, for ever.
    pub async fn keep_watching(self: Arc<Self>, arrays: Arrays) {
        if self.every.is_zero() {
            return;
        }
        loop {
            let drives = arrays.drives().await;
            let is_there = |key: &Key| drives.iter().any(|it| it.path == key.0);
            self.known().retain(|key, _| is_there(key));
            for drive in drives {
                if self.is_due(&drive) {
                    let (own, path) = (Arc::clone(&self), drive.path.clone());
                    let found = aside(move || own.ask(&path)).await;
                    self.note(&drive, found, arrays.engine.events());
                }
            }
            tokio::time::sleep(LOOK_EVERY.min(self.every)).await;
        }
    }

    fn is_due(&self, drive: &Drive) -> bool {
        let known = self.known();
        let known = known.get(&(drive.path.clone(), drive.serial.clone()));
        known.is_none_or(|known| known.at.elapsed() >= self.every)
    }

    /// `None`: it is no drive that could be asked.
    fn ask(&self, path: &str) -> Option<Result<DriveHealth, Failed>> {
        Some(self.tools.health(&disk_at(path)?))
    }

    /// What was found, and what is to be told of it.
    fn note(&self, drive: &Drive, found: Option<Result<DriveHealth, Failed>>, log: &EventLog) {
        let is_missing = found == Some(Err(Failed::Missing));
        let health = match found {
            Some(Ok(mut health)) => {
                let limit = health.temperature_limit_c.unwrap_or(self.hot_c);
                health.temperature_limit_c = Some(limit);
                Some(health)
            }
            Some(Err(Failed::Broken(error))) => {
                Some(DriveHealth { error: Some(error), ..DriveHealth::default() })
            }
            Some(Err(Failed::Missing)) | None => None,
        };
        let key = (drive.path.clone(), drive.serial.clone());
        let mut all = self.known();
        let before = all.remove(&key).and_then(|known| known.answered);
        let now = health.clone().filter(|health| health.error.is_none());
        let answered = now.clone().or_else(|| before.clone());
        all.insert(key, Known { at: Instant::now(), health, answered, is_missing });
        drop(all);
        if let Some(now) = now {
            tell(drive, &before.unwrap_or_default(), &now, log);
        }
    }
}

/// Record what differs between two looks at a drive.
fn tell(drive: &Drive, before: &DriveHealth, now: &DriveHealth, log: &EventLog) {
    let record = |name, more: Vec<(&'static str, String)>| {
        let mut fields: Vec<_> =
            drive.slot.map(|slot| ("slot", slot.to_string())).into_iter().collect();
        fields.push(("path", drive.path.clone()));
        fields.extend(drive.serial.clone().map(|serial| ("serial", serial)));
        fields.extend(more);
        log.record(name, &drive.array, fields);
    };
    let (old, new) = (before.concerns(), now.concerns());
    for concern in new.iter().filter(|it| !old.contains(it)) {
        record(name_of(*concern), vec![("reason", format!("it {}", now.words(*concern)))]);
    }
    for concern in old.iter().filter(|it| !new.contains(it)) {
        record(names::RECOVERED, vec![("concern", name_of(*concern).to_owned())]);
    }
    if let (Some(old), Some(new)) = (before.media_errors, now.media_errors)
        && new > old
    {
        let counts = vec![("media_errors", new.to_string()), ("before", old.to_string())];
        record(names::MEDIA_ERRORS, counts);
    }
}

fn name_of(concern: Concern) -> &'static str {
    match concern {
        Concern::Failing => names::FAILING,
        Concern::SpareLow => names::SPARE_LOW,
        Concern::Worn => names::WORN,
        Concern::Hot => names::HOT,
    }
}

#[cfg(test)]
mod tests {
    use super::{Drive, Watch};
    use crate::config::DrivesConfig;
    use crate::drives::Failed;
    use crate::page::made_up::{array, member, status};
    use ashlar_api::v1::member::DriveHealth;
    use ashlar_engine::EventLog;

    fn drive() -> Drive {
        Drive {
            array: "tank0".to_owned(),
            slot: Some(3),
            path: "/dev/sdq".to_owned(),
            serial: Some("Z1".to_owned()),
        }
    }

    fn health(temperature_c: i64, media_errors: u64) -> DriveHealth {
        let (temperature_c, media_errors) = (Some(temperature_c), Some(media_errors));
        DriveHealth { passed: Some(true), temperature_c, media_errors, ..DriveHealth::default() }
    }

    /// Names of the events since the last call, each with its reason or counts.
    fn told(log: &EventLog, seen: &mut u64) -> Vec<String> {
        let events = log.since(*seen);
        *seen = events.last().map_or(*seen, |event| event.sequence);
        let line = |event: ashlar_engine::Event| {
            assert_eq!(event.array, "tank0");
            let own = |name: &str| matches!(name, "slot" | "path" | "serial");
            let fields: Vec<&str> = event
                .fields
                .iter()
                .filter(|(name, _)| !own(name))
                .map(|(_, value)| value.as_str())
                .collect();
            format!("{} {}", event.name, fields.join(" "))
        };
        events.into_iter().map(line).collect()
    }

    #[test]
    fn a_concern_is_told_when_it_begins_and_when_it_is_over() {
        let (watch, log) = (Watch::new(&DrivesConfig::default()), EventLog::new(32));
        let mut seen = 0;
        let mut note = |found| {
            watch.note(&drive(), Some(found), &log);
            told(&log, &mut seen)
        };
        assert_eq!(note(Ok(health(40, 5))), [""; 0], "what was there before is no news");
        assert_eq!(note(Ok(health(75, 5))), ["drive.hot it has 75 °C"]);
        assert_eq!(note(Ok(health(76, 7))), ["drive.media_errors 7 5"]);
        assert_eq!(note(Err(Failed::Broken("no answer".to_owned()))), [""; 0]);
        assert_eq!(note(Ok(health(76, 8))), ["drive.media_errors 8 7"], "it was hot before, too");
        assert_eq!(note(Ok(health(40, 8))), ["drive.recovered drive.hot"]);
        let worn = DriveHealth {
            worn_percent: Some(90),
            spare_percent: Some(4),
            spare_threshold_percent: Some(5),
            passed: Some(false),
            ..health(40, 8)
        };
        let all = note(Ok(worn));
        let names: Vec<&str> = all.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["drive.failing", "drive.spare_low", "drive.worn"]);
    }

    #[test]
    fn the_status_has_what_is_known_and_says_what_is_missing() {
        let (watch, log) = (Watch::new(&DrivesConfig::default()), EventLog::new(32));
        let mut one = array("tank0");
        one.members = vec![member(3, "in_sync", "/dev/sdq"), member(4, "in_sync", "/dev/sdr")];
        one.members[0].serial = Some("Z1".to_owned());
        let mut all = status(vec![one]);
        watch.note(&drive(), Some(Ok(health(40, 5))), &log);
        watch.fill(&mut all);
        let figures = |at: usize| all.arrays[0].members[at].health.as_ref().map(|it| it.figures());
        assert_eq!(figures(0).as_deref(), Some("passed, 40 °C, media errors 5"));
        assert_eq!((figures(1), &all.health_unknown), (None, &None));
        watch.note(&drive(), Some(Err(Failed::Broken("no answer".to_owned()))), &log);
        watch.fill(&mut all);
        let shown = all.arrays[0].members[0].health.as_ref().map(|it| it.figures());
        assert_eq!(shown.as_deref(), Some("no answer"));
        watch.note(&drive(), Some(Err(Failed::Missing)), &log);
        watch.fill(&mut all);
        assert_eq!(all.arrays[0].members[0].health, None);
        assert!(all.health_unknown.is_some_and(|told| told.contains("install smartmontools")));
    }
}
