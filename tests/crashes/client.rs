//! Ways to a volume that can break off: NBD byte by byte, and the file that FUSE shows.
//!
//! What must stay true: whatever happens to the daemon comes back as an error, never as a panic.
//! Not here: what is read and written.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;

/// A way to the volume. One request at a time; open several to have several under way.
pub trait Client: Send {
    /// Fill `bytes` from `offset`.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Store `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Store zeros.
    fn zero(&mut self, offset: u64, bytes: usize) -> io::Result<()>;
    /// Make durable what was answered.
    fn flush(&mut self) -> io::Result<()>;
}

/// A connection in the transmission phase, with simple replies.
pub struct Nbd {
    stream: UnixStream,
    cookie: u64,
    /// Size of the volume, as the server told it.
    pub volume_bytes: u64,
}

impl Nbd {
    /// Connect and open a volume.
    ///
    /// # Errors
    /// Nobody serves there, or not this volume.
    pub fn open(socket: &Path, volume: &str) -> io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        // Fixed newstyle, no zeroes; then EXPORT_NAME.
        let name_bytes = u32::try_from(volume.len()).expect("short");
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend(name_bytes.to_be_bytes());
        hello.extend(volume.as_bytes());
        stream.write_all(&hello)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let volume_bytes = u64::from_be_bytes(export[..8].try_into().expect("eight"));
        Ok(Nbd { stream, cookie: 0, volume_bytes })
    }

    fn ask(&mut self, kind: u16, offset: u64, bytes: usize, payload: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(u32::try_from(bytes).expect("small").to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let error = u32::from_be_bytes(reply[4..8].try_into().expect("four"));
        let is_ours =
            reply[..4] == 0x6744_6698_u32.to_be_bytes() && reply[8..] == self.cookie.to_be_bytes();
        match (is_ours, error) {
            (true, 0) => Ok(()),
            (true, error) => Err(io::Error::other(format!("NBD error {error}"))),
            (false, _) => Err(io::Error::other("an answer to nothing that was asked")),
        }
    }
}

impl Client for Nbd {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.ask(0, offset, bytes.len(), &[])?;
        self.stream.read_exact(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ask(WRITE, offset, bytes.len(), bytes)
    }

    fn zero(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        self.ask(WRITE_ZEROES, offset, bytes, &[])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask(FLUSH, 0, 0, &[])
    }
}

/// The file that FUSE shows. It is served without a page cache: an answer is the daemon's.
pub struct Fuse(pub File);

impl Client for Fuse {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn zero(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        self.0.write_all_at(&vec![0; bytes], offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}
