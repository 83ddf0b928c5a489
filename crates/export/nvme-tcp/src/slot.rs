//! How a command of an I/O queue is carried out.
//!
//! What must stay true: a job holds a ticket (its slot and its bytes) until its answer left; a slot
//! never waits for a second buffer of the pool while it holds one; a command that reads or writes
//! passes the fence right before it does, not when it came.
//! Not here: whether the command is allowed (`io`), and reservation commands (`reserve`).

use crate::Target;
use crate::counters::{NvmeCounters, add};
use crate::io::OpenNamespace;
use crate::outbound::{Outbound, Outgoing};
use crate::session::NvmeServer;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_nvme_protocol::command::{Blocks, IoCommand, decode_ranges};
use ashlar_nvme_protocol::nqn::HostId;
use ashlar_nvme_protocol::pdu::{Body, C2hData};
use ashlar_nvme_protocol::queue::Queue;
use ashlar_nvme_protocol::{Completion, Status};
use ashlar_ring::Handle;
use ashlar_ring::local;
use ashlar_session::{Credit, Ticket, read};
use ashlar_units::{Extent, to_u64, to_usize};
use ashlar_volume::{Command, Request, Transfer, Volume, VolumeError, VolumeErrorKind};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// SQHD of a queue without flow control.
const NO_FLOW_CONTROL: u16 = 0xffff;

/// A command, and what it holds.
pub struct Job<V: Volume> {
    pub id: u16,
    pub command: IoCommand,
    pub namespace: Rc<OpenNamespace<V>>,
    /// Data from the host.
    pub payload: Option<BufMut>,
    /// A write that has waited for its turn.
    pub has_turn: bool,
    /// There once it has begun.
    pub ticket: Option<Ticket>,
}

/// What the tasks of one queue share.
pub struct SlotShared<V: Volume> {
    pub handle: Handle,
    pub target: Arc<Target>,
    pub host: HostId,
    pub queue: RefCell<Queue>,
    pub out: Rc<Outbound>,
    /// `None` ends one slot.
    pub jobs: local::Queue<Option<Job<V>>>,
    pub credit: Credit,
}

impl<V: Volume> SlotShared<V> {
    pub fn new<S>(
        server: &NvmeServer<S>,
        queue: Queue,
        host: HostId,
        out: Rc<Outbound>,
    ) -> Rc<SlotShared<V>> {
        let (handle, target) = (server.handle.clone(), Arc::clone(&server.target));
        let share = server.share.clone();
        let limits = &target.config.limits.session;
        let credit = Credit::new(limits.slots, limits.bytes_in_flight_max, share);
        let queue = RefCell::new(queue);
        Rc::new(SlotShared { handle, target, host, queue, out, jobs: local::Queue::new(), credit })
    }

    pub fn counters(&self) -> &NvmeCounters {
        &self.target.counters
    }

    /// One slot: jobs, one after the other.
    pub async fn run_slot(self: Rc<Self>) {
        while let Some(mut job) = self.jobs.pop().await {
            let result = self.carry_out(&mut job).await;
            self.finish(job.id, result, job.ticket);
        }
    }

    /// Data for the host, or nothing.
    async fn carry_out(&self, job: &mut Job<V>) -> Result<Option<Buf>, Status> {
        let namespace = Rc::clone(&job.namespace);
        let payload = job.payload.take();
        match job.command {
            IoCommand::ReservationRegister(_)
            | IoCommand::ReservationReport { .. }
            | IoCommand::ReservationAcquire(_)
            | IoCommand::ReservationRelease(_) => {
                self.reserve(&namespace, &job.command, payload.as_deref()).await
            }
            _ => {
                let fence = &namespace.state.fence;
                let passing = fence.pass(&namespace.under_way, self.host, &job.command);
                let _passing = passing.inspect_err(|_| {
                    add(&self.counters().reservation_conflicts, 1);
                })?;
                // Data of a capsule came unasked, before its turn.
                if let IoCommand::Write { blocks, .. } = &job.command
                    && !job.has_turn
                {
                    let bytes = namespace.extent(*blocks).bytes;
                    namespace.volume.turn(Transfer::Write, bytes).await;
                }
                self.access(&namespace, &job.command, payload).await
            }
        }
    }

    async fn access(
        &self,
        namespace: &OpenNamespace<V>,
        command: &IoCommand,
        payload: Option<BufMut>,
    ) -> Result<Option<Buf>, Status> {
        let extent = |blocks: &Blocks| namespace.extent(*blocks);
        match command {
            IoCommand::Flush => {
                self.submit(namespace, Command::Flush, Extent::default(), false).await
            }
            IoCommand::Read { blocks, fua } => {
                if *fua {
                    // What is read must be durable by then.
                    let nothing = Extent::default();
                    self.submit(namespace, Command::Flush, nothing, false).await?;
                }
                self.read(namespace, extent(blocks)).await.map(|data| Some(data.freeze()))
            }
            IoCommand::Write { blocks, fua } => {
                let payload = payload.expect("a write has data").freeze();
                self.submit(namespace, Command::Write(payload), extent(blocks), *fua).await
            }
            IoCommand::WriteZeroes { blocks, fua, may_unmap } => {
                let command = Command::WriteZeroes { may_unmap: *may_unmap };
                self.submit(namespace, command, extent(blocks), *fua).await
            }
            IoCommand::Compare { blocks } => {
                let wanted = payload.expect("a compare has data");
                let found = self.read(namespace, extent(blocks)).await?;
                if found[..] == wanted[..] { Ok(None) } else { Err(Status::COMPARE_FAILURE) }
            }
            IoCommand::DatasetManagement { ranges, deallocate } => {
                let data = payload.expect("ranges are data");
                self.deallocate(namespace, decode_ranges(&data, *ranges)?, *deallocate).await
            }
            IoCommand::ReservationRegister(_)
            | IoCommand::ReservationReport { .. }
            | IoCommand::ReservationAcquire(_)
            | IoCommand::ReservationRelease(_) => unreachable!("these do not access blocks"),
        }
    }

    async fn submit(
        &self,
        namespace: &OpenNamespace<V>,
        command: Command,
        extent: Extent,
        fua: bool,
    ) -> Result<Option<Buf>, Status> {
        let is_write = !matches!(command, Command::Read(_));
        let result = namespace.volume.submit(Request { command, extent, fua }).await;
        result.map(|_| None).map_err(|error| self.status_of(error, is_write))
    }

    async fn read(&self, namespace: &OpenNamespace<V>, extent: Extent) -> Result<BufMut, Status> {
        namespace.volume.turn(Transfer::Read, extent.bytes).await;
        let buffer = namespace.volume.buffer(to_usize(extent.bytes)).await;
        let result = read(&namespace.volume, buffer, extent).await;
        result.map_err(|error| self.status_of(error, false))
    }

    /// All ranges are looked at before any is given back.
    async fn deallocate(
        &self,
        namespace: &OpenNamespace<V>,
        ranges: &[ashlar_nvme_protocol::command::DsmRange],
        deallocate: bool,
    ) -> Result<Option<Buf>, Status> {
        let facts = namespace.volume.facts();
        let blocks = facts.size_bytes / u64::from(facts.logical_block_bytes);
        ranges.iter().try_for_each(|range| range.blocks().within(blocks))?;
        for range in ranges.iter().filter(|range| deallocate && range.count.get() > 0) {
            let extent = namespace.extent(range.blocks());
            self.submit(namespace, Command::Discard, extent, false).await?;
        }
        Ok(None)
    }

    fn status_of(&self, error: VolumeError, is_write: bool) -> Status {
        match error.kind {
            VolumeErrorKind::Io => {
                add(&self.counters().media_errors, 1);
                if is_write { Status::WRITE_FAULT } else { Status::UNRECOVERED_READ }
            }
            VolumeErrorKind::BadExtent => Status::LBA_OUT_OF_RANGE,
            VolumeErrorKind::ReadOnly => Status::WRITE_PROTECTED,
            VolumeErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
            VolumeErrorKind::Stopped => Status::NAMESPACE_NOT_READY,
        }
    }

    /// Answer a command that was taken.
    pub fn finish(&self, id: u16, result: Result<Option<Buf>, Status>, ticket: Option<Ticket>) {
        let head = self.queue.borrow_mut().complete(id);
        let (status, data) = match result {
            Ok(data) => (Status::SUCCESS, data),
            Err(status) => {
                add(&self.counters().errors, 1);
                (status, None)
            }
        };
        let mut completion = Completion::new(id, status, 0);
        completion.queue_head = head.into();
        let mut outgoing = Outgoing::completion(completion, ticket);
        if let Some(data) = data {
            add(&self.counters().read_bytes, to_u64(data.len()));
            let bytes = u32::try_from(data.len()).expect("a transfer is at most 1 GiB");
            // Without flow control nobody needs the head, and the last data says that all is well.
            let is_success = head == NO_FLOW_CONTROL;
            let header = C2hData { command: id, offset: 0, bytes, is_last: true, is_success };
            outgoing.body = (!is_success).then_some(Body::CapsuleResp(completion));
            outgoing.data = Some((header, data));
        }
        self.out.push(outgoing);
    }

    /// Answer a command whose identifier is in use: the other one goes on.
    pub fn refuse_untaken(&self, id: u16, status: Status) {
        add(&self.counters().errors, 1);
        let mut completion = Completion::new(id, status, 0);
        completion.queue_head = self.queue.borrow_mut().advance().into();
        self.out.push(Outgoing::completion(completion, None));
    }
}

impl<V: Volume> OpenNamespace<V> {
    /// Blocks that exist, as bytes of the volume.
    pub fn extent(&self, blocks: Blocks) -> Extent {
        let block_bytes = u64::from(self.facts.logical_block_bytes);
        Extent::new(blocks.first * block_bytes, blocks.bytes(self.facts.logical_block_bytes))
    }
}
