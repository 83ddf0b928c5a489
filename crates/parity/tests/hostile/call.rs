//! One hostile call: any counts, lengths, columns, rows and masks, right or wrong, as a few bytes
//! say.
//!
//! What must stay true: the same bytes make the same call, so a failure repeats; zeros, which is
//! also what comes after the last byte, make a call that is right. Safe code must answer with an
//! error, and nothing written, or with the right bytes; what is right is decided here from the
//! definition. A panic is a failure. Sources may be one and the same slice; what is written cannot
//! alias anything, which the borrow checker sees to.

use ashlar_gf::{PARITY_ROWS, mul};
use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality};
use ashlar_units::StripSet;

const UNTOUCHED: u8 = 0xEE;
/// Strips of a check, which are long enough for several rows where that is not too slow.
const CHECKED_BYTES_MAX: usize = if cfg!(miri) { 100 } else { 9000 };
const BYTES_MAX: usize = if cfg!(miri) { 100 } else { 400 };

/// A call of one verb; whether it was done.
type Verb = fn(&Code, &mut Draw<'_>) -> bool;

/// The calls there are.
pub const VERBS: [Verb; 4] = [generate, check, update, reconstruct];

/// Makes the call that `input` says. Returns the index of the verb and whether it was done, or
/// nothing when there was no code to call.
pub fn call(input: &[u8]) -> Option<(usize, bool)> {
    let mut draw = Draw { input, filler: 0 };
    draw.filler = (0..4).fold(0, |seed, _| seed << 16 | u64::from(draw.two_bytes()));
    let verb = draw.below(VERBS.len());
    let code = draw.code()?;
    Some((verb, VERBS[verb](&code, &mut draw)))
}

/// Decisions, from the bytes of the input; and bytes to fill strips with, which matter less.
pub struct Draw<'a> {
    input: &'a [u8],
    filler: u64,
}

impl Draw<'_> {
    fn two_bytes(&mut self) -> u16 {
        let (now, later) = self.input.split_at(self.input.len().min(2));
        self.input = later;
        now.iter().fold(0, |sum, &byte| sum << 8 | u16::from(byte))
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.two_bytes()) % limit
    }

    /// `right`, or now and then something near it or far from it.
    fn near(&mut self, right: usize) -> usize {
        match self.below(32) {
            1 => right + 1,
            2 => right.saturating_sub(1),
            3 => self.below(80),
            _ => right,
        }
    }

    fn locality(&mut self) -> Locality {
        if self.below(2) == 0 { Locality::Cached } else { Locality::Streaming }
    }

    fn byte(&mut self) -> u8 {
        self.filler =
            self.filler.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.filler.to_be_bytes()[0]
    }

    /// About `count` strips of about `bytes` bytes, at any alignment.
    fn strips(&mut self, count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let count = self.near(count);
        let mut strips: Vec<Vec<u8>> =
            (0..count).map(|_| (0..bytes).map(|_| self.byte()).collect()).collect();
        self.spoil(&mut strips);
        strips
    }

    /// Now and then makes one of the strips a byte longer.
    fn spoil(&mut self, strips: &mut [Vec<u8>]) {
        if self.below(16) == 1 && !strips.is_empty() {
            let odd = self.below(strips.len());
            strips[odd].push(0);
        }
    }

    /// As `strips`, to be written.
    fn places(&mut self, count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let mut places = self.strips(count, bytes);
        places.iter_mut().for_each(|place| place.fill(UNTOUCHED));
        places
    }

    /// The strips as slices; now and then all are the first.
    fn read<'s>(&mut self, strips: &'s [Vec<u8>]) -> Vec<&'s [u8]> {
        let one = self.below(16) == 1;
        strips.iter().map(|strip| if one { &strips[0][..] } else { &strip[..] }).collect()
    }

    /// Now and then without some of them.
    fn some<'s>(&mut self, strips: &'s mut [Vec<u8>]) -> Vec<Option<&'s mut [u8]>> {
        let absent = if self.below(4) == 1 { self.two_bytes() } else { 0 };
        let here = |n: usize| absent >> (n % 16) & 1 == 0;
        strips.iter_mut().enumerate().map(|(n, s)| here(n).then_some(&mut s[..])).collect()
    }

    /// A code with any kernel of this CPU.
    fn code(&mut self) -> Option<Code> {
        let kernels: Vec<Kernel> = Kernel::all().collect();
        let kernel = kernels[self.below(kernels.len())];
        let (k, m) = if self.below(8) == 1 {
            (self.below(90), self.below(50))
        } else {
            (1 + self.below(12), self.below(7))
        };
        let code = Code::new(k, m, kernel);
        assert_eq!(code.is_ok(), k > 0 && m <= 32 && k + m <= 64, "{k}+{m}");
        code.ok()
    }
}

fn write(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(|strip| &mut strip[..]).collect()
}

fn defined(data: &[&[u8]], row: usize) -> Vec<u8> {
    let products = |at: usize| data.iter().zip(&PARITY_ROWS[row]).map(move |(d, &c)| mul(c, d[at]));
    (0..data[0].len()).map(|at| products(at).fold(0, |sum, product| sum ^ product)).collect()
}

/// Done: every parity strip that was there is right. Refused: nothing was written.
fn expect_parity(done: bool, data: &[&[u8]], parity: &[Vec<u8>], here: &[bool]) {
    for (row, (strip, here)) in parity.iter().zip(here).enumerate() {
        let right = if done && *here { *strip == defined(data, row) } else { untouched(strip) };
        assert!(right, "parity {row}, done: {done}");
    }
}

fn untouched(strip: &[u8]) -> bool {
    strip.iter().all(|&byte| byte == UNTOUCHED)
}

fn here<T>(strips: &[Option<T>]) -> Vec<bool> {
    strips.iter().map(Option::is_some).collect()
}

fn generate(code: &Code, draw: &mut Draw<'_>) -> bool {
    let bytes = draw.below(BYTES_MAX);
    let data = draw.strips(code.data_strips(), bytes);
    let data = draw.read(&data);
    let mut parity = draw.places(code.parity_strips(), bytes);
    let mut out = draw.some(&mut parity);
    let members = here(&out);
    let done = code.generate(&data, &mut out, draw.locality()).is_ok();
    expect_parity(done, &data, &parity, &members);
    done
}

fn check(code: &Code, draw: &mut Draw<'_>) -> bool {
    let bytes = draw.below(CHECKED_BYTES_MAX);
    let data = draw.strips(code.data_strips(), bytes);
    let parity = draw.strips(code.parity_strips(), bytes);
    let data = draw.read(&data);
    let parity: Vec<Option<&[u8]>> = parity.iter().map(|strip| Some(&strip[..])).collect();
    let located = code.locate(&data, &parity, draw.below(4));
    let plain = code.check_from(&data, &parity, draw.locality());
    assert!(plain.is_ok() || located.is_err(), "refused by one only");
    if let Ok(verdict) = &plain {
        let agrees = |row| parity[row] == Some(&defined(&data, row)[..]);
        let sound = (0..code.parity_strips()).all(agrees);
        assert_eq!(verdict.is_consistent(), sound);
    }
    plain.is_ok()
}

fn update(code: &Code, draw: &mut Draw<'_>) -> bool {
    let bytes = draw.below(BYTES_MAX);
    let count = draw.below(5);
    let old = draw.strips(count, bytes);
    let new = draw.strips(old.len(), bytes);
    let mut parity = draw.places(code.parity_strips(), bytes);
    let (old, new) = (draw.read(&old), draw.read(&new));
    let mut change = |(&old, &new)| {
        let stray = draw.near(0);
        Change { column: stray + draw.below(code.data_strips()), old, new }
    };
    let changes: Vec<Change<'_>> = old.iter().zip(&new).map(&mut change).collect();
    let mut out: Vec<Option<&mut [u8]>> = write(&mut parity).into_iter().map(Some).collect();
    let done = code.update(&changes, &mut out, draw.locality()).is_ok();
    for (row, strip) in parity.iter().enumerate() {
        let mut right = vec![UNTOUCHED; strip.len()];
        for change in changes.iter().filter(|_| done) {
            for (at, byte) in right.iter_mut().enumerate() {
                *byte ^= mul(PARITY_ROWS[row][change.column], change.old[at] ^ change.new[at]);
            }
        }
        assert!(*strip == right, "parity {row}, done: {done}");
    }
    done
}

/// A stripe as the definition has it.
fn stripe(code: &Code, bytes: usize, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        (0..code.data_strips()).map(|_| (0..bytes).map(|_| draw.byte()).collect()).collect();
    for row in 0..code.parity_strips() {
        let data: Vec<&[u8]> = all[..code.data_strips()].iter().map(|strip| &strip[..]).collect();
        let parity = defined(&data, row);
        all.push(parity);
    }
    all
}

/// A plan for any losses, now and then too many or of strips that the code does not have.
fn plan(code: &Code, draw: &mut Draw<'_>) -> Option<DecodePlan> {
    let all = StripSet::first(code.strips()).0;
    let mut mask = || (0..4).fold(0, |mask, _| mask << 16 | u64::from(draw.two_bytes()));
    let lost = mask() & mask() & mask() & all;
    let stray = mask();
    let stray = if draw.below(8) == 1 { stray } else { 0 };
    let (survivors, wanted) = (StripSet(all & !lost | stray), StripSet(lost | stray));
    let plan = DecodePlan::new(code, survivors, wanted);
    let sound = (survivors.0 | wanted.0) & !all == 0
        && survivors.count() >= code.data_strips()
        && wanted.count() <= 32;
    assert_eq!(plan.is_ok(), sound, "{code:?} {survivors:x?} {wanted:x?}");
    plan.ok()
}

/// What a plan reads, now and then with one strip too few or too many, or one of another length.
fn sources(plan: &DecodePlan, all: &[Vec<u8>], draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
    let mut sources: Vec<Vec<u8>> = plan.sources().iter().map(|n| all[n.at()].clone()).collect();
    let count = draw.near(sources.len());
    sources.resize(count, vec![0; all[0].len()]);
    draw.spoil(&mut sources);
    sources
}

fn expect_reconstructed(done: bool, plan: &DecodePlan, all: &[Vec<u8>], outputs: &[Vec<u8>]) {
    for (n, strip) in outputs.iter().enumerate() {
        let wanted = plan.wanted().iter().nth(n);
        let right =
            if done { Some(strip) == wanted.map(|n| &all[n.at()]) } else { untouched(strip) };
        assert!(right, "output {n}, done: {done}");
    }
}

fn reconstruct(code: &Code, draw: &mut Draw<'_>) -> bool {
    let Some(plan) = plan(code, draw) else { return false };
    let bytes = draw.below(BYTES_MAX);
    let all = stripe(code, bytes, draw);
    let sources = sources(&plan, &all, draw);
    let mut outputs = draw.places(plan.wanted().count(), bytes);
    let read: Vec<&[u8]> = sources.iter().map(|strip| &strip[..]).collect();
    let done = plan.run(&read, &mut write(&mut outputs), draw.locality()).is_ok();
    expect_reconstructed(done, &plan, &all, &outputs);
    done
}
