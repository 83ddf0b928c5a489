//! Which image holds which slot: the assembly rules of docs/on-disk-format.md, for a reader that
//! never writes.
//!
//! What must stay true: the newest generation says which member belongs where. An image whose bytes
//! may be old is never a source, unless the operator puts it into a slot by hand. Then it is used
//! last, and every block that needed it says so. Last of all others are images that lost a part
//! ([`doubt`](mod@crate::doubt)).

use crate::behind;
use crate::bytes::{Uuid, uuid_text};
use crate::copies::Reading;
use crate::doubt::{self, Doubt};
use crate::superblock::{ENTRIES_MAX, Entry, Role, Superblock};
use std::fmt;

/// What the operator decides beforehand.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// After a split brain: the incarnation to trust.
    pub incarnation: Option<Uuid>,
    /// The same if the incarnation does not tell the sides apart, or if an older state is wanted:
    /// the image whose superblock to trust.
    pub believed: Option<usize>,
    /// Images to take for a slot whatever they say, as (image, slot).
    pub by_hand: Vec<(usize, u16)>,
    /// Where signatures of other programs begin, as (image, byte).
    pub signatures: Vec<(usize, u64)>,
}

/// Why these images are no array that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No image was given.
    NoImages,
    /// No image has an intact superblock; what the first one has instead.
    NoSuperblock(&'static str),
    /// Images of two arrays: an image of each, and their names.
    TwoArrays([(usize, String); 2]),
    /// Two images of the same member.
    Twice(usize, usize),
    /// The array lived on in two halves; an image and the incarnation of each.
    SplitBrain([(usize, Uuid); 2]),
    /// No image was written under the incarnation to trust.
    NoSuchIncarnation,
    /// There is no such slot, or no such image.
    NoSuchSlot(u16),
    /// The image to trust has no superblock; what it has instead.
    CannotBeBelieved(usize, &'static str),
}

/// Images that say the same about the array: if it lived on in halves, those of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The images.
    pub images: Vec<usize>,
    /// Their generation.
    pub generation: u64,
    /// Their incarnation.
    pub incarnation: Uuid,
    /// The slots that were out or being filled, as they say.
    pub slots_out: Vec<u16>,
}

/// The statements of the images about their array, each once, the newest generation first, for an
/// operator who has to choose.
pub fn sides(readings: &[Reading]) -> Vec<Side> {
    let mut sides: Vec<(&Superblock, Side)> = Vec::new();
    for (image, superblock) in readings.iter().enumerate() {
        let Some(superblock) = superblock.superblock() else { continue };
        if let Some((_, side)) = sides.iter_mut().find(|side| side.0.shared == superblock.shared) {
            side.images.push(image);
            continue;
        }
        let is_out = |entry: &&Entry| matches!(entry.role, Role::Out | Role::Rebuilding);
        let side = Side {
            images: vec![image],
            generation: superblock.generation,
            incarnation: superblock.incarnation,
            slots_out: superblock.entries.iter().filter(is_out).map(|entry| entry.slot).collect(),
        };
        sides.push((superblock, side));
    }
    let mut sides: Vec<Side> = sides.into_iter().map(|(_, side)| side).collect();
    sides.sort_by_key(|side| std::cmp::Reverse(side.generation));
    sides
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoImages => f.write_str("no members given"),
            Refused::NoSuperblock(why) => write!(f, "none of these is a readable member: {why}"),
            Refused::TwoArrays([(_, one), (_, other)]) => {
                write!(f, "members of two arrays, {one} and {other}")
            }
            Refused::Twice(..) => f.write_str("two copies of the same member"),
            Refused::SplitBrain([(_, one), (_, other)]) => write!(
                f,
                "the array was used as two halves apart: incarnations {} and {}",
                uuid_text(one),
                uuid_text(other)
            ),
            Refused::NoSuchIncarnation => {
                f.write_str("no member was written under that incarnation")
            }
            Refused::NoSuchSlot(slot) => write!(f, "the array has no slot {slot}"),
            Refused::CannotBeBelieved(_, why) => write!(f, "the member to believe: {why}"),
        }
    }
}

impl std::error::Error for Refused {}

/// What an image is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All its strips are current.
    Current,
    /// Current for stripes before this one: it was being rebuilt, or was receiving a copy.
    Until(u64),
    /// It missed writes since this generation.
    Stale(u64),
    /// It is older than one update; nobody recorded that it missed anything.
    Incoherent,
    /// It is an older copy of the member: it lacks what another member knows to be flushed on it.
    Older,
    /// It belongs to the array no longer, or never did by the newest superblock.
    NotListed,
    /// It diverged from the trusted side.
    OtherSide,
    /// It has no superblock to say what it is.
    Unknown(&'static str),
}

/// One image, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its slot, if that is known.
    pub slot: Option<u16>,
    /// What it is good for.
    pub standing: Standing,
    /// Whether the operator put it into its slot.
    pub by_hand: bool,
    /// Its name in the stripe intent log.
    pub log_tag: Option<u64>,
    /// What speaks against the data on it.
    pub doubts: Vec<Doubt>,
}

/// The newest superblock, and all images judged by it.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The superblock that counts.
    pub newest: Superblock,
    /// One for each image.
    pub images: Vec<Judged>,
}

impl Membership {
    /// Judge the readings of all images.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn judge(readings: &[Reading], choices: &Choices) -> Result<Membership, Refused> {
        let first = readings.first().ok_or(Refused::NoImages)?;
        let mut found: Vec<(usize, &Superblock)> = readings
            .iter()
            .enumerate()
            .filter_map(|(image, reading)| Some((image, reading.superblock()?)))
            .collect();
        one_array(&found)?;
        without_unknown_new_members(&mut found);
        let newest = match choices.believed {
            Some(image) => Some(believed(readings, image)?),
            None => newest(&found, choices.incarnation)?,
        };
        let mut newest = newest.ok_or(Refused::NoSuperblock(first.lacks()))?.clone();
        if choices.incarnation.is_none() && choices.believed.is_none() {
            one_half(&found, &newest)?;
        }
        let mut images: Vec<Judged> = readings.iter().map(|it| judged(it, &newest)).collect();
        doubt::look(&newest, readings, &choices.signatures, &mut images);
        if choices.believed.is_none() {
            behind::take_those_behind(&newest, readings, &mut images);
        }
        let flushed = doubt::set_older_apart(&newest, readings, &mut images);
        if choices.believed.is_none() {
            behind::take_back(&mut newest, readings, &mut images, flushed);
        }
        let slots = newest.geometry.slots();
        for (image, slot) in &choices.by_hand {
            let is_there = *slot < slots && *image < images.len();
            let judged = is_there.then(|| &mut images[*image]).ok_or(Refused::NoSuchSlot(*slot))?;
            (judged.slot, judged.by_hand) = (Some(*slot), true);
        }
        Ok(Membership { newest, images })
    }
}

fn believed(readings: &[Reading], image: usize) -> Result<&Superblock, Refused> {
    let reading = readings.get(image).ok_or(Refused::CannotBeBelieved(image, "not given"))?;
    reading.superblock().ok_or(Refused::CannotBeBelieved(image, reading.lacks()))
}

fn one_array(found: &[(usize, &Superblock)]) -> Result<(), Refused> {
    for (at, (image, superblock)) in found.iter().enumerate() {
        for (earlier, other) in &found[..at] {
            if superblock.array_uuid != other.array_uuid {
                let name =
                    |it: &Superblock| format!("{} ({})", it.array_name, uuid_text(&it.array_uuid));
                return Err(Refused::TwoArrays([
                    (*earlier, name(other)),
                    (*image, name(superblock)),
                ]));
            }
            if superblock.member_uuid == other.member_uuid {
                return Err(Refused::Twice(*earlier, *image));
            }
        }
    }
    Ok(())
}

/// New members of a growth say nothing as long as no member that was there before knows of them,
/// unless they went on since: a growth begins with the generation after theirs.
fn without_unknown_new_members(found: &mut Vec<(usize, &Superblock)>) {
    let is_new_member = |it: &Superblock| {
        let slot = it.entry(&it.member_uuid).map(|own| own.slot);
        let map = it.geometry.declustered.as_ref();
        map.zip(slot).is_some_and(|(map, slot)| map.is_new_member(slot))
    };
    let others = found.iter().map(|(_, it)| *it).filter(|it| !is_new_member(it));
    let others: Vec<&Superblock> = others.collect();
    let Some(begins_by) = others.iter().map(|own| own.generation.saturating_add(1)).max() else {
        return;
    };
    let is_known = |it: &Superblock| {
        it.generation > begins_by || others.iter().any(|own| own.entry(&it.member_uuid).is_some())
    };
    found.retain(|(_, it)| !is_new_member(it) || is_known(it));
}

fn newest<'a>(
    found: &[(usize, &'a Superblock)],
    believed: Option<Uuid>,
) -> Result<Option<&'a Superblock>, Refused> {
    let all = found.iter().map(|(_, superblock)| *superblock);
    let mut newest: Option<&Superblock> = None;
    for superblock in all.filter(|it| believed.is_none_or(|wanted| it.incarnation == wanted)) {
        if newest.is_none_or(|it| it.generation < superblock.generation) {
            newest = Some(superblock);
        }
    }
    if newest.is_none() && believed.is_some() && !found.is_empty() {
        return Err(Refused::NoSuchIncarnation);
    }
    Ok(newest)
}

fn one_half(found: &[(usize, &Superblock)], newest: &Superblock) -> Result<(), Refused> {
    let Some((image, other)) = found.iter().find(|(_, it)| lived_apart(it, newest)) else {
        return Ok(());
    };
    let trusted = found.iter().find(|(_, it)| it.member_uuid == newest.member_uuid);
    let trusted = trusted.map_or(0, |(image, _)| *image);
    Err(Refused::SplitBrain([(trusted, newest.incarnation), (*image, other.incarnation)]))
}

/// A member that is put out may lack at most this many of the generations before.
const MISSED_WHEN_PUT_OUT: u64 = 2;

/// Whether a member was written to by a start of the array that the newest superblock knows nothing
/// of.
fn lived_apart(it: &Superblock, newest: &Superblock) -> bool {
    let known = [newest.incarnation, newest.previous_incarnation];
    if it.generation == newest.generation {
        return it.shared != newest.shared;
    }
    let own = it.entry(&it.member_uuid);
    let Some(entry) = newest.entry(&it.member_uuid) else {
        // In sync, and the newest never heard of it: it joined elsewhere. A full table forgets
        // members.
        let is_forgotten = newest.entries.len() >= ENTRIES_MAX;
        return own.is_some_and(|own| own.role == Role::Active) && !is_forgotten;
    };
    if entry.out_since != 0 {
        // It was put out, and perhaps took its place again to be rebuilt.
        let agrees =
            own.is_some_and(|own| own.role != Role::Active && own.out_since == entry.out_since);
        let recorded = entry.out_incarnations.contains(&it.incarnation);
        return !agrees
            && !is_older(it, newest, entry)
            && (it.generation >= entry.out_since || !recorded);
    }
    // A newest generation of 0 does not decode.
    it.generation == newest.generation - 1 && !known.contains(&it.incarnation)
}

/// A copy of a member from before it was put out, and no other side: the member itself got on
/// further, and the copy counts on another one that the newest superblock knows.
fn is_older(it: &Superblock, newest: &Superblock, entry: &Entry) -> bool {
    let is_behind = it.generation + MISSED_WHEN_PUT_OUT < entry.out_since;
    let counts_on = |other: &&Entry| other.member_uuid != it.member_uuid && other.out_since == 0;
    let mut others = it.entries.iter().filter(counts_on);
    is_behind && others.any(|other| newest.entry(&other.member_uuid).is_some())
}

fn judged(reading: &Reading, newest: &Superblock) -> Judged {
    let nobody = |standing| Judged {
        slot: None,
        standing,
        by_hand: false,
        log_tag: None,
        doubts: Vec::new(),
    };
    let Some(superblock) = reading.superblock() else {
        return nobody(Standing::Unknown(reading.lacks()));
    };
    let entry = newest.entry(&superblock.member_uuid);
    let is_slot = |entry: &&Entry| entry.slot < newest.geometry.slots();
    let Some(entry) = entry.filter(is_slot) else { return nobody(Standing::NotListed) };
    Judged {
        slot: Some(entry.slot),
        standing: standing(superblock, entry, newest),
        by_hand: false,
        log_tag: Some(entry.log_tag),
        doubts: Vec::new(),
    }
}

fn standing(superblock: &Superblock, entry: &Entry, newest: &Superblock) -> Standing {
    if lived_apart(superblock, newest) {
        return Standing::OtherSide;
    }
    match entry.role {
        Role::Out => return Standing::Stale(entry.out_since),
        Role::Removed => return Standing::NotListed,
        Role::Active | Role::Rebuilding | Role::Replacement => {}
    }
    if superblock.generation > newest.generation {
        return Standing::OtherSide;
    }
    if superblock.generation < newest.generation - 1 {
        return Standing::Incoherent;
    }
    match entry.role {
        Role::Active => Standing::Current,
        _ => Standing::Until(newest.checkpoint_stripe(&entry.member_uuid)),
    }
}
