//! Which drive is, or was last, in each slot: what somebody needs who has to pull it.
//!
//! What must stay true: a device that goes out stays known here until another one takes its slot.
//! Every event that names a slot also names its device. Not here: what the superblocks say of a
//! device that has not been there since the start (its serial only).

use ashlar_device::DeviceFacts;
use ashlar_units::MemberIdx;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a drive is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceIdentity {
    /// Path or name; empty if it is not known.
    pub path: String,
    /// Serial number or world-wide name.
    pub serial: Option<String>,
    /// What it calls itself.
    pub model: Option<String>,
}

impl DeviceIdentity {
    fn of(facts: &DeviceFacts) -> DeviceIdentity {
        let DeviceFacts { path, serial, model, .. } = facts;
        DeviceIdentity { path: path.clone(), serial: serial.clone(), model: model.clone() }
    }
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
        if own.path != facts.path || own.serial != facts.serial {
            *own = DeviceIdentity::of(facts);
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
        let of_own = [("path", Some(own.path)), ("serial", own.serial), ("model", own.model)];
        for (name, value) in of_own {
            let is_new = !fields.iter().any(|(own, _)| *own == name);
            fields.extend(value.filter(|_| is_new).map(|value| (name, value)));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceIdentity, Identities};
    use ashlar_units::MemberIdx;

    fn of_one() -> Identities {
        let identities = Identities::new(2);
        *identities.slot(MemberIdx(1)).expect("there") = DeviceIdentity {
            path: "/dev/sdb".to_owned(),
            serial: Some("S1".to_owned()),
            model: None,
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
