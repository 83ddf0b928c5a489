//! A client's request to a volume, and its answer.

use ashlar_iobuf::{Buf, BufMut};
use ashlar_units::Extent;

/// One request. `extent` is in volume bytes and is ignored by a flush.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Where, in bytes of the volume.
    pub extent: Extent,
    /// The reply waits until the change is durable (write, discard, write zeroes).
    pub fua: bool,
}

/// The verbs. A buffer's length equals the extent's.
#[derive(Debug)]
pub enum Command {
    /// Fill the buffer from the extent. The reply may carry another buffer of the same length.
    Read(BufMut),
    /// Store the buffer at the extent.
    Write(Buf),
    /// Make everything durable that was answered before this was submitted.
    Flush,
    /// The extent's content is no longer needed. Afterwards it reads as zeros, or as before until
    /// the next flush.
    Discard,
    /// The extent reads as zeros afterwards. `may_unmap` allows giving the space back.
    WriteZeroes {
        /// Whether the space may be returned to the unwritten state.
        may_unmap: bool,
    },
}

/// The verbs that carry data, which a volume may limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// To the client.
    Read,
    /// From the client.
    Write,
}

impl Command {
    /// Whether the command changes the volume.
    pub fn is_change(&self) -> bool {
        match self {
            Command::Read(_) | Command::Flush => false,
            Command::Write(_) | Command::Discard | Command::WriteZeroes { .. } => true,
        }
    }
}

/// A good answer.
#[derive(Debug)]
pub enum Reply {
    /// The data of a read; exactly as long as its extent.
    Data(BufMut),
    /// Done.
    Done,
}
