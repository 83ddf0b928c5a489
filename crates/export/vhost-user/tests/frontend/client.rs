//! A frontend and its guest. What must stay true: every wait ends after [`PATIENCE`], with a
//! failure; the guest's memory is changed by file calls only, so that the server's mapping is the
//! only one.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where the guest and the frontend have the memory. It has two regions.
pub const GUEST_AT: u64 = 0x1_0000_0000;
pub const USER_AT: u64 = 0x7f00_0000_0000;
pub const MEMORY_BYTES: u64 = 8 << 20;
pub const BORDER: u64 = 4 << 20;

/// Entries of a ring.
pub const ENTRIES: u16 = 64;
/// What a queue needs, and where its parts are.
const QUEUE_BYTES: u64 = 0x4000;
const AVAILABLE_AT: u64 = 0x1000;
const USED_AT: u64 = 0x2000;
/// Where heads, statuses and data of requests are.
const HEADS_AT: u64 = 0x10_0000;
const STATUS_AT: u64 = 0x11_0000;
pub const DATA_AT: u64 = 0x20_0000;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Features: version 1, protocol, indirect tables, flush, cache mode.
pub const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28 | 1 << 9 | 1 << 11;
pub const EVENT_INDEX: u64 = 1 << 29;

pub struct Queue {
    pub kick: OwnedFd,
    pub call: OwnedFd,
    pub error: OwnedFd,
    pub available: u16,
    pub used: u16,
}

pub struct Client {
    pub stream: UnixStream,
    pub memory: File,
    pub queues: Vec<Queue>,
    pub features: u64,
}

/// A connection: the client's end, and the server's.
pub fn connection() -> (UnixStream, UnixStream) {
    let (client, server) = UnixStream::pair().expect("sockets");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (client, server)
}

/// Memory that cannot be made shorter.
pub fn sealed(bytes: u64) -> File {
    let memory = unsealed(bytes);
    fcntl_add_seals(&memory, SealFlags::SHRINK).expect("sealed");
    memory
}

pub fn unsealed(bytes: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("guest", flags).expect("a memfd");
    ftruncate(&memory, bytes).expect("room");
    File::from(memory)
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
}

/// Take an eventfd's count, once it has one.
pub fn wait_for(event: &OwnedFd) -> u64 {
    assert!(is_signalled(event, PATIENCE), "waited in vain for a signal");
    let mut bytes = [0; 8];
    rustix::io::read(event, &mut bytes).expect("an eventfd");
    u64::from_ne_bytes(bytes)
}

pub fn is_signalled(event: &OwnedFd, within: Duration) -> bool {
    let mut polled = [PollFd::new(event, PollFlags::IN)];
    let wait = Timespec { tv_sec: within.as_secs().try_into().expect("short"), tv_nsec: 0 };
    poll(&mut polled, Some(&wait)).expect("poll") == 1
}

fn queue() -> Queue {
    Queue { kick: event(), call: event(), error: event(), available: 0, used: 0 }
}

impl Client {
    /// A frontend with so many queues that has said nothing yet.
    pub fn new(stream: UnixStream, queues: usize) -> Client {
        let queues = (0..queues).map(|_| queue()).collect();
        Client { stream, memory: sealed(MEMORY_BYTES), queues, features: FEATURES }
    }

    /// Send a message.
    pub fn say(&self, request: u32, content: &[u8], files: &[BorrowedFd<'_>]) {
        let length = u32::try_from(content.len()).expect("short");
        let header = [request, 1, length].map(u32::to_ne_bytes).concat();
        self.send(&[header, content.to_vec()].concat(), files);
    }

    /// Send bytes. Whether they could be sent is seen by what comes of it.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let parts = [IoSlice::new(bytes)];
        let _gone = rustix::net::sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL);
    }

    /// Send a message, and take its answer.
    pub fn ask(&self, request: u32, content: &[u8]) -> Vec<u8> {
        self.ask_for(request, content).0
    }

    /// The same, with the descriptor that comes with it.
    pub fn ask_for(&self, request: u32, content: &[u8]) -> (Vec<u8>, Option<OwnedFd>) {
        self.say(request, content, &[]);
        let mut header = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&self.stream, &mut parts, &mut control, flags);
        assert_eq!(got.expect("an answer").bytes, 12);
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        assert_eq!(header[..8], [request, 5].map(u32::to_ne_bytes).concat());
        let length = u32::from_ne_bytes(header[8..].try_into().expect("four"));
        let mut content = vec![0; usize::try_from(length).expect("short")];
        (&self.stream).read_exact(&mut content).expect("the whole answer");
        (content, file)
    }

    /// Send a message, and wait until it was obeyed.
    pub fn settle(&self) {
        self.ask(1, &[]);
    }

    /// What a frontend says before rings: features, protocol, memory.
    pub fn introduce(&self) {
        let offered = number(&self.ask(1, &[]));
        assert_eq!(offered & self.features, self.features, "all of it is offered");
        let spoken = number(&self.ask(15, &[]));
        self.say(16, &spoken.to_ne_bytes(), &[]);
        self.say(3, &[], &[]);
        self.say(2, &self.features.to_ne_bytes(), &[]);
        self.say_memory(&self.memory, MEMORY_BYTES);
    }

    pub fn say_memory(&self, memory: &File, bytes: u64) {
        let regions = [
            [GUEST_AT, BORDER, USER_AT, 0],
            [GUEST_AT + BORDER, bytes - BORDER, USER_AT + BORDER, BORDER],
        ];
        let numbers = regions.concat().into_iter().flat_map(u64::to_ne_bytes);
        let content: Vec<u8> =
            [2, 0].into_iter().flat_map(u32::to_ne_bytes).chain(numbers).collect();
        self.say(5, &content, &[memory.as_fd(), memory.as_fd()]);
    }

    /// Say where the rings are, and let them run.
    pub fn start_rings(&self) {
        for index in 0..self.queues.len() {
            self.describe_ring(index);
            self.enable(index);
        }
        self.settle();
    }

    pub fn describe_ring(&self, index: usize) {
        let queue = &self.queues[index];
        self.ring_number(8, index, u32::from(ENTRIES));
        self.ring_number(10, index, u32::from(queue.available));
        self.ring_addresses(index, USER_AT + queue_at(index));
        for (request, event) in [(12, &queue.kick), (13, &queue.call), (14, &queue.error)] {
            let index = u64::try_from(index).expect("small");
            self.say(request, &index.to_ne_bytes(), &[event.as_fd()]);
        }
    }

    pub fn ring_addresses(&self, index: usize, at: u64) {
        let places = [at, at.wrapping_add(USED_AT), at.wrapping_add(AVAILABLE_AT), 0];
        let index = u32::try_from(index).expect("small");
        let mut content = [index, 0].map(u32::to_ne_bytes).concat();
        content.extend(places.into_iter().flat_map(u64::to_ne_bytes));
        self.say(9, &content, &[]);
    }

    pub fn enable(&self, index: usize) {
        self.ring_number(18, index, 1);
    }

    pub fn ring_number(&self, request: u32, index: usize, number: u32) {
        let index = u32::try_from(index).expect("small");
        self.say(request, &[index, number].map(u32::to_ne_bytes).concat(), &[]);
    }

    /// Stop a ring. Where it stopped.
    pub fn stop_ring(&self, index: usize) -> u32 {
        let said = [u32::try_from(index).expect("small"), 0].map(u32::to_ne_bytes).concat();
        let answer = self.ask(11, &said);
        u32::from_ne_bytes(answer[4..8].try_into().expect("four"))
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("within");
    }

    pub fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.memory.read_exact_at(&mut out, at).expect("within");
        out
    }

    pub fn describe(&self, queue: usize, index: u16, descriptor: &[u8; 16]) {
        self.put(queue_at(queue) + u64::from(index) * 16, descriptor);
    }

    /// Make a request available, without a kick.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let available = self.queues[queue].available;
        let entry = queue_at(queue) + AVAILABLE_AT + 4 + u64::from(available % ENTRIES) * 2;
        self.put(entry, &head.to_le_bytes());
        self.queues[queue].available = available.wrapping_add(1);
        self.show(queue, available.wrapping_add(1));
    }

    /// Say that there are so many requests.
    pub fn show(&self, queue: usize, available: u16) {
        self.put(queue_at(queue) + AVAILABLE_AT + 2, &available.to_le_bytes());
    }

    pub fn kick(&self, queue: usize) {
        rustix::io::write(&self.queues[queue].kick, &1_u64.to_ne_bytes()).expect("an eventfd");
    }

    /// The next answer: the head of its request.
    pub fn answered(&mut self, queue: usize) -> u16 {
        let used_at = queue_at(queue) + USED_AT;
        let used = self.queues[queue].used;
        let mut waits = 0;
        if self.features & EVENT_INDEX != 0 {
            self.put(
                queue_at(queue) + AVAILABLE_AT + 4 + u64::from(ENTRIES) * 2,
                &used.to_le_bytes(),
            );
        }
        while self.get(used_at + 2, 2) == used.to_le_bytes() {
            match is_signalled(&self.queues[queue].call, Duration::from_secs(1)) {
                true => {
                    wait_for(&self.queues[queue].call);
                }
                false => waits += 1,
            }
            assert!(waits < PATIENCE.as_secs(), "waited in vain for an answer");
        }
        self.queues[queue].used = used.wrapping_add(1);
        let entry = self.get(used_at + 4 + u64::from(used % ENTRIES) * 8, 8);
        u16::from_le_bytes([entry[0], entry[1]])
    }

    /// Put a request into three descriptors from `head` on: what the device reads and what it
    /// writes besides head and status.
    pub fn write_down(&mut self, queue: usize, head: u16, request: &Request<'_>) {
        let (head_at, status_at) = (head_at(queue, head), status_at(queue, head));
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&request.kind.to_le_bytes());
        bytes[8..].copy_from_slice(&request.sector.to_le_bytes());
        self.put(head_at, &bytes);
        self.put(status_at, &[0xff]);
        let guest = |at: u64| GUEST_AT + at;
        let last = (WRITE, 0);
        if request.reads.is_empty() && request.writes == 0 {
            self.describe(queue, head, &descriptor(guest(head_at), 16, (NEXT, head + 2)));
        } else {
            self.describe(queue, head, &descriptor(guest(head_at), 16, (NEXT, head + 1)));
            self.put(request.data_at, request.reads);
            let length = request.writes.max(u32::try_from(request.reads.len()).expect("short"));
            let flags = if request.writes > 0 { NEXT | WRITE } else { NEXT };
            let data = descriptor(guest(request.data_at), length, (flags, head + 2));
            self.describe(queue, head + 1, &data);
        }
        self.describe(queue, head + 2, &descriptor(guest(status_at), 1, last));
    }

    pub fn status(&self, queue: usize, head: u16) -> u8 {
        self.get(status_at(queue, head), 1)[0]
    }

    /// Carry out one request: its status.
    pub fn carry_out(&mut self, queue: usize, request: &Request<'_>) -> u8 {
        self.write_down(queue, 0, request);
        self.offer(queue, 0);
        self.kick(queue);
        assert_eq!(self.answered(queue), 0);
        self.status(queue, 0)
    }

    pub fn write(&mut self, queue: usize, sector: u64, reads: &[u8]) -> u8 {
        let write = Request { kind: 1, sector, reads, ..Request::default() };
        self.carry_out(queue, &write)
    }

    pub fn read(&mut self, queue: usize, sector: u64, writes: u32) -> Vec<u8> {
        let read = Request { kind: 0, sector, writes, ..Request::default() };
        assert_eq!(self.carry_out(queue, &read), 0);
        self.get(read.data_at, usize::try_from(writes).expect("short"))
    }
}

/// A request of at most one span of data.
pub struct Request<'a> {
    pub kind: u32,
    pub sector: u64,
    pub reads: &'a [u8],
    pub writes: u32,
    pub data_at: u64,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request { kind: 0, sector: 0, reads: &[], writes: 0, data_at: DATA_AT }
    }
}

fn queue_at(queue: usize) -> u64 {
    u64::try_from(queue).expect("small") * QUEUE_BYTES
}

pub fn head_at(queue: usize, head: u16) -> u64 {
    HEADS_AT + queue_at(queue) + u64::from(head) * 16
}

pub fn status_at(queue: usize, head: u16) -> u64 {
    STATUS_AT + queue_at(queue) + u64::from(head)
}

pub fn number(content: &[u8]) -> u64 {
    u64::from_ne_bytes(content.try_into().expect("eight bytes"))
}

pub fn descriptor(at: u64, bytes: u32, flags: (u16, u16)) -> [u8; 16] {
    ashlar_vhost_user::hostile::descriptor(at, bytes, flags)
}
