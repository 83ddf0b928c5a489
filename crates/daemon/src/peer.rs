//! The peers of the control socket: their identity, and the share of the daemon that one may hold.
//!
//! What must stay true:
//! - A peer's identity comes from the kernel (SO_PEERCRED), never from the peer.
//! - Only root, the daemon's own user and the socket's group get more than a refusal, whatever the
//!   mode of the socket is.
//! - A connection that sends no whole request, or does not read its answer, ends by itself. It ends
//!   earlier if a newer one needs its seat.
//! - Users of the group together cannot take the connections that root and the daemon's user need.
//!
//! Not here: what a request means, and how large it may be (`control`).

use crate::descriptors::Spare;
use crate::guarded::{Guarded, Times};
use crate::seats::{Course, Room, Seat, Seats, Taken};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::yield_now;

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

/// The peer of a connection.
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
    /// Where its request is.
    pub(crate) course: Arc<Course>,
}

impl Connected<IncomingStream<'_, Gate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Peer {
        stream.remote_addr().clone()
    }
}

/// The connections of a control socket.
#[derive(Clone, Debug)]
pub struct ControlSeats {
    seats: Arc<Seats<u32>>,
    limit: usize,
}

impl ControlSeats {
    /// How many there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many there are.
    pub fn usage(&self) -> Taken {
        self.seats.usage()
    }
}

/// The control socket, listening.
#[derive(Debug)]
pub struct Gate {
    listener: UnixListener,
    path: PathBuf,
    spare: Spare,
    seats: Arc<Seats<u32>>,
    pub(crate) limits: PeerLimits,
}

impl Gate {
    /// Look at who connects to `listener`, which is bound to `path`.
    pub(crate) fn new(listener: UnixListener, path: &Path) -> Gate {
        let path = path.to_path_buf();
        let (seats, limits) = (Arc::default(), PeerLimits::default());
        Gate { listener, path, spare: Spare::kept(), seats, limits }
    }

    /// The same with other limits; for tests.
    #[must_use]
    pub fn with_limits(self, limits: PeerLimits) -> Gate {
        Gate { limits, ..self }
    }

    /// Its connections, for counting them.
    pub fn seats(&self) -> ControlSeats {
        ControlSeats { seats: Arc::clone(&self.seats), limit: self.limits.connections }
    }

    /// Who it is and its connection; `None` if too many are there.
    fn admit(&self, stream: UnixStream) -> Option<(Guarded<UnixStream, u32>, Peer)> {
        let credentials = stream.peer_cred().ok()?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let pid = credentials.pid().unwrap_or(0);
        let is_allowed = is_privileged(uid) || self.is_of_group(gid, pid);
        let seat = seat(&self.seats, uid, &self.limits)?;
        let peer = Peer { uid, gid, pid, is_allowed, course: Arc::clone(&seat.course) };
        let times = Times { head: self.limits.head_time, send: self.limits.send_time };
        Some((Guarded::new(stream, seat, times), peer))
    }

    /// Whether a process of group `gid` is of the socket's group, as its first group or as one
    /// more.
    fn is_of_group(&self, gid: u32, pid: i32) -> bool {
        let Ok(socket) = std::fs::metadata(&self.path) else { return false };
        gid == socket.gid() || further_groups(pid).contains(&socket.gid())
    }
}

/// Root and the daemon's own user.
fn is_privileged(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The supplementary groups of a process. The kernel has let it open the socket by them; here it is
/// asked once more.
fn further_groups(pid: i32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// A seat for `uid`. Root and the daemon's user may have anybody's; others that of one of
/// themselves.
fn seat(seats: &Arc<Seats<u32>>, uid: u32, limits: &PeerLimits) -> Option<Seat<u32>> {
    let (anybody, is_other) = (|_: &u32| true, |uid: &u32| !is_privileged(*uid));
    let is_own = |other: &u32| *other == uid;
    let all = Room { counts: &anybody, seats: limits.connections, yields: &anybody };
    if is_privileged(uid) {
        return Seats::take(seats, uid, &[all]);
    }
    let own = Room { counts: &is_own, seats: limits.connections_of_one, yields: &is_own };
    let others = Room { counts: &is_other, seats: limits.connections_of_others, yields: &is_other };
    Seats::take(seats, uid, &[own, others, Room { yields: &is_other, ..all }])
}

impl Listener for Gate {
    type Io = Guarded<UnixStream, u32>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Peer) {
        loop {
            // Connections that were accepted before go on first.
            yield_now().await;
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // One too many is closed at once.
                    if let Some(admitted) = self.admit(stream) {
                        return admitted;
                    }
                }
                Err(error) => {
                    let listener = &self.listener;
                    self.spare.close_one(&error, |context| listener.poll_accept(context)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerLimits, seat};
    use crate::seats::{Seat, Seats, Serving};
    use std::sync::Arc;

    #[test]
    fn users_of_the_group_leave_room_for_root_and_take_none_of_its() {
        let seats = Arc::new(Seats::default());
        let limits = PeerLimits {
            connections_of_one: 2,
            connections_of_others: 3,
            connections: 5,
            ..PeerLimits::default()
        };
        // All of them have something in hand, so none makes room.
        let take = |uid| {
            let seat = seat(&seats, uid, &limits)?;
            let mut serving = Serving::begun(&seat.course);
            serving.carry_out();
            Some((seat, serving))
        };
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
        assert_eq!(seats.usage().now, 0, "nobody sits, nothing is kept");
    }

    #[test]
    fn idle_connections_of_anybody_make_room_for_root_and_those_of_root_for_nobody_else() {
        let seats = Arc::new(Seats::default());
        let limits = PeerLimits { connections: 3, ..PeerLimits::default() };
        let sit = |uid| seat(&seats, uid, &limits);
        let has_ended = |seat: &mut Option<Seat<u32>>| {
            let seat = seat.as_mut().expect("let in");
            seat.ended.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Closed)
        };
        let mut of_root = [sit(0), sit(0), sit(0)];
        let stranger = 4_000_000_001;
        assert!(sit(stranger).is_none(), "root has all of them");
        let mut newest = sit(0);
        assert!(has_ended(&mut of_root[0]) && !has_ended(&mut newest));
        drop(newest);
        let mut of_stranger = sit(stranger);
        of_root[0] = sit(0);
        assert!(has_ended(&mut of_root[1]), "the oldest");
        assert!(!has_ended(&mut of_stranger) && !has_ended(&mut of_root[2]));
    }
}
