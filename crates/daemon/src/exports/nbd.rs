//! NBD: listeners on one worker each, connections dealt out to all workers in turn.
//!
//! What must stay true: a session is known by number from its first byte to its last, with the volume it
//! opened, so that stopping an array can end exactly the sessions that use it.

use super::{address, locked};
use crate::config::NbdLimits;
use ashlar_api::v1::Done;
use ashlar_api::v1::export::{ExportStatus, NbdListen, NbdTls};
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayVolume, Engine, WorkerContext, event_names as names};
use ashlar_nbd::{Acceptor, Exports, Limits, NbdCounters, NbdServer, TlsFiles, TlsTerms};
use ashlar_ring::mailbox::{Sender, mailbox};
use ashlar_units::Nanos;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Everything served over NBD.
pub struct NbdExports {
    engine: Engine,
    shared: Arc<Shared>,
    listeners: Mutex<Vec<Listening>>,
}

/// One listener.
struct Listening {
    address: String,
    demands_tls: bool,
}

/// What listeners and sessions on all workers share.
struct Shared {
    limits: Limits,
    seats_per_peer: u64,
    peers: Arc<Peers>,
    counters: Arc<NbdCounters>,
    sessions: Mutex<BTreeMap<u64, Session>>,
    session_count: AtomicU64,
    next_worker: AtomicUsize,
    teller: Mutex<Teller>,
}

/// Connections by the address they came from.
#[derive(Default)]
struct Peers(Mutex<BTreeMap<IpAddr, u64>>);

/// One connection of an address; given back when dropped.
struct Seat {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Seat {
    /// One more connection of `peer`, unless it has `seats` of them.
    fn take(peers: &Arc<Peers>, peer: IpAddr, seats: u64) -> Option<Seat> {
        let mut taken = locked(&peers.0);
        let own = taken.entry(peer).or_insert(0);
        if *own >= seats {
            return None;
        }
        *own += 1;
        Some(Seat { peers: Arc::clone(peers), peer })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = locked(&self.peers.0);
        if let Some(own) = taken.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

/// The address that a connection came from; `None` for Unix sockets.
fn peer_of(socket: &OwnedFd) -> Option<IpAddr> {
    let address = rustix::net::getpeername(socket).ok()??;
    SocketAddr::try_from(address).ok().map(|address| address.ip().to_canonical())
}

/// Time between two events about dropped clients: a hostile one must not push everything else out of the log.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Decides which dropped clients get an event.
#[derive(Default)]
struct Teller {
    told_at: Option<Nanos>,
    untold: u64,
}

impl Teller {
    /// Whether to tell of a client dropped now, and of how many nothing was told since the last event.
    fn tell(&mut self, now: Nanos) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.since(at) < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// One connection.
struct Session {
    /// What it opened, once it did.
    volume: Option<String>,
    /// In the handshake, and not told to end.
    is_half_open: bool,
    /// A message ends it.
    end: Sender<()>,
}

impl NbdExports {
    /// No listener yet.
    pub fn new(engine: Engine, limits: &NbdLimits) -> NbdExports {
        let shared = Shared {
            limits: limits.limits(),
            seats_per_peer: limits.per_peer(),
            counters: Arc::default(),
            sessions: Mutex::default(),
            session_count: AtomicU64::default(),
            next_worker: AtomicUsize::default(),
            teller: Mutex::default(),
            peers: Arc::default(),
        };
        NbdExports { engine, shared: Arc::new(shared), listeners: Mutex::default() }
    }

    /// Serve all volumes by name at an address.
    ///
    /// # Errors
    /// The address makes no sense, or is taken, or a file of its TLS cannot be used.
    pub fn listen(&self, call: &NbdListen) -> Result<Done, ApiError> {
        let address = call.listen.as_str();
        let tls = call.tls.as_ref().map(terms).transpose()?;
        let demands_tls = tls.is_some();
        let at = address::parse(address, call.trusted_network || demands_tls)?;
        let mut listeners = locked(&self.listeners);
        if listeners.iter().any(|listening| listening.address == address) {
            return Ok(Done::unchanged(format!("already serving NBD at {address}")));
        }
        let listener = ashlar_nbd::listen(&at).map_err(|error| {
            let message = format!("cannot listen at {address}: {error}; nothing was changed");
            ApiError::new(
                codes::EXPORT_IMPOSSIBLE,
                message,
                "choose another address or free this one",
            )
        })?;
        let worker = listeners.len() % self.engine.worker_count();
        let (engine, shared) = (self.engine.clone(), Arc::clone(&self.shared));
        self.engine.run_on(worker, move |context| {
            let Some(ring) = context.ring() else { return };
            let limits = shared.limits.clone();
            let counters = Arc::clone(&shared.counters);
            let acceptor = Acceptor { handle: context.handle(), ring, listener, limits, counters };
            context.handle().spawn(async move {
                let error = acceptor.run(|socket| place(&engine, &shared, (socket, &tls))).await;
                let fields = vec![("reason", error.to_string())];
                engine.events().record(names::LISTENER_FAILED, "", fields);
            });
        });
        listeners.push(Listening { address: address.to_owned(), demands_tls });
        Ok(Done::changed(format!("serving NBD at {address}")))
    }

    /// Each listener.
    pub fn status(&self) -> Vec<ExportStatus> {
        let counters = &self.shared.counters;
        let requests = [&counters.reads, &counters.writes, &counters.flushes, &counters.trims];
        let requests = requests.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        let clients = counters.sessions_open.load(Ordering::Relaxed);
        let listeners = locked(&self.listeners);
        let status = |listening: &Listening| ExportStatus {
            protocol: if listening.demands_tls { "nbds" } else { "nbd" }.to_owned(),
            requests,
            address: listening.address.clone(),
            array: None,
            clients,
        };
        listeners.iter().map(status).collect()
    }

    /// How many sessions opened the array.
    pub fn clients_of(&self, array: &str) -> usize {
        let sessions = locked(&self.shared.sessions);
        sessions.values().filter(|session| session.volume.as_deref() == Some(array)).count()
    }

    /// Tell the sessions that opened the array to end.
    pub fn end_clients_of(&self, array: &str) {
        for session in locked(&self.shared.sessions).values() {
            if session.volume.as_deref() == Some(array) {
                session.end.send(());
            }
        }
    }

    /// Remove the sockets of Unix listeners; for the end of the process.
    pub fn remove_sockets(&self) {
        let listeners = locked(&self.listeners);
        for path in listeners.iter().filter_map(|it| it.address.strip_prefix("unix:")) {
            // It may be gone already.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Certificate, key and authority from the files that a call names.
fn terms(tls: &NbdTls) -> Result<TlsTerms, ApiError> {
    let [certificate, key, ca] = [&tls.certificate, &tls.key, &tls.ca].map(PathBuf::from);
    TlsTerms::read(&TlsFiles { certificate, key, ca }).map_err(|fault| {
        let hint = "name other files, or make them as docs/operating.md shows";
        ApiError::new(codes::REQUEST_MALFORMED, format!("{fault}; nothing was changed"), hint)
    })
}

/// Connections in the handshake are at most this part of all that may be there.
const HALF_OPEN_PART: u64 = 4;

/// If more than `most` are in the handshake, the oldest of them goes: whoever opens many and leaves them so makes room
/// with their own, and an honest client, which takes one round trip or a few, gets through.
fn end_oldest_half_open(sessions: &mut BTreeMap<u64, Session>, most: u64) {
    let half_open = sessions.values_mut().filter(|session| session.is_half_open);
    if ashlar_units::to_u64(half_open.count()) <= most.max(1) {
        return;
    }
    let mut half_open = sessions.values_mut().filter(|session| session.is_half_open);
    if let Some(oldest) = half_open.next() {
        oldest.is_half_open = false;
        oldest.end.send(());
    }
}

/// Give a connection to the next worker in turn. A peer that has too many is closed at once.
fn place(engine: &Engine, shared: &Arc<Shared>, (socket, tls): (OwnedFd, &Option<TlsTerms>)) {
    let peer = peer_of(&socket);
    let seat = peer.map(|peer| Seat::take(&shared.peers, peer, shared.seats_per_peer));
    if let Some(None) = seat {
        shared.counters.sessions_refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let seat = seat.flatten();
    let turn = shared.next_worker.fetch_add(1, Ordering::Relaxed);
    let shared = Arc::clone(shared);
    let (own, tls) = (engine.clone(), tls.clone());
    let serve = move |context: &WorkerContext| serve(context, (own, shared), (socket, seat, tls));
    engine.run_on(turn % engine.worker_count(), serve);
}

fn serve(
    context: &WorkerContext,
    (engine, shared): (Engine, Arc<Shared>),
    (socket, seat, tls): (OwnedFd, Option<Seat>, Option<TlsTerms>),
) {
    let Some(ring) = context.ring() else { return };
    let handle = context.handle();
    let (end, mut ended) = mailbox(&handle);
    let number = shared.session_count.fetch_add(1, Ordering::Relaxed);
    {
        let mut sessions = locked(&shared.sessions);
        sessions.insert(number, Session { volume: None, is_half_open: true, end });
        end_oldest_half_open(&mut sessions, shared.limits.sessions_max / HALF_OPEN_PART);
    }
    let volumes =
        Volumes { context: Rc::new(context.again()), shared: Arc::clone(&shared), session: number };
    let counters = Arc::clone(&shared.counters);
    let limits = shared.limits.clone();
    let server =
        NbdServer { handle: handle.clone(), ring, exports: volumes, limits, counters, tls };
    handle.spawn(async move {
        let end = until(server.serve(socket), ended.receive()).await;
        let now = server.handle.turn_now();
        // The volume goes before the session's entry does.
        drop((server, seat));
        let session = locked(&shared.sessions).remove(&number);
        let Some(Err(error)) = end else { return };
        if let Some(untold) = locked(&shared.teller).tell(now) {
            let volume = session.and_then(|session| session.volume).unwrap_or_default();
            let fields = vec![("reason", error.to_string()), ("untold", untold.to_string())];
            engine.events().record(names::CLIENT_DROPPED, &volume, fields);
        }
    });
}

/// `work`, unless `stop` comes first.
async fn until<T>(work: impl Future<Output = T>, stop: impl Future) -> Option<T> {
    let (mut work, mut stop) = (pin!(work), pin!(stop));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => stop.as_mut().poll(context).map(|_| None),
    })
    .await
}

/// The volumes of one worker, as one session sees them.
#[derive(Clone)]
struct Volumes {
    context: Rc<WorkerContext>,
    shared: Arc<Shared>,
    session: u64,
}

impl Exports for Volumes {
    type Volume = ArrayVolume;

    fn names(&self) -> Vec<String> {
        self.context.names()
    }

    fn open(&self, name: &str) -> Option<ArrayVolume> {
        let names = self.context.names();
        let name = match (name, names.as_slice()) {
            ("", [only]) => only,
            (name, _) => name,
        };
        let volume = self.context.volume(name)?;
        if let Some(session) = locked(&self.shared.sessions).get_mut(&self.session) {
            session.volume = Some(name.to_owned());
        }
        Some(volume)
    }

    fn began(&self) {
        if let Some(session) = locked(&self.shared.sessions).get_mut(&self.session) {
            session.is_half_open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Peers, Seat, TELL_EVERY, Teller};
    use ashlar_units::Nanos;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn one_address_has_so_many_seats_and_gets_them_back() {
        let peers = Arc::new(Peers::default());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let sit = |peer| Seat::take(&peers, peer, 2);
        let seats = [sit(one), sit(one)];
        assert!(seats.iter().all(Option::is_some));
        assert!(sit(one).is_none());
        assert!(sit(other).is_some());
        drop(seats);
        assert!(sit(one).is_some());
        assert!(peers.0.lock().expect("whole").is_empty(), "nobody sits, nothing is kept");
    }

    #[test]
    fn dropped_clients_are_told_of_once_a_second_and_the_others_counted() {
        let mut teller = Teller::default();
        let start = Nanos(5);
        assert_eq!(teller.tell(start), Some(0));
        for _ in 0..3 {
            assert_eq!(teller.tell(start.after(TELL_EVERY - Duration::from_nanos(1))), None);
        }
        assert_eq!(teller.tell(start.after(TELL_EVERY)), Some(3));
        assert_eq!(teller.tell(start.after(TELL_EVERY * 3)), Some(0));
    }
}
