//! The admin queue of a controller: commands, events, and keep-alive.
//!
//! What must stay true: commands are answered in order of arrival, except for those that wait for
//! an event, a file or another queue. When this queue ends, the controller is gone, and its I/O
//! queues are told to end.

use crate::counters::add;
use crate::handshake::{Command, no_transfer};
use crate::inbound::{Incoming, PduInbound};
use crate::outbound::{Outbound, Outgoing};
use crate::registry::{AdminMessage, ControllerPlace, IoMessage};
use crate::reservations::Change;
use crate::session::{NvmeServer, SessionEnd, SessionError};
use crate::{Target, Volumes};
use ashlar_iobuf::Buf;
use ashlar_nvme_protocol::command::{AdminCommand, FABRICS_OPCODE, FabricsCommand};
use ashlar_nvme_protocol::connection::Step;
use ashlar_nvme_protocol::controller::{Answer, Controller, ControllerTerms, View};
use ashlar_nvme_protocol::identify::ControllerKind;
use ashlar_nvme_protocol::pdu::C2hData;
use ashlar_nvme_protocol::property::PropertyChange;
use ashlar_nvme_protocol::queue::{NotTaken, Queue};
use ashlar_nvme_protocol::{Completion, Status};
use ashlar_ring::mailbox::Receiver;
use ashlar_ring::{Handle, until, within};
use ashlar_units::{Extent, Nanos};
use ashlar_volume::{Request, Volume};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Without a keep-alive timeout a discovery controller is given up after this long without traffic.
const DISCOVERY_KEEP_ALIVE_MS: u32 = 120_000;

pub struct AdminSession<V> {
    handle: Handle,
    volumes: V,
    target: Arc<Target>,
    place: ControllerPlace,
    local: Option<IpAddr>,
    queue: RefCell<Queue>,
    controller: RefCell<Controller>,
    out: Rc<Outbound>,
}

/// What the handshake made of a controller.
pub struct NewAdmin {
    pub place: ControllerPlace,
    pub queue: Queue,
    /// KATO of Connect.
    pub keep_alive_ms: u32,
    /// The address by which the host came.
    pub local: Option<IpAddr>,
}

impl<V: Volumes> AdminSession<V> {
    pub fn new(server: &NvmeServer<V>, new: NewAdmin, out: Rc<Outbound>) -> AdminSession<V> {
        let (target, limits) = (Arc::clone(&server.target), &server.target.config.limits);
        add(&target.counters.controllers, 1);
        let entry = &new.place.entry;
        let terms = ControllerTerms {
            facts: target.facts(entry.kind, entry.id),
            host: entry.host.clone(),
            io_queues_max: limits.io_queues_max,
            entries_less_one_max: limits.entries_less_one_max,
            keep_alive_ms: match (entry.kind, new.keep_alive_ms) {
                (ControllerKind::Discovery, 0) => DISCOVERY_KEEP_ALIVE_MS,
                (_, told) => told,
            },
        };
        let controller = Controller::new(terms, now_ms(&server.handle));
        AdminSession {
            handle: server.handle.clone(),
            volumes: server.volumes.clone(),
            target,
            place: new.place,
            local: new.local,
            queue: RefCell::new(new.queue),
            controller: RefCell::new(controller),
            out,
        }
    }

    /// Serve the queue until it ends.
    pub async fn run(
        &self,
        inbound: &mut PduInbound,
        messages: Receiver<AdminMessage>,
    ) -> Result<SessionEnd, SessionError> {
        let mut result = Ok(SessionEnd::Ended);
        let is_silent = async { until(self.hear(messages), self.watch()).await.is_none() };
        let received = async { result = self.receive(inbound).await };
        match until(is_silent, received).await {
            Some(true) => {
                add(&self.target.counters.keep_alive_expired, 1);
                Err(SessionError::KeepAlive(self.place.entry.host.nqn.to_string()))
            }
            Some(false) => Ok(SessionEnd::Ended),
            None => result,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Controller) -> T) -> T {
        act(&mut self.controller.borrow_mut())
    }

    /// Commands, one after the other.
    async fn receive(&self, inbound: &mut PduInbound) -> Result<SessionEnd, SessionError> {
        loop {
            let Some(incoming) = inbound.next().await? else { return Ok(SessionEnd::HungUp) };
            let entry = match incoming.step {
                Step::Command(entry) => entry,
                Step::End(term) => return Err(SessionError::GivenUp(term)),
                Step::Data(_) => return Err(SessionError::Fatal(no_transfer())),
                Step::Greet(_) => unreachable!("a connection is greeted once"),
            };
            self.place.entry.saw_traffic();
            add(&self.target.counters.admin_commands, 1);
            let command = self.in_time(inbound, &incoming, entry).await?;
            let id = entry.command.get();
            let taken = self.queue.borrow_mut().take(id);
            match taken {
                Ok(()) => self.answer(&command),
                Err(NotTaken::InUse(status)) => {
                    let mut completion = Completion::new(id, status, 0);
                    completion.queue_head = self.queue.borrow_mut().advance().into();
                    self.out.push(Outgoing::completion(completion, None));
                }
                Err(NotTaken::QueueFull) => return Err(SessionError::QueueFull),
            }
        }
    }

    async fn in_time(
        &self,
        inbound: &mut PduInbound,
        incoming: &Incoming,
        entry: ashlar_nvme_protocol::Submission,
    ) -> Result<Command, SessionError> {
        let limit = self.target.config.limits.session.payload_time;
        let received = within(&self.handle, limit, Command::receive(inbound, incoming, entry));
        Ok(received.await.ok_or(SessionError::DataTimeout)??)
    }

    fn answer(&self, command: &Command) {
        let id = command.entry.command.get();
        let answer = if command.entry.opcode == FABRICS_OPCODE {
            self.fabrics(command)
        } else {
            self.execute(command)
        };
        match answer {
            Ok(Answer::Done { result, data }) => self.finish(id, Status::SUCCESS, result, data),
            Ok(Answer::Waits) => {}
            Ok(Answer::Abort { queue, command }) => self.abort(id, queue, command),
            Ok(Answer::AbortedRequest { command }) => {
                self.finish(command, Status::ABORT_REQUESTED, 0, Vec::new());
                self.finish(id, Status::SUCCESS, 0, Vec::new());
            }
            Ok(Answer::SetPersistence { namespace, persists }) => {
                self.set_persistence(id, namespace, persists);
            }
            Err(status) => self.finish(id, status, 0, Vec::new()),
        }
        self.tell_events();
    }

    fn fabrics(&self, command: &Command) -> Result<Answer, Status> {
        match command.fabrics()? {
            FabricsCommand::PropertyGet { offset, is_wide } => {
                let result = self.with(|it| it.properties().get(offset, is_wide))?;
                Ok(Answer::Done { result, data: Vec::new() })
            }
            FabricsCommand::PropertySet { offset, is_wide, value } => {
                let change = self.with(|it| it.set_property(offset, is_wide, value))?;
                self.changed(change);
                Ok(Answer::DONE)
            }
            FabricsCommand::Connect(_) => Err(Status::SEQUENCE_ERROR),
            FabricsCommand::AuthSend(_)
            | FabricsCommand::AuthReceive(_)
            | FabricsCommand::Disconnect => Err(Status::INVALID_OPCODE),
        }
    }

    /// The controller was enabled, reset or shut down.
    fn changed(&self, change: PropertyChange) {
        match change {
            PropertyChange::None => {}
            PropertyChange::Enabled => self.place.entry.set_ready(true),
            PropertyChange::Reset | PropertyChange::ShutDown => {
                self.place.entry.set_ready(false);
                self.place.entry.tell_queues(|| IoMessage::End);
            }
        }
        if change == PropertyChange::ShutDown {
            self.place.entry.admin.send(AdminMessage::ShutDown);
        }
        if change == PropertyChange::Reset {
            // Their requests are gone with the reset; the host uses the identifiers again.
            for id in self.with(Controller::drop_event_requests) {
                self.queue.borrow_mut().complete(id);
            }
        }
    }

    fn execute(&self, command: &Command) -> Result<Answer, Status> {
        let decoded = AdminCommand::decode(&command.entry)?;
        command.check_data(decoded.transfer())?;
        let entry = &self.place.entry;
        let target = &self.target;
        let table = target.table();
        let persistent = table.entries.iter().filter(|it| it.state.fence.persists());
        let persistent: Vec<u32> = persistent.map(|it| it.namespace.id).collect();
        let controllers: Vec<u16> =
            target.registry.of_kind(entry.kind).iter().map(|it| it.id).collect();
        let (generation, discovery) = target.discovery(&entry.host.nqn, self.local);
        let view = View {
            namespaces: &table.told,
            controllers: &controllers,
            discovery: &discovery,
            discovery_generation: generation,
            health: target.health(&table.told),
            persistent: &persistent,
            now_ms: now_ms(&self.handle),
        };
        self.with(|it| it.execute(command.entry.command.get(), &decoded, &view))
    }

    /// Answer a command.
    fn finish(&self, id: u16, status: Status, result: u64, data: Vec<u8>) {
        let mut completion = Completion::new(id, status, result);
        completion.queue_head = self.queue.borrow_mut().complete(id).into();
        if !status.is_success() {
            add(&self.target.counters.errors, 1);
        }
        let mut outgoing = Outgoing::completion(completion, None);
        if !data.is_empty() {
            let bytes = u32::try_from(data.len()).expect("a transfer is at most 1 GiB");
            let is_last = true;
            let header = C2hData { command: id, offset: 0, bytes, is_last, is_success: false };
            outgoing.data = Some((header, Buf::copied(&data)));
        }
        self.out.push(outgoing);
    }

    /// Have an I/O queue give a command up, if it has not begun.
    fn abort(&self, id: u16, queue: u16, command: u16) {
        let admin = self.place.entry.admin.clone();
        let message = IoMessage::Abort { command, abort: id, admin };
        if !self.place.entry.tell_queue(queue, message) {
            self.finish(id, Status::SUCCESS, 1, Vec::new());
        }
    }

    fn set_persistence(&self, id: u16, namespace: u32, persists: bool) {
        let table = self.target.table();
        let Some(entry) = table.entry(namespace).cloned() else {
            return self.finish(id, Status::INVALID_NAMESPACE, 0, Vec::new());
        };
        let (admin, host) = (self.place.entry.admin.clone(), self.place.entry.host.id);
        let store = Arc::clone(&self.target.config.store);
        (self.target.config.aside)(Box::new(move || {
            let state = &entry.state;
            let change = Change::Persist(persists);
            let result = state.fence.change(&*store, &state.nguid, host, &change).map(drop);
            admin.send(AdminMessage::Persisted { command: id, result });
        }));
    }

    /// What other queues and the rest of the target have to say. Ends when the controller must.
    async fn hear(&self, mut messages: Receiver<AdminMessage>) {
        loop {
            match messages.receive().await {
                AdminMessage::Namespace(id) => self.with(|it| it.namespace_changed(id)),
                AdminMessage::Discovery => self.with(Controller::discovery_changed),
                AdminMessage::Reservation(notice) => {
                    self.with(|it| it.reservation_notice(notice));
                }
                AdminMessage::Aborted { abort, was } => {
                    self.finish(abort, Status::SUCCESS, u64::from(!was), Vec::new());
                }
                AdminMessage::Persisted { command, result } => {
                    let status = result.err().unwrap_or(Status::SUCCESS);
                    self.finish(command, status, 0, Vec::new());
                }
                AdminMessage::ShutDown => self.shut_down().await,
                AdminMessage::End => return,
            }
            self.tell_events();
        }
    }

    /// Make everything durable that was answered. A controller that cannot says that it failed.
    async fn shut_down(&self) {
        let mut is_durable = true;
        for entry in self.target.table().entries.iter() {
            let Some(volume) = self.volumes.open(&entry.namespace.facts.name) else { continue };
            let command = ashlar_volume::Command::Flush;
            let flush = Request { command, extent: Extent::default(), fua: false };
            is_durable &= volume.submit(flush).await.is_ok();
        }
        self.with(|it| if is_durable { it.shutdown_is_complete() } else { it.fail() });
    }

    /// Answer requests for events, if something happened.
    fn tell_events(&self) {
        while let Some((id, result)) = self.with(Controller::next_event) {
            self.finish(id, Status::SUCCESS, result, Vec::new());
        }
    }

    /// Ends when the host was silent for too long.
    async fn watch(&self) {
        loop {
            let now = now_ms(&self.handle);
            let has_traffic = self.place.entry.take_traffic();
            let (expired, looks_at) = self.with(|it| {
                let timer = it.keep_alive();
                if has_traffic {
                    timer.saw_traffic();
                }
                (timer.has_expired(now), timer.looks_at_ms())
            });
            if expired {
                return;
            }
            // A timeout may be set later, so a timer that is off is looked at as well.
            let wait = looks_at.map_or(WATCH_MS, |at| at.saturating_sub(now).clamp(1, WATCH_MS));
            self.handle.sleep(Duration::from_millis(wait)).await;
        }
    }
}

fn now_ms(handle: &Handle) -> u64 {
    u64::try_from(handle.now().since(Nanos(0)).as_millis()).unwrap_or(u64::MAX)
}

/// Longest time between two looks at the timer, in milliseconds.
const WATCH_MS: u64 = 1000;

impl<V> Drop for AdminSession<V> {
    fn drop(&mut self) {
        self.target.counters.controllers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.out.break_off();
        self.out.stop();
    }
}
