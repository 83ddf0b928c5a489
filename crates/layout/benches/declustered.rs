//! What a placement in a declustered layout costs, and how evenly rebuilds use its members.
//!
//! `cargo bench -p ashlar-layout` prints nanoseconds of CPU time for one placement, three rounds.
//! With `-- --table`, the table of docs/results/declustered.md: the worst of many sets of losses
//! over all slices, which takes minutes. The numbers of that page are from here.

use ashlar_layout::declustered::{
    DECLUSTERED_SEED, Declustered, DeclusteredParts, GROWTHS_MAX, Held, MemberRow, RebuildLoad,
};
use ashlar_layout::{Geometry, Level, Shape};
use ashlar_units::{MemberIdx, StripIdx, StripeNo, to_u64, to_usize};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

const TB: u64 = 1_000_000_000_000;
const STRIP_BYTES: u64 = 65_536;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }
}

fn layout(members: usize, code: (usize, usize), spare_columns: usize, bytes: u64) -> Declustered {
    Declustered::new(DeclusteredParts {
        data_strips: code.0,
        parity_strips: code.1,
        members,
        domain_members: 1,
        spare_columns,
        cell_rows: (16 << 20) / STRIP_BYTES,
        strip_bytes: STRIP_BYTES,
        rows: bytes / STRIP_BYTES,
        seed: DECLUSTERED_SEED,
        growths: [None; GROWTHS_MAX],
    })
    .expect("a layout")
}

fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn report(what: &str, mut one: impl FnMut(u64)) {
    const COUNT: u32 = 4_000_000;
    let mut random = Random(1);
    let inputs: Vec<u64> = (0..65_536).map(|_| random.below(u64::MAX)).collect();
    let mut costs = Vec::new();
    for _ in 0..4 {
        let before = cpu_ns();
        for at in 0..COUNT {
            one(inputs[usize::try_from(at % 65_536).expect("small")]);
        }
        costs.push((cpu_ns() - before) * 10 / i64::from(COUNT));
    }
    // The first round warms up.
    let text: Vec<String> =
        costs[1..].iter().map(|it| format!("{}.{}", it / 10, it % 10)).collect();
    println!("{what:<58} {} ns", text.join(", "));
}

fn placements(name: &str, map: &Declustered) {
    let (stripes, rows) = (map.stripe_count(), map.parts().rows);
    let width = to_u64(map.parts().width());
    let members = to_u64(map.parts().members);
    report(&format!("{name}: one strip of a random stripe"), |random| {
        let seat = map.seat(StripeNo(random % stripes));
        let strip = StripIdx::from_at(to_usize(random >> 32) % to_usize(width));
        black_box(map.place(seat, strip));
    });
    report(&format!("{name}: each strip of a random stripe"), {
        let (mut seat, mut strip) = (map.seat(StripeNo(0)), 0);
        move |random| {
            if strip == to_usize(width) {
                (seat, strip) = (map.seat(StripeNo(random % stripes)), 0);
            }
            black_box(map.place(seat, StripIdx::from_at(strip)));
            strip += 1;
        }
    });
    report(&format!("{name}: what a random row of a member holds"), |random| {
        let member = MemberIdx::from_at(to_usize(random % members));
        let held: Held = map.held(MemberRow { member, row: (random >> 9) % rows });
        black_box(held);
    });
}

fn flat() {
    let shape = Shape {
        level: Level::Raid60,
        members: 40,
        parity: None,
        group_members: Some(10),
        strip_bytes: STRIP_BYTES,
        declustered: None,
    };
    let geometry = Geometry::new(&shape, 20 * TB / STRIP_BYTES).expect("RAID 60");
    report("flat 4 x (8+2): one strip of a random stripe", |random| {
        let stripe = geometry.stripe(StripeNo(random % geometry.stripe_count()));
        let strip = StripIdx::from_at(to_usize(random >> 32) % 10);
        black_box(geometry.place(stripe, strip));
    });
}

/// The worst ratios over sets of losses: 1 to m members, and the critical stripes of m.
fn worst(map: &Declustered, sets: u64) -> Vec<f64> {
    let (members, parity) = (to_u64(map.parts().members), map.parts().parity_strips);
    let mut random = Random(2);
    let mut worst = vec![0.0_f64; parity + 1];
    for set in 0..sets {
        let mut lost = Vec::new();
        // All single losses if there are as many sets.
        let mut next = if sets >= members { set % members } else { random.below(members) };
        for count in 1..=parity {
            lost.push(MemberIdx::from_at(to_usize(next)));
            while lost.contains(&MemberIdx::from_at(to_usize(next))) {
                next = random.below(members);
            }
            let load = RebuildLoad::count(map, &lost, 0..map.slices());
            worst[count - 1] = worst[count - 1].max(load.max_over_mean());
            if count == parity {
                worst[parity] = worst[parity].max(load.critical_max_over_mean());
            }
        }
    }
    worst
}

fn table() {
    for (members, code, spares, bytes) in [
        (14, (8, 2), 2, 20 * TB),
        (24, (8, 2), 2, 20 * TB),
        (42, (8, 2), 2, 20 * TB),
        (60, (8, 2), 2, 20 * TB),
        (90, (8, 2), 2, 20 * TB),
        (106, (8, 2), 4, 20 * TB),
        (114, (8, 2), 4, 20 * TB),
        (128, (8, 2), 4, 20 * TB),
        (240, (8, 2), 4, 8 * TB),
        (41, (8, 2), 1, 4 * TB),
        (42, (8, 3), 2, 44 * TB),
    ] {
        let map = layout(members, code, spares, bytes);
        // All single losses to 60 members.
        let sets = if members <= 60 { to_u64(members).max(40) } else { 40 };
        let ratios: Vec<String> = worst(&map, sets).iter().map(|it| format!("{it:.4}")).collect();
        let (k, m) = code;
        let slices = map.slices();
        println!(
            "{members} members, {k}+{m}, {spares} spares, {slices} slices, {sets} sets: {}",
            ratios.join(" / ")
        );
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--table") {
        return table();
    }
    placements("42 members", &layout(42, (8, 2), 2, 20 * TB));
    placements("240 members", &layout(240, (8, 2), 4, 8 * TB));
    let parts = layout(42, (8, 2), 2, 20 * TB).parts();
    let parts = DeclusteredParts { domain_members: 3, ..parts };
    placements("14 domains of 3", &Declustered::new(parts).expect("a layout"));
    flat();
}
