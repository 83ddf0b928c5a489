//! The NUMA nodes of this machine: which cores each has, and putting memory on one of them.
//!
//! What must stay true: a machine with one node, or whose kernel does not tell, behaves as if there
//! were no nodes. A thread has a node only if all cores that it may run on are on that node.

#[cfg(not(miri))]
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;
use std::path::Path;
#[cfg(not(miri))]
use std::ptr::NonNull;
use std::sync::LazyLock;

/// Where the kernel lists nodes.
const NODES: &str = "/sys/devices/system/node";

/// The nodes that have cores; none if there are fewer than two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nodes(Vec<(u32, Vec<usize>)>);

impl Nodes {
    /// Those of this machine, asked once a process.
    pub fn here() -> &'static Nodes {
        static HERE: LazyLock<Nodes> = LazyLock::new(|| Nodes::read(Path::new(NODES)));
        &HERE
    }

    /// Those that the folder lists as sysfs does.
    pub fn read(folder: &Path) -> Nodes {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let node = |entry: fs::DirEntry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let cores = cores(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
            (!cores.is_empty()).then_some((number, cores))
        };
        let mut nodes: Vec<_> = entries.filter_map(node).collect();
        nodes.sort_unstable();
        if nodes.len() < 2 { Nodes::default() } else { Nodes(nodes) }
    }

    /// Whether there are several.
    pub fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// The node of a core.
    pub fn of_core(&self, core: usize) -> Option<u32> {
        let (node, _) = self.0.iter().find(|(_, cores)| cores.contains(&core))?;
        Some(*node)
    }

    /// The one node that the calling thread may run on.
    pub fn of_thread(&self) -> Option<u32> {
        if !self.are_there() {
            return None;
        }
        let mut nodes = own_cores().into_iter().map(|core| self.of_core(core));
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then_some(first)
    }
}

#[cfg(not(miri))]
fn own_cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect()
}

#[cfg(miri)]
fn own_cores() -> Vec<usize> {
    Vec::new()
}

/// The cores of a list as the kernel writes it: `0-3,8-11`.
fn cores(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// Has the kernel take the pages of a mapping of ours from this node while it has free ones,
/// whichever thread uses a page first. Whether it does.
#[cfg(not(miri))]
pub(crate) fn prefer(node: u32, start: NonNull<u8>, bytes: usize) -> bool {
    const WORD_BITS: usize = usize::BITS as usize;
    /// More nodes than Linux can have.
    const WORDS: usize = 1024 / WORD_BITS;
    let Ok(node) = usize::try_from(node) else { return false };
    let mut mask = [0_usize; WORDS];
    let Some(word) = mask.get_mut(node / WORD_BITS) else { return false };
    *word = 1 << (node % WORD_BITS);
    // The kernel takes one bit less than it is told.
    let bits = WORDS * WORD_BITS + 1;
    let (mode, flags) = (libc::c_long::from(libc::MPOL_PREFERRED), 0_usize);
    // SAFETY: the mask is as long as it is told to be, and a policy changes no content.
    let done = unsafe {
        libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, mode, mask.as_ptr(), bits, flags)
    };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::{Nodes, cores};
    use std::fs;

    fn machine(nodes: &[(&str, &str)]) -> Nodes {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, list) in nodes {
            fs::create_dir(folder.path().join(name)).expect("made");
            fs::write(folder.path().join(name).join("cpulist"), list).expect("written");
        }
        fs::create_dir(folder.path().join("power")).expect("made");
        Nodes::read(folder.path())
    }

    #[test]
    fn every_core_has_its_node() {
        let nodes = machine(&[("node0", "0-1,4\n"), ("node2", "\n"), ("node10", "2-3\n")]);
        assert!(nodes.are_there());
        let of = [0, 1, 2, 3, 4, 5].map(|core| nodes.of_core(core));
        assert_eq!(of, [Some(0), Some(0), Some(10), Some(10), Some(0), None]);
    }

    #[test]
    fn one_node_with_cores_is_none() {
        for nodes in [&[][..], &[("node0", "0-7\n")], &[("node0", "0-7\n"), ("node1", "\n")]] {
            let nodes = machine(nodes);
            assert!(!nodes.are_there());
            assert_eq!((nodes.of_core(0), nodes.of_thread()), (None, None));
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn a_thread_has_a_node_if_all_its_cores_are_there() {
        let own = super::own_cores();
        let list =
            |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let beyond = own.iter().max().expect("some core") + 1;
        let all = machine(&[("node0", &beyond.to_string()), ("node1", &list(&own))]);
        assert_eq!(all.of_thread(), Some(1));
        let (first, others) = own.split_first().expect("some core");
        let others = [others, &[beyond]].concat();
        let split = machine(&[("node0", &list(&others)), ("node1", &first.to_string())]);
        assert_eq!(split.of_thread(), (own.len() == 1).then_some(1));
    }

    #[test]
    fn lists_of_cores_are_as_the_kernel_writes_them() {
        assert_eq!(cores("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(cores("\n"), Some(vec![]));
        assert_eq!(cores("x"), None);
    }
}
