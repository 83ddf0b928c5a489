//! A client that speaks NBD byte by byte, so that it can do what no honest client does.

use crate::world::World;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// EINVAL, as the protocol numbers it.
pub const INVALID: u32 = 22;
/// ENOSPC, as the protocol numbers it.
pub const NO_SPACE: u32 = 28;

/// Longest time to an open volume.
const SERVED_WITHIN: Duration = Duration::from_secs(120);

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// One connection in the transmission phase, with simple replies.
pub struct RawNbd {
    stream: UnixStream,
    /// Size of the volume, as the server told it.
    pub volume_bytes: u64,
}

impl RawNbd {
    /// Connect and open a volume.
    pub fn open(world: &World, volume: &str) -> RawNbd {
        RawNbd::try_open(world, volume).expect("the volume is there")
    }

    /// The same; `None` if the connection is not served.
    pub fn try_open(world: &World, volume: &str) -> Option<RawNbd> {
        RawNbd::try_open_at(&world.path("nbd.sock"), volume)
    }

    /// The same at this socket.
    pub fn try_open_at(socket: &Path, volume: &str) -> Option<RawNbd> {
        let mut stream = UnixStream::connect(socket).ok()?;
        // One that is neither served nor closed is an error and not a wait without end.
        stream.set_read_timeout(Some(SERVED_WITHIN)).expect("a socket");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).ok()?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes; then EXPORT_NAME.
        let name_bytes = u32::try_from(volume.len()).expect("short");
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend(name_bytes.to_be_bytes());
        hello.extend(volume.as_bytes());
        stream.write_all(&hello).ok()?;
        let mut export = [0; 10];
        stream.read_exact(&mut export).ok()?;
        stream.set_read_timeout(None).expect("a socket");
        let volume_bytes = u64::from_be_bytes(export[..8].try_into().expect("eight"));
        Some(RawNbd { stream, volume_bytes })
    }

    fn head(&mut self, kind: u16, offset: u64, bytes: u32) {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend(0_u16.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(7_u64.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(bytes.to_be_bytes());
        self.stream.write_all(&head).expect("send");
    }

    fn answer(&mut self) -> u32 {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("an answer");
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        assert_eq!(reply[8..], 7_u64.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().expect("four"))
    }

    /// Read; an error number if it is refused.
    pub fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        self.head(READ, offset, bytes);
        match self.answer() {
            0 => {
                let mut data = vec![0; usize::try_from(bytes).expect("small")];
                self.stream.read_exact(&mut data).expect("data");
                Ok(data)
            }
            error => Err(error),
        }
    }

    /// Write; an error number if it is refused.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.head(WRITE, offset, u32::try_from(data.len()).expect("small"));
        self.stream.write_all(data).expect("send");
        match self.answer() {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// Write a block, of a volume that may go at any moment; `None` if the connection has ended.
    pub fn try_write(&mut self, offset: u64, data: &[u8; 4096]) -> Option<Result<(), u32>> {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0, 0, 0, 1]);
        request.extend(7_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(4096_u32.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).ok()?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).ok()?;
        match u32::from_be_bytes(reply[4..8].try_into().expect("four")) {
            0 => Some(Ok(())),
            error => Some(Err(error)),
        }
    }

    /// Flush, and do not wait for the answer.
    pub fn begin_flush(&mut self) {
        self.head(FLUSH, 0, 0);
    }

    /// Whether the connection ends, and without an answer.
    pub fn is_cut_off(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 16]), Ok(0) | Err(_))
    }

    /// Flush.
    pub fn flush(&mut self) {
        self.head(FLUSH, 0, 0);
        assert_eq!(self.answer(), 0);
    }

    /// Announce a write of `bytes`, send only `data` of it, and be gone.
    pub fn break_off_write(mut self, offset: u64, bytes: u32, data: &[u8]) {
        self.head(WRITE, offset, bytes);
        self.stream.write_all(data).expect("send");
    }
}
