//! Requests that name a device twice, or ask for a state that holds already.
//!
//! What must stay true: a command can be repeated, and then says that nothing was changed. Nothing
//! is opened here. Devices are compared by what their paths lead to, so two names of one device are
//! equal.

use ashlar_api::ApiError;
use ashlar_api::v1::array::{Assemble, Create};
use ashlar_device::{Physical, exclusion_of};
use ashlar_engine::{ArrayStatus, MemberStatus, SlotState};
use ashlar_units::MemberIdx;

/// What of a request to assemble runs already.
pub struct Running {
    /// The arrays, of those that the request means.
    arrays: Vec<String>,
    /// How many of the devices they have.
    count: usize,
    /// The others.
    pub rest: Vec<String>,
}

impl Running {
    /// Tell the devices of running arrays from the rest.
    pub fn of(arrays: &[ArrayStatus], call: &Assemble) -> Running {
        let is_meant = |array: &&ArrayStatus| {
            call.name.as_ref().is_none_or(|name| *name == array.name)
                && call.uuid.as_ref().is_none_or(|uuid| *uuid == array.uuid.to_string())
        };
        let mut running = Running { arrays: Vec::new(), count: 0, rest: call.devices.clone() };
        for array in arrays.iter().filter(is_meant) {
            let own: Vec<Physical> =
                paths(&array.members).map(|(_, path)| Physical::of(path)).collect();
            let before = running.rest.len();
            running.rest.retain(|device| !own.contains(&Physical::of(device)));
            if running.rest.len() < before {
                running.count += before - running.rest.len();
                running.arrays.push(array.name.clone());
            }
        }
        running
    }

    fn told(&self) -> String {
        let (what, are) = if self.arrays.len() == 1 { ("array", "is") } else { ("arrays", "are") };
        format!("{what} '{}' {are} running already", self.arrays.join("', '"))
    }

    /// That there is nothing to do, if nothing is left.
    pub fn all(&self) -> Option<String> {
        let is_all = self.rest.is_empty() && !self.arrays.is_empty();
        is_all.then(|| format!("{}; nothing was changed", self.told()))
    }

    /// A refusal of the rest. That they are not enough for an array that runs without them says
    /// nothing.
    pub fn explain(&self, refusal: ApiError) -> ApiError {
        if self.arrays.is_empty() {
            return refusal;
        }
        let is_about = |name: &String| refusal.message.starts_with(&format!("array {name}: "));
        let (told, count) = (self.told(), self.count);
        let others = match self.arrays.iter().any(is_about) {
            true => "out of it; nothing was changed",
            false => &refusal.message,
        };
        let message = format!("{told}, with {count} of these devices; the others: {others}");
        let hint = "'ashlar re-add ARRAY DEVICE' takes back a member that was away";
        ApiError::new(&refusal.code, message, hint)
    }
}

/// The slot in which `device` serves, or on its way into which it is. A device that is out is in
/// none.
///
/// What a member's path leads to may be another device by now: then only what the member is open by
/// counts.
pub fn slot_of(members: &[MemberStatus], device: &str) -> Option<MemberIdx> {
    let (asked, exclusion) = (Physical::of(device), exclusion_of(device));
    let serves = |member: &MemberStatus, path: &str| {
        member.state != SlotState::Out || member.replacement.as_deref() == Some(path)
    };
    let is_it = |member: &MemberStatus, path: &str| {
        let is_own = member.path == path;
        let opened = member.exclusion.filter(|_| is_own);
        if opened.is_some() && opened == exclusion {
            return true;
        }
        let leads_there = opened.is_none() || opened == exclusion_of(path);
        leads_there && Physical::of(path) == asked
    };
    let mut devices = paths(members).filter(|(member, path)| serves(member, path));
    devices.find(|(member, path)| is_it(member, path)).map(|(member, _)| member.slot)
}

/// Every device of these members, the one that is being filled beside the holder included.
fn paths(members: &[MemberStatus]) -> impl Iterator<Item = (&MemberStatus, &str)> {
    members.iter().flat_map(|member| {
        let own = Some(member.path.as_str()).filter(|path| !path.is_empty());
        let both = own.into_iter().chain(member.replacement.as_deref());
        both.map(move |path| (member, path))
    })
}

/// What can be told of the names in a request to create: a spare is no member, and what may be
/// destroyed is one of both.
///
/// # Errors
/// The device that is named wrongly.
pub fn check_named(call: &Create) -> Result<(), ApiError> {
    let named: Vec<&String> = call.devices.iter().chain(&call.spares).collect();
    let known: Vec<Physical> = named.iter().map(|path| Physical::of(path)).collect();
    for (at, device) in named.iter().enumerate() {
        let Some(before) = known[..at].iter().position(|other| *other == known[at]) else {
            continue;
        };
        let what = match named[before] == *device {
            true => format!("{device} is given twice"),
            false => format!("{} and {device} are one device", named[before]),
        };
        let message = format!("{what}; nothing was written");
        let hint = "each member and each spare needs a device of its own";
        return Err(ApiError::new("device.given_twice", message, hint));
    }
    let all = || call.devices.iter().chain(&call.spares);
    match call.destroy.iter().find(|path| all().all(|device| device != *path)) {
        None => Ok(()),
        Some(path) => {
            let message = format!(
                "--destroy names {path}, which is not among the devices; nothing was written"
            );
            let hint = "name only devices that the array takes, as they are named there";
            Err(ApiError::new("device.not_named", message, hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_named;
    use ashlar_api::v1::array::Create;

    fn create(devices: &[&str], spares: &[&str], destroy: &[&str]) -> Create {
        let request = serde_json::json!({
            "name": "t", "level": "raid5", "devices": devices, "spares": spares, "destroy": destroy,
        });
        serde_json::from_value(request).expect("a request")
    }

    #[test]
    fn a_device_is_named_once_and_only_what_is_taken_may_be_destroyed() {
        let refused = |devices: &[&str], spares: &[&str], destroy: &[&str]| {
            check_named(&create(devices, spares, destroy)).expect_err("refused").message
        };
        assert_eq!(check_named(&create(&["a", "b"], &["c"], &["b", "c"])), Ok(()));
        assert_eq!(refused(&["a", "b"], &["b"], &[]), "b is given twice; nothing was written");
        assert_eq!(refused(&["a"], &["c", "c"], &[]), "c is given twice; nothing was written");
        let line = refused(&["a", "b"], &[], &["b", "z"]);
        assert!(line.starts_with("--destroy names z, which is not among the devices"), "{line}");
    }
}
