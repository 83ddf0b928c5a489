//! What all workers share: the subsystem, who may connect, its namespaces and its controllers.
//!
//! What must stay true: nothing here is on the path of a read or a write; a lock is held for a
//! moment, and never while waiting.

use crate::Limits;
use crate::counters::{NvmeCounters, read};
use crate::registry::{AdminMessage, ControllerEntry, IoMessage, Registry};
use crate::reservations::{Aside, Fence, ReservationStore};
use crate::table::{self, Namespace, State, Table};
use ashlar_nvme_protocol::auth::{Group, Secret};
use ashlar_nvme_protocol::identify::{ControllerFacts, ControllerKind, NamespaceFacts};
use ashlar_nvme_protocol::log::{DiscoveryEntry, Health, Portal, ReservationNotice, Security};
use ashlar_nvme_protocol::nqn::{Admitted, HostId, Nqn};
use ashlar_nvme_protocol::reservation::{Notified, ReportedController};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// On which terms a host is let in.
#[derive(Clone, Debug, Default)]
pub struct HostTerms {
    /// The host must prove that it knows this.
    pub host_secret: Option<Secret>,
    /// The controller proves that it knows this, if the host asks.
    pub controller_secret: Option<Secret>,
    /// The weakest group of Diffie-Hellman that the host may prove itself by.
    pub least_group: Group,
}

/// What the subsystem is called.
#[derive(Clone, Debug)]
pub struct Identity {
    /// SUBNQN.
    pub nqn: Nqn,
    /// SN: 20 characters count.
    pub serial: String,
    /// MN.
    pub model: String,
    /// FR: 8 characters count.
    pub firmware: String,
}

/// What a target is made with.
pub struct TargetConfig {
    /// The subsystem's identity.
    pub identity: Identity,
    /// The hosts that may connect.
    pub hosts: Admitted<HostTerms>,
    /// What hosts may hold.
    pub limits: Limits,
    /// Where reservations outlive the process.
    pub store: Arc<dyn ReservationStore>,
    /// How to do what waits.
    pub aside: Aside,
}

/// The target, shared by all workers.
pub struct Target {
    pub(crate) config: TargetConfig,
    pub(crate) counters: Arc<NvmeCounters>,
    pub(crate) registry: Arc<Registry>,
    table: Mutex<Table>,
    portals: Mutex<Portals>,
    /// Whether somebody computes a step of a proof: one at a time, so that strangers who begin many
    /// keep one core busy at most.
    pub(crate) is_proving: Arc<AtomicBool>,
}

#[derive(Default)]
struct Portals {
    addresses: Vec<SocketAddr>,
    generation: u64,
}

/// A namespace that cannot be served, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("volume '{name}' is not served over NVMe/TCP: {reason}")]
pub struct NotServed {
    /// The volume.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl Target {
    /// A target without namespaces.
    pub fn new(config: TargetConfig) -> Arc<Target> {
        Arc::new(Target {
            config,
            counters: Arc::default(),
            registry: Arc::default(),
            table: Mutex::default(),
            portals: Mutex::default(),
            is_proving: Arc::default(),
        })
    }

    /// What connections did so far.
    pub fn counters(&self) -> &Arc<NvmeCounters> {
        &self.counters
    }

    /// What the subsystem is called.
    pub fn identity(&self) -> &Identity {
        &self.config.identity
    }

    /// Highest namespace identifier that hosts see.
    pub fn namespaces_max(&self) -> u32 {
        self.config.limits.namespaces_max
    }

    /// Hosts that are connected now, each once, with how many controllers.
    pub fn hosts(&self) -> Vec<(String, usize)> {
        let mut hosts: Vec<(String, usize)> = Vec::new();
        for entry in self.registry.of_kind(ControllerKind::Io) {
            let nqn = entry.host.nqn.to_string();
            match hosts.iter_mut().find(|(known, _)| *known == nqn) {
                Some((_, count)) => *count += 1,
                None => hosts.push((nqn, 1)),
            }
        }
        hosts
    }

    /// Controllers that are connected now.
    pub fn controllers(&self) -> usize {
        self.registry.count()
    }

    /// Serve exactly these namespaces from now on. Hosts get a notice of the changes. May wait for
    /// files.
    ///
    /// A namespace whose reservations are unknown is left out: a host that was fenced off might
    /// write to it.
    pub fn set_namespaces(&self, namespaces: Vec<Namespace>) -> Vec<NotServed> {
        let before = self.table();
        let mut left_out = Vec::new();
        let mut entries = Vec::new();
        for namespace in namespaces {
            match self.state_of(&before, &namespace) {
                Ok(state) => {
                    let told = namespace.told();
                    entries.push(table::NamespaceEntry { namespace, told, state });
                }
                Err(reason) => {
                    left_out.push(NotServed { name: namespace.facts.name, reason });
                }
            }
        }
        let after = Table::new(entries);
        let changed = before.differences(&after);
        *locked(&self.table) = after;
        self.tell_changed(&changed);
        left_out
    }

    fn state_of(&self, before: &Table, namespace: &Namespace) -> Result<Arc<State>, String> {
        let nguid = namespace.facts.uuid;
        if let Some(kept) = before.entries.iter().find(|it| it.state.nguid == nguid) {
            return Ok(Arc::clone(&kept.state));
        }
        let fence = Fence::load(&*self.config.store, &nguid).map_err(|error| error.to_string())?;
        Ok(State::new(nguid, fence))
    }

    fn tell_changed(&self, ids: &[u32]) {
        if ids.is_empty() {
            return;
        }
        for entry in self.registry.of_kind(ControllerKind::Io) {
            entry.tell_queues(|| IoMessage::Namespaces);
            ids.iter().for_each(|id| entry.admin.send(AdminMessage::Namespace(*id)));
        }
    }

    /// Queues that have this volume open.
    pub fn users_of(&self, name: &str) -> usize {
        self.table().named(name).map_or(0, |entry| entry.state.users())
    }

    /// Serve all but this volume, until the next [`Target::set_namespaces`]. Queues let go of it
    /// when their commands under way have ended. The value tells how many have not.
    pub fn withdraw(&self, name: &str) -> impl Fn() -> usize + use<> {
        let before = self.table();
        let state = before.named(name).map(|entry| Arc::clone(&entry.state));
        let others = before.entries.iter().filter(|it| it.namespace.facts.name != name).cloned();
        let after = Table::new(others.collect());
        let changed = before.differences(&after);
        *locked(&self.table) = after;
        self.tell_changed(&changed);
        move || state.as_ref().map_or(0, |state| state.users())
    }

    /// The namespaces that are served now.
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.table().entries.iter().map(|entry| entry.namespace.clone()).collect()
    }

    /// Hosts reach the subsystem at these addresses; an unspecified one stands for whichever they
    /// came by.
    pub fn set_portals(&self, addresses: Vec<SocketAddr>) {
        let mut portals = locked(&self.portals);
        portals.addresses = addresses;
        portals.generation += 1;
        drop(portals);
        for entry in self.registry.of_kind(ControllerKind::Discovery) {
            entry.admin.send(AdminMessage::Discovery);
        }
    }

    /// End all controllers.
    pub fn end_all(&self) {
        for kind in [ControllerKind::Io, ControllerKind::Discovery] {
            for entry in self.registry.of_kind(kind) {
                entry.admin.send(AdminMessage::End);
            }
        }
    }

    pub(crate) fn table(&self) -> Table {
        locked(&self.table).clone()
    }

    /// The discovery log page for a host that came by `local`.
    pub(crate) fn discovery(
        &self,
        host: &Nqn,
        local: Option<IpAddr>,
    ) -> (u64, Vec<DiscoveryEntry>) {
        let portals = locked(&self.portals);
        if self.config.hosts.terms(host).is_none() {
            return (portals.generation, Vec::new());
        }
        let entries = portals.addresses.iter().zip(1..).map(|(address, id)| {
            let ip = match (address.ip().is_unspecified(), local) {
                (true, Some(local)) => local.to_canonical(),
                _ => address.ip(),
            };
            let address = SocketAddr::new(ip, address.port());
            DiscoveryEntry {
                portal: Portal { id, address, security: Security::None },
                subsystem: self.config.identity.nqn.clone(),
                is_discovery: false,
                admin_entries: ADMIN_ENTRIES,
            }
        });
        (portals.generation, entries.collect())
    }

    pub(crate) fn facts(&self, kind: ControllerKind, id: u16) -> ControllerFacts {
        let (identity, limits) = (&self.config.identity, &self.config.limits);
        ControllerFacts {
            kind,
            id,
            subsystem: match kind {
                ControllerKind::Io => identity.nqn.clone(),
                ControllerKind::Discovery => Nqn::discovery(),
            },
            serial: identity.serial.clone(),
            model: identity.model.clone(),
            firmware: identity.firmware.clone(),
            transfer_power_max: limits.transfer_power_max,
            namespaces_max: limits.namespaces_max,
            in_capsule_bytes_max: limits.in_capsule_bytes_max,
            commands_max: limits.entries_less_one_max.saturating_add(1),
            async_events_max: limits.async_events_max,
            aborts_max: ABORTS_MAX,
        }
    }

    pub(crate) fn health(&self, namespaces: &[NamespaceFacts]) -> Health {
        let count = |counter| u128::from(read(counter));
        let counters = &self.counters;
        Health {
            is_read_only: !namespaces.is_empty() && namespaces.iter().all(|it| it.read_only),
            is_degraded: false,
            read_bytes: count(&counters.read_bytes),
            written_bytes: count(&counters.written_bytes),
            reads: count(&counters.reads),
            writes: count(&counters.writes),
            media_errors: count(&counters.media_errors),
        }
    }

    /// I/O controllers with their hosts, for Reservation Report.
    pub(crate) fn reported_controllers(&self) -> Vec<ReportedController> {
        let all = self.registry.of_kind(ControllerKind::Io);
        all.iter().map(|it| ReportedController { id: it.id, host: it.host.id }).collect()
    }

    /// Tell hosts what happened to a reservation.
    pub(crate) fn notify(&self, namespace: u32, notified: &Notified) {
        if notified.0.is_empty() {
            return;
        }
        let all: Vec<Arc<ControllerEntry>> = self.registry.of_kind(ControllerKind::Io);
        let of = |host: HostId| all.iter().filter(move |it| it.host.id == host);
        for (host, kind) in &notified.0 {
            let notice = ReservationNotice { namespace, kind: *kind };
            of(*host).for_each(|it| it.admin.send(AdminMessage::Reservation(notice)));
        }
    }
}

/// Entries of an admin queue, as discovery tells.
const ADMIN_ENTRIES: u16 = 128;
/// Aborts that may be under way, as Identify tells. Each is a message, so more are no harm.
const ABORTS_MAX: u8 = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
