//! The operations of the kernel, and how each is written into a submission entry.
//!
//! What must stay true: every address in an entry points into a buffer of the operation or into its
//! [`Vectors`]. Both stay where they are, unread and unwritten by us, until the completion is
//! reaped. Registered files and buffers would be further variants of the file and buffer fields
//! here. Not here: when entries are pushed.

use super::command::{DeviceCommand, WideCommand};
use super::descriptors::{ReceivedDescriptors, SentDescriptors};
use super::fuse_entry::FuseEntry;
use crate::Completion;
use ashlar_iobuf::{Buf, BufMut};
use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// One operation with everything it needs; it comes back in its [`OperationOutcome`].
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
        /// One command of the device, which writes all of it or nothing; else refused
        /// (RWF_ATOMIC, 6.11).
        whole: bool,
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
    /// pwritev(2): the parts one after the other, without the first `skip` bytes; may write less,
    /// and writes no more than [`PARTS_MAX`] parts.
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
    /// As [`Operation::Send`], without a copy of the parts where the kernel can: it may read them
    /// until this operation is at its end, long after they are queued.
    SendUncopied {
        /// The socket.
        socket: Arc<OwnedFd>,
        /// What, in order.
        parts: Vec<Buf>,
        /// Bytes at the front of the parts that were sent already.
        sent: usize,
        /// Told as soon as the parts are queued; left alone if that is the end as well.
        queued: Option<Completion<io::Result<u32>>>,
        /// The kernel copied after all; filled in.
        was_copied: bool,
    },
    /// sendmsg(2) with descriptors; may send less, and the descriptors leave with the first byte.
    SendWith {
        /// The socket: a Unix one.
        socket: Arc<OwnedFd>,
        /// What, in order.
        parts: Vec<Buf>,
        /// What goes with it.
        with: Box<SentDescriptors>,
    },
    /// recvmsg(2) with descriptors.
    ReceiveWith {
        /// The socket: a Unix one.
        socket: Arc<OwnedFd>,
        /// Where to.
        buf: BufMut,
        /// What came with it.
        with: Box<ReceivedDescriptors>,
    },
    /// poll(2) for reading.
    Readable {
        /// What to wait for.
        file: Arc<OwnedFd>,
    },
    /// read(2) of an eventfd's count, once it is not zero; sets it to zero.
    ReadCount {
        /// The eventfd.
        file: Arc<OwnedFd>,
        /// The count; filled in.
        count: u64,
    },
    /// A command to a device.
    Command {
        /// The device.
        file: Arc<OwnedFd>,
        /// Which.
        command: DeviceCommand,
    },
    /// A command to a device, with a larger area; only for rings of
    /// [`EntryBytes::Wide`](crate::EntryBytes::Wide).
    WideCommand {
        /// The device.
        file: Arc<OwnedFd>,
        /// Which.
        command: Box<WideCommand>,
    },
    /// Answers a request of FUSE and waits for the next; only for rings of
    /// [`EntryBytes::Wide`](crate::EntryBytes::Wide).
    FuseEntry {
        /// The memory for both.
        entry: Box<FuseEntry>,
    },
}

/// How an operation ended.
pub struct OperationOutcome {
    /// Bytes moved, or 0 for operations that move none; of commands what the device says.
    pub result: io::Result<u32>,
    /// The operation as it was started, with its buffers.
    pub operation: Operation,
}

/// Parts in one sendmsg(2) or pwritev(2): a reply header and a large request's strips, or a header
/// and a few dozen blocks. More parts take more calls.
pub const PARTS_MAX: usize = 64;

/// The most bytes one call moves; the kernel's own limit is just under 2 GiB.
const CALL_BYTES_MAX: usize = 1 << 30;

/// A peer that went away is an error of the call, not a signal to the process.
const SEND_FLAGS: u32 = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned();

/// Asks, for a send without a copy, whether it was one (IORING_SEND_ZC_REPORT_USAGE).
const REPORT_USAGE: u16 = 1 << 3;

/// Length of an eventfd's count.
const COUNT_BYTES: u32 = 8;

/// The position that means "none" to readv(2) and writev(2) in io_uring.
const NO_POSITION: u64 = u64::MAX;

// An outcome goes from slot to one-shot to task, so its size is paid for three times.
const _: () = assert!(size_of::<OperationOutcome>() <= 80);

/// What the kernel reads and writes beside the buffers, in memory that stays while it may.
pub(super) struct Vectors {
    parts: [libc::iovec; PARTS_MAX],
    message: libc::msghdr,
    count: u64,
}

impl Vectors {
    pub(super) fn new() -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: msghdr is plain C data of integers and pointers; all zeros is a valid, empty
        // message.
        let message = unsafe { std::mem::zeroed() };
        Vectors { parts: [none; PARTS_MAX], message, count: 0 }
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

    /// Notes a message of the parts without their first `skip` bytes, and nothing beside it.
    fn message_of(&mut self, parts: &[Buf], skip: usize) -> *const libc::msghdr {
        let count = self.set(parts.iter().map(|part| &**part), skip);
        self.message.msg_iov = self.parts.as_mut_ptr();
        self.message.msg_iovlen = count;
        (self.message.msg_control, self.message.msg_controllen) = (std::ptr::null_mut(), 0);
        &raw const self.message
    }

    /// Notes a message that is to be received.
    fn receive_into(&mut self, buf: &mut BufMut) {
        let iov_base = buf.as_mut_ptr().cast();
        self.parts[0] = libc::iovec { iov_base, iov_len: buf.len() };
        self.message.msg_iov = self.parts.as_mut_ptr();
        self.message.msg_iovlen = 1;
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
                | Operation::SendUncopied { .. }
                | Operation::SendWith { .. }
                | Operation::ReceiveWith { .. }
                | Operation::Readable { .. }
                | Operation::ReadCount { .. }
        )
    }

    /// Whether it is a command to a device, which only the device can end.
    pub(super) fn is_command(&self) -> bool {
        matches!(
            self,
            Operation::Command { .. } | Operation::WideCommand { .. } | Operation::FuseEntry { .. }
        )
    }

    /// Whether the end of a ring does not wait for it: a command that waits for a device's users,
    /// or that has no memory of its submitter.
    pub(super) fn is_let_go(&self) -> bool {
        match self {
            Operation::Command { .. } => true,
            Operation::WideCommand { command, .. } => command.memory.is_none(),
            _ => false,
        }
    }

    /// Keeps memory that the kernel may yet use from ever being something else.
    pub(super) fn leak_memory(&mut self) {
        match self {
            Operation::SendUncopied { parts, .. } => std::mem::forget(parts.clone()),
            Operation::Command { command, .. } => std::mem::forget(command.memory.take()),
            _ => {}
        }
    }

    /// The task that waits until it is queued.
    pub(super) fn take_queued(&mut self) -> Option<Completion<io::Result<u32>>> {
        match self {
            Operation::SendUncopied { queued, .. } => queued.take(),
            _ => None,
        }
    }

    /// The buffers of a device's command will not come back soon: see [`Buf::write_off`].
    pub(super) fn write_off(&self) {
        match self {
            Operation::Read { buf, .. } => buf.write_off(),
            Operation::Write { buf, .. } => buf.write_off(),
            Operation::WriteJoined { parts, .. } => parts.iter().for_each(Buf::write_off),
            // A peer's, not a device's; or without buffers.
            _ => {}
        }
    }

    fn fd(&self) -> types::Fd {
        if let Operation::FuseEntry { entry } = self {
            return entry.fd();
        }
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
        | Operation::SendUncopied { socket: file, .. }
        | Operation::SendWith { socket: file, .. }
        | Operation::ReceiveWith { socket: file, .. }
        | Operation::Readable { file }
        | Operation::ReadCount { file, .. }
        | Operation::Command { file, .. }
        | Operation::WideCommand { file, .. }) = self
        else {
            unreachable!("all others have a file")
        };
        types::Fd(file.as_raw_fd())
    }

    /// The entry that waits until the file can go on with this operation.
    pub(super) fn poll_entry(&self) -> squeue::Entry {
        let events = match self {
            Operation::Write { .. }
            | Operation::WriteParts { .. }
            | Operation::WriteJoined { .. }
            | Operation::Send { .. }
            | Operation::SendUncopied { .. }
            | Operation::SendWith { .. } => libc::POLLOUT,
            _ => libc::POLLIN,
        };
        let events = u32::from(u16::try_from(events).expect("poll events are positive"));
        opcode::PollAdd::new(self.fd(), events).build()
    }

    /// The entry that asks the kernel for it, if that is a wide one. Valid as [`Operation::entry`].
    pub(super) fn wide_entry(&mut self) -> Option<squeue::Entry128> {
        let fd = self.fd();
        match self {
            Operation::WideCommand { command, .. } => Some(command.entry(fd)),
            Operation::FuseEntry { entry } => Some(entry.entry()),
            _ => None,
        }
    }

    /// The entry that asks the kernel for it, unless that is a wide one. Valid while the operation
    /// and `vectors` stay where they are.
    pub(super) fn entry(&mut self, vectors: &mut Vectors) -> squeue::Entry {
        let fd = self.fd();
        match self {
            Operation::Read { at, buf, .. } => {
                opcode::Read::new(fd, buf.as_mut_ptr(), call_bytes(buf.len())).offset(*at).build()
            }
            Operation::Write { at, buf, durable, whole, .. } => {
                let whole = if *whole { libc::RWF_ATOMIC } else { 0 };
                opcode::Write::new(fd, buf.as_ptr(), call_bytes(buf.len()))
                    .offset(*at)
                    .rw_flags(write_flags(*durable) | whole)
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
            Operation::Readable { .. } => self.poll_entry(),
            Operation::ReadCount { .. } => {
                opcode::Read::new(fd, (&raw mut vectors.count).cast(), COUNT_BYTES).build()
            }
            Operation::Command { command, .. } => command.entry(fd),
            Operation::WideCommand { .. } | Operation::FuseEntry { .. } => {
                unreachable!("its entry is a wide one")
            }
            Operation::Accept { .. }
            | Operation::Receive { .. }
            | Operation::Send { .. }
            | Operation::SendUncopied { .. }
            | Operation::SendWith { .. }
            | Operation::ReceiveWith { .. } => self.socket_entry(vectors),
        }
    }

    /// As [`Operation::entry`], for sockets.
    fn socket_entry(&mut self, vectors: &mut Vectors) -> squeue::Entry {
        let fd = self.fd();
        match self {
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
            Operation::Send { parts, sent, .. } => {
                let message = vectors.message_of(parts, *sent);
                opcode::SendMsg::new(fd, message).flags(SEND_FLAGS).build()
            }
            Operation::SendUncopied { parts, sent, .. } => {
                let message = vectors.message_of(parts, *sent);
                opcode::SendMsgZc::new(fd, message).flags(SEND_FLAGS).ioprio(REPORT_USAGE).build()
            }
            Operation::SendWith { parts, with, .. } => {
                vectors.message_of(parts, 0);
                with.note_in(&mut vectors.message);
                let message = &raw const vectors.message;
                opcode::SendMsg::new(fd, message).flags(SEND_FLAGS).build()
            }
            Operation::ReceiveWith { buf, with, .. } => {
                vectors.receive_into(buf);
                with.note_in(&mut vectors.message);
                let flags = libc::MSG_CMSG_CLOEXEC.cast_unsigned();
                opcode::RecvMsg::new(fd, &raw mut vectors.message).flags(flags).build()
            }
            _ => unreachable!("not about a socket"),
        }
    }

    /// Takes over what the kernel left beside the buffers of an operation that went well.
    ///
    /// # Errors
    /// It is not what it should be.
    pub(super) fn take_over(&mut self, vectors: &Vectors) -> io::Result<()> {
        match self {
            Operation::ReceiveWith { with, .. } => with.take_over(&vectors.message),
            Operation::ReadCount { count, .. } => {
                *count = vectors.count;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn write_flags(durable: bool) -> i32 {
    if durable { libc::RWF_DSYNC } else { 0 }
}

fn call_bytes(len: usize) -> u32 {
    u32::try_from(len.min(CALL_BYTES_MAX)).expect("at most 1 GiB")
}
