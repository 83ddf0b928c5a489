//! One more descriptor of a FUSE connection: FUSE_DEV_IOC_CLONE of ioctl(2).
//!
//! What must stay true: the connection lives until the last descriptor of it is closed, and a
//! request is answered through the descriptor that it was read from. Not here: the protocol.

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// FUSE_DEV_IOC_CLONE: group 229, number 0; it reads the number of the descriptor to clone.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// A descriptor that reads requests of the same connection as `device`, by itself. It does not
/// block.
///
/// # Errors
/// What open(2) of /dev/fuse, or ioctl(2), says.
pub fn clone_fuse_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let clone = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let number = u32::try_from(device.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads one u32 at the address it is given, which is what a Setter of u32
    // passes, and writes nothing.
    let command = unsafe { Setter::<CLONE, u32>::new(number) };
    // SAFETY: `clone` is open; a device that does not know the command refuses it.
    unsafe { ioctl(&clone, command)? };
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::clone_fuse_device;
    use std::os::fd::OwnedFd;

    #[test]
    fn what_is_no_fuse_connection_is_not_cloned() {
        let file = OwnedFd::from(tempfile::tempfile().expect("a file"));
        assert!(clone_fuse_device(&file).is_err());
    }
}
