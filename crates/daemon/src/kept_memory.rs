//! Memory that outlives a killed daemon: files on tmpfs, in the directory `written` beside the
//! control socket.
//!
//! What must stay true: only tmpfs counts, and only a directory that is this user's alone.
//! A file on a disk would survive a power cut in part, and what is in a page cache only would be
//! believed. A page of 4 KiB is written with one call to one page of the file: a kill comes before
//! the copy or after it.

use ashlar_engine::{KeptMemory, KeptPlace};
use rustix::fs::{OFlags, statfs};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the kernel calls tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The folder for it, on tmpfs.
pub(crate) struct TmpfsMemory {
    folder: PathBuf,
    boot: [u8; 16],
}

impl TmpfsMemory {
    /// The memory beside this control socket; `None` if the socket does not lie on tmpfs, or the
    /// boot is not known.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn beside(socket: &Path, boot: [u8; 16]) -> io::Result<Option<TmpfsMemory>> {
        let beside = match socket.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if boot == [0; 16] || statfs(beside)?.f_type != TMPFS_MAGIC {
            return Ok(None);
        }
        let folder = beside.join("written");
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => is_ours_alone(&folder)?,
        }
        Ok(Some(TmpfsMemory { folder, boot }))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Whoever can write there could forge a map, and the start would believe it.
fn is_ours_alone(folder: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && is_ours && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user alone", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).expect("a flag of open(2)");
    options.read(true).write(true).mode(0o600).custom_flags(no_follow);
    options
}

struct Place {
    file: File,
    path: PathBuf,
}

impl KeptMemory for TmpfsMemory {
    fn boot(&self) -> [u8; 16] {
        self.boot
    }

    fn make(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn KeptPlace>> {
        let path = self.file(name);
        let file = options().create(true).truncate(true).open(&path)?;
        file.set_len(bytes)?;
        Ok(Arc::new(Place { file, path }))
    }

    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn KeptPlace>>> {
        let path = self.file(name);
        match options().open(&path) {
            Ok(file) => Ok(Some(Arc::new(Place { file, path }))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn forget(&self, name: &str) {
        // What stays is of no start, and goes with the boot.
        let _stays = std::fs::remove_file(self.file(name));
    }
}

impl KeptPlace for Place {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(target, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn forget(&self) {
        // Empty it first: what has no pages is not believed, even if the name stays.
        let _is_empty = self.file.set_len(0);
        let _is_gone = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::TmpfsMemory;
    use ashlar_engine::KeptMemory;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const BOOT: [u8; 16] = [7; 16];

    /// A folder on tmpfs, if this machine has one where others have it.
    fn on_tmpfs() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir_in("/dev/shm").ok()?;
        let is_tmpfs = TmpfsMemory::beside(&folder.path().join("socket"), BOOT).ok()?.is_some();
        is_tmpfs.then_some(folder)
    }

    #[test]
    fn a_place_is_found_with_what_was_written_until_it_is_forgotten() {
        let folder = on_tmpfs().expect("/dev/shm is tmpfs");
        let socket = folder.path().join("socket");
        let memory = || TmpfsMemory::beside(&socket, BOOT).expect("made").expect("tmpfs");
        assert!(memory().open("a").expect("looked").is_none());
        memory().make("a", 8192).expect("made").write(4096, &[5; 4096]).expect("written");
        let place = memory().open("a").expect("looked").expect("it is there");
        let mut page = [0; 4096];
        place.read(4096, &mut page).expect("read");
        assert_eq!((place.bytes().expect("looked"), page), (8192, [5; 4096]));
        assert_eq!(memory().names(), ["a"]);
        place.forget();
        assert!(memory().open("a").expect("looked").is_none() && memory().names().is_empty());
        memory().make("b", 1).expect("made");
        memory().forget("b");
        assert!(memory().names().is_empty());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let folder = on_tmpfs().expect("/dev/shm is tmpfs");
        let (socket, written) = (folder.path().join("socket"), folder.path().join("written"));
        let refused = || TmpfsMemory::beside(&socket, BOOT).err().expect("refused").to_string();
        for mode in [0o770, 0o707, 0o740] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&written, mode).expect("ours");
            assert!(refused().contains("is not a directory of this user alone"));
        }
        std::fs::remove_dir(&written).expect("empty");
        std::os::unix::fs::symlink("/dev/shm", &written).expect("a link");
        assert!(refused().contains("is not a directory of this user alone"));
    }

    #[test]
    fn no_disk_is_such_memory_and_no_boot_without_a_name() {
        let folder = on_tmpfs().expect("/dev/shm is tmpfs");
        let unknown = TmpfsMemory::beside(&folder.path().join("socket"), [0; 16]);
        assert!(unknown.expect("looked").is_none());
        // A file system that is no tmpfs on any machine.
        assert!(TmpfsMemory::beside(Path::new("/proc/socket"), BOOT).expect("looked").is_none());
    }
}
