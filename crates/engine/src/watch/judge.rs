//! Decides which silent devices are given up, and for which ones requests wait. Pure.
//!
//! What must stay true: no device is given up that its group needs. None is given up while more
//! than half of all devices are silent: the cause is then the host, the controller or the cable. A
//! device under load is late, not silent. As long as it answers anything, a single command may take
//! [`PATIENCE`] times as long.
//!
//! Not here: where the figures come from (`watch.rs`), what follows (`act.rs`).

use crate::watch::silence::Silence;
use ashlar_units::MemberIdx;

/// How many limits one command may take on a device that answers others meanwhile.
pub(crate) const PATIENCE: u16 = 3;
/// A device counts among the silent ones from this part of its limit on.
const SUSPECT_PART: u32 = 4;

/// One device, as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Somebody asks it for something: its slot is in sync or being filled.
    pub(crate) is_in_service: bool,
    /// It is no help to its group now: it is not in sync, or fails.
    pub(crate) is_missing: bool,
    pub(crate) silence: Silence,
    /// Looks that it may be silent.
    pub(crate) limit: u16,
}

/// What becomes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Nothing: it answers, or may still do so.
    Stays,
    /// It is given up.
    GivenUp,
    /// It should be, and cannot.
    WaitedFor(Why),
}

/// Why a silent device is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Its group could not do without it.
    Needed,
    /// Most of the array's devices are silent.
    MostAreSilent,
}

impl Why {
    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Why::Needed => "its group cannot do without it: requests wait until it answers",
            Why::MostAreSilent => "most members are silent: requests wait until they answer",
        }
    }
}

impl Standing {
    fn is_due(&self) -> bool {
        let Silence { looks, oldest } = self.silence;
        let is_late = looks >= self.limit || oldest >= self.limit.saturating_mul(PATIENCE);
        self.is_in_service && is_late
    }

    /// Half of its time is over. A needed device may be silent for hours.
    pub(crate) fn is_half_way(&self) -> bool {
        2 * u32::from(self.silence.looks) >= u32::from(self.limit)
    }

    fn is_silent(&self) -> bool {
        let is_suspect = SUSPECT_PART * u32::from(self.silence.looks) >= u32::from(self.limit);
        self.is_in_service && is_suspect || self.is_due()
    }
}

/// What becomes of each of `members`, and of the devices that are being filled to replace some of
/// them. `is_beyond` says of a member and of those that are lost whether some stripe of that member
/// lacks more than parity replaces.
pub(crate) fn judge(
    members: &[Standing],
    replacements: &[Standing],
    is_beyond: impl Fn(MemberIdx, &dyn Fn(MemberIdx) -> bool) -> bool,
) -> (Vec<Judged>, Vec<Judged>) {
    let all = || members.iter().chain(replacements).filter(|it| it.is_in_service);
    let are_most_silent = 2 * all().filter(|it| it.is_silent()).count() > all().count();
    let is_lost = |at: MemberIdx| members[at.at()].is_missing || members[at.at()].is_silent();
    let of_member = |(at, member): (usize, &Standing)| match member.is_due() {
        false => Judged::Stays,
        true if is_beyond(MemberIdx::from_at(at), &is_lost) => Judged::WaitedFor(Why::Needed),
        true if are_most_silent => Judged::WaitedFor(Why::MostAreSilent),
        true => Judged::GivenUp,
    };
    let of_replacement = |replacement: &Standing| match replacement.is_due() {
        false => Judged::Stays,
        true if are_most_silent => Judged::WaitedFor(Why::MostAreSilent),
        true => Judged::GivenUp,
    };
    (
        members.iter().enumerate().map(of_member).collect(),
        replacements.iter().map(of_replacement).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::{Judged, Silence, Standing, Why, judge};
    use ashlar_units::MemberIdx;

    const LIMIT: u16 = 20;

    /// `.` answers, `,` has been silent for a little, `s` for too long, `o` has one command that
    /// takes far too long, `O` one that takes long, `-` is out, `r` is being filled and answers,
    /// `R` is being filled and silent.
    fn standing(letter: char) -> Standing {
        let silence = |looks, oldest| Silence { looks, oldest };
        let silence = match letter {
            ',' => silence(5, 5),
            's' | 'R' => silence(20, 20),
            'o' => silence(0, 60),
            'O' => silence(0, 59),
            _ => Silence::default(),
        };
        Standing {
            is_in_service: letter != '-',
            is_missing: matches!(letter, '-' | 'r' | 'R'),
            silence,
            limit: LIMIT,
        }
    }

    /// `.` stays, `x` is given up, `n` is needed, `m` waits with most.
    fn letter(judged: Judged) -> char {
        match judged {
            Judged::Stays => '.',
            Judged::GivenUp => 'x',
            Judged::WaitedFor(Why::Needed) => 'n',
            Judged::WaitedFor(Why::MostAreSilent) => 'm',
        }
    }

    fn judged(members: &str, replacements: &str, strips: usize, parity: usize) -> (String, String) {
        let standings = |letters: &str| letters.chars().map(standing).collect::<Vec<_>>();
        let (members, replacements) = (standings(members), standings(replacements));
        let is_beyond = |member: MemberIdx, is_lost: &dyn Fn(MemberIdx) -> bool| {
            let first = member.at() / strips * strips;
            (first..first + strips).filter(|at| is_lost(MemberIdx::from_at(*at))).count() > parity
        };
        let (own, others) = judge(&members, &replacements, is_beyond);
        (own.into_iter().map(letter).collect(), others.into_iter().map(letter).collect())
    }

    #[test]
    fn the_whole_table_is_as_documented() {
        let table = [
            // RAID 6 of six: one, two, three of them, and with members out.
            ("......", 6, 2, "......"),
            ("s.....", 6, 2, "x....."),
            ("ss....", 6, 2, "xx...."),
            ("sss...", 6, 2, "nnn..."),
            ("-s....", 6, 2, ".x...."),
            ("--s...", 6, 2, "..n..."),
            ("-ss...", 6, 2, ".nn..."),
            ("r.s...", 6, 2, "..x..."),
            ("rR....", 6, 2, ".x...."),
            // Silent for a little is silent enough to be counted, not to be given up.
            (",.....", 6, 2, "......"),
            ("s,....", 6, 2, "x....."),
            ("s,,...", 6, 2, "n....."),
            // One command that takes longer than three limits, on a device that answers others.
            ("o.....", 6, 2, "x....."),
            ("O.....", 6, 2, "......"),
            // A mirror.
            ("s.", 2, 1, "x."),
            ("ss", 2, 1, "nn"),
            ("-s", 2, 1, ".n"),
            // Nobody can do without a member of RAID 0.
            ("s...", 4, 0, "n..."),
            // A device that is being rebuilt is no help, and does no harm.
            ("R...", 4, 1, "x..."),
            // RAID 10: one of each pair, on a controller of their own. Most is more than half.
            ("s.s.s.s.", 2, 1, "x.x.x.x."),
            ("s.s.s.ss", 2, 1, "m.m.m.nn"),
            ("s.s.s.-s", 2, 1, "m.m.m..n"),
            // RAID 6 of four: two of them are half.
            ("ss..", 4, 2, "xx.."),
            ("s,,,", 4, 3, "n..."),
            ("sss.", 4, 3, "mmm."),
        ];
        for (members, strips, parity, wanted) in table {
            assert_eq!(judged(members, "", strips, parity).0, wanted, "{members} {parity}");
        }
    }

    #[test]
    fn a_device_that_is_being_filled_to_replace_another_is_needed_by_nobody() {
        let pairs = |own: &str, others: &str| (own.to_owned(), others.to_owned());
        assert_eq!(judged("....", "s", 4, 0), pairs("....", "x"));
        assert_eq!(judged("s...", "s", 4, 1), pairs("x...", "x"));
        assert_eq!(judged("--s.", "s", 4, 3), pairs("..m.", "m"), "two of three");
    }

    #[test]
    fn a_device_is_half_way_from_half_its_limit_on_however_long_that_lasts() {
        for (looks, is_half_way) in
            [(0, false), (9, false), (10, true), (20, true), (40_000, true), (u16::MAX, true)]
        {
            let silence = Silence { looks, oldest: looks };
            assert_eq!(Standing { silence, ..standing('.') }.is_half_way(), is_half_way, "{looks}");
        }
    }
}
