//! Handles bytes from a host without a socket: for tests that make such bytes from a seed, and for
//! libFuzzer.
//!
//! What must stay true: the order of steps is that of a target: ICReq, Connect, then commands with
//! their data. No input causes a panic here. Answers have the requested length, and admitted blocks
//! exist. Requested data is accepted once and in order. The state of reservations stays possible.

use crate::auth::{AUTH_MESSAGE_BYTES_MAX, Authentication, Group, Parties, Random};
use crate::command::{
    AdminCommand, CONNECT_DATA_BYTES, ConnectData, FABRICS_OPCODE, FabricsCommand, IoCommand,
    decode_ranges,
};
use crate::connection::{Connection, Offer, Step};
use crate::controller::{Answer, Controller, ControllerTerms, View};
use crate::identify::{ControllerFacts, ControllerKind, NamespaceFacts};
use crate::log::Health;
use crate::nqn::{Host, HostId, Nqn};
use crate::pdu::{COMMON_BYTES, Fatal, Pdu, PduHead, Side};
use crate::queue::{NotTaken, Queue};
use crate::reservation::{Reservations, acquire_keys, register_keys, release_key};
use crate::transfer::Transfers;
use crate::{Data, Status, Submission, Transfer, place};

/// What came of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// PDUs that were accepted.
    pub pdus: u32,
    /// Whether a queue was connected.
    pub connects: bool,
    /// Commands that would be carried out.
    pub admitted: u32,
    /// Commands that would be answered with an error.
    pub refused: u32,
    /// Pieces of data that were asked for and came.
    pub pieces: u32,
    /// Whether the bytes ended the connection.
    pub is_fatal: bool,
}

/// Most data of a command here, in bytes.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// MAXH2CDATA and in-capsule data here.
const OFFER: Offer = Offer { h2c_bytes_max: 128 << 10, in_capsule_bytes_max: 8192 };
const BLOCKS: u64 = 2048;

/// The front of `rest`, which is then without it.
fn take<'i>(rest: &mut &'i [u8], bytes: usize) -> Option<&'i [u8]> {
    let (front, back) = rest.split_at_checked(bytes)?;
    *rest = back;
    Some(front)
}

/// Hear all of `input`.
///
/// # Panics
/// If something that must stay true does not.
pub fn hear(input: &[u8]) -> Heard {
    let mut target = Target::new();
    let mut rest = input;
    while target.pdu(&mut rest).is_some() {}
    target.heard
}

/// A command whose data was asked for.
struct Waiting {
    entry: Submission,
    data: Vec<u8>,
    transfer: u16,
}

struct Target {
    heard: Heard,
    connection: Connection,
    transfers: Transfers,
    queue: Option<Queue>,
    controller: Controller,
    namespaces: [NamespaceFacts; 1],
    reservations: Reservations,
    authentication: Authentication,
    waiting: Vec<Waiting>,
}

fn host() -> Host {
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:11".parse().expect("well formed");
    Host { id: HostId([7; 16]), nqn }
}

fn facts() -> ControllerFacts {
    ControllerFacts {
        kind: ControllerKind::Io,
        id: 1,
        subsystem: "nqn.2024-01.example:disk".parse().expect("well formed"),
        serial: "1".to_owned(),
        model: "model".to_owned(),
        firmware: "1".to_owned(),
        transfer_power_max: 8,
        namespaces_max: 16,
        in_capsule_bytes_max: OFFER.in_capsule_bytes_max,
        commands_max: 128,
        async_events_max: 4,
        aborts_max: 4,
    }
}

impl Target {
    fn new() -> Target {
        let terms = ControllerTerms {
            facts: facts(),
            host: host(),
            io_queues_max: 4,
            entries_less_one_max: 127,
            keep_alive_ms: 0,
        };
        let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        let parties = Parties {
            host: host().nqn,
            subsystem: Nqn::discovery(),
            host_secret: secret.parse().expect("well formed"),
            controller_secret: None,
            least_group: Group::Null,
        };
        let namespace = NamespaceFacts {
            id: 1,
            nguid: [1; 16],
            uuid: [2; 16],
            blocks: BLOCKS,
            block_power: 9,
            physical_blocks: 8,
            optimal_blocks: 128,
            read_only: false,
        };
        Target {
            heard: Heard::default(),
            connection: Connection::new(OFFER),
            transfers: Transfers::new(8),
            queue: None,
            controller: Controller::new(terms, 0),
            namespaces: [namespace],
            reservations: Reservations::default(),
            authentication: Authentication::new(parties),
            waiting: Vec::new(),
        }
    }

    /// One PDU with its data; `None` if the connection ends.
    fn pdu(&mut self, rest: &mut &[u8]) -> Option<()> {
        let step = self.header(rest)?;
        let (pdu, step) = self.fatal_ends(step)?;
        take(rest, pdu.pad_bytes)?;
        let data = take(rest, usize::try_from(pdu.data_bytes).ok()?)?;
        if pdu.has_data_digest {
            take(rest, 4)?;
        }
        self.heard.pdus += 1;
        match step {
            Step::Greet(_) => Some(()),
            Step::End(_) => None,
            Step::Command(entry) => self.command(entry, data),
            Step::Data(header) => {
                let piece = self.transfers.accept(&header);
                let piece = self.fatal_ends(piece)?;
                let at = self.waiting.iter().position(|it| it.transfer == piece.transfer);
                let at = at.expect("a transfer that is open has its command");
                let offset = usize::try_from(piece.offset).expect("within the command's data");
                self.waiting[at].data[offset..offset + data.len()].copy_from_slice(data);
                self.heard.pieces += 1;
                if piece.is_complete {
                    let whole = self.waiting.swap_remove(at);
                    self.finish(whole.entry, &whole.data);
                }
                Some(())
            }
        }
    }

    fn header(&mut self, rest: &mut &[u8]) -> Option<Result<(Pdu, Step), Fatal>> {
        let begin = *rest;
        let common = take(rest, COMMON_BYTES)?.try_into().ok()?;
        let terms = self.connection.terms();
        let head = match PduHead::decode(common, Side::Host) {
            Ok(head) => head,
            Err(fatal) => return Some(Err(fatal)),
        };
        let bytes = head.header_bytes(&terms);
        assert!(bytes <= crate::pdu::HEADER_BYTES_MAX);
        take(rest, bytes - COMMON_BYTES)?;
        let opened = Pdu::open(&head, &begin[..bytes], &terms);
        Some(opened.and_then(|pdu| Ok((pdu, self.connection.receive(&pdu.body)?))))
    }

    fn fatal_ends<T>(&mut self, result: Result<T, Fatal>) -> Option<T> {
        self.heard.is_fatal |= result.is_err();
        result.ok()
    }

    fn command(&mut self, entry: Submission, data: &[u8]) -> Option<()> {
        let id = entry.command.get();
        let placed = self.transfer_of(&entry);
        let capsule_bytes = u32::try_from(data.len()).expect("at most 8 KiB");
        let placed = placed.and_then(|transfer| place(&entry, transfer, capsule_bytes));
        if let Some(queue) = &mut self.queue {
            match queue.take(id) {
                Ok(()) => {}
                Err(NotTaken::InUse(_)) => {
                    self.heard.refused += 1;
                    return Some(());
                }
                Err(NotTaken::QueueFull) => return None,
            }
        }
        match placed {
            Err(_) => self.answered(id, false),
            Ok(Data::None | Data::InCapsule(_)) => self.finish(entry, data),
            Ok(Data::Send(bytes)) => {
                assert!(bytes <= TRANSFER_BYTES_MAX);
                self.finish(entry, &[]);
            }
            Ok(Data::Ask(bytes)) => {
                assert!(bytes <= TRANSFER_BYTES_MAX);
                match self.transfers.open(id, bytes) {
                    None => self.answered(id, false),
                    Some(r2t) => {
                        let data = vec![0; usize::try_from(bytes).expect("bounded")];
                        self.waiting.push(Waiting { entry, data, transfer: r2t.transfer });
                    }
                }
            }
        }
        Some(())
    }

    fn transfer_of(&self, entry: &Submission) -> Result<Transfer, Status> {
        let transfer = match (&self.queue, entry.opcode) {
            (_, FABRICS_OPCODE) => FabricsCommand::decode(entry)?.transfer(),
            (None, _) => return Err(Status::SEQUENCE_ERROR),
            (Some(queue), _) if queue.id() == 0 => AdminCommand::decode(entry)?.transfer(),
            (Some(_), _) => IoCommand::decode(entry)?.transfer(512),
        };
        let bytes = match transfer {
            Transfer::None => 0,
            Transfer::ToHost(bytes) => bytes,
            Transfer::ToController { most, .. } => most,
        };
        let is_too_long = bytes > u64::from(TRANSFER_BYTES_MAX);
        if is_too_long { Err(Status::INVALID_FIELD) } else { Ok(transfer) }
    }

    fn answered(&mut self, id: u16, is_good: bool) {
        self.heard.admitted += u32::from(is_good);
        self.heard.refused += u32::from(!is_good);
        if let Some(queue) = &mut self.queue {
            queue.complete(id);
        }
    }

    /// All data of a command is there.
    fn finish(&mut self, entry: Submission, data: &[u8]) {
        let id = entry.command.get();
        let result = match (&self.queue, entry.opcode) {
            (_, FABRICS_OPCODE) => self.fabrics(&entry, data),
            (Some(queue), _) if queue.id() == 0 => self.admin(&entry),
            _ => self.io(&entry, data),
        };
        assert!(self.reservations.is_consistent(), "{:?}", self.reservations);
        self.answered(id, result.is_ok());
    }

    fn fabrics(&mut self, entry: &Submission, data: &[u8]) -> Result<(), Status> {
        match FabricsCommand::decode(entry)? {
            FabricsCommand::Connect(connect) => {
                if self.queue.is_some() {
                    return Err(Status::SEQUENCE_ERROR);
                }
                connect.check(127).map_err(|(status, _)| status)?;
                let data = <&[u8; CONNECT_DATA_BYTES]>::try_from(data);
                let data = data.map_err(|_| Status::SGL_LENGTH_INVALID)?;
                let told = ConnectData::decode(data);
                let told = told.map_err(|_| Status::CONNECT_INVALID_PARAMETERS)?;
                assert_eq!(ConnectData::decode(&told.encode()), Ok(told));
                let flow = !connect.is_without_flow_control;
                let mut queue = Queue::new(connect.queue, connect.entries_less_one, flow);
                queue.take(entry.command.get()).map_err(|_| Status::INTERNAL_ERROR)?;
                self.queue = Some(queue);
                self.heard.connects = true;
                Ok(())
            }
            FabricsCommand::PropertyGet { offset, is_wide } => {
                self.controller.properties().get(offset, is_wide).map(drop)
            }
            FabricsCommand::PropertySet { offset, is_wide, value } => {
                self.controller.set_property(offset, is_wide, value).map(drop)
            }
            FabricsCommand::AuthSend(auth) => {
                auth.check(AUTH_MESSAGE_BYTES_MAX)?;
                let random = Random { challenge: [9; 64], sequence: 1, exponent: [8; 64] };
                self.authentication.send(data, &random);
                assert!(!self.authentication.is_done(), "nobody knows the secret");
                Ok(())
            }
            FabricsCommand::AuthReceive(auth) => {
                auth.check(AUTH_MESSAGE_BYTES_MAX)?;
                self.authentication.receive().map(drop).ok_or(Status::SEQUENCE_ERROR)
            }
            FabricsCommand::Disconnect => Ok(()),
        }
    }

    fn admin(&mut self, entry: &Submission) -> Result<(), Status> {
        let command = AdminCommand::decode(entry)?;
        let view = View {
            namespaces: &self.namespaces,
            controllers: &[1, 2],
            discovery: &[],
            discovery_generation: 0,
            health: Health::default(),
            persistent: &[],
            now_ms: 0,
        };
        let answer = self.controller.execute(entry.command.get(), &command, &view)?;
        if let Answer::Done { data, .. } = answer {
            let length = u64::try_from(data.len()).expect("bounded");
            let asked = match command.transfer() {
                Transfer::ToHost(bytes) => bytes,
                Transfer::None | Transfer::ToController { .. } => 0,
            };
            assert_eq!(length, asked, "{command:?}");
        }
        Ok(())
    }

    fn io(&mut self, entry: &Submission, data: &[u8]) -> Result<(), Status> {
        let command = IoCommand::decode(entry)?;
        let host = self.controller.host().id;
        self.reservations.admit(host, &command)?;
        match command {
            IoCommand::Flush => Ok(()),
            IoCommand::Read { blocks, .. }
            | IoCommand::Write { blocks, .. }
            | IoCommand::Compare { blocks }
            | IoCommand::WriteZeroes { blocks, .. } => {
                blocks.within(BLOCKS)?;
                assert!(blocks.first + u64::from(blocks.count) <= BLOCKS && blocks.count > 0);
                Ok(())
            }
            IoCommand::DatasetManagement { ranges, .. } => {
                let ranges = decode_ranges(data, ranges)?;
                ranges.iter().try_for_each(|range| range.blocks().within(BLOCKS))
            }
            IoCommand::ReservationRegister(register) => {
                self.reservations.register(host, &register, register_keys(data)?).map(drop)
            }
            IoCommand::ReservationReport { .. } => {
                self.reservations.report(&[]);
                Ok(())
            }
            IoCommand::ReservationAcquire(acquire) => {
                self.reservations.acquire(host, &acquire, acquire_keys(data)?).map(drop)
            }
            IoCommand::ReservationRelease(release) => {
                self.reservations.release(host, &release, release_key(data)?).map(drop)
            }
        }
    }
}
