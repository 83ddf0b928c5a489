//! What `ashlar top` knows: the newest status, the rates since the one before, the newest events,
//! and what is chosen.
//!
//! What must stay true: a rate is made of two statuses of one daemon and one start of an array.
//! Where there are no such two, there is no rate.

use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::latency::Latency;
use ashlar_api::v1::member::MemberStatus;
use ashlar_api::v1::status::Status;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::collections::VecDeque;

/// Events that are kept.
const EVENTS_MAX: usize = 200;
/// Slots that one press of a key moves over.
const PAGE: usize = 10;

/// What is shown.
#[derive(Default)]
pub struct View {
    pub now: Option<Status>,
    before: Option<Status>,
    /// Between the two, in milliseconds; 0: there are no two.
    between_ms: u64,
    at_ms: Option<u64>,
    /// The newest first.
    pub events: VecDeque<Event>,
    /// Why nobody answers.
    pub gone: Option<String>,
    array: usize,
    /// The first slot that is shown.
    pub first_slot: usize,
}

/// What happened each second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rate {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// Mean time of a read and of a write, in microseconds.
    pub read_us: u64,
    pub write_us: u64,
}

/// What has been counted so far.
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    read: Latency,
    write: Latency,
}

impl View {
    /// The daemon answers, at this time of the wall clock.
    pub fn take(&mut self, status: Status, at_ms: u64) {
        // A clock that was set back gives no rate once.
        self.between_ms = self.at_ms.map_or(0, |before| at_ms.saturating_sub(before));
        self.before = self.now.replace(status);
        self.at_ms = Some(at_ms);
        self.gone = None;
    }

    /// Something happened.
    pub fn hear(&mut self, event: Event) {
        // A daemon that came back tells again what it has in memory.
        let is_known =
            |known: &Event| (known.unix_ms, known.sequence) == (event.unix_ms, event.sequence);
        if self.events.iter().any(is_known) {
            return;
        }
        self.events.push_front(event);
        self.events.truncate(EVENTS_MAX);
    }

    /// Nobody answers.
    pub fn lose(&mut self, why: String) {
        self.gone = Some(why);
        self.before = None;
        self.at_ms = None;
    }

    /// The array that is chosen.
    pub fn chosen(&self) -> Option<(usize, &ArrayStatus)> {
        let arrays = &self.now.as_ref()?.arrays;
        let at = self.array.min(arrays.len().checked_sub(1)?);
        Some((at, &arrays[at]))
    }

    /// A key was pressed; true if that is the end.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Up => self.choose(|at| at.saturating_sub(1)),
            KeyCode::Down => self.choose(|at| at + 1),
            KeyCode::PageUp | KeyCode::Left => {
                self.first_slot = self.first_slot.saturating_sub(PAGE);
            }
            KeyCode::PageDown | KeyCode::Right => self.next_slots(),
            _ => {}
        }
        false
    }

    fn choose(&mut self, next: impl FnOnce(usize) -> usize) {
        let at = self.chosen().map_or(0, |(at, _)| at);
        let last = self.now.as_ref().map_or(0, |status| status.arrays.len().saturating_sub(1));
        self.array = next(at).min(last);
        if self.array != at {
            self.first_slot = 0;
        }
    }

    fn next_slots(&mut self) {
        let slots = self.chosen().map_or(0, |(_, array)| array.members.len());
        if self.first_slot + PAGE < slots {
            self.first_slot += PAGE;
        }
    }

    /// What an array did each second.
    pub fn rate_of(&self, array: &ArrayStatus) -> Option<Rate> {
        let before = self.array_before(array)?;
        rate(&of_array(before), &of_array(array), self.between_ms)
    }

    /// What a member did each second.
    pub fn rate_of_member(&self, array: &ArrayStatus, member: &MemberStatus) -> Option<Rate> {
        let before = self.array_before(array)?.members.iter();
        let before =
            before.into_iter().find(|it| it.slot == member.slot && it.path == member.path)?;
        rate(&of_member(before), &of_member(member), self.between_ms)
    }

    fn array_before(&self, array: &ArrayStatus) -> Option<&ArrayStatus> {
        let before = self.before.as_ref()?;
        let is_same = self.now.as_ref().is_some_and(|now| now.process_id == before.process_id);
        before.arrays.iter().find(|it| is_same && it.uuid == array.uuid)
    }
}

fn of_array(array: &ArrayStatus) -> Counts {
    let counters = &array.counters;
    Counts {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes,
        write_bytes: counters.write_bytes,
        read: array.read_latency,
        write: array.write_latency,
    }
}

fn of_member(member: &MemberStatus) -> Counts {
    Counts {
        reads: member.reads,
        read_bytes: member.read_bytes,
        writes: member.writes,
        write_bytes: member.write_bytes,
        read: member.read_latency,
        write: member.write_latency,
    }
}

/// `None` if a count fell, as after a new start, or no time has passed.
fn rate(before: &Counts, now: &Counts, between_ms: u64) -> Option<Rate> {
    let millis = Some(between_ms).filter(|millis| *millis > 0)?;
    let each_second =
        |before: u64, now: u64| Some(now.checked_sub(before)?.saturating_mul(1000) / millis);
    let mean = |before: Latency, now: Latency| {
        let count = now.count.checked_sub(before.count)?;
        Some(now.us_sum.checked_sub(before.us_sum)?.checked_div(count).unwrap_or(0))
    };
    Some(Rate {
        reads: each_second(before.reads, now.reads)?,
        read_bytes: each_second(before.read_bytes, now.read_bytes)?,
        writes: each_second(before.writes, now.writes)?,
        write_bytes: each_second(before.write_bytes, now.write_bytes)?,
        read_us: mean(before.read, now.read)?,
        write_us: mean(before.write, now.write)?,
    })
}
