//! What one client may hold: the bounds that keep a slow or hostile one from hurting the others.
//!
//! What must stay true: every wait in a session and every buffer it takes falls under one of these.

use std::time::Duration;

/// Bounds of the server and of each session.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests (or pieces of long ones) that a session carries out at the same time. Each is a task of a
    /// few hundred bytes made when the session starts. While all are busy, nothing more is received.
    pub slots: usize,
    /// Payload that a session may hold in volume buffers, in bytes; a single piece always passes. Read data
    /// counts until it is sent, so that a client that does not read stops here.
    pub bytes_in_flight_max: u64,
    /// From accept to the transmission phase.
    pub handshake_time: Duration,
    /// Longest option data, in bytes. A longer option ends the connection. With 2 KiB that are received ahead this is what
    /// a client holds before it has chosen a volume.
    pub option_bytes_max: usize,
    /// Options in one handshake.
    pub option_count_max: u32,
    /// For each piece of a write's payload, once its header came. Between requests a client may idle for ever.
    pub payload_time: Duration,
    /// For a send to end once it began. A client that does not read its replies is given up after this (and up to a
    /// quarter more), so that it does not hold buffers for ever.
    pub send_time: Duration,
    /// For requests in flight to end and their replies to leave, once the client has gone or misbehaved.
    pub drain_time: Duration,
    /// Runs in one answer to BLOCK_STATUS.
    pub status_runs_max: usize,
    /// Connections at the same time, over all workers.
    pub sessions_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            slots: 64,
            bytes_in_flight_max: 16 << 20,
            handshake_time: Duration::from_secs(10),
            option_bytes_max: 16 << 10,
            option_count_max: 1024,
            payload_time: Duration::from_secs(60),
            send_time: Duration::from_secs(60),
            drain_time: Duration::from_secs(10),
            status_runs_max: 4096,
            sessions_max: 1024,
        }
    }
}
