//! Devices that joined an array while it ran are remembered with it: a spare that took a slot is
//! looked for at the next start, also if it is a file.
//!
//! What must stay true: only of arrays that were created or assembled by hand. A device that is
//! gone stays on the list, for it may come back. What cannot be written down costs a start nothing
//! but that device.

use super::Gather;
use super::remembered::Remembered;
use crate::arrays::Arrays;
use crate::aside::aside;
use crate::look;
use ashlar_engine::{ArrayStatus, Event, event_names};

impl Gather {
    /// Remember the device that joined an array, if that is the event.
    pub fn note_event(&self, event: &Event) {
        if event.name != event_names::MEMBER_JOINED {
            return;
        }
        let path = event.fields.iter().find(|(name, _)| *name == "path").map(|(_, path)| path);
        path.into_iter().for_each(|path| self.remembered.forget_spare(path));
        // By name: the array may have stopped meanwhile, and the engine forgot its UUID.
        let all = self.remembered.all().into_iter();
        for (uuid, _) in all.filter(|(_, own)| own.name == event.array) {
            self.remembered.note(uuid, |own| note(own, path));
        }
    }

    /// Have those of these spares wait again that were made spares by hand and no array brought
    /// with it. A line for each that cannot.
    pub(super) async fn take_in(&self, arrays: &Arrays, spares: &[String]) -> Vec<String> {
        let remembered = self.remembered.spares();
        let mut lines = Vec::new();
        for path in spares.iter().filter(|path| remembered.contains(*path)) {
            if arrays.engine.spares().iter().any(|spare| spare.path == **path) {
                continue;
            }
            let own = path.clone();
            if aside(move || look::given_away(&own)).await.is_some() {
                continue;
            }
            if let Err(refusal) = arrays.engine.take_in_spare(path).await {
                lines.push(refusal.to_string());
            }
        }
        lines
    }

    /// Remember the members of this array.
    pub fn note_members(&self, array: &ArrayStatus) {
        let paths = array.members.iter().map(|member| &member.path).filter(|it| !it.is_empty());
        self.remembered.note(array.uuid, |own| note(own, paths));
    }
}

/// Add what is new to the devices of an array that is started by hand.
fn note<'p>(own: &mut Remembered, paths: impl IntoIterator<Item = &'p String>) {
    if !own.start {
        return;
    }
    for path in paths {
        if !own.devices.contains(path) {
            own.devices.push(path.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Gather;
    use crate::config::Config;
    use ashlar_engine::{EventLog, event_names};
    use std::path::Path;
    use uuid::Uuid;

    fn joined(gather: &Gather, name: &'static str, array: &str, path: &str) {
        let log = EventLog::new(4);
        log.record(name, array, vec![("slot", "2".to_owned()), ("path", path.to_owned())]);
        log.since(0).iter().for_each(|event| gather.note_event(event));
    }

    #[test]
    fn a_device_that_joins_is_remembered_with_an_array_made_by_hand_and_with_no_other() {
        let gather = Gather::new(&Config::default(), Path::new("/"), "here".to_owned(), |_| {});
        let [by_hand, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
        for (uuid, name, start) in [(by_hand, "tank0", true), (other, "bank0", false)] {
            gather.remembered.note(uuid, |own| {
                (own.name, own.start) = (name.to_owned(), start);
                own.devices = vec!["/a".to_owned()];
                // It would be forgotten otherwise.
                own.absent = [7].into();
            });
        }
        joined(&gather, event_names::MEMBER_JOINED, "tank0", "/b");
        joined(&gather, event_names::MEMBER_JOINED, "tank0", "/b");
        joined(&gather, event_names::MEMBER_FAILED, "tank0", "/c");
        joined(&gather, event_names::MEMBER_JOINED, "bank0", "/d");
        joined(&gather, event_names::MEMBER_JOINED, "nobody", "/e");
        let devices = |uuid| gather.remembered.of(uuid).map(|own| own.devices).unwrap_or_default();
        assert_eq!(devices(by_hand), ["/a", "/b"]);
        assert_eq!(devices(other), ["/a"]);
    }
}
