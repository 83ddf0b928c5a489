//! A client of vhost-user-blk: the frontend and the guest's driver in one, as small as can be: one
//! queue, one region of memory, one thread.
//!
//! What must stay true: it kicks and is called only where event indices ask for it, as a guest's
//! driver does; an index is stored after what it announces; memory is sealed, as servers demand.
//! Not here: several queues, indirect descriptors, requests of several spans.

use super::Client;
use super::load::{Asked, Effort, Until};
use crate::bench::places::Places;
use ashlar_iobuf::{Access, SharedMapping};
use ashlar_units::{to_u64, to_usize};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use tokio::time::Instant;

/// A server that says nothing for so long is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Entries of the ring; a request takes three descriptors.
const ENTRIES: u16 = 256;
/// The most requests under way.
const DEPTH_MAX: usize = 85;
/// Where the memory is for the server's addresses, and what lies where in it.
const BASE: u64 = 0x10_0000_0000;
const AVAILABLE_AT: usize = 0x2000;
const USED_AT: usize = 0x4000;
const HEADS_AT: usize = 0x6000;
const STATUS_AT: usize = 0x8000;
const DATA_AT: usize = 0x1_0000;
/// Room for the data of all requests.
const DATA_BYTES: usize = 85 << 20;

/// Version 1, event index, parts of the protocol.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 30;
/// Answers on demand, configuration by messages.
const PROTOCOL: u64 = 1 << 3 | 1 << 9;

/// Flags of descriptors: another follows; the device writes it.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Kinds of requests.
const READS: u32 = 0;
const WRITES: u32 = 1;
const SECTOR_BYTES: u64 = 512;

/// One device.
pub(super) struct Vhost {
    /// The server serves as long as this is open.
    _stream: UnixStream,
    memory: SharedMapping,
    kick: OwnedFd,
    call: OwnedFd,
    /// Requests and answers so far, in 16 bits.
    available: u16,
    used: u16,
}

impl Vhost {
    /// Connect, and let one ring run.
    pub(super) fn connect(socket: &Path) -> io::Result<Vhost> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let bytes = DATA_AT + DATA_BYTES;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("ashlar-bench", flags)?;
        ftruncate(&file, to_u64(bytes))?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let memory = SharedMapping::map(&file, 0, bytes, Access::ReadWrite)?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC);
        let (kick, call) = (event()?, event()?);
        let frontend = Frontend(&stream);
        frontend.introduce(&file, to_u64(bytes))?;
        frontend.start_ring(&kick, &call)?;
        Ok(Vhost { _stream: stream, memory, kick, call, available: 0, used: 0 })
    }
}

/// What is said over the socket.
struct Frontend<'a>(&'a UnixStream);

impl Frontend<'_> {
    fn say(&self, request: u32, content: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let header = [request, 1, length].map(u32::to_ne_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("more descriptors than there is room for"));
        }
        let message = [header, content.to_vec()].concat();
        let sent = sendmsg(self.0, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// A number that is asked for.
    fn ask(&self, request: u32) -> io::Result<u64> {
        self.say(request, &[], &[])?;
        let mut answer = [0; 20];
        (&mut &*self.0).read_exact(&mut answer)?;
        let (head, number) = answer.split_at(12);
        if head[..4] != request.to_ne_bytes() || head[8..] != 8_u32.to_ne_bytes() {
            return Err(io::Error::other("the server does not answer as vhost-user does"));
        }
        Ok(u64::from_ne_bytes(number.try_into().map_err(io::Error::other)?))
    }

    fn introduce(&self, memory: &OwnedFd, bytes: u64) -> io::Result<()> {
        let features = self.ask(1)? & FEATURES;
        if features != FEATURES {
            return Err(io::Error::other("the server lacks event indices or version 1"));
        }
        let protocol = self.ask(15)? & PROTOCOL;
        self.say(16, &protocol.to_ne_bytes(), &[])?;
        self.say(3, &[], &[])?;
        self.say(2, &features.to_ne_bytes(), &[])?;
        // One region, the same for the guest and for this process.
        let region = [BASE, bytes, BASE, 0].map(u64::to_ne_bytes).concat();
        let content = [[1_u32, 0].map(u32::to_ne_bytes).concat(), region].concat();
        self.say(5, &content, &[memory.as_fd()])
    }

    fn start_ring(&self, kick: &OwnedFd, call: &OwnedFd) -> io::Result<()> {
        let number = |number: u32| [0, number].map(u32::to_ne_bytes).concat();
        self.say(8, &number(u32::from(ENTRIES)), &[])?;
        self.say(10, &number(0), &[])?;
        let at = |place: usize| BASE + to_u64(place);
        let places = [at(0), at(USED_AT), at(AVAILABLE_AT), 0].map(u64::to_ne_bytes).concat();
        self.say(9, &[number(0), places].concat(), &[])?;
        self.say(13, &0_u64.to_ne_bytes(), &[call.as_fd()])?;
        self.say(12, &0_u64.to_ne_bytes(), &[kick.as_fd()])?;
        self.say(18, &number(1), &[])?;
        // An answer shows that all of this was obeyed.
        self.ask(1).map(drop)
    }
}

fn descriptor(at: usize, bytes: u32, (flags, next): (u16, u16)) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&(BASE + to_u64(at)).to_le_bytes());
    descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
    descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
    descriptor[14..].copy_from_slice(&next.to_le_bytes());
    descriptor
}

/// Whether going from `before` to `now` passes `event`, in 16 bits.
fn is_passed(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// What is outside of the memory is a mistake of this file.
fn within<T>(place: Option<T>) -> io::Result<T> {
    place.ok_or_else(|| io::Error::other("a place outside the memory"))
}

/// Requests that are under way.
struct Running {
    asked: Asked,
    places: Places,
    payload: Vec<u8>,
    since: Vec<Instant>,
}

impl Vhost {
    /// The descriptors of all requests: they stay as they are, and only heads and data change.
    fn describe(&self, asked: &Asked) -> io::Result<()> {
        let flags = if asked.is_write { NEXT } else { NEXT | WRITE };
        for slot in 0..asked.depth {
            let first = slot * 3;
            let next = |at: usize| u16::try_from(at).map_err(io::Error::other);
            let data_at = DATA_AT + slot * asked.bytes_usize();
            let chain = [
                descriptor(HEADS_AT + slot * 16, 16, (NEXT, next(first + 1)?)),
                descriptor(data_at, asked.bytes, (flags, next(first + 2)?)),
                descriptor(STATUS_AT + slot, 1, (WRITE, 0)),
            ];
            within(self.memory.store(first * 16, &chain.concat()))?;
        }
        Ok(())
    }

    /// Put a request into the ring, without showing it.
    fn add(&mut self, slot: usize, running: &mut Running) -> io::Result<()> {
        let Asked { is_write, bytes, .. } = running.asked;
        let mut head = [0; 16];
        head[..4].copy_from_slice(&(if is_write { WRITES } else { READS }).to_le_bytes());
        let sector = running.places.next_offset(!is_write) / SECTOR_BYTES;
        head[8..].copy_from_slice(&sector.to_le_bytes());
        within(self.memory.store(HEADS_AT + slot * 16, &head))?;
        within(self.memory.store(STATUS_AT + slot, &[0xff]))?;
        if is_write {
            running.places.renew(&mut running.payload);
            let at = DATA_AT + slot * to_usize(u64::from(bytes));
            within(self.memory.store(at, &running.payload))?;
        }
        let first = u16::try_from(slot * 3).map_err(io::Error::other)?;
        let entry = AVAILABLE_AT + 4 + usize::from(self.available % ENTRIES) * 2;
        within(self.memory.store(entry, &first.to_le_bytes()))?;
        self.available = self.available.wrapping_add(1);
        running.since[slot] = Instant::now();
        Ok(())
    }

    /// Show what was put into the ring since it had `before` requests, and kick if the server wants
    /// to hear.
    fn show(&self, before: u16) -> io::Result<()> {
        if before == self.available {
            return Ok(());
        }
        within(self.memory.store_index(AVAILABLE_AT + 2, self.available))?;
        fence(Ordering::SeqCst);
        let event = within(self.memory.load_index(USED_AT + 4 + usize::from(ENTRIES) * 8))?;
        if is_passed(event, before, self.available) {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Wait until there are answers; how many there were ever.
    fn wait(&self) -> io::Result<u16> {
        loop {
            let used = within(self.memory.load_index(USED_AT + 2))?;
            if used != self.used {
                return Ok(used);
            }
            let event_at = AVAILABLE_AT + 4 + usize::from(ENTRIES) * 2;
            within(self.memory.store_index(event_at, self.used))?;
            fence(Ordering::SeqCst);
            if within(self.memory.load_index(USED_AT + 2))? != self.used {
                continue;
            }
            let mut polled = [PollFd::new(&self.call, PollFlags::IN)];
            let seconds = i64::try_from(ANSWER_MAX.as_secs()).map_err(io::Error::other)?;
            if poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 }))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            rustix::io::read(&self.call, &mut [0; 8])?;
        }
    }

    /// The request of the next answer.
    fn answered(&mut self) -> io::Result<usize> {
        let mut entry = [0; 8];
        let at = USED_AT + 4 + usize::from(self.used % ENTRIES) * 8;
        within(self.memory.load(at, &mut entry))?;
        self.used = self.used.wrapping_add(1);
        let slot = usize::from(u16::from_le_bytes([entry[0], entry[1]])) / 3;
        let mut status = [0xff];
        within(self.memory.load(STATUS_AT + slot, &mut status))?;
        match status {
            [0] => Ok(slot),
            [error] => Err(io::Error::other(format!("the server answered with status {error}"))),
        }
    }
}

impl Client for Vhost {
    fn drive(&mut self, asked: &Asked, mut until: Until) -> io::Result<Effort> {
        if asked.depth > DEPTH_MAX || asked.depth * asked.bytes_usize() > DATA_BYTES {
            return Err(io::Error::other(format!("one ring takes at most {DEPTH_MAX} requests")));
        }
        let mut running = Running {
            asked: *asked,
            places: asked.places(),
            payload: vec![0; asked.bytes_usize()],
            since: vec![Instant::now(); asked.depth],
        };
        self.describe(asked)?;
        let (mut effort, begin) = (Effort::default(), Instant::now());
        let (mut under_way, mut before) = (0, self.available);
        while under_way < asked.depth && until.allows_one() {
            self.add(under_way, &mut running)?;
            under_way += 1;
        }
        self.show(before)?;
        while under_way > 0 {
            let used = self.wait()?;
            before = self.available;
            while self.used != used {
                let slot = self.answered()?;
                let since = running.since.get(slot).copied();
                effort.done(since.ok_or_else(|| io::Error::other("an answer to no request"))?);
                match until.allows_one() {
                    true => self.add(slot, &mut running)?,
                    false => under_way -= 1,
                }
            }
            self.show(before)?;
        }
        effort.time = begin.elapsed();
        Ok(effort)
    }
}
