//! Members that an array cannot do without: in service however many updates they lack, or listed as
//! out by an update that not all members have.
//!
//! What must stay true: the rules are those of docs/on-disk-format.md, "Members that are needed".
//! They hold only in failure sets that have too few members otherwise.

use crate::copies::Reading;
use crate::membership::{Judged, Standing};
use crate::superblock::{Entry, Role, Superblock};
use std::ops::Range;

/// Members in service that lack updates of the newest's run are current where they are needed.
pub(crate) fn take_those_behind(newest: &Superblock, readings: &[Reading], images: &mut [Judged]) {
    for set in sets_without_enough(newest, images) {
        for (image, reading) in images.iter_mut().zip(readings) {
            let Some(own) = reading.superblock() else { continue };
            let is_active = newest.entry(&own.member_uuid).is_some_and(is_active);
            if image.standing == Standing::Incoherent
                && is_in(image, &set)
                && is_active
                && is_of_this_run(own, newest)
                && says_active(own)
            {
                image.standing = Standing::Current;
            }
        }
    }
}

/// Members that an update put out that a member in service lacks are current where they are needed.
pub(crate) fn take_back(
    newest: &mut Superblock,
    readings: &[Reading],
    images: &mut [Judged],
    flushed: u64,
) {
    let current = images.iter().zip(readings).filter(|(it, _)| is_current(it));
    let witnesses: Vec<&Superblock> = current
        .filter_map(|(_, reading)| reading.superblock())
        .filter(|own| is_of_this_run(own, newest))
        .collect();
    let mut back = Vec::new();
    let sets = match parity_may_lie(newest) {
        true => failure_sets(newest),
        false => sets_without_enough(newest, images),
    };
    for set in sets {
        for (at, (image, reading)) in images.iter().zip(readings).enumerate() {
            let Some(own) = reading.superblock().filter(|_| is_in(image, &set)) else { continue };
            let Some(entry) = newest.entry(&own.member_uuid) else { continue };
            let is_proven = witnesses.iter().any(|witness| lacks_loss(witness, entry));
            if matches!(image.standing, Standing::Stale(_))
                && is_proven
                && has_only_failed(own, entry, newest)
                && reading.mark.0 >= flushed
            {
                back.push((at, entry.slot, own.entry(&own.member_uuid).map(|own| own.log_tag)));
            }
        }
    }
    for (at, slot, log_tag) in back {
        (images[at].standing, images[at].log_tag) = (Standing::Current, log_tag);
        newest.spares.retain(|lost| lost.slot != slot);
    }
}

fn has_only_failed(own: &Superblock, entry: &Entry, newest: &Superblock) -> bool {
    let mut of_slot = newest.entries.iter().filter(|other| other.slot == entry.slot);
    entry.out_incarnations[0] == newest.incarnation
        && own.generation < entry.out_since
        && is_of_this_run(own, newest)
        && says_active(own)
        && !of_slot.any(|other| matches!(other.role, Role::Rebuilding | Role::Replacement))
}

fn lacks_loss(witness: &Superblock, entry: &Entry) -> bool {
    let listed = witness.entry(&entry.member_uuid);
    witness.generation < entry.out_since && listed.is_some_and(is_active)
}

fn is_of_this_run(own: &Superblock, newest: &Superblock) -> bool {
    own.incarnation == newest.incarnation
}

fn says_active(own: &Superblock) -> bool {
    own.entry(&own.member_uuid).is_some_and(is_active)
}

fn is_active(entry: &Entry) -> bool {
    entry.role == Role::Active
}

/// Whether a start takes it as it is.
fn is_current(image: &Judged) -> bool {
    image.standing == Standing::Current && image.is_sound()
}

fn is_in(image: &Judged, set: &Range<u16>) -> bool {
    image.slot.is_some_and(|slot| set.contains(&slot))
}

/// Whether an update was cut off that no log tells of, on an array with parity.
fn parity_may_lie(newest: &Superblock) -> bool {
    let is_cut_off = newest.unclean && newest.consistency_policy != 3;
    (newest.resync_dirty || is_cut_off) && newest.geometry.k() > 1
}

fn failure_sets(newest: &Superblock) -> Vec<Range<u16>> {
    let geometry = &newest.geometry;
    let slots = geometry.slots();
    let width = match geometry.declustered {
        Some(_) => slots,
        None => geometry.data_strips + geometry.parity_strips,
    };
    let sets = (0..slots).step_by(usize::from(width.max(1)));
    sets.map(|first| first..first.saturating_add(width).min(slots)).collect()
}

/// Failure sets in which a stripe may lack more strips than it has parity.
fn sets_without_enough(newest: &Superblock, images: &[Judged]) -> Vec<Range<u16>> {
    let (geometry, map) = (&newest.geometry, newest.geometry.declustered.as_ref());
    let domain = map.map_or(1, |map| u16::try_from(map.domain_members()).unwrap_or(1)).max(1);
    let is_here = |slot: u16| images.iter().any(|it| it.slot == Some(slot) && is_current(it));
    let lacks = |set: &Range<u16>| {
        let firsts = set.clone().step_by(usize::from(domain));
        let is_lost = |first: &u16| {
            (*first..first.saturating_add(domain).min(set.end)).any(|slot| !is_here(slot))
        };
        firsts.filter(is_lost).count() > geometry.m()
    };
    failure_sets(newest).into_iter().filter(lacks).collect()
}
