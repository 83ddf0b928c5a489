//! A mounted file with the kernel on the other side: the file, loop devices and file systems on it.
//!
//! Needs root, /dev/fuse and (for some) loop devices; a test that cannot run says so by name on
//! stderr.
//!
//! - `server`: servers in threads, and the mount
//! - `tools`: running programs, never for longer than a limit
//! - `files`: the file as programs see it
//! - `loops`: loop devices on the file, and ext4 on those
//! - `over_ring`: what io_uring does that reading the device does not; `parameter` allows it
//! - `workers`: two workers on one mount

mod files;
mod loops;
mod over_ring;
mod parameter;
mod server;
mod tools;
mod workers;
