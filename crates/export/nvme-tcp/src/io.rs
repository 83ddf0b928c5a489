//! An I/O queue: how bytes from a host become a request.
//!
//! A command's way: its header is received and judged (`admit`). Data in its capsule goes straight
//! into a buffer of the volume. Then the command begins, or waits in line for a slot and for room
//! (`starting`). Other data is requested once there is a buffer for it. When all of it is there, a
//! slot carries the command out (`slot`) and queues the answer.
//!
//! What must stay true: the receive loop never waits for a slot, for credit or for the pool,
//! because their holders may wait for data behind the next header. So the queue's entries bound the
//! waiting commands, and a limit and a deadline bound the awaited data. Not here: carrying out
//! (`slot`), and when a command may begin (`starting`).

use crate::counters::add;
use crate::inbound::{Incoming, PduInbound};
use crate::outbound::Outbound;
use crate::registry::{AdminMessage, IoMessage, QueueEntry};
use crate::reservations::UnderWay;
use crate::session::{NvmeServer, SessionEnd, SessionError};
use crate::slot::{Job, SlotShared};
use crate::starting::{Line, Pending};
use crate::table::State;
use crate::{Target, Volumes};
use ashlar_iobuf::BufMut;
use ashlar_nvme_protocol::command::{Blocks, FABRICS_OPCODE, FabricsCommand, IoCommand};
use ashlar_nvme_protocol::connection::Step;
use ashlar_nvme_protocol::pdu::H2cData;
use ashlar_nvme_protocol::queue::{NotTaken, Queue};
use ashlar_nvme_protocol::transfer::{Piece, Transfers};
use ashlar_nvme_protocol::{Data, Status, Submission, Transfer, place};
use ashlar_ring::mailbox::Receiver;
use ashlar_ring::{Handle, within};
use ashlar_session::Slots;
use ashlar_units::{Nanos, to_usize};
use ashlar_volume::{Volume, VolumeFacts};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A namespace that this queue has open.
pub struct OpenNamespace<V> {
    pub id: u32,
    pub volume: V,
    pub facts: VolumeFacts,
    pub(crate) state: Arc<State>,
    pub(crate) under_way: Arc<UnderWay>,
    /// Size in logical blocks, as of the last look.
    blocks: Cell<u64>,
}

impl<V: Volume> OpenNamespace<V> {
    /// # Errors
    /// `LBA_OUT_OF_RANGE` if these are not in the volume, which may have grown since the last look.
    fn expect_within(&self, blocks: Blocks) -> Result<(), Status> {
        if blocks.within(self.blocks.get()).is_err() {
            self.blocks.set(blocks_of(&self.volume.facts()));
        }
        blocks.within(self.blocks.get())
    }
}

fn blocks_of(facts: &VolumeFacts) -> u64 {
    facts.size_bytes / u64::from(facts.logical_block_bytes.max(1))
}

impl<V> Drop for OpenNamespace<V> {
    fn drop(&mut self) {
        self.state.end_use();
    }
}

/// A command whose data was asked for.
pub struct Arriving<V: Volume> {
    pub job: Job<V>,
    /// All of its data, as far as it is there.
    pub data: BufMut,
    /// When it was asked for.
    pub since: Nanos,
    /// Some of it did not arrive as it was sent.
    pub is_bad: bool,
}

/// A command that may be carried out, and where its data is.
struct Admitted<V> {
    command: IoCommand,
    namespace: Rc<OpenNamespace<V>>,
    data: Data,
}

pub struct IoSession<V: Volumes> {
    handle: Handle,
    target: Arc<Target>,
    volumes: V,
    place: QueueEntry,
    open: RefCell<Vec<Rc<OpenNamespace<V::Volume>>>>,
    shared: Rc<SlotShared<V::Volume>>,
    line: Line<V::Volume>,
}

impl<V: Volumes> Drop for IoSession<V> {
    fn drop(&mut self) {
        self.place.leave();
        self.shared.out.break_off();
        self.line.clear();
        for _ in 0..self.target.config.limits.session.slots {
            self.shared.jobs.push(None);
        }
        self.shared.out.stop();
    }
}

impl<V: Volumes> IoSession<V> {
    /// Make the queue's tasks.
    pub fn start(
        server: &NvmeServer<V>,
        place: QueueEntry,
        queue: Queue,
        out: Rc<Outbound>,
    ) -> IoSession<V> {
        let (handle, target) = (server.handle.clone(), Arc::clone(&server.target));
        let host = place.controller.host.id;
        let shared = SlotShared::new(server, queue, host, out);
        let slots = target.config.limits.session.slots;
        Slots::start(&handle, slots, || shared.clone().run_slot());
        let transfers = Transfers::new(u16::try_from(slots).unwrap_or(u16::MAX));
        let awaited_bytes_max = target.config.limits.awaited_bytes_max;
        let line = Line::new(transfers, awaited_bytes_max);
        let volumes = server.volumes.clone();
        IoSession { handle, target, volumes, place, open: RefCell::default(), shared, line }
    }

    /// Serve the queue until it ends.
    pub async fn run(
        &self,
        inbound: &mut PduInbound,
        messages: Receiver<IoMessage>,
    ) -> Result<SessionEnd, SessionError> {
        let mut receive = pin!(self.receive(inbound));
        let mut hear = pin!(self.hear(messages));
        let mut start = pin!(self.line.run(&self.handle, &self.shared));
        let mut watch = pin!(self.watch());
        poll_fn(|context| {
            if let Poll::Ready(result) = receive.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            if hear.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(SessionEnd::Ended));
            }
            if watch.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(SessionError::DataTimeout));
            }
            match start.as_mut().poll(context) {
                Poll::Ready(never) => match never {},
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Let what is under way end and its answers leave; not for ever. What waits is given up.
    pub async fn drain(&self) {
        self.line.clear();
        let limit = self.target.config.limits.session.drain_time;
        within(&self.handle, limit, self.shared.credit.all_back()).await;
        self.place.leave();
    }

    /// The receive loop.
    async fn receive(&self, inbound: &mut PduInbound) -> Result<SessionEnd, SessionError> {
        loop {
            let Some(incoming) = inbound.next().await? else { return Ok(SessionEnd::HungUp) };
            if self.shared.out.is_broken() {
                return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
            }
            match incoming.step {
                Step::Command(entry) => {
                    if self.command(inbound, &incoming, &entry).await? {
                        return Ok(SessionEnd::HungUp);
                    }
                }
                Step::Data(header) => self.data(inbound, &incoming, &header).await?,
                Step::End(term) => return Err(SessionError::GivenUp(term)),
                Step::Greet(_) => unreachable!("a connection is greeted once"),
            }
        }
    }

    /// One command; `true` if it ends the queue.
    async fn command(
        &self,
        inbound: &mut PduInbound,
        incoming: &Incoming,
        entry: &Submission,
    ) -> Result<bool, SessionError> {
        self.place.controller.saw_traffic();
        let id = entry.command.get();
        let taken = self.shared.queue.borrow_mut().take(id);
        match taken {
            Ok(()) => {}
            Err(NotTaken::QueueFull) => return Err(SessionError::QueueFull),
            Err(NotTaken::InUse(status)) => {
                self.in_time(inbound.skip_data(incoming)).await?;
                self.shared.refuse_untaken(id, status);
                return Ok(false);
            }
        }
        if entry.opcode == FABRICS_OPCODE {
            self.in_time(inbound.skip_data(incoming)).await?;
            return Ok(self.fabrics(entry));
        }
        match self.admit(entry, incoming.data_bytes) {
            Err(status) => {
                self.in_time(inbound.skip_data(incoming)).await?;
                self.shared.finish(id, Err(status), None);
            }
            Ok(admitted) => self.begin(inbound, incoming, id, admitted).await?,
        }
        Ok(false)
    }

    /// On an I/O queue only Disconnect is left to say.
    fn fabrics(&self, entry: &Submission) -> bool {
        let id = entry.command.get();
        match FabricsCommand::decode(entry) {
            Ok(FabricsCommand::Disconnect) => {
                self.shared.finish(id, Ok(None), None);
                return true;
            }
            Ok(FabricsCommand::Connect(_)) => {
                self.shared.finish(id, Err(Status::SEQUENCE_ERROR), None);
            }
            Ok(_) => self.shared.finish(id, Err(Status::INVALID_OPCODE), None),
            Err(status) => self.shared.finish(id, Err(status), None),
        }
        false
    }

    /// What a command asks for, or the status it gets.
    fn admit(&self, entry: &Submission, data_bytes: u32) -> Result<Admitted<V::Volume>, Status> {
        let command = IoCommand::decode(entry)?;
        self.shared.counters().count(&command);
        if !self.place.controller.is_ready() {
            return Err(Status::SEQUENCE_ERROR);
        }
        let namespace = self.namespace(entry.namespace.get())?;
        let facts = &namespace.facts;
        let block_bytes = facts.logical_block_bytes;
        let transfer = command.transfer(block_bytes);
        let bytes = match transfer {
            Transfer::None => 0,
            Transfer::ToController { most: bytes, .. } | Transfer::ToHost(bytes) => bytes,
        };
        if bytes
            > u64::from(facts.request_bytes_max).min(self.target.config.limits.transfer_bytes_max())
        {
            return Err(Status::INVALID_FIELD);
        }
        if let IoCommand::Read { blocks, .. }
        | IoCommand::Write { blocks, .. }
        | IoCommand::Compare { blocks }
        | IoCommand::WriteZeroes { blocks, .. } = &command
        {
            namespace.expect_within(*blocks)?;
        }
        let is_change = command.is_write() && !matches!(command, IoCommand::Flush);
        if is_change && facts.read_only {
            return Err(Status::WRITE_PROTECTED);
        }
        let data = place(entry, transfer, data_bytes)?;
        Ok(Admitted { command, namespace, data })
    }

    /// The namespace of this identifier, opened now if it was not.
    fn namespace(&self, id: u32) -> Result<Rc<OpenNamespace<V::Volume>>, Status> {
        let open = self.open.borrow().iter().find(|it| it.id == id).cloned();
        match open {
            Some(open) => Ok(open),
            None => self.open(id),
        }
    }

    fn open(&self, id: u32) -> Result<Rc<OpenNamespace<V::Volume>>, Status> {
        let table = self.target.table();
        let entry = table.entry(id).ok_or(Status::INVALID_NAMESPACE)?;
        let volume = self.volumes.open(&entry.namespace.facts.name);
        let volume = volume.ok_or(Status::NAMESPACE_NOT_READY)?;
        let facts = volume.facts();
        entry.state.begin_use();
        let open = Rc::new(OpenNamespace {
            id,
            blocks: Cell::new(blocks_of(&facts)),
            state: Arc::clone(&entry.state),
            under_way: entry.state.fence.enter(self.place.controller.host.id),
            volume,
            facts,
        });
        self.open.borrow_mut().push(Rc::clone(&open));
        Ok(open)
    }

    /// Receive the data of the capsule, if there is any, and let the command begin or wait in line.
    async fn begin(
        &self,
        inbound: &mut PduInbound,
        incoming: &Incoming,
        id: u16,
        admitted: Admitted<V::Volume>,
    ) -> Result<(), SessionError> {
        let Admitted { command, namespace, data } = admitted;
        let (payload, asks, bytes) = match data {
            Data::None => (None, 0, 0),
            Data::Send(bytes) => (None, 0, bytes),
            Data::Ask(bytes) => (None, bytes, bytes),
            Data::InCapsule(bytes) => {
                let room = capsule_buffer(&namespace, &command, to_usize(u64::from(bytes)));
                let (payload, is_right) = self.in_time(inbound.data(incoming, room)).await?;
                add(&self.shared.counters().written_bytes, u64::from(bytes));
                if !is_right {
                    add(&self.shared.counters().digest_errors, 1);
                    self.shared.finish(id, Err(Status::TRANSIENT_TRANSPORT_ERROR), None);
                    return Ok(());
                }
                (Some(payload), 0, bytes)
            }
        };
        let job = Job { id, command, namespace, payload, has_turn: false, ticket: None };
        let now = self.handle.turn_now();
        self.line.enter(Pending { job, asks, bytes }, &self.shared, now);
        Ok(())
    }

    /// Data that was asked for.
    async fn data(
        &self,
        inbound: &mut PduInbound,
        incoming: &Incoming,
        header: &H2cData,
    ) -> Result<(), SessionError> {
        let (piece, mut arriving) = self.line.accept(header).map_err(SessionError::Fatal)?;
        let Piece { offset, bytes, .. } = piece;
        let (mut data, at) = (arriving.data, to_usize(u64::from(offset)));
        let front = data.split_to(at);
        let window = data.split_to(to_usize(u64::from(bytes)));
        let (window, is_right) = self.in_time(inbound.data(incoming, window)).await?;
        arriving.data = joined(joined(front, window), data);
        arriving.is_bad |= !is_right;
        add(&self.shared.counters().written_bytes, u64::from(bytes));
        if !piece.is_complete {
            self.line.put_back(piece.transfer, arriving);
            return Ok(());
        }
        self.line.arrived(arriving.data.len());
        let mut job = arriving.job;
        if arriving.is_bad {
            add(&self.shared.counters().digest_errors, 1);
            self.shared.finish(job.id, Err(Status::TRANSIENT_TRANSPORT_ERROR), job.ticket);
            return Ok(());
        }
        job.payload = Some(arriving.data);
        self.shared.jobs.push(Some(job));
        Ok(())
    }

    async fn in_time<T>(
        &self,
        receiving: impl Future<Output = std::io::Result<T>>,
    ) -> Result<T, SessionError> {
        let limit = self.target.config.limits.session.payload_time;
        let received = within(&self.handle, limit, receiving).await;
        Ok(received.ok_or(SessionError::DataTimeout)??)
    }

    /// What the controller and the rest of the target have to say. Ends when the queue must.
    async fn hear(&self, mut messages: Receiver<IoMessage>) {
        loop {
            match messages.receive().await {
                IoMessage::Namespaces => self.open.borrow_mut().clear(),
                IoMessage::Abort { command, abort, admin } => {
                    let waited = self.line.remove(command);
                    let was = waited.is_some();
                    if let Some(pending) = waited {
                        self.shared.finish(pending.job.id, Err(Status::ABORT_REQUESTED), None);
                    }
                    admin.send(AdminMessage::Aborted { abort, was });
                }
                IoMessage::End => return,
            }
        }
    }

    /// Ends when data that was asked for did not come in time. Looks four times in that time, so
    /// that a transfer costs no timer.
    async fn watch(&self) {
        let limit = self.target.config.limits.session.payload_time;
        loop {
            self.handle.sleep(limit / 4).await;
            let now = self.handle.turn_now();
            if self.line.oldest().is_some_and(|since| now.since(since) >= limit) {
                return;
            }
        }
    }
}

/// Room for the data of a capsule. The receive loop cannot wait for the pool, so if the pool has
/// none, or the data is only compared with, memory of the connection takes its place.
fn capsule_buffer<V: Volume>(
    namespace: &OpenNamespace<V>,
    command: &IoCommand,
    bytes: usize,
) -> BufMut {
    match command {
        IoCommand::Write { .. } => crate::starting::at_once(namespace.volume.buffer(bytes)),
        _ => None,
    }
    .unwrap_or_else(|| BufMut::zeroed(bytes))
}

fn joined(front: BufMut, back: BufMut) -> BufMut {
    front.try_join(back).expect("pieces of one buffer")
}
