//! The FUSE export: one directory, one file per volume, for anything that can open a file.
//!
//! What must stay true: this crate knows [`Volume`] and nothing else of the engine; files bypass
//! the page cache, so what fsync(2) promises is what the volume's flush promises; a request is
//! answered exactly once.
//!
//! A file behaves like a block device: it has the volume's size, cannot be made longer or shorter
//! (O_TRUNC is accepted and ignored, as devices do), and holes can be punched. Reads and writes may
//! have any alignment: those that are not on the volume's logical blocks cost a read first, and
//! writes of them to one block wait for each other. So loop devices work with direct I/O and
//! without, whatever sector size they choose.
//!
//! Map, in reading order:
//! - `server`: the loop from /dev/fuse and back; how one request is carried out
//! - `attributes`: requests that nothing needs to be waited for; `files`: names, nodes and
//!   attributes
//! - `io`: reads and writes of any alignment on a volume
//! - `mount`: the mount, by mount(2) or fusermount3
//! - `answer`: what goes back; `counters`: what was done
//! - `wire`: pure; the kernel's bytes

#![forbid(unsafe_code)]

mod answer;
mod attributes;
mod counters;
mod files;
#[doc(hidden)]
pub mod hostile;
mod io;
mod mount;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use counters::FuseCounters;
pub use io::BusyBlocks;
pub use mount::{Mount, MountBy, mount};
pub use server::FuseServer;

use ashlar_volume::Volume;

/// The volumes to show as files. Cheap to clone; a clone lives on one worker. Volumes may come and
/// go while mounted: a file that was open when its volume went answers errors.
pub trait Files: Clone + 'static {
    /// The kind of volume.
    type Volume: Volume;

    /// The names to list. Names with a slash or longer than 255 bytes are not shown.
    fn names(&self) -> Vec<String>;

    /// The volume of this name.
    fn open(&self, name: &str) -> Option<Self::Volume>;
}
