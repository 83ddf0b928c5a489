//! Function groups: which engine a stack belongs to, and which kind of work it is. Versioned TOML
//! files.
//!
//! A file says by regular expressions which threads, symbols and modules belong to its engine
//! ([`Belongs`]), and names kinds of work, each useful, overhead or polling ([`Work`]); the first
//! kind that matches, from the leaf on, is the stack's. Work of its own file comes before work it
//! takes in from another (`uses`). What must stay true: a group's name and version stand beside
//! every figure made with it; a file with an expression that cannot be read, or that belongs to
//! nothing, is refused with its name.

use super::frame::Frame;
use crate::{AtPath, Refusal};
use regex::RegexSet;
use serde::{Deserialize, Serialize};
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

/// Most engines at once: their numbers are bits of a word.
pub const GROUPS_MAX: usize = 32;

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFile {
    format: u32,
    name: String,
    version: u32,
    #[serde(default)]
    about: String,
    #[serde(default)]
    uses: Vec<String>,
    #[serde(default)]
    belongs: Belongs,
    #[serde(default)]
    work: Vec<Work>,
}

/// What makes a stack an engine's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Belongs {
    /// Names of kernel threads that work for this engine only.
    #[serde(default)]
    kernel_threads: Vec<String>,
    /// Names of user-space threads that are this engine's.
    #[serde(default)]
    threads: Vec<String>,
    #[serde(default)]
    symbols: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    name: String,
    kind: WorkKind,
    #[serde(default)]
    symbols: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
}

/// One engine's group, ready to be asked.
#[derive(Debug)]
pub struct Group {
    pub name: String,
    pub version: u32,
    pub about: String,
    /// Names and kinds of its work, in order of precedence.
    pub work: Vec<(String, WorkKind)>,
    kernel_threads: RegexSet,
    threads: RegexSet,
    symbols: RegexSet,
    modules: RegexSet,
    work_matches: Vec<(RegexSet, RegexSet)>,
}

/// All groups that are asked, in order: the first that a frame belongs to has it.
#[derive(Debug)]
pub struct Groups {
    pub all: Vec<Group>,
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
    /// A file that cannot be read or understood, by name; more than [`GROUPS_MAX`].
    pub fn load(files: &[impl AsRef<Path>]) -> Result<Groups, Refusal> {
        let mut read = Vec::new();
        for path in files {
            let path = path.as_ref();
            let text =
                std::fs::read_to_string(path).at(path, "give a TOML file of function groups")?;
            read.push(parse(&path.display().to_string(), &text)?);
        }
        for (name, text) in BUILT_IN {
            if read.iter().all(|file: &GroupFile| file.name != name) {
                read.push(parse(name, text)?);
            }
        }
        let engines = read.iter().filter(|file| !file.belongs.is_empty());
        let all = engines.map(|file| Group::build(file, &read)).collect::<Result<Vec<_>, _>>()?;
        match all.len() {
            ..=GROUPS_MAX => Ok(Groups { all }),
            more => {
                let what = format!("{more} function groups; {GROUPS_MAX} at once are the most");
                Err(Refusal::cannot_run("groups.too_many", what).hint("give fewer --groups"))
            }
        }
    }
}

fn parse(from: &str, text: &str) -> Result<GroupFile, Refusal> {
    let refuse = |what: String| {
        Refusal::cannot_run("groups.malformed", format!("function groups {from}: {what}"))
            .hint("see docs/lab/cpu.md")
    };
    let file: GroupFile =
        toml::from_str(text).map_err(|error| refuse(error.message().to_owned()))?;
    if file.format != 1 {
        return Err(refuse(format!("format {} is not 1", file.format)));
    }
    if file.belongs.is_empty() && file.work.is_empty() {
        return Err(refuse("says neither what belongs to it nor what its work is".to_owned()));
    }
    Ok(file)
}

impl Belongs {
    fn is_empty(&self) -> bool {
        [&self.kernel_threads, &self.threads, &self.symbols, &self.modules]
            .iter()
            .all(|it| it.is_empty())
    }
}

impl Group {
    fn build(file: &GroupFile, files: &[GroupFile]) -> Result<Group, Refusal> {
        let set = |patterns: &[String]| {
            RegexSet::new(patterns).map_err(|error| {
                // The expression and the caret below it are on lines of their own; the last line
                // says why.
                let why = error.to_string().lines().last().unwrap_or_default().to_owned();
                let what = format!("function groups {}: {why}", file.name);
                Refusal::cannot_run("groups.malformed", what).hint("correct the regular expression")
            })
        };
        let mut group = Group {
            name: file.name.clone(),
            version: file.version,
            about: file.about.clone(),
            work: Vec::new(),
            kernel_threads: set(&file.belongs.kernel_threads)?,
            threads: set(&file.belongs.threads)?,
            symbols: set(&file.belongs.symbols)?,
            modules: set(&file.belongs.modules)?,
            work_matches: Vec::new(),
        };
        let used = file.uses.iter().filter_map(|name| files.iter().find(|it| it.name == *name));
        for work in file.work.iter().chain(used.flat_map(|it| &it.work)) {
            group.work.push((work.name.clone(), work.kind));
            group.work_matches.push((set(&work.symbols)?, set(&work.modules)?));
        }
        Ok(group)
    }

    pub fn has_frame(&self, frame: Frame<'_>) -> bool {
        (!frame.symbol.is_empty() && self.symbols.is_match(frame.symbol))
            || (!frame.module.is_empty() && self.modules.is_match(frame.module))
    }

    pub fn work_of(&self, frame: Frame<'_>) -> Option<usize> {
        let is_it = |(symbols, modules): &(RegexSet, RegexSet)| {
            (!frame.symbol.is_empty() && symbols.is_match(frame.symbol))
                || (!frame.module.is_empty() && modules.is_match(frame.module))
        };
        self.work_matches.iter().position(is_it)
    }

    /// Whether a kernel thread of this name works for this engine only.
    pub fn has_kernel_thread(&self, comm: &str) -> bool {
        self.kernel_threads.is_match(comm)
    }

    /// Expressions for the names of this engine's user-space threads.
    pub fn thread_patterns(&self) -> &[String] {
        self.threads.patterns()
    }

    pub fn has_thread(&self, comm: &str) -> bool {
        self.threads.is_match(comm)
    }
}

#[cfg(test)]
mod tests {
    use super::{Groups, WorkKind, parse};
    use crate::cpu::frame::Frame;

    #[test]
    fn the_groups_that_come_with_the_lab_can_all_be_read() {
        let groups = Groups::shipped().expect("sound");
        let names: Vec<&str> = groups.all.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["ashlar", "md", "zfs", "btrfs", "spdk", "dm"]);
        for group in &groups.all {
            assert!(group.version > 0 && !group.about.is_empty(), "{}", group.name);
            let useful = group.work.iter().any(|(_, kind)| *kind == WorkKind::Useful);
            assert!(useful, "{}: nothing useful", group.name);
        }
    }

    #[test]
    fn an_own_file_comes_first_and_replaces_ours_of_the_same_name() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("md.toml");
        let text = "format = 1\nname = \"md\"\nversion = 7\nuses = [\"kernel\"]\n[belongs]\n\
                    symbols = ['^mine_']\n";
        std::fs::write(&path, text).expect("written");
        let groups = Groups::load(&[&path]).expect("sound");
        assert_eq!((groups.all[0].name.as_str(), groups.all[0].version), ("md", 7));
        assert_eq!(groups.all.iter().filter(|group| group.name == "md").count(), 1);
        assert!(groups.all[0].has_frame(Frame::parse("mine_write")));
        assert!(!groups.all[0].has_frame(Frame::parse("raid5d")));
        let locks = groups.all[0].work_of(Frame::parse("_raw_spin_lock_irq_[k]")).expect("known");
        assert_eq!(groups.all[0].work[locks].0, "locks");
    }

    #[test]
    fn a_file_that_says_nothing_or_something_wrong_is_refused_by_name() {
        let head = "format = 1\nname = \"x\"\nversion = 1\n";
        for (text, why) in [
            (head.to_owned(), "neither"),
            (head.replace("= 1\nname", "= 2\nname"), "format 2"),
            (format!("{head}[belong]\nsymbols = []\n"), "unknown field"),
            ("[[[".to_owned(), "my.toml"),
        ] {
            let refusal = parse("my.toml", &text).expect_err("refused").to_string();
            assert!(refusal.contains(why) && refusal.contains("my.toml"), "{refusal}");
        }
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x.toml");
        std::fs::write(&path, format!("{head}[belongs]\nsymbols = ['(']\n")).expect("written");
        let refusal = Groups::load(&[&path]).expect_err("refused").to_string();
        assert!(refusal.contains("function groups x") && refusal.contains("unclosed"), "{refusal}");
        let missing = Groups::load(&[folder.path().join("none")]).expect_err("refused");
        assert_eq!(missing.exit_code(), 2);
    }
}
