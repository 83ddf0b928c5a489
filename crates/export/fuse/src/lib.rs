//! The FUSE export: a volume is mounted on a regular file, for anything that can open a file.
//!
//! What must stay true: this crate knows [`Volume`](ashlar_volume::Volume) and nothing else of the
//! engine; files bypass the page cache, so what fsync(2) promises is what the volume's flush
//! promises; a request is answered exactly once, by whichever process holds the descriptors then.
//!
//! A file behaves like a block device: it has the volume's size, cannot be made longer or shorter
//! (O_TRUNC is accepted and ignored, as devices do), and holes can be punched. Reads and writes may
//! have any alignment: those that are not on the volume's logical blocks cost a read first, and
//! writes of them to one block wait for each other. So loop devices work with direct I/O and
//! without, whatever sector size they choose.
//!
//! Map, in reading order:
//! - `server`: the loop from /dev/fuse and back; how one request is carried out
//! - `queues`: the same over io_uring, where that was asked for and the kernel offers it
//! - `attributes`: requests that nothing needs to be waited for; `shown`: the volume as a file
//! - `io`: reads and writes of any alignment on a volume
//! - `mount`: the mount, by mount(2) or fusermount3; taking over one whose process is gone
//! - `leave`: telling servers to end and leave the mount as it is
//! - `answer`: what goes back; `counters`: what was done
//! - `wire`: pure; the kernel's bytes

#![forbid(unsafe_code)]

mod answer;
mod attributes;
mod counters;
#[doc(hidden)]
pub mod hostile;
mod io;
mod leave;
mod mount;
mod queues;
mod server;
mod shown;
#[cfg(test)]
mod tests;
mod wire;

pub use answer::PAYLOAD_BYTES_MAX;
pub use counters::FuseCounters;
pub use io::BusyBlocks;
pub use leave::Leave;
pub use mount::{Mount, MountBy, mount};
pub use queues::{Queues, RingOffer, possible_cpus, ring_offer};
pub use server::{Agreed, FuseServer};
