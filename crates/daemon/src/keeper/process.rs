//! The process that keeps descriptors: `ashlar keeper`, started by a daemon with a listening socket
//! as its standard input.
//!
//! What must stay true: it opens nothing, reads nothing and serves nothing; only its own user and
//! root are heard. It ends when it holds nothing and nobody is connected, and when no daemon came
//! within its time: users of the mounts get errors then rather than wait for ever.

use super::message::{About, DESCRIPTORS_MAX, Packet, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::time::Instant;

/// Names that are held at most.
const NAMES_MAX: usize = 1024;
/// Daemons that are connected at most: one, and the next one that looks.
const CONNECTIONS_MAX: usize = 4;
/// How long a daemon may take to receive something.
const SEND_TIME: Duration = Duration::from_secs(5);

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub struct KeeperOptions {
    /// How long it holds descriptors while no daemon is connected.
    pub wait: Duration,
}

/// Hold descriptors until there are none, or nobody comes for them.
///
/// # Errors
/// Standard input is no listening socket.
pub fn run(options: KeeperOptions) -> io::Result<()> {
    // A terminal that is closed, or its ^C, ends the daemon's session and not this process.
    let _is_leader_already = rustix::process::setsid();
    // It keeps nobody from unmounting the folder that it was started in.
    let _stays = std::env::set_current_dir("/");
    let listener = io::stdin().as_fd().try_clone_to_owned()?;
    let mut keeper = Keeper { listener, held: Vec::new(), connections: Vec::new() };
    let mut alone_since = Instant::now();
    loop {
        keeper.turn(options.wait.saturating_sub(alone_since.elapsed()))?;
        if !keeper.connections.is_empty() {
            alone_since = Instant::now();
        } else if keeper.held.is_empty() || alone_since.elapsed() >= options.wait {
            return Ok(());
        }
    }
}

struct Keeper {
    listener: OwnedFd,
    held: Vec<(String, Vec<OwnedFd>)>,
    connections: Vec<OwnedFd>,
}

impl Keeper {
    /// Wait for something, no longer than `left` while nobody is connected, and do it.
    fn turn(&mut self, left: Duration) -> io::Result<()> {
        let ready = self.ready(left)?;
        // Mounts that are gone: nobody will come for them.
        let mut flags = ready[1 + self.connections.len()..].iter();
        self.held.retain(|_| !flags.next().is_some_and(|it| it.contains(PollFlags::ERR)));
        let connections = std::mem::take(&mut self.connections);
        for (connection, flags) in connections.into_iter().zip(&ready[1..]) {
            let goes_on = flags.is_empty() || self.hear(&connection).is_ok_and(|goes_on| goes_on);
            if goes_on {
                self.connections.push(connection);
            }
        }
        if !ready[0].is_empty() {
            self.admit()?;
        }
        Ok(())
    }

    /// What is ready: the listener, each connection, the first descriptor of each name.
    fn ready(&self, left: Duration) -> io::Result<Vec<PollFlags>> {
        let mut all = vec![PollFd::new(&self.listener, PollFlags::IN)];
        all.extend(self.connections.iter().map(|it| PollFd::new(it, PollFlags::IN)));
        let firsts = self.held.iter().filter_map(|(_, held)| held.first());
        all.extend(firsts.map(|it| PollFd::new(it, PollFlags::empty())));
        let left = Timespec::try_from(left).ok().filter(|_| self.connections.is_empty());
        match poll(&mut all, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(all.iter().map(PollFd::revents).collect())
    }

    fn admit(&mut self) -> io::Result<()> {
        let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        sockopt::set_socket_timeout(&connection, sockopt::Timeout::Send, Some(SEND_TIME))?;
        if is_ours(&connection) && self.connections.len() < CONNECTIONS_MAX {
            self.connections.push(connection);
        }
        Ok(())
    }

    /// One packet of a daemon. Whether the connection goes on.
    fn hear(&mut self, connection: &OwnedFd) -> io::Result<bool> {
        let Some(packet) = receive(connection)? else { return Ok(false) };
        let is_done = match packet.about {
            About::Hold => self.hold(packet),
            About::GiveUp => {
                self.held.retain(|(name, _)| *name != packet.name);
                true
            }
            About::List => {
                self.list(connection)?;
                true
            }
            About::End => return Ok(!self.held.is_empty()),
            About::Done | About::Refused => return Ok(false),
        };
        let answer = if is_done { About::Done } else { About::Refused };
        send(connection, answer, "", &[])?;
        Ok(true)
    }

    fn hold(&mut self, packet: Packet) -> bool {
        let Packet { name, descriptors, .. } = packet;
        if descriptors.is_empty() {
            return false;
        }
        if let Some((_, held)) = self.held.iter_mut().find(|(known, _)| *known == name) {
            held.extend(descriptors);
            return true;
        }
        let has_room = self.held.len() < NAMES_MAX;
        if has_room {
            self.held.push((name, descriptors));
        }
        has_room
    }

    fn list(&self, connection: &OwnedFd) -> io::Result<()> {
        for (name, held) in &self.held {
            for some in held.chunks(DESCRIPTORS_MAX) {
                let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
                send(connection, About::Hold, name, &some)?;
            }
        }
        Ok(())
    }
}

/// Whether a peer is of this user, or root, as the kernel says.
pub fn is_ours(connection: &OwnedFd) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(connection).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}
