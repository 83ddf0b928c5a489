//! Events in the journal of systemd, by its native protocol: one datagram an event, with fields.
//!
//! What must stay true: without a journal nothing fails and nothing waits. A journal that takes
//! nothing costs at most a second an event on this thread, and then that event.

use super::{Ending, fields};
use crate::convert;
use ashlar_api::v1::event::Event;
use ashlar_engine::EventLog;
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to try again when the journal is full, and the pause before each.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// The journal at `path`; `None` if it is empty or the system has no sockets left.
    pub(super) fn at(path: &Path) -> Option<Journal> {
        if path.as_os_str().is_empty() {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Journal { socket, path: path.to_owned() })
    }

    /// Send every event from the first one on, until the process ends.
    pub(super) fn follow(&self, log: &EventLog, ending: &Ending) {
        super::each(log, ending, |event| self.send(&entry(&convert::event(event.clone()))));
    }

    fn send(&self, entry: &[u8]) {
        for _ in 0..TRIES {
            match self.socket.send_to(entry, &self.path) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                // Sent; or there is no journal, and the history has the event.
                _ => return,
            }
        }
    }
}

/// The message id of a kind of event: the same on every machine and in every version.
pub(super) fn message_id(name: &str) -> String {
    let digest = Sha256::digest(format!("ashlar event {name}").as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// An event as a datagram: a line `NAME=value` for each field. Values are on one line already.
fn entry(event: &Event) -> Vec<u8> {
    let mut text = format!(
        "MESSAGE={}\nPRIORITY={}\nMESSAGE_ID={}\nSYSLOG_IDENTIFIER=ashlar\n",
        event.message(),
        event.severity.syslog(),
        message_id(&event.name)
    );
    for (name, value) in fields::of(event) {
        text.push_str(&format!("{name}={value}\n"));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Journal, entry, message_id};
    use crate::convert;
    use crate::events::Ending;
    use ashlar_api::v1::severity::KINDS;
    use ashlar_engine::EventLog;
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    fn failed(log: &EventLog) {
        let field = |name, value: &str| (name, value.to_owned());
        let fields = vec![
            field("slot", "3"),
            field("reason", "write\nfailed"),
            field("path", "/dev/sdc"),
            field("serial", "S1"),
        ];
        log.record("member.failed", "tank0", fields);
    }

    #[test]
    fn an_event_is_a_datagram_of_lines_with_its_fields() {
        let log = EventLog::new(4);
        failed(&log);
        let event = convert::event(log.since(0).remove(0));
        let text = String::from_utf8(entry(&event)).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "MESSAGE=tank0: a member was taken out of service (slot 3, /dev/sdc, serial S1): write \
             failed"
        );
        for line in [
            "PRIORITY=3",
            "MESSAGE_ID=8de1b09edb2b77ac5e3aff00f7bd0ab8",
            "SYSLOG_IDENTIFIER=ashlar",
            "ASHLAR_EVENT=member.failed",
            "ASHLAR_ARRAY=tank0",
            "ASHLAR_SLOT=3",
            "ASHLAR_DEVICE=/dev/sdc",
            "ASHLAR_SERIAL=S1",
            "ASHLAR_REASON=write failed",
        ] {
            assert!(lines.contains(&line), "{line} is missing in {text}");
        }
        assert!(lines.iter().all(|line| line.contains('=')), "{text}");
    }

    #[test]
    fn each_kind_has_a_message_id_of_its_own() {
        let ids: BTreeSet<String> = KINDS.iter().map(|kind| message_id(kind.name)).collect();
        assert_eq!(ids.len(), KINDS.len());
        assert!(ids.iter().all(|id| id.len() == 32));
    }

    #[test]
    fn a_journal_gets_what_happened_until_the_end_and_none_is_no_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let log = EventLog::new(4);
        failed(&log);
        let ending = Ending::default();
        ending.0.store(true, Ordering::Release);
        Journal::at(&path).expect("a socket").follow(&log, &ending);
        let journal = UnixDatagram::bind(&path).expect("ours");
        Journal::at(&path).expect("a socket").follow(&log, &ending);
        let mut bytes = [0; 4096];
        let length = journal.recv(&mut bytes).expect("a datagram");
        assert!(bytes[..length].starts_with(b"MESSAGE=tank0: a member was taken out"));
        assert!(Journal::at(Path::new("")).is_none());
    }
}
