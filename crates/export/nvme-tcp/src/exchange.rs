//! The steps of an authentication: what the host sends, and what it fetches.
//!
//! What must stay true: what takes milliseconds is computed aside, never on a worker, and for one
//! connection at a time. Strangers who begin many authentications keep one core busy, and the
//! others' deadline ends those who wait. Exponents and challenges come from the kernel.

use crate::Target;
use crate::handshake::Command;
use ashlar_nvme_protocol::Status;
use ashlar_nvme_protocol::auth::{AUTH_MESSAGE_BYTES_MAX, Authentication, Parties, Random};
use ashlar_nvme_protocol::command::FabricsCommand;
use ashlar_ring::Handle;
use ashlar_ring::mailbox::mailbox;
use ashlar_units::to_usize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a connection looks whether it is its turn to compute.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// An authentication on a connection.
pub struct Exchange<'a> {
    handle: &'a Handle,
    target: &'a Arc<Target>,
    state: Authentication,
}

impl<'a> Exchange<'a> {
    /// Nothing was said yet.
    pub fn new(handle: &'a Handle, target: &'a Arc<Target>, parties: Parties) -> Exchange<'a> {
        Exchange { handle, target, state: Authentication::new(parties) }
    }

    /// Whether the host may go on.
    pub fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Whether it failed.
    pub fn has_failed(&self) -> bool {
        self.state.has_failed()
    }

    /// One step: the message for the host, as long as it asked for, or nothing.
    pub async fn step(&mut self, command: &Command) -> Result<Vec<u8>, Status> {
        let data = command.data.as_ref().map_err(|status| *status)?;
        match command.fabrics()? {
            FabricsCommand::AuthSend(auth) => {
                auth.check(AUTH_MESSAGE_BYTES_MAX)?;
                self.hear(data).await.map_err(|_| Status::INTERNAL_ERROR)?;
                Ok(Vec::new())
            }
            FabricsCommand::AuthReceive(auth) => {
                auth.check(AUTH_MESSAGE_BYTES_MAX)?;
                let room = to_usize(u64::from(auth.bytes));
                let mut message = self.state.receive().ok_or(Status::SEQUENCE_ERROR)?;
                if message.len() > room {
                    return Err(Status::INVALID_FIELD);
                }
                message.resize(room, 0);
                Ok(message)
            }
            _ => Err(Status::AUTHENTICATION_REQUIRED),
        }
    }

    async fn hear(&mut self, data: &[u8]) -> io::Result<()> {
        let random = random()?;
        let turn = self.turn().await;
        let (sender, mut receiver) = mailbox(self.handle);
        let (mut state, data) = (self.state.clone(), data.to_vec());
        (self.target.config.aside)(Box::new(move || {
            state.send(&data, &random);
            drop(turn);
            sender.send(state);
        }));
        self.state = receiver.receive().await;
        Ok(())
    }

    async fn turn(&self) -> Turn {
        let flag = &self.target.is_proving;
        while flag.swap(true, Ordering::Acquire) {
            self.handle.sleep(LOOK_EVERY).await;
        }
        Turn(Arc::clone(flag))
    }
}

/// Held by who computes.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Nobody can foresee these: they come from the kernel.
fn random() -> io::Result<Random> {
    let mut random = Random { challenge: [0; 64], sequence: 0, exponent: [0; 64] };
    let mut sequence = [0; 4];
    for bytes in [&mut random.challenge[..], &mut random.exponent[..], &mut sequence[..]] {
        let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled < bytes.len() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    // 0 says that nobody is challenged.
    random.sequence = u32::from_le_bytes(sequence).max(1);
    Ok(random)
}
