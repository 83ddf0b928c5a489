//! Where facts come from: the machine as it runs, or a capture of one.
//!
//! - tree: small files and links of sysfs and procfs, as one text file that people can read before
//!   they send it
//! - tool: one run of a program, with a time limit
//! - folder: a capture as a directory
//! - bare: outputs of programs without a manifest
//!
//! What must stay true: a capture holds exactly what was asked of the live machine, so both give
//! the same answers; what could not be read is absent, never empty or zero; nothing is ever written
//! below `/sys` or `/proc`. Not here: what the facts mean.

pub mod bare;
pub mod folder;
pub mod tool;
pub mod tree;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
pub use tool::Run;
use tree::{Entry, Tree};

/// Everything that was asked of a machine, and what it answered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Capture {
    pub tree: Tree,
    /// Programs by the name of their output file: `lspci`, `smp_discover-expander-1:0`.
    pub runs: BTreeMap<String, Run>,
    pub origin: Origin,
}

/// Who captured, and when.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    #[serde(default)]
    pub lab: String,
    /// Seconds since 1970, UTC; 0 if not known.
    #[serde(default)]
    pub captured_unix_s: u64,
    #[serde(default)]
    pub is_redacted: bool,
}

/// The live machine, which is recorded while it is read, or a capture.
#[derive(Debug)]
pub struct Source {
    root: Option<PathBuf>,
    limit: Duration,
    capture: RefCell<Capture>,
}

impl Source {
    /// The machine this runs on. `limit` is how long one program may take.
    pub fn live(limit: Duration) -> Source {
        Source { root: Some(PathBuf::from("/")), limit, capture: RefCell::default() }
    }

    /// What was captured before. Nothing of this machine is looked at.
    pub fn captured(capture: Capture) -> Source {
        Source { root: None, limit: Duration::ZERO, capture: RefCell::new(capture) }
    }

    /// All that was asked so far and what came back; a capture gives itself.
    pub fn into_capture(self) -> Capture {
        self.capture.into_inner()
    }

    /// What a small file holds, without the white space at its end. None if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let read = |path: &PathBuf| match std::fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Some(Entry::Text(tree::plain(text.trim_end_matches(['\n', ' ', '\0']))))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Some(Entry::Unreadable(error.kind().to_string())),
        };
        match self.entry(path, read)? {
            Entry::Text(text) => Some(text),
            Entry::Link(_) | Entry::Unreadable(_) | Entry::Present => None,
        }
    }

    /// A file that holds one number, in decimal or as `0x...`.
    pub fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.trim().parse().ok(),
        }
    }

    /// Where a symbolic link points, as it is written.
    pub fn link(&self, path: &str) -> Option<String> {
        let read = |path: &PathBuf| {
            let target = std::fs::read_link(path).ok()?;
            Some(Entry::Link(tree::plain(&target.to_string_lossy())))
        };
        match self.entry(path, read)? {
            Entry::Link(target) => Some(target),
            Entry::Text(_) | Entry::Unreadable(_) | Entry::Present => None,
        }
    }

    /// The names in a folder, sorted with numbers in their order: `sda`, `sdb`, `sdaa`; empty if it
    /// is not there.
    pub fn names(&self, path: &str) -> Vec<String> {
        if let Some(root) = &self.root {
            let entries = std::fs::read_dir(root.join(path.trim_start_matches('/')));
            let mut capture = self.capture.borrow_mut();
            for entry in entries.into_iter().flatten().flatten() {
                let name = entry.file_name();
                if let Some(name) = name.to_str().filter(|name| tree::is_plain(name)) {
                    capture.tree.note(format!("{path}/{name}"));
                }
            }
        }
        let mut names: Vec<String> = self.capture.borrow().tree.names(path);
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Run `argv`, or look up how it ran. `name` names its output in a capture.
    pub fn run(&self, name: &str, argv: &[&str]) -> Run {
        if let Some(run) = self.capture.borrow().runs.get(name) {
            return run.clone();
        }
        if self.root.is_none() {
            return Run::without_output(argv, tool::Ending::NotCaptured);
        }
        let run = tool::run(argv, self.limit);
        self.capture.borrow_mut().runs.insert(name.to_owned(), run.clone());
        run
    }

    pub fn output(&self, name: &str, argv: &[&str]) -> Option<String> {
        let run = self.run(name, argv);
        run.is_good().then_some(run.stdout)
    }

    /// Programs that gave nothing, each with its reason.
    pub fn silent_tools(&self) -> BTreeMap<String, String> {
        let capture = self.capture.borrow();
        let silent = capture.runs.iter().filter(|(_, run)| !run.is_good());
        silent.map(|(name, run)| (name.clone(), run.why_not())).collect()
    }

    fn entry(&self, path: &str, read: impl Fn(&PathBuf) -> Option<Entry>) -> Option<Entry> {
        if let Some(root) = &self.root {
            let full = root.join(path.trim_start_matches('/'));
            let entry = read(&full)?;
            self.capture.borrow_mut().tree.insert(path.to_owned(), entry.clone());
            return Some(entry);
        }
        self.capture.borrow().tree.get(path).cloned()
    }
}

/// A key under which `nvme2` comes before `nvme10`, and `sdz` before `sdaa`.
pub fn natural(name: &str) -> (usize, Vec<(String, u64)>) {
    let letters = name.chars().take_while(char::is_ascii_lowercase).count();
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits_at = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits_at);
        let word_at = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, tail) = tail.split_at(word_at);
        parts.push((word.to_owned(), digits.parse().unwrap_or(0)));
        rest = tail;
    }
    (letters, parts)
}

#[cfg(test)]
mod tests {
    use super::{Capture, Source, natural};
    use std::time::Duration;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let sorted = |names: &[&'static str]| {
            let mut names = names.to_vec();
            names.sort_by_key(|name| natural(name));
            names
        };
        assert_eq!(sorted(&["sdaa", "sdz", "sda"]), ["sda", "sdz", "sdaa"]);
        assert_eq!(sorted(&["nvme10n1", "nvme2n1"]), ["nvme2n1", "nvme10n1"]);
        assert_eq!(sorted(&["0000:80:01.0", "0000:02:00.0"]), ["0000:02:00.0", "0000:80:01.0"]);
    }

    #[test]
    fn a_capture_answers_exactly_what_the_machine_answered() {
        let live = Source::live(Duration::from_secs(120));
        let ask = |source: &Source| {
            let nodes = source.names("/sys/devices/system/node");
            let release = source.text("/proc/sys/kernel/osrelease");
            let absent = source.text("/proc/there/is/no/such/file");
            let is_good = source.run("true", &["true"]).is_good();
            (nodes, release, absent, is_good, source.run("no", &["no-such-tool-xyz"]).why_not())
        };
        let first = ask(&live);
        assert!(first.1.is_some() && first.2.is_none() && first.3);
        let again = Source::captured(live.into_capture());
        assert_eq!(ask(&again), first);
        // What a capture does not hold is absent.
        let source = Source::captured(Capture::default());
        assert_eq!(source.text("/proc/version"), None);
        assert!(source.names("/sys").is_empty());
        assert!(!source.run("lspci", &["lspci"]).is_good());
    }
}
