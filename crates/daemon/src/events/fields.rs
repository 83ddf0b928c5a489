//! An event as named values: fields of the journal, and the environment of programs.
//!
//! What must stay true: names are stable (`ASHLAR_EVENT`, `ASHLAR_ARRAY`, `ASHLAR_DEVICE` ...),
//! made of capitals, digits and underscores, and at most 64 bytes long. Values are on one line and
//! bounded.

use ashlar_api::v1::event::{Event, one_line};

/// The most characters of a value.
const VALUE_MAX: usize = 4096;
/// The most characters of a name behind `ASHLAR_`.
const NAME_MAX: usize = 57;

/// The name and value of everything that is known of `event`.
pub(super) fn of(event: &Event) -> Vec<(String, String)> {
    let mut fields = vec![
        ("ASHLAR_EVENT".to_owned(), event.name.clone()),
        ("ASHLAR_SEVERITY".to_owned(), event.severity.to_string()),
        ("ASHLAR_SEQUENCE".to_owned(), event.sequence.to_string()),
        ("ASHLAR_UNIX_MS".to_owned(), event.unix_ms.to_string()),
    ];
    fields.extend(event.array.iter().map(|array| ("ASHLAR_ARRAY".to_owned(), value(array))));
    for (name, own) in &event.fields {
        let name = name_of(name);
        // A program that calls us must reach the daemon that called it.
        if name != "ASHLAR_SOCKET" && !fields.iter().any(|(other, _)| *other == name) {
            fields.push((name, value(own)));
        }
    }
    fields
}

fn name_of(name: &str) -> String {
    let name = if name == "path" { "device" } else { name };
    let sound = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_uppercase() } else { '_' };
    format!("ASHLAR_{}", name.chars().take(NAME_MAX).map(sound).collect::<String>())
}

fn value(text: &str) -> String {
    one_line(text).chars().take(VALUE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::of;
    use ashlar_api::v1::event::Event;
    use ashlar_api::v1::severity::Severity;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_sound_whatever_a_field_is_called() {
        let fields = ["path", "silent_ms", "socket", "event", "of-a peer"];
        let fields = fields.map(|name| (name.to_owned(), "a\nb\0".to_owned()));
        let event = Event {
            sequence: 7,
            unix_ms: 8,
            name: "member.failed".to_owned(),
            severity: Severity::Error,
            array: Some("tank0".to_owned()),
            fields: BTreeMap::from(fields),
        };
        let named = of(&event);
        let get = |name: &str| {
            let found: Vec<&str> =
                named.iter().filter(|(own, _)| own == name).map(|(_, it)| it.as_str()).collect();
            found
        };
        assert_eq!(get("ASHLAR_EVENT"), ["member.failed"]);
        assert_eq!(get("ASHLAR_ARRAY"), ["tank0"]);
        assert_eq!(get("ASHLAR_DEVICE"), ["a b "]);
        assert_eq!(get("ASHLAR_SILENT_MS"), ["a b "]);
        assert_eq!(get("ASHLAR_OF_A_PEER"), ["a b "]);
        assert!(get("ASHLAR_SOCKET").is_empty());
    }
}
