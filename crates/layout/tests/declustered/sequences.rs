//! Random lives of small arrays: losses, returns, replacements, rebuilds, copy-backs, writes and
//! crashes in any order. At the end everything heals and every strip is right.
//!
//! `ASHLAR_POOL_SEQUENCES` sets how many lives there are, 100,000 without it. A failure prints the
//! seed and the operations.

use std::fmt::Write;

use ashlar_layout::declustered::{Declustered, DeclusteredParts};
use ashlar_units::MemberIdx;

use crate::parts;
use crate::pools::{Pool, Without};
use crate::reference::Generator;

/// Small arrays, all different in kind: narrow and wide, with domains, with few spares and none.
fn arrays() -> Vec<Declustered> {
    let of = |members, code, spares, domain_members, rows| {
        let parts = DeclusteredParts { domain_members, rows, ..parts(members, code, spares) };
        Declustered::new(parts).expect("a layout")
    };
    vec![
        of(6, (1, 2), 2, 1, 6),
        of(5, (2, 1), 1, 1, 6),
        of(7, (2, 2), 2, 1, 8),
        of(8, (2, 3), 3, 1, 5),
        of(10, (2, 1), 2, 2, 3),
        of(12, (1, 2), 1, 3, 4),
        of(6, (2, 2), 1, 1, 8),
        of(5, (2, 2), 0, 1, 8),
    ]
}

/// One operation of a life.
fn step(pool: &mut Pool, chance: &mut Generator, story: &mut Option<String>) {
    let member = MemberIdx::from_at(chance.below(pool.map.parts().members));
    let stripe = chance.below(pool.stripes());
    let cells = usize::try_from(pool.map.cells()).unwrap();
    let roll = chance.below(100);
    if let Some(story) = story {
        writeln!(story, "roll {roll}, member {member}, stripe {stripe}").unwrap();
    }
    match roll {
        0..14 => pool.lose(member, chance),
        14..26 => pool.return_stale(member),
        26..34 => pool.replace(member),
        34..46 => {
            pool.rebuild_group(stripe);
        }
        46..50 => (0..pool.stripes()).for_each(|at| {
            pool.rebuild_group(at);
        }),
        50..62 => pool.copy_back(member, chance.below(cells)),
        62..68 => (0..cells).for_each(|number| pool.copy_back(member, number)),
        68..74 => {
            let _ = pool.complete(member);
        }
        74..78 => {
            pool.table.promote(pool.map);
        }
        78..92 => pool.write(stripe),
        92..96 => pool.settle(),
        _ => pool.crash(chance),
    }
}

/// One life: what went wrong, if something did.
fn life(
    map: &Declustered,
    without: Without,
    seed: u64,
    story: &mut Option<String>,
) -> Option<String> {
    let mut chance = Generator(seed);
    let mut pool = Pool::new(map, without);
    for _ in 0..10 + chance.below(40) {
        step(&mut pool, &mut chance, story);
        if chance.below(4) == 0
            && let Some(wrong) = pool.wrong()
        {
            return Some(wrong);
        }
    }
    let healed = pool.heal();
    pool.crash(&mut chance);
    pool.wrong().or(healed.err())
}

/// Where something goes wrong without a rule, among so many lives.
fn first_wrong(without: Without, lives: u64) -> Option<u64> {
    let arrays = arrays();
    let map = |seed: u64| &arrays[usize::try_from(seed).unwrap() % arrays.len()];
    (0..lives).find(|seed| life(map(*seed), without, *seed, &mut None).is_some())
}

fn lives() -> u64 {
    let wanted = std::env::var("ASHLAR_POOL_SEQUENCES").ok();
    wanted.map_or(100_000, |text| text.parse().expect("ASHLAR_POOL_SEQUENCES is a number"))
}

/// Half of the lives: two tests run at the same time.
fn half(odd: u64) {
    let arrays = arrays();
    for seed in (odd..lives()).step_by(2) {
        let map = &arrays[usize::try_from(seed).unwrap() % arrays.len()];
        if life(map, Without::Nothing, seed, &mut None).is_some() {
            let mut story = Some(String::new());
            let wrong = life(map, Without::Nothing, seed, &mut story);
            panic!("seed {seed}, {:?}: {wrong:?}\n{}", map.parts(), story.unwrap_or_default());
        }
    }
}

#[test]
fn no_life_of_an_even_seed_ends_with_a_wrong_strip() {
    half(0);
}

#[test]
fn no_life_of_an_odd_seed_ends_with_a_wrong_strip() {
    half(1);
}

#[test]
fn each_rule_that_is_taken_away_is_found() {
    for without in [
        Without::WholeWay,
        Without::DataColumnsOnly,
        Without::WholeOnly,
        Without::SparesToo,
        Without::DurableFirst,
        Without::SettledFirst,
    ] {
        let seed = first_wrong(without, 20_000);
        println!("{without:?}: {seed:?}");
        assert!(seed.is_some(), "without {without:?} nothing goes wrong");
    }
}

#[test]
fn lives_reach_every_kind_of_state() {
    let arrays = arrays();
    let (mut filling, mut crowded, mut second) = (0, 0, 0);
    for seed in 0..500 {
        let map = &arrays[usize::try_from(seed).unwrap() % arrays.len()];
        let mut chance = Generator(seed);
        let mut pool = Pool::new(map, Without::Nothing);
        for _ in 0..40 {
            step(&mut pool, &mut chance, &mut None);
            let lost: Vec<_> = pool.table.entries().map(|(_, it)| it.clone()).collect();
            filling += usize::from(lost.iter().any(|it| pool.is_filling(it.member)));
            crowded += usize::from(lost.len() > map.parts().spare_columns);
            second += usize::from(lost.iter().any(|it| !it.was_whole));
        }
    }
    assert!(filling > 500 && crowded > 500 && second > 200, "{filling} {crowded} {second}");
}
