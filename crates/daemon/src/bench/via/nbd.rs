//! A client of NBD, as small as can be: simple replies, one connection, one thread.
//!
//! What must stay true: requests are sent in one write for all that a read brought answers to, so
//! that the client costs every server the same and little. Not here: TLS, structured replies.

use super::Client;
use super::load::{Asked, Effort, Until};
use crate::bench::places::Places;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// A server that says nothing for so long is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const REPLY_BYTES: usize = 16;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

/// One connection that serves requests.
pub(super) struct Nbd {
    stream: UnixStream,
}

impl Nbd {
    /// Connect and open the export called `name`.
    pub(super) fn connect(socket: &Path, name: &str) -> io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if &greeting[..16] != b"NBDMAGICIHAVEOPT" {
            return Err(io::Error::other("that is no NBD server"));
        }
        // Fixed newstyle, no zeroes; then EXPORT_NAME.
        let name_bytes = u32::try_from(name.len()).map_err(io::Error::other)?;
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend(name_bytes.to_be_bytes());
        hello.extend(name.as_bytes());
        stream.write_all(&hello)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(Nbd { stream })
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // A server that is gone need not be told.
        let _gone = self.stream.write_all(&head(DISCONNECT, 0, 0, 0));
    }
}

fn head(kind: u16, handle: u64, offset: u64, bytes: u32) -> [u8; 28] {
    let mut head = [0; 28];
    head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&handle.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&bytes.to_be_bytes());
    head
}

/// Requests that are to be sent, and when each one that is under way was.
struct Sending {
    asked: Asked,
    places: Places,
    payload: Vec<u8>,
    bytes: Vec<u8>,
    since: Vec<Instant>,
}

impl Sending {
    fn add(&mut self, handle: usize) -> io::Result<()> {
        let Asked { is_write, bytes, .. } = self.asked;
        let kind = if is_write { WRITE } else { READ };
        let number = u64::try_from(handle).map_err(io::Error::other)?;
        self.bytes.extend(head(kind, number, self.places.next_offset(!self.asked.is_write), bytes));
        if is_write {
            self.places.renew(&mut self.payload);
            self.bytes.extend(&self.payload);
        }
        self.since[handle] = Instant::now();
        Ok(())
    }

    fn send(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        stream.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

impl Client for Nbd {
    fn drive(&mut self, asked: &Asked, mut until: Until) -> io::Result<Effort> {
        let mut sending = Sending {
            asked: *asked,
            places: asked.places(),
            payload: vec![0; asked.bytes_usize()],
            bytes: Vec::new(),
            since: vec![Instant::now(); asked.depth],
        };
        let answer = REPLY_BYTES + if asked.is_write { 0 } else { asked.bytes_usize() };
        let mut received = vec![0; answer * asked.depth];
        let (mut effort, begin) = (Effort::default(), Instant::now());
        let (mut under_way, mut filled) = (0, 0);
        while under_way < asked.depth && until.allows_one() {
            sending.add(under_way)?;
            under_way += 1;
        }
        sending.send(&mut self.stream)?;
        while under_way > 0 {
            let count = self.stream.read(&mut received[filled..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
            let mut at = 0;
            while filled - at >= answer {
                let handle = handle_of(&received[at..at + REPLY_BYTES])?;
                let since = sending.since.get(handle).copied();
                effort.done(since.ok_or_else(|| io::Error::other("an answer to no request"))?);
                at += answer;
                match until.allows_one() {
                    true => sending.add(handle)?,
                    false => under_way -= 1,
                }
            }
            received.copy_within(at..filled, 0);
            filled -= at;
            sending.send(&mut self.stream)?;
        }
        effort.time = begin.elapsed();
        Ok(effort)
    }
}

/// Which request a reply is to.
fn handle_of(reply: &[u8]) -> io::Result<usize> {
    let number = |range: std::ops::Range<usize>| {
        reply[range].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if number(0..4) != u64::from(REPLY_MAGIC) {
        return Err(io::Error::other("the server does not answer as NBD does"));
    }
    match number(4..8) {
        0 => usize::try_from(number(8..16)).map_err(io::Error::other),
        error => Err(io::Error::other(format!("the server answered with error {error}"))),
    }
}
