//! A member that can be destroyed: a file in a file system of its own, which answers every request
//! with an error once it is shut down.

use crate::tools::run;
use crate::world::{MEMBER_BYTES, World};
use std::path::{Path, PathBuf};

/// Bytes of the file system; XFS makes none below 300 MiB.
const BYTES: u64 = 320 << 20;

/// A mounted file system with one file in it. Unmounted when dropped.
pub struct Doomed {
    place: PathBuf,
}

impl Doomed {
    /// What keeps it from being made here, if anything does.
    pub fn missing() -> Option<&'static str> {
        let is_possible =
            rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
        (!is_possible).then_some("a member that vanishes needs root and loop devices")
    }

    /// A file of the size of a member; and its path in the world's folder.
    pub fn member(world: &World) -> (Doomed, String) {
        world.sparse("doomed.image", BYTES);
        let (image, place) = (world.path("doomed.image"), world.path("doomed"));
        let [from, to] = [&image, &place].map(|path| path.to_str().expect("text"));
        std::fs::create_dir(&place).expect("folder");
        run("mkfs.xfs", &["-q", from]);
        run("mount", &["-o", "loop", from, to]);
        let doomed = Doomed { place };
        world.sparse("doomed/member", MEMBER_BYTES);
        (doomed, "doomed/member".to_owned())
    }

    /// Nobody has it open any more: it answers again, with what was durable on it.
    pub fn revive(&self) {
        let (image, place) = (self.place.with_extension("image"), &self.place);
        let [from, to] = [&image, place].map(|path| path.to_str().expect("text"));
        run("umount", &[to]);
        run("mount", &["-o", "loop", from, to]);
    }

    /// From now on every request to the file fails.
    pub fn destroy(&self) {
        run("xfs_io", &["-x", "-c", "shutdown", self.place.to_str().expect("text")]);
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        // Lazily: the daemon may hold the file still.
        run("umount", &["-l", self.place.to_str().expect("text")]);
    }
}
