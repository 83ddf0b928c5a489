//! The descriptor store of a systemd unit: FDSTORE=1 of sd_notify(3), and LISTEN_FDS at the start.
//!
//! What must stay true: it is used only where the manager says how many descriptors it takes
//! ($FDSTORE, systemd 254 and later), for what is too many it closes without a word. What is stored
//! twice is kept once, by the manager.

use super::Held;
use super::message::DESCRIPTORS_MAX;
use ashlar_ring::inherited_descriptors;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The unit that this process runs in.
pub struct Unit {
    address: SocketAddrUnix,
    /// How many descriptors it takes.
    descriptors_max: usize,
    /// How many it has, by name.
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Unit {
    /// `None` if no unit offers to store descriptors.
    pub fn here() -> Option<Unit> {
        let told = |name: &str| std::env::var(name).ok();
        let descriptors_max = told("FDSTORE")?.parse().ok().filter(|count| *count > 0)?;
        let socket = told("NOTIFY_SOCKET")?;
        let address = match socket.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?,
            None => SocketAddrUnix::new(socket).ok()?,
        };
        Some(Unit { address, descriptors_max, counts: Mutex::default() })
    }

    /// What the manager had in store for this process when it began; once.
    pub fn held(&self) -> Vec<Held> {
        let mut all: BTreeMap<String, Vec<OwnedFd>> = BTreeMap::new();
        for (name, descriptor) in inherited_descriptors() {
            all.entry(name).or_default().push(descriptor);
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.extend(all.iter().map(|(name, held)| (name.clone(), held.len())));
        all.into_iter().map(|(name, descriptors)| Held { name, descriptors }).collect()
    }

    pub fn hold(&self, name: &str, descriptors: &[Arc<OwnedFd>]) -> io::Result<()> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize =
            counts.iter().filter(|(known, _)| *known != name).map(|(_, count)| count).sum();
        if others + descriptors.len() > self.descriptors_max {
            let max = self.descriptors_max;
            let message = format!("FileDescriptorStoreMax={max} of the unit is too small");
            return Err(io::Error::other(message));
        }
        for some in descriptors.chunks(DESCRIPTORS_MAX) {
            self.tell(&format!("FDSTORE=1\nFDNAME={name}"), some)?;
        }
        counts.insert(name.to_owned(), descriptors.len());
        Ok(())
    }

    pub fn give_up(&self, name: &str) -> io::Result<()> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[])
    }

    fn tell(&self, text: &str, descriptors: &[Arc<OwnedFd>]) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|it| it.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits =
            descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        if !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(text.as_bytes())];
        sendmsg_addr(socket, &self.address, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
