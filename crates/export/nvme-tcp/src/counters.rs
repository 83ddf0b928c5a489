//! What all connections did so far, for `status` and metrics.
//!
//! What must stay true: counters only rise, except those of the session crate that say how many are
//! open. They are read while they move, so two of them need not fit together to the last command.

use ashlar_nvme_protocol::command::IoCommand;
use ashlar_session::SessionCounters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all connections of all workers.
#[derive(Debug, Default)]
pub struct NvmeCounters {
    /// Connections.
    pub sessions: Arc<SessionCounters>,
    /// Controllers now, of I/O and of discovery.
    pub controllers: AtomicU64,
    /// Admin commands.
    pub admin_commands: AtomicU64,
    /// Read commands.
    pub reads: AtomicU64,
    /// Write commands.
    pub writes: AtomicU64,
    /// Flush commands.
    pub flushes: AtomicU64,
    /// Compare commands.
    pub compares: AtomicU64,
    /// Write Zeroes commands.
    pub write_zeroes: AtomicU64,
    /// Dataset Management commands.
    pub deallocations: AtomicU64,
    /// Reservation commands.
    pub reservations: AtomicU64,
    /// Bytes of data sent in answer to reads.
    pub read_bytes: AtomicU64,
    /// Bytes of data received for writes and compares.
    pub written_bytes: AtomicU64,
    /// Commands that were answered with an error.
    pub errors: AtomicU64,
    /// Commands that could not read or write their blocks.
    pub media_errors: AtomicU64,
    /// Data whose digest did not fit.
    pub digest_errors: AtomicU64,
    /// Hosts that were refused: not on the list, or not able to prove who they are.
    pub hosts_refused: AtomicU64,
    /// Commands that a reservation of another host refused.
    pub reservation_conflicts: AtomicU64,
    /// Hosts that were given up because they were silent for too long.
    pub keep_alive_expired: AtomicU64,
}

impl NvmeCounters {
    pub(crate) fn count(&self, command: &IoCommand) {
        let counter = match command {
            IoCommand::Flush => &self.flushes,
            IoCommand::Read { .. } => &self.reads,
            IoCommand::Write { .. } => &self.writes,
            IoCommand::Compare { .. } => &self.compares,
            IoCommand::WriteZeroes { .. } => &self.write_zeroes,
            IoCommand::DatasetManagement { .. } => &self.deallocations,
            IoCommand::ReservationRegister(_)
            | IoCommand::ReservationReport { .. }
            | IoCommand::ReservationAcquire(_)
            | IoCommand::ReservationRelease(_) => &self.reservations,
        };
        add(counter, 1);
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
