//! Others that serve memory the same way, for comparison by the same client, where they are
//! installed.
//!
//! What must stay true: a peer that is not here is left out and never a fault; what was started or
//! made is gone when a peer is dropped.

use super::blocks::Blocks;
use super::child::{Folder, Process};
use super::load::Asked;
use super::nbd::Nbd;
use super::vhost::Vhost;
use super::{Client, Via};
use crate::system_program::command;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

/// How long a peer may take until it serves.
const START_MAX: Duration = Duration::from_secs(10);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);
/// A file system in memory.
const TMPFS: &str = "/dev/shm";

/// A peer, with what it needs to be there.
pub(super) struct OtherExporter {
    pub(super) name: &'static str,
    pub(super) client: Box<dyn Client>,
    /// What serves it, which ends after the client.
    _process: Option<Process>,
    _device: Option<Loop>,
    _file: Option<OwnFile>,
}

/// The peers of an export that are here.
pub(super) fn peers(via: Via, asked: &Asked, folder: &Folder) -> Vec<OtherExporter> {
    let peers = match via {
        Via::Nbd => vec![nbdkit(asked, folder), qemu_nbd(asked, folder)],
        Via::Fuse | Via::Loop | Via::Ublk => vec![plain_loop(asked)],
        Via::VhostUser => vec![qemu_vhost_null(asked, folder), qemu_vhost_file(asked, folder)],
        Via::NvmeTcp => Vec::new(),
    };
    peers.into_iter().filter_map(Result::ok).collect()
}

fn nbdkit(asked: &Asked, folder: &Folder) -> io::Result<OtherExporter> {
    let socket = folder.path("nbdkit.sock");
    let mut command = command("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket);
    command.args(["memory", &asked.span_bytes.to_string()]);
    socket_peer("nbdkit memory", command, || Ok(Box::new(Nbd::connect(&socket, "")?)))
}

fn qemu_nbd(asked: &Asked, folder: &Folder) -> io::Result<OtherExporter> {
    let socket = folder.path("qemu-nbd.sock");
    let mut command = command("qemu-nbd");
    command.args(["--persistent", "--export-name", "", "--socket"]).arg(&socket);
    let image = format!("driver=null-co,size={},read-zeroes=off", asked.span_bytes);
    command.args(["--image-opts", &image]);
    socket_peer("qemu-nbd null", command, || Ok(Box::new(Nbd::connect(&socket, "")?)))
}

fn qemu_vhost_null(asked: &Asked, folder: &Folder) -> io::Result<OtherExporter> {
    let disk = format!("driver=null-co,size={},read-zeroes=off", asked.span_bytes);
    qemu_vhost("qemu null", &disk, &folder.path("qemu-null.sock"))
}

/// Unlike its null disk, this one moves the bytes.
fn qemu_vhost_file(asked: &Asked, folder: &Folder) -> io::Result<OtherExporter> {
    let file = OwnFile::new(asked.span_bytes)?;
    let disk = format!("driver=file,filename={}", file.0.display());
    let peer = qemu_vhost("qemu file on tmpfs", &disk, &folder.path("qemu-file.sock"))?;
    Ok(OtherExporter { _file: Some(file), ..peer })
}

fn qemu_vhost(name: &'static str, disk: &str, socket: &Path) -> io::Result<OtherExporter> {
    let mut command = command("qemu-storage-daemon");
    let export = "type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix";
    command.arg("--blockdev").arg(format!("{disk},node-name=disk"));
    command.arg("--export").arg(format!("{export},addr.path={}", socket.display()));
    socket_peer(name, command, || Ok(Box::new(Vhost::connect(socket)?)))
}

/// A peer at a socket, once it serves.
fn socket_peer(
    name: &'static str,
    mut command: Command,
    connect: impl Fn() -> io::Result<Box<dyn Client>>,
) -> io::Result<OtherExporter> {
    command.stderr(std::process::Stdio::null());
    let mut process = Process::start(&mut command)?;
    let end = Instant::now() + START_MAX;
    loop {
        match connect() {
            Ok(client) => {
                let (_process, _device, _file) = (Some(process), None, None);
                return Ok(OtherExporter { name, client, _process, _device, _file });
            }
            Err(error) if process.has_ended() || Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

fn plain_loop(asked: &Asked) -> io::Result<OtherExporter> {
    let file = OwnFile::new(asked.span_bytes)?;
    let device = Loop::over(&file.0)?;
    let client = Box::new(Blocks::open(device.path())?);
    let (_device, _file) = (Some(device), Some(file));
    Ok(OtherExporter { name: "loop on tmpfs", client, _process: None, _device, _file })
}

/// A file in memory that goes when this is dropped.
struct OwnFile(PathBuf);

impl OwnFile {
    /// Of `bytes`.
    fn new(bytes: u64) -> io::Result<OwnFile> {
        let path = PathBuf::from(format!("{TMPFS}/ashlar-bench-{}", std::process::id()));
        let file = File::create_new(&path)?;
        let own = OwnFile(path);
        file.set_len(bytes)?;
        Ok(own)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _kept = fs::remove_file(&self.0);
    }
}

/// A loop device that is let go when this is dropped.
pub(super) struct Loop {
    device: PathBuf,
}

impl Loop {
    /// Over a file that is there, with direct I/O.
    pub(super) fn over(file: &Path) -> io::Result<Loop> {
        let options = ["--find", "--show", "--direct-io=on", "--sector-size", "4096"];
        let output = command("losetup").args(options).arg(file).output()?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(told));
        }
        let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(Loop { device })
    }

    /// The device.
    pub(super) fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _kept = command("losetup").arg("--detach").arg(&self.device).output();
    }
}
