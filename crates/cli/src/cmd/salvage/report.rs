//! What was seen and what came of it, in plain words and as JSON.
//!
//! What must stay true: both say the same; the text fits a screen, however much is lost, and JSON
//! has all that was listed.

use super::copy::{Disagreement, Extents, Outcome, Verified};
use crate::fault::Fault;
use crate::render::table;
use ashlar_api::words::grouped;
use ashlar_salvage::{
    Doubt, FileImage, How, Judged, LogSummary, RunState, Salvage, Standing, Trust, uuid_text,
};
use ashlar_units::ByteSize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Extents that the text lists.
const SHOWN_MAX: usize = 20;

/// One image: its name, its copies, its standing.
struct Member {
    path: String,
    judged: Judged,
    intact_copies: usize,
    missing_bytes: u64,
    /// A signature of another program where only Ashlar writes.
    signature: Option<String>,
}

/// A signature of another program on an image.
pub struct Signature {
    pub image: usize,
    pub words: String,
    pub offset: u64,
}

/// Everything there is to say.
pub struct Report {
    name: String,
    uuid: String,
    level: String,
    strip_bytes: u32,
    volume_bytes: u64,
    written_bytes: u64,
    readable_bytes: u64,
    /// Of these, what members without doubts suffice for.
    proven_bytes: u64,
    generation: u64,
    unclean: bool,
    lost_map_pages: u64,
    /// Memory of a daemon may know of more written stripes.
    has_kept_map: bool,
    log: LogSummary,
    members: Vec<Member>,
    missing_slots: Vec<usize>,
    /// What came of copying or verifying, if that was asked for.
    pub outcome: Option<Outcome>,
}

impl Report {
    /// `signatures`: those of other programs, by image.
    pub fn of(salvage: &Salvage<FileImage>, paths: &[PathBuf], signatures: &[Signature]) -> Report {
        let (superblock, geometry) = (salvage.superblock(), salvage.geometry());
        let seen = paths.iter().zip(salvage.readings()).zip(salvage.judged());
        let signature = |image: usize, judged: &Judged| {
            let of_it = |it: &&Signature| {
                it.image == image && judged.doubts.contains(&Doubt::GivenAway(it.offset))
            };
            signatures.iter().find(of_it).map(|it| it.words.clone())
        };
        let members = seen.enumerate().map(|(image, ((path, reading), judged))| Member {
            path: path.display().to_string(),
            judged: judged.clone(),
            signature: signature(image, judged),
            intact_copies: reading.intact_copies(),
            missing_bytes: reading
                .superblock()
                .map_or(0, |it| it.member_bytes.saturating_sub(reading.size_bytes)),
        });
        let stripe_bytes = geometry.stripe_blocks() * 4096;
        let (written, readable, proven) = stripes(salvage);
        let volume_bytes = geometry.volume_blocks() * 4096;
        Report {
            name: superblock.array_name.clone(),
            uuid: uuid_text(&superblock.array_uuid),
            level: level(geometry, superblock.enclosure_slots),
            strip_bytes: geometry.strip_bytes,
            volume_bytes,
            written_bytes: written * stripe_bytes,
            readable_bytes: readable * stripe_bytes,
            proven_bytes: proven * stripe_bytes,
            generation: superblock.generation,
            unclean: superblock.unclean,
            lost_map_pages: salvage.lost_map_pages(),
            has_kept_map: superblock.has_kept_map,
            log: salvage.log().clone(),
            members: members.collect(),
            missing_slots: salvage.missing_slots(),
            outcome: None,
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "array    {} ({})\nlevel    {}, strip {}, volume {}\nstate    {}, generation {}\n",
            self.name,
            self.uuid,
            self.level,
            ByteSize(u64::from(self.strip_bytes)),
            ByteSize(self.volume_bytes),
            if self.unclean { "not stopped cleanly" } else { "stopped cleanly" },
            self.generation,
        );
        text.push_str(&table::aligned(&self.rows()));
        if self.lost_map_pages > 0 {
            text.push_str(&format!(
                "map      {} pages are intact nowhere; their stripes count as written\n",
                grouped(self.lost_map_pages)
            ));
        }
        if self.has_kept_map {
            text.push_str(
                "kept map if a daemon was killed in this boot, start the array: stripes that\n\
                 \x20        only its kept map knows read as zeros here\n",
            );
        }
        text.push_str(&self.log_text());
        text.push_str(&format!("written  {}", ByteSize(self.written_bytes)));
        let lost = self.written_bytes - self.readable_bytes;
        text.push_str(&match lost {
            0 => "; enough members are here to read all of it\n".to_owned(),
            _ => format!("; {} of it in stripes that lack too many members\n", ByteSize(lost)),
        });
        let unproven = self.readable_bytes - self.proven_bytes;
        if unproven > 0 {
            text.push_str(&format!(
                "         {} of it only with doubtful members\n",
                ByteSize(unproven)
            ));
        }
        if let Some(outcome) = &self.outcome {
            text.push_str(&outcome_text(outcome));
        }
        text
    }

    fn log_text(&self) -> String {
        if self.log == LogSummary::default() {
            return String::new();
        }
        let unreadable = &self.log.unreadable_images;
        let unreadable: Vec<&str> =
            unreadable.iter().map(|image| self.members[*image].path.as_str()).collect();
        let of = match unreadable.is_empty() {
            true => String::new(),
            false => {
                format!(
                    "; the log of {} cannot be read, or has lost records",
                    unreadable.join(", ")
                )
            }
        };
        format!(
            "log      {} updates are applied, {} were never begun{of}\n",
            grouped(u64::try_from(self.log.complete).unwrap_or(u64::MAX)),
            grouped(u64::try_from(self.log.dropped).unwrap_or(u64::MAX)),
        )
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
        for member in &self.members {
            let slot = member.judged.slot;
            let label = slot.map_or("no slot".to_owned(), |slot| format!("slot {slot}"));
            let copies = format!("{} of 4 superblock copies intact", member.intact_copies);
            let cells = vec![label, member.path.clone(), member.words(), copies];
            rows.push((slot.map_or(usize::MAX, usize::from), cells));
        }
        for slot in &self.missing_slots {
            let is_named =
                self.members.iter().any(|it| it.judged.slot.map(usize::from) == Some(*slot));
            if !is_named {
                let cells = vec![format!("slot {slot}"), "-".to_owned(), "missing".to_owned()];
                rows.push((*slot, cells));
            }
        }
        rows.sort_by_key(|(slot, _)| *slot);
        rows.into_iter().map(|(_, cells)| cells).collect()
    }

    pub fn json(&self) -> Value {
        let members = self.members.iter().map(|member| {
            json!({
                "path": member.path,
                "slot": member.judged.slot,
                "standing": member.word(),
                "by_hand": member.judged.by_hand,
                "superblock_copies_intact": member.intact_copies,
                "bytes_cut_off": member.missing_bytes,
                "doubts": member.doubts(),
            })
        });
        json!({
            "array": self.name,
            "array_uuid": self.uuid,
            "level": self.level,
            "strip_bytes": self.strip_bytes,
            "volume_bytes": self.volume_bytes,
            "written_bytes": self.written_bytes,
            "looks_readable_bytes": self.readable_bytes,
            "generation": self.generation,
            "unclean": self.unclean,
            "written_map_pages_lost": self.lost_map_pages,
            "kept_map": self.has_kept_map,
            "log_updates_applied": self.log.complete,
            "log_updates_dropped": self.log.dropped,
            "members": members.collect::<Vec<_>>(),
            "missing_slots": self.missing_slots,
            "outcome": self.outcome.as_ref().map(outcome_json),
        })
    }

    /// Whether all is well; if not, what the exit code is about.
    ///
    /// # Errors
    /// If bytes are lost or not proven, or redundancy disagrees.
    pub fn verdict(&self) -> Result<(), Fault> {
        let Some(outcome) = &self.outcome else {
            let lost = self.written_bytes - self.readable_bytes;
            if lost > 0 {
                let lost = ByteSize(lost);
                return Err(partly(&format!("{lost} lie in stripes that lack too many members")));
            }
            let unproven = self.readable_bytes - self.proven_bytes;
            let what = format!("{} can be read only with doubtful members", ByteSize(unproven));
            return if unproven == 0 { Ok(()) } else { Err(partly(&what)) };
        };
        let wrong = outcome.verified.as_ref().map_or(0, |it| it.stripes_disagreeing);
        let mut parts = Vec::new();
        for (extents, what) in [
            (&outcome.lost, "lost"),
            (&outcome.in_doubt, "in doubt"),
            (&outcome.unproven, "from doubtful members"),
            (&outcome.by_hand, "from members put in by hand"),
        ] {
            if extents.bytes > 0 {
                parts.push(format!("{} {what}", ByteSize(extents.bytes)));
            }
        }
        if wrong > 0 {
            parts.push(format!("redundancy disagrees in {} stripes", grouped(wrong)));
        }
        if parts.is_empty() { Ok(()) } else { Err(partly(&parts.join(", "))) }
    }
}

fn partly(what: &str) -> Fault {
    let hint = "add members that are missing above, or older copies of them with --slot N=MEMBER; \
        with --skip-lost a second run completes the first";
    Fault::partly("salvage.incomplete", format!("{what}; the members are as they were"), hint)
}

impl Member {
    fn word(&self) -> &'static str {
        match self.judged.standing {
            Standing::Current | Standing::Until(_) if !self.judged.doubts.is_empty() => "doubtful",
            Standing::Current => "good",
            Standing::Until(_) => "partial",
            Standing::Stale(_) => "stale",
            Standing::Incoherent => "incoherent",
            Standing::Older => "older_copy",
            Standing::NotListed => "not_listed",
            Standing::OtherSide => "other_half",
            Standing::Unknown(_) => "unknown",
        }
    }

    fn words(&self) -> String {
        let mut words = match self.judged.standing {
            Standing::Current if self.judged.doubts.is_empty() => "good".to_owned(),
            Standing::Current => "doubtful, read last".to_owned(),
            Standing::Until(stripe) => format!("being filled: good for the first {stripe} stripes"),
            Standing::Stale(since) => format!("stale: missed writes since generation {since}"),
            Standing::Incoherent => "stale: older than the last update of all members".to_owned(),
            Standing::Older => {
                "an older copy: it lacks writes that the others know to be flushed".to_owned()
            }
            Standing::NotListed => "not a member any more".to_owned(),
            Standing::OtherSide => "of the other half".to_owned(),
            Standing::Unknown(why) => format!("unknown: {why}"),
        };
        for doubt in self.doubts() {
            words.push_str(&format!("; {doubt}"));
        }
        if self.judged.by_hand {
            words.push_str("; taken for this slot by hand");
        }
        if self.missing_bytes > 0 {
            words.push_str(&format!("; {} are cut off", ByteSize(self.missing_bytes)));
        }
        words
    }

    /// What speaks against its data, but for what is cut off.
    fn doubts(&self) -> Vec<String> {
        let words = |doubt: &Doubt| match doubt {
            Doubt::CutOff => "it was cut short, and what is left may have holes".to_owned(),
            Doubt::CutShort => "it was cut short and made longer again".to_owned(),
            Doubt::GivenAway(at) => {
                let signature = self.signature.clone();
                let signature = signature.unwrap_or_else(|| format!("a signature at byte {at}"));
                format!("it carries {signature}, so it was given to somebody else")
            }
            Doubt::LostMarks => {
                "its beginning was overwritten, and nothing tells what it lacks".to_owned()
            }
            Doubt::LostHead => {
                "its beginning was overwritten, and nothing tells how far".to_owned()
            }
            Doubt::LostEnd => "its end was overwritten, and nothing tells from where".to_owned(),
        };
        self.judged.doubts.iter().map(words).collect()
    }
}

/// Stripes that were written, how many of them have enough members, and how many have enough
/// without doubts. Where there are checksums, only reading tells what is proven.
fn stripes(salvage: &Salvage<FileImage>) -> (u64, u64, u64) {
    let has_sums = salvage.superblock().checksums.is_some();
    let has_doubts = salvage.judged().iter().any(|it| it.trust() > Trust::Proven) && !has_sums;
    let (mut at, mut written, mut readable, mut proven) = (0, 0, 0_u64, 0_u64);
    while let Some(run) = salvage.run_from(at) {
        at = run.stripes.end;
        let count = run.stripes.end - run.stripes.start;
        match run.state {
            RunState::Unwritten => {}
            RunState::OutOfReach => written += count,
            RunState::Written => {
                written += count;
                for stripe in run.stripes.filter(|it| salvage.has_enough(*it, Trust::ByHand)) {
                    readable += 1;
                    let is_proven = !has_doubts || salvage.has_enough(stripe, Trust::Proven);
                    proven += u64::from(is_proven);
                }
            }
        }
    }
    (written, readable, proven)
}

fn level(geometry: &ashlar_salvage::superblock::Geometry, enclosure_slots: Option<u64>) -> String {
    let (k, m, groups) = (geometry.data_strips, geometry.parity_strips, geometry.groups);
    let of_groups = match &geometry.declustered {
        Some(map) => {
            let domains = enclosure_slots
                .map_or(String::new(), |slots| format!(", domains of {slots} slots"));
            format!(" declustered over {}{domains}", map.members())
        }
        None if groups > 1 => format!(" in {groups} groups"),
        None => String::new(),
    };
    match geometry.level {
        0 => format!("raid0 of {k}"),
        1 | 10 => format!("raid{} of {} copies{of_groups}", geometry.level, m + 1),
        7 => format!("raid7.3 {k}+{m}{of_groups}"),
        100 => format!("n+m {k}+{m}{of_groups}"),
        level => format!("raid{level} {k}+{m}{of_groups}"),
    }
}

const HOWS: [(How, &str, &str); 8] = [
    (How::Unwritten, "unwritten", "never written, zeros"),
    (How::Direct, "direct", "read where it lies"),
    (How::FromLog, "from_log", "read from the stripe intent log"),
    (How::Reconstructed, "reconstructed", "reconstructed"),
    (How::Repaired, "repaired", "reconstructed: the data there was wrong"),
    (How::InDoubt, "in_doubt", "reconstructed where writes were in flight: may be wrong"),
    (How::Unproven, "unproven", "from doubtful members: may be wrong"),
    (How::ByHand, "by_hand", "from members put in by hand: may be old"),
];

fn outcome_text(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (how, _, words) in HOWS {
        if let Some(bytes) = outcome.bytes_by_how.get(&how) {
            text.push_str(&format!("read     {} {words}\n", ByteSize(*bytes)));
        }
    }
    text.push_str(&extents_text("lost", &outcome.lost));
    text.push_str(&extents_text("in doubt", &outcome.in_doubt));
    text.push_str(&extents_text("unproven", &outcome.unproven));
    text.push_str(&extents_text("by hand", &outcome.by_hand));
    if let Some(verified) = &outcome.verified {
        text.push_str(&verified_text(verified));
    }
    text
}

fn extents_text(what: &str, extents: &Extents) -> String {
    if extents.bytes == 0 {
        return if what == "lost" { "lost     nothing\n".to_owned() } else { String::new() };
    }
    let mut text = format!("{what:<9}{} bytes\n", grouped(extents.bytes));
    for range in extents.list.iter().take(SHOWN_MAX) {
        let bytes = range.end - range.start;
        text.push_str(&format!("         {} bytes at {}\n", grouped(bytes), grouped(range.start)));
    }
    let listed = u64::try_from(extents.list.len().saturating_sub(SHOWN_MAX)).unwrap_or(0);
    if listed + extents.unlisted > 0 {
        let more = grouped(listed + extents.unlisted);
        text.push_str(&format!("         and {more} more ranges; --json has them\n"));
    }
    text
}

fn verified_text(verified: &Verified) -> String {
    let mut text = format!(
        "verified {} rows of blocks compared, {} with nothing to compare, {} stripes disagree\n",
        grouped(verified.rows_compared),
        grouped(verified.rows_bare),
        grouped(verified.stripes_disagreeing)
    );
    for it in verified.disagreements.iter().take(SHOWN_MAX) {
        text.push_str(&format!("         {}\n", disagreement_text(it)));
    }
    text
}

fn disagreement_text(it: &Disagreement) -> String {
    let parities: Vec<String> = it.parities.iter().map(|parity| parity_name(*parity)).collect();
    let suspect =
        it.suspect_slot.map_or(String::new(), |slot| format!("; slot {slot} is to blame"));
    let last = it.stripes.end - 1;
    let stripes = match it.stripes.start == last {
        true => format!("stripe {last}"),
        false => format!("stripes {} to {last}", it.stripes.start),
    };
    format!("{stripes}: {} wrong{suspect}", parities.join(", "))
}

fn parity_name(parity: usize) -> String {
    ["P", "Q", "R"].get(parity).map_or_else(|| format!("parity {parity}"), ToString::to_string)
}

fn outcome_json(outcome: &Outcome) -> Value {
    let read: serde_json::Map<String, Value> = HOWS
        .iter()
        .map(|(how, name, _)| {
            ((*name).to_owned(), outcome.bytes_by_how.get(how).copied().unwrap_or(0).into())
        })
        .collect();
    json!({
        "read_bytes": read,
        "lost": extents_json(&outcome.lost),
        "in_doubt": extents_json(&outcome.in_doubt),
        "unproven": extents_json(&outcome.unproven),
        "by_hand": extents_json(&outcome.by_hand),
        "verified": outcome.verified.as_ref().map(verified_json),
    })
}

fn extents_json(extents: &Extents) -> Value {
    let list = extents
        .list
        .iter()
        .map(|range| json!({"offset": range.start, "bytes": range.end - range.start}));
    json!({
        "bytes": extents.bytes,
        "extents": list.collect::<Vec<_>>(),
        "extents_not_listed": extents.unlisted,
    })
}

fn verified_json(verified: &Verified) -> Value {
    let list = verified.disagreements.iter().map(|it| {
        json!({
            "first_stripe": it.stripes.start,
            "stripes": it.stripes.end - it.stripes.start,
            "parities": it.parities,
            "suspect_slot": it.suspect_slot,
        })
    });
    json!({
        "rows_compared": verified.rows_compared,
        "rows_bare": verified.rows_bare,
        "stripes_disagreeing": verified.stripes_disagreeing,
        "disagreements": list.collect::<Vec<_>>(),
    })
}
