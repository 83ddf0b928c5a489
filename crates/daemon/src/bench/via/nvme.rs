//! A host of NVMe/TCP, as small as can be: an admin queue, one I/O queue, no digests, one thread.
//!
//! What must stay true: what is to be sent goes out in one write as soon as everything that was
//! received is used up, as the client of NBD does it. Not here: discovery, authentication, losses.

use super::Client;
use super::child::SUBSYSTEM;
use super::load::{Asked, Effort, Until};
use crate::bench::places::Places;
use ashlar_nvme_protocol::command::{
    Connect, ConnectData, DYNAMIC_CONTROLLER, FabricsCommand, io_opcode,
};
use ashlar_nvme_protocol::connection::agreed_by_host;
use ashlar_nvme_protocol::nqn::{Host, HostId, Nqn};
use ashlar_nvme_protocol::pdu::{
    Body, COMMON_BYTES, H2cData, IcReq, Pdu, PduHead, R2t, Side, Terms, encode,
};
use ashlar_nvme_protocol::property::offset;
use ashlar_nvme_protocol::{Completion, Sgl, Status, Submission};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tokio::time::Instant;

/// A target that says nothing for so long is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often to look for the namespace, and how long to wait between two looks.
const NAMESPACE_LOOKS: u32 = 100;
const NAMESPACE_POLL: Duration = Duration::from_millis(100);
/// Places of the I/O queue; one stays free.
const ENTRIES: u16 = 128;
/// Longest write that goes into its capsule, in bytes.
const IN_CAPSULE_MAX: usize = 8192;
/// Logical block of the namespace, in bytes.
const BLOCK_BYTES: u32 = 4096;
/// Enable, and the sizes of queue entries.
const ENABLE: u64 = 0x0046_0001;
/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// A host with its queues.
pub(super) struct Nvme {
    /// The controller lives as long as its admin queue does.
    _admin: Queue,
    io: Queue,
}

impl Nvme {
    /// Connect to the target at `address`, and wait until its first namespace is there.
    pub(super) fn connect(address: &str) -> io::Result<Nvme> {
        let mut admin = Queue::greeted(address)?;
        let completion = admin.connect(0, DYNAMIC_CONTROLLER)?;
        let controller = u16::try_from(completion.result.get() & 0xffff).unwrap_or(0);
        let enable = FabricsCommand::PropertySet {
            offset: offset::CONFIGURATION,
            is_wide: false,
            value: ENABLE,
        };
        admin.run(enable.encode(), &[])?;
        let mut io = Queue::greeted(address)?;
        io.connect(1, controller)?;
        for _ in 0..NAMESPACE_LOOKS {
            let completion = io.ask(command(io_opcode::READ, 0, BLOCK_BYTES), &[], BLOCK_BYTES)?;
            if completion.status() == Status::SUCCESS {
                return Ok(Nvme { _admin: admin, io });
            }
            std::thread::sleep(NAMESPACE_POLL);
        }
        Err(io::Error::other("the volume does not become a namespace"))
    }
}

fn command(opcode: u8, offset: u64, bytes: u32) -> Submission {
    let first = offset / u64::from(BLOCK_BYTES);
    let low = u32::try_from(first & u64::from(u32::MAX)).unwrap_or(0);
    let high = u32::try_from(first >> 32).unwrap_or(0);
    Submission { opcode, flags: 0x40, namespace: 1.into(), ..Submission::default() }
        .with_dword(10, low)
        .with_dword(11, high)
        .with_dword(12, bytes / BLOCK_BYTES - 1)
}

fn number(at: usize) -> u16 {
    u16::try_from(at).expect("a queue has at most 127 commands")
}

fn bytes_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("at most 1 MiB")
}

/// One queue.
struct Queue {
    stream: TcpStream,
    terms: Terms,
    received: Vec<u8>,
    /// Where in `received` the bytes are that were not used yet.
    fresh: std::ops::Range<usize>,
    out: Vec<u8>,
}

impl Queue {
    fn greeted(address: &str) -> io::Result<Queue> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let (received, fresh, out) = (vec![0; RECEIVE_BYTES], 0..0, Vec::new());
        let mut queue = Queue { stream, terms: Terms::NONE, received, fresh, out };
        let request = IcReq {
            format: 0,
            hpda: 0,
            header_digest: false,
            data_digest: false,
            r2t_max_less_one: 0,
        };
        queue.add(&Body::IcReq(request), &[]);
        match queue.receive()? {
            Body::IcResp(response) => {
                queue.terms = agreed_by_host(&request, &response)
                    .map_err(|_| io::Error::other("the target's greeting makes no sense"))?;
                Ok(queue)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn connect(&mut self, number: u16, controller: u16) -> io::Result<Completion> {
        let connect = FabricsCommand::Connect(Connect {
            format: 0,
            queue: number,
            entries_less_one: if number == 0 { 31 } else { ENTRIES - 1 },
            is_without_flow_control: false,
            keep_alive_ms: 0,
        });
        let name = "nqn.2014-08.org.nvmexpress:uuid:ashlar-bench";
        let nqn = |name: &str| {
            name.parse::<Nqn>().map_err(|_| io::Error::other("that is no name of NVMe"))
        };
        let data = ConnectData {
            host: Host { id: HostId([0xB; 16]), nqn: nqn(name)? },
            controller,
            subsystem: nqn(SUBSYSTEM)?,
        };
        self.run(connect.encode(), &data.encode())
    }

    /// A command that must succeed.
    fn run(&mut self, entry: Submission, data: &[u8]) -> io::Result<Completion> {
        let completion = self.ask(entry, data, 0)?;
        match completion.status() {
            Status::SUCCESS => Ok(completion),
            status => Err(io::Error::other(format!("the target answered {status:?}"))),
        }
    }

    /// A command that is alone on its queue.
    fn ask(&mut self, entry: Submission, data: &[u8], answer: u32) -> io::Result<Completion> {
        self.start(0, entry, data, answer);
        loop {
            match self.receive()? {
                Body::C2hData(part) if part.is_success => {
                    return Ok(Completion::new(0, Status::SUCCESS, 0));
                }
                Body::C2hData(_) => {}
                Body::CapsuleResp(completion) => return Ok(completion),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Put a command into what is to be sent.
    fn start(&mut self, id: u16, entry: Submission, data: &[u8], answer: u32) {
        let bytes = bytes_of(data);
        let in_capsule = data.len() <= IN_CAPSULE_MAX;
        let sgl = match bytes {
            0 => Sgl::Transport { bytes: answer },
            _ if in_capsule => Sgl::InCapsule { offset: 0, bytes },
            _ => Sgl::Transport { bytes },
        };
        let entry = Submission { command: id.into(), sgl: sgl.encode(), ..entry };
        self.add(&Body::CapsuleCmd(entry), if in_capsule { data } else { &[] });
    }

    /// Put what was asked for into what is to be sent.
    fn add_asked(&mut self, r2t: &R2t, data: &[u8]) -> io::Result<()> {
        let range = usize::try_from(r2t.offset).ok().zip(usize::try_from(r2t.bytes).ok());
        let range = range.and_then(|(at, bytes)| data.get(at..at.checked_add(bytes)?));
        let asked =
            range.ok_or_else(|| io::Error::other("more data is asked for than there is"))?;
        let most = usize::try_from(self.terms.h2c_bytes_max).map_err(io::Error::other)?;
        let (mut offset, last) = (r2t.offset, asked.len().div_ceil(most));
        for (at, part) in asked.chunks(most).enumerate() {
            let (command, transfer) = (r2t.command, r2t.transfer);
            let bytes = bytes_of(part);
            let header = H2cData { command, transfer, offset, bytes, is_last: at + 1 == last };
            self.add(&Body::H2cData(header), part);
            offset += bytes;
        }
        Ok(())
    }

    fn add(&mut self, body: &Body, data: &[u8]) {
        self.out.extend(encode(body, bytes_of(data), &self.terms).as_bytes());
        self.out.extend(data);
    }

    /// The next PDU; its data is dropped.
    fn receive(&mut self) -> io::Result<Body> {
        let broken = || io::Error::other("the target does not answer as NVMe/TCP does");
        self.need(COMMON_BYTES)?;
        let common = self.received[self.fresh.start..][..COMMON_BYTES].try_into();
        let head = PduHead::decode(common.map_err(io::Error::other)?, Side::Controller);
        let head = head.map_err(|_| broken())?;
        let header_bytes = head.header_bytes(&self.terms);
        self.need(header_bytes)?;
        let header = &self.received[self.fresh.start..][..header_bytes];
        let pdu = Pdu::open(&head, header, &self.terms).map_err(|_| broken())?;
        let data_bytes = usize::try_from(pdu.data_bytes).map_err(io::Error::other)?;
        self.fresh.start += header_bytes;
        self.skip(pdu.pad_bytes + data_bytes)?;
        Ok(pdu.body)
    }

    fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        loop {
            let here = bytes.min(self.fresh.len());
            self.fresh.start += here;
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.need(1)?;
        }
    }

    /// Have `bytes` bytes that were received and not used.
    fn need(&mut self, bytes: usize) -> io::Result<()> {
        while self.fresh.len() < bytes {
            if !self.out.is_empty() {
                self.stream.write_all(&self.out)?;
                self.out.clear();
            }
            self.received.copy_within(self.fresh.clone(), 0);
            self.fresh = 0..self.fresh.len();
            let count = self.stream.read(&mut self.received[self.fresh.end..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.fresh.end += count;
        }
        Ok(())
    }
}

fn unexpected(body: &Body) -> io::Error {
    io::Error::other(format!("the target sent what nobody asked for: {body:?}"))
}

impl Client for Nvme {
    fn drive(&mut self, asked: &Asked, mut until: Until) -> io::Result<Effort> {
        if asked.depth >= usize::from(ENTRIES) {
            return Err(io::Error::other(format!(
                "one queue takes at most {} commands",
                ENTRIES - 1
            )));
        }
        let mut running = Running {
            asked: *asked,
            places: asked.places(),
            payload: vec![0; asked.bytes_usize()],
            since: vec![Instant::now(); asked.depth],
        };
        let (mut effort, begin) = (Effort::default(), Instant::now());
        let mut under_way = 0;
        while under_way < asked.depth && until.allows_one() {
            running.start(&mut self.io, number(under_way));
            under_way += 1;
        }
        while under_way > 0 {
            let id = match self.io.receive()? {
                Body::C2hData(part) if part.is_success => part.command,
                Body::C2hData(_) => continue,
                Body::CapsuleResp(it) if it.status() == Status::SUCCESS => it.command.get(),
                Body::R2t(r2t) => {
                    self.io.add_asked(&r2t, &running.payload)?;
                    continue;
                }
                other => return Err(unexpected(&other)),
            };
            let since = running.since.get(usize::from(id)).copied();
            effort.done(since.ok_or_else(|| io::Error::other("an answer to no command"))?);
            match until.allows_one() {
                true => running.start(&mut self.io, id),
                false => under_way -= 1,
            }
        }
        effort.time = begin.elapsed();
        Ok(effort)
    }
}

/// Commands that are under way.
struct Running {
    asked: Asked,
    places: Places,
    payload: Vec<u8>,
    since: Vec<Instant>,
}

impl Running {
    fn start(&mut self, queue: &mut Queue, id: u16) {
        let Asked { is_write, bytes, .. } = self.asked;
        let (opcode, answer) =
            if is_write { (io_opcode::WRITE, 0) } else { (io_opcode::READ, bytes) };
        let entry = command(opcode, self.places.next_offset(!self.asked.is_write), bytes);
        if is_write {
            self.places.renew(&mut self.payload);
        }
        let data = if is_write { &self.payload[..] } else { &[] };
        self.since[usize::from(id)] = Instant::now();
        queue.start(id, entry, data, answer);
    }
}
