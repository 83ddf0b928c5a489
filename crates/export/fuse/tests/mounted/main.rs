//! A mounted directory with the kernel on the other side: files, loop devices and file systems on
//! them.
//!
//! Needs root, /dev/fuse and (for some) loop devices; a test that cannot run says so by name on
//! stderr.
//!
//! - `server`: servers in threads, and the mount
//! - `tools`: running programs, never for longer than a limit
//! - `files`: the files as programs see them
//! - `loops`: loop devices on the files, and ext4 on those
//! - `workers`: two workers on one mount

mod files;
mod loops;
mod server;
mod tools;
mod workers;
