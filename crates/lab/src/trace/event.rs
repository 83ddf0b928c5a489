//! One line of a trace: which block event, on which device, where and how long.
//!
//! Read by marks and not by column, because kernels add fields: the numbers around ` + ` (or ` / `
//! of a split), the number before `(cmd)`, the name in the last brackets. What must stay true:
//! lines of kernels from 4.18 on are understood; what is not is `None`; no input panics.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A bio came in from above: what was submitted.
    Queue,
    /// The kernel cut a bio in two.
    Split,
    /// A bio was joined to a request, or two requests were joined.
    Merge,
    /// A request went to the driver: what is issued.
    Issue,
    Complete,
}

/// The events that are traced, and what they are. Kernels lack some of them.
pub const EVENTS: [(&str, Kind); 7] = [
    ("block_bio_queue", Kind::Queue),
    ("block_split", Kind::Split),
    ("block_bio_backmerge", Kind::Merge),
    ("block_bio_frontmerge", Kind::Merge),
    ("block_rq_merge", Kind::Merge),
    ("block_rq_issue", Kind::Issue),
    ("block_rq_complete", Kind::Complete),
];

pub const SECTOR_BYTES: u64 = 512;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: Kind,
    pub device: (u32, u32),
    /// First sector. Of a split: of the bio that is cut.
    pub sector: u64,
    /// Sectors. Of a split: what stays in front of the cut.
    pub sectors: u64,
    /// Whether it moves data to the device, as `rwbs` says.
    pub is_write: bool,
    /// Whether it moves data at all: a flush or a discard does not.
    pub is_data: bool,
    pub is_failed: bool,
}

impl Event {
    /// Understand one line of a trace, if it is a block event.
    pub fn parse(line: &str) -> Option<Event> {
        let (kind, rest) = EVENTS.iter().find_map(|(name, kind)| {
            let (_, rest) = line.split_once(&format!(" {name}: "))?;
            Some((*kind, rest))
        })?;
        let mut words = rest.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(',')?;
        let rwbs = words.next()?;
        let mark = if kind == Kind::Split { " / " } else { " + " };
        // A name in brackets at the end may hold the mark too; the numbers come first.
        let (before, after) = rest.split_once(mark)?;
        let sector: u64 = before.rsplit(' ').next()?.parse().ok()?;
        let second: u64 = after.split_ascii_whitespace().next()?.parse().ok()?;
        let sectors = if kind == Kind::Split { second.saturating_sub(sector) } else { second };
        let last =
            rest.trim_end().strip_suffix(']').and_then(|it| it.rsplit_once('[')).map(|(_, it)| it);
        Some(Event {
            kind,
            device: (major.parse().ok()?, minor.parse().ok()?),
            sector,
            sectors,
            is_write: rwbs.contains('W'),
            is_data: (rwbs.contains('W') || rwbs.contains('R')) && sectors > 0,
            is_failed: kind == Kind::Complete && last.is_some_and(|it| it != "0"),
        })
    }

    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR_BYTES)
    }

    pub fn start(&self) -> u64 {
        self.sector.saturating_mul(SECTOR_BYTES)
    }
}

/// Events that a line says were lost: `CPU:1 [LOST 17 EVENTS]`.
pub fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("[LOST ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Event, lost};

    /// What is told (w: it writes, d: it moves data, f: it failed) of which line: of 6.18 (bytes,
    /// command and priority beside the sectors), of 4.18 (no bytes, no priority), of 5.4 (bytes).
    const TOLD: &str = "\
Issue 7,0 10240+1032 wd | block_rq_issue: 7,0 WS 528384 () 10240 + 1032 none,0,0 [dd]
Issue 8,16 2048+8 d | block_rq_issue: 8,16 R 0 () 2048 + 8 [kworker/3:1H]
Issue 259,0 0+8 wd | block_rq_issue: 259,0 WFS 4096 () 0 + 8 [fio]
Queue 7,0 0+5120 wd | block_bio_queue: 7,0 WS 0 + 5120 [dd + x]
Split 7,0 0+1032 wd | block_split: 7,0 WS 0 / 1032 [dd]
Complete 8,0 2048+8 wd | block_rq_complete: 8,0 W () 2048 + 8 [0]
Complete 8,0 2048+8 wdf | block_rq_complete: 8,0 W () 2048 + 8 none,0,0 [-5]
Issue 8,0 0+0  | block_rq_issue: 8,0 FF 0 () 0 + 0 [x]
Issue 8,0 0+8  | block_rq_issue: 8,0 DS 4096 () 0 + 8 [x]";

    #[test]
    fn events_of_old_and_new_kernels_are_understood() {
        for (told, line) in TOLD.lines().filter_map(|line| line.split_once(" | ")) {
            let event = Event::parse(&format!("dd-812 [001] d..1.  97.1: {line}")).expect(line);
            let Event { kind, device: (major, minor), sector, sectors, .. } = event;
            let flags = [(event.is_write, "w"), (event.is_data, "d"), (event.is_failed, "f")];
            let flags: String = flags.iter().filter(|it| it.0).map(|it| it.1).collect();
            assert_eq!(format!("{kind:?} {major},{minor} {sector}+{sectors} {flags}"), told);
        }
    }

    #[test]
    fn other_lines_are_nothing_and_lost_events_are_counted() {
        for line in [
            "",
            "# tracer: nop",
            "x: block_rq_issue:",
            " block_rq_issue: 8 W + ",
            " block_bio_queue: 8,0 W 5 + x",
        ] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
        assert_eq!((lost("CPU:1 [LOST 17 EVENTS]"), lost("[LOST x")), (Some(17), None));
    }
}
