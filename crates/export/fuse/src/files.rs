//! Names, nodes and attributes of the one directory and its files.
//!
//! What must stay true: a name has the same node on every worker and after every restart, because
//! the kernel gives a request to any of them. The node is a hash of the name. The table here only
//! saves looking the name up again. Not here: the bytes of the files (`io`).

use crate::Files;
use crate::wire::{Attr, ROOT_NODE, put_dirent};
use ashlar_volume::{Volume, VolumeFacts};
use std::cell::RefCell;
use std::rc::Rc;

const NAME_BYTES_MAX: usize = 255;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_000;
const DIRENT_DIRECTORY: u32 = 4;
const DIRENT_FILE: u32 = 8;

/// A volume, and its facts as of the last look.
pub struct OpenFile<V> {
    pub node: u64,
    pub volume: V,
    pub facts: VolumeFacts,
}

/// What one worker knows of the files.
pub struct FileTable<F: Files> {
    files: F,
    known: RefCell<Vec<Rc<OpenFile<F::Volume>>>>,
}

impl<F: Files> FileTable<F> {
    pub fn new(files: F) -> FileTable<F> {
        FileTable { files, known: RefCell::new(Vec::new()) }
    }

    /// The file of a name, afresh: its volume may be new, resized, or gone.
    pub fn look_up(&self, name: &str) -> Option<Rc<OpenFile<F::Volume>>> {
        let node = node_of(name);
        let volume = if is_showable(name) { self.files.open(name) } else { None };
        let mut known = self.known.borrow_mut();
        known.retain(|file| file.node != node);
        let volume = volume?;
        let facts = volume.facts();
        let file = Rc::new(OpenFile { node, volume, facts });
        known.push(file.clone());
        Some(file)
    }

    /// The file of a node, afresh.
    pub fn refreshed(&self, node: u64) -> Option<Rc<OpenFile<F::Volume>>> {
        let name = self.files.names().into_iter().find(|name| node_of(name) == node);
        if let Some(name) = name {
            return self.look_up(&name);
        }
        self.known.borrow_mut().retain(|file| file.node != node);
        None
    }

    /// The file of a node, for reads and writes: as it was last seen, if it was.
    pub fn file(&self, node: u64) -> Option<Rc<OpenFile<F::Volume>>> {
        let known = self.known.borrow().iter().find(|file| file.node == node).cloned();
        known.or_else(|| self.refreshed(node))
    }

    /// Directory entries from position `from` on, as many as fit.
    pub fn list(&self, from: u64, bytes_max: usize) -> Vec<u8> {
        let mut names = self.files.names();
        names.retain(|name| is_showable(name));
        let mut entries = vec![
            (ROOT_NODE, ".".to_owned(), DIRENT_DIRECTORY),
            (ROOT_NODE, "..".to_owned(), DIRENT_DIRECTORY),
        ];
        entries.extend(names.into_iter().map(|name| (node_of(&name), name, DIRENT_FILE)));
        let mut out = Vec::new();
        for (position, (node, name, kind)) in (0u64..).zip(entries) {
            let is_wanted = position >= from;
            if is_wanted && !put_dirent(&mut out, bytes_max, (node, position + 1), (&name, kind)) {
                break;
            }
        }
        out
    }
}

/// Attributes of a volume's file.
pub fn file_attr(node: u64, facts: &VolumeFacts) -> Attr {
    Attr {
        ino: node,
        size_bytes: facts.size_bytes,
        sectors: facts.size_bytes / 512,
        mode: MODE_FILE | if facts.read_only { 0o400 } else { 0o600 },
        link_count: 1,
        block_bytes: facts.physical_block_bytes,
        ..Attr::default()
    }
}

/// Attributes of the directory.
pub fn directory_attr() -> Attr {
    Attr {
        ino: ROOT_NODE,
        mode: MODE_DIRECTORY | 0o755,
        link_count: 2,
        block_bytes: 4096,
        ..Attr::default()
    }
}

/// Which incarnation of a name: another array under an old name is another file.
pub fn generation_of(facts: &VolumeFacts) -> u64 {
    hash(&facts.uuid)
}

fn is_showable(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0'])
}

/// Never 0 (none) or 1 (the directory).
pub fn node_of(name: &str) -> u64 {
    hash(name.as_bytes()).max(ROOT_NODE + 1)
}

/// FNV-1a, 64 bits: two of a thousand names collide once in 10^13 directories.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
