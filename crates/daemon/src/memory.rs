//! The memory limit of this process: the machine's memory, and the limits of its control groups.
//!
//! What must stay true: the least of all limits counts, those of the groups above included. A limit
//! that cannot be read counts as none.

use ashlar_units::ByteSize;
use std::fs;
use std::path::{Path, PathBuf};

/// Part of the memory limit that payload takes at most if nobody says otherwise: an eighth. What
/// arrays and exports need besides is several times as much.
pub const SHARE: u64 = 8;

/// Where the older memory controller has a group's limit.
const OLD_LIMIT: &str = "memory.limit_in_bytes";

/// Payload memory of all workers together, in bytes: what is asked for, or `usual`, but no more
/// than a share of the `limit`.
///
/// # Errors
/// More is asked for than the limit.
pub fn payload_bytes(asked: Option<u64>, usual: u64, limit: Option<u64>) -> Result<u64, String> {
    let limit = limit.unwrap_or(u64::MAX);
    match asked {
        Some(asked) if asked > limit => Err(format!(
            "a pool of {} is more than this process may have, {}",
            ByteSize(asked),
            ByteSize(limit)
        )),
        Some(asked) => Ok(asked),
        None => Ok(usual.min(limit / SHARE)),
    }
}

/// Where the system tells, so that tests can tell something else.
pub struct Sources {
    /// The text of /proc/meminfo.
    pub meminfo: String,
    /// The text of /proc/self/cgroup.
    pub groups: String,
    /// Where control groups are mounted.
    pub root: PathBuf,
}

impl Sources {
    /// Those of this process.
    pub fn own() -> Sources {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Sources {
            meminfo: read("/proc/meminfo"),
            groups: read("/proc/self/cgroup"),
            root: PathBuf::from("/sys/fs/cgroup"),
        }
    }

    /// The most that this process may have, in bytes; `None` if nobody tells.
    pub fn limit_bytes(&self) -> Option<u64> {
        let groups = self.groups.lines().flat_map(|line| self.limits_of(line));
        physical_bytes(&self.meminfo).into_iter().chain(groups).min()
    }

    /// Whether the older memory controller limits this process: it may have whoever needs memory
    /// wait until pages are written back.
    pub fn is_limited_by_old_group(&self) -> bool {
        let limits = self.old_group().into_iter().flat_map(|line| self.limits_of(line));
        limits.min().is_some_and(|limit| limit < self.all_bytes())
    }

    /// The nearest group above this process's that has no limit, in the older memory controller.
    pub fn old_group_without_limit(&self) -> Option<PathBuf> {
        let (root, path) = (self.root.join("memory"), self.old_group()?.splitn(3, ':').nth(2)?);
        let own = root.join(path.trim_start_matches('/'));
        let is_free = |group: &&Path| match limit_of(&group.join(OLD_LIMIT)) {
            Some(limit) => limit >= self.all_bytes(),
            None => false,
        };
        let above = own.ancestors().take_while(|group| group.starts_with(&root));
        let upwards: Vec<&Path> = above.collect();
        // One with a limit limits all below it.
        upwards.iter().rev().copied().take_while(is_free).last().map(Path::to_owned)
    }

    fn old_group(&self) -> Option<&str> {
        let is_old = |line: &&str| {
            line.split(':').nth(1).is_some_and(|list| list.split(',').any(|name| name == "memory"))
        };
        self.groups.lines().find(is_old)
    }

    fn all_bytes(&self) -> u64 {
        physical_bytes(&self.meminfo).unwrap_or(u64::MAX)
    }

    /// Of one line: `0::PATH` in the unified hierarchy, `N:CONTROLLERS:PATH` in the older ones.
    fn limits_of(&self, line: &str) -> Vec<u64> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            return Vec::new();
        };
        let (roots, file): (&[&str], &str) = match controllers {
            "" => (&["", "unified"], "memory.max"),
            list if list.split(',').any(|name| name == "memory") => (&["memory"], OLD_LIMIT),
            _ => return Vec::new(),
        };
        let up = |root: &&str| up_the_hierarchy(&self.root.join(root), path, file);
        roots.iter().flat_map(up).collect()
    }
}

/// The limits of a group and of those above it. In a container the path may be that of the host:
/// what is there of it counts.
fn up_the_hierarchy(root: &Path, path: &str, file: &str) -> Vec<u64> {
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(|group| limit_of(&group.join(file))).collect()
}

fn limit_of(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn physical_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Sources, payload_bytes};
    use std::fs;
    use std::path::Path;

    const GIB: u64 = 1 << 30;

    fn sources(root: &Path, groups: &str) -> Sources {
        let meminfo = "MemTotal:       16777216 kB\nMemFree: 1 kB\n".to_owned();
        Sources { meminfo, groups: groups.to_owned(), root: root.to_owned() }
    }

    fn write(root: &Path, file: &str, content: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, content).expect("written");
    }

    #[test]
    fn payload_is_a_share_of_the_limit_unless_asked_for() {
        assert_eq!(payload_bytes(None, GIB, None), Ok(GIB));
        assert_eq!(payload_bytes(None, GIB, Some(16 * GIB)), Ok(GIB));
        assert_eq!(payload_bytes(None, GIB, Some(GIB)), Ok(GIB / 8));
        assert_eq!(payload_bytes(Some(GIB / 2), GIB, Some(GIB)), Ok(GIB / 2));
        let refused = payload_bytes(Some(2 * GIB), GIB, Some(GIB)).expect_err("too much");
        assert_eq!(refused, "a pool of 2 GiB is more than this process may have, 1 GiB");
    }

    #[test]
    fn the_least_limit_counts_up_the_hierarchy() {
        let root = tempfile::tempdir().expect("a directory for the test");
        let root = root.path();
        let limit = |groups: &str| sources(root, groups).limit_bytes();
        assert_eq!(limit("0::/a/b"), Some(16 * GIB), "no group tells anything");
        write(root, "a/memory.max", "4294967296\n");
        write(root, "a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), Some(4 * GIB), "of the group above");
        write(root, "a/b/memory.max", "1073741824\n");
        assert_eq!(limit("0::/a/b\n"), Some(GIB));
        assert_eq!(limit("0::/other\n"), Some(16 * GIB));
        assert_eq!(limit("0::/../../etc\n"), Some(16 * GIB), "a path of the host");
    }

    #[test]
    fn the_older_hierarchy_counts_as_well() {
        let root = tempfile::tempdir().expect("a directory for the test");
        let root = root.path();
        let groups = "12:cpu,cpuacct:/x\n7:memory:/x/y\n0::/\n";
        // What the kernel writes where there is no limit.
        write(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(sources(root, groups).limit_bytes(), Some(16 * GIB));
        write(root, "memory/x/memory.limit_in_bytes", "2147483648\n");
        assert_eq!(sources(root, groups).limit_bytes(), Some(2 * GIB));
        write(root, "unified/memory.max", "1073741824\n");
        assert_eq!(sources(root, groups).limit_bytes(), Some(GIB), "both are mounted");
    }

    #[test]
    fn only_the_older_hierarchy_has_its_members_wait_for_write_back() {
        let root = tempfile::tempdir().expect("a directory for the test");
        let root = root.path();
        let groups = "7:memory:/x/y\n0::/x\n";
        write(root, "unified/x/memory.max", "1073741824\n");
        write(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert!(!sources(root, groups).is_limited_by_old_group());
        write(root, "memory/x/memory.limit_in_bytes", "2147483648\n");
        assert!(sources(root, groups).is_limited_by_old_group());
        let free = || sources(root, groups).old_group_without_limit();
        assert_eq!(free(), Some(root.join("memory")));
        write(root, "memory/memory.limit_in_bytes", "4294967296\n");
        assert_eq!(free(), None, "the root of a container has a limit");
        fs::remove_file(root.join("memory/memory.limit_in_bytes")).expect("removed");
        assert_eq!(free(), None, "nobody tells");
    }
}
