//! What one client may hold: the bounds that keep a slow or hostile one from hurting the others.
//!
//! What must stay true: every wait in a session and every buffer it takes falls under one of these,
//! or under one of its protocol's own.

use std::time::Duration;

/// Bounds of a server and of each session.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// Requests (or pieces of long ones) that a session carries out at the same time. Each is a
    /// task of a few hundred bytes made when the session starts. While all are busy, nothing more
    /// is received.
    pub slots: usize,
    /// Payload that a session may hold in volume buffers, in bytes; a single piece always passes.
    /// Read data counts until it is sent, so that a client that does not read stops here.
    pub bytes_in_flight_max: u64,
    /// From accept to the first request.
    pub handshake_time: Duration,
    /// For each piece of a write's payload, once its header came. Between requests a client may
    /// idle for ever.
    pub payload_time: Duration,
    /// For a send to end once it began. A client that does not read its replies is given up after
    /// this (and up to a quarter more), so that it does not hold buffers for ever.
    pub send_time: Duration,
    /// For requests in flight to end and their replies to leave, once the client has gone or
    /// misbehaved.
    pub drain_time: Duration,
    /// Sessions at the same time, over all workers.
    pub sessions_max: u64,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits {
            slots: 64,
            bytes_in_flight_max: 16 << 20,
            handshake_time: Duration::from_secs(10),
            payload_time: Duration::from_secs(60),
            send_time: Duration::from_secs(60),
            drain_time: Duration::from_secs(10),
            sessions_max: 1024,
        }
    }
}
