//! What can be asked of the kernel, and how it is written into a submission entry.
//!
//! What must stay true: every address in an entry points into a buffer of the operation or into its
//! [`Vectors`], and both stay where they are, unread and unwritten by us, until the completion is
//! reaped. Registered files and buffers would be further variants of the file and buffer fields
//! here. Not here: when entries are pushed.

use ashlar_iobuf::{Buf, BufMut};
use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// One operation with everything it needs; it comes back in its [`Outcome`].
pub enum Operation {
    /// pread(2); may read less.
    Read {
        /// What to read from.
        file: Arc<OwnedFd>,
        /// First byte.
        at: u64,
        /// Where to.
        buf: BufMut,
    },
    /// pwrite(2); may write less.
    Write {
        /// What to write to.
        file: Arc<OwnedFd>,
        /// First byte.
        at: u64,
        /// What.
        buf: Buf,
        /// On stable media before it completes (RWF_DSYNC: FUA where the drive has it, else write
        /// and flush).
        durable: bool,
    },
    /// readv(2) without a file position.
    ReadParts {
        /// What to read from.
        file: Arc<OwnedFd>,
        /// Where to, in order.
        parts: [BufMut; 2],
    },
    /// writev(2) without a file position.
    WriteParts {
        /// What to write to.
        file: Arc<OwnedFd>,
        /// What, in order.
        parts: [Buf; 2],
    },
    /// pwritev(2): the parts one after the other, without the first `skip` bytes; may write less, and
    /// writes no more than [`PARTS_MAX`] parts.
    WriteJoined {
        /// What to write to.
        file: Arc<OwnedFd>,
        /// Where the first byte goes that is not skipped.
        at: u64,
        /// What, in order.
        parts: Vec<Buf>,
        /// Bytes at the front of the parts that were written already.
        skip: usize,
        /// As in [`Operation::Write`].
        durable: bool,
    },
    /// fsync(2) or fdatasync(2).
    Fsync {
        /// What to sync.
        file: Arc<OwnedFd>,
        /// As fdatasync(2).
        data_only: bool,
    },
    /// fallocate(2).
    Fallocate {
        /// What to change.
        file: Arc<OwnedFd>,
        /// Raw mode bits.
        mode: i32,
        /// First byte.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// accept(2).
    Accept {
        /// The listening socket.
        listener: Arc<OwnedFd>,
        /// The connection; filled in on success, so that an orphaned one is closed.
        accepted: Option<OwnedFd>,
    },
    /// recv(2).
    Receive {
        /// The socket.
        socket: Arc<OwnedFd>,
        /// Where to.
        buf: BufMut,
        /// Bytes at the front of `buf` to leave alone.
        filled: usize,
        /// Ask the kernel to wait until the buffer is full (it may still return early).
        all: bool,
    },
    /// sendmsg(2) of as many parts as fit one call; may send less.
    Send {
        /// The socket.
        socket: Arc<OwnedFd>,
        /// What, in order.
        parts: Vec<Buf>,
        /// Bytes at the front of the parts that were sent already.
        sent: usize,
    },
    /// poll(2) for reading.
    Readable {
        /// What to wait for.
        file: Arc<OwnedFd>,
    },
}

/// How an operation ended.
pub struct Outcome {
    /// Bytes moved, or 0 for operations that move none.
    pub result: io::Result<u32>,
    /// The operation as it was started, with its buffers.
    pub operation: Operation,
}

/// Parts in one sendmsg(2) or pwritev(2): a reply header and a large request's strips, or a header and a few
/// dozen blocks. More parts take more calls.
pub const PARTS_MAX: usize = 64;

/// The most bytes one call moves; the kernel's own limit is just under 2 GiB.
const CALL_BYTES_MAX: usize = 1 << 30;

/// The position that means "none" to readv(2) and writev(2) in io_uring.
const NO_POSITION: u64 = u64::MAX;

/// Addresses of parts, in memory that stays while the kernel may read it.
pub(super) struct Vectors {
    parts: [libc::iovec; PARTS_MAX],
    message: libc::msghdr,
}

impl Vectors {
    pub(super) fn new() -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: msghdr is plain C data of integers and pointers; all zeros is a valid, empty
        // message.
        let message = unsafe { std::mem::zeroed() };
        Vectors { parts: [none; PARTS_MAX], message }
    }

    /// Notes the parts without their first `skip` bytes; returns how many there are.
    fn set<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, mut skip: usize) -> usize {
        let mut count = 0;
        for part in parts {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            if count == PARTS_MAX {
                break;
            }
            let rest = &part[skip..];
            skip = 0;
            let iov_base = rest.as_ptr().cast_mut().cast();
            self.parts[count] = libc::iovec { iov_base, iov_len: rest.len() };
            count += 1;
        }
        count
    }
}

impl Operation {
    /// Whether it may wait for ever for somebody else, so that nobody waiting for it means it
    /// should end.
    pub(super) fn waits_for_peer(&self) -> bool {
        matches!(
            self,
            Operation::ReadParts { .. }
                | Operation::Accept { .. }
                | Operation::Receive { .. }
                | Operation::Send { .. }
                | Operation::Readable { .. }
        )
    }

    fn fd(&self) -> types::Fd {
        let (Operation::Read { file, .. }
        | Operation::Write { file, .. }
        | Operation::ReadParts { file, .. }
        | Operation::WriteParts { file, .. }
        | Operation::WriteJoined { file, .. }
        | Operation::Fsync { file, .. }
        | Operation::Fallocate { file, .. }
        | Operation::Accept { listener: file, .. }
        | Operation::Receive { socket: file, .. }
        | Operation::Send { socket: file, .. }
        | Operation::Readable { file }) = self;
        types::Fd(file.as_raw_fd())
    }

    /// The entry that waits until the file can go on with this operation.
    pub(super) fn poll_entry(&self) -> squeue::Entry {
        let events = match self {
            Operation::Write { .. }
            | Operation::WriteParts { .. }
            | Operation::WriteJoined { .. }
            | Operation::Send { .. } => libc::POLLOUT,
            _ => libc::POLLIN,
        };
        let events = u32::from(u16::try_from(events).expect("poll events are positive"));
        opcode::PollAdd::new(self.fd(), events).build()
    }

    /// The entry that asks the kernel for it. Valid while the operation and `vectors` stay where
    /// they are.
    pub(super) fn entry(&mut self, vectors: &mut Vectors) -> squeue::Entry {
        let fd = self.fd();
        match self {
            Operation::Read { at, buf, .. } => {
                opcode::Read::new(fd, buf.as_mut_ptr(), call_bytes(buf.len())).offset(*at).build()
            }
            Operation::Write { at, buf, durable, .. } => {
                opcode::Write::new(fd, buf.as_ptr(), call_bytes(buf.len()))
                    .offset(*at)
                    .rw_flags(write_flags(*durable))
                    .build()
            }
            Operation::ReadParts { parts, .. } => {
                for (vector, part) in vectors.parts.iter_mut().zip(parts.iter_mut()) {
                    let iov_base = part.as_mut_ptr().cast();
                    *vector = libc::iovec { iov_base, iov_len: part.len() };
                }
                opcode::Readv::new(fd, vectors.parts.as_ptr(), 2).offset(NO_POSITION).build()
            }
            Operation::WriteParts { parts, .. } => {
                for (vector, part) in vectors.parts.iter_mut().zip(parts.iter()) {
                    let iov_base = part.as_ptr().cast_mut().cast();
                    *vector = libc::iovec { iov_base, iov_len: part.len() };
                }
                opcode::Writev::new(fd, vectors.parts.as_ptr(), 2).offset(NO_POSITION).build()
            }
            Operation::WriteJoined { at, parts, skip, durable, .. } => {
                let count = vectors.set(parts.iter().map(|part| &**part), *skip);
                let count = u32::try_from(count).expect("at most PARTS_MAX");
                opcode::Writev::new(fd, vectors.parts.as_ptr(), count)
                    .offset(*at)
                    .rw_flags(write_flags(*durable))
                    .build()
            }
            Operation::Fsync { data_only, .. } => {
                let kind = types::FsyncFlags::DATASYNC;
                let flags = if *data_only { kind } else { types::FsyncFlags::empty() };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            Operation::Fallocate { mode, at, bytes, .. } => {
                opcode::Fallocate::new(fd, *bytes).offset(*at).mode(*mode).build()
            }
            Operation::Accept { .. } => {
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Operation::Receive { buf, filled, all, .. } => {
                let rest = &mut buf[*filled..];
                opcode::Recv::new(fd, rest.as_mut_ptr(), call_bytes(rest.len()))
                    .flags(if *all { libc::MSG_WAITALL } else { 0 })
                    .build()
            }
            Operation::Send { parts, sent, .. } => send_entry(fd, parts, *sent, vectors),
            Operation::Readable { .. } => self.poll_entry(),
        }
    }
}

fn write_flags(durable: bool) -> i32 {
    if durable { libc::RWF_DSYNC } else { 0 }
}

fn send_entry(fd: types::Fd, parts: &[Buf], sent: usize, vectors: &mut Vectors) -> squeue::Entry {
    let count = vectors.set(parts.iter().map(|part| &**part), sent);
    vectors.message.msg_iov = vectors.parts.as_mut_ptr();
    vectors.message.msg_iovlen = count;
    // A peer that went away is an error of this call, not a signal to the process.
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    opcode::SendMsg::new(fd, &raw const vectors.message).flags(flags.cast_unsigned()).build()
}

fn call_bytes(len: usize) -> u32 {
    u32::try_from(len.min(CALL_BYTES_MAX)).expect("at most 1 GiB")
}
