//! Images that somebody or something has changed: seeded mutations of superblocks, pages and data,
//! most with a checksum that is made right again. The reader may refuse or lose blocks; it does not
//! panic, and the number of reads it does is bounded.

use crate::forge::{Array, DATA, LOG, MAP, Record, SIZE, seal};
use ashlar_salvage::{Choices, ReadAt, Salvage, Trust, Unreadable};
use std::cell::Cell;

const CASES: u64 = 10_500;
/// Far more than any of the arrays below needs, far less than a loop that runs away.
const READS_MAX: u64 = 200_000;

/// A sound image with changes upon it; copying whole images would take most of the time.
#[derive(Clone)]
struct Changed<'a> {
    sound: &'a [u8],
    length: usize,
    changes: Vec<(usize, Vec<u8>)>,
}

impl Changed<'_> {
    /// Write as much of `bytes` as there is room for.
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.changes.push((at, bytes.to_vec()));
    }

    fn byte(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.copy_to(at, &mut byte);
        byte[0]
    }

    fn copy_to(&self, from: usize, buffer: &mut [u8]) {
        let to = from + buffer.len();
        buffer.copy_from_slice(&self.sound[from..to]);
        for (at, bytes) in &self.changes {
            let (start, end) = (from.max(*at), to.min(at + bytes.len()));
            if start < end {
                buffer[start - from..end - from].copy_from_slice(&bytes[start - at..end - at]);
            }
        }
    }
}

/// An image that counts what is read of it.
struct Counted<'a> {
    image: &'a Changed<'a>,
    reads: &'a Cell<u64>,
}

impl ReadAt for Counted<'_> {
    fn size_bytes(&self) -> u64 {
        u64::try_from(self.image.length).expect("small")
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() < READS_MAX, "reads without end");
        assert!(buffer.len() <= 1 << 20, "a buffer of {} bytes", buffer.len());
        let from = usize::try_from(offset).map_err(|_| Unreadable)?;
        let to = from.checked_add(buffer.len()).ok_or(Unreadable)?;
        if to > self.image.length {
            return Err(Unreadable);
        }
        self.image.copy_to(from, buffer);
        Ok(())
    }
}

/// A generator of numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("small");
        usize::try_from(self.roll() % end).expect("small")
    }
}

/// Numbers that break arithmetic.
const EDGES: [u64; 10] =
    [0, 1, 2, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 40, i64::MAX as u64, u64::MAX];

/// Fields that the geometry and the judgement lean on: offset and size.
const FIELDS: [(usize, usize); 26] = [
    (12, 4),
    (16, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 8),
    (120, 8),
    (128, 2),
    (130, 2),
    (132, 4),
    (216, 2),
    (218, 2),
    (220, 2),
    (222, 2),
    (224, 4),
    (228, 4),
    (232, 8),
    (248, 8),
    (352, 8),
    (336, 8),
    (344, 8),
    (360, 8),
    (400, 8),
    (408, 8),
    (568, 8),
    (4112, 8),
];

fn mutate_superblock(superblock: &mut [u8], dice: &mut Dice) {
    let changes = 1 + dice.below(3);
    for _ in 0..changes {
        if dice.below(4) == 0 {
            let at = 8 + dice.below(superblock.len() - 8);
            superblock[at] = u8::try_from(dice.below(256)).expect("a byte");
            continue;
        }
        let (at, length) = FIELDS[dice.below(FIELDS.len())];
        let value = if dice.below(3) == 0 { dice.roll() } else { EDGES[dice.below(EDGES.len())] };
        let value = if dice.below(3) == 0 { value & 0x1_FFFF } else { value };
        superblock[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }
    seal(superblock, 8);
}

fn mutate(array: &Array, images: &mut [Changed<'_>], dice: &mut Dice) {
    let chosen = dice.below(images.len());
    match dice.below(8) {
        // The same lie on every member, as a hostile author would write it.
        0 | 1 => {
            let seed = dice.roll();
            for (member, image) in (0..).zip(images.iter_mut()) {
                let mut superblock = array.superblock(member);
                mutate_superblock(&mut superblock, &mut Dice(seed));
                for at in [0, 64 << 10, SIZE - (128 << 10), SIZE - (64 << 10)] {
                    image.overwrite(at, &superblock);
                }
            }
        }
        2 => {
            let mut superblock = array.superblock(u8::try_from(chosen).expect("few"));
            mutate_superblock(&mut superblock, dice);
            images[chosen].overwrite(0, &superblock);
            images[chosen].overwrite(64 << 10, &superblock);
        }
        3 => {
            let sequence = dice.roll();
            let mut page = array.page(*b"AWRM", sequence, &[dice.below(32_512)]);
            page[dice.below(32)] ^= 1 << dice.below(8);
            seal(&mut page, 4);
            images[chosen].overwrite(MAP, &page);
        }
        4 | 5 => {
            let mut batch = array.batch(u8::try_from(chosen).expect("few"), 1, &[record(dice)]);
            for _ in 0..dice.below(4) {
                let at = 12 + dice.below(140);
                batch[at] = u8::try_from(dice.below(256)).expect("a byte");
            }
            let length = u32::from_le_bytes(batch[12..16].try_into().expect("four bytes"));
            let length = usize::try_from(length).expect("small").clamp(4096, batch.len());
            seal(&mut batch[..length], 8);
            images[chosen].overwrite(LOG + 4096 * dice.below(4), &batch);
        }
        6 => {
            images[chosen].length = dice.below(images[chosen].length);
        }
        _ => {
            for _ in 0..=dice.below(64) {
                let at = dice.below(images[chosen].length);
                let byte =
                    images[chosen].byte(at) ^ u8::try_from(1 + dice.below(255)).expect("a byte");
                images[chosen].overwrite(at, &[byte]);
            }
        }
    }
}

/// A record that may well be taken: of any stripe, row and kind, held by the first members.
fn record(dice: &mut Dice) -> Record {
    let kind = u8::try_from(1 + dice.below(4)).expect("a byte");
    let row = u16::try_from(dice.below(3)).expect("small");
    let strips = [0, 1, 2].map(|strip: u8| (strip, row, 0x99));
    Record {
        sequence: 1 + dice.roll() % 4,
        stripe: dice.roll() % 4,
        rows: (row, 1),
        kind,
        holders: (0..u8::try_from(dice.below(4)).expect("few")).map(|it| (it, it)).collect(),
        blocks: strips
            .into_iter()
            .take(if kind == 1 || kind == 4 { 1 + dice.below(3) } else { 0 })
            .collect(),
        change: (kind == 4).then(|| (2 - row.to_le_bytes()[0], 0x99, 0x42)),
    }
}

/// Do with the images all that the command does, on a sample of blocks.
fn exercise(images: &[Changed<'_>], dice: &mut Dice) -> bool {
    let reads = Cell::new(0);
    let counted = images.iter().map(|image| Counted { image, reads: &reads }).collect();
    let choices = match dice.below(4) {
        0 => Choices { by_hand: vec![(0, 1)], ..Choices::default() },
        1 => Choices { incarnation: Some([0x90; 16]), ..Choices::default() },
        _ => Choices::default(),
    };
    let Ok(salvage) = Salvage::open(counted, &choices) else { return false };
    let geometry = salvage.geometry();
    let (mut stripe, mut runs) = (0, 0);
    while let Some(run) = salvage.run_from(stripe) {
        assert!(run.stripes.start == stripe && run.stripes.end > stripe);
        (stripe, runs) = (run.stripes.end, runs + 1);
        assert!(runs < 50_000, "runs without end");
    }
    assert_eq!(stripe, geometry.stripes());
    assert!(salvage.lost_map_pages() <= geometry.stripes().div_ceil(32_512));
    let mut strip = vec![0; usize::try_from(geometry.strip_bytes).expect("small")];
    for number in 0..24 {
        let blocks = geometry.volume_blocks();
        let sampled = if number < 12 { number } else { dice.roll() % blocks };
        let there = salvage.read_block(sampled).is_ok();
        assert!(sampled < blocks || !there);
        let stripe = dice.roll() % geometry.stripes();
        salvage.has_enough(stripe, Trust::ByHand);
        if number % 12 == 0 {
            salvage.check_stripe(stripe);
            let fates = salvage.read_strip(stripe, 0, &mut strip);
            assert_eq!(fates.len() * 4096, strip.len());
        }
    }
    true
}

fn images_of(array: &Array) -> Vec<Vec<u8>> {
    let slots = (array.k + array.m) * array.groups;
    let members = (0..slots).map(|slot| u8::try_from(slot).expect("few"));
    let mut images: Vec<Vec<u8>> = members.map(|it| array.member(it, &[0, 1, 3])).collect();
    images.iter_mut().for_each(|image| image[DATA..DATA + 4096].fill(0x5A));
    images
}

#[test]
fn hostile_images_are_survived() {
    let logged = Array { policy: 3, unclean: true, ..Array::new(5, 2, 1, 1) };
    let arrays = [logged, Array::new(60, 1, 2, 2), Array::new(10, 1, 1, 2)];
    let sound: Vec<Vec<Vec<u8>>> = arrays.iter().map(images_of).collect();
    let mut opened = 0;
    for seed in 0..CASES {
        let mut dice = Dice(seed);
        let chosen = dice.below(arrays.len());
        let array = &arrays[chosen];
        let sound = sound[chosen].iter();
        let mut images: Vec<Changed<'_>> = sound
            .map(|sound| Changed { sound, length: sound.len(), changes: Vec::new() })
            .collect();
        for _ in 0..=dice.below(3) {
            mutate(array, &mut images, &mut dice);
            images.retain(|image| image.length > 4096);
            if images.is_empty() {
                break;
            }
        }
        let survived = std::panic::catch_unwind(|| exercise(&images, &mut Dice(seed)));
        assert!(survived.is_ok(), "seed {seed}");
        opened += u64::from(survived.unwrap_or(false));
    }
    // Refusing everything would be easy: most of these arrays can still be looked at.
    assert!(opened > CASES / 2 && opened < CASES, "{opened} of {CASES} opened");
}
