//! Listening and accepting.
//!
//! What must stay true: a Unix socket has its final permissions before anybody can connect to it,
//! and never takes the path of a server that still answers; an accept that fails for want of
//! descriptors is tried again, not fatal. Not here: which worker serves a connection. The caller
//! chooses.

use ashlar_ring::{Handle, Ring};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Pause after an accept that failed for want of a resource.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Where to listen.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A Unix socket at this path with these permission bits.
    Unix(PathBuf, u32),
    /// A TCP address: for trusted networks only, unless its sessions demand TLS.
    Tcp(SocketAddr),
}

/// Open a listening socket.
///
/// # Errors
/// `AddrInUse` if somebody answers at the Unix path or holds the TCP address; else what the system
/// says.
pub fn listen(at: &Listen) -> io::Result<Arc<OwnedFd>> {
    let listener = match at {
        Listen::Unix(path, mode) => listen_unix(path, *mode)?,
        Listen::Tcp(address) => OwnedFd::from(TcpListener::bind(address)?),
    };
    Ok(Arc::new(listener))
}

fn listen_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    remove_stale(path)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Linux gives the path the socket's own mode less the umask, so it is never wider than asked
    // for.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Remove a socket that a dead server left at `path`.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Ok(_) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// How many sessions there are and were. `open` falls again, the others only rise.
#[derive(Debug, Default)]
pub struct SessionCounters {
    /// Connections now.
    pub open: AtomicU64,
    /// Connections that got past the handshake.
    pub total: AtomicU64,
    /// Connections turned away because there were too many.
    pub refused: AtomicU64,
}

impl SessionCounters {
    /// Counts a connection while the value lives.
    pub fn count_open(&self) -> OpenSession<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenSession(self)
    }
}

/// Counts a connection while it lives.
pub struct OpenSession<'a>(&'a SessionCounters);

impl Drop for OpenSession<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections of one listener on one worker.
pub struct Acceptor {
    /// The accepting worker's executor.
    pub handle: Handle,
    /// The accepting worker's ring.
    pub ring: Ring,
    /// From [`listen`].
    pub listener: Arc<OwnedFd>,
    /// Sessions at the same time, over all workers.
    pub sessions_max: u64,
    /// Shared with all workers.
    pub sessions: Arc<SessionCounters>,
}

impl Acceptor {
    /// Accept for ever and hand each connection to `place`, which chooses its worker. With too many
    /// sessions open, a new connection is closed at once. Returns only when the listener cannot be
    /// used any more.
    pub async fn run(&self, place: impl Fn(OwnedFd)) -> io::Error {
        use rustix::io::Errno;
        loop {
            match self.ring.accept(&self.listener).await {
                Ok(socket) if self.has_room() => place(socket),
                Ok(_) => {
                    self.sessions.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN | Errno::PERM) => {}
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.handle.sleep(ACCEPT_RETRY).await;
                    }
                    _ => return error,
                },
            }
        }
    }

    fn has_room(&self) -> bool {
        self.sessions.open.load(Ordering::Relaxed) < self.sessions_max
    }
}
