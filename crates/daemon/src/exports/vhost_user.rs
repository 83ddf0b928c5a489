//! vhost-user: a Unix socket for each volume that runs, `FOLDER/NAME.sock`; whoever connects has
//! the volume as a disk of their virtual machine.
//!
//! What must stay true: a volume has one client at a time, and a client that comes while another is
//! there is closed at once; the next one is served when the last has let go of everything. A socket
//! is there as long as its volume runs, so a machine that lost its daemon finds it again. All
//! queues together leave most of a worker's ring to the members.

use super::{Export, Say, Work, locked, wait_until};
use crate::config::Config;
use crate::services::{Service, Services};
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::{ApiError, codes};
use ashlar_engine::{Engine, WorkerContext, event_names as names};
use ashlar_ring::mailbox::{Sender, mailbox};
use ashlar_ring::until;
use ashlar_session::{
    Acceptor, Listen, SessionCounters, SessionEntry, SessionLimits, Sessions, listen,
};
use ashlar_vhost_user::{QueueServer, QueueStart, SessionError, VhostCounters, VhostServer};
use ashlar_volume::Volume;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::sleep;

/// Who may connect to a socket: its owner and its group, as for NBD.
const SOCKET_MODE: u32 = 0o660;
/// Who may look into the folder.
const FOLDER_MODE: u32 = 0o750;
/// Queues that one worker serves, of all volumes: each has a place of its ring all the time.
const QUEUES_PER_WORKER: usize = 128;
/// How often to try to listen while a killed predecessor holds a socket.
const LISTEN_POLL: Duration = Duration::from_millis(20);

/// Everything served over vhost-user.
pub struct VhostExports {
    engine: Engine,
    /// Where the sockets are, if the configuration asks for any.
    folder: OnceLock<PathBuf>,
    sockets: Mutex<BTreeMap<String, Socket>>,
    shared: Arc<Shared>,
    services: Arc<Services>,
}

/// The socket of one volume.
struct Socket {
    path: PathBuf,
    about: Arc<About>,
}

/// What a volume's listener and clients share.
#[derive(Default)]
struct About {
    /// Somebody has the volume.
    is_taken: AtomicBool,
    /// Takes the size after a growth, for the client.
    sizes: Mutex<Option<Sender<u64>>>,
    sessions: Arc<SessionCounters>,
    counters: Arc<VhostCounters>,
}

/// What all listeners and sessions share.
struct Shared {
    /// How many queues each worker serves.
    queues: Vec<Arc<AtomicUsize>>,
    listeners: Arc<Sessions>,
    sessions: Arc<Sessions>,
    next_worker: AtomicUsize,
}

impl VhostExports {
    /// No socket yet.
    pub fn new(engine: Engine, services: Arc<Services>) -> VhostExports {
        let shared = Shared {
            queues: (0..engine.worker_count()).map(|_| Arc::default()).collect(),
            listeners: Arc::default(),
            sessions: Arc::default(),
            next_worker: AtomicUsize::default(),
        };
        VhostExports {
            engine,
            folder: OnceLock::new(),
            sockets: Mutex::default(),
            shared: Arc::new(shared),
            services,
        }
    }

    /// Have the folder, as the configuration says. Whether it is there.
    async fn has_folder(&self, config: &Config, say: Say<'_>) -> bool {
        let Some(vhost) = &config.vhost_user else { return false };
        if self.folder.get().is_some() {
            return true;
        }
        let service = format!("vhost-user in {}", vhost.folder.display());
        let folder = vhost.folder.clone();
        let made = self.services.look(&service, move || make_folder(&folder)).await;
        let is_made = made.is_ok();
        self.services.note(Service::way(service), made.map(|()| None), say);
        if is_made {
            // It may be there already.
            let _first = self.folder.set(vhost.folder.clone());
        }
        is_made
    }

    fn has_socket(&self, volume: &str) -> bool {
        locked(&self.sockets).contains_key(volume)
    }

    /// Listen for clients of a volume. What to say.
    async fn open(&self, volume: &str) -> Option<String> {
        let folder = self.folder.get()?;
        if self.has_socket(volume) {
            return None;
        }
        let path = folder.join(format!("{volume}.sock"));
        match self.listen_soon(volume, &path).await {
            Ok(()) => {
                self.services.there(&service(volume));
                Some(format!("vhost-user at {}", path.display()))
            }
            Err(error) => {
                let reason = format!("{}: {error}", path.display());
                if !self.services.lost(Service::way_to(volume, service(volume)), reason.clone()) {
                    return None;
                }
                let fields =
                    vec![("protocol", "vhost-user".to_owned()), ("reason", reason.clone())];
                self.engine.events().record(names::NOT_SERVED, volume, fields);
                Some(format!("not served by vhost-user: {reason}"))
            }
        }
    }

    /// A killed predecessor holds its sockets until its last operation has ended.
    async fn listen_soon(&self, volume: &str, path: &Path) -> io::Result<()> {
        loop {
            // It may have stopped, or got its socket, while this one waited.
            if self.has_socket(volume) || self.engine.array(volume).is_err() {
                return Ok(());
            }
            match listen(&Listen::Unix(path.to_owned(), SOCKET_MODE)) {
                Ok(listener) => {
                    self.accept(volume, path, listener);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if !self.services.has_patience() {
                        return Err(error);
                    }
                    sleep(LISTEN_POLL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn accept(&self, volume: &str, path: &Path, listener: Arc<OwnedFd>) {
        let about = Arc::<About>::default();
        let socket = Socket { path: path.to_owned(), about: Arc::clone(&about) };
        locked(&self.sockets).insert(volume.to_owned(), socket);
        let turn = self.shared.next_worker.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            engine: self.engine.clone(),
            shared: Arc::clone(&self.shared),
            volume: volume.to_owned(),
            about,
        };
        let worker = turn % self.engine.worker_count();
        self.engine.run_on(worker, move |context| place.listen(context, listener));
    }

    fn clients_of(&self, volume: &str) -> usize {
        self.shared.sessions.users_of(volume)
    }
}

/// Where the clients of one volume come in.
#[derive(Clone)]
struct Place {
    engine: Engine,
    shared: Arc<Shared>,
    volume: String,
    about: Arc<About>,
}

impl Place {
    /// Accept until the volume is stopped.
    fn listen(self, context: &WorkerContext, listener: Arc<OwnedFd>) {
        let Some(ring) = context.ring() else { return };
        let (entry, mut ended) = self.shared.listeners.enter(&context.handle(), u64::MAX);
        entry.opened(&self.volume);
        entry.began();
        let sessions = Arc::clone(&self.about.sessions);
        let handle = context.handle();
        let acceptor = Acceptor { handle, ring, listener, sessions_max: u64::MAX, sessions };
        let context = Rc::new(context.again());
        context.handle().spawn(async move {
            let accepting = acceptor.run(|socket| self.serve(&context, socket));
            let failed = until(accepting, ended.receive()).await;
            drop((acceptor, entry));
            if let Some(error) = failed {
                let fields = vec![("reason", error.to_string())];
                self.engine.events().record(names::LISTENER_FAILED, &self.volume, fields);
            }
        });
    }

    /// Serve a client on this worker, and its queues on all workers.
    fn serve(&self, context: &WorkerContext, socket: OwnedFd) {
        let (Some(ring), Some(volume)) = (context.ring(), context.volume(&self.volume)) else {
            return;
        };
        let about = &self.about;
        if about.is_taken.swap(true, Ordering::AcqRel) {
            about.sessions.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (entry, mut ended) = self.shared.sessions.enter(&context.handle(), u64::MAX);
        entry.opened(&self.volume);
        entry.began();
        // Before the size is looked at: no growth is missed.
        let (sizes_in, sizes) = mailbox(&context.handle());
        locked(&about.sizes).replace(sizes_in);
        let server = VhostServer {
            handle: context.handle(),
            ring,
            facts: volume.facts(),
            limits: SessionLimits::default(),
            counters: Arc::clone(&about.counters),
        };
        drop(volume);
        let place = self.clone();
        context.handle().spawn(async move {
            let sessions = Arc::clone(&place.about.sessions);
            let open = sessions.count_open();
            sessions.total.fetch_add(1, Ordering::Relaxed);
            let starting = |start| place.start(start);
            let ended = async { ended.receive().await };
            let end = server.serve(socket, ended, sizes, starting).await;
            drop(open);
            place.ended(entry, end);
        });
    }

    /// Give a queue to its worker. One that has lost the volume, or has too many, drops it.
    fn start(&self, start: QueueStart) {
        let worker = usize::from(start.number()) % self.engine.worker_count();
        let Some(seat) = QueueSeat::take(&self.shared.queues[worker]) else { return };
        let name = self.volume.clone();
        self.engine.run_on(worker, move |context| {
            let (Some(ring), Some(volume)) = (context.ring(), context.volume(&name)) else {
                return;
            };
            let server = QueueServer { handle: context.handle(), ring, volume, start };
            context.handle().spawn(async move {
                server.serve().await;
                drop(seat);
            });
        });
    }

    /// A client is gone, and all its queues have ended.
    fn ended(&self, entry: SessionEntry, end: Result<(), SessionError>) {
        locked(&self.about.sizes).take();
        self.about.is_taken.store(false, Ordering::Release);
        drop(entry);
        let error = match end {
            Ok(()) | Err(SessionError::VolumeStopped) => return,
            Err(error) => error,
        };
        let fields = vec![("reason", error.to_string())];
        self.engine.events().record(names::CLIENT_DROPPED, &self.volume, fields);
    }
}

/// One queue of a worker; given back when dropped.
struct QueueSeat(Arc<AtomicUsize>);

impl QueueSeat {
    /// One more queue, unless there are too many.
    fn take(queues: &Arc<AtomicUsize>) -> Option<QueueSeat> {
        let one_more = |count| (count < QUEUES_PER_WORKER).then_some(count + 1);
        let taken = queues.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.is_ok().then(|| QueueSeat(Arc::clone(queues)))
    }
}

impl Drop for QueueSeat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Export for VhostExports {
    fn name(&self) -> &'static str {
        "vhost-user"
    }

    fn status(&self) -> Vec<ExportStatus> {
        let status = |(array, socket): (&String, &Socket)| ExportStatus {
            devices: Vec::new(),
            over_ring: false,
            protocol: self.name().to_owned(),
            requests: socket.about.counters.requests(),
            address: format!("unix:{}", socket.path.display()),
            array: Some(array.clone()),
            clients: socket.about.sessions.open.load(Ordering::Relaxed),
        };
        locked(&self.sockets).iter().map(status).collect()
    }

    /// Each volume gets its socket as it starts.
    fn prepare<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            let _later = self.has_folder(config, say).await;
        })
    }

    /// The sockets of volumes that have none.
    fn begin<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            if !self.has_folder(config, say).await {
                return;
            }
            let arrays = self.engine.arrays();
            let names: Vec<String> = arrays.iter().map(|array| array.name().to_owned()).collect();
            drop(arrays);
            for name in names {
                self.open(&name).await.iter().for_each(|line| say(line));
            }
        })
    }

    fn volume_started<'a>(&'a self, volume: &'a str) -> Work<'a, Option<String>> {
        Box::pin(self.open(volume))
    }

    /// The client's guest sees the new size, if its frontend takes notices.
    fn volume_grew<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        let size = self.engine.array(volume).ok().map(|it| it.volume_bytes());
        if let (Some(size), Some(socket)) = (size, locked(&self.sockets).get(volume))
            && let Some(sizes) = &*locked(&socket.about.sizes)
        {
            sizes.send(size);
        }
        Box::pin(std::future::ready(()))
    }

    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        if self.clients_of(volume) == 0 {
            return Ok(());
        }
        Err(ApiError::new(
            codes::EXPORT_BUSY,
            format!("array '{volume}' is the disk of a virtual machine; nothing was changed"),
            "shut the machine down or unplug the disk, or drop it with --force",
        ))
    }

    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let Shared { listeners, sessions, .. } = &*self.shared;
            self.services.forget(&service(volume));
            // Who comes from here on finds no volume.
            if let Some(socket) = locked(&self.sockets).remove(volume) {
                // Somebody may have taken it away already.
                let _gone = std::fs::remove_file(&socket.path);
            }
            listeners.end_users_of(volume);
            sessions.end_users_of(volume);
            wait_until(|| listeners.users_of(volume) + sessions.users_of(volume) == 0).await;
        })
    }

    /// The sockets of volumes that were not stopped.
    fn remove(&self) {
        for socket in locked(&self.sockets).values() {
            let _gone = std::fs::remove_file(&socket.path);
        }
    }
}

/// What it is called where it is missing.
fn service(volume: &str) -> String {
    format!("the vhost-user socket of '{volume}'")
}

/// # Errors
/// One line.
fn make_folder(folder: &Path) -> Result<(), String> {
    match std::fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(format!(
            "{}: {error}; make the directory above it, or name one that this user may make or \
             write to with --vhost-user, in the configuration [vhost_user] directory",
            folder.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{QUEUES_PER_WORKER, QueueSeat};
    use std::sync::Arc;

    #[test]
    fn a_worker_has_so_many_queues_and_gets_their_seats_back() {
        let queues = Arc::default();
        let mut seats: Vec<_> = (0..QUEUES_PER_WORKER).map(|_| QueueSeat::take(&queues)).collect();
        assert!(seats.iter().all(Option::is_some));
        assert!(QueueSeat::take(&queues).is_none());
        drop(seats.pop());
        assert!(QueueSeat::take(&queues).is_some());
    }
}
