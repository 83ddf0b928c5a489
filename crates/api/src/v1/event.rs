//! Events: what happened, one line each, with names that stay.
//!
//! What must stay true: a name is `noun.verb_past` and never changes its meaning; the sequence
//! number rises by one with each event, so that a reader can tell when it missed some.

use super::severity::{Severity, kind_of, messages};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Recent events, one JSON object a line; ends with the newest.
pub const EVENTS_PATH: &str = "/v1/events";
/// The same, and then each further event as it happens.
pub const FOLLOW_PATH: &str = "/v1/events/follow";

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Rises by one with each event of this daemon.
    pub sequence: u64,
    /// Wall clock, in milliseconds since 1970. For people; nothing is decided by it.
    pub unix_ms: u64,
    /// For example `member.failed`.
    pub name: String,
    /// How much it matters.
    #[serde(default)]
    pub severity: Severity,
    /// The array it is about.
    #[serde(default)]
    pub array: Option<String>,
    /// What is known about it; names carry their units.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
}

/// Fields that say which drive is meant.
const DRIVE: [(&str, &str); 4] =
    [("slot", "slot "), ("path", ""), ("serial", "serial "), ("model", "")];

impl Event {
    /// What happened, on one line: the array, the kind, the drive, the reason, and what else is
    /// known.
    pub fn message(&self) -> String {
        let words = match self.name.as_str() {
            messages::SUMMARY => "more events",
            messages::TEST => "a test; nothing happened",
            name => kind_of(name).map_or(name, |kind| kind.words),
        };
        let array = self.array.as_ref().map_or(String::new(), |array| format!("{array}: "));
        let field = |name: &str| self.fields.get(name).filter(|value| !value.is_empty());
        let drive = DRIVE
            .iter()
            .filter_map(|(name, before)| field(name).map(|value| format!("{before}{value}")));
        let drive = drive.collect::<Vec<_>>().join(", ");
        let drive = if drive.is_empty() { drive } else { format!(" ({drive})") };
        let reason = field("reason").map_or(String::new(), |reason| format!(": {reason}"));
        let is_other =
            |name: &&String| *name != "reason" && !DRIVE.iter().any(|(own, _)| own == name);
        let others = self.fields.iter().filter(|(name, _)| is_other(name));
        let others: String = others.map(|(name, value)| format!("; {name} {value}")).collect();
        one_line(&format!("{array}{words}{drive}{reason}{others}"))
    }
}

/// `text` without control characters, whatever a device or a peer put into it.
pub fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::Event;
    use crate::v1::severity::Severity;

    fn event(name: &str, array: Option<&str>, fields: &[(&str, &str)]) -> Event {
        Event {
            sequence: 1,
            unix_ms: 2,
            name: name.to_owned(),
            severity: Severity::Error,
            array: array.map(str::to_owned),
            fields: fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        }
    }

    #[test]
    fn a_message_says_what_happened_to_which_drive_and_why() {
        let fields = [
            ("slot", "3"),
            ("path", "/dev/sdc"),
            ("serial", "S1\n2"),
            ("reason", "it failed a write"),
            ("count", "2"),
        ];
        assert_eq!(
            event("member.failed", Some("tank0"), &fields).message(),
            "tank0: a member was taken out of service (slot 3, /dev/sdc, serial S1 2): it failed a \
             write; count 2"
        );
        assert_eq!(event("from.tomorrow", None, &[("path", "")]).message(), "from.tomorrow");
    }

    #[test]
    fn an_event_without_a_severity_from_an_older_daemon_is_read() {
        let line = r#"{"sequence":1,"unix_ms":2,"name":"array.created"}"#;
        let read: Event = serde_json::from_str(line).expect("an event");
        assert_eq!((read.severity, read.fields.len()), (Severity::Info, 0));
    }
}
