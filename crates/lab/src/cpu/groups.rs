//! Function groups: which engine a stack belongs to, and which kind of work it is. Versioned TOML
//! files.
//!
//! A file says by regular expressions which threads, symbols and modules belong to its engine
//! ([`Belongs`]), and names kinds of work, each useful, overhead or polling ([`Work`]); the first
//! kind that matches, from the leaf on, is the stack's. Work of its own file comes before work it
//! takes in from another (`uses`). What must stay true: a group's name and version stand beside
//! every figure made with it; a file with an expression that cannot be read, or that belongs to
//! nothing, is refused with its name.

use super::script::Frame;
use crate::{AtPath, Refusal};
use regex::RegexSet;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::Path;

/// The groups that come with the lab: name of the file and its text.
const BUILT_IN: [(&str, &str); 7] = [
    ("kernel", include_str!("../../groups/kernel.toml")),
    ("ashlar", include_str!("../../groups/ashlar.toml")),
    ("md", include_str!("../../groups/md.toml")),
    ("zfs", include_str!("../../groups/zfs.toml")),
    ("btrfs", include_str!("../../groups/btrfs.toml")),
    ("spdk", include_str!("../../groups/spdk.toml")),
    ("dm", include_str!("../../groups/dm.toml")),
];

/// Whether work is what the user pays an engine for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Parity, reconstruction, checksums, compression, encryption.
    Useful,
    /// Locks, caches, copies, memory, scheduling, submission.
    Overhead,
    /// Looking whether there is work: consumed, whatever it finds.
    Polling,
    /// Belongs to the engine, but no expression says what it is.
    Unsorted,
}

/// What makes a stack an engine's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Belongs {
    /// Names of kernel threads that work for this engine only.
    #[serde(default, deserialize_with = "set")]
    kernel_threads: RegexSet,
    /// Names of user-space threads that are this engine's.
    #[serde(default, deserialize_with = "set")]
    threads: RegexSet,
    #[serde(default, deserialize_with = "set")]
    symbols: RegexSet,
    /// Kernel modules, programs, libraries.
    #[serde(default, deserialize_with = "set")]
    modules: RegexSet,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub name: String,
    pub kind: WorkKind,
    #[serde(default, deserialize_with = "set")]
    symbols: RegexSet,
    #[serde(default, deserialize_with = "set")]
    modules: RegexSet,
}

/// One engine's group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    format: u32,
    pub name: String,
    pub version: u32,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    uses: Vec<String>,
    #[serde(default)]
    belongs: Belongs,
    /// In order of precedence.
    #[serde(default)]
    pub work: Vec<Work>,
}

/// All groups that are asked, in order: the first that a frame belongs to has it.
#[derive(Debug)]
pub struct Groups {
    pub all: Vec<Group>,
}

fn set<'de, D: Deserializer<'de>>(value: D) -> Result<RegexSet, D::Error> {
    RegexSet::new(Vec::<String>::deserialize(value)?).map_err(|error| {
        // The expression and the caret below it are on lines of their own; the last line says why.
        D::Error::custom(error.to_string().lines().last().unwrap_or_default())
    })
}

impl Groups {
    /// The groups that come with the lab.
    pub fn shipped() -> Result<Groups, Refusal> {
        Groups::load(&[] as &[&Path])
    }

    /// The groups that come with the lab, and the users' own `files` before them. A file with the
    /// name of one of ours replaces it.
    ///
    /// # Errors
    /// A file that cannot be read or understood, by name.
    pub fn load(files: &[impl AsRef<Path>]) -> Result<Groups, Refusal> {
        let mut all = Vec::new();
        for path in files {
            let path = path.as_ref();
            let text =
                std::fs::read_to_string(path).at(path, "give a TOML file of function groups")?;
            all.push(parse(&path.display().to_string(), &text)?);
        }
        for (name, text) in BUILT_IN {
            if all.iter().all(|file: &Group| file.name != name) {
                all.push(parse(name, text)?);
            }
        }
        let used = |file: &Group| -> Vec<Work> {
            let named = file.uses.iter().filter_map(|name| all.iter().find(|it| it.name == *name));
            named.flat_map(|it| it.work.clone()).collect()
        };
        let used: Vec<Vec<Work>> = all.iter().map(used).collect();
        all.iter_mut().zip(used).for_each(|(file, used)| file.work.extend(used));
        all.retain(|file| !file.belongs.is_empty());
        Ok(Groups { all })
    }
}

fn parse(from: &str, text: &str) -> Result<Group, Refusal> {
    let read = toml::from_str::<Group>(text).map_err(|error| error.message().to_owned());
    let sound = read.and_then(|file| match file.format {
        1 if file.belongs.is_empty() && file.work.is_empty() => {
            Err("says neither what belongs to it nor what its work is".to_owned())
        }
        1 => Ok(file),
        format => Err(format!("format {format} is not 1")),
    });
    sound.map_err(|what| {
        Refusal::cannot_run("groups.malformed", format!("function groups {from}: {what}"))
            .hint("see docs/lab/cpu.md")
    })
}

impl Belongs {
    fn is_empty(&self) -> bool {
        let all = [&self.kernel_threads, &self.threads, &self.symbols, &self.modules];
        all.iter().all(|it| it.is_empty())
    }
}

/// Whether one of the sets has a frame, as far as its names are known.
fn has(frame: Frame<'_>, symbols: &RegexSet, modules: &RegexSet) -> bool {
    (!frame.symbol.is_empty() && symbols.is_match(frame.symbol))
        || (!frame.module.is_empty() && modules.is_match(frame.module))
}

impl Group {
    pub fn has_frame(&self, frame: Frame<'_>) -> bool {
        has(frame, &self.belongs.symbols, &self.belongs.modules)
    }

    /// Which of its work a frame is.
    pub fn work_of(&self, frame: Frame<'_>) -> Option<usize> {
        self.work.iter().position(|work| has(frame, &work.symbols, &work.modules))
    }

    /// Whether a kernel thread of this name works for this engine only.
    pub fn has_kernel_thread(&self, comm: &str) -> bool {
        self.belongs.kernel_threads.is_match(comm)
    }

    /// Expressions for the names of this engine's user-space threads.
    pub fn thread_patterns(&self) -> &[String] {
        self.belongs.threads.patterns()
    }

    pub fn has_thread(&self, comm: &str) -> bool {
        self.belongs.threads.is_match(comm)
    }
}

#[cfg(test)]
mod tests {
    use super::{Groups, WorkKind};
    use crate::cpu::script::Frame;

    #[test]
    fn the_groups_that_come_with_the_lab_can_all_be_read() {
        let groups = Groups::shipped().expect("sound");
        let names: Vec<&str> = groups.all.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["ashlar", "md", "zfs", "btrfs", "spdk", "dm"]);
        for group in &groups.all {
            assert!(group.version > 0 && !group.about.is_empty(), "{}", group.name);
            let useful = group.work.iter().any(|work| work.kind == WorkKind::Useful);
            assert!(useful, "{}: nothing useful", group.name);
        }
    }

    #[test]
    fn an_own_file_comes_first_and_one_that_says_nothing_or_something_wrong_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("my.toml");
        let load = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Groups::load(&[&path])
        };
        let head = "format = 1\nname = \"md\"\nversion = 7\nuses = [\"kernel\"]\n";
        let groups = load(&format!("{head}[belongs]\nsymbols = ['^mine_']\n")).expect("sound");
        let own = &groups.all[0];
        assert_eq!((own.name.as_str(), own.version), ("md", 7));
        assert_eq!(groups.all.iter().filter(|group| group.name == "md").count(), 1);
        assert!(own.has_frame(Frame::parse("mine_write")));
        assert!(!own.has_frame(Frame::parse("raid5d")));
        let locks = own.work_of(Frame::parse("_raw_spin_lock_irq_[k]")).expect("known");
        assert_eq!(own.work[locks].name, "locks");
        for (text, why) in [
            (head.to_owned(), "neither"),
            (head.replace("= 1\nname", "= 2\nname"), "format 2"),
            (format!("{head}[belong]\nsymbols = []\n"), "unknown field"),
            (format!("{head}[belongs]\nsymbols = ['(']\n"), "unclosed"),
            ("[[[".to_owned(), "my.toml"),
        ] {
            let refusal = load(&text).expect_err("refused").to_string();
            assert!(refusal.contains(why) && refusal.contains("my.toml"), "{refusal}");
        }
        let missing = Groups::load(&[folder.path().join("none")]).expect_err("refused");
        assert_eq!(missing.exit_code(), 2);
    }
}
