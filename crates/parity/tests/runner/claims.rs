//! Claims about generate, update, check and locate.

use ashlar_parity::{Change, Locality, ROW_BYTES};

use super::strips::{Strip, defined_parity, present, present_mut, slices, stripe, strips};
use super::{Claim, Seeded, Subject};
use crate::claim;

/// Empty, below, at and above one block of every backend, and off the 64-byte grain.
pub const LENGTHS: [usize; 14] = [0, 1, 63, 64, 65, 128, 191, 192, 256, 320, 511, 576, 1000, 4161];

const LOCALITIES: [Locality; 2] = [Locality::Cached, Locality::Streaming];

/// Shapes worth trying: all up to 16 strips, then a sample up to 64.
fn shapes(random: &mut Seeded) -> Vec<(usize, usize)> {
    let small = (1..=16).flat_map(|k| (0..=16 - k).map(move |m| (k, m)));
    small.chain((0..60).map(|_| random.shape()).collect::<Vec<_>>()).collect()
}

pub fn generate_is_the_definition(subject: &impl Subject) -> Claim {
    let seed = 0xA5_0001;
    let mut random = Seeded(seed);
    for (k, m) in shapes(&mut random) {
        for locality in LOCALITIES {
            let bytes = random.pick(&LENGTHS);
            let aligned = random.coin();
            let data = strips(k, bytes, aligned, &mut random);
            let mut parity = strips(m, bytes, aligned, &mut random);
            let before = parity.clone();
            // All members in, or some out.
            let all_in = random.coin();
            let members: Vec<bool> = (0..m).map(|_| all_in || random.coin()).collect();
            let code = subject.code(k, m);
            subject
                .generate(&code, &slices(&data), &mut present_mut(&mut parity, &members), locality)
                .map_err(|error| error.to_string())?;
            let what = format!("seed {seed:#x}: {k}+{m}, {bytes} bytes, {locality:?}");
            expect_parity(&data, &parity, &before, &members, &what)?;
        }
    }
    Ok(())
}

/// Parity of the members that are in is as defined, of the others as before, canaries alive.
fn expect_parity(
    data: &[Strip],
    parity: &[Strip],
    before: &[Strip],
    members: &[bool],
    what: &str,
) -> Claim {
    for (row, strip) in parity.iter().enumerate() {
        let defined = defined_parity(&slices(data), row);
        let expected = if members[row] { &defined[..] } else { before[row].get() };
        claim!(strip.get() == expected, "{what}: parity {row} is wrong");
        claim!(strip.canaries_are_alive(), "{what}: parity {row} was overrun");
    }
    Ok(())
}

/// From an all-zero stripe, any sequence of updates ends in the parity of the final data.
pub fn updates_composed_are_generate(subject: &impl Subject) -> Claim {
    let seed = 0xA5_0003;
    let mut random = Seeded(seed);
    for (k, m) in shapes(&mut random) {
        let bytes = random.pick(&LENGTHS);
        let aligned = random.coin();
        let mut data = strips(k, bytes, aligned, &mut random);
        let mut parity = strips(m, bytes, aligned, &mut random);
        let members: Vec<bool> = (0..m).map(|_| random.below(4) > 0).collect();
        for strip in data.iter_mut().chain(&mut parity) {
            strip.get_mut().fill(0);
        }
        let zeroed = parity.clone();
        for _ in 0..4 {
            let count = 1 + random.below(k.min(5));
            let columns = random.distinct(k, count);
            let new = strips(columns.len(), bytes, random.coin(), &mut random);
            let changes: Vec<Change<'_>> = columns
                .iter()
                .zip(&new)
                .map(|(&column, new)| Change { column, old: data[column].get(), new: new.get() })
                .collect();
            let mut parity = present_mut(&mut parity, &members);
            let locality = random.pick(&LOCALITIES);
            subject
                .update(&subject.code(k, m), &changes, &mut parity, locality)
                .map_err(|error| error.to_string())?;
            for (column, new) in columns.into_iter().zip(new) {
                data[column] = new;
            }
        }
        let what = format!("seed {seed:#x}: {k}+{m}, {bytes} bytes");
        expect_parity(&data, &parity, &zeroed, &members, &what)?;
    }
    Ok(())
}

/// Every bit of every strip of a small stripe is flipped in turn; the check must see it, say which
/// parities disagree, and `locate` must name the strip.
pub fn every_flipped_bit_is_found_and_located(subject: &impl Subject) -> Claim {
    let mut random = Seeded(0xA5_0004);
    for (k, m, bytes) in [(4, 2, 192), (5, 3, 131), (1, 2, 65), (3, 1, 64), (2, 6, 77)] {
        let code = subject.code(k, m);
        let mut all = stripe(k, m, bytes, &mut random);
        expect_verdict(subject, &all, (k, m), None)?;
        for strip in 0..k + m {
            for bit in 0..bytes * 8 {
                // Every bit of the first, one bit a byte of the others.
                if strip > 0 && bit % 8 != (bit / 8) % 8 {
                    continue;
                }
                all[strip].get_mut()[bit / 8] ^= 1 << (bit % 8);
                expect_verdict(subject, &all, (k, m), Some(strip))?;
                let (data, parity) = all.split_at(k);
                let located = code.locate(&slices(data), &present(parity, &vec![true; m]), 0);
                let expected = (m >= 2).then_some(strip);
                claim!(located == Ok(expected), "{k}+{m} strip {strip} bit {bit}: {located:?}");
                all[strip].get_mut()[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    Ok(())
}

/// The verdict on a stripe of one row in which at most one strip is wrong.
fn expect_verdict(
    subject: &impl Subject,
    all: &[Strip],
    (k, m): (usize, usize),
    wrong: Option<usize>,
) -> Claim {
    let (data, parity) = all.split_at(k);
    let verdict = subject
        .check(&subject.code(k, m), &slices(data), &present(parity, &vec![true; m]))
        .map_err(|error| error.to_string())?;
    claim!(verdict.is_consistent() == wrong.is_none(), "{k}+{m}: wrong strip {wrong:?} not seen");
    for row in 0..m {
        let expected = wrong.is_some_and(|wrong| wrong < k || wrong == k + row);
        let seen = verdict.rows_of(row).contains(0);
        claim!(seen == expected, "{k}+{m}: strip {wrong:?} wrong, parity {row} says {seen}");
    }
    Ok(())
}

/// Damage in several rows of long strips is mapped to exactly those rows.
pub fn check_maps_damage_to_its_rows(subject: &impl Subject) -> Claim {
    let seed = 0xA5_0005;
    let mut random = Seeded(seed);
    for (k, m) in [(8, 2), (3, 1), (4, 4), (1, 1)] {
        let bytes = 6 * ROW_BYTES + 100;
        let mut all = stripe(k, m, bytes, &mut random);
        let count = random.below(4);
        let mut damaged = random.distinct(7, count);
        damaged.sort_unstable();
        for &row in &damaged {
            let at = (row * ROW_BYTES + random.below(ROW_BYTES)).min(bytes - 1);
            all[random.below(k)].get_mut()[at] ^= 0x40;
        }
        let (data, parity) = all.split_at(k);
        let members: Vec<bool> = (0..m).map(|row| row == 0 || random.coin()).collect();
        let verdict = subject
            .check(&subject.code(k, m), &slices(data), &present(parity, &members))
            .map_err(|error| error.to_string())?;
        let found: Vec<usize> = verdict.rows().iter().collect();
        claim!(found == damaged, "seed {seed:#x}: {k}+{m} {damaged:?} reported as {found:?}");
        for row in (0..m).filter(|&row| !members[row]) {
            claim!(verdict.rows_of(row).is_empty(), "{k}+{m}: an absent parity was judged");
        }
    }
    Ok(())
}
