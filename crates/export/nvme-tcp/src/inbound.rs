//! The receiving half of a connection: bytes, then PDUs.
//!
//! What must stay true: bytes are handed out in order and once. Small PDUs are received many at a
//! time and cost a copy of their data; long data goes straight into its buffer. A PDU's data is
//! taken or skipped before the next PDU is looked for.
//! Not here: what a PDU means.

use ashlar_iobuf::BufMut;
use ashlar_nvme_protocol::connection::{Connection, Step};
use ashlar_nvme_protocol::digest::{DIGEST_BYTES, digest};
use ashlar_nvme_protocol::pdu::{COMMON_BYTES, Fatal, HEADER_BYTES_MAX, Pdu, PduHead, Side};
use ashlar_ring::Ring;
use ashlar_units::{to_u64, to_usize};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Room for received bytes that nobody took yet: seven 4 KiB writes or 450 reads a receive.
const HELD_BYTES_MAX: usize = 32 << 10;

/// The same before a host has connected a queue, when anybody may be there in any number.
const HELD_BYTES_FIRST: usize = 2 << 10;

/// Data from here on is likely followed by more of its kind: then only the next header is received
/// ahead, because copying half of each costs more than a second receive.
const LONG_DATA_BYTES: usize = 16 << 10;

/// Why no further PDU can be received.
#[derive(Debug)]
pub enum ReceiveError {
    /// The socket failed, or ended within a PDU.
    Socket(io::Error),
    /// The host broke a rule of the transport: it gets an error, and the connection ends.
    Fatal(Fatal),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> ReceiveError {
        ReceiveError::Socket(error)
    }
}

impl From<Fatal> for ReceiveError {
    fn from(fatal: Fatal) -> ReceiveError {
        ReceiveError::Fatal(fatal)
    }
}

/// A PDU whose header was received: what to do, and what data follows.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    pub step: Step,
    /// Data that follows, in bytes.
    pub data_bytes: u32,
    pad_bytes: usize,
    has_digest: bool,
}

/// A socket's bytes, some of them received ahead.
pub struct Inbound {
    ring: Ring,
    socket: Arc<OwnedFd>,
    connection: Connection,
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    /// `None` only while a receive is under way.
    held: Option<BufMut>,
    /// Held bytes that were not taken yet: `held[start..end]`.
    start: usize,
    end: usize,
    last_data_bytes: usize,
}

impl Inbound {
    pub fn new(ring: Ring, socket: Arc<OwnedFd>, connection: Connection) -> Inbound {
        Inbound {
            ring,
            socket,
            connection,
            header: [0; HEADER_BYTES_MAX],
            header_bytes: 0,
            held: Some(BufMut::zeroed(HELD_BYTES_FIRST)),
            start: 0,
            end: 0,
            last_data_bytes: 0,
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The header of the PDU that came last, as far as it was received.
    pub fn last_header(&self) -> &[u8] {
        &self.header[..self.header_bytes]
    }

    /// Commands are to come: receive many at a time from here on.
    pub fn widen(&mut self) {
        let held = self.held.as_ref().expect("no receive is under way");
        let mut wider = BufMut::zeroed(HELD_BYTES_MAX);
        let left = &held[self.start..self.end];
        wider[..left.len()].copy_from_slice(left);
        (self.start, self.end) = (0, left.len());
        self.held = Some(wider);
    }

    /// Receive the next PDU's header. `None` if the host ended the stream before its first byte.
    pub async fn next(&mut self) -> Result<Option<Incoming>, ReceiveError> {
        let mut header = [0; HEADER_BYTES_MAX];
        self.header_bytes = 0;
        if !self.take(&mut header[..COMMON_BYTES]).await? {
            return Ok(None);
        }
        let common = <[u8; COMMON_BYTES]>::try_from(&header[..COMMON_BYTES]).expect("as long");
        self.keep_header(&header, COMMON_BYTES);
        let head = PduHead::decode(common, Side::Host)?;
        let terms = self.connection.terms();
        let bytes = head.header_bytes(&terms);
        if !self.take(&mut header[COMMON_BYTES..bytes]).await? {
            return Err(ReceiveError::Socket(io::ErrorKind::UnexpectedEof.into()));
        }
        self.keep_header(&header, bytes);
        let pdu = Pdu::open(&head, &header[..bytes], &terms)?;
        let step = self.connection.receive(&pdu.body)?;
        let (data_bytes, has_digest) = (pdu.data_bytes, pdu.has_data_digest);
        if data_bytes == 0 {
            self.last_data_bytes = 0;
        }
        Ok(Some(Incoming { step, data_bytes, pad_bytes: pdu.pad_bytes, has_digest }))
    }

    fn keep_header(&mut self, header: &[u8; HEADER_BYTES_MAX], bytes: usize) {
        self.header = *header;
        self.header_bytes = bytes;
    }

    /// Receive all data of a PDU into `window`, which is as long. Whether its digest fits.
    pub async fn data(
        &mut self,
        incoming: &Incoming,
        mut window: BufMut,
    ) -> io::Result<(BufMut, bool)> {
        self.skip(to_u64(incoming.pad_bytes)).await?;
        self.last_data_bytes = window.len();
        let filled = window.len().min(self.end - self.start);
        self.take_held(&mut window[..filled]);
        if filled < window.len() {
            let front = window.split_to(filled);
            let (result, rest) = self.ring.receive_all(&self.socket, window).await;
            result?;
            window = joined(front, rest);
        }
        if !incoming.has_digest {
            return Ok((window, true));
        }
        let mut received = [0; DIGEST_BYTES];
        self.take_whole(&mut received).await?;
        let is_right = received == digest(&window);
        Ok((window, is_right))
    }

    /// Receive and forget all data of a PDU.
    pub async fn skip_data(&mut self, incoming: &Incoming) -> io::Result<()> {
        self.last_data_bytes = 0;
        let digest = if incoming.has_digest { DIGEST_BYTES } else { 0 };
        self.skip(to_u64(incoming.pad_bytes + digest) + u64::from(incoming.data_bytes)).await
    }

    async fn take_whole(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let is_there = self.take(bytes).await?;
        if is_there { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Take exactly `bytes.len()` bytes. `false` if the stream ends before the first of them.
    async fn take(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let mut taken = 0;
        while taken < bytes.len() {
            let wanted = bytes.len() - taken;
            if self.start == self.end && self.receive(wanted).await? == 0 {
                return match taken {
                    0 => Ok(false),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            let end = taken + wanted.min(self.end - self.start);
            self.take_held(&mut bytes[taken..end]);
            taken = end;
        }
        Ok(true)
    }

    async fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            if self.start == self.end && self.receive(1).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let held = self.end - self.start;
            let skipped = if bytes < to_u64(held) { to_usize(bytes) } else { held };
            self.start += skipped;
            bytes -= to_u64(skipped);
        }
        Ok(())
    }

    fn take_held(&mut self, bytes: &mut [u8]) {
        let held = self.held.as_ref().expect("no receive is under way");
        bytes.copy_from_slice(&held[self.start..self.start + bytes.len()]);
        self.start += bytes.len();
    }

    /// Receive once into the free room; 0 is the end of the stream.
    async fn receive(&mut self, wanted: usize) -> io::Result<usize> {
        let mut held = self.held.take().expect("one receive at a time");
        held.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let front = held.split_to(self.end);
        let most = match self.last_data_bytes {
            LONG_DATA_BYTES.. => wanted.min(held.len()),
            _ => held.len(),
        };
        let window = held.split_to(most);
        let (result, window) = self.ring.receive(&self.socket, window).await;
        self.held = Some(joined(joined(front, window), held));
        let received = result?;
        self.end += received;
        Ok(received)
    }
}

fn joined(front: BufMut, back: BufMut) -> BufMut {
    front.try_join(back).expect("halves of one buffer")
}

#[cfg(test)]
mod tests {
    use super::Inbound;
    use ashlar_iobuf::BufMut;
    use ashlar_nvme_protocol::Submission;
    use ashlar_nvme_protocol::connection::{Connection, Offer};
    use ashlar_nvme_protocol::pdu::{Body, H2cData, IcReq, Terms, encode};
    use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
    use ashlar_units::to_usize;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    const COMMANDS: usize = 100;
    const DATA_BYTES: u32 = 64 << 10;

    fn offer() -> Offer {
        Offer { h2c_bytes_max: DATA_BYTES, in_capsule_bytes_max: 8192 }
    }

    /// A greeting, long data, and many commands without any.
    fn sent() -> Vec<u8> {
        let greeting = Body::IcReq(IcReq {
            format: 0,
            hpda: 0,
            header_digest: false,
            data_digest: false,
            r2t_max_less_one: 0,
        });
        let open = Terms { h2c_bytes_max: DATA_BYTES, in_capsule_bytes_max: 8192, ..Terms::NONE };
        let data = H2cData { command: 1, transfer: 1, offset: 0, bytes: DATA_BYTES, is_last: true };
        let command = encode(&Body::CapsuleCmd(Submission::default()), 0, &open);
        [
            encode(&greeting, 0, &Terms::NONE).as_bytes(),
            encode(&Body::H2cData(data), DATA_BYTES, &open).as_bytes(),
            &vec![7; to_usize(u64::from(DATA_BYTES))],
            &command.as_bytes().repeat(COMMANDS),
        ]
        .concat()
    }

    /// A host that once wrote much had each of its later commands received by system calls of its
    /// own.
    #[test]
    fn commands_after_long_data_are_received_many_at_a_time() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(&sent()).expect("room");
        let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let connection = Connection::new(offer());
        let mut inbound = Inbound::new(ring.clone(), Arc::new(ours.into()), connection);
        inbound.widen();
        let operations = executor.block_on(async {
            inbound.next().await.expect("a greeting").expect("more");
            let long = inbound.next().await.expect("data").expect("more");
            let window = BufMut::zeroed(to_usize(u64::from(DATA_BYTES)));
            let (window, _) = inbound.data(&long, window).await.expect("all of it");
            assert!(window.iter().all(|byte| *byte == 7));
            let before = ring.load().calls.operations;
            for _ in 0..COMMANDS {
                let incoming = inbound.next().await.expect("a command").expect("more");
                assert_eq!(incoming.data_bytes, 0);
            }
            ring.load().calls.operations - before
        });
        assert!(operations <= 4, "{operations} for {COMMANDS} commands");
    }
}
