//! What reads go around.
//!
//! What must stay true: a read goes around a member only if every member of the stripe is in sync
//! and sound, and its parity or copies are trusted. Even then it reads the member if a block cannot
//! be had otherwise. Some reads always go to the member: otherwise nobody would know when it is
//! well again.

use crate::array::Array;
use crate::local_array::LocalArray;
use ashlar_layout::Stripe;
use ashlar_units::StripSet;

/// One in this many reads that would go around a member goes to it.
const PROBE_EVERY: u64 = 64;

/// The strips of the stripe that a read of `strips` goes around. None if it touches none of them,
/// or if it tests such a member.
#[cold]
pub(super) fn around(local: &LocalArray, stripe: Stripe, strips: StripSet) -> StripSet {
    let avoided = avoided_of(&local.array, stripe);
    if !strips.iter().any(|strip| avoided.contains(strip)) || is_probe(local) {
        return StripSet::EMPTY;
    }
    avoided
}

/// The copies of a stripe that reads should use.
#[cold]
pub(super) fn preferred(local: &LocalArray, stripe: Stripe, copies: StripSet) -> StripSet {
    let avoided = avoided_of(&local.array, stripe);
    let (slow, others) = (copies.and(avoided), copies.minus(avoided));
    match () {
        () if slow.is_empty() || others.is_empty() => copies,
        () if is_probe(local) => slow,
        () => others,
    }
}

fn is_probe(local: &LocalArray) -> bool {
    local.reads_around.set(local.reads_around.get().wrapping_add(1));
    local.reads_around.get().is_multiple_of(PROBE_EVERY)
}

/// The stripe's strips on members that are avoided, if it can do without them now.
fn avoided_of(array: &Array, stripe: Stripe) -> StripSet {
    if !array.written.is_written(stripe) || array.room.has_torn() || !is_whole(array, stripe) {
        return StripSet::EMPTY;
    }
    let strips = array.view(stripe).readable.iter();
    strips
        .filter(|strip| array.avoided.contains(array.member_of(stripe, *strip)))
        .fold(StripSet::EMPTY, StripSet::with)
}

fn is_whole(array: &Array, stripe: Stripe) -> bool {
    let view = array.view(stripe);
    let is_sound = |strip| !array.slot(array.member_of(stripe, strip)).fails();
    view.is_parity_valid && array.lacks_nothing(stripe) && view.readable.iter().all(is_sound)
}
