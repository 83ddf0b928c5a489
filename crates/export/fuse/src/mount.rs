//! The mount: how the kernel gets to know the file, how another process takes it over, and how the
//! kernel forgets it again.
//!
//! What must stay true: a mount is unmounted when its value goes, unless it is left; device
//! descriptors do not block, because the ring's thread must never sleep in one. A mount lives as
//! long as any descriptor of it, and requests that were read through one die with that one: whoever
//! keeps a mount alive keeps all of them.

use crate::answer::PAYLOAD_BYTES_MAX;
use crate::wire::{NOTIFY_AGAIN, OUT_HEADER_BYTES, OutHeader};
use ashlar_ring::clone_fuse_device;
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
use zerocopy::IntoBytes;

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

/// A mounted file. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    file: PathBuf,
    /// One for each server.
    devices: Vec<Arc<OwnedFd>>,
    by: MountBy,
    is_mounted: bool,
}

/// Mount on `file`, a regular file that must exist, for so many servers. It answers once
/// [`FuseServer`](crate::FuseServer)s run.
///
/// # Errors
/// What open(2) of /dev/fuse, mount(2) or fusermount3 says.
pub fn mount(file: &Path, by: MountBy, servers: usize) -> io::Result<Mount> {
    let file = file.canonicalize()?;
    let device = match by {
        MountBy::System => mount_as_root(&file)?,
        MountBy::Fusermount => mount_by_fusermount(&file)?,
    };
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    let mut mount = Mount { file, devices: vec![Arc::new(device)], by, is_mounted: true };
    mount.clone_up_to(servers)?;
    Ok(mount)
}

impl Mount {
    /// The mount of a process that is gone, by all descriptors that it had, for so many servers.
    /// Requests that the process has read and not answered are read again, before all others; so
    /// nobody may serve the mount yet.
    ///
    /// # Errors
    /// The kernel cannot send requests again (before Linux 6.9), or the mount is gone. The mount is
    /// as it was.
    pub fn taken_over(
        file: PathBuf,
        by: MountBy,
        devices: Vec<Arc<OwnedFd>>,
        servers: usize,
    ) -> io::Result<Mount> {
        let first = devices.first().ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = u32::try_from(OUT_HEADER_BYTES).expect("short");
        let ask = OutHeader { bytes, error: NOTIFY_AGAIN, unique: 0 };
        rustix::io::write(first, ask.as_bytes())?;
        // Who was about to serve it and cannot leaves it as it was.
        let mut mount = Mount { file, devices, by, is_mounted: false };
        mount.clone_up_to(servers)?;
        mount.is_mounted = true;
        Ok(mount)
    }

    fn clone_up_to(&mut self, servers: usize) -> io::Result<()> {
        for _ in self.devices.len()..servers {
            let clone = clone_fuse_device(&self.devices[0])?;
            self.devices.push(Arc::new(clone));
        }
        Ok(())
    }

    /// The kernel's ends, one for each server and perhaps more.
    pub fn devices(&self) -> &[Arc<OwnedFd>] {
        &self.devices
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Leave it mounted, for another process that has its descriptors.
    pub fn leave(mut self) {
        self.is_mounted = false;
    }

    /// Take it away if nobody has it open; servers end then. Again is no error.
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
                rustix::mount::unmount(&self.file, UnmountFlags::empty())?;
            }
            MountBy::Fusermount => {
                let output =
                    Command::new("fusermount3").args(["-u", "--"]).arg(&self.file).output()?;
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

    /// Take it away at once; servers end when its last user closes it. Again is no error.
    ///
    /// # Errors
    /// What umount2(2) or fusermount3 says.
    pub fn unmount(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        match self.by {
            MountBy::System => {
                rustix::mount::unmount(&self.file, UnmountFlags::DETACH)?;
                Ok(())
            }
            MountBy::Fusermount => {
                let mut command = Command::new("fusermount3");
                succeed(command.args(["-u", "-z", "--"]).arg(&self.file))
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

fn mount_as_root(file: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let options = format!(
        "fd={},rootmode=100000,user_id={},group_id={},allow_other,default_permissions,max_read={}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        PAYLOAD_BYTES_MAX,
    );
    let options = CString::new(options).expect("no zero byte in it");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("ashlar", file, "fuse.ashlar", flags, options.as_c_str())?;
    Ok(device)
}

/// fusermount3 opens the device, mounts it, and passes it back over a socket that it inherits.
fn mount_by_fusermount(file: &Path) -> io::Result<OwnedFd> {
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
    succeed(command.args(["-o", &options, "--"]).arg(file))?;
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
