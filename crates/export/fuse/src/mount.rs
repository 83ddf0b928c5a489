//! The mount: how the kernel gets to know the directory, and how it forgets it again.
//!
//! What must stay true: a mount that was made here is unmounted when its value goes; the device
//! descriptor does not block, because the ring's thread must never sleep in it.

use crate::answer::PAYLOAD_BYTES_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Who carries out the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountBy {
    /// This process, which must be root.
    System,
    /// The set-user-id program fusermount3; for everybody.
    Fusermount,
}

impl MountBy {
    /// What this process can use.
    pub fn for_this_user() -> MountBy {
        if rustix::process::geteuid().is_root() { MountBy::System } else { MountBy::Fusermount }
    }
}

/// A mounted directory. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    device: Arc<OwnedFd>,
    by: MountBy,
    is_mounted: bool,
}

/// Mount on `directory`, which must exist. Files answer once a [`FuseServer`](crate::FuseServer)
/// runs.
///
/// # Errors
/// What open(2) of /dev/fuse, mount(2) or fusermount3 says.
pub fn mount(directory: &Path, by: MountBy) -> io::Result<Mount> {
    let directory = directory.canonicalize()?;
    let device = match by {
        MountBy::System => mount_as_root(&directory)?,
        MountBy::Fusermount => mount_by_fusermount(&directory)?,
    };
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    Ok(Mount { directory, device: Arc::new(device), by, is_mounted: true })
}

impl Mount {
    /// The kernel's end, for servers.
    pub fn device(&self) -> Arc<OwnedFd> {
        self.device.clone()
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Take the directory away if nobody has a file of it open; servers end then. Again is no
    /// error.
    ///
    /// # Errors
    /// `ResourceBusy` if somebody has; then nothing was changed. Else what umount2(2) or
    /// fusermount3 says.
    pub fn release(&mut self) -> io::Result<()> {
        if !self.is_mounted {
            return Ok(());
        }
        match self.by {
            MountBy::System => {
                rustix::mount::unmount(&self.directory, UnmountFlags::empty())?;
            }
            MountBy::Fusermount => {
                let output =
                    Command::new("fusermount3").args(["-u", "--"]).arg(&self.directory).output()?;
                let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if !output.status.success() {
                    let is_busy = complaint.contains("busy");
                    let kind =
                        if is_busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
                    return Err(io::Error::new(kind, complaint));
                }
            }
        }
        self.is_mounted = false;
        Ok(())
    }

    /// Take the directory away at once; servers end when the last open file is closed. Again is no
    /// error.
    ///
    /// # Errors
    /// What umount2(2) or fusermount3 says.
    pub fn unmount(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        match self.by {
            MountBy::System => {
                rustix::mount::unmount(&self.directory, UnmountFlags::DETACH)?;
                Ok(())
            }
            MountBy::Fusermount => {
                let mut command = Command::new("fusermount3");
                succeed(command.args(["-u", "-z", "--"]).arg(&self.directory))
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It can only fail because somebody else unmounted it.
        let _ = self.unmount();
    }
}

fn mount_as_root(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},allow_other,default_permissions,max_read={}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        PAYLOAD_BYTES_MAX,
    );
    let options = CString::new(options).expect("no zero byte in it");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("ashlar", directory, "fuse.ashlar", flags, options.as_c_str())?;
    Ok(device)
}

/// fusermount3 opens the device, mounts it, and passes it back over a socket that it inherits.
fn mount_by_fusermount(directory: &Path) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    let options = format!("default_permissions,max_read={PAYLOAD_BYTES_MAX},subtype=ashlar");
    let mut command = Command::new("fusermount3");
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    succeed(command.args(["-o", &options, "--"]).arg(directory))?;
    drop(theirs);
    receive_device(&ours)
}

fn receive_device(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return descriptors.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
