//! What `smartctl -j -a` and `nvme smart-log -o json` say of a drive, as one value.
//!
//! What must stay true: a figure that is not there stays unknown; nothing is made up. Both programs
//! end with codes that say much (smartctl sets bits for old errors), so what they print counts.
//! Sources: smartctl(8), the schema that `smartctl -j` prints, nvme-smart-log(1).

use super::{Failed, Tools};
use ashlar_api::v1::event::one_line;
use ashlar_api::v1::member::DriveHealth;
use serde_json::Value;
use std::path::Path;

/// Attributes of ATA drives that count bad sectors: reallocated, pending, uncorrectable.
const BAD_SECTORS: [u64; 3] = [5, 197, 198];
/// Zero degrees Celsius in kelvins, as NVMe drives count.
const ZERO_K: i64 = 273;
/// Bit of an NVMe drive's critical warning: a temperature beyond a threshold of the drive.
const WARNS_OF_HEAT: u64 = 2;

impl Tools {
    /// What the disk says of its health; `Missing` if no program is there that knows such a disk.
    ///
    /// # Errors
    /// Nothing is known.
    pub fn health(&self, disk: &Path) -> Result<DriveHealth, Failed> {
        let path = disk.to_string_lossy();
        match self.run(&self.smartctl, &["-j", "-a", &path]) {
            Ok((said, _)) => return of_smartctl(&said).map_err(Failed::Broken),
            Err(Failed::Missing) if path.contains("nvme") => {}
            Err(failed) => return Err(failed),
        }
        let (said, _) = self.run(&self.nvme, &["smart-log", "-o", "json", &path])?;
        of_nvme(&said).map_err(Failed::Broken)
    }
}

/// What `smartctl -j -a` printed.
///
/// # Errors
/// It knows nothing of the drive; one line.
pub fn of_smartctl(said: &str) -> Result<DriveHealth, String> {
    let said: Value = serde_json::from_str(said).map_err(|_| "smartctl printed no JSON")?;
    let number = |at: &str| said.pointer(at).and_then(Value::as_u64);
    let degrees = |at: &str| said.pointer(at).and_then(Value::as_i64);
    let nvme = "/nvme_smart_health_information_log";
    let of_nvme = |field: &str| number(&format!("{nvme}/{field}"));
    let is_hot = of_nvme("critical_warning").is_some_and(|it| it & WARNS_OF_HEAT != 0);
    let health = DriveHealth {
        source: "smartctl".to_owned(),
        passed: of_nvme("critical_warning")
            .map(|warning| warning & !WARNS_OF_HEAT == 0)
            .or(said.pointer("/smart_status/passed").and_then(Value::as_bool)),
        temperature_c: degrees("/temperature/current"),
        temperature_limit_c: degrees("/temperature/op_limit_max")
            .or(degrees("/temperature/drive_trip"))
            .or(degrees("/temperature/current").filter(|_| is_hot)),
        media_errors: of_nvme("media_errors").or_else(|| ata_errors(&said)).or(scsi_errors(&said)),
        worn_percent: of_nvme("percentage_used")
            .or(number("/endurance_used/current_percent"))
            .or(number("/scsi_percentage_used_endurance_indicator")),
        spare_percent: of_nvme("available_spare").or(number("/spare_available/current_percent")),
        spare_threshold_percent: of_nvme("available_spare_threshold")
            .or(number("/spare_available/threshold_percent")),
        power_on_hours: number("/power_on_time/hours"),
        ..DriveHealth::default()
    };
    let says_nothing = health.passed.is_none() && health.temperature_c.is_none();
    if says_nothing && health.media_errors.is_none() {
        let message = said.pointer("/smartctl/messages/0/string").and_then(Value::as_str);
        return Err(one_line(&format!(
            "smartctl: {}",
            message.unwrap_or("the drive says nothing")
        )));
    }
    Ok(health)
}

fn ata_errors(said: &Value) -> Option<u64> {
    let table = said.pointer("/ata_smart_attributes/table")?.as_array()?;
    let counts_bad = |it: &&Value| it["id"].as_u64().is_some_and(|id| BAD_SECTORS.contains(&id));
    Some(table.iter().filter(counts_bad).filter_map(|it| it["raw"]["value"].as_u64()).sum())
}

fn scsi_errors(said: &Value) -> Option<u64> {
    let defects = said["scsi_grown_defect_list"].as_u64();
    let of = |kind: &str| said["scsi_error_counter_log"][kind]["total_uncorrected_errors"].as_u64();
    let known: Vec<u64> = [defects, of("read"), of("write")].into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// What `nvme smart-log -o json` printed.
///
/// # Errors
/// It is no such log; one line.
pub fn of_nvme(said: &str) -> Result<DriveHealth, String> {
    let said: Value = serde_json::from_str(said).map_err(|_| "nvme printed no JSON")?;
    // Newer versions print wide counters as text.
    let number = |field: &str| {
        let value = &said[field];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    // A number, or an object with the number and its bits.
    let warning = number("critical_warning").or(said["critical_warning"]["value"].as_u64());
    let warning = warning.ok_or("nvme printed no health log")?;
    let temperature_c = said["temperature"].as_i64().map(|kelvins| kelvins - ZERO_K);
    Ok(DriveHealth {
        source: "nvme".to_owned(),
        passed: Some(warning & !WARNS_OF_HEAT == 0),
        temperature_c,
        temperature_limit_c: temperature_c.filter(|_| warning & WARNS_OF_HEAT != 0),
        media_errors: number("media_errors"),
        worn_percent: number("percent_used"),
        spare_percent: number("avail_spare"),
        spare_threshold_percent: number("spare_thresh"),
        power_on_hours: number("power_on_hours"),
        ..DriveHealth::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{of_nvme, of_smartctl};
    use crate::config::DrivesConfig;
    use crate::drives::{Failed, Tools};
    use ashlar_api::v1::member::{Concern, DriveHealth};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    // Made up after the schemas that the programs print; of no real drive.
    const ATA: &str = include_str!("made_up/smartctl-ata.json");
    const SCSI: &str = include_str!("made_up/smartctl-scsi.json");
    const NVME: &str = include_str!("made_up/smartctl-nvme.json");
    const NVME_LOG: &str = include_str!("made_up/nvme-smart-log.json");

    #[test]
    fn a_sata_drive_tells_its_bad_sectors_and_its_temperature() {
        let health = of_smartctl(ATA).expect("read");
        assert_eq!((health.passed, health.temperature_c), (Some(true), Some(38)));
        assert_eq!(health.media_errors, Some(8 + 2 + 2), "reallocated, pending, uncorrectable");
        assert_eq!((health.temperature_limit_c, health.power_on_hours), (Some(60), Some(21_345)));
        assert_eq!((health.worn_percent, health.concerns()), (None, vec![]));
    }

    #[test]
    fn a_sas_drive_tells_its_defects_and_that_it_is_failing() {
        let health = of_smartctl(SCSI).expect("read");
        assert_eq!((health.passed, health.media_errors), (Some(false), Some(3 + 1)));
        assert_eq!(health.concerns(), [Concern::Failing, Concern::Hot]);
        assert_eq!(health.words(Concern::Hot), "has 66 °C");
    }

    #[test]
    fn an_nvme_drive_says_the_same_by_both_programs() {
        let health = of_smartctl(NVME).expect("read");
        let concerns = [Concern::Failing, Concern::SpareLow, Concern::Worn];
        assert_eq!(health.concerns(), concerns);
        assert_eq!(
            health.words(Concern::SpareLow),
            "has 7 % of its spare blocks left, its maker wants 10 %"
        );
        let log = of_nvme(NVME_LOG).expect("read");
        assert_eq!(log.concerns(), concerns);
        let same = DriveHealth {
            source: "smartctl".to_owned(),
            temperature_limit_c: health.temperature_limit_c,
            ..log
        };
        assert_eq!(same, health);
    }

    #[test]
    fn an_nvme_drive_that_warns_of_heat_is_hot_and_not_failing() {
        let hot = NVME_LOG.replace("\"critical_warning\":5", "\"critical_warning\":2");
        let hot = of_nvme(&hot).expect("read");
        assert_eq!((hot.passed, hot.concerns().last()), (Some(true), Some(&Concern::Hot)));
        let hot = NVME.replace("\"critical_warning\": 5", "\"critical_warning\": 2");
        let hot = of_smartctl(&hot).expect("read");
        assert_eq!((hot.passed, hot.concerns().last()), (Some(true), Some(&Concern::Hot)));
        let newer = NVME_LOG
            .replace("\"critical_warning\":5", "\"critical_warning\":{\"value\":5,\"ro\":0}")
            .replace("\"media_errors\":17", "\"media_errors\":\"17\"");
        assert_eq!(of_nvme(&newer), of_nvme(NVME_LOG));
    }

    #[test]
    fn what_is_no_health_is_said_in_one_line() {
        let denied = r#"{"smartctl":{"exit_status":2,"messages":[
            {"string":"Smartctl open device: /dev/sdx failed:\nPermission denied"}]}}"#;
        let why = of_smartctl(denied).expect_err("nothing is known");
        assert_eq!(why, "smartctl: Smartctl open device: /dev/sdx failed: Permission denied");
        assert_eq!(of_smartctl("{}").expect_err("nothing"), "smartctl: the drive says nothing");
        assert!(of_smartctl("usage:").is_err() && of_nvme("{}").is_err() && of_nvme("").is_err());
    }

    /// A program that prints this, whatever it is asked.
    fn program(folder: &Path, name: &str, prints: &str, code: i32) {
        let path = folder.join(name);
        fs::write(folder.join(format!("{name}.json")), prints).expect("written");
        let script = format!(
            "#!/bin/sh\necho \"$@\" > {0}/{name}.asked\ncat {0}/{name}.json\nexit {code}\n",
            folder.display()
        );
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    fn tools(folder: &Path) -> Tools {
        Tools::of(&DrivesConfig {
            smartctl: Some(folder.join("smartctl")),
            nvme: Some(folder.join("nvme")),
            ..DrivesConfig::default()
        })
    }

    #[test]
    fn smartctl_is_asked_first_and_its_exit_code_is_no_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        program(folder.path(), "smartctl", ATA, 64);
        let health = tools(folder.path()).health(Path::new("/dev/sdq")).expect("known");
        assert_eq!(Ok(health), of_smartctl(ATA));
        let asked = fs::read_to_string(folder.path().join("smartctl.asked")).expect("asked");
        assert_eq!(asked, "-j -a /dev/sdq\n");
    }

    #[test]
    fn without_smartctl_the_program_nvme_is_asked_for_its_drives_only() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(tools(folder.path()).health(Path::new("/dev/nvme0n1")), Err(Failed::Missing));
        program(folder.path(), "nvme", NVME_LOG, 0);
        let health = tools(folder.path()).health(Path::new("/dev/nvme0n1")).expect("known");
        assert_eq!(health.source, "nvme");
        let asked = fs::read_to_string(folder.path().join("nvme.asked")).expect("asked");
        assert_eq!(asked, "smart-log -o json /dev/nvme0n1\n");
        assert_eq!(tools(folder.path()).health(Path::new("/dev/sdq")), Err(Failed::Missing));
    }
}
