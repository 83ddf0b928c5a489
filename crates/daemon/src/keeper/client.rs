//! The daemon's side of the keeper process: finds the one that a daemon before it has left, and
//! starts one when there is something to keep.
//!
//! What must stay true: the socket is this user's alone (mode 0600, peers checked on both sides);
//! one that is dead is replaced. The process is started from the file that this process runs, even
//! if another version has taken its path by now.

use super::Held;
use super::message::{About, DESCRIPTORS_MAX, Packet, receive, send};
use super::process::is_ours;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long it may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The keeper process of a control socket.
pub struct KeeperProcess {
    socket: PathBuf,
    wait: Duration,
    connection: Mutex<Option<OwnedFd>>,
}

impl KeeperProcess {
    /// Nobody is asked yet.
    pub fn new(socket: PathBuf, wait: Duration) -> KeeperProcess {
        KeeperProcess { socket, wait, connection: Mutex::default() }
    }

    /// What a daemon before this one has left; nothing if there is no keeper.
    ///
    /// # Errors
    /// There is one, and it does not answer.
    pub fn held(&self) -> io::Result<Vec<Held>> {
        self.with_connection(|connection| {
            if connection.is_none() {
                *connection = self.connected();
            }
            let Some(connection) = connection else { return Ok(Vec::new()) };
            send(&*connection, About::List, "", &[])?;
            let mut all: Vec<Held> = Vec::new();
            loop {
                let Packet { about, name, descriptors } = answer(connection)?;
                match about {
                    About::Hold => match all.iter_mut().find(|held| held.name == name) {
                        Some(held) => held.descriptors.extend(descriptors),
                        None => all.push(Held { name, descriptors }),
                    },
                    About::Done => return Ok(all),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        })
    }

    /// Hold them all; the first `already` are held, if the process did not end meanwhile. Whether
    /// this is a new process, which holds nothing else.
    ///
    /// # Errors
    /// No process can be started, or it has no room.
    pub fn hold(
        &self,
        name: &str,
        descriptors: &[Arc<OwnedFd>],
        already: usize,
    ) -> io::Result<bool> {
        self.with_connection(|connection| {
            if let Some(there) = connection
                && hand_over(there, name, &descriptors[already..]).is_ok()
            {
                return Ok(false);
            }
            let new = connection.insert(self.started()?);
            hand_over(new, name, descriptors)?;
            Ok(true)
        })
    }

    /// Waits until the process has ended, or there is none.
    pub fn ended(&self) {
        let connection = self
            .with_connection(|connection| connection.as_ref().map(OwnedFd::try_clone).transpose());
        let Ok(Some(connection)) = connection else { return };
        loop {
            let mut one = [PollFd::new(&connection, PollFlags::empty())];
            match poll(&mut one, None) {
                Err(rustix::io::Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Let go of what is held under this name.
    ///
    /// # Errors
    /// The process does not answer.
    pub fn give_up(&self, name: &str) -> io::Result<()> {
        self.with_connection(|connection| match connection {
            Some(connection) => {
                send(&*connection, About::GiveUp, name, &[])?;
                done(connection)
            }
            None => Ok(()),
        })
    }

    /// Ask it to end if it holds nothing.
    pub fn end(&self) {
        let asked = self.with_connection(|connection| match connection.take() {
            Some(connection) => send(&connection, About::End, "", &[]),
            None => Ok(()),
        });
        // It ends by itself when this process is gone.
        drop(asked);
    }

    /// A connection that failed is not used again.
    fn with_connection<T>(
        &self,
        work: impl FnOnce(&mut Option<OwnedFd>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut connection);
        if result.is_err() {
            *connection = None;
        }
        result
    }

    /// To a keeper that is there.
    fn connected(&self) -> Option<OwnedFd> {
        let connection = fresh().ok()?;
        connect(&connection, &SocketAddrUnix::new(&self.socket).ok()?).ok()?;
        is_ours(&connection).then_some(connection)
    }

    /// To one that was started now.
    fn started(&self) -> io::Result<OwnedFd> {
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = fresh()?;
        let address = SocketAddrUnix::new(&self.socket)?;
        bind(&listener, &address)?;
        rustix::fs::chmod(&self.socket, Mode::RUSR | Mode::WUSR)?;
        listen(&listener, 4)?;
        // It waits in the listener: nobody has to wait until the process runs.
        let connection = fresh()?;
        connect(&connection, &address)?;
        let mut child = Command::new("/proc/self/exe")
            .args(["keeper", "--wait", &self.wait.as_secs().to_string()])
            .env_clear()
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::spawn(move || child.wait());
        Ok(connection)
    }
}

fn fresh() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for direction in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, direction, Some(ANSWER_TIME))?;
    }
    Ok(socket)
}

fn hand_over(connection: &OwnedFd, name: &str, descriptors: &[Arc<OwnedFd>]) -> io::Result<()> {
    for some in descriptors.chunks(DESCRIPTORS_MAX) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(|it| it.as_fd()).collect();
        send(connection, About::Hold, name, &some)?;
        done(connection)?;
    }
    Ok(())
}

fn answer(connection: &OwnedFd) -> io::Result<Packet> {
    receive(connection)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn done(connection: &OwnedFd) -> io::Result<()> {
    match answer(connection)?.about {
        About::Done => Ok(()),
        _ => Err(io::Error::other("the keeper has no room")),
    }
}
