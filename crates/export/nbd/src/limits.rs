//! What one client may hold: the bounds of any session, and those of this protocol.
//!
//! What must stay true: every wait in a session and every buffer it takes falls under one of these.

use ashlar_session::SessionLimits;

/// Bounds of the server and of each session.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Those that sessions of every protocol have.
    pub session: SessionLimits,
    /// Longest option data, in bytes. A longer option ends the connection. With 2 KiB that are
    /// received ahead this is what a client holds before it has chosen a volume.
    pub option_bytes_max: usize,
    /// Options in one handshake.
    pub option_count_max: u32,
    /// Runs in one answer to BLOCK_STATUS.
    pub status_runs_max: usize,
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
            option_bytes_max: 16 << 10,
            option_count_max: 1024,
            status_runs_max: 4096,
        }
    }
}
