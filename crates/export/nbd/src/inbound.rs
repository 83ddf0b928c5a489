//! The receiving half of a connection.
//!
//! What must stay true: bytes are handed out in order and once. Small requests are received many at
//! a time and cost a copy of their payload; long payloads go straight into the volume's buffer. Not
//! here: what the bytes mean.

use crate::socket::Socket;
use ashlar_iobuf::BufMut;
use ashlar_units::to_usize;
use std::io;
use std::rc::Rc;

/// Room for received bytes that nobody took yet. Eight 4 KiB writes or a thousand reads a receive.
const HELD_BYTES_MAX: usize = 32 << 10;

/// The same before a client has chosen a volume, when anybody may be there in any number.
const HELD_BYTES_FIRST: usize = 2 << 10;

/// Payloads from here on are likely followed by more of their kind: then only the next header is
/// received ahead, because copying half of each payload costs more than a second receive.
const LONG_PAYLOAD_BYTES: usize = 16 << 10;

/// A socket's bytes, some of them received ahead.
pub struct Inbound {
    socket: Rc<Socket>,
    /// `None` only while a receive is under way.
    held: Option<BufMut>,
    /// Held bytes that were not taken yet: `held[start..end]`.
    start: usize,
    end: usize,
    last_payload_bytes: usize,
}

impl Inbound {
    pub fn new(socket: Rc<Socket>) -> Inbound {
        let held = Some(BufMut::zeroed(HELD_BYTES_FIRST));
        Inbound { socket, held, start: 0, end: 0, last_payload_bytes: 0 }
    }

    /// Requests are to come: receive many at a time from here on.
    ///
    /// # Panics
    /// If a receive is under way.
    pub fn widen(&mut self) {
        let held = self.held.as_ref().expect("no receive is under way");
        let mut wider = BufMut::zeroed(HELD_BYTES_MAX);
        let left = &held[self.start..self.end];
        wider[..left.len()].copy_from_slice(left);
        (self.start, self.end) = (0, left.len());
        self.held = Some(wider);
    }

    /// Take exactly `bytes.len()` bytes. `false` if the peer ended the stream before the first of
    /// them.
    ///
    /// # Errors
    /// `UnexpectedEof` if it ended within them; else what the socket says.
    pub async fn take(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let mut taken = 0;
        while taken < bytes.len() {
            let wanted = bytes.len() - taken;
            if !self.is_ahead() && self.receive(wanted).await? == 0 {
                return if taken > 0 {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(false)
                };
            }
            let end = taken + wanted.min(self.end - self.start);
            self.take_held(&mut bytes[taken..end]);
            taken = end;
        }
        // Unless it is followed by a payload, which says so itself.
        self.last_payload_bytes = 0;
        Ok(true)
    }

    /// Whether bytes were received that nobody took yet.
    pub fn is_ahead(&self) -> bool {
        self.start < self.end
    }

    /// Fill the front of `payload` with what was received ahead, and say how much that was.
    pub fn fill_from_held(&mut self, payload: &mut [u8]) -> usize {
        self.last_payload_bytes = payload.len();
        let bytes = payload.len().min(self.end - self.start);
        self.take_held(&mut payload[..bytes]);
        bytes
    }

    /// Receive the rest of `payload`, from `filled` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends within it; else what the socket says.
    pub async fn fill(&mut self, mut payload: BufMut, filled: usize) -> io::Result<BufMut> {
        let front = payload.split_to(filled);
        let (result, rest) = self.socket.receive_all(payload).await;
        result?;
        Ok(joined(front, rest))
    }

    /// Read `bytes` bytes and forget them.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends within them; else what the socket says.
    pub async fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        self.last_payload_bytes = 0;
        while bytes > 0 {
            if self.start == self.end && self.receive(1).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let held = self.end - self.start;
            let skipped = if bytes < ashlar_units::to_u64(held) { to_usize(bytes) } else { held };
            self.start += skipped;
            bytes -= ashlar_units::to_u64(skipped);
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
        let most = match self.last_payload_bytes {
            LONG_PAYLOAD_BYTES.. => wanted.min(held.len()),
            _ => held.len(),
        };
        let window = held.split_to(most);
        let (result, window) = self.socket.receive(window).await;
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
    use super::{HELD_BYTES_MAX, Inbound};
    use crate::socket::Socket;
    use ashlar_iobuf::BufMut;
    use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const HEADER_BYTES: usize = 28;
    const HEADERS: usize = 100;

    /// Operations of the kernel for taking all headers that follow a payload of so many bytes.
    fn operations_after_payload_of(payload_bytes: usize) -> u64 {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let mut inbound = Inbound::new(Socket::new(ring.clone(), ours.into()));
        inbound.widen();
        theirs.write_all(&vec![1; HEADER_BYTES + payload_bytes]).expect("room");
        theirs.write_all(&[2; HEADER_BYTES * HEADERS]).expect("room");
        executor.block_on(async {
            let mut header = [0; HEADER_BYTES];
            assert!(inbound.take(&mut header).await.expect("a header"));
            let mut payload = BufMut::zeroed(payload_bytes);
            let filled = inbound.fill_from_held(&mut payload);
            if filled < payload_bytes {
                payload = inbound.fill(payload, filled).await.expect("all of it");
            }
            assert!(payload.iter().all(|byte| *byte == 1));
            let before = ring.load().calls.operations;
            for _ in 0..HEADERS {
                assert!(inbound.take(&mut header).await.expect("a header"));
                assert_eq!(header, [2; HEADER_BYTES]);
            }
            ring.load().calls.operations - before
        })
    }

    /// A client that once wrote much had each of its later reads received by a system call of its
    /// own.
    #[test]
    fn small_requests_after_a_long_payload_are_received_many_at_a_time() {
        assert!(operations_after_payload_of(64 << 10) <= 2);
        assert!(operations_after_payload_of(4096) <= 1);
        assert!(operations_after_payload_of(2 * HELD_BYTES_MAX + 1) <= 2);
    }
}
