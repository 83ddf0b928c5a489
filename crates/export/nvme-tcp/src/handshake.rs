//! From the first byte to a queue: ICReq, Connect, and authentication if it is required.
//!
//! What must stay true: everything else gets an error only. A queue exists only for a listed host
//! that has authenticated if it must. All of it falls under one deadline, and a connection holds a
//! few KiB until it is over.

use crate::counters::add;
use crate::exchange::Exchange;
use crate::inbound::{Incoming, PduInbound};
use crate::registry::{AdminMessage, ControllerPlace, IoMessage, NewController, QueueEntry};
use crate::session::{NvmeServer, SessionError};
use crate::target::HostTerms;
use crate::{Target, Volumes};
use ashlar_iobuf::{Buf, BufMut};
use ashlar_nvme_protocol::auth::Parties;
use ashlar_nvme_protocol::command::{
    CONNECT_DATA_BYTES, Connect, ConnectData, DYNAMIC_CONTROLLER, FabricsCommand, InvalidParameter,
    connect_result,
};
use ashlar_nvme_protocol::connection::Step;
use ashlar_nvme_protocol::identify::ControllerKind;
use ashlar_nvme_protocol::nqn::{Host, Nqn};
use ashlar_nvme_protocol::pdu::{Body, C2hData, Terms, encode};
use ashlar_nvme_protocol::queue::{NotTaken, Queue};
use ashlar_nvme_protocol::{Completion, Data, Status, Submission, Transfer, place};
use ashlar_ring::Handle;
use ashlar_ring::mailbox::{Receiver, mailbox};
use ashlar_session::{PlainSocket, Stream};
use ashlar_units::to_usize;
use std::io;
use std::sync::Arc;

/// What a connection became.
pub struct Connected {
    pub queue: Queue,
    pub role: Role,
}

/// Which kind of queue.
pub enum Role {
    /// The admin queue of a new controller.
    Admin { place: ControllerPlace, messages: Receiver<AdminMessage>, keep_alive_ms: u32 },
    /// An I/O queue of a controller that is there.
    Io { place: QueueEntry, messages: Receiver<IoMessage> },
}

impl Connected {
    fn host(&self) -> &Host {
        match &self.role {
            Role::Admin { place, .. } => &place.entry.host,
            Role::Io { place, .. } => &place.controller.host,
        }
    }

    /// HOSTNQN.
    pub fn host_name(&self) -> &str {
        self.host().nqn.as_str()
    }

    fn subsystem(&self, target: &Target) -> Nqn {
        match &self.role {
            Role::Admin { place, .. } => target.facts(place.entry.kind, 0).subsystem,
            Role::Io { .. } => target.config.identity.nqn.clone(),
        }
    }

    fn terms(&self) -> &HostTerms {
        match &self.role {
            Role::Admin { place, .. } => &place.entry.terms,
            Role::Io { place, .. } => &place.controller.terms,
        }
    }

    fn controller(&self) -> u16 {
        match &self.role {
            Role::Admin { place, .. } => place.entry.id,
            Role::Io { place, .. } => place.controller.id,
        }
    }
}

/// Why a Connect is refused: its status and its result.
type Refusal = (Status, u64);

fn invalid(parameter: InvalidParameter) -> Refusal {
    (Status::CONNECT_INVALID_PARAMETERS, parameter.result())
}

/// The first phase of a connection.
pub struct Handshake<'a> {
    handle: &'a Handle,
    target: &'a Arc<Target>,
    socket: &'a PlainSocket,
}

impl<'a> Handshake<'a> {
    pub fn new<V: Volumes>(server: &'a NvmeServer<V>, socket: &'a PlainSocket) -> Handshake<'a> {
        Handshake { handle: &server.handle, target: &server.target, socket }
    }

    /// Until the connection is a queue; `None` if the host leaves.
    pub async fn run(&self, inbound: &mut PduInbound) -> Result<Option<Connected>, SessionError> {
        let Some(first) = inbound.next().await? else { return Ok(None) };
        let response = match first.step {
            Step::Greet(response) => response,
            Step::End(term) => return Err(SessionError::GivenUp(term)),
            Step::Command(_) | Step::Data(_) => unreachable!("a connection begins with ICReq"),
        };
        self.send(encode(&Body::IcResp(response), 0, &Terms::NONE).as_bytes()).await?;
        while let Some(command) = self.next(inbound).await? {
            let (completion, connected) = self.connect(&command);
            self.answer(inbound, completion).await?;
            let Some(mut connected) = connected else { continue };
            if connected.terms().host_secret.is_none() {
                return Ok(Some(connected));
            }
            let is_proven = self.authenticate(inbound, &mut connected).await?;
            return Ok(is_proven.then_some(connected));
        }
        Ok(None)
    }

    /// The next command with the data of its capsule.
    async fn next(&self, inbound: &mut PduInbound) -> Result<Option<Command>, SessionError> {
        let Some(incoming) = inbound.next().await? else { return Ok(None) };
        match incoming.step {
            Step::Command(entry) => Ok(Some(Command::receive(inbound, &incoming, entry).await?)),
            Step::End(term) => Err(SessionError::GivenUp(term)),
            // No data was asked for, so this ends the connection.
            Step::Data(_) => Err(SessionError::Fatal(no_transfer())),
            Step::Greet(_) => unreachable!("a connection is greeted once"),
        }
    }

    /// What a command before any Connect is answered with.
    fn connect(&self, command: &Command) -> (Completion, Option<Connected>) {
        let id = command.entry.command.get();
        let refused = |(status, result)| (Completion::new(id, status, result), None);
        let connect = match command.fabrics() {
            Ok(FabricsCommand::Connect(connect)) => connect,
            Ok(_) => return refused((Status::SEQUENCE_ERROR, 0)),
            Err(status) => return refused((status, 0)),
        };
        match self.try_connect(&connect, command) {
            Err(refusal) => refused(refusal),
            Ok(mut connected) => {
                let must_authenticate = connected.terms().host_secret.is_some();
                let result = connect_result(connected.controller(), must_authenticate);
                let mut completion = Completion::new(id, Status::SUCCESS, result);
                if connected.queue.take(id).is_ok() {
                    completion.queue_head = connected.queue.complete(id).into();
                }
                (completion, Some(connected))
            }
        }
    }

    fn try_connect(&self, connect: &Connect, command: &Command) -> Result<Connected, Refusal> {
        let data = command.data.as_ref().map_err(|status| (*status, 0))?;
        connect.check(self.target.config.limits.entries_less_one_max)?;
        let data = <&[u8; CONNECT_DATA_BYTES]>::try_from(&data[..]);
        let data = data.map_err(|_| (Status::SGL_LENGTH_INVALID, 0))?;
        let data = ConnectData::decode(data).map_err(invalid)?;
        let flow_control = !connect.is_without_flow_control;
        let queue = Queue::new(connect.queue, connect.entries_less_one, flow_control);
        let role = match connect.queue {
            0 => self.connect_admin(connect, data)?,
            _ => self.connect_io(connect, &data)?,
        };
        Ok(Connected { queue, role })
    }

    fn connect_admin(&self, connect: &Connect, data: ConnectData) -> Result<Role, Refusal> {
        let target = self.target;
        let kind = if data.subsystem == Nqn::discovery() {
            ControllerKind::Discovery
        } else if data.subsystem == target.config.identity.nqn {
            ControllerKind::Io
        } else {
            return Err(invalid(InvalidParameter::SUBSYSTEM));
        };
        if data.controller != DYNAMIC_CONTROLLER {
            return Err(invalid(InvalidParameter::CONTROLLER));
        }
        let terms = match (kind, target.config.hosts.terms(&data.host.nqn)) {
            (ControllerKind::Io, Some(terms)) => terms.clone(),
            // A host that is not on the list sees no subsystem.
            (ControllerKind::Discovery, _) => HostTerms::default(),
            (ControllerKind::Io, None) => {
                add(&target.counters.hosts_refused, 1);
                return Err((Status::CONNECT_INVALID_HOST, 0));
            }
        };
        let (admin, messages) = mailbox(self.handle);
        let new = NewController { host: data.host, kind, terms, admin };
        let place = target.registry.enter(new, target.config.limits.controllers_max);
        let place = place.ok_or((Status::CONNECT_BUSY, 0))?;
        Ok(Role::Admin { place, messages, keep_alive_ms: connect.keep_alive_ms })
    }

    fn connect_io(&self, connect: &Connect, data: &ConnectData) -> Result<Role, Refusal> {
        let target = self.target;
        if data.subsystem != target.config.identity.nqn {
            return Err(invalid(InvalidParameter::SUBSYSTEM));
        }
        let controller = target.registry.find(data.controller);
        let controller = controller.filter(|it| it.kind == ControllerKind::Io);
        let controller = controller.ok_or(invalid(InvalidParameter::CONTROLLER))?;
        if controller.host != data.host {
            let is_name = controller.host.nqn != data.host.nqn;
            let host = if is_name { InvalidParameter::HOST_NQN } else { InvalidParameter::HOST_ID };
            return Err(invalid(host));
        }
        if connect.queue > target.config.limits.io_queues_max {
            return Err(invalid(InvalidParameter::QUEUE));
        }
        if !controller.is_ready() {
            return Err((Status::SEQUENCE_ERROR, 0));
        }
        let (sender, messages) = mailbox(self.handle);
        let place = controller.add_queue(connect.queue, sender);
        let place = place.ok_or((Status::SEQUENCE_ERROR, 0))?;
        Ok(Role::Io { place, messages })
    }

    /// Until the host proved who it is; `false` if it leaves.
    async fn authenticate(
        &self,
        inbound: &mut PduInbound,
        connected: &mut Connected,
    ) -> Result<bool, SessionError> {
        let Some(parties) = parties(connected, self.target) else { return Ok(true) };
        let mut exchange = Exchange::new(self.handle, self.target, parties);
        while let Some(command) = self.next(inbound).await? {
            let id = command.entry.command.get();
            if let Err(NotTaken::QueueFull) = connected.queue.take(id) {
                return Err(SessionError::QueueFull);
            }
            let (status, message) = match exchange.step(&command).await {
                Ok(message) => (Status::SUCCESS, message),
                Err(status) => (status, Vec::new()),
            };
            let mut completion = Completion::new(id, status, 0);
            completion.queue_head = connected.queue.complete(id).into();
            self.answer_with(inbound, completion, &message).await?;
            let was_told = !message.is_empty();
            if exchange.has_failed() && was_told {
                add(&self.target.counters.hosts_refused, 1);
                let host = connected.host_name().to_owned();
                return Err(SessionError::Authentication(host));
            }
            if exchange.is_done() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn answer(&self, inbound: &PduInbound, completion: Completion) -> io::Result<()> {
        self.answer_with(inbound, completion, &[]).await
    }

    async fn answer_with(
        &self,
        inbound: &PduInbound,
        completion: Completion,
        data: &[u8],
    ) -> io::Result<()> {
        let terms = inbound.connection().terms();
        let mut bytes = Vec::new();
        if !data.is_empty() {
            let length = u32::try_from(data.len()).expect("a message is short");
            let header = C2hData {
                command: completion.command.get(),
                offset: 0,
                bytes: length,
                is_last: true,
                is_success: false,
            };
            let header = encode(&Body::C2hData(header), length, &terms);
            bytes.extend(header.as_bytes());
            bytes.extend(data);
            if header.has_data_digest {
                bytes.extend(ashlar_nvme_protocol::digest::digest(data));
            }
        }
        bytes.extend(encode(&Body::CapsuleResp(completion), 0, &terms).as_bytes());
        self.send(&bytes).await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send_all(vec![Buf::copied(bytes)]).await.0
    }
}

/// A data PDU of a transfer that is not open.
pub fn no_transfer() -> ashlar_nvme_protocol::pdu::Fatal {
    ashlar_nvme_protocol::pdu::Fatal::field(10)
}

/// Who proves what to whom; `None` if nobody must.
fn parties(connected: &Connected, target: &Target) -> Option<Parties> {
    let terms = connected.terms();
    Some(Parties {
        host: connected.host().nqn.clone(),
        subsystem: connected.subsystem(target),
        host_secret: terms.host_secret.clone()?,
        controller_secret: terms.controller_secret.clone(),
        least_group: terms.least_group,
    })
}

/// A command whose capsule was received whole.
pub struct Command {
    pub entry: Submission,
    /// The capsule's data, if it is where the command says and arrived as it was sent.
    pub data: Result<Vec<u8>, Status>,
}

impl Command {
    /// Receive the data of a capsule that is not of a read or a write.
    pub async fn receive(
        inbound: &mut PduInbound,
        incoming: &Incoming,
        entry: Submission,
    ) -> io::Result<Command> {
        let bytes = to_usize(u64::from(incoming.data_bytes));
        if bytes == 0 {
            return Ok(Command { entry, data: Ok(Vec::new()) });
        }
        let (data, is_right) = inbound.data(incoming, BufMut::zeroed(bytes)).await?;
        let data =
            if is_right { Ok(data.to_vec()) } else { Err(Status::TRANSIENT_TRANSPORT_ERROR) };
        Ok(Command { entry, data })
    }

    /// Check that its data is where `transfer` wants it: data to the controller is in the capsule.
    pub fn check_data(&self, transfer: Transfer) -> Result<(), Status> {
        let data = self.data.as_ref().map_err(|status| *status)?;
        let bytes = u32::try_from(data.len()).expect("a capsule is short");
        match place(&self.entry, transfer, bytes)? {
            Data::None | Data::InCapsule(_) | Data::Send(_) => Ok(()),
            Data::Ask(_) => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// The fabrics command that it is.
    pub fn fabrics(&self) -> Result<FabricsCommand, Status> {
        let command = FabricsCommand::decode(&self.entry)?;
        self.check_data(command.transfer())?;
        Ok(command)
    }
}
