//! Names that stay: `/dev/ashlar/NAME` for the block device of an attached volume.
//!
//! udev makes the links (60-ashlar.rules): the daemon writes which volume a device serves into
//! `/run/ashlar/devices/DEVICE` and has the kernel announce the device once more. So systemd knows
//! the name, and file systems in fstab can wait for it. Without udev the daemon makes the link.
//!
//! What must stay true: a link is given by the daemon of this machine only, the one at the usual
//! control socket. What a device that is gone said is taken away before another has its name.

use std::fs;
use std::io;
use std::path::Path;

/// One file for each device that serves a volume.
const DEVICES: &str = "/run/ashlar/devices";
/// The links.
const LINKS: &str = "/dev/ashlar";
/// Whoever listens here makes links.
const UDEV: &str = "/run/udev/control";

/// Give the block device at `device` the name of its volume; the link's path.
///
/// # Errors
/// What the system says: the device is there without the name.
pub fn give(device: &str, volume: &str) -> io::Result<String> {
    let link = format!("{LINKS}/{volume}");
    let name = device.strip_prefix("/dev/").ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(DEVICES)?;
    fs::write(Path::new(DEVICES).join(name), format!("ASHLAR_VOLUME={volume}\n"))?;
    if Path::new(UDEV).exists() {
        announce(name)?;
    } else if fs::read_link(&link).ok().as_deref() != Some(Path::new(device)) {
        fs::create_dir_all(LINKS)?;
        let fresh = format!("{link}.new");
        let _none = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(device, &fresh)?;
        fs::rename(&fresh, &link)?;
    }
    Ok(link)
}

/// Take the name of a volume away, whichever device had it.
pub fn take(volume: &str) {
    let said = format!("ASHLAR_VOLUME={volume}\n");
    for file in fs::read_dir(DEVICES).into_iter().flatten().flatten() {
        if fs::read_to_string(file.path()).is_ok_and(|text| text == said) {
            let _gone = fs::remove_file(file.path());
            // The device may be gone.
            let _unheard = announce(&file.file_name().to_string_lossy());
        }
    }
    if !Path::new(UDEV).exists() {
        let _none = fs::remove_file(format!("{LINKS}/{volume}"));
    }
}

fn announce(name: &str) -> io::Result<()> {
    fs::write(Path::new("/sys/class/block").join(name).join("uevent"), "change")
}
