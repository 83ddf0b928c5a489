//! The receiving half of a connection.
//!
//! What must stay true: bytes are handed out in order and once. Small messages are received many at
//! a time and cost a copy of their data; long data goes straight into its buffer. Not here: what
//! the bytes mean.

use crate::stream::Stream;
use ashlar_iobuf::BufMut;
use ashlar_units::{to_u64, to_usize};
use std::io;
use std::rc::Rc;

/// Room for received bytes that nobody took yet: seven 4 KiB writes or hundreds of reads a receive.
const HELD_BYTES_MAX: usize = 32 << 10;

/// The same before a client has chosen a volume, when anybody may be there in any number.
const HELD_BYTES_FIRST: usize = 2 << 10;

/// Data from here on is likely followed by more of its kind: then only the next header is received
/// ahead, because copying half of each costs more than a second receive.
const LONG_DATA_BYTES: usize = 16 << 10;

/// A stream's bytes, some of them received ahead.
pub struct Inbound<S> {
    stream: Rc<S>,
    /// `None` only while a receive is under way.
    held: Option<BufMut>,
    /// Held bytes that were not taken yet: `held[start..end]`.
    start: usize,
    end: usize,
    last_data_bytes: usize,
}

impl<S: Stream> Inbound<S> {
    /// Nothing was received yet.
    pub fn new(stream: Rc<S>) -> Inbound<S> {
        let held = Some(BufMut::zeroed(HELD_BYTES_FIRST));
        Inbound { stream, held, start: 0, end: 0, last_data_bytes: 0 }
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

    /// Whether bytes were received that nobody took yet.
    pub fn is_ahead(&self) -> bool {
        self.start < self.end
    }

    /// Take exactly `bytes.len()` bytes. `false` if the peer ended the stream before the first of
    /// them.
    ///
    /// # Errors
    /// `UnexpectedEof` if it ended within them; else what the stream says.
    pub async fn take(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let mut taken = 0;
        while taken < bytes.len() {
            let wanted = bytes.len() - taken;
            if !self.is_ahead() && self.receive(wanted).await? == 0 {
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

    /// Take exactly `bytes.len()` bytes within a message.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before the last of them; else what the stream says.
    pub async fn take_rest(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let is_there = self.take(bytes).await?;
        if is_there { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The message that was taken last has no data: the next ones are likely small as well. Without
    /// this call each header after long data is received by a system call of its own.
    pub fn no_data_follows(&mut self) {
        self.last_data_bytes = 0;
    }

    /// Fill the front of `data` with what was received ahead, and say how much that was.
    pub fn fill_from_held(&mut self, data: &mut [u8]) -> usize {
        self.last_data_bytes = data.len();
        let bytes = data.len().min(self.end - self.start);
        self.take_held(&mut data[..bytes]);
        bytes
    }

    /// Receive the rest of `data`, from `filled` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends within it; else what the stream says.
    pub async fn fill(&mut self, mut data: BufMut, filled: usize) -> io::Result<BufMut> {
        let front = data.split_to(filled);
        let (result, rest) = self.stream.receive_all(data).await;
        result?;
        Ok(joined(front, rest))
    }

    /// Receive `bytes` bytes and forget them.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends within them; else what the stream says.
    pub async fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        self.no_data_follows();
        while bytes > 0 {
            if !self.is_ahead() && self.receive(1).await? == 0 {
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
        let (result, window) = self.stream.receive(window).await;
        self.held = Some(joined(joined(front, window), held));
        let received = result?;
        self.end += received;
        Ok(received)
    }
}

fn joined(front: BufMut, back: BufMut) -> BufMut {
    front.try_join(back).expect("halves of one buffer")
}
