//! Decides which members are slow, purely, from the times of each member in a period.
//!
//! What must stay true: a member is compared with the median of its peers, at least half of which
//! must have been timed. It is slow when a run of periods all found it slow, and well again when as
//! many found it well. A period without enough commands changes nothing. Never more members are
//! slow at once than parity can replace, and never most of them. An array without parity has one at
//! most.
//!
//! Not here: where the figures come from (`act.rs`), what follows.

use super::{PERIODS, SlowLimits};
use ashlar_units::MemberIdx;
use std::fmt;
use std::time::Duration;

/// Kinds of commands that are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CommandsKind {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

impl CommandsKind {
    pub(super) const ALL: [CommandsKind; 2] = [CommandsKind::Reads, CommandsKind::Writes];

    /// The word for people and events.
    pub fn word(self) -> &'static str {
        match self {
            CommandsKind::Reads => "reads",
            CommandsKind::Writes => "writes",
        }
    }
}

impl fmt::Display for CommandsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a member is slow: means of the last period that found it so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowFigures {
    /// Of which commands.
    pub kind: CommandsKind,
    /// How long they take on the member.
    pub own: Duration,
    /// How long they take on its peers, in their median.
    pub peers: Duration,
    /// For how long it has been so, at least.
    pub lasts: Duration,
}

/// What was timed of one member in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Timed {
    /// It is in sync, and no other device is on its way into the slot.
    pub(super) may_be_judged: bool,
    /// Means of its reads and writes; `None`: too few to tell.
    pub(super) means: [Option<Duration>; 2],
}

/// What became of a member at the end of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It is slow from now on.
    Slow,
    /// It is slow no more.
    Fine,
}

/// How one kind of a member's commands has been.
#[derive(Clone, Copy, Default, Debug)]
struct Course {
    /// Periods in a row that found it slow, and fine.
    slow_periods: u32,
    fine_periods: u32,
    /// It was judged.
    judged: Option<(Duration, Duration)>,
}

/// How all members have been so far.
#[derive(Default, Debug)]
pub(super) struct Judge {
    courses: Vec<[Course; 2]>,
}

/// What a period says of one kind of a member's commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finding {
    Nothing,
    Fine,
    /// Its own mean, and its peers'.
    Slow(Duration, Duration),
}

impl Judge {
    /// Nothing is known of this member.
    pub(super) fn forget(&mut self, member: MemberIdx) {
        if let Some(courses) = self.courses.get_mut(member.at()) {
            *courses = Default::default();
        }
    }

    /// Why the member is slow, if it is.
    pub(super) fn figures(&self, member: MemberIdx, limits: &SlowLimits) -> Option<SlowFigures> {
        let courses = self.courses.get(member.at())?;
        CommandsKind::ALL.into_iter().zip(courses).find_map(|(kind, course)| {
            let (own, peers) = course.judged?;
            let lasts = limits.period() * course.slow_periods;
            Some(SlowFigures { kind, own, peers, lasts })
        })
    }

    /// Whether this kind of the member's commands is judged slow.
    pub(super) fn is_slow(&self, member: MemberIdx, kind: usize) -> bool {
        self.courses.get(member.at()).is_some_and(|courses| courses[kind].judged.is_some())
    }

    fn is_any_slow(&self, at: usize) -> bool {
        self.courses[at].iter().any(|course| course.judged.is_some())
    }

    /// A period is over. `is_too_many` says of a member and of those that are slow with it whether
    /// parity could not stand in for them.
    pub(super) fn end_period(
        &mut self,
        timed: &[Timed],
        limits: &SlowLimits,
        is_too_many: impl Fn(MemberIdx, &dyn Fn(MemberIdx) -> bool) -> bool,
    ) -> Vec<(MemberIdx, Turn)> {
        self.courses.resize(timed.len(), Default::default());
        let findings: Vec<[Finding; 2]> =
            (0..timed.len()).map(|at| [0, 1].map(|kind| find(timed, at, kind, limits))).collect();
        let looks_slow = |at: usize| {
            let is_found = findings[at].iter().any(|it| matches!(it, Finding::Slow(..)));
            self.is_any_slow(at) || is_found
        };
        let slow: Vec<bool> = (0..timed.len()).map(looks_slow).collect();
        let is_lost = |member: MemberIdx| slow[member.at()];
        let (count, of) = (slow.iter().filter(|it| **it).count(), timed.len());
        let may_be_judged = |at: usize| {
            2 * count <= of && (count == 1 || !is_too_many(MemberIdx::from_at(at), &is_lost))
        };
        let mut turns = Vec::new();
        for (at, findings) in findings.iter().enumerate() {
            let was_slow = self.is_any_slow(at);
            let may = timed[at].may_be_judged && (was_slow || may_be_judged(at));
            for (course, finding) in self.courses[at].iter_mut().zip(findings) {
                course.take(*finding, may);
            }
            match (was_slow, self.is_any_slow(at)) {
                (false, true) => turns.push((MemberIdx::from_at(at), Turn::Slow)),
                (true, false) => turns.push((MemberIdx::from_at(at), Turn::Fine)),
                _ => {}
            }
        }
        turns
    }
}

impl Course {
    fn take(&mut self, finding: Finding, may_be_judged: bool) {
        match finding {
            Finding::Nothing => {}
            Finding::Fine => {
                self.fine_periods = self.fine_periods.saturating_add(1);
                if self.judged.is_none() {
                    self.slow_periods = 0;
                } else if self.fine_periods >= PERIODS {
                    *self = Course::default();
                }
            }
            Finding::Slow(own, peers) => {
                self.fine_periods = 0;
                self.slow_periods = self.slow_periods.saturating_add(1);
                let is_due = self.slow_periods >= PERIODS && may_be_judged;
                if is_due || self.judged.is_some() {
                    self.judged = Some((own, peers));
                }
            }
        }
    }
}

fn find(timed: &[Timed], at: usize, kind: usize, limits: &SlowLimits) -> Finding {
    let Some(own) = timed[at].means[kind] else { return Finding::Nothing };
    let peers = || timed.iter().enumerate().filter(|(other, _)| *other != at);
    let mut means: Vec<Duration> = peers().filter_map(|(_, peer)| peer.means[kind]).collect();
    if means.is_empty() || 2 * means.len() < peers().count() {
        return Finding::Nothing;
    }
    means.sort_unstable();
    let median = means[(means.len() - 1) / 2];
    if own > limits.floor && own > median.saturating_mul(limits.times) {
        Finding::Slow(own, median)
    } else {
        Finding::Fine
    }
}

#[cfg(test)]
mod tests;
