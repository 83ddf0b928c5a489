//! What a start may cost that takes members although they may lack writes.
//!
//! What must stay true: a member that is recorded as out lacks nothing outside the regions that are
//! marked: marks stay while a member is out. Of any other member nobody knows what it lacks.

use crate::array::Array;
use crate::event::names;
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ondisk::assembly::{MemberReading, Verdict};
use ashlar_units::MemberIdx;
use std::ops::Range;

/// A member that is taken although it may lack writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MayBeOld {
    /// Its slot.
    pub slot: MemberIdx,
    /// Its device.
    pub path: String,
    /// Bytes of the volume outside which it lacks nothing; `None`: nobody knows where it does.
    pub within: Option<Vec<Range<u64>>>,
}

/// The members that the start takes although they may lack writes. The maps are loaded.
pub(super) fn may_be_old(
    array: &Array,
    verdict: &Verdict,
    readings: &[MemberReading],
) -> Vec<MayBeOld> {
    let Some(newest) = &verdict.newest else { return Vec::new() };
    let has_marks = newest.policy != ConsistencyPolicy::None;
    let marked = || {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for region in array.intent.durable_regions() {
            let start = region.0 * newest.region_bytes;
            let end = (start + newest.region_bytes).min(newest.geometry.volume_bytes());
            match ranges.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => ranges.push(start..end),
            }
        }
        ranges
    };
    let old = verdict.may_be_older.iter().filter_map(|taken| {
        let reading = &readings[taken.reading];
        let (slot, path) = (reading.superblock()?.slot, reading.path.clone());
        Some(MayBeOld { slot, path, within: (taken.was_out && has_marks).then(marked) })
    });
    old.collect()
}

/// What is remembered of it.
pub(super) fn tell(array: &Array, old: &[MayBeOld]) {
    for it in old {
        let bytes =
            it.within.as_ref().map(|ranges| ranges.iter().map(|it| it.end - it.start).sum());
        let bytes = bytes.map_or("not known".to_owned(), |bytes: u64| bytes.to_string());
        let fields = vec![
            ("slot", it.slot.to_string()),
            ("path", it.path.clone()),
            ("bytes_that_may_be_old", bytes),
        ];
        array.record(names::MEMBER_TAKEN_OLDER, fields);
    }
}
