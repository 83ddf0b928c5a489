//! One place for a request of FUSE over io_uring: memory that the kernel fills and empties.
//!
//! What must stay true: the kernel knows the addresses of an entry from its registration on, and
//! may use them while a command for it is under way. So an entry owns its memory and its device, is
//! moved into each command whole, and never lends its memory out. The number of the request to
//! commit is the kernel's, unchanged: another one could name another entry. Not here: what the
//! requests mean.

use super::operation::Operation;
use super::submit::{Ring, another_operation};
use ashlar_iobuf::BufMut;
use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// `struct fuse_uring_req_header`: 128 bytes of header, 128 of the request's own, 32 of
/// `struct fuse_uring_ent_in_out`.
const HEADER_BYTES: usize = 288;
/// Bytes of the header of a request or reply.
const IN_OUT_BYTES: usize = 128;
/// Where `fuse_uring_ent_in_out` has the number to commit.
const COMMIT_AT: usize = 256 + 8;
/// Where it has the length of the payload, four bytes.
const PAYLOAD_BYTES_AT: usize = 256 + 16;
/// Offset of `len` in a submission entry.
const ENTRY_LENGTH_AT: usize = 24;
/// The two parts of an entry's memory: header and payload.
const PARTS: u32 = 2;

/// FUSE_IO_URING_CMD_REGISTER
const REGISTER: u32 = 1;
/// FUSE_IO_URING_CMD_COMMIT_AND_FETCH
const COMMIT_AND_FETCH: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The kernel does not know it.
    New,
    /// It holds a request, which is to be answered.
    Holds,
    /// The kernel has let go of it.
    Over,
}

/// One place for a request, of one queue of one mount. Clients' requests come into it one after the
/// other.
pub struct FuseEntry {
    device: Arc<OwnedFd>,
    queue: u16,
    state: State,
    header: BufMut,
    payload: BufMut,
    parts: [libc::iovec; PARTS as usize],
}

impl FuseEntry {
    /// An entry of a queue, for payloads of at most so many bytes. `device` is a descriptor of the
    /// mount.
    #[must_use]
    pub fn new(device: Arc<OwnedFd>, queue: u16, payload_bytes: usize) -> Box<FuseEntry> {
        let (header, payload) = (BufMut::zeroed(HEADER_BYTES), BufMut::zeroed(payload_bytes));
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let parts = [none; PARTS as usize];
        Box::new(FuseEntry { device, queue, state: State::New, header, payload, parts })
    }

    /// Header of the request, and behind it 128 bytes in which its body begins.
    #[must_use]
    pub fn request(&self) -> (&[u8], &[u8]) {
        self.header[..2 * IN_OUT_BYTES].split_at(IN_OUT_BYTES)
    }

    /// What follows the body of the request: a write's data.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let said = &self.header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4];
        let said = u32::from_ne_bytes(said.try_into().expect("four bytes"));
        let bytes = usize::try_from(said).unwrap_or(usize::MAX).min(self.payload.len());
        &self.payload[..bytes]
    }

    /// Note what to answer: a header, and what follows it.
    ///
    /// # Panics
    /// If the header is longer than 128 bytes, or the payload longer than it may be.
    pub fn answer(&mut self, header: &[u8], payload: &[u8]) {
        self.header[..header.len()].copy_from_slice(header);
        self.payload[..payload.len()].copy_from_slice(payload);
        let bytes = u32::try_from(payload.len()).expect("payloads are far shorter");
        self.header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&bytes.to_ne_bytes());
    }

    pub(super) fn fd(&self) -> types::Fd {
        types::Fd(self.device.as_raw_fd())
    }

    /// The kernel's word of how the last command ended.
    pub(super) fn settle(&mut self, is_filled: bool) {
        self.state = if is_filled { State::Holds } else { State::Over };
    }

    /// The entry that asks for the next request. Valid while this stays where it is.
    pub(super) fn entry(&mut self) -> squeue::Entry128 {
        let mut area = [0; 80];
        if self.state == State::Holds {
            area[8..16].copy_from_slice(&self.header[COMMIT_AT..COMMIT_AT + 8]);
        }
        area[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        if self.state == State::Holds {
            return opcode::UringCmd80::new(self.fd(), COMMIT_AND_FETCH).cmd(area).build();
        }
        let part = |part: &mut BufMut| libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        };
        self.parts = [part(&mut self.header), part(&mut self.payload)];
        let address = ashlar_units::to_u64(self.parts.as_ptr().expose_provenance());
        let command = opcode::UringCmd80::new(self.fd(), REGISTER).cmd(area).addr(Some(address));
        with_length(command.build(), PARTS)
    }
}

/// The library knows no command with a length.
fn with_length(mut entry: squeue::Entry128, length: u32) -> squeue::Entry128 {
    let place = (&raw mut entry).cast::<u8>().wrapping_add(ENTRY_LENGTH_AT).cast::<u32>();
    // SAFETY: an entry is 128 bytes of plain data, eight-aligned, laid out as the kernel has it:
    // `len` is the aligned u32 at byte 24.
    unsafe { place.write(length) };
    entry
}

impl Ring {
    /// Answer the request that `entry` holds, if it holds one, and wait for the next. The ring must
    /// have wide entries.
    ///
    /// # Errors
    /// What the kernel says; the entry is of no use then. `BrokenPipe` if it was of no use before.
    ///
    /// # Panics
    /// If the ring has narrow entries.
    ///
    /// # Cancellation
    /// It goes on; only the end of the mount ends it.
    pub async fn next_fuse_request(&self, entry: Box<FuseEntry>) -> io::Result<Box<FuseEntry>> {
        if entry.state == State::Over {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let outcome = self.run(Operation::FuseEntry { entry }).await;
        outcome.result?;
        let Operation::FuseEntry { entry } = outcome.operation else { another_operation() };
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::FuseEntry;
    use std::sync::Arc;

    #[test]
    fn an_answer_is_a_header_and_a_payload_of_a_length() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let mut entry = FuseEntry::new(Arc::new(reader.into()), 0, 4096);
        entry.answer(&[1; 16], &[2; 8]);
        assert_eq!(entry.request().0[..17], [[1; 16].as_slice(), &[0]].concat());
        assert_eq!(entry.payload(), [2; 8]);
    }
}
