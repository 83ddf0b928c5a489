//! `[drives]`: programs that know drives, and how often they are asked.

use super::PathBuf;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::time::Duration;

/// `[drives]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrivesConfig {
    /// Seconds between two looks at the health of a drive; 0: never; default 1800.
    pub health_every_s: Option<u64>,
    /// Degrees Celsius from which a drive that names no limit is too hot; default 70.
    pub hot_c: Option<u8>,
    /// The program smartctl; default the one in the search path.
    pub smartctl: Option<PathBuf>,
    /// The program nvme; default the one in the search path.
    pub nvme: Option<PathBuf>,
    /// The program ledctl; default the one in the search path.
    pub ledctl: Option<PathBuf>,
}

/// Seconds between two looks unless the file says otherwise.
const HEALTH_EVERY_S: u64 = 1800;
/// The most that may be said.
const HEALTH_EVERY_S_MAX: u64 = 7 * 86_400;
/// Too hot unless the drive or the file says otherwise: what flash for servers bears.
const HOT_C: u8 = 70;
/// What may be said of it.
const HOT_C_MAY: RangeInclusive<u8> = 30..=120;

impl DrivesConfig {
    /// The time between two looks at the health of a drive; zero: nobody looks.
    pub fn health_every(&self) -> Duration {
        Duration::from_secs(self.health_every_s.unwrap_or(HEALTH_EVERY_S))
    }

    /// Degrees Celsius from which a drive that names no limit is too hot.
    pub fn hot_c(&self) -> i64 {
        self.hot_c.unwrap_or(HOT_C).into()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.health_every().as_secs() > HEALTH_EVERY_S_MAX {
            return Err(format!("health_every_s must be 0 to {HEALTH_EVERY_S_MAX}"));
        }
        if self.hot_c.is_some_and(|degrees| !HOT_C_MAY.contains(&degrees)) {
            let (least, most) = (HOT_C_MAY.start(), HOT_C_MAY.end());
            return Err(format!("hot_c must be {least} to {most}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn what_makes_no_sense_is_refused_and_the_rest_has_its_usual_value() {
        for (text, why) in [
            ("[drives]\nhot_c = 20", "hot_c must be 30 to 120"),
            ("[drives]\nhealth_every_s = 1000000", "health_every_s must be 0 to 604800"),
            ("[drives]\nsmart = \"x\"", "line 2: unknown field"),
        ] {
            let told = Config::parse("ashlar.toml", text).expect_err(text).to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
        let config = Config::parse("a", "[drives]\nnvme = \"/opt/nvme\"").expect("sound");
        assert_eq!((config.drives.health_every().as_secs(), config.drives.hot_c()), (1800, 70));
    }
}
