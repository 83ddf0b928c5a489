//! What a daemon and its keeper say to each other: packets of a sign and a name, with descriptors.
//!
//! What must stay true: every packet of the daemon has an answer; a packet is short and carries few
//! descriptors, so that none is cut off; one that is cut off is an error.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors in one packet.
pub const DESCRIPTORS_MAX: usize = 64;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;

/// What a packet is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// Hold these by that name, with those that are held so. In an answer to `List`: one of them.
    Hold,
    /// Give up what is held by that name.
    GiveUp,
    /// Send all that is held, and `Done` at the end.
    List,
    /// End, if nothing is held.
    End,
    /// The answer: it was done.
    Done,
    /// The answer: it was not.
    Refused,
}

const SIGNS: [(About, u8); 6] = [
    (About::Hold, b'h'),
    (About::GiveUp, b'g'),
    (About::List, b'l'),
    (About::End, b'e'),
    (About::Done, b'd'),
    (About::Refused, b'r'),
];

/// A packet that came.
pub struct Packet {
    /// What it is about.
    pub about: About,
    /// Empty where none is needed.
    pub name: String,
    /// Those that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Send one.
///
/// # Errors
/// As of sendmsg(2).
pub fn send(
    socket: impl AsFd,
    about: About,
    name: &str,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let sign = SIGNS.iter().find(|(it, _)| *it == about).expect("every one has a sign").1;
    let bytes = [&[sign], name.as_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = name.len() <= NAME_BYTES_MAX
        && (descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&bytes)];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receive one; `None` at the end of the connection.
///
/// # Errors
/// As of recvmsg(2); `InvalidData` if it is none.
pub fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    let mut bytes = [0; NAME_BYTES_MAX + 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = loop {
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    let text = match received.bytes {
        0 => return Ok(None),
        count => &bytes[..count],
    };
    let is_cut = received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
    let about = SIGNS.iter().find(|(_, sign)| *sign == text[0]).map(|(about, _)| *about);
    let name = std::str::from_utf8(&text[1..]).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
    match (about, name) {
        (Some(about), Some(name)) if !is_cut => {
            Ok(Some(Packet { about, name: name.to_owned(), descriptors }))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
