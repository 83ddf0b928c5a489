//! NBD: listeners on one worker each, connections dealt out to all workers in turn.
//!
//! What must stay true: a session is known by number from its first byte to its last, with the
//! volume it opened, so that stopping an array can end exactly the sessions that use it.

use super::{Export, Say, Work, address, locked, wait_until};
use crate::arrays::Arrays;
use crate::backend::Serves;
use crate::config::{Config, NbdLimits};
use crate::services::{Service, Services};
use ashlar_api::v1::Done;
use ashlar_api::v1::export::{ExportStatus, NbdListen, NbdTls};
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayVolume, Engine, WorkerContext, event_names as names};
use ashlar_nbd::{Exports, Limits, NbdCounters, NbdServer, TlsFiles, TlsTerms};
use ashlar_ring::until;
use ashlar_session::{Acceptor, Seat, Seats, SessionEntry, Sessions, Share, peer_of};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// How often to try to listen while a killed predecessor holds the address.
const LISTEN_POLL: Duration = Duration::from_millis(20);

/// Everything served over NBD.
pub struct NbdExports {
    engine: Engine,
    shared: Arc<Shared>,
    listeners: Mutex<Vec<Listening>>,
    services: Arc<Services>,
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
    seats: Arc<Seats>,
    counters: Arc<NbdCounters>,
    sessions: Arc<Sessions>,
    next_worker: AtomicUsize,
}

impl NbdExports {
    /// No listener yet.
    pub fn new(engine: Engine, limits: &NbdLimits, services: Arc<Services>) -> NbdExports {
        let shared = Shared {
            limits: limits.limits(),
            seats_per_peer: limits.per_peer(),
            counters: Arc::default(),
            sessions: Arc::default(),
            next_worker: AtomicUsize::default(),
            seats: Arc::default(),
        };
        NbdExports { engine, shared: Arc::new(shared), listeners: Mutex::default(), services }
    }

    /// Serve all volumes by name at an address.
    ///
    /// # Errors
    /// The address makes no sense, or is taken, or a file of its TLS cannot be used.
    pub async fn listen(&self, call: &NbdListen) -> Result<Done, ApiError> {
        let terms = self.terms_of(call).await?;
        self.listen_with(call, terms)
    }

    /// What its files of TLS say; they may lie where nobody answers.
    async fn terms_of(&self, call: &NbdListen) -> Result<Option<TlsTerms>, ApiError> {
        let Some(tls) = call.tls.clone() else { return Ok(None) };
        let read = self.services.look(&service(call), move || terms(&tls)).await;
        read.map(Some).map_err(|fault| {
            let hint = "name other files, or make them as docs/operating.md shows";
            ApiError::new(codes::REQUEST_MALFORMED, format!("{fault}; nothing was changed"), hint)
        })
    }

    fn listen_with(&self, call: &NbdListen, tls: Option<TlsTerms>) -> Result<Done, ApiError> {
        let address = call.listen.as_str();
        let demands_tls = tls.is_some();
        let at = address::parse(address, call.trusted_network || demands_tls)?;
        let mut listeners = locked(&self.listeners);
        if listeners.iter().any(|listening| listening.address == address) {
            return Ok(Done::unchanged(format!("already serving NBD at {address}")));
        }
        let listener = ashlar_session::listen(&at).map_err(|error| refusal_at(address, &error))?;
        let worker = listeners.len() % self.engine.worker_count();
        let (engine, shared) = (self.engine.clone(), Arc::clone(&self.shared));
        self.engine.run_on(worker, move |context| {
            let Some(ring) = context.ring() else { return };
            let sessions_max = shared.limits.session.sessions_max;
            let sessions = Arc::clone(&shared.counters.sessions);
            let handle = context.handle();
            let acceptor = Acceptor { handle, ring, listener, sessions_max, sessions };
            context.handle().spawn(async move {
                let error =
                    acceptor.run(|socket| place(&engine, &shared, socket, tls.clone())).await;
                let fields = vec![("reason", error.to_string())];
                engine.events().record(names::LISTENER_FAILED, "", fields);
            });
        });
        listeners.push(Listening { address: address.to_owned(), demands_tls });
        Ok(Done::changed(format!("serving NBD at {address}")))
    }

    /// Listen as the configuration says. A killed predecessor holds its sockets until its last
    /// operation has ended.
    async fn listen_soon(&self, call: &NbdListen) -> Result<Done, ApiError> {
        let terms = self.terms_of(call).await?;
        loop {
            match self.listen_with(call, terms.clone()) {
                Err(refusal) if is_taken(&refusal) && self.services.has_patience() => {
                    sleep(LISTEN_POLL).await;
                }
                answer => return answer,
            }
        }
    }

    fn listens_at(&self, address: &str) -> bool {
        locked(&self.listeners).iter().any(|it| it.address == address)
    }
}

/// What it is called where it is missing.
fn service(call: &NbdListen) -> String {
    format!("NBD at {}", call.listen)
}

impl Export for NbdExports {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn status(&self) -> Vec<ExportStatus> {
        let counters = &self.shared.counters;
        let requests = [&counters.reads, &counters.writes, &counters.flushes, &counters.trims];
        let requests = requests.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        let clients = counters.sessions.open.load(Ordering::Relaxed);
        let listeners = locked(&self.listeners);
        let status = |listening: &Listening| ExportStatus {
            devices: Vec::new(),
            over_ring: false,
            protocol: if listening.demands_tls { "nbds" } else { "nbd" }.to_owned(),
            requests,
            address: listening.address.clone(),
            array: None,
            clients,
        };
        listeners.iter().map(status).collect()
    }

    fn begin<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            // One that makes no sense was refused before.
            let calls = config.nbd.iter().filter_map(|nbd| nbd.call().ok());
            for call in calls.filter(|call| !self.listens_at(&call.listen)) {
                let went = self.listen_soon(&call).await;
                let went = went.map(|done| Some(done.message)).map_err(|it| it.message);
                self.services.note(Service::way(service(&call)), went, say);
            }
        })
    }

    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        match self.shared.sessions.users_of(volume) {
            0 => Ok(()),
            clients => Err(ApiError::new(
                codes::EXPORT_BUSY,
                format!("array '{volume}' has {clients} NBD clients; nothing was changed"),
                "disconnect them, or drop them with --force",
            )),
        }
    }

    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let sessions = &self.shared.sessions;
            sessions.end_users_of(volume);
            wait_until(|| sessions.users_of(volume) == 0).await;
        })
    }

    /// The sockets of Unix listeners.
    fn remove(&self) {
        let listeners = locked(&self.listeners);
        for path in listeners.iter().filter_map(|it| it.address.strip_prefix("unix:")) {
            // It may be gone already.
            let _gone = std::fs::remove_file(path);
        }
    }
}

impl Serves<NbdListen> for Arrays {
    async fn serve(&self, call: NbdListen) -> Result<Done, ApiError> {
        let done = self.exports.of::<NbdExports>().listen(&call).await?;
        self.services.there(&service(&call));
        Ok(done)
    }
}

/// The address is somebody's, perhaps a predecessor's.
const TAKEN: &str = "the address is in use";

fn refusal_at(address: &str, error: &io::Error) -> ApiError {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => TAKEN.to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot listen at {address}: {why}; nothing was changed");
    let hint = "choose another address or free this one";
    ApiError::new(codes::EXPORT_IMPOSSIBLE, message, hint)
}

fn is_taken(refusal: &ApiError) -> bool {
    refusal.message.contains(TAKEN)
}

/// Certificate, key and authority from the files that a call names.
///
/// # Errors
/// One line.
fn terms(tls: &NbdTls) -> Result<TlsTerms, String> {
    let [certificate, key, ca] = [&tls.certificate, &tls.key, &tls.ca].map(PathBuf::from);
    TlsTerms::read(&TlsFiles { certificate, key, ca }).map_err(|fault| fault.to_string())
}

/// Give a connection to the next worker in turn. A peer that has too many is closed at once.
fn place(engine: &Engine, shared: &Arc<Shared>, socket: OwnedFd, tls: Option<TlsTerms>) {
    let peer = peer_of(&socket);
    let seat = peer.map(|peer| shared.seats.take(peer, shared.seats_per_peer));
    if let Some(None) = seat {
        shared.counters.sessions.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let seat = seat.flatten();
    let turn = shared.next_worker.fetch_add(1, Ordering::Relaxed);
    let shared = Arc::clone(shared);
    let (own, connection) = (engine.clone(), Connection { socket, peer, seat, tls });
    let serve = move |context: &WorkerContext| serve(context, own, shared, connection);
    engine.run_on(turn % engine.worker_count(), serve);
}

/// One that was let in.
struct Connection {
    socket: OwnedFd,
    /// None: it is of this machine, by a Unix socket.
    peer: Option<IpAddr>,
    /// Of its peer.
    seat: Option<Seat>,
    tls: Option<TlsTerms>,
}

fn serve(context: &WorkerContext, engine: Engine, shared: Arc<Shared>, connection: Connection) {
    let Connection { socket, peer, seat, tls } = connection;
    let Some(ring) = context.ring() else { return };
    let handle = context.handle();
    let (entry, mut ended) = shared.sessions.enter(&handle, shared.limits.session.sessions_max);
    let entry = Rc::new(entry);
    let volumes = Volumes { context: Rc::new(context.again()), entry: Rc::clone(&entry) };
    let counters = Arc::clone(&shared.counters);
    let limits = shared.limits.clone();
    let share = peer.map(|peer| Share::of(peer, &context.payload_buffers()));
    let server =
        NbdServer { handle: handle.clone(), ring, exports: volumes, limits, counters, share, tls };
    handle.spawn(async move {
        let end = until(server.serve(socket), ended.receive()).await;
        // The volume goes before the session's entry does.
        drop((server, seat));
        let volume = entry.volume().unwrap_or_default();
        drop(entry);
        let Some(Err(error)) = end else { return };
        let fields = vec![("reason", error.to_string())];
        engine.events().record(names::CLIENT_DROPPED, &volume, fields);
    });
}

/// The volumes of one worker, as one session sees them.
#[derive(Clone)]
struct Volumes {
    context: Rc<WorkerContext>,
    entry: Rc<SessionEntry>,
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
        self.entry.opened(name);
        Some(volume)
    }

    fn began(&self) {
        self.entry.began();
    }
}
