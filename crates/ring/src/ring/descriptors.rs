//! Descriptors that travel beside a message (SCM_RIGHTS).
//!
//! What must stay true: a descriptor that arrived is owned from the moment its completion is
//! reaped, so an unclaimed one is closed. If more arrive than there is room for, the receiver gets
//! an error, and they are closed. Not here: sending and receiving (`stream`).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Descriptors in one message at most.
pub const DESCRIPTORS_MAX: usize = 32;

const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const DESCRIPTOR_BYTES: usize = size_of::<RawFd>();
const CONTROL_BYTES: usize = HEADER_BYTES + DESCRIPTORS_MAX * DESCRIPTOR_BYTES;
const _: () = assert!(CONTROL_BYTES.is_multiple_of(align_of::<libc::cmsghdr>()));

/// What the kernel reads or writes beside a message's bytes. Boxed, so that it stays where it is.
#[repr(C, align(8))]
pub(super) struct Control([u8; CONTROL_BYTES]);

/// Descriptors that go with a message.
pub struct SentDescriptors {
    control: Control,
    /// They stay open until the message left.
    pub descriptors: Vec<Arc<OwnedFd>>,
}

/// Descriptors that came with a message.
pub struct ReceivedDescriptors {
    control: Control,
    /// In the order in which they were sent.
    pub descriptors: Vec<OwnedFd>,
}

impl SentDescriptors {
    /// These, to go with one message.
    ///
    /// # Panics
    /// If there are more than [`DESCRIPTORS_MAX`].
    pub fn new(descriptors: Vec<Arc<OwnedFd>>) -> Box<SentDescriptors> {
        assert!(descriptors.len() <= DESCRIPTORS_MAX, "too many descriptors for one message");
        Box::new(SentDescriptors { control: Control([0; CONTROL_BYTES]), descriptors })
    }

    /// Writes the control message; `message` refers to it then.
    pub(super) fn note_in(&mut self, message: &mut libc::msghdr) {
        if self.descriptors.is_empty() {
            (message.msg_control, message.msg_controllen) = (std::ptr::null_mut(), 0);
            return;
        }
        let bytes = HEADER_BYTES + self.descriptors.len() * DESCRIPTOR_BYTES;
        self.control.put(offset_of!(libc::cmsghdr, cmsg_len), &bytes.to_ne_bytes());
        let level = libc::SOL_SOCKET.to_ne_bytes();
        self.control.put(offset_of!(libc::cmsghdr, cmsg_level), &level);
        let kind = libc::SCM_RIGHTS.to_ne_bytes();
        self.control.put(offset_of!(libc::cmsghdr, cmsg_type), &kind);
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            let number = descriptor.as_raw_fd().to_ne_bytes();
            self.control.put(HEADER_BYTES + at * DESCRIPTOR_BYTES, &number);
        }
        message.msg_control = self.control.0.as_mut_ptr().cast();
        message.msg_controllen = bytes;
    }
}

impl ReceivedDescriptors {
    /// Room for descriptors.
    pub fn new() -> Box<ReceivedDescriptors> {
        let control = Control([0; CONTROL_BYTES]);
        Box::new(ReceivedDescriptors { control, descriptors: Vec::new() })
    }

    /// Lets `message` refer to the room.
    pub(super) fn note_in(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        message.msg_flags = 0;
    }

    /// Takes over what came with a message that was received.
    ///
    /// # Errors
    /// `InvalidData` if more was sent than there is room for; what came of it is closed.
    pub(super) fn take_over(&mut self, message: &libc::msghdr) -> io::Result<()> {
        let mut rest = &self.control.0[..message.msg_controllen.min(CONTROL_BYTES)];
        while let Some((numbers, after)) = next_rights(rest) {
            for number in numbers.as_chunks::<DESCRIPTOR_BYTES>().0 {
                let number = RawFd::from_ne_bytes(*number);
                // SAFETY: the kernel made this descriptor for this message and told nobody else.
                self.descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
            rest = after;
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            self.descriptors.clear();
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
        }
        Ok(())
    }
}

impl Control {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The descriptors' numbers of the first control message in `bytes` (none if it is of another
/// kind), and what follows it.
fn next_rights(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let field = |at: usize, length: usize| bytes.get(at..at + length);
    let length = field(offset_of!(libc::cmsghdr, cmsg_len), size_of::<usize>())?;
    let length = usize::from_ne_bytes(length.try_into().ok()?);
    let level = field(offset_of!(libc::cmsghdr, cmsg_level), size_of::<i32>())?;
    let kind = field(offset_of!(libc::cmsghdr, cmsg_type), size_of::<i32>())?;
    let content = bytes.get(HEADER_BYTES..length)?;
    let is_rights =
        level == libc::SOL_SOCKET.to_ne_bytes() && kind == libc::SCM_RIGHTS.to_ne_bytes();
    let after = length.next_multiple_of(align_of::<libc::cmsghdr>()).min(bytes.len());
    Some((if is_rights { content } else { &[] }, &bytes[after..]))
}
