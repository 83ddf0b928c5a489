//! NVMe/TCP: one subsystem, its namespaces are the volumes of all arrays.
//!
//! What must stay true: a volume has the same namespace number over restarts; one that an array
//! lost is withdrawn, and hosts have let go of it before the array is said to be stopped; nothing
//! listens before the state folder is held.
//! - here    listeners, connections, and the table of namespaces
//! - `state` what outlives the process

mod state;

use super::{Export, Say, Work, locked, wait_until};
use crate::config::{Config, NvmeConfig};
use crate::serve::PREDECESSOR_WAIT;
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayVolume, Engine, WorkerContext, event_names as names};
use ashlar_nvme_protocol::nqn::Nqn;
use ashlar_nvme_tcp::{Identity, Namespace, NvmeServer, Target, TargetConfig, Volumes};
use ashlar_ring::until;
use ashlar_session::{Acceptor, Listen, Seat, Seats, SessionEntry, Sessions, listen, peer_of};
use ashlar_volume::{Volume, VolumeFacts};
use state::StateFolder;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How often to look whether arrays came, went or changed their size.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often to try to listen while a killed predecessor holds the address.
const LISTEN_POLL: Duration = Duration::from_millis(20);

/// Everything served over NVMe/TCP.
pub struct NvmeExports {
    engine: Engine,
    boot: [u8; 16],
    serving: OnceLock<Arc<Serving>>,
}

/// What is there once the configuration asks for it.
struct Serving {
    engine: Engine,
    target: Arc<Target>,
    state: Arc<StateFolder>,
    addresses: Mutex<Vec<SocketAddr>>,
    sessions_max: u64,
    seats_per_peer: u64,
    seats: Arc<Seats>,
    sessions: Arc<Sessions>,
    next_worker: AtomicUsize,
    /// Volumes that are not served, and were told of.
    told: Mutex<BTreeSet<String>>,
}

impl NvmeExports {
    /// Nothing is served yet. `boot` names this boot of the host.
    pub fn new(engine: Engine, boot: [u8; 16]) -> NvmeExports {
        NvmeExports { engine, boot, serving: OnceLock::new() }
    }

    /// The name of the subsystem, if it is served.
    pub fn subsystem(&self) -> Option<String> {
        self.serving.get().map(|serving| serving.target.identity().nqn.to_string())
    }

    fn make(&self, config: &NvmeConfig) -> Result<Serving, ApiError> {
        let malformed =
            |what| ApiError::new(codes::REQUEST_MALFORMED, what, "correct it; nothing was started");
        let folder = config.state_folder();
        let unusable = |error: io::Error| {
            let message = format!("{}: {error}; nothing was started", folder.display());
            let hint = "name a directory that this user may write to with state in [nvme_tcp], or \
                        end the daemon that uses it";
            ApiError::new(codes::SYSTEM_FAULT, message, hint)
        };
        let state = Arc::new(StateFolder::open(&folder, self.boot).map_err(unusable)?);
        let subsystem = state.subsystem().map_err(unusable)?;
        let runtime = tokio::runtime::Handle::current();
        let target = Target::new(TargetConfig {
            identity: identity(subsystem, config.name().map_err(malformed)?),
            hosts: config.hosts().map_err(malformed)?,
            limits: config.limits(),
            store: state.clone(),
            aside: Arc::new(move |work| drop(runtime.spawn_blocking(work))),
        });
        Ok(Serving {
            engine: self.engine.clone(),
            target,
            state,
            addresses: Mutex::default(),
            sessions_max: config.limits().session.sessions_max,
            seats_per_peer: config.per_peer(),
            seats: Arc::default(),
            sessions: Arc::default(),
            next_worker: AtomicUsize::default(),
            told: Mutex::default(),
        })
    }
}

fn identity(subsystem: Uuid, chosen: Option<Nqn>) -> Identity {
    let made = || format!("nqn.2014-08.org.nvmexpress:uuid:{subsystem}").parse();
    let serial: String = subsystem.simple().to_string().chars().take(20).collect();
    Identity {
        nqn: chosen.unwrap_or_else(|| made().expect("a name")),
        serial,
        model: "Ashlar".to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

impl Serving {
    /// Listen at an address. A killed predecessor holds it until its last operation has ended.
    async fn listen_soon(self: &Arc<Self>, address: SocketAddr) -> Result<String, ApiError> {
        let deadline = Instant::now() + PREDECESSOR_WAIT;
        let listener = loop {
            match listen(&Listen::Tcp(address)) {
                Ok(listener) => break listener,
                Err(error) if Instant::now() > deadline => {
                    let message = format!("cannot listen at {address}: {error}");
                    let hint = "choose another address or free this one";
                    return Err(ApiError::new(codes::EXPORT_IMPOSSIBLE, message, hint));
                }
                Err(_) => sleep(LISTEN_POLL).await,
            }
        };
        let worker = locked(&self.addresses).len() % self.engine.worker_count();
        let serving = Arc::clone(self);
        self.engine.run_on(worker, move |context| accept(context, &serving, listener));
        let mut addresses = locked(&self.addresses);
        addresses.push(address);
        self.target.set_portals(addresses.clone());
        let nqn = &self.target.identity().nqn;
        Ok(format!("serving NVMe/TCP at {address} as {nqn}"))
    }

    /// Look at the arrays, and have the target serve those that run.
    async fn look(&self) {
        let mut namespaces = Vec::new();
        for array in self.engine.arrays() {
            let name = array.name().to_owned();
            drop(array);
            let facts = async |volume: ArrayVolume| volume.facts();
            if let Ok(facts) = self.engine.with_volume(0, &name, facts).await {
                namespaces.extend(self.namespace(facts));
            }
        }
        // Loading reservations waits for files.
        let target = Arc::clone(&self.target);
        let set = tokio::task::spawn_blocking(move || target.set_namespaces(namespaces));
        for left_out in set.await.unwrap_or_default() {
            self.tell(&left_out.name, &left_out.reason);
        }
    }

    fn namespace(&self, facts: VolumeFacts) -> Option<Namespace> {
        let most = self.target.namespaces_max();
        match self.state.number_of(Uuid::from_bytes(facts.uuid), most) {
            Ok(id) => Some(Namespace { id, facts }),
            Err(error) => {
                self.tell(&facts.name, &format!("it has no namespace number: {error}"));
                None
            }
        }
    }

    /// Say once that a volume is not served.
    fn tell(&self, volume: &str, reason: &str) {
        if locked(&self.told).insert(volume.to_owned()) {
            let fields = vec![("protocol", "nvme-tcp".to_owned()), ("reason", reason.to_owned())];
            self.engine.events().record(names::NOT_SERVED, volume, fields);
        }
    }
}

fn accept(context: &WorkerContext, serving: &Arc<Serving>, listener: Arc<OwnedFd>) {
    let Some(ring) = context.ring() else { return };
    let sessions = Arc::clone(&serving.target.counters().sessions);
    let (handle, sessions_max) = (context.handle(), serving.sessions_max);
    let acceptor = Acceptor { handle, ring, listener, sessions_max, sessions };
    let serving = Arc::clone(serving);
    context.handle().spawn(async move {
        let error = acceptor.run(|socket| place(&serving, socket)).await;
        let fields = vec![("reason", error.to_string())];
        serving.engine.events().record(names::LISTENER_FAILED, "", fields);
    });
}

/// Give a connection to the next worker in turn. A peer that has too many is closed at once.
fn place(serving: &Arc<Serving>, socket: OwnedFd) {
    let seat = match peer_of(&socket) {
        None => None,
        Some(peer) => match serving.seats.take(peer, serving.seats_per_peer) {
            Some(seat) => Some(seat),
            None => {
                let refused = &serving.target.counters().sessions.refused;
                refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
        },
    };
    let turn = serving.next_worker.fetch_add(1, Ordering::Relaxed);
    let own = Arc::clone(serving);
    let worker = turn % serving.engine.worker_count();
    serving.engine.run_on(worker, move |context| serve(context, &own, socket, seat));
}

fn serve(context: &WorkerContext, serving: &Arc<Serving>, socket: OwnedFd, seat: Option<Seat>) {
    let Some(ring) = context.ring() else { return };
    let handle = context.handle();
    let (entry, mut ended) = serving.sessions.enter(&handle, serving.sessions_max);
    let volumes = WorkerVolumes { context: Rc::new(context.again()), entry: Rc::new(entry) };
    let target = Arc::clone(&serving.target);
    let server = NvmeServer { handle: handle.clone(), ring, volumes, target };
    let serving = Arc::clone(serving);
    handle.spawn(async move {
        let end = until(server.serve(socket), ended.receive()).await;
        drop((server, seat));
        let Some(Err(error)) = end else { return };
        let fields = vec![("reason", error.to_string())];
        serving.engine.events().record(names::CLIENT_DROPPED, "", fields);
    });
}

/// The volumes of one worker, as one connection sees them.
#[derive(Clone)]
struct WorkerVolumes {
    context: Rc<WorkerContext>,
    entry: Rc<SessionEntry>,
}

impl Volumes for WorkerVolumes {
    type Volume = ArrayVolume;

    fn open(&self, name: &str) -> Option<ArrayVolume> {
        self.context.volume(name)
    }

    fn began(&self, _host: &str) {
        self.entry.began();
    }
}

impl Export for NvmeExports {
    fn name(&self) -> &'static str {
        "nvme-tcp"
    }

    fn status(&self) -> Vec<ExportStatus> {
        let Some(serving) = self.serving.get() else { return Vec::new() };
        let counters = serving.target.counters();
        let requests = [
            &counters.reads,
            &counters.writes,
            &counters.flushes,
            &counters.compares,
            &counters.write_zeroes,
            &counters.deallocations,
        ];
        let requests = requests.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        let clients = counters.controllers.load(Ordering::Relaxed);
        let addresses = locked(&serving.addresses);
        let status = |address: &SocketAddr| ExportStatus {
            over_ring: false,
            protocol: self.name().to_owned(),
            requests,
            address: address.to_string(),
            array: None,
            clients,
        };
        addresses.iter().map(status).collect()
    }

    fn prepare<'a>(&'a self, config: &'a Config, _: Say<'a>) -> Work<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(config) = config.nvme_tcp.as_ref().filter(|it| !it.listen.is_empty()) else {
                return Ok(());
            };
            let serving = self.make(config)?;
            assert!(self.serving.set(Arc::new(serving)).is_ok(), "a process is prepared once");
            Ok(())
        })
    }

    fn begin<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(serving), Some(config)) = (self.serving.get(), &config.nvme_tcp) else {
                return Ok(());
            };
            let addresses = config.addresses().map_err(|what| {
                ApiError::new(codes::REQUEST_MALFORMED, what, "correct it in the configuration")
            })?;
            serving.look().await;
            for address in addresses {
                say(&serving.listen_soon(address).await?);
            }
            let own = Arc::clone(serving);
            tokio::spawn(async move {
                loop {
                    sleep(LOOK_EVERY).await;
                    own.look().await;
                }
            });
            Ok(())
        })
    }

    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        let Some(serving) = self.serving.get() else { return Ok(()) };
        match serving.target.users_of(volume) {
            0 => Ok(()),
            queues => {
                let hosts = serving.target.hosts().len();
                let message = format!(
                    "array '{volume}' is in use by {queues} NVMe/TCP queues of {hosts} hosts; \
                     nothing was changed"
                );
                let hint = "run nvme disconnect on the hosts, or drop them with --force";
                Err(ApiError::new(codes::EXPORT_BUSY, message, hint))
            }
        }
    }

    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let Some(serving) = self.serving.get() else { return };
            let users = serving.target.withdraw(volume);
            wait_until(|| users() == 0).await;
        })
    }
}
