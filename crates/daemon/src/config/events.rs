//! `[events]` and `[notify]`: where events go.
//!
//! What must stay true: what could never be delivered is refused before anything is started. An
//! address is data of a command line, so it may not look like an option.

use super::{ByteSize, Path, PathBuf, size};
use crate::events::Address;
use ashlar_api::v1::severity::Severity;
use serde::Deserialize;
use std::time::Duration;

/// `[events]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// The most that the history on disk takes; default 64 MiB.
    #[serde(deserialize_with = "size")]
    pub history: Option<ByteSize>,
    /// Socket of the journal; default that of systemd. Empty: events do not go to the journal.
    pub journal: Option<PathBuf>,
}

/// The history takes this much unless the file says otherwise.
const HISTORY_BYTES: u64 = 64 << 20;
/// The least that it may be limited to.
const HISTORY_MIN: u64 = 64 << 10;
/// The journal of systemd.
const JOURNAL: &str = "/run/systemd/journal/socket";

impl EventsConfig {
    /// The most that the history takes, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.history.map_or(HISTORY_BYTES, |size| size.0)
    }

    /// Socket of the journal.
    pub fn journal(&self) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| PathBuf::from(JOURNAL))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.limit_bytes() < HISTORY_MIN {
            return Err(format!("history must be {} or more", ByteSize(HISTORY_MIN)));
        }
        Ok(())
    }
}

/// `[notify]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// Events that matter less are not told; default `warning`.
    pub severity: Option<Severity>,
    /// A program with its arguments; it gets the event as JSON on its standard input.
    pub run: Vec<String>,
    /// Addresses that get a mail.
    pub mail: Vec<String>,
    /// The program that takes mail; default /usr/sbin/sendmail.
    pub sendmail: Option<PathBuf>,
    /// An `http://` URL that gets the event as JSON.
    pub url: Option<String>,
    /// Messages a minute by each way; default 10. More events are summed up.
    pub per_minute: Option<u32>,
    /// Seconds for one delivery; default 30.
    pub timeout_s: Option<u64>,
}

/// What may be said of messages a minute.
const PER_MINUTE: std::ops::RangeInclusive<u32> = 1..=1000;
/// What may be said of the seconds for one delivery.
const TIMEOUT_S: std::ops::RangeInclusive<u64> = 1..=600;

impl NotifyConfig {
    /// Events that matter less are not told.
    pub fn severity(&self) -> Severity {
        self.severity.unwrap_or(Severity::Warning)
    }

    /// The program that takes mail.
    pub fn sendmail(&self) -> PathBuf {
        self.sendmail.clone().unwrap_or_else(|| PathBuf::from("/usr/sbin/sendmail"))
    }

    /// Messages a minute by each way.
    pub fn per_minute(&self) -> u32 {
        self.per_minute.unwrap_or(10)
    }

    /// The time for one delivery.
    pub fn time_max(&self) -> Duration {
        Duration::from_secs(self.timeout_s.unwrap_or(30))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if !PER_MINUTE.contains(&self.per_minute()) {
            let (least, most) = (PER_MINUTE.start(), PER_MINUTE.end());
            return Err(format!("per_minute must be {least} to {most}"));
        }
        if !TIMEOUT_S.contains(&self.time_max().as_secs()) {
            return Err(format!("timeout_s must be {} to {}", TIMEOUT_S.start(), TIMEOUT_S.end()));
        }
        if self.run.first().is_some_and(String::is_empty) {
            return Err("run of [notify] must begin with a program".to_owned());
        }
        if let Some(address) = self.mail.iter().find(|address| !is_address(address)) {
            return Err(format!("mail of [notify]: '{address}' is not a mail address"));
        }
        if !self.mail.is_empty() && !Path::new(&self.sendmail()).is_absolute() {
            return Err("sendmail of [notify] must be a full path".to_owned());
        }
        self.url.as_ref().map_or(Ok(()), |url| Address::parse(url).map(drop))
    }
}

/// A name of this machine or `name@host`, as the program for mail takes it.
fn is_address(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|it| it.is_ascii_graphic() && !matches!(it, ',' | ';' | '<' | '>'))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use ashlar_api::v1::severity::Severity;

    fn refused(text: &str) -> String {
        Config::parse("ashlar.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn what_could_never_be_delivered_is_refused() {
        for (text, why) in [
            ("[notify]\nmail = [\"-oQ/tmp\"]", "'-oQ/tmp' is not a mail address"),
            ("[notify]\nmail = [\"a b\"]", "'a b' is not a mail address"),
            ("[notify]\nmail = [\"a@b\"]\nsendmail = \"sendmail\"", "must be a full path"),
            ("[notify]\nrun = [\"\"]", "must begin with a program"),
            ("[notify]\nurl = \"https://host/\"", "Ashlar posts over http only"),
            ("[notify]\nper_minute = 0", "per_minute must be 1 to 1000"),
            ("[notify]\ntimeout_s = 0", "timeout_s must be 1 to 600"),
            ("[notify]\nseverity = \"bad\"", "line 2: unknown variant"),
            ("[notify]\nprogram = \"x\"", "line 2: unknown field"),
            ("[events]\nhistory = \"1KiB\"", "history must be 64 KiB or more"),
        ] {
            let told = refused(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn what_is_left_out_has_its_usual_value() {
        let config = Config::parse("a", "[notify]\nrun = [\"true\"]").expect("sound");
        assert_eq!(config.notify.severity(), Severity::Warning);
        assert_eq!((config.notify.per_minute(), config.notify.time_max().as_secs()), (10, 30));
        assert_eq!(config.events.limit_bytes(), 64 << 20);
        let text = "[notify]\nseverity = \"critical\"\n[events]\nhistory = \"1MiB\"";
        let config = Config::parse("a", text).expect("sound");
        assert_eq!(config.notify.severity(), Severity::Critical);
        assert_eq!(config.events.limit_bytes(), 1 << 20);
    }
}
