//! Long histories of small arrays: starts with any subset of members, updates that a crash cuts off
//! at any of them, members that fail, are replaced and come back. The test knows which requests
//! were served; the judgement does not.
//!
//! What must stay true: nothing that may have been served is ever taken back. If a device in sync
//! served under another history than the others, none of them starts. The members that a start
//! takes as current hold the same. A returning device holds what the array held once. Refused
//! starts are counted and bounded if one of the devices has everything that any of them served.
//!
//! Devices here tell the truth: what they acknowledged stays. A device that lies about a flush
//! makes a history of its own.

mod life;
mod world;

use life::World;

/// Data and parity strips of the arrays: mirrors of two and three, RAID 5 of three, RAID 6 of four.
const SHAPES: [(u16, u16); 4] = [(1, 1), (1, 2), (2, 1), (2, 2)];

/// So many starts and what lies between them make a life.
const STEPS: usize = 40;

#[test]
fn no_life_takes_back_what_was_served() {
    let lives =
        std::env::var("ASHLAR_LINEAGES").map_or(2000, |text| text.parse().expect("a number"));
    for shape in SHAPES {
        let (mut starts, mut halves, mut needless, mut stuck) = (0, 0, 0, 0);
        for seed in 0..lives {
            let mut world = World::new(shape, seed << 8);
            world.live(STEPS);
            starts += world.counts.starts;
            halves += world.counts.halves;
            needless += world.counts.needless;
            stuck += world.counts.stuck;
        }
        println!("{shape:?}: {starts} starts, {halves} refused as halves, {needless} needlessly");
        println!("{stuck} refused with all members that the newest counts on");
        let is_tame = shape.1 >= shape.0 && halves < starts / 100;
        assert!(!is_tame, "{shape:?}: {halves} of {starts} refused as halves");
        assert!(needless * 25 < starts, "{shape:?}: {needless} of {starts} needlessly refused");
    }
}
