//! Which drive is, or was last, in each slot: what somebody needs who has to pull it.
//!
//! What must stay true: a device that goes out stays known here until another one takes its slot.
//! Every event that names a slot also names its device. Of a device that has not been there since
//! the start, the members know (`coordinator/drives.rs`).

use ashlar_device::{Bay, DeviceFacts};
use ashlar_ondisk::{Drive, Drives, Text};
use ashlar_units::MemberIdx;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// What a drive is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceIdentity {
    /// Path or name; empty if it is not known.
    pub path: String,
    /// Serial number or world-wide name.
    pub serial: Option<String>,
    /// What it calls itself.
    pub model: Option<String>,
    /// Where it is plugged in.
    pub bay: Bay,
    /// The host that saw it there; `None`: this one.
    pub host: Option<String>,
}

impl DeviceIdentity {
    fn of(facts: &DeviceFacts) -> DeviceIdentity {
        let DeviceFacts { path, serial, model, bay, .. } = facts.clone();
        DeviceIdentity { path, serial, model, bay, host: None }
    }

    /// What members keep of it. `own_host` is this host.
    pub(crate) fn to_drive(&self, own_host: &str) -> Drive {
        let host = self.host.as_deref().unwrap_or(own_host);
        Drive {
            member_tag: 0,
            model: cut(self.model.as_ref()),
            path: Text::cut(&self.path),
            by_path: cut(self.bay.by_path.as_ref()),
            enclosure: cut(self.bay.enclosure.as_ref()),
            bay: cut(self.bay.name.as_ref()),
            host: Text::cut(host),
        }
    }

    /// What members kept of a drive with this serial. `own_host` is this host.
    pub(crate) fn of_drive(drive: &Drive, serial: &str, own_host: &str) -> DeviceIdentity {
        let is_elsewhere = drive.host != Text::cut(own_host) && !drive.host.is_empty();
        DeviceIdentity {
            path: drive.path.as_str().to_owned(),
            serial: known(serial),
            model: known(drive.model.as_str()),
            bay: Bay {
                by_path: known(drive.by_path.as_str()),
                enclosure: known(drive.enclosure.as_str()),
                name: known(drive.bay.as_str()),
                ..Bay::default()
            },
            host: known(drive.host.as_str()).filter(|_| is_elsewhere),
        }
    }
}

fn cut<const N: usize>(text: Option<&String>) -> Text<N> {
    text.map_or(Text::EMPTY, |text| Text::cut(text))
}

fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The devices that fill the slots now, or did last.
pub(crate) struct Identities(Box<[Mutex<DeviceIdentity>]>);

impl Identities {
    pub(crate) fn new(slots: usize) -> Identities {
        Identities((0..slots).map(|_| Mutex::default()).collect())
    }

    fn slot(&self, member: MemberIdx) -> Option<MutexGuard<'_, DeviceIdentity>> {
        let slot = self.0.get(member.at())?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A device fills the slot from now on.
    pub(crate) fn joins(&self, member: MemberIdx, facts: &DeviceFacts) {
        let Some(mut own) = self.slot(member) else { return };
        if own.path != facts.path || own.serial != facts.serial || own.host.is_some() {
            *own = DeviceIdentity::of(facts);
        }
    }

    /// The start, before devices join: this one filled the slot last.
    pub(crate) fn recall(&self, member: MemberIdx, identity: DeviceIdentity) {
        if let Some(mut own) = self.slot(member) {
            *own = identity;
        }
    }

    /// The device that filled the slot last.
    pub(crate) fn last(&self, member: MemberIdx) -> DeviceIdentity {
        self.slot(member).map(|own| own.clone()).unwrap_or_default()
    }

    /// `fields` with the device of their slot. Those of a device that is not the slot's own, or not
    /// yet, stay as they are.
    pub(crate) fn name_device(
        &self,
        mut fields: Vec<(&'static str, String)>,
    ) -> Vec<(&'static str, String)> {
        let field =
            |name: &str| fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value);
        let Some(slot) = field("slot").and_then(|slot| slot.parse().ok()) else { return fields };
        let own = self.last(MemberIdx(slot));
        let is_own = match field("path") {
            Some(path) => *path == own.path,
            None => field("role").is_none_or(|role| role != "replacement"),
        };
        if !is_own || own.path.is_empty() {
            return fields;
        }
        let bay = own.bay.enclosure.zip(own.bay.name);
        let bay = bay.map(|(enclosure, bay)| format!("{bay} of enclosure {enclosure}"));
        let of_own =
            [("path", Some(own.path)), ("serial", own.serial), ("model", own.model), ("bay", bay)];
        for (name, value) in of_own {
            let is_new = !fields.iter().any(|(own, _)| *own == name);
            fields.extend(value.filter(|_| is_new).map(|value| (name, value)));
        }
        fields
    }
}

/// What the members say of drives, and which members have it. On the coordinator.
#[derive(Default)]
pub(crate) struct KeptDrives(pub(crate) RefCell<(Drives, BTreeSet<Uuid>)>);

#[cfg(test)]
mod tests {
    use super::{DeviceIdentity, Identities};
    use ashlar_device::Bay;
    use ashlar_units::MemberIdx;

    fn of_one() -> Identities {
        let identities = Identities::new(2);
        *identities.slot(MemberIdx(1)).expect("there") = DeviceIdentity {
            path: "/dev/sdb".to_owned(),
            serial: Some("S1".to_owned()),
            ..DeviceIdentity::default()
        };
        identities
    }

    #[test]
    fn an_event_of_a_slot_names_its_device() {
        let own = |name: &'static str, value: &str| (name, value.to_owned());
        let named = of_one().name_device(vec![own("slot", "1"), own("reason", "x")]);
        let expected =
            [own("slot", "1"), own("reason", "x"), own("path", "/dev/sdb"), own("serial", "S1")];
        assert_eq!(named, expected);
    }

    #[test]
    fn what_members_keep_of_a_drive_tells_where_it_was_and_who_saw_it_there() {
        let here = DeviceIdentity {
            path: "/dev/sdq".to_owned(),
            serial: Some("S1".to_owned()),
            model: Some("Drive 9000".to_owned()),
            bay: Bay {
                by_path: Some("pci-0000:5e:00.0-sas-phy7-lun-0".to_owned()),
                enclosure: Some("0x500304801f2a8d3f".to_owned()),
                name: Some("Slot 07".to_owned()),
                ..Bay::default()
            },
            host: None,
        };
        let kept = here.to_drive("store1");
        assert_eq!(DeviceIdentity::of_drive(&kept, "S1", "store1"), here);
        let elsewhere = DeviceIdentity::of_drive(&kept, "S1", "store2");
        assert_eq!(elsewhere.host.as_deref(), Some("store1"));
        assert_eq!(elsewhere.to_drive("store2"), kept, "it was seen by the other host still");
    }

    #[test]
    fn an_event_of_another_device_or_none_stays_as_it_is() {
        let own = |name: &'static str, value: &str| (name, value.to_owned());
        for fields in [
            vec![own("slot", "1"), own("path", "/dev/sdc")],
            vec![own("slot", "1"), own("role", "replacement")],
            vec![own("slot", "0")],
            vec![own("slot", "7")],
            vec![own("slots", "1")],
        ] {
            assert_eq!(of_one().name_device(fields.clone()), fields);
        }
    }
}
