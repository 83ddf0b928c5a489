//! Who is at the other end of the control socket, and how much of the daemon one of them may hold.
//!
//! What must stay true: a peer is what the kernel says it is (SO_PEERCRED) and never what it says itself; nobody but root,
//! the daemon's own user and the socket's group gets an answer other than a refusal, whatever the mode of the socket is; a
//! connection that sends no whole request, or does not read its answer, ends by itself; users of the group together
//! cannot take the connections that root and the daemon's user need.
//! Not here: what a request means, and how large it may be (`control`).

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep};

/// Pause after an accept that failed for want of a resource.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What peers of the control socket may hold.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Connections of one user at the same time; not for root and the daemon's user.
    pub connections_of_one: usize,
    /// Connections of all users but these two.
    pub connections_of_others: usize,
    /// All connections.
    pub connections: usize,
    /// Time for the head of a request, and how long a connection may be idle.
    pub head_time: Duration,
    /// Time for the body of a request.
    pub body_time: Duration,
    /// Time in which a peer must take something of its answer.
    pub send_time: Duration,
    /// Longest body, bytes.
    pub body_bytes: usize,
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits {
            connections_of_one: 24,
            connections_of_others: 48,
            connections: 64,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            send_time: Duration::from_secs(60),
            body_bytes: 256 << 10,
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its user when it connected.
    pub uid: u32,
    /// Its group when it connected.
    pub gid: u32,
    /// Its process when it connected; 0 if that is not visible from here.
    pub pid: i32,
    /// Root, the daemon's user, or of the socket's group.
    pub is_allowed: bool,
    /// Requests of this connection that are being answered.
    pub(crate) serving: Arc<AtomicUsize>,
}

impl Connected<IncomingStream<'_, Gate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Peer {
        stream.remote_addr().clone()
    }
}

/// The control socket, listening.
#[derive(Debug)]
pub struct Gate {
    listener: UnixListener,
    path: PathBuf,
    seats: Arc<Seats>,
    pub(crate) limits: PeerLimits,
}

impl Gate {
    /// Look at who connects to `listener`, which is bound to `path`.
    pub(crate) fn new(listener: UnixListener, path: &Path) -> Gate {
        let path = path.to_path_buf();
        Gate { listener, path, seats: Arc::default(), limits: PeerLimits::default() }
    }

    /// The same with other limits; for tests.
    #[must_use]
    pub fn with_limits(self, limits: PeerLimits) -> Gate {
        Gate { limits, ..self }
    }

    /// Who it is and its connection; `None` if too many are there.
    fn admit(&self, stream: UnixStream) -> Option<(Guarded, Peer)> {
        let credentials = stream.peer_cred().ok()?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let pid = credentials.pid().unwrap_or(0);
        let is_allowed = is_privileged(uid) || self.is_of_group(gid, pid);
        let serving = Arc::new(AtomicUsize::new(0));
        let peer = Peer { uid, gid, pid, is_allowed, serving: Arc::clone(&serving) };
        let seat = Seats::take(&self.seats, uid, &self.limits)?;
        Some((Guarded::new(stream, seat, serving, self.limits), peer))
    }

    /// Whether a process of group `gid` is of the socket's group, as its first group or as one more.
    fn is_of_group(&self, gid: u32, pid: i32) -> bool {
        let Ok(socket) = std::fs::metadata(&self.path) else { return false };
        gid == socket.gid() || further_groups(pid).contains(&socket.gid())
    }
}

/// Root and the daemon's own user.
fn is_privileged(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The supplementary groups of a process. The kernel has let it open the socket by them; here it is asked once more.
fn further_groups(pid: i32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

impl Listener for Gate {
    type Io = Guarded;
    type Addr = Peer;

    async fn accept(&mut self) -> (Guarded, Peer) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // One too many is closed at once.
                    if let Some(admitted) = self.admit(stream) {
                        return admitted;
                    }
                }
                Err(_) => sleep(ACCEPT_RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Connections by user.
#[derive(Debug, Default)]
struct Seats(Mutex<BTreeMap<u32, usize>>);

/// One connection of a user; given back when dropped.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    uid: u32,
}

impl Seats {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(seats: &Arc<Seats>, uid: u32, limits: &PeerLimits) -> Option<Seat> {
        let mut taken = seats.locked();
        let all: usize = taken.values().sum();
        let of_others = taken.iter().filter(|(uid, _)| !is_privileged(**uid));
        let of_others: usize = of_others.map(|(_, count)| count).sum();
        let own = taken.get(&uid).copied().unwrap_or(0);
        let has_room = all < limits.connections
            && (is_privileged(uid)
                || own < limits.connections_of_one && of_others < limits.connections_of_others);
        if !has_room {
            return None;
        }
        taken.insert(uid, own + 1);
        Some(Seat { seats: Arc::clone(seats), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.locked();
        let left = taken.get(&self.uid).map_or(0, |own| own - 1);
        if left == 0 {
            taken.remove(&self.uid);
        } else {
            taken.insert(self.uid, left);
        }
    }
}

/// A connection that ends when its peer takes too long.
#[derive(Debug)]
pub struct Guarded {
    stream: UnixStream,
    _seat: Seat,
    serving: Arc<AtomicUsize>,
    limits: PeerLimits,
    /// Running while no request is being answered; `None` before it was first needed and while one is.
    head: Option<Pin<Box<Sleep>>>,
    /// Running while the peer takes nothing of what is to be sent.
    send: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    fn new(
        stream: UnixStream,
        seat: Seat,
        serving: Arc<AtomicUsize>,
        limits: PeerLimits,
    ) -> Guarded {
        Guarded { stream, _seat: seat, serving, limits, head: None, send: None }
    }

    /// What came of a write: while nothing is taken, time runs.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.send = None;
            return polled;
        }
        let time = self.limits.send_time;
        ready!(self.send.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.serving.load(Ordering::Relaxed) > 0 {
            // It waits for us. Its next request has all its time again.
            self.head = None;
            return polled;
        }
        // Bytes that trickle in do not prolong it.
        let time = self.limits.head_time;
        let head = self.head.get_or_insert_with(|| Box::pin(sleep(time)));
        match polled {
            Poll::Ready(_) if head.deadline() > Instant::now() => polled,
            Poll::Pending if head.as_mut().poll(context).is_pending() => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerLimits, Seats};
    use std::sync::Arc;

    #[test]
    fn users_of_the_group_leave_room_for_root() {
        let seats = Arc::new(Seats::default());
        let limits = PeerLimits {
            connections_of_one: 2,
            connections_of_others: 3,
            connections: 5,
            ..PeerLimits::default()
        };
        let take = |uid| Seats::take(&seats, uid, &limits);
        let [one, other] = [4_000_000_001, 4_000_000_002];
        let of_one = [take(one), take(one)];
        assert!(of_one.iter().all(Option::is_some) && take(one).is_none());
        let of_other = take(other);
        assert!(of_other.is_some() && take(other).is_none(), "others have three in all");
        let of_root = [take(0), take(0)];
        assert!(of_root.iter().all(Option::is_some) && take(0).is_none());
        drop((of_one, of_root));
        assert!(take(one).is_some());
        drop(of_other);
        assert!(seats.locked().is_empty(), "nobody sits, nothing is kept");
    }
}
