//! Members that lost a part of what they held: cut short, overwritten, or given to somebody else.
//!
//! What must stay true: the evidence is that of docs/on-disk-format.md, "Assembly", rule 5. The
//! superblock of such a member may be intact and its data gone, so it is read last, and its blocks
//! are proven by a checksum only. A member of which only copies of the superblock are damaged is
//! not among them, as long as one copy at each end is left, or a flush mark behind the first ones.

use crate::copies::Reading;
use crate::membership::{Judged, Standing};
use crate::superblock::Superblock;

/// Where the area after the flush marks begins: before it lies nothing of clients.
const FIRST_AREA: u64 = 256 << 10;

/// A reason not to believe what lies on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is smaller than recorded: what is left may have been made longer again.
    CutOff,
    /// It was cut short and made longer again: its head is there, its end is zeros.
    CutShort,
    /// At this byte, where no data of clients lies, begins a signature of another program.
    GivenAway(u64),
    /// The marks that tell whether it lacks writes were overwritten, alone or with all of its head.
    LostMarks,
    /// Its head was overwritten, nobody tells how far.
    LostHead,
    /// Its end was overwritten, nobody tells from where.
    LostEnd,
}

/// How far a member is trusted. The order is the one in which members are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Nothing speaks against it.
    Proven,
    /// One of its ends was overwritten: a start takes it, and it may lack more.
    Damaged,
    /// A start leaves it out.
    Doubtful,
    /// The operator put it into its slot.
    ByHand,
}

impl Judged {
    /// How far it is trusted.
    pub fn trust(&self) -> Trust {
        if self.by_hand {
            Trust::ByHand
        } else if self.doubts.is_empty() {
            Trust::Proven
        } else if self.is_sound() {
            Trust::Damaged
        } else {
            Trust::Doubtful
        }
    }

    /// Whether a start would take it, as far as its doubts go.
    pub(crate) fn is_sound(&self) -> bool {
        self.doubts.iter().all(|it| matches!(it, Doubt::LostHead | Doubt::LostEnd))
    }

    /// Whether a checksum that is right proves its block: not if the member may lack writes, for
    /// then it lacks the newer checksum, too.
    pub(crate) fn is_proven_by_sums(&self) -> bool {
        let is_stale = |it: &Doubt| matches!(it, Doubt::LostMarks | Doubt::LostHead);
        !self.by_hand && !self.doubts.iter().any(is_stale)
    }
}

/// What size, ends and signatures say. `signatures`: images, and where signatures of other programs
/// begin on them.
pub(crate) fn look(
    newest: &Superblock,
    readings: &[Reading],
    signatures: &[(usize, u64)],
    images: &mut [Judged],
) {
    for (at, (image, reading)) in images.iter_mut().zip(readings).enumerate() {
        let Some(own) = reading.superblock() else { continue };
        let entry = newest.entry(&own.member_uuid);
        let recorded = entry.map_or(0, |entry| entry.member_bytes).max(own.member_bytes);
        let is_guarded = |offset: &u64| {
            *offset < FIRST_AREA || *offset >= own.data.offset.saturating_add(own.data.bytes)
        };
        let of_it = signatures.iter().filter(|(image, _)| *image == at);
        let guarded = of_it.map(|(_, offset)| *offset).find(is_guarded);
        if reading.size_bytes / 4096 * 4096 < recorded {
            image.doubts.push(Doubt::CutOff);
        } else if reading.has_blank_end {
            image.doubts.push(Doubt::CutShort);
        } else if !reading.may_have_own([2, 3]) {
            image.doubts.push(Doubt::LostEnd);
        }
        image.doubts.extend(guarded.map(Doubt::GivenAway));
    }
}

/// Members that lack the highest mark that a current one calls flushed are not themselves: that
/// mark. An image without marks lost them, for all had some: nothing tells what it lacks, and a
/// start leaves it out. Where nobody tells of a mark it is taken, and may lack more than its head.
pub(crate) fn set_older_apart(
    newest: &Superblock,
    readings: &[Reading],
    images: &mut [Judged],
) -> u64 {
    let current = images.iter().zip(readings);
    let current = current.filter(|(it, _)| it.standing == Standing::Current && it.is_sound());
    let flushed = match newest.has_flush_marks {
        true => current.map(|(_, reading)| reading.mark.1).max().unwrap_or(0),
        false => 0,
    };
    for (image, reading) in images.iter_mut().zip(readings) {
        if !matches!(image.standing, Standing::Current | Standing::Until(_)) {
            continue;
        }
        let (has_no_mark, has_head) = (reading.mark == (0, 0), reading.has_head());
        match (reading.mark.0 < flushed, has_no_mark) {
            (true, true) => image.doubts.push(Doubt::LostMarks),
            (true, false) => image.standing = Standing::Older,
            (false, true)
                if newest.has_flush_marks && !has_head && !reading.may_have_own([0, 1]) =>
            {
                image.doubts.push(Doubt::LostHead);
            }
            (false, _) => {}
        }
    }
    flushed
}
