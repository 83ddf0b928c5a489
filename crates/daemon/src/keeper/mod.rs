//! Who keeps the descriptors of attached files while no daemon runs: systemd's descriptor store, or
//! a small process of our own.
//!
//! - `message` what the daemon and the process say to each other
//! - `process` the process: it holds descriptors and does nothing else
//! - `client`  the daemon's side of it
//! - `systemd` the descriptor store of a unit
//!
//! What must stay true: a name stands for all descriptors of one attachment, and says what a
//! successor must know of it, so nothing else is written down. What is held is given up only when
//! the daemon says so, when its mount is gone, or when no daemon came for a long time. Not here:
//! what a name says (`exports`).

mod client;
mod message;
mod process;
mod systemd;

pub use process::{KeeperOptions, run};

use client::KeeperProcess;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use systemd::Unit;

/// How long descriptors are held while no daemon runs, if the configuration does not say.
pub const WAIT: Duration = Duration::from_secs(3600);

/// Descriptors that were held, by one name.
pub struct Held {
    /// As it was given.
    pub name: String,
    /// In no order.
    pub descriptors: Vec<OwnedFd>,
}

/// Whoever keeps descriptors for this daemon. Its calls may wait for another process: see `aside`.
pub enum Keeper {
    /// The service manager.
    Unit(Unit),
    /// A process of our own.
    Process(KeeperProcess),
}

impl Keeper {
    /// systemd 254 or later if it offers that (FileDescriptorStoreMax= of the unit), else a process
    /// that belongs to this control socket and waits so long for a daemon.
    pub fn of(control: &Path, wait: Duration) -> Keeper {
        match Unit::here() {
            Some(unit) => Keeper::Unit(unit),
            None => Keeper::Process(KeeperProcess::new(control.with_extension("keeper"), wait)),
        }
    }

    /// Everything that a daemon which is gone has left. They stay held.
    ///
    /// # Errors
    /// The process does not answer as it should.
    pub fn held(&self) -> io::Result<Vec<Held>> {
        match self {
            Keeper::Unit(unit) => Ok(unit.held()),
            Keeper::Process(process) => process.held(),
        }
    }

    /// Hold these by this name, of which the first `already` are held as far as is known. Whether
    /// whoever holds them is new, and holds nothing else.
    ///
    /// # Errors
    /// Why they are not held.
    pub fn hold(
        &self,
        name: &str,
        descriptors: &[Arc<OwnedFd>],
        already: usize,
    ) -> io::Result<bool> {
        match self {
            Keeper::Unit(unit) => unit.hold(name, descriptors).map(|()| false),
            Keeper::Process(process) => process.hold(name, descriptors, already),
        }
    }

    /// Waits until whoever holds them has ended, if this is to be feared; whether it did.
    pub fn ended(&self) -> bool {
        match self {
            Keeper::Unit(_) => false,
            Keeper::Process(process) => {
                process.ended();
                true
            }
        }
    }

    /// Give them up. Unknown names are no error.
    ///
    /// # Errors
    /// Nobody heard it.
    pub fn give_up(&self, name: &str) -> io::Result<()> {
        match self {
            Keeper::Unit(unit) => unit.give_up(name),
            Keeper::Process(process) => process.give_up(name),
        }
    }

    /// The daemon ends in order: a process that holds nothing ends.
    pub fn end(&self) {
        if let Keeper::Process(process) = self {
            process.end();
        }
    }
}
