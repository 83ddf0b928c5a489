//! What happened, with stable names: `noun.verb_past`, one event a line, fields with units.
//!
//! What must stay true: names in [`names`] never change their meaning once released; recording an
//! event never blocks the data path for longer than one short lock and never fails. The log keeps
//! the newest events only; a follower that falls behind sees a gap in the sequence. Faults that
//! come in crowds are counted, not repeated, and kept apart from the others: however many there
//! are, who did what stays in the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The event names. A follower may match on these.
pub mod names {
    /// An array was created.
    pub const ARRAY_CREATED: &str = "array.created";
    /// An array was assembled and is usable.
    pub const ARRAY_ASSEMBLED: &str = "array.assembled";
    /// An array started only because the operator accepted something. Fields: `accepted` (words of
    /// forced actions).
    pub const ARRAY_FORCED: &str = "array.forced";
    /// Pages of the written map were lost and the operator had the array started all the same:
    /// their stripes count as written. Fields: `pages`, `first_stripe`.
    pub const ARRAY_MAP_LOST: &str = "array.map_lost";
    /// An array was stopped and its members let go.
    pub const ARRAY_STOPPED: &str = "array.stopped";
    /// An array began to grow. Fields: `members`, `members_before`, `cells` (that move).
    pub const ARRAY_GROWING: &str = "array.growing";
    /// An array has grown: all cells have moved, and its volume is larger. Fields: `members`,
    /// `volume_bytes`.
    pub const ARRAY_GROWN: &str = "array.grown";
    /// A start after an unclean stop rolled the stripe intent log forward. Fields:
    /// `rolled_forward`, `dropped` (updates), `rows_in_doubt`, `rows_left` (of these, for lack of
    /// readable blocks), `put_back` (blocks of these that their checksums proved wrong), `blocks`,
    /// `duration_us`.
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
    /// A device is an older copy of a member: it lacks writes that the others know to be flushed on
    /// it, and stays out. Fields: `slot`, `path`.
    pub const MEMBER_OLDER: &str = "member.older";
    /// A device of the array carries a signature of somebody else, put there since it is a member,
    /// and stays out. Fields: `slot`, `path`, `signature`, `done` (nothing, or it was overwritten).
    pub const MEMBER_REUSED: &str = "member.reused";
    /// An array started without some member, and this device of those that it was to look at could
    /// not be opened, or not be read. Fields: `reason`.
    pub const DEVICE_NOT_OPENED: &str = "device.not_opened";
    /// A member was taken although it may lack writes, because too few others were there: the
    /// operator said so. Fields: `slot`, `path`, `bytes_that_may_be_old` (of the volume).
    pub const MEMBER_TAKEN_OLDER: &str = "member.taken_older";
    /// Copies of a member's superblock were overwritten by somebody, or cannot be read; another
    /// copy is intact. Fields: `slot`, `path`, `copies`, `done` (they were written anew, or the
    /// start is read-only).
    pub const MEMBER_SUPERBLOCK_DAMAGED: &str = "member.superblock_damaged";
    /// A member took a slot (spare, replacement or returned).
    pub const MEMBER_JOINED: &str = "member.joined";
    /// Another device takes the slot. Fields: what is known of the one before it, and its
    /// `read_errors`, `write_errors`, `repaired_blocks`, `checksum_mismatches`,
    /// `located_mismatches`, `slow_reads`.
    pub const MEMBER_REPLACED: &str = "member.replaced";
    /// Blocks of a member could not be read; they were reconstructed and written back.
    pub const MEMBER_BLOCK_REPAIRED: &str = "member.block_repaired";
    /// Blocks of a member could not be read and could not be written back.
    pub const MEMBER_BLOCK_UNREPAIRED: &str = "member.block_unrepaired";
    /// A block of a member is not what was written there. Fields: `slot`, `path`, `offset` (bytes
    /// on the device), `stripe`.
    pub const MEMBER_CHECKSUM_MISMATCH: &str = "member.checksum_mismatch";
    /// All cells of a member that was lost are in their places again: it is in service, and its
    /// distributed spare is free. Fields: `slot`.
    pub const MEMBER_WHOLE: &str = "member.whole";
    /// A member does not answer and cannot be given up: requests that need it wait. Fields: `slot`,
    /// `path`, `silent_ms`, `reason`.
    pub const MEMBER_SILENT: &str = "member.silent";
    /// A member that was waited for answers again. Fields: `slot`, `path`.
    pub const MEMBER_ANSWERED: &str = "member.answered";
    /// A read of a member took longer than the read deadline; the others answered it. Fields:
    /// `slot`.
    pub const MEMBER_READ_LATE: &str = "member.read_late";
    /// A member answers much more slowly than its peers, and has done so for a while. Fields:
    /// `slot`, `path`, `commands` (`reads` or `writes`), `own_us` and `peers_us` (means of the last
    /// period; of the peers the median), `lasts_s`, `reaction`.
    pub const MEMBER_SLOW: &str = "member.slow";
    /// A member that was slow has answered like its peers for as long. Fields: `slot`, `path`.
    pub const MEMBER_SLOW_NO_MORE: &str = "member.slow_no_more";
    /// The path of a member's device leads elsewhere, or nowhere. The device is used as before; a
    /// start that looks for it at that path will not find it. Fields: `slot`, `path`.
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
    /// A client's connection was given up: it broke the protocol, or was lost in the middle of a
    /// message. Field: `reason`.
    pub const CLIENT_DROPPED: &str = "client.dropped";
    /// A caller that may not use the control socket sent a request. Fields: `request` (its path),
    /// and the caller's `uid`, `gid` and `pid` by the kernel.
    pub const CONTROL_REFUSED: &str = "control.refused";
    /// A volume is not offered over a protocol. Fields: `protocol`, `reason`.
    pub const NOT_SERVED: &str = "export.not_served";
    /// An export's listener cannot be used any more.
    pub const LISTENER_FAILED: &str = "listener.failed";
}

/// Events that one cause can make by the thousand. Equal ones are counted, and they never push
/// other events out of the log.
const IN_CROWDS: [&str; 9] = [
    names::MEMBER_BLOCK_REPAIRED,
    names::MEMBER_BLOCK_UNREPAIRED,
    names::MEMBER_CHECKSUM_MISMATCH,
    names::MEMBER_READ_LATE,
    names::BLOCK_LOST,
    names::SCRUB_MISMATCH,
    names::ARRAY_FAILED,
    names::CLIENT_DROPPED,
    names::CONTROL_REFUSED,
];

/// Fields that tell of whom an event is: two of the same name and array with these alike are equal.
const WHOSE: [&str; 3] = ["slot", "path", "uid"];

/// Fields whose least and greatest value a counted event has, and the names of these.
const SPANS: [(&str, &str, &str); 2] =
    [("offset", "offset_min", "offset_max"), ("stripe", "stripe_min", "stripe_max")];

/// Kinds of equal events that are counted at the same time. One more makes the oldest appear at
/// once.
const COUNTED_MAX: usize = 256;

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
    /// Fields in the order they were given; names carry units. If it stands for several, `count`,
    /// `first_unix_ms` and `last_unix_ms` follow, and the least and greatest of their offsets and
    /// stripes.
    pub fields: Vec<(&'static str, String)>,
}

/// How often something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occurrences {
    /// One of [`names`].
    pub name: &'static str,
    /// How often since the log began.
    pub count: u64,
    /// When last, milliseconds since 1970.
    pub last_unix_ms: u64,
}

/// The newest events, shared by all workers and the control side.
#[derive(Debug)]
pub struct EventLog {
    state: Mutex<State>,
    /// Somebody may wait for the next event.
    told: Condvar,
    kept_max: usize,
}

#[derive(Debug, Default)]
struct State {
    recorded: u64,
    /// How long equal events are counted before they appear; zero shows each.
    window: Duration,
    kept: VecDeque<Event>,
    /// Those of [`IN_CROWDS`].
    crowds: VecDeque<Event>,
    counted: Vec<Counted>,
    totals: BTreeMap<&'static str, (u64, u64)>,
}

/// Equal events since the last one that appeared.
#[derive(Debug)]
struct Counted {
    name: &'static str,
    array: String,
    whose: Vec<String>,
    /// When the window began, milliseconds since 1970.
    since_ms: u64,
    /// How many were not told yet.
    count: u64,
    first_ms: u64,
    last_ms: u64,
    fields: Vec<(&'static str, String)>,
    spans: [Option<(u64, u64)>; SPANS.len()],
}

impl EventLog {
    /// A log that keeps the newest `kept_max` events, and as many counted faults. Each event
    /// appears.
    pub fn new(kept_max: usize) -> Self {
        EventLog { state: Mutex::default(), told: Condvar::new(), kept_max }
    }

    /// From now on tell of equal faults once, and then how many came in each `window`.
    ///
    /// # Panics
    /// If another thread panicked while recording. The same goes for all below.
    pub fn count_within(&self, window: Duration) {
        self.state.lock().expect("no panic while recording").window = window;
    }

    /// Record that `name` happened to `array`.
    pub fn record(&self, name: &'static str, array: &str, fields: Vec<(&'static str, String)>) {
        let mut state = self.state.lock().expect("no panic while recording");
        let now_ms = now_ms();
        let total = state.totals.entry(name).or_default();
        *total = (total.0 + 1, now_ms);
        state.tell_counted(self.kept_max, |counted, window| counted.is_over(now_ms, window));
        let is_counted = !state.window.is_zero() && IN_CROWDS.contains(&name);
        if is_counted && state.count(name, array, &fields, now_ms) {
            return;
        }
        if is_counted {
            if state.counted.len() == COUNTED_MAX {
                let oldest = state.counted.iter().map(|it| it.since_ms).min().unwrap_or(now_ms);
                state.tell_counted(self.kept_max, |counted, _| counted.since_ms == oldest);
            }
            state.counted.push(Counted::new(name, array, &fields, now_ms));
        }
        state.tell((name, array.to_owned(), fields), now_ms, self.kept_max);
        drop(state);
        self.told.notify_all();
    }

    /// As [`EventLog::since`], but waits up to `longest` until there is one. For threads that may
    /// block.
    pub fn wait_since(&self, after: u64, longest: Duration) -> Vec<Event> {
        let events = self.since(after);
        if !events.is_empty() {
            return events;
        }
        let state = self.state.lock().expect("no panic while recording");
        let is_old = |state: &mut State| state.recorded <= after;
        let waited = self.told.wait_timeout_while(state, longest, is_old);
        drop(waited.expect("no panic while recording"));
        self.since(after)
    }

    /// The kept events with a sequence above `after`, oldest first. What is missing in the sequence
    /// the caller missed.
    pub fn since(&self, after: u64) -> Vec<Event> {
        let mut state = self.state.lock().expect("no panic while recording");
        let now_ms = now_ms();
        state.tell_counted(self.kept_max, |counted, window| counted.is_over(now_ms, window));
        state.since(after)
    }

    /// All kept events, oldest first, with what is being counted told as far as it has come.
    pub fn all(&self) -> Vec<Event> {
        let mut state = self.state.lock().expect("no panic while recording");
        state.tell_counted(self.kept_max, |counted, _| counted.count > 0);
        state.since(0)
    }

    /// How often each of the faults that come in crowds happened, since the log began.
    pub fn totals(&self) -> Vec<Occurrences> {
        let state = self.state.lock().expect("no panic while recording");
        let all = state.totals.iter().filter(|(name, _)| IN_CROWDS.contains(name));
        all.map(|(name, (count, last))| Occurrences { name, count: *count, last_unix_ms: *last })
            .collect()
    }
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Name, array and fields of an event.
type What = (&'static str, String, Vec<(&'static str, String)>);

impl State {
    fn tell(&mut self, (name, array, fields): What, at_unix_ms: u64, kept_max: usize) {
        self.recorded += 1;
        let event = Event { sequence: self.recorded, at_unix_ms, name, array, fields };
        let ring = if IN_CROWDS.contains(&name) { &mut self.crowds } else { &mut self.kept };
        if ring.len() == kept_max {
            ring.pop_front();
        }
        ring.push_back(event);
    }

    /// Tell what was counted, and count no longer, where `is_time`.
    fn tell_counted(&mut self, kept_max: usize, is_time: impl Fn(&Counted, Duration) -> bool) {
        let window = self.window;
        let mut at = 0;
        while at < self.counted.len() {
            if !is_time(&self.counted[at], window) {
                at += 1;
                continue;
            }
            let counted = self.counted.remove(at);
            if counted.count > 0 {
                let last_ms = counted.last_ms;
                // What comes next is counted, too, rather than told at once.
                self.counted.insert(at, counted.again());
                at += 1;
                self.tell(counted.told(), last_ms, kept_max);
            }
        }
    }

    /// Count the event if an equal one appeared just now.
    fn count(
        &mut self,
        name: &'static str,
        array: &str,
        fields: &[(&'static str, String)],
        now_ms: u64,
    ) -> bool {
        let whose = whose(fields);
        let is_equal =
            |it: &&mut Counted| it.name == name && it.array == array && it.whose == whose;
        let Some(counted) = self.counted.iter_mut().find(is_equal) else { return false };
        counted.add(fields, now_ms);
        true
    }

    fn since(&self, after: u64) -> Vec<Event> {
        let both = self.kept.iter().chain(&self.crowds);
        let mut events: Vec<Event> = both.filter(|it| it.sequence > after).cloned().collect();
        events.sort_unstable_by_key(|event| event.sequence);
        events
    }
}

fn whose(fields: &[(&'static str, String)]) -> Vec<String> {
    let own = fields.iter().filter(|(name, _)| WHOSE.contains(name));
    own.map(|(_, value)| value.clone()).collect()
}

impl Counted {
    /// An event that appeared just now.
    fn new(
        name: &'static str,
        array: &str,
        fields: &[(&'static str, String)],
        now_ms: u64,
    ) -> Counted {
        Counted {
            name,
            array: array.to_owned(),
            whose: whose(fields),
            since_ms: now_ms,
            count: 0,
            first_ms: now_ms,
            last_ms: now_ms,
            fields: Vec::new(),
            spans: [None; SPANS.len()],
        }
    }

    /// The next window of the same.
    fn again(&self) -> Counted {
        let whose = self.whose.clone();
        let next = Counted::new(self.name, &self.array, &[], self.last_ms);
        Counted { whose, ..next }
    }

    /// Whether the window has passed, or the clock was set back.
    fn is_over(&self, now_ms: u64, window: Duration) -> bool {
        let passed = now_ms.checked_sub(self.since_ms).map(Duration::from_millis);
        passed.is_none_or(|passed| passed >= window)
    }

    fn add(&mut self, fields: &[(&'static str, String)], now_ms: u64) {
        if self.count == 0 {
            self.first_ms = now_ms;
        }
        self.count += 1;
        self.last_ms = now_ms;
        self.fields = fields.to_vec();
        for (at, (field, ..)) in SPANS.iter().enumerate() {
            let own = fields.iter().find(|(name, _)| name == field);
            let Some(value) = own.and_then(|(_, value)| value.parse().ok()) else { continue };
            let (least, greatest) = self.spans[at].unwrap_or((value, value));
            self.spans[at] = Some((least.min(value), greatest.max(value)));
        }
    }

    fn told(mut self) -> What {
        if self.count > 1 {
            for ((field, least, greatest), span) in SPANS.iter().zip(self.spans) {
                let Some((from, to)) = span else { continue };
                self.fields.retain(|(name, _)| name != field);
                self.fields.push((least, from.to_string()));
                self.fields.push((greatest, to.to_string()));
            }
            self.fields.push(("count", self.count.to_string()));
            self.fields.push(("first_unix_ms", self.first_ms.to_string()));
            self.fields.push(("last_unix_ms", self.last_ms.to_string()));
        }
        (self.name, self.array, self.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventLog, names};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(1000);

    fn mismatch(log: &EventLog, slot: usize, offset: u64) {
        let fields = vec![("slot", slot.to_string()), ("offset", offset.to_string())];
        log.record(names::MEMBER_CHECKSUM_MISMATCH, "a", fields);
    }

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

    /// One corruption of 13 MiB once pushed everything else out of the log.
    #[test]
    fn faults_in_crowds_push_nothing_else_out() {
        let log = EventLog::new(4);
        log.record(names::ARRAY_CREATED, "a", Vec::new());
        for offset in 0..100 {
            mismatch(&log, 1, offset * 4096);
        }
        log.record(names::MEMBER_FAILED, "a", vec![("slot", "1".to_owned())]);
        let names: Vec<&str> = log.since(0).iter().map(|event| event.name).collect();
        assert_eq!((names.len(), names[0], names[5]), (6, "array.created", "member.failed"));
    }

    #[test]
    fn equal_faults_are_told_once_and_then_counted_with_when_and_where() {
        let log = EventLog::new(4096);
        log.count_within(LONG);
        for offset in 0..3800 {
            mismatch(&log, 1, offset * 4096);
            if offset % 1000 == 0 {
                mismatch(&log, 2, 7);
            }
        }
        assert_eq!(log.since(0).len(), 2, "the first of each");
        let told = log.all();
        assert_eq!(told.len(), 4, "{told:?}");
        let field = |at: usize, name: &str| {
            let field = told[at].fields.iter().find(|(own, _)| *own == name);
            field.map(|(_, value)| value.as_str())
        };
        assert_eq!((field(0, "offset"), field(0, "count")), (Some("0"), None));
        assert_eq!((field(2, "slot"), field(2, "count")), (Some("1"), Some("3799")));
        assert_eq!(
            (field(2, "offset_min"), field(2, "offset_max")),
            (Some("4096"), Some("15560704"))
        );
        assert!(field(2, "first_unix_ms") <= field(2, "last_unix_ms"));
        assert_eq!((field(3, "slot"), field(3, "count")), (Some("2"), Some("3")));
        assert_eq!(log.all().len(), 4, "what was told is not told again");
        let [total] = log.totals()[..] else { panic!("one name") };
        assert_eq!((total.name, total.count), (names::MEMBER_CHECKSUM_MISMATCH, 3804));
    }

    #[test]
    fn who_waits_gets_the_next_event_and_a_counted_one_after_its_time() {
        let log = std::sync::Arc::new(EventLog::new(16));
        let other = std::sync::Arc::clone(&log);
        let recording = std::thread::spawn(move || mismatch(&other, 1, 0));
        assert_eq!(log.wait_since(0, LONG).len(), 1);
        recording.join().expect("recorded");
        assert!(log.wait_since(1, Duration::from_millis(1)).is_empty());
    }

    #[test]
    fn what_was_counted_is_told_when_its_time_is_over() {
        let log = EventLog::new(16);
        log.count_within(Duration::from_millis(1));
        mismatch(&log, 1, 0);
        mismatch(&log, 1, 1);
        while log.since(0).len() < 2 {
            std::thread::yield_now();
        }
        let [_, last] = &log.since(0)[..] else { panic!("two") };
        assert_eq!((last.sequence, last.fields[1].clone()), (2, ("offset", "1".to_owned())));
    }

    #[test]
    fn what_happens_once_is_never_counted_together() {
        let log = EventLog::new(16);
        log.count_within(LONG);
        for _ in 0..3 {
            log.record(names::MEMBER_FAILED, "a", vec![("slot", "1".to_owned())]);
        }
        assert_eq!(log.since(0).len(), 3);
    }
}
