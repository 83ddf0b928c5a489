//! What happened, with stable names: `noun.verb_past`, one event a line, fields with units.
//!
//! What must stay true: names in [`names`] never change their meaning once released; recording an event
//! never blocks the data path for longer than one short lock and never fails. The log keeps the newest
//! events only; a follower that falls behind is told how many it missed.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// The event names. A follower may match on these.
pub mod names {
    /// An array was created.
    pub const ARRAY_CREATED: &str = "array.created";
    /// An array was assembled and is usable.
    pub const ARRAY_ASSEMBLED: &str = "array.assembled";
    /// Pages of the written map were lost and the operator had the array started all the same: their stripes count as
    /// written. Fields: `pages`, `first_stripe`.
    pub const ARRAY_MAP_LOST: &str = "array.map_lost";
    /// An array was stopped and its members let go.
    pub const ARRAY_STOPPED: &str = "array.stopped";
    /// A start after an unclean stop rolled the stripe intent log forward. Fields: `rolled_forward`, `dropped`
    /// (updates), `rows_in_doubt`, `rows_left` (of these, for lack of readable blocks),
    /// `put_back` (blocks of these that their checksums proved wrong), `blocks`, `duration_us`.
    pub const LOG_REPLAYED: &str = "log.replayed";
    /// Members have no room for what is written, more of them than the array can do without: writes
    /// wait. Fields: `slots`.
    pub const ARRAY_PAUSED: &str = "array.paused";
    /// There is room again: writes go on.
    pub const ARRAY_RESUMED: &str = "array.resumed";
    /// More members are missing than the parity can replace.
    pub const ARRAY_FAILED: &str = "array.failed";
    /// Another host runs the array: nothing more is written here. Fields: `host`.
    pub const ARRAY_TAKEN_OVER: &str = "array.taken_over";
    /// A member was put out of service and the others know.
    pub const MEMBER_FAILED: &str = "member.failed";
    /// A device is an older copy of a member: it lacks writes that the others know to be flushed on it, and stays out.
    /// Fields: `slot`, `path`.
    pub const MEMBER_OLDER: &str = "member.older";
    /// A member took a slot (spare, replacement or returned).
    pub const MEMBER_JOINED: &str = "member.joined";
    /// Blocks of a member could not be read; they were reconstructed and written back.
    pub const MEMBER_BLOCK_REPAIRED: &str = "member.block_repaired";
    /// Blocks of a member could not be read and could not be written back.
    pub const MEMBER_BLOCK_UNREPAIRED: &str = "member.block_unrepaired";
    /// A block of a member is not what was written there. Fields: `slot`, `path`, `offset` (bytes on the device), `stripe`.
    pub const MEMBER_CHECKSUM_MISMATCH: &str = "member.checksum_mismatch";
    /// A member answers too slowly; reads go around it.
    pub const MEMBER_SLOW: &str = "member.slow";
    /// The path of a member's device leads elsewhere, or nowhere. The device is used as before; a start that looks for it
    /// at that path will not find it. Fields: `slot`, `path`.
    pub const MEMBER_PATH_REPLACED: &str = "member.path_replaced";
    /// A block could not be returned: more is lost in its stripe than the parity can replace.
    pub const BLOCK_LOST: &str = "block.lost";
    /// A background job began.
    pub const JOB_STARTED: &str = "job.started";
    /// A background job is done.
    pub const JOB_FINISHED: &str = "job.finished";
    /// A background job was paused by the operator.
    pub const JOB_PAUSED: &str = "job.paused";
    /// A paused job goes on.
    pub const JOB_RESUMED: &str = "job.resumed";
    /// A background job ended before it was done.
    pub const JOB_STOPPED: &str = "job.stopped";
    /// A job cannot end: stripes are lost, and it waits for them to be written anew or trimmed.
    pub const JOB_BLOCKED: &str = "job.blocked";
    /// A scrub found a stripe whose parity disagrees with its data.
    pub const SCRUB_MISMATCH: &str = "scrub.mismatch_found";
    /// The engine started and computes parity with this kernel. Fields: `kernel`, `because`.
    pub const KERNEL_CHOSEN: &str = "kernel.chosen";
    /// A device joined a spare pool.
    pub const SPARE_ADDED: &str = "spare.added";
    /// A device left a spare pool.
    pub const SPARE_REMOVED: &str = "spare.removed";
    /// A member failed and no spare fits.
    pub const SPARE_MISSING: &str = "spare.missing";
    /// A client's connection was given up: it broke the protocol, or was lost in the middle of a message. At most one
    /// a second; field `untold` counts those in between.
    pub const CLIENT_DROPPED: &str = "client.dropped";
    /// An export's listener cannot be used any more.
    pub const LISTENER_FAILED: &str = "listener.failed";
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Counts from 1 without gaps.
    pub sequence: u64,
    /// Wall clock, milliseconds since 1970, for display only.
    pub at_unix_ms: u64,
    /// One of [`names`].
    pub name: &'static str,
    /// Array it concerns, empty if none.
    pub array: String,
    /// Fields in the order they were given; names carry units.
    pub fields: Vec<(&'static str, String)>,
}

/// The newest events, shared by all workers and the control side.
#[derive(Debug)]
pub struct EventLog {
    state: Mutex<State>,
    kept_max: usize,
}

#[derive(Debug, Default)]
struct State {
    recorded: u64,
    kept: VecDeque<Event>,
}

impl EventLog {
    /// A log that keeps the newest `kept_max` events.
    pub fn new(kept_max: usize) -> Self {
        EventLog { state: Mutex::default(), kept_max }
    }

    /// Record that `name` happened to `array`.
    ///
    /// # Panics
    /// If another thread panicked while recording.
    pub fn record(&self, name: &'static str, array: &str, fields: Vec<(&'static str, String)>) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = self.state.lock().expect("no panic while recording");
        state.recorded += 1;
        let event = Event {
            sequence: state.recorded,
            at_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            name,
            array: array.to_owned(),
            fields,
        };
        if state.kept.len() == self.kept_max {
            state.kept.pop_front();
        }
        state.kept.push_back(event);
    }

    /// The kept events with a sequence above `after`, oldest first. A gap between `after + 1` and the
    /// first one's sequence is what the caller missed.
    ///
    /// # Panics
    /// If another thread panicked while recording.
    pub fn since(&self, after: u64) -> Vec<Event> {
        let state = self.state.lock().expect("no panic while recording");
        state.kept.iter().filter(|event| event.sequence > after).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{EventLog, names};

    #[test]
    fn a_follower_that_falls_behind_sees_the_gap() {
        let log = EventLog::new(2);
        for slot in 0..5 {
            log.record(names::MEMBER_FAILED, "a", vec![("slot", slot.to_string())]);
        }
        let seen: Vec<u64> = log.since(1).iter().map(|event| event.sequence).collect();
        assert_eq!(seen, [4, 5]);
        assert!(log.since(5).is_empty());
    }
}
