//! Arrays that were found and are not started, for the status and the events.
//!
//! What must stay true: an array that is known here neither runs, nor was stopped by hand, nor only
//! waits for members that may come any moment. What is not on its devices any more is forgotten
//! with the next look. Not here: why an array is not started (`mod`, `judge`).

use super::{ArrayStatus, Ask, Gather, Seen, means};
use crate::aside::aside;
use ashlar_api::v1::status::FoundArray;
use ashlar_engine::EventLog;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// How often to look again at what was found and not started.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// An array that was found and is not started; told once for each reason. Field: `reason`.
const NOT_STARTED: &str = "array.not_started";

/// Those that are known.
pub(super) type FoundArrays = BTreeMap<Uuid, FoundArray>;

/// Why an array is not started now.
pub(super) struct NotNow {
    /// For people.
    pub(super) line: String,
    /// It may start by itself soon.
    pub(super) is_passing: bool,
    /// It belongs to this host and should run.
    pub(super) should_run: bool,
    /// Its start was tried and refused.
    pub(super) is_refused: bool,
    /// It starts soon, or would start.
    pub(super) is_well: bool,
}

impl NotNow {
    pub(super) fn new(line: String) -> NotNow {
        NotNow { line, is_passing: false, should_run: true, is_refused: false, is_well: false }
    }
}

impl Gather {
    /// Note that an array is not started, and tell of it.
    pub(super) fn note_found(
        &self,
        uuid: Uuid,
        seen: &Seen,
        ask: &Ask,
        (not_now, log): (&NotNow, &EventLog),
    ) {
        let mut known = self.known();
        let is_ours = !ask.is_by_hand || not_now.is_refused;
        if ask.is_dry_run || !is_ours || not_now.is_passing || known.stopped.contains(&uuid) {
            return;
        }
        match not_now.is_refused {
            true => drop(known.refused.insert(uuid)),
            false => drop(known.refused.remove(&uuid)),
        }
        let devices = seen.readings.iter().map(|reading| reading.path.clone());
        let now = FoundArray {
            name: seen.name.clone(),
            uuid: uuid.to_string(),
            devices: devices.collect(),
            reason: not_now.line.clone(),
            should_run: not_now.should_run,
        };
        let before = known.found.insert(uuid, now);
        drop(known);
        if before.is_none_or(|before| before.reason != not_now.line) {
            log.record(NOT_STARTED, &seen.name, vec![("reason", not_now.line.clone())]);
        }
    }

    /// Forget those that a look did not see, of all that it could see.
    pub(super) async fn forget_what_is_gone(&self, seen: &BTreeSet<Uuid>, ask: &Ask) {
        let has_seen_all = self.setting.scan && ask.devices.is_empty();
        let unseen: Vec<(Uuid, Vec<String>)> = {
            let known = self.known();
            let unseen = known.found.iter().filter(|(uuid, _)| !seen.contains(*uuid));
            unseen.map(|(uuid, found)| (*uuid, found.devices.clone())).collect()
        };
        if unseen.is_empty() {
            return;
        }
        let is_gone = |devices: &[String]| !devices.iter().any(|it| Path::new(it).exists());
        let gone = aside(move || {
            let gone = unseen.into_iter().filter(|(_, it)| has_seen_all || is_gone(it));
            gone.map(|(uuid, _)| uuid).collect::<Vec<_>>()
        });
        for uuid in gone.await {
            self.known().found.remove(&uuid);
        }
    }

    /// Those that are not started, but for arrays that are named or remembered here: these are
    /// absent.
    pub fn found(&self, running: &[ArrayStatus]) -> Vec<FoundArray> {
        let all: Vec<(Uuid, FoundArray)> = {
            let known = self.known();
            let all = known.found.iter().filter(|(uuid, _)| !known.stopped.contains(*uuid));
            all.map(|(uuid, found)| (*uuid, found.clone())).collect()
        };
        let is_told_elsewhere = |uuid: Uuid, name: &str| {
            running.iter().any(|array| array.uuid == uuid)
                || self.configured.iter().any(|it| means(it, name, uuid))
                || self.remembered.of(uuid).is_some_and(|own| own.start || own.attach.is_some())
        };
        let all = all.into_iter().filter(|(uuid, found)| !is_told_elsewhere(*uuid, &found.name));
        all.map(|(_, found)| found).collect()
    }
}
