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
use crate::services::{Service, Services};
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayVolume, Engine, WorkerContext, event_names as names};
use ashlar_nvme_protocol::nqn::{Admitted, Nqn};
use ashlar_nvme_tcp::{HostTerms, Identity, Namespace, NvmeServer, Target, TargetConfig, Volumes};
use ashlar_ring::until;
use ashlar_session::{
    Acceptor, Listen, Seat, Seats, SessionEntry, Sessions, Share, listen, peer_of,
};
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
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// How often to look whether arrays came, went or changed their size.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the first look may take before an address is served.
const FIRST_LOOK_MAX: Duration = Duration::from_secs(5);
/// How often to try to listen while a killed predecessor holds the address.
const LISTEN_POLL: Duration = Duration::from_millis(20);

/// Everything served over NVMe/TCP.
pub struct NvmeExports {
    engine: Engine,
    boot: [u8; 16],
    serving: OnceLock<Arc<Serving>>,
    services: Arc<Services>,
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
    pub fn new(engine: Engine, boot: [u8; 16], services: Arc<Services>) -> NvmeExports {
        NvmeExports { engine, boot, serving: OnceLock::new(), services }
    }

    /// The name of the subsystem, if it is served.
    pub fn subsystem(&self) -> Option<String> {
        self.serving.get().map(|serving| serving.target.identity().nqn.to_string())
    }

    /// What serves, made now if it is not there. Its folder and the secrets of hosts are read
    /// first.
    ///
    /// # Errors
    /// One line.
    async fn served(&self, config: &NvmeConfig) -> Result<Arc<Serving>, String> {
        if let Some(serving) = self.serving.get() {
            return Ok(Arc::clone(serving));
        }
        let (own, boot) = (config.clone(), self.boot);
        let made = Arc::new(
            self.make(config, self.services.look(SERVICE, move || Kept::read(&own, boot)).await?)?,
        );
        // One begins at a time.
        let serving = Arc::clone(self.serving.get_or_init(|| made));
        let own = Arc::clone(&serving);
        tokio::spawn(async move {
            loop {
                sleep(LOOK_EVERY).await;
                own.look().await;
            }
        });
        Ok(serving)
    }

    fn make(&self, config: &NvmeConfig, kept: Kept) -> Result<Serving, String> {
        let Kept { state, subsystem, hosts } = kept;
        let state = Arc::new(state);
        let runtime = tokio::runtime::Handle::current();
        let target = Target::new(TargetConfig {
            identity: identity(subsystem, config.name()?),
            hosts,
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

/// What it is called where it is missing.
const SERVICE: &str = "NVMe/TCP";

fn service_at(address: SocketAddr) -> String {
    format!("NVMe/TCP at {address}")
}

/// What lies in files.
struct Kept {
    state: StateFolder,
    subsystem: Uuid,
    hosts: Admitted<HostTerms>,
}

impl Kept {
    /// # Errors
    /// One line.
    fn read(config: &NvmeConfig, boot: [u8; 16]) -> Result<Kept, String> {
        let folder = config.state_folder();
        let unusable = |error: io::Error| {
            format!(
                "{}: {error}; name a directory that this user may write to with state in \
                 [nvme_tcp], or end the daemon that uses it",
                folder.display()
            )
        };
        let hosts = config.hosts()?;
        let state = StateFolder::open(&folder, boot).map_err(unusable)?;
        let subsystem = state.subsystem().map_err(unusable)?;
        Ok(Kept { state, subsystem, hosts })
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
    ///
    /// # Errors
    /// One line.
    async fn listen_soon(
        self: &Arc<Self>,
        address: SocketAddr,
        services: &Services,
    ) -> Result<String, String> {
        let listener = loop {
            match listen(&Listen::Tcp(address)) {
                Ok(listener) => break listener,
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && services.has_patience() =>
                {
                    sleep(LISTEN_POLL).await;
                }
                Err(error) => return Err(format!("cannot listen there: {error}")),
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
    async fn look(self: &Arc<Self>) {
        let mut all = Vec::new();
        for array in self.engine.arrays() {
            let name = array.name().to_owned();
            drop(array);
            let facts = async |volume: ArrayVolume| volume.facts();
            if let Ok(facts) = self.engine.with_volume(0, &name, facts).await {
                all.push(facts);
            }
        }
        // New numbers and reservations wait for files.
        let own = Arc::clone(self);
        let set = tokio::task::spawn_blocking(move || {
            let namespaces = all.into_iter().filter_map(|facts| own.namespace(facts));
            let namespaces = namespaces.collect();
            own.target.set_namespaces(namespaces)
        });
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
    let share = peer_of(&socket).map(|peer| Share::of(peer, &context.payload_buffers()));
    let server = NvmeServer { handle: handle.clone(), ring, volumes, target, share };
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
            devices: Vec::new(),
            over_ring: false,
            protocol: self.name().to_owned(),
            requests,
            address: address.to_string(),
            array: None,
            clients,
        };
        addresses.iter().map(status).collect()
    }

    /// The subsystem has its name before arrays start: none starts on a namespace of its own.
    fn prepare<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            let config = config.nvme_tcp.as_ref().filter(|it| !it.listen.is_empty());
            if let Some(config) = config
                && let Err(why) = self.served(config).await
            {
                self.services.note(Service::way(SERVICE.to_owned()), Err(why), say);
            }
        })
    }

    /// Nothing listens before the folder for state is held and the namespaces are known.
    fn begin<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            let Some(config) = config.nvme_tcp.as_ref().filter(|it| !it.listen.is_empty()) else {
                return;
            };
            let serving = match self.served(config).await {
                Ok(serving) => serving,
                Err(why) => {
                    return self.services.note(Service::way(SERVICE.to_owned()), Err(why), say);
                }
            };
            // One that makes no sense was refused before.
            let addresses = config.addresses().unwrap_or_default();
            let is_new = |it: &SocketAddr| !locked(&serving.addresses).contains(it);
            let addresses: Vec<SocketAddr> = addresses.into_iter().filter(is_new).collect();
            // Nobody finds a subsystem without its namespaces.
            if !addresses.is_empty() && timeout(FIRST_LOOK_MAX, serving.look()).await.is_err() {
                let why = format!("{} does not answer", config.state_folder().display());
                return self.services.note(Service::way(SERVICE.to_owned()), Err(why), say);
            }
            self.services.there(SERVICE);
            for address in addresses {
                let went = serving.listen_soon(address, &self.services).await;
                self.services.note(Service::way(service_at(address)), went.map(Some), say);
            }
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
