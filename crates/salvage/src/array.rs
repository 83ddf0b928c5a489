//! The array that a set of images adds up to, and what each image is good for.
//!
//! What must stay true: opening reads superblocks only, and never fails for a member that is
//! damaged or absent as long as one intact superblock says what the array was.

use crate::copies::Reading;
use crate::doubt::Trust;
use crate::image::ReadAt;
use crate::membership::{Choices, Judged, Membership, Refused, Standing};
use crate::overlay::{Known, LogSummary, Overlay};
use crate::pages::{Keeper, PAGE_BITS, Pages};
use crate::place::{BLOCK_BYTES, StripPlace};
use crate::spares::Spares;
use crate::sums::Sums;
use crate::superblock::{Geometry, Superblock};
use std::ops::Range;

/// An image that holds a slot's strips, up to a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) image: usize,
    pub(crate) until_stripe: u64,
    pub(crate) trust: Trust,
    /// Whether a checksum that is right proves a block of it.
    pub(crate) is_proven_by_sums: bool,
}

/// An array, read from images of its members.
#[derive(Debug)]
pub struct Salvage<I> {
    pub(crate) images: Vec<I>,
    readings: Vec<Reading>,
    pub(crate) membership: Membership,
    /// For each slot the images to read it from, the best one first.
    pub(crate) sources: Vec<Vec<Source>>,
    written_map: Pages,
    write_intent: Pages,
    spares: Spares,
    pub(crate) overlay: Overlay,
    /// The known checksums of blocks, on an array with checksums.
    pub(crate) sums: Option<Sums>,
}

/// Stripes in a row that are in the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The stripes.
    pub stripes: Range<u64>,
    /// Their state.
    pub state: RunState,
}

/// Whether stripes have anything to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Nobody ever wrote them: zeros.
    Unwritten,
    /// They were written, or nobody can tell.
    Written,
    /// They lie beyond the end of every image.
    OutOfReach,
}

impl<I: ReadAt> Salvage<I> {
    /// Look at the images and judge them.
    ///
    /// # Errors
    /// If they are no array, or more than one: see [`Refused`]. Too few members is no error.
    pub fn open(images: Vec<I>, choices: &Choices) -> Result<Salvage<I>, Refused> {
        let readings: Vec<Reading> = Reading::of_all(&images);
        let membership = Membership::judge(&readings, choices)?;
        let (newest, array) = (&membership.newest, membership.newest.array_uuid);
        let mut salvage = Salvage {
            sources: sources(&membership),
            written_map: Pages::written_map(
                newest.written_map,
                newest.grown_map,
                newest.geometry.stripes_at_creation(),
                newest.has_whole_map,
            ),
            write_intent: Pages::write_intent(newest.write_intent),
            spares: Spares::of(newest),
            overlay: Overlay::default(),
            sums: newest.checksums.map(|area| Sums::new(&array, area, images.len())),
            images,
            readings,
            membership,
        };
        let seen = salvage.readings.iter().zip(&salvage.membership.images);
        let has_head: Vec<bool> =
            seen.map(|(reading, judged)| reading.has_head() && judged.is_sound()).collect();
        let known = Known {
            is_written: &|stripe| salvage.is_written(stripe),
            strip_place: &|stripe, strip| salvage.strip_place(stripe, strip),
        };
        salvage.overlay = Overlay::of(&salvage.images, &salvage.membership, &has_head, &known);
        Ok(salvage)
    }

    /// What the stripe intent log came to.
    pub fn log(&self) -> &LogSummary {
        &self.overlay.summary
    }

    /// The superblock that counts.
    pub fn superblock(&self) -> &Superblock {
        &self.membership.newest
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.membership.newest.geometry
    }

    /// What each image says about itself, in the order given.
    pub fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// What each image is good for, in the order given.
    pub fn judged(&self) -> &[Judged] {
        &self.membership.images
    }

    /// The images, in the order given.
    pub fn images(&self) -> &[I] {
        &self.images
    }

    /// Slots that no image can be read for.
    pub fn missing_slots(&self) -> Vec<usize> {
        (0..self.sources.len()).filter(|slot| self.sources[*slot].is_empty()).collect()
    }

    /// Whether enough members that are trusted so far are here to read a stripe, as far as
    /// superblocks can tell.
    pub fn has_enough(&self, stripe: u64, trust: Trust) -> bool {
        let geometry = self.geometry();
        let is_here = |strip: &usize| {
            let at = self.strip_place(stripe, *strip);
            let sources = at.map_or(&[][..], |at| &self.sources[at.slot]);
            sources.iter().any(|it| stripe < it.until_stripe && it.trust <= trust)
        };
        (0..geometry.stripe_width()).filter(is_here).count() >= geometry.k()
    }

    /// Where a strip is; `None` if its member is lost and its cell is on no spare.
    pub(crate) fn strip_place(&self, stripe: u64, strip: usize) -> Option<StripPlace> {
        let geometry = self.geometry();
        if self.spares.is_empty() {
            return Some(geometry.strip_place(stripe, strip));
        }
        self.spares.strip_place(geometry, stripe, strip, &self.keepers())
    }

    /// Whether a stripe was ever written. One that nobody can tell about was.
    pub fn is_written(&self, stripe: u64) -> bool {
        self.written_map.is_set(stripe, &self.keepers())
    }

    /// Whether parity of this stripe may disagree with its data because the array was not stopped.
    pub fn is_in_flight(&self, stripe: u64) -> bool {
        let newest = &self.membership.newest;
        let byte = stripe * newest.geometry.stripe_blocks() * BLOCK_BYTES;
        let is_dirty = || self.write_intent.is_set(byte / newest.region_bytes, &self.keepers());
        match newest.consistency_policy {
            2 => newest.unclean,
            3 => newest.resync_dirty && is_dirty(),
            _ => newest.unclean && is_dirty(),
        }
    }

    /// Pages of the written map that no member has intact: their stripes count as written.
    pub fn lost_map_pages(&self) -> u64 {
        let pages = self.geometry().stripes().div_ceil(PAGE_BITS);
        let near = pages.min(self.written_map.within(self.reach_bytes()));
        let keepers = self.keepers();
        let lost = (0..near).filter(|page| self.written_map.is_lost(*page, &keepers)).count();
        u64::try_from(lost).unwrap_or(u64::MAX).saturating_add(pages - near)
    }

    /// All stripes from `stripe` on, in runs. What lies beyond the end of every image is one run.
    pub fn run_from(&self, stripe: u64) -> Option<Run> {
        let (end, far) = (self.geometry().stripes(), self.stripes_in_reach());
        if stripe >= end {
            return None;
        }
        if stripe >= far {
            return Some(Run { stripes: stripe..end, state: RunState::OutOfReach });
        }
        let keepers = self.keepers();
        let is_written = self.written_map.is_set(stripe, &keepers);
        let mut next = stripe + 1;
        while next < far {
            let page = next / PAGE_BITS;
            if !is_written
                && next.is_multiple_of(PAGE_BITS)
                && self.written_map.is_clear(page, &keepers)
            {
                next = next.saturating_add(PAGE_BITS).min(far);
            } else if self.written_map.is_set(next, &keepers) == is_written {
                next += 1;
            } else {
                break;
            }
        }
        let state = if is_written { RunState::Written } else { RunState::Unwritten };
        Some(Run { stripes: stripe..next, state })
    }

    /// Stripes that have a strip, or a bit in a page, within the longest image. Bounds all work by
    /// the bytes that are there, whatever a superblock claims.
    fn stripes_in_reach(&self) -> u64 {
        let (newest, geometry) = (&self.membership.newest, self.geometry());
        let reach = self.reach_bytes();
        let data_bytes = reach.saturating_sub(newest.data.offset);
        let by_map = self.written_map.within(reach).saturating_mul(PAGE_BITS);
        geometry.stripes_within(data_bytes).max(by_map).min(geometry.stripes())
    }

    fn reach_bytes(&self) -> u64 {
        self.images.iter().map(ReadAt::size_bytes).max().unwrap_or(0)
    }

    /// What pages carry that lie on an image: what it says it is, or else any member that had its
    /// slot.
    fn page_tags(&self, reading: &Reading, judged: &Judged) -> Vec<u64> {
        let newest = self.superblock();
        if let Some(own) = reading.superblock() {
            return vec![newest.page_tag(&own.member_uuid)];
        }
        let of_slot = newest.entries.iter().filter(|entry| Some(entry.slot) == judged.slot);
        of_slot.map(|entry| newest.page_tag(&entry.member_uuid)).collect()
    }

    /// The members whose pages count: those that missed nothing, or else whatever is there.
    fn keepers(&self) -> Vec<Keeper<'_, I>> {
        let all = || self.images.iter().zip(&self.readings).zip(self.judged());
        let keepers = |wanted: fn(&Judged) -> bool| -> Vec<Keeper<'_, I>> {
            let chosen = all().filter(|(_, judged)| wanted(judged));
            let keeper = |((image, reading), judged): ((_, &Reading), &Judged)| {
                let tags = self.page_tags(reading, judged);
                let blank_counts = reading.has_head() && judged.is_sound();
                Keeper { image, tags, blank_counts }
            };
            chosen.map(keeper).collect()
        };
        let current: [fn(&Judged) -> bool; 2] = [
            |judged| judged.standing == Standing::Current && judged.is_sound(),
            |judged| judged.standing == Standing::Current,
        ];
        for wanted in current {
            let current = keepers(wanted);
            if !current.is_empty() {
                return current;
            }
        }
        keepers(|judged| matches!(judged.standing, Standing::Until(_)) || judged.by_hand)
    }
}

fn is_lost(membership: &Membership, judged: &Judged) -> bool {
    membership.newest.spares.iter().any(|entry| Some(entry.slot) == judged.slot)
}

fn sources(membership: &Membership) -> Vec<Vec<Source>> {
    let mut sources = vec![Vec::new(); usize::from(membership.newest.geometry.slots())];
    for (image, judged) in membership.images.iter().enumerate() {
        let until_stripe = match (judged.standing, judged.by_hand) {
            (Standing::Current, _) | (_, true) => u64::MAX,
            // Which cells of it count, the states say.
            (Standing::Until(_), _) if is_lost(membership, judged) => u64::MAX,
            (Standing::Until(stripe), _) => stripe,
            _ => continue,
        };
        if let Some(slot) = judged.slot {
            let (trust, is_proven_by_sums) = (judged.trust(), judged.is_proven_by_sums());
            let source = Source { image, until_stripe, trust, is_proven_by_sums };
            sources[usize::from(slot)].push(source);
        }
    }
    for slot in &mut sources {
        // The most trusted comes first; of equals, the one that has more.
        slot.sort_by_key(|source| (source.trust, u64::MAX - source.until_stripe));
    }
    sources
}
