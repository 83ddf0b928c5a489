//! Small files and links as lines of text: what `files.txt` of a capture holds.
//!
//! ```text
//! /sys/block/sda -> ../devices/pci0000:00/0000:00:03.0/.../block/sda
//! /sys/block/sda/queue/nr_requests = 32
//! /proc/mdstat =
//! |Personalities : [raid6]
//! |unused devices: <none>
//! /sys/kernel/debug/x ! permission denied
//! /sys/block/sda/mq/0 .
//! ```
//!
//! What must stay true: what is printed is read back the same; a line that is not understood is
//! counted, not guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What stands at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A file and what it holds.
    Text(String),
    /// A symbolic link and where it points.
    Link(String),
    /// It is there and cannot be read, with the reason.
    Unreadable(String),
    /// It is there; nobody looked inside.
    Present,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Put `entry` at `path`. A link that was also read through, as a file, stays a link.
    pub fn insert(&mut self, path: String, entry: Entry) {
        self.entries.insert(path, entry);
    }

    /// Take away `path` and all below it; how many entries that was.
    #[cfg(test)]
    pub fn remove(&mut self, path: &str) -> usize {
        let before = self.entries.len();
        let inside = format!("{path}/");
        self.entries.retain(|at, _| at != path && !at.starts_with(&inside));
        before - self.entries.len()
    }

    /// Say that there is something at `path`.
    pub fn note(&mut self, path: String) {
        self.entries.entry(path).or_insert(Entry::Present);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub fn names(&self, path: &str) -> Vec<String> {
        let inside = format!("{}/", path.trim_end_matches('/'));
        let below = self.entries.range(inside.clone()..);
        let rests = below.map_while(|(at, _)| at.strip_prefix(&inside));
        let names: BTreeSet<&str> = rests.filter_map(|rest| rest.split('/').next()).collect();
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// As text, one line an entry, or more for files of several lines.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (path, entry) in &self.entries {
            // Writing to a String cannot fail.
            let _ = match entry {
                Entry::Text(text) if text.contains('\n') => {
                    let _ = writeln!(out, "{path} =");
                    text.split('\n').try_for_each(|line| writeln!(out, "|{line}"))
                }
                Entry::Text(text) => writeln!(out, "{path} = {text}"),
                Entry::Link(target) => writeln!(out, "{path} -> {target}"),
                Entry::Unreadable(why) => writeln!(out, "{path} ! {why}"),
                // What has entries below it is there anyway.
                Entry::Present if self.has_inside(path) => Ok(()),
                Entry::Present => writeln!(out, "{path} ."),
            };
        }
        out
    }

    fn has_inside(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        self.entries.range(inside.clone()..).next().is_some_and(|(at, _)| at.starts_with(&inside))
    }

    /// Out of text, and how many lines were not understood. Empty lines and lines with `#` are
    /// passed over.
    pub fn parse(text: &str) -> (Tree, usize) {
        let (mut tree, mut odd) = (Tree::default(), 0);
        let mut open: Option<(String, Vec<&str>)> = None;
        for line in text.lines() {
            if let Some(inner) = line.strip_prefix('|') {
                match &mut open {
                    Some((_, lines)) => lines.push(inner),
                    None => odd += 1,
                }
                continue;
            }
            tree.close(open.take());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match one(line) {
                Some((path, Entry::Text(text))) if text.is_empty() => {
                    open = Some((path, Vec::new()));
                }
                Some((path, entry)) => tree.insert(path, entry),
                None => odd += 1,
            }
        }
        tree.close(open.take());
        (tree, odd)
    }

    fn close(&mut self, open: Option<(String, Vec<&str>)>) {
        if let Some((path, lines)) = open {
            self.insert(path, Entry::Text(lines.join("\n")));
        }
    }
}

fn one(line: &str) -> Option<(String, Entry)> {
    let (path, rest) = line.split_once(' ')?;
    if !path.starts_with('/') || path.ends_with('/') {
        return None;
    }
    let entry = match rest.split_at_checked(1)? {
        ("=", value) => Entry::Text(value.strip_prefix(' ').unwrap_or(value).to_owned()),
        ("-", target) => Entry::Link(target.strip_prefix("> ")?.to_owned()),
        ("!", why) => Entry::Unreadable(why.trim_start().to_owned()),
        (".", "") => Entry::Present,
        _ => return None,
    };
    Some((path.to_owned(), entry))
}

/// Whether a name can stand in `files.txt`.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Text of a device without what would break a line apart: control characters but newline and tab
/// become `?`.
pub fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "?")
}

#[cfg(test)]
mod tests {
    use super::{Entry, Tree};
    use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

    fn entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            "[ -~]{0,20}(\n[ -~]{0,9}){0,3}".prop_map(Entry::Text),
            "[!-~]{1,20}".prop_map(Entry::Link),
            "[a-z]{1,9}( [a-z]{1,9})?".prop_map(Entry::Unreadable),
            Just(Entry::Present),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_the_same(
            // Distinct folders, so that no entry makes another one needless.
            values in proptest::collection::btree_map("/[a-z]{1,4}-[0-9a-f:.]{1,9}", entry(), 0..9)
        ) {
            let mut tree = Tree::default();
            values.into_iter().for_each(|(path, entry)| tree.insert(path, entry));
            let (again, odd) = Tree::parse(&tree.print());
            assert_eq!(odd, 0);
            assert_eq!(again, tree);
        }

        #[test]
        fn no_text_makes_it_panic(text in "([ -~\n|=>!.]|\u{e9}|/sys/a){0,200}") {
            let (tree, _) = Tree::parse(&text);
            tree.names("/sys");
        }
    }

    #[test]
    fn lines_that_are_not_understood_are_counted_and_names_are_those_directly_below() {
        let (tree, odd) =
            Tree::parse("# words\n\n/a = 1\nb = 2\n/c\n|lost\n/d -> e\n/f/ = 1\n/g .\n");
        assert_eq!(odd, 4);
        assert_eq!(tree.get("/a"), Some(&Entry::Text("1".into())));
        assert_eq!(tree.names(""), ["a", "d", "g"]);
        let (tree, _) =
            Tree::parse("/sys/block/sda/size = 1\n/sys/block/sdb/size = 1\n/sys/blocks = 1");
        assert_eq!(tree.names("/sys/block"), ["sda", "sdb"]);
        assert_eq!(tree.names("/sys"), ["block", "blocks"]);
    }
}
