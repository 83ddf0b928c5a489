//! How many losses stripes still survive, against a count strip by strip over the states of cells
//! that the test keeps itself.
//!
//! What must stay true: the counts that are shown are those of the moment, and they fall as the
//! rebuild goes on.

use crate::world::jobs::{filled_to_the_brim, ms, started, status, world_for};
use crate::world::{assemble_spec, declustered, engine};
use ashlar_engine::{ArrayExposure, ArrayStatus, Engine};
use ashlar_layout::declustered::{Declustered, SpareTable, Whereabouts};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_units::{MemberIdx, StripIdx, StripeNo};

/// Stripes of 8+2 on 14 members, two spares.
fn pool() -> Shape {
    declustered(Level::Raid6, 14, 10, 2)
}

/// Stripes that lack no strip, one, two and more, if these members are lost with nothing rebuilt,
/// and `rebuilt` members are wholly on spares.
fn counted(map: &Declustered, lost: &[u16]) -> [u64; 4] {
    let mut lacking = [0; 4];
    for stripe in (0..map.stripe_count()).map(StripeNo) {
        let member = |strip| map.place(map.seat(stripe), StripIdx(strip)).member.0;
        let lost = (0..10).filter(|strip| lost.contains(&member(*strip))).count();
        lacking[lost.min(3)] += 1;
    }
    lacking
}
