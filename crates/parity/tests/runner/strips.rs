//! Strips for tests: at any alignment, between canaries, filled from a seed.

use ashlar_gf::{PARITY_ROWS, mul};

use super::Seeded;

const MARGIN: usize = 64;
const CANARY: u8 = 0xC3;

/// A buffer of exactly the wanted length and misalignment, with canaries before and after.
#[derive(Clone)]
pub struct Strip {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Strip {
    /// Starts `skew` (below 64) bytes after an address that is a multiple of 64.
    pub fn new(bytes: usize, skew: usize, random: &mut Seeded) -> Strip {
        let mut memory = vec![CANARY; bytes + 4 * MARGIN];
        let start = MARGIN + memory[MARGIN..].as_ptr().align_offset(64) + skew;
        for byte in &mut memory[start..start + bytes] {
            *byte = random.next().to_le_bytes()[0];
        }
        Strip { memory, start, bytes }
    }

    /// Holds `content`, `skew` (below 64) bytes after an address that is a multiple of 64.
    pub fn holding(content: &[u8], skew: usize) -> Strip {
        let mut memory = vec![CANARY; content.len() + 4 * MARGIN];
        let start = MARGIN + memory[MARGIN..].as_ptr().align_offset(64) + skew;
        memory[start..start + content.len()].copy_from_slice(content);
        Strip { memory, start, bytes: content.len() }
    }

    pub fn get(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }

    pub fn canaries_are_alive(&self) -> bool {
        let (before, after) = (&self.memory[..self.start], &self.memory[self.start + self.bytes..]);
        before.iter().chain(after).all(|&byte| byte == CANARY)
    }
}

/// `count` strips; aligned to 64, or each at a skew of its own.
pub fn strips(count: usize, bytes: usize, aligned: bool, random: &mut Seeded) -> Vec<Strip> {
    (0..count)
        .map(|_| {
            let skew = if aligned { 0 } else { random.below(64) };
            Strip::new(bytes, skew, random)
        })
        .collect()
}

pub fn slices(strips: &[Strip]) -> Vec<&[u8]> {
    strips.iter().map(Strip::get).collect()
}

pub fn slices_mut(strips: &mut [Strip]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Strip::get_mut).collect()
}

/// The strips, those not in `present` as `None`.
pub fn present<'a>(strips: &'a [Strip], present: &[bool]) -> Vec<Option<&'a [u8]>> {
    strips.iter().zip(present).map(|(strip, &present)| present.then(|| strip.get())).collect()
}

pub fn present_mut<'a>(strips: &'a mut [Strip], present: &[bool]) -> Vec<Option<&'a mut [u8]>> {
    strips
        .iter_mut()
        .zip(present)
        .map(|(strip, &present)| present.then(|| strip.get_mut()))
        .collect()
}

/// Parity strip `row` by the definition.
pub fn defined_parity(data: &[&[u8]], row: usize) -> Vec<u8> {
    let mut parity = vec![0; data[0].len()];
    for (strip, &coefficient) in data.iter().zip(&PARITY_ROWS[row]) {
        for (sum, &byte) in parity.iter_mut().zip(*strip) {
            *sum ^= mul(coefficient, byte);
        }
    }
    parity
}

/// A whole consistent stripe: data from the seed, parity by the definition.
pub fn stripe(data: usize, parity: usize, bytes: usize, random: &mut Seeded) -> Vec<Strip> {
    let mut all = strips(data, bytes, random.coin(), random);
    for row in 0..parity {
        let defined = defined_parity(&slices(&all[..data]), row);
        let mut strip = strips(1, bytes, random.coin(), random).remove(0);
        strip.get_mut().copy_from_slice(&defined);
        all.push(strip);
    }
    all
}
