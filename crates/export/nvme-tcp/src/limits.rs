//! What one host may hold: the bounds of any session, and those of this protocol.
//!
//! What must stay true: every wait of a connection and every buffer it takes falls under one of
//! these; what Identify and ICResp announce is derived from them.

use ashlar_nvme_protocol::connection::Offer;
use ashlar_session::SessionLimits;

/// Bounds of the target and of each connection.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Those that sessions of every protocol have.
    pub session: SessionLimits,
    /// Entries of a queue, less one (CAP.MQES). A queue holds as many commands at the same time;
    /// data in their capsules is kept in memory of the connection when the pool has none.
    pub entries_less_one_max: u16,
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Controllers at the same time, over all hosts.
    pub controllers_max: usize,
    /// Most data of one command: 4 KiB to the power of this (MDTS).
    pub transfer_power_max: u8,
    /// Most data in a command capsule, in bytes; a multiple of 16.
    pub in_capsule_bytes_max: u32,
    /// Most data in one H2CData PDU, in bytes (MAXH2CDATA); a multiple of 4.
    pub h2c_bytes_max: u32,
    /// Data that a connection may have asked for and not received, in bytes; one command always
    /// passes. Buffers wait for it, so a host that sends nothing holds no more than this.
    pub awaited_bytes_max: u64,
    /// Highest namespace identifier.
    pub namespaces_max: u32,
    /// Asynchronous event requests that may wait.
    pub async_events_max: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::from(SessionLimits::default())
    }
}

impl From<SessionLimits> for Limits {
    fn from(session: SessionLimits) -> Limits {
        Limits {
            session,
            entries_less_one_max: 127,
            io_queues_max: 64,
            controllers_max: 256,
            transfer_power_max: 8,
            in_capsule_bytes_max: 8192,
            h2c_bytes_max: 1 << 20,
            awaited_bytes_max: 4 << 20,
            namespaces_max: 1024,
            async_events_max: 4,
        }
    }
}

impl Limits {
    /// What the controller announces when a connection begins.
    pub fn offer(&self) -> Offer {
        Offer { h2c_bytes_max: self.h2c_bytes_max, in_capsule_bytes_max: self.in_capsule_bytes_max }
    }

    /// Most data of one command, in bytes.
    pub fn transfer_bytes_max(&self) -> u64 {
        4096 << u32::from(self.transfer_power_max.min(20))
    }
}
