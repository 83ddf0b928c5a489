//! The library of drive models: what makers state, by exact model and capacity. Versioned TOML
//! files.
//!
//! What must stay true: a figure names its file and its source; a family in a capacity that the
//! library does not have is not known (capacity changes the figures); a file with an expression
//! that cannot be read, or without a source, is refused. Not here: what a drive did when it was
//! measured.

use super::server::drives::whole;
use super::server::{Drive, DriveKind};
use crate::metrics::bandwidth::Rate;
use crate::metrics::zones;
use crate::order::one_of;
use crate::record::RateUnit;
use crate::units;
use crate::{AtPath, Refusal};
use itertools::Itertools;
use regex::Regex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// What comes with the lab.
const BUILT_IN: &str = include_str!("../../models/drives.toml");

static OURS: LazyLock<Vec<Family>> = LazyLock::new(|| parse(BUILT_IN, "").unwrap_or_default());

/// Sizes agree within this share: makers round them.
const SIZE_TOLERANCE: u64 = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    name: String,
    version: u32,
    #[serde(default)]
    family: Vec<Family>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    name: String,
    #[serde(deserialize_with = "whole_name")]
    model: Regex,
    medium: Medium,
    source: String,
    #[serde(rename = "capacity")]
    capacities: Vec<Figures>,
    /// Which file has it.
    #[serde(skip)]
    file: String,
}

/// An expression for the whole name of a model.
fn whole_name<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let text = String::deserialize(from)?;
    Regex::new(&format!("^(?:{text})$")).map_err(D::Error::custom)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Cells; the rate does not depend on the place.
    Flash,
    /// Platters: fast outside, slow inside.
    Spinning,
}

/// What is stated about one capacity. Rates in MB/s, random I/Os of 4 KiB a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Capacity, GB of 10^9 bytes.
    pub gigabytes: u64,
    pub sequential_read: Option<u64>,
    /// Sequential writes of a flash drive, while its cache lasts if it has one.
    pub sequential_write: Option<u64>,
    /// Sequential writes once the cache is full.
    pub sustained_write: Option<u64>,
    pub random_read: Option<u64>,
    pub random_write: Option<u64>,
    /// At the outer edge of a spinning drive: what its data sheet quotes.
    pub outer: Option<u64>,
    pub inner: Option<u64>,
}

/// The library: users' own files first, then what comes with the lab.
#[derive(Clone, Debug, Default)]
pub struct Library {
    own: Arc<Vec<Family>>,
}

/// What is stated about this model in this capacity; or why nothing is, and what to do.
pub type Known = Result<Entry, String>;

/// What is stated about one model in one capacity, and by whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    pub family: String,
    pub medium: Medium,
    pub figures: Figures,
    pub source: String,
    /// Which file has it: its name and version, and its path if it is the user's.
    pub file: String,
}

impl Library {
    /// With the users' own `files`, which come before what the lab has.
    pub fn with(files: &[impl AsRef<Path>]) -> Result<Library, Refusal> {
        let mut own = Vec::new();
        for path in files.iter().map(AsRef::as_ref) {
            let text = std::fs::read_to_string(path).at(path, "name a library of drive models")?;
            let place = path.display().to_string();
            let families = parse(&text, &place).map_err(|why| {
                let message = format!("{place}: {why}");
                Refusal::cannot_run("models.malformed", message)
                    .hint("docs/lab/inspect.md has an example")
            })?;
            own.extend(families);
        }
        Ok(Library { own: Arc::new(own) })
    }

    pub fn find(&self, drive: &Drive) -> Known {
        self.look(&drive.model, drive.drive_bytes)
    }

    /// What is known about a model, as the kernel names it, of a size.
    pub fn look(&self, model: &str, size_bytes: u64) -> Known {
        let all = self.own.iter().chain(OURS.iter());
        let families: Vec<&Family> = all.filter(|it| it.model.is_match(model.trim())).collect();
        let fits = |it: &&Figures| {
            let stated = it.gigabytes.saturating_mul(1_000_000_000);
            stated.abs_diff(size_bytes) <= stated / SIZE_TOLERANCE
        };
        for family in &families {
            if let Some(figures) = family.capacities.iter().find(fits) {
                return Ok(Entry {
                    family: family.name.clone(),
                    medium: family.medium,
                    figures: *figures,
                    source: family.source.clone(),
                    file: family.file.clone(),
                });
            }
        }
        let Some(Family { name, capacities, .. }) = families.first() else {
            let add = "add it from its data sheet (--models)";
            return Err(format!("not in the library of drive models; {add}"));
        };
        let list = capacities.iter().map(|it| it.gigabytes).join(", ");
        Err(format!(
            "{name} is in the library of drive models with {list} GB only, and capacity changes \
             the figures; add it (--models)"
        ))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ModelLine {
    pub model: String,
    pub size_bytes: u64,
    pub drives: Vec<String>,
    pub known: Known,
}

impl Library {
    /// All models among `drives`. A guest's disks have none.
    pub fn lines(&self, drives: &[Drive]) -> Vec<ModelLine> {
        let mut lines: Vec<ModelLine> = Vec::new();
        let all = whole(drives).into_iter().map(|drive| drive[0]);
        for drive in all.filter(|it| it.kind != DriveKind::Virtual) {
            let same =
                |it: &ModelLine| it.model == drive.model && it.size_bytes == drive.drive_bytes;
            let line = one_of(&mut lines, same, || ModelLine {
                model: drive.model.clone(),
                size_bytes: drive.drive_bytes,
                drives: Vec::new(),
                known: self.find(drive),
            });
            line.drives.push(drive.name.clone());
        }
        lines
    }
}

impl ModelLine {
    pub fn sentence(&self) -> String {
        self.known.as_ref().map_or_else(String::clone, Entry::sentence)
    }
}

impl Entry {
    /// What the medium gives when it is read in sequence: of a spinning drive, at its outer edge.
    pub fn read(&self) -> Option<Rate> {
        self.figures.outer.or(self.figures.sequential_read).map(Rate::mega)
    }

    /// What it takes when it is written in sequence for long.
    pub fn write(&self) -> Option<Rate> {
        let Figures { outer, sustained_write, sequential_write, .. } = self.figures;
        outer.or(sustained_write).or(sequential_write).map(Rate::mega)
    }

    /// Of a spinning drive both of whose edges are known: what a pass over all of it does on
    /// average.
    pub fn whole(&self) -> Option<Rate> {
        let mega = |mega: Option<u64>| mega.map(|it| crate::metrics::latency::to_f64(it) * 1e6);
        zones::mean_of(mega(self.figures.outer)?, mega(self.figures.inner)?).map(Rate::nearest)
    }

    pub fn sentence(&self) -> String {
        let Figures { sequential_read, sequential_write, sustained_write, .. } = self.figures;
        let Figures { random_read, random_write, outer, inner, .. } = self.figures;
        let rate = |name: &str, value: Option<u64>| Some(format!("{name} {}", Rate::mega(value?)));
        let count = |name: &str, value: Option<u64>| {
            let value = crate::metrics::latency::to_f64(value?);
            Some(format!("{name} {}", units::rate(value, RateUnit::Iops)))
        };
        let whole = self.whole().map(|rate| {
            let bytes = self.figures.gigabytes.saturating_mul(1_000_000_000);
            let hours = crate::metrics::latency::to_f64(bytes / rate.0.max(1)) / 3_600.0;
            format!("a pass over all of it {rate} on average, {hours:.1} h")
        });
        let parts = [
            rate("outer edge", outer),
            rate("inner edge", inner),
            whole,
            rate("read", sequential_read),
            rate("written", sequential_write),
            rate("written for long", sustained_write),
            count("random reads", random_read),
            count("random writes", random_write),
        ];
        let parts = parts.into_iter().flatten().join(", ");
        format!(
            "{} {} GB: {} ({}: {})",
            self.family, self.figures.gigabytes, parts, self.file, self.source
        )
    }
}

fn parse(text: &str, place: &str) -> Result<Vec<Family>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.format != 1 {
        return Err(format!("format {} is not known to this lab, which knows 1", file.format));
    }
    let label = match place {
        "" => format!("library {} {}", file.name, file.version),
        place => format!("{} {} of {place}", file.name, file.version),
    };
    let family = |it: Family| {
        if it.source.trim().is_empty() {
            return Err(format!("{}: without a source its figures are worth nothing", it.name));
        }
        let needed = match it.medium {
            Medium::Spinning => "outer",
            Medium::Flash => "sequential_read or sequential_write",
        };
        let is_known = |figures: &Figures| {
            let rate = match it.medium {
                Medium::Spinning => figures.outer,
                Medium::Flash => figures.sequential_read.or(figures.sequential_write),
            };
            rate.is_some_and(|rate| rate > 0) && figures.gigabytes > 0
        };
        match it.capacities.iter().find(|figures| !is_known(figures)) {
            None => Ok(Family { file: label.clone(), ..it }),
            Some(Figures { gigabytes, .. }) => {
                Err(format!("{} {gigabytes} GB: needs gigabytes, and {needed}", it.name))
            }
        }
    };
    file.family.into_iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::Library;
    use crate::metrics::bandwidth::Rate;

    const GB: u64 = 1_000_000_000;

    #[test]
    fn the_talk_s_drive_is_half_as_fast_with_a_quarter_of_the_capacity() {
        let library = Library::default();
        let write = |model: &str, size: u64| {
            library.look(model, size).expect("known").figures.sequential_write
        };
        // Sizes as drives report them, a little more than their name.
        assert_eq!(write("KXG60ZNV1T02 TOSHIBA", 1_024_209_543_168), Some(2_960));
        assert_eq!(write("KXG60ZNV256G TOSHIBA", 256_060_514_304), Some(1_550));
        let small = library.look("KXG60ZNV256G", 256 * GB).expect("known");
        // After the cache it took 414 MB/s: what a plan must expect.
        assert_eq!(small.write(), Some(Rate::mega(414)));
        assert!(small.sentence().contains("library drives 1: maker's product page"));
    }

    #[test]
    fn another_capacity_of_a_known_family_is_not_known() {
        let why = |model: &str, size: u64| Library::default().look(model, size).unwrap_err();
        let other = why("Samsung SSD 970 EVO Plus 1TB", 750 * GB);
        assert!(other.contains("250, 500, 1000, 2000 GB only, and capacity changes"), "{other}");
        assert!(why("Samsung SSD 970 EVO 1TB", 1_000 * GB).starts_with("not in the library"));
        // The whole name counts, not a part of it.
        assert!(why("xKCM61RUL3T84", 3_840 * GB).starts_with("not in the library"));
    }

    #[test]
    fn spinning_drives_are_stated_at_their_outer_edge_and_expected_in_the_middle() {
        let entry = Library::default().look("TOSHIBA MG07SCA14TA", 14_000_519_643_136).unwrap();
        assert_eq!((entry.read(), entry.whole()), (Some(Rate::mega(265)), Some(Rate::mega(205))));
        assert!(entry.sentence().contains("a pass over all of it 205 MB/s on average, 19.0 h"));
    }

    #[test]
    fn users_files_come_first_and_bad_ones_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let head = "format = 1\nname = \"mine\"\nversion = 3\n";
        let one = "[[family]]\nname = \"X\"\nmodel = 'TOSHIBA MG07.*'\nmedium = \"spinning\"\n\
                   source = \"ours\"\n[[family.capacity]]\ngigabytes = 14000\nouter = 250\n";
        write(&format!("{head}{one}"));
        let library = Library::with(&[&path]).expect("good");
        let entry = library.look("TOSHIBA MG07SCA14TA", 14_000 * GB).expect("known");
        assert_eq!(entry.figures.outer, Some(250));
        assert!(entry.sentence().contains("mine 3 of "), "{}", entry.sentence());
        for (from, to, why) in [
            ("format = 1", "format = 9", "format 9 is not known"),
            ("source = \"ours\"", "source = \" \"", "without a source"),
            ("MG07.*", "MG07(", "regex parse error"),
            ("outer = 250\n", "", "needs gigabytes, and outer"),
            ("outer = 250", "outr = 250", "unknown field"),
        ] {
            write(&format!("{head}{one}").replace(from, to));
            let refused = Library::with(&[&path]).expect_err(why);
            assert!(refused.message.contains(why), "{why}: {}", refused.message);
            assert_eq!((refused.exit_code(), refused.to_string().lines().count()), (2, 1));
        }
        assert!(Library::with(&[folder.path().join("none")]).is_err());
    }
}
