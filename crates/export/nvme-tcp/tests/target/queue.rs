//! One queue of a host: it keeps the rules, or breaks the one that a test wants broken.

use ashlar_nvme_protocol::command::{
    Connect, ConnectData, DYNAMIC_CONTROLLER, FabricsCommand, admin_opcode, io_opcode,
};
use ashlar_nvme_protocol::connection::agreed_by_host;
use ashlar_nvme_protocol::digest::digest;
use ashlar_nvme_protocol::nqn::{Host, HostId, Nqn};
use ashlar_nvme_protocol::pdu::{
    Body, COMMON_BYTES, H2cData, IcReq, Pdu, PduHead, R2t, Side, TermReq, Terms, encode,
};
use ashlar_nvme_protocol::property::offset;
use ashlar_nvme_protocol::{Completion, Sgl, Status, Submission};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A logical block, in bytes.
pub const BLOCK: usize = 512;

/// One queue of a host.
pub struct Queue {
    pub stream: UnixStream,
    pub terms: Terms,
    next_id: u16,
}

/// How a host connects.
#[derive(Clone)]
pub struct Wishes {
    pub host: Host,
    pub subsystem: Nqn,
    pub digests: (bool, bool),
    pub hpda: u8,
    pub without_flow_control: bool,
    pub keep_alive_ms: u32,
    pub entries_less_one: u16,
}

pub fn host(number: u8) -> Host {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:host-{number}");
    Host { id: HostId([number; 16]), nqn: nqn.parse().expect("a name") }
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            host: host(1),
            subsystem: "nqn.2024-01.example:array".parse().expect("a name"),
            digests: (false, false),
            hpda: 0,
            without_flow_control: false,
            keep_alive_ms: 0,
            entries_less_one: 127,
        }
    }
}

pub fn of(opcode: u8, namespace: u32) -> Submission {
    Submission { opcode, flags: 0x40, namespace: namespace.into(), ..Submission::default() }
}

pub fn blocks(opcode: u8, first: u32, count: u32) -> Submission {
    of(opcode, 1).with_dword(10, first).with_dword(12, count - 1)
}

/// Data that tells where it belongs.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| seed ^ u8::try_from(at % 251).expect("below 251");
    (0..bytes).map(byte).collect()
}

impl Queue {
    /// A connection that was greeted and is no queue yet.
    pub fn greeted(stream: UnixStream, wishes: &Wishes) -> Queue {
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut queue = Queue { stream, terms: Terms::NONE, next_id: 0 };
        let (header_digest, data_digest) = wishes.digests;
        let request =
            IcReq { format: 0, hpda: wishes.hpda, header_digest, data_digest, r2t_max_less_one: 0 };
        queue.send(&Body::IcReq(request), &[]);
        match queue.receive().0 {
            Body::IcResp(response) => {
                queue.terms = agreed_by_host(&request, &response).expect("a response");
            }
            other => panic!("{other:?}"),
        }
        queue
    }

    /// The admin queue of a new controller that is enabled, and its identifier.
    pub fn admin(stream: UnixStream, wishes: &Wishes) -> (Queue, u16) {
        let mut queue = Queue::greeted(stream, wishes);
        let completion = queue.connect(wishes, 0, DYNAMIC_CONTROLLER);
        assert_eq!(completion.status(), Status::SUCCESS);
        let id = u16::try_from(completion.result.get() & 0xffff).expect("16 bits");
        assert_eq!(queue.set_property(offset::CONFIGURATION, 0x0046_0001), Status::SUCCESS);
        assert_eq!(queue.property(offset::STATUS, false), 1);
        (queue, id)
    }

    /// I/O queue `number` of a controller.
    pub fn io(stream: UnixStream, wishes: &Wishes, (number, id): (u16, u16)) -> Queue {
        let mut queue = Queue::greeted(stream, wishes);
        assert_eq!(queue.connect(wishes, number, id).status(), Status::SUCCESS);
        queue
    }

    pub fn next_id(&mut self) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    pub fn send(&mut self, body: &Body, data: &[u8]) {
        let length = u32::try_from(data.len()).expect("short");
        let header = encode(body, length, &self.terms);
        let mut bytes = [header.as_bytes(), data].concat();
        if header.has_data_digest {
            bytes.extend(digest(data));
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next PDU with its data.
    pub fn receive(&mut self) -> (Body, Vec<u8>) {
        self.try_receive().expect("the target closed")
    }

    pub fn try_receive(&mut self) -> Option<(Body, Vec<u8>)> {
        let mut header = vec![0; COMMON_BYTES];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => return None,
        }
        let common = header[..].try_into().expect("eight");
        let head = PduHead::decode(common, Side::Controller).expect("a header");
        header.resize(head.header_bytes(&self.terms), 0);
        self.stream.read_exact(&mut header[COMMON_BYTES..]).unwrap();
        let pdu = Pdu::open(&head, &header, &self.terms).expect("a PDU");
        let mut data = vec![0; pdu.pad_bytes];
        self.stream.read_exact(&mut data).unwrap();
        data.resize(usize::try_from(pdu.data_bytes).expect("short"), 0);
        self.stream.read_exact(&mut data).unwrap();
        if pdu.has_data_digest {
            let mut sum = [0; 4];
            self.stream.read_exact(&mut sum).unwrap();
            assert_eq!(sum, digest(&data), "the digest of data");
        }
        Some((pdu.body, data))
    }

    /// Send a command. Data goes into the capsule if it is short.
    pub fn start(&mut self, entry: Submission, data: &[u8], answer_bytes: u32) -> u16 {
        let id = self.next_id();
        let in_capsule = data.len() <= 8192;
        let bytes = u32::try_from(data.len()).expect("short");
        let sgl = match bytes {
            0 => Sgl::Transport { bytes: answer_bytes },
            _ if in_capsule => Sgl::InCapsule { offset: 0, bytes },
            _ => Sgl::Transport { bytes },
        };
        let entry = Submission { command: id.into(), sgl: sgl.encode(), ..entry };
        self.send(&Body::CapsuleCmd(entry), if in_capsule { data } else { &[] });
        id
    }

    /// Send what was asked for, in PDUs of at most `most` bytes.
    pub fn send_asked(&mut self, r2t: &R2t, data: &[u8], most: usize) {
        let range = |at: u32, bytes: u32| {
            let at = usize::try_from(at).expect("short");
            at..at + usize::try_from(bytes).expect("short")
        };
        let asked = data[range(r2t.offset, r2t.bytes)].to_vec();
        let parts: Vec<&[u8]> = asked.chunks(most).collect();
        let mut offset = r2t.offset;
        for (at, part) in parts.iter().enumerate() {
            let bytes = u32::try_from(part.len()).expect("short");
            let is_last = at + 1 == parts.len();
            let (command, transfer) = (r2t.command, r2t.transfer);
            let header = H2cData { command, transfer, offset, bytes, is_last };
            self.send(&Body::H2cData(header), part);
            offset += bytes;
        }
    }

    /// One command from beginning to end.
    pub fn run(&mut self, entry: Submission, data: &[u8], answer: u32) -> (Completion, Vec<u8>) {
        let id = self.start(entry, data, answer);
        let mut received = Vec::new();
        loop {
            match self.receive() {
                (Body::R2t(r2t), _) => {
                    assert_eq!(r2t.command, id);
                    self.send_asked(&r2t, data, 16_384);
                }
                (Body::C2hData(header), part) => {
                    assert_eq!(header.command, id);
                    assert_eq!(usize::try_from(header.offset), Ok(received.len()));
                    received.extend(part);
                    if header.is_success {
                        return (Completion::new(id, Status::SUCCESS, 0), received);
                    }
                }
                (Body::CapsuleResp(completion), _) => {
                    assert_eq!(completion.command.get(), id);
                    return (completion, received);
                }
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    /// A command that must succeed: its data, or its result as bytes.
    pub fn good(&mut self, entry: Submission, data: &[u8], answer: u32) -> Vec<u8> {
        let (completion, received) = self.run(entry, data, answer);
        assert_eq!(completion.status(), Status::SUCCESS, "{entry:?}");
        received
    }

    /// A command's status.
    pub fn status(&mut self, entry: Submission, data: &[u8], answer: u32) -> Status {
        self.run(entry, data, answer).0.status()
    }

    pub fn connect(&mut self, wishes: &Wishes, number: u16, controller: u16) -> Completion {
        let connect = FabricsCommand::Connect(Connect {
            format: 0,
            queue: number,
            entries_less_one: wishes.entries_less_one,
            is_without_flow_control: wishes.without_flow_control,
            keep_alive_ms: if number == 0 { wishes.keep_alive_ms } else { 0 },
        });
        let data = ConnectData {
            host: wishes.host.clone(),
            controller,
            subsystem: wishes.subsystem.clone(),
        };
        self.run(connect.encode(), &data.encode(), 0).0
    }

    pub fn set_property(&mut self, at: u32, value: u64) -> Status {
        let set = FabricsCommand::PropertySet { offset: at, is_wide: false, value };
        self.status(set.encode(), &[], 0)
    }

    pub fn property(&mut self, at: u32, is_wide: bool) -> u64 {
        let get = FabricsCommand::PropertyGet { offset: at, is_wide };
        self.run(get.encode(), &[], 0).0.result.get()
    }

    pub fn read(&mut self, first: u32, count: u32) -> Vec<u8> {
        let bytes = count * u32::try_from(BLOCK).expect("512");
        self.good(blocks(io_opcode::READ, first, count), &[], bytes)
    }

    pub fn write(&mut self, first: u32, data: &[u8]) {
        let count = u32::try_from(data.len() / BLOCK).expect("short");
        self.good(blocks(io_opcode::WRITE, first, count), data, 0);
    }

    pub fn identify(&mut self, structure: u8, namespace: u32) -> Vec<u8> {
        let entry = of(admin_opcode::IDENTIFY, namespace).with_dword(10, u32::from(structure));
        self.good(entry, &[], 4096)
    }

    pub fn log(&mut self, page: u8, bytes: u32) -> Vec<u8> {
        let entry = of(admin_opcode::GET_LOG_PAGE, u32::MAX)
            .with_dword(10, u32::from(page) | (bytes / 4 - 1) << 16);
        self.good(entry, &[], bytes)
    }

    /// The target must close, perhaps with a PDU that says why.
    pub fn expect_end(mut self) -> Option<TermReq> {
        let mut why = None;
        while let Some((body, _)) = self.try_receive() {
            if let Body::C2hTermReq(term) = body {
                why = Some(term);
            }
        }
        why
    }
}
