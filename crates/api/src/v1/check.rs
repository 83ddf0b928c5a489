//! One verdict on everything, for monitoring: right, attention, degraded or failed.
//!
//! What must stay true: the same status always gives the same verdict, and each finding names what
//! it is about. docs/operating.md lists the rules in the same order.

use super::array::{ArrayState, ArrayStatus};
use super::member::{MemberState, MemberStatus};
use super::status::{AbsentArray, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How everything is, best first.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Nothing is wrong.
    Right,
    /// Everything is served with full redundancy, but somebody should look.
    Attention,
    /// Everything is served, with less redundancy or not for writing.
    Degraded,
    /// Something is not served.
    Failed,
}

impl Health {
    /// The exit code of `ashlar status --check`.
    pub fn exit_code(self) -> u8 {
        match self {
            Health::Right => 0,
            Health::Attention => 1,
            Health::Degraded => 2,
            Health::Failed => 3,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Health::Right => "RIGHT",
            Health::Attention => "ATTENTION",
            Health::Degraded => "DEGRADED",
            Health::Failed => "FAILED",
        })
    }
}

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How bad it is.
    pub health: Health,
    /// What it is, half a sentence that names its array or part.
    pub what: String,
}

/// The verdict and what it is made of, worst first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The worst of all findings.
    pub health: Health,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// A member that has not answered for so long is told of, in milliseconds.
const SILENT_MS: u64 = 5000;

impl Verdict {
    /// On a daemon that answers.
    pub fn of(status: &Status) -> Verdict {
        let mut findings: Vec<Finding> = status.arrays.iter().flat_map(of_array).collect();
        findings.extend(of_the_rest(status));
        Verdict::from(findings)
    }

    /// Of findings in any order.
    pub fn from(mut findings: Vec<Finding>) -> Verdict {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let health = findings.first().map_or(Health::Right, |worst| worst.health);
        Verdict { health, findings }
    }
}

fn of_the_rest(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |health, what: String| findings.push(Finding { health, what });
    for absent in &status.absent {
        let AbsentArray { name, reason, .. } = absent;
        match absent.starting {
            true => add(Health::Attention, because(&format!("{name} is being started"), reason)),
            false => {
                add(Health::Failed, because(&format!("{name} should run and does not"), reason))
            }
        }
    }
    for found in &status.found {
        let health = if found.should_run { Health::Failed } else { Health::Attention };
        let what = format!("{} was found and is not started", found.name);
        add(health, because(&what, &found.reason));
    }
    for missing in &status.missing {
        let health = if missing.is_way { Health::Failed } else { Health::Attention };
        add(health, because(&format!("{} is missing", missing.name), &missing.reason));
    }
    if status.starting {
        add(Health::Attention, "arrays are being started".to_owned());
    }
    for way in status.notify.iter().filter(|way| way.error.is_some()) {
        add(Health::Attention, format!("notifications by {} do not arrive", way.way));
    }
    if status.history.as_ref().is_some_and(|history| history.error.is_some()) {
        add(Health::Attention, "events are not written to the history".to_owned());
    }
    findings
}

/// What it is and why, in one line.
fn because(what: &str, reason: &str) -> String {
    let reason = reason.lines().collect::<Vec<_>>().join("; ");
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

fn of_array(array: &ArrayStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &array.name;
    let mut add = |health, what: &str| {
        findings.push(Finding { health, what: format!("{name} {what}") });
    };
    match array.state {
        _ if let Some(by) = &array.taken_over_by => {
            add(Health::Failed, &format!("was taken over: it runs {by}"));
        }
        ArrayState::Failed => {
            let said = array.read_only.as_ref().map(|why| format!("{}; {}", why.because, why.next));
            let next = said.or_else(|| array.after_failure()).unwrap_or_default();
            add(Health::Failed, &because("has failed", &next));
        }
        ArrayState::ReadOnly => match &array.read_only {
            Some(why) => {
                add(Health::Degraded, &format!("is read-only: {}; {}", why.because, why.next));
            }
            None => add(Health::Degraded, "is read-only"),
        },
        ArrayState::Resyncing => add(Health::Attention, "is being resynced"),
        ArrayState::Degraded | ArrayState::Clean => {}
    }
    if array.pause.is_some() {
        add(Health::Failed, "is paused: writes wait for space");
    }
    if let Some(scrub) = array.last_scrub.filter(|it| it.left > 0 || it.unrepairable > 0) {
        let wrong = scrub.left + scrub.unrepairable;
        add(Health::Attention, &format!("has {wrong} wrong blocks, says its last scrub"));
    }
    for member in &array.members {
        for (health, what) in of_member(member) {
            add(health, &format!("slot {} {what}", member.slot));
        }
    }
    findings
}

fn of_member(member: &MemberStatus) -> Vec<(Health, String)> {
    let mut findings = Vec::new();
    match member.state {
        MemberState::Out | MemberState::Failing => {
            findings.push((Health::Degraded, format!("is out{}", drive(member))));
        }
        MemberState::Rebuilding => findings.push((Health::Degraded, "is rebuilding".to_owned())),
        MemberState::Replacing => {
            findings.push((Health::Attention, "is being replaced".to_owned()));
        }
        MemberState::InSync => {}
    }
    if let Some(health) = &member.health {
        for concern in health.concerns() {
            let what = format!("has a drive that {}", health.words(concern));
            findings.push((Health::Attention, what));
        }
    }
    if member.silent_ms >= SILENT_MS {
        let seconds = member.silent_ms / 1000;
        findings.push((Health::Degraded, format!("has been silent for {seconds} s")));
    }
    if member.slow.is_some() {
        findings.push((Health::Attention, format!("is slow{}", drive(member))));
    }
    let errors = member.faults();
    if errors > 0 && member.state != MemberState::Out {
        findings.push((Health::Attention, format!("has {errors} errors{}", drive(member))));
    }
    findings
}

/// The drive in a slot, or the last one that was there.
fn drive(member: &MemberStatus) -> String {
    let (path, serial, bay) = match &member.last_device {
        Some(last) => (last.place(), &last.serial, &last.bay),
        None => (Some(member.path.clone()), &member.serial, &member.bay),
    };
    let serial = serial.as_ref().map(|serial| format!("serial {serial}"));
    let path = path.filter(|path| !path.is_empty());
    let known: Vec<String> = path.into_iter().chain(serial).chain(bay.words()).collect();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Health, Verdict};
    use crate::v1::notify::{HistoryStatus, NotifyStatus};
    use crate::v1::status::{AbsentArray, FoundArray, MissingService, Status};

    fn status(json: serde_json::Value) -> Status {
        let mut all = serde_json::json!({
            "version": "1", "uptime_seconds": 0, "process_id": 1, "resident_bytes": 0,
            "arrays": [], "spare_pools": [], "exports": [], "workers": [], "pools": []
        });
        all.as_object_mut().expect("ours").extend(json.as_object().expect("ours").clone());
        serde_json::from_value(all).expect("a status")
    }

    fn health(status: &Status) -> (Health, Vec<String>) {
        let verdict = Verdict::of(status);
        (verdict.health, verdict.findings.into_iter().map(|it| it.what).collect())
    }

    #[test]
    fn nothing_wrong_is_right() {
        assert_eq!(health(&status(serde_json::json!({}))), (Health::Right, Vec::new()));
    }

    #[test]
    fn an_absent_array_fails_and_what_else_is_wrong_follows() {
        let mut status = status(serde_json::json!({"starting": true}));
        status.absent.push(AbsentArray { name: "tank1".to_owned(), ..AbsentArray::default() });
        let error = Some("no".to_owned());
        status.history = Some(HistoryStatus { error: error.clone(), ..HistoryStatus::default() });
        status.notify = vec![
            NotifyStatus { way: "url".to_owned(), error, ..NotifyStatus::default() },
            NotifyStatus { way: "mail".to_owned(), ..NotifyStatus::default() },
        ];
        let (health, what) = health(&status);
        assert_eq!(health, Health::Failed);
        assert_eq!(
            what,
            [
                "tank1 should run and does not",
                "arrays are being started",
                "notifications by url do not arrive",
                "events are not written to the history"
            ]
        );
    }

    #[test]
    fn what_is_found_and_not_started_and_what_is_missing_beside_arrays_is_not_right() {
        let found = |name: &str, should_run| FoundArray {
            name: name.to_owned(),
            should_run,
            ..FoundArray::default()
        };
        let missing = |name: &str, is_way| MissingService {
            name: name.to_owned(),
            is_way,
            ..MissingService::default()
        };
        let mut status = status(serde_json::json!({}));
        status.found = vec![found("theirs", false), found("ours", true)];
        status.missing = vec![missing("metrics", false), missing("NBD", true)];
        let (health, what) = health(&status);
        assert_eq!(health, Health::Failed);
        assert_eq!(
            what,
            [
                "ours was found and is not started",
                "NBD is missing",
                "theirs was found and is not started",
                "metrics is missing",
            ]
        );
    }

    #[test]
    fn the_worst_finding_decides() {
        let of = |health| Finding { health, what: String::new() };
        let verdict = Verdict::from(vec![of(Health::Attention), of(Health::Degraded)]);
        assert_eq!(verdict.health, Health::Degraded);
        assert_eq!(verdict.findings[0].health, Health::Degraded);
    }
}
