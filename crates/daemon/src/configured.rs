//! Arrays that the configuration names, and why some of them do not run.
//!
//! What must stay true: an array that is named and does not run is told of, whatever became of it:
//! not found, refused, or stopped. Not here: starting them (`begin`).

use crate::config::ArrayConfig;
use ashlar_api::v1::array::Assemble;
use ashlar_api::v1::status::AbsentArray;
use ashlar_engine::ArrayStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// None of it was started yet.
const BEING_STARTED: &str = "its devices are being looked at";

/// The arrays of the configuration.
pub struct Configured(Mutex<Vec<Wanted>>);

/// An array that should run.
#[derive(Clone, Debug)]
struct Wanted {
    name: Option<String>,
    uuid: Option<String>,
    devices: Vec<String>,
    reason: String,
}

impl Configured {
    /// What the configuration names. None of it was started yet.
    pub fn of(arrays: &[ArrayConfig]) -> Configured {
        let wanted = arrays.iter().map(|array| Wanted {
            name: array.name.clone(),
            uuid: array.uuid.clone(),
            devices: array.devices.clone(),
            reason: BEING_STARTED.to_owned(),
        });
        Configured(Mutex::new(wanted.collect()))
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Wanted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing was found of the array of this entry.
    pub(crate) fn not_found(&self, entry: &ArrayConfig, reason: &str) {
        let is_it = |it: &&mut Wanted| {
            it.name == entry.name && it.uuid == entry.uuid && it.devices == entry.devices
        };
        if let Some(own) = self.wanted().iter_mut().find(is_it) {
            reason.clone_into(&mut own.reason);
        }
    }

    /// These arrays were found on the devices of an entry that names none: from now on it means
    /// them.
    pub(crate) fn found(&self, entry: &ArrayConfig, calls: &[Assemble]) {
        if entry.name.is_some() || entry.uuid.is_some() {
            return;
        }
        let mut wanted = self.wanted();
        let is_it =
            |it: &Wanted| it.name.is_none() && it.uuid.is_none() && it.devices == entry.devices;
        let Some(at) = wanted.iter().position(is_it) else { return };
        let own = wanted.remove(at);
        wanted.extend(calls.iter().map(|call| Wanted { uuid: call.uuid.clone(), ..own.clone() }));
    }

    /// A start ended so; `None`: well.
    pub(crate) fn started(&self, call: &Assemble, refusal: Option<&str>) {
        let reason = refusal.unwrap_or("it was stopped");
        let is_it = |it: &&mut Wanted| match (&it.uuid, &call.uuid) {
            (Some(own), Some(other)) => own.eq_ignore_ascii_case(other),
            _ => it.name.is_some() && it.name == call.name,
        };
        for own in self.wanted().iter_mut().filter(is_it) {
            reason.clone_into(&mut own.reason);
        }
    }

    /// Those that do not run, when these do.
    pub(crate) fn absent(&self, running: &[ArrayStatus]) -> Vec<AbsentArray> {
        let wanted = self.wanted();
        let is_absent = |it: &&Wanted| !running.iter().any(|array| it.is(array));
        wanted.iter().filter(is_absent).map(Wanted::absent).collect()
    }
}

impl Wanted {
    fn is(&self, array: &ArrayStatus) -> bool {
        match (&self.uuid, &self.name) {
            (Some(uuid), _) => array.uuid.to_string().eq_ignore_ascii_case(uuid),
            (None, Some(name)) => array.name == *name,
            (None, None) => array.members.iter().any(|member| self.covers(&member.path)),
        }
    }

    fn covers(&self, path: &str) -> bool {
        let is_match = |pattern: &String| {
            glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(path))
        };
        !path.is_empty() && self.devices.iter().any(is_match)
    }

    fn absent(&self) -> AbsentArray {
        let patterns = || format!("an array on {}", self.devices.join(" "));
        AbsentArray {
            name: self.name.clone().or_else(|| self.uuid.clone()).unwrap_or_else(patterns),
            devices: self.devices.clone(),
            reason: self.reason.clone(),
            starting: self.reason == BEING_STARTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Configured;
    use crate::config::Config;
    use ashlar_api::v1::array::Assemble;

    fn configured() -> (Configured, Config) {
        let text = "[[array]]\nname = \"tank0\"\ndevices = [\"/dev/a*\"]\n\
                    [[array]]\ndevices = [\"/dev/b*\"]";
        let config = Config::parse("a", text).expect("sound");
        (Configured::of(&config.array), config)
    }

    fn told(configured: &Configured) -> Vec<(String, String)> {
        configured.absent(&[]).into_iter().map(|it| (it.name, it.reason)).collect()
    }

    #[test]
    fn an_array_that_was_not_found_or_was_refused_says_why() {
        let (configured, config) = configured();
        configured.not_found(&config.array[1], "no member was found");
        let call = Assemble { name: Some("tank0".to_owned()), ..Assemble::default() };
        configured.started(&call, Some("too few members"));
        let [first, second] = &told(&configured)[..] else { panic!("both") };
        assert_eq!(*first, ("tank0".to_owned(), "too few members".to_owned()));
        assert_eq!(second.0, "an array on /dev/b*");
        assert_eq!(second.1, "no member was found");
        configured.started(&call, None);
        assert_eq!(told(&configured)[0].1, "it was stopped");
    }

    #[test]
    fn an_entry_without_a_name_means_the_arrays_that_were_found() {
        let (configured, config) = configured();
        let call = |uuid: &str| Assemble { uuid: Some(uuid.to_owned()), ..Assemble::default() };
        configured.found(&config.array[1], &[call("u1"), call("u2")]);
        configured.started(&call("U2"), Some("refused"));
        let names: Vec<String> = told(&configured).into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["tank0", "u1", "u2"]);
        assert_eq!(told(&configured)[2].1, "refused");
    }
}
