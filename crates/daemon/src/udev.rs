//! Waiting for udev, so that the next command of a script finds what this one has made.
//!
//! What must stay true: where udev does not run, nothing is waited for. A wait has an end, and what
//! is not there by then is told.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Who makes device nodes and links listens here.
const UDEV: &str = "/run/udev/control";
/// How often to look for a node, and how long to wait between.
const LOOKS: u32 = 100;
const POLL: Duration = Duration::from_millis(100);

/// Wait until udev has dealt with all that has happened to devices. udev reads a table of
/// partitions once more when its writer has closed the drive: its partitions are gone for a moment.
pub fn settle() {
    if is_here() {
        let mut udevadm = Command::new("udevadm");
        udevadm.args(["settle", "--timeout=60"]).stdin(Stdio::null()).stdout(Stdio::null());
        let _settled = udevadm.stderr(Stdio::null()).status();
    }
}

/// Whether udev runs on this machine.
#[must_use]
pub fn is_here() -> bool {
    Path::new(UDEV).exists()
}

/// Wait until there is something at `path`, at most for ten seconds. Whether there is.
#[must_use]
pub fn has_made(path: &Path) -> bool {
    (0..LOOKS).any(|look| {
        if look != 0 {
            std::thread::sleep(POLL);
        }
        path.exists()
    })
}
