//! How much an event matters, and what it says in words.
//!
//! What must stay true: every event name of the engine and the daemon is in [`KINDS`]; the daemon's
//! tests compare. A name that is not known here (from a newer daemon) is a notice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How much an event matters, least first.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Ordinary work.
    #[default]
    Info,
    /// Worth knowing, nothing to do.
    Notice,
    /// Look at it soon.
    Warning,
    /// Redundancy or service is lost.
    Error,
    /// Data or an array cannot be used.
    Critical,
}

impl Severity {
    /// All, least first.
    pub const ALL: [Severity; 5] =
        [Severity::Info, Severity::Notice, Severity::Warning, Severity::Error, Severity::Critical];

    /// The level of syslog(3) and of the journal.
    pub fn syslog(self) -> u8 {
        match self {
            Severity::Info => 6,
            Severity::Notice => 5,
            Severity::Warning => 4,
            Severity::Error => 3,
            Severity::Critical => 2,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Info => "info",
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Critical => "critical",
        })
    }
}

/// A kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// How much it matters, unless its fields say otherwise.
    pub severity: Severity,
    /// What happened, half a sentence.
    pub words: &'static str,
}

const fn kind(name: &'static str, severity: Severity, words: &'static str) -> Kind {
    Kind { name, severity, words }
}

/// All kinds, by name.
pub const KINDS: [Kind; 69] = [
    kind("array.assembled", Severity::Info, "the array runs"),
    kind("array.created", Severity::Info, "the array was created"),
    kind("array.failed", Severity::Critical, "more members failed than it bears; see its status"),
    kind("array.forced", Severity::Warning, "the array started because doubts were accepted"),
    kind("array.growing", Severity::Info, "the array grows over more members"),
    kind("array.grown", Severity::Notice, "the array has grown, and its volume is larger"),
    kind("array.map_lost", Severity::Critical, "pages of the written map were lost"),
    kind("array.not_started", Severity::Error, "an array was found and is not started"),
    kind("array.paused", Severity::Critical, "writes wait for space under the members"),
    kind("array.resumed", Severity::Notice, "there is space again, writes go on"),
    kind("array.started_degraded", Severity::Error, "the array was started without members"),
    kind("array.stopped", Severity::Info, "the array was stopped"),
    kind("array.taken_over", Severity::Critical, "another process runs the array now"),
    kind("attachment.ended", Severity::Notice, "an attached volume ended"),
    kind("attachment.failed", Severity::Error, "an attached volume failed"),
    kind("attachment.not_grown", Severity::Notice, "an attached volume grew, its device did not"),
    kind("attachment.resumed", Severity::Notice, "an attached volume is served again"),
    kind("block.lost", Severity::Critical, "a block cannot be returned"),
    kind("client.dropped", Severity::Notice, "a client was dropped"),
    kind("control.called", Severity::Info, "a change was asked for"),
    kind("control.refused", Severity::Warning, "a caller may not use the control socket"),
    kind("daemon.started", Severity::Info, "the daemon started"),
    kind("daemon.stopped", Severity::Info, "the daemon stops"),
    kind("device.not_opened", Severity::Warning, "a device of a start could not be had"),
    kind("drive.failing", Severity::Error, "a drive says that it is failing"),
    kind("drive.hot", Severity::Warning, "a drive is too hot"),
    kind("drive.media_errors", Severity::Warning, "a drive has new media errors"),
    kind("drive.recovered", Severity::Notice, "a concern about a drive is over"),
    kind("drive.spare_low", Severity::Warning, "a drive runs out of spare blocks"),
    kind("drive.worn", Severity::Warning, "a drive has used its rated life"),
    kind("export.not_served", Severity::Warning, "the volume is not served"),
    kind("history.failed", Severity::Error, "events cannot be written to the history"),
    kind("history.gap", Severity::Warning, "events are missing in the history"),
    kind("history.resumed", Severity::Notice, "events are written to the history again"),
    kind("job.blocked", Severity::Error, "a job waits for lost stripes"),
    kind("job.finished", Severity::Notice, "a job is done"),
    kind("job.paused", Severity::Notice, "a job was paused"),
    kind("job.resumed", Severity::Notice, "a job goes on"),
    kind("job.started", Severity::Notice, "a job began"),
    kind("job.stopped", Severity::Warning, "a job ended before it was done"),
    kind("kernel.chosen", Severity::Info, "the engine started"),
    kind("listener.failed", Severity::Error, "a listener cannot be used any more"),
    kind("log.replayed", Severity::Notice, "the stripe intent log was rolled forward"),
    kind("member.answered", Severity::Notice, "a member answers again"),
    kind("member.block_repaired", Severity::Warning, "unreadable blocks were rewritten"),
    kind("member.block_unrepaired", Severity::Error, "unreadable blocks could not be rewritten"),
    kind("member.checksum_mismatch", Severity::Warning, "a block is not what was written"),
    kind("member.failed", Severity::Error, "a member was taken out of service"),
    kind("member.joined", Severity::Notice, "a device took a slot"),
    kind("member.older", Severity::Warning, "a device is an older copy of a member"),
    kind("member.path_replaced", Severity::Warning, "the path of a device leads elsewhere"),
    kind("member.read_late", Severity::Info, "a read took longer than the deadline"),
    kind("member.replaced", Severity::Info, "another device takes the slot"),
    kind("member.returned", Severity::Notice, "a member came back by itself"),
    kind("member.reused", Severity::Warning, "a device was given to somebody else"),
    kind("member.silent", Severity::Error, "requests wait for a member that does not answer"),
    kind("member.slow", Severity::Warning, "a member is much slower than its peers"),
    kind("member.slow_no_more", Severity::Notice, "a member is as fast as its peers again"),
    kind("member.superblock_damaged", Severity::Warning, "copies of a superblock were damaged"),
    kind("member.taken_older", Severity::Critical, "a member was taken that may lack writes"),
    kind("member.whole", Severity::Notice, "a lost member is in service again"),
    kind("notify.failed", Severity::Warning, "a notification cannot be delivered"),
    kind("notify.recovered", Severity::Notice, "notifications are delivered again"),
    kind("scrub.mismatch_found", Severity::Warning, "a scrub found a mismatch"),
    kind("service.missing", Severity::Error, "something beside the arrays cannot be had"),
    kind("service.returned", Severity::Notice, "what was missing beside the arrays is there"),
    kind("spare.added", Severity::Info, "a spare was added"),
    kind("spare.missing", Severity::Warning, "no spare fits"),
    kind("spare.removed", Severity::Info, "a spare left its pool"),
];

/// Messages that are no events: what happened is in several, or nothing did.
pub mod messages {
    /// Events that were too many to be told one by one. Fields: `count`, and how many of each name.
    pub const SUMMARY: &str = "notify.summary";
    /// Somebody tries whether messages arrive.
    pub const TEST: &str = "notify.test";
}

/// What is known of events of this name.
pub fn kind_of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// How much an event with these fields matters.
pub fn severity_of(name: &str, fields: &BTreeMap<String, String>) -> Severity {
    let is = |field: &str, value: &str| fields.get(field).is_some_and(|own| own == value);
    let counts = |field: &str| fields.get(field).is_some_and(|count| count != "0");
    let usual = kind_of(name).map_or(Severity::Notice, |kind| kind.severity);
    let raised = match name {
        "array.stopped" if is("clean", "false") => Severity::Warning,
        "array.assembled" if counts("missing") => Severity::Error,
        "job.finished" if counts("unrepairable") => Severity::Error,
        "job.finished" if counts("mismatches") => Severity::Warning,
        "log.replayed" if counts("rows_left") => Severity::Error,
        _ => usual,
    };
    usual.max(raised)
}

#[cfg(test)]
mod tests {
    use super::{KINDS, Severity, severity_of};
    use std::collections::BTreeMap;

    #[test]
    fn kinds_are_in_order_and_each_there_once() {
        assert!(KINDS.windows(2).all(|two| two[0].name < two[1].name));
        assert!(KINDS.iter().all(|kind| kind.name.split_once('.').is_some()));
    }

    #[test]
    fn severities_are_ordered_as_in_syslog() {
        let levels = Severity::ALL.map(Severity::syslog);
        assert_eq!(levels, [6, 5, 4, 3, 2]);
        assert!(Severity::ALL.is_sorted());
    }

    #[test]
    fn fields_can_make_an_event_worse() {
        let of = |name, field: &str, value: &str| {
            severity_of(name, &BTreeMap::from([(field.to_owned(), value.to_owned())]))
        };
        assert_eq!(of("array.stopped", "clean", "true"), Severity::Info);
        assert_eq!(of("array.stopped", "clean", "false"), Severity::Warning);
        assert_eq!(of("array.assembled", "missing", "0"), Severity::Info);
        assert_eq!(of("array.assembled", "missing", "1"), Severity::Error);
        assert_eq!(of("job.finished", "mismatches", "0"), Severity::Notice);
        assert_eq!(of("job.finished", "mismatches", "2"), Severity::Warning);
        assert_eq!(of("from.tomorrow", "x", "1"), Severity::Notice);
    }
}
