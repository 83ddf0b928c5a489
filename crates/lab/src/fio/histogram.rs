//! One line of fio's histogram log (`write_hist_log`): how many I/Os of an interval took how long.
//!
//! What must stay true: no line makes this panic; a line with another number of bins than fio 3
//! writes is not guessed at.

use crate::metrics::latency::Bins;

/// Bins of a full histogram in fio 3: 64 of one nanosecond, then 64 for each doubling.
const BINS: usize = 29 * 64;
const STEPS: usize = 64;
/// Coarser than this (`log_hist_coarseness`) fio does not write.
const COARSENESS_MAX: u32 = 6;

#[derive(Clone, PartialEq, Debug)]
pub struct Read {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// 0 reads, 1 writes, 2 trims.
    pub side: u64,
    /// Latency in nanoseconds, the middle of its bin -> I/Os.
    pub bins: Bins,
}

/// Read a line: `1001, 0, 4096, 0, 0, 17, ...`. `None` if it is not one.
pub fn read(line: &str) -> Option<Read> {
    let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
    let (at_ms, side, _block) = (fields.next()??, fields.next()??, fields.next()??);
    let counts: Vec<u64> = fields.collect::<Option<_>>()?;
    let coarseness = (0..=COARSENESS_MAX).find(|by| BINS >> by == counts.len())?;
    let bin = |(at, ios): (usize, u64)| (middle(at << coarseness, (at + 1) << coarseness), ios);
    let bins = counts.into_iter().enumerate().filter(|(_, ios)| *ios > 0).map(bin).collect();
    Some(Read { at_ms, side, bins })
}

/// The middle between where the bin `from` begins and the bin `to` begins, nanoseconds.
fn middle(from: usize, to: usize) -> u64 {
    let (from, to) = (begin(from), begin(to));
    from + (to - from) / 2
}

/// Where the full histogram's bin `at` begins, nanoseconds.
fn begin(at: usize) -> u64 {
    let doublings = (at / STEPS).saturating_sub(1);
    let steps = if at < STEPS { at } else { STEPS + at % STEPS };
    u64::try_from(steps << doublings).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{BINS, begin, read};
    use proptest::prelude::*;

    fn line(count: usize, at: usize) -> String {
        let bins: Vec<&str> = (0..count).map(|bin| if bin == at { "7" } else { "0" }).collect();
        format!("2001, 1, 4096, {}", bins.join(", "))
    }

    #[test]
    fn bins_begin_where_those_of_json_plus_do() {
        // Middles that fio 3.33 printed as keys of its json+ bins.
        for (bin, middle) in [(562, 14_656), (584, 18_560), (599, 22_400)] {
            let read = read(&line(BINS, bin)).unwrap();
            assert_eq!(read.bins.into_iter().collect::<Vec<_>>(), [(middle, 7)]);
        }
        assert!((1..=BINS).all(|at| begin(at) > begin(at - 1)), "no bin is empty or goes back");
    }

    #[test]
    fn a_coarse_bin_lies_around_the_fine_ones_it_is_made_of() {
        let coarse = read(&line(BINS / 4, 585 / 4)).unwrap();
        let (ns, ios) = coarse.bins.into_iter().next().unwrap();
        assert_eq!((coarse.at_ms, coarse.side, ios), (2001, 1, 7));
        assert!((begin(584)..begin(588)).contains(&ns), "{ns}");
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(
            text in "([0-9]{0,22},? ?|[a-z,]{0,3}){0,60}",
            count in 0usize..2000,
        ) {
            drop(read(&text));
            let whole = format!("1, 0, 1{}", ", 18446744073709551615".repeat(count));
            let is_whole = (0..=6).any(|by| BINS >> by == count);
            prop_assert_eq!(read(&whole).is_some(), is_whole);
        }
    }
}
