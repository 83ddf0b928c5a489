//! Lights of bays: through the kernel's enclosure driver, else by ledctl.
//!
//! What must stay true: the light that goes on is that of the drive that was meant. Where another
//! drive is in its bay now, or at its path, nothing is switched. A drive that is dead or gone is
//! found by the bay that it was in.

use super::{Failed, Tools};
use ashlar_api::ApiError;
use ashlar_device::{Bay, disk_at, occupant, serial_at, set_light};

/// Which drive is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its path.
    pub path: String,
    /// Its serial.
    pub serial: Option<String>,
    /// Where it is, or was last.
    pub bay: Bay,
    /// The host that saw it there; `None`: this one.
    pub host: Option<String>,
    /// It is in use here, so its path is that of this drive.
    pub is_here: bool,
}

impl Tools {
    /// Switch the light of this drive. What was done, in half a sentence.
    ///
    /// # Errors
    /// It has no light that can be switched from here; nothing was switched.
    pub fn light(&self, wanted: &Wanted, is_on: bool) -> Result<String, ApiError> {
        let state = if is_on { "on" } else { "off" };
        let Some(bay) = wanted.bay.directory(&self.sys) else {
            self.light_by_program(wanted, is_on)?;
            return Ok(format!("the light of {} is {state}", wanted.path));
        };
        let name = bay.strip_prefix(&self.sys).unwrap_or(&bay).display().to_string();
        if let Some(other) = occupant(&bay).filter(|it| is_other(&it.serial, &wanted.serial)) {
            let serial = other.serial.unwrap_or_default();
            let what = format!("another drive is in its bay now: {}, serial {serial}", other.disk);
            return Err(refused(wanted, &what));
        }
        set_light(&bay, is_on)
            .map_err(|error| refused(wanted, &format!("its enclosure refuses: {error}")))?;
        Ok(format!("the light of {} is {state} ({name})", wanted.path))
    }

    fn light_by_program(&self, wanted: &Wanted, is_on: bool) -> Result<(), ApiError> {
        let is_there = wanted.host.is_none()
            && (wanted.is_here
                || wanted.serial.is_some() && serial_at(&wanted.path) == wanted.serial);
        if !is_there {
            return Err(refused(wanted, "its bay is not known to this kernel, and it is not here"));
        }
        let word = if is_on { "locate" } else { "locate_off" };
        // It knows whole drives only.
        let disk = disk_at(&wanted.path).unwrap_or_else(|| wanted.path.clone().into());
        match self.run(&self.ledctl, &[&format!("{word}={}", disk.display())]) {
            Ok((_, 0)) => Ok(()),
            Ok((_, code)) => Err(refused(wanted, &format!("ledctl ended with {code}"))),
            Err(Failed::Broken(why)) => Err(refused(wanted, &why)),
            Err(Failed::Missing) => Err(refused(
                wanted,
                "the kernel knows no enclosure for it, and ledctl (package ledmon) is not \
                 installed",
            )),
        }
    }
}

/// Both are known and differ.
fn is_other(there: &Option<String>, wanted: &Option<String>) -> bool {
    there.as_ref().zip(wanted.as_ref()).is_some_and(|(there, wanted)| there != wanted)
}

fn refused(wanted: &Wanted, why: &str) -> ApiError {
    let serial = wanted.serial.as_ref().map(|serial| format!("look for serial {serial}, "));
    let bay = [&wanted.bay.enclosure, &wanted.bay.name, &wanted.bay.by_path];
    let bay: Vec<&str> = bay.into_iter().flatten().map(String::as_str).collect();
    let hint =
        format!("{}last seen at {} {}", serial.unwrap_or_default(), wanted.path, bay.join(" "));
    let message = format!("no light was switched for {}: {why}", wanted.path);
    ApiError::new("member.no_light", message, hint.trim_end())
}

#[cfg(test)]
mod tests {
    use super::Wanted;
    use crate::config::DrivesConfig;
    use crate::drives::Tools;
    use ashlar_device::Bay;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    /// A made-up sysfs: one bay, with a drive of serial Z1.
    fn machine() -> (tempfile::TempDir, Tools) {
        let root = tempfile::tempdir().expect("a folder");
        let bay = root.path().join("class/enclosure/6:0:24:0/Slot 07");
        let disk = root.path().join("devices/sdq");
        fs::create_dir_all(disk.join("block/sdq/device")).expect("made");
        fs::create_dir_all(&bay).expect("made");
        fs::write(bay.join("locate"), "0\n").expect("written");
        fs::write(disk.join("block/sdq/device/serial"), "Z1\n").expect("written");
        symlink(&disk, bay.join("device")).expect("linked");
        let mut tools = Tools::of(&DrivesConfig::default());
        tools.sys = root.path().to_owned();
        tools.ledctl = root.path().join("ledctl");
        (root, tools)
    }

    fn wanted(serial: &str) -> Wanted {
        let [enclosure, name] = ["6:0:24:0", "Slot 07"].map(|it| Some(it.to_owned()));
        Wanted {
            path: "/dev/sdq".to_owned(),
            serial: Some(serial.to_owned()),
            bay: Bay { enclosure, name, ..Bay::default() },
            host: None,
            is_here: true,
        }
    }

    fn light(root: &Path) -> String {
        fs::read_to_string(root.join("class/enclosure/6:0:24:0/Slot 07/locate")).expect("read")
    }

    #[test]
    fn the_light_of_a_bay_goes_on_and_off_also_when_the_drive_is_gone() {
        let (root, tools) = machine();
        let told = tools.light(&wanted("Z1"), true).expect("switched");
        assert_eq!(
            (told.as_str(), light(root.path()).as_str()),
            ("the light of /dev/sdq is on (class/enclosure/6:0:24:0/Slot 07)", "1")
        );
        tools.light(&wanted("Z1"), false).expect("switched");
        assert_eq!(light(root.path()), "0");
        fs::remove_file(root.path().join("class/enclosure/6:0:24:0/Slot 07/device")).expect("gone");
        let gone = Wanted { is_here: false, host: Some("a".to_owned()), ..wanted("Z1") };
        tools.light(&gone, true).expect("the bay is known still");
        assert_eq!(light(root.path()), "1");
    }

    #[test]
    fn no_light_goes_on_where_another_drive_is_in_the_bay() {
        let (root, tools) = machine();
        let refusal = tools.light(&wanted("Z2"), true).expect_err("another drive").to_string();
        assert!(refusal.contains("another drive is in its bay now: sdq, serial Z1"), "{refusal}");
        assert_eq!(light(root.path()), "0\n");
    }

    #[test]
    fn without_an_enclosure_ledctl_is_asked_if_the_drive_is_here() {
        let (root, tools) = machine();
        let nowhere = Wanted { bay: Bay::default(), ..wanted("Z1") };
        let refusal = tools.light(&nowhere, true).expect_err("no ledctl").to_string();
        assert!(refusal.contains("ledctl (package ledmon) is not installed"), "{refusal}");
        let said = root.path().join("said");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", said.display());
        fs::write(&tools.ledctl, script).expect("written");
        fs::set_permissions(&tools.ledctl, fs::Permissions::from_mode(0o755)).expect("set");
        tools.light(&nowhere, true).expect("switched");
        tools.light(&nowhere, false).expect("switched");
        let lines = fs::read_to_string(&said).expect("read");
        assert_eq!(lines, "locate=/dev/sdq\nlocate_off=/dev/sdq\n");
        let away = Wanted { is_here: false, ..nowhere };
        let refusal = tools.light(&away, true).expect_err("it is not here").to_string();
        assert!(refusal.contains("it is not here") && refusal.contains("serial Z1"), "{refusal}");
    }
}
