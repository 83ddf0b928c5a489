//! Programs of the system, found where a service without a PATH would not look.
//!
//! What must stay true: a child is started by its full path. If a name is to be looked for in a
//! PATH of the child's own, the standard library forks instead of `posix_spawn`. After a fork the
//! kernel writes to no page of the daemon without giving it anew, which it does not do for a
//! process that is being killed: users of attached volumes would get errors then (`ashlar_fuse`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where they are, in this order.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The program of this name. If it is not there, the error comes when it is started.
pub fn command(name: &str) -> Command {
    let mut paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    Command::new(paths.find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name)))
}
