//! Hostile calls: any counts, lengths, columns, rows and masks, right or wrong. Safe code must answer each
//! with an error or with the right bytes, never with a panic.
//!
//! What must stay true: calls are drawn from a seed, so a failure repeats; about as many are wrong as are
//! right, and both are counted, so that neither kind can silently go missing. After a refusal nothing was
//! written.

use ashlar_gf::{PARITY_ROWS, mul};
use ashlar_parity::{Change, Code, CodeError, DecodePlan, Kernel, Locality, StripMask, Summed};

const CALLS: usize = 4000;
const UNTOUCHED: u8 = 0xEE;

/// splitmix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }

    /// `right`, or now and then something near it or far from it.
    fn near(&mut self, right: usize) -> usize {
        match self.below(24) {
            0 => right + 1,
            1 => right.saturating_sub(1),
            2 => self.below(80),
            _ => right,
        }
    }

    fn locality(&mut self) -> Locality {
        if self.below(2) == 0 { Locality::Cached } else { Locality::Streaming }
    }

    /// About `count` strips of about `bytes` bytes, at any alignment.
    fn strips(&mut self, count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let count = self.near(count);
        let odd = if self.below(12) == 0 { self.below(count + 1) } else { count };
        let length = |index| if index == odd { bytes + 1 } else { bytes };
        (0..count)
            .map(|index| (0..length(index)).map(|_| self.next().to_le_bytes()[0]).collect())
            .collect()
    }

    /// As `strips`, to be written.
    fn places(&mut self, count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let mut places = self.strips(count, bytes);
        places.iter_mut().for_each(|place| place.fill(UNTOUCHED));
        places
    }

    fn code(&mut self) -> Option<Code> {
        let kernels: Vec<Kernel> = Kernel::all().collect();
        let kernel = kernels[self.below(kernels.len())];
        let (k, m) = if self.below(8) == 0 {
            (self.below(90), self.below(50))
        } else {
            (1 + self.below(12), self.below(7))
        };
        let code = Code::new(k, m, kernel);
        assert_eq!(code.is_ok(), k > 0 && m <= 32 && k + m <= 64, "{k}+{m}");
        code.ok()
    }
}

fn read(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(|strip| &strip[..]).collect()
}

fn write(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(|strip| &mut strip[..]).collect()
}

fn some<T>(strips: Vec<T>) -> Vec<Option<T>> {
    strips.into_iter().map(Some).collect()
}

fn expect_parity(data: &[Vec<u8>], parity: &[Vec<u8>]) {
    for (strip, row) in parity.iter().zip(&PARITY_ROWS) {
        for (at, &byte) in strip.iter().enumerate() {
            let sum = data.iter().zip(row).fold(0, |sum, (data, &c)| sum ^ mul(c, data[at]));
            assert_eq!(byte, sum);
        }
    }
}

fn untouched(strips: &[Vec<u8>]) -> bool {
    strips.iter().flatten().all(|&byte| byte == UNTOUCHED)
}

fn generate(code: &Code, draw: &mut Draw) -> bool {
    let bytes = draw.below(400);
    let data = draw.strips(code.data_strips(), bytes);
    let mut parity = draw.places(code.parity_strips(), bytes);
    let locality = draw.locality();
    let done = code.generate(&read(&data), &mut some(write(&mut parity)), locality);
    match done {
        Ok(()) => expect_parity(&data, &parity),
        Err(_) => assert!(untouched(&parity), "a refused call wrote"),
    }
    done.is_ok()
}

fn generate_copy(code: &Code, draw: &mut Draw) -> bool {
    let bytes = draw.below(400);
    let data = draw.strips(code.data_strips(), bytes);
    let mut copies = draw.places(code.data_strips(), bytes);
    let mut parity = draw.places(code.parity_strips(), bytes);
    let mut sums = vec![0; draw.near(code.strips() * bytes.div_ceil(4096))];
    let (locality, summed) = (draw.locality(), draw.below(2) == 0);
    let mut out = (write(&mut copies), some(write(&mut parity)));
    let done = if summed {
        let out = Summed { copies: &mut out.0, parity: &mut out.1, sums: &mut sums };
        code.generate_copy_summed(&read(&data), out, locality)
    } else {
        code.generate_copy(&read(&data), &mut out.0, &mut out.1, locality)
    };
    match done {
        Ok(()) => {
            assert!(copies == data);
            expect_parity(&data, &parity);
        }
        Err(_) => assert!(untouched(&parity) && untouched(&copies), "a refused call wrote"),
    }
    done.is_ok()
}

fn check(code: &Code, draw: &mut Draw) -> bool {
    let bytes = draw.below(9000);
    let data = draw.strips(code.data_strips(), bytes);
    let parity = draw.strips(code.parity_strips(), bytes);
    let mut sums = vec![0; draw.near(code.strips() * bytes.div_ceil(4096))];
    let (data, parity) = (read(&data), some(read(&parity)));
    let located = code.locate(&data, &parity, draw.below(4));
    let summed = code.check_summed(&data, &parity, &mut sums, draw.locality());
    let plain = code.check_from(&data, &parity, draw.locality());
    assert!(plain.is_ok() || (summed.is_err() && located.is_err()), "refused by one only");
    plain.is_ok()
}

fn update(code: &Code, draw: &mut Draw) -> bool {
    let bytes = draw.below(400);
    let count = draw.below(5);
    let old = draw.strips(count, bytes);
    let new = draw.strips(old.len(), bytes);
    let mut parity = draw.places(code.parity_strips(), bytes);
    let mut change = |(old, new)| Change { column: draw.near(0), old, new };
    let changes: Vec<Change<'_>> =
        read(&old).into_iter().zip(read(&new)).map(&mut change).collect();
    let locality = draw.locality();
    let done = code.update(&changes, &mut some(write(&mut parity)), locality);
    assert!(done.is_ok() || untouched(&parity), "a refused call wrote");
    done.is_ok()
}

fn reconstruct(code: &Code, draw: &mut Draw) -> bool {
    let bytes = draw.below(400);
    let all = StripMask::first(code.strips()).0;
    let stray = if draw.below(8) == 0 { draw.next() } else { 0 };
    let lost = draw.next() & draw.next() & draw.next() & all;
    let plan = match DecodePlan::new(code, StripMask(all & !lost | stray), StripMask(lost | stray))
    {
        Ok(plan) => plan,
        Err(CodeError::TooFewSurvivors { needed, given }) => {
            assert!(given < needed);
            return false;
        }
        Err(_) => return false,
    };
    let sources = draw.strips(plan.sources().count(), bytes);
    let mut outputs = draw.places(plan.wanted().count(), bytes);
    let done = plan.run(&read(&sources), &mut write(&mut outputs), draw.locality());
    assert!(done.is_ok() || untouched(&outputs), "a refused call wrote");
    done.is_ok()
}

#[test]
fn hostile_calls_are_refused_or_done_right() {
    let mut draw = Draw(0xA5_0777);
    let verbs = [generate, generate_copy, check, update, reconstruct];
    let mut done = [0; 5];
    let mut refused = [0; 5];
    for call in 0..CALLS {
        let Some(code) = draw.code() else { continue };
        let verb = call % verbs.len();
        if verbs[verb](&code, &mut draw) {
            done[verb] += 1;
        } else {
            refused[verb] += 1;
        }
    }
    assert!(done.iter().chain(&refused).all(|&count| count > CALLS / 100), "{done:?} {refused:?}");
}
