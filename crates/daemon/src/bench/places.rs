//! Where the requests of a bench go, one after the other, and what its writes store.
//!
//! What must stay true: clients that ask for the same pattern ask for the same places in the same
//! order, so that what is compared differs in the way to the volume alone.

use ashlar_units::{BLOCK_BYTES_USIZE, to_u64};

/// The order of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    /// In random order, or in sequences.
    pub(super) is_random: bool,
    /// How many sequences, which take turns. Reads have as many of their own.
    pub(super) streams: usize,
    /// Which client this is, and of how many: each has sequences of its own.
    pub(super) client: (usize, usize),
    /// Bytes of each request.
    pub(super) bytes: u64,
    /// Bytes before the first place.
    pub(super) start_bytes: u64,
    /// Bytes of the volume up to the end of the last place.
    pub(super) span_bytes: u64,
}

/// Where the next request goes, and what a write stores.
pub(super) struct Places {
    pattern: Pattern,
    reads: Streams,
    writes: Streams,
    seed: u64,
}

impl Places {
    /// From the start; `seed` is not 0.
    pub(super) fn of(pattern: Pattern, seed: u64) -> Places {
        let count = count(pattern);
        let (streams, (own, clients)) = (pattern.streams.max(1), pattern.client);
        let all = to_u64(streams * clients);
        let begin = |half: u64| {
            let step = |at: usize| count * (2 * to_u64(at * clients + own) + half) / (2 * all);
            Streams { next: (0..streams).map(step).collect(), turn: 0 }
        };
        // Reads of a mixed load are half way between two streams of writes.
        Places { pattern, reads: begin(1), writes: begin(0), seed }
    }

    /// The offset of the next read or write, in bytes.
    pub(super) fn next_offset(&mut self, is_read: bool) -> u64 {
        let count = count(self.pattern);
        let place = match (self.pattern.is_random, is_read) {
            (true, _) => self.random() % count,
            (false, true) => self.reads.next(count),
            (false, false) => self.writes.next(count),
        };
        self.pattern.start_bytes + place * self.pattern.bytes
    }

    /// True for so many of a hundred calls.
    pub(super) fn is_among(&mut self, percent: u8) -> bool {
        percent > 0 && self.random() % 100 < u64::from(percent)
    }

    /// Make every block of a payload another one than it was: as from an export, of its own each
    /// time, and not what lies there already.
    pub(super) fn renew(&mut self, payload: &mut [u8]) {
        for block in payload.chunks_exact_mut(BLOCK_BYTES_USIZE) {
            block[..8].copy_from_slice(&self.random().to_le_bytes());
        }
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

fn count(pattern: Pattern) -> u64 {
    (pattern.span_bytes.saturating_sub(pattern.start_bytes) / pattern.bytes).max(1)
}

/// Sequences of places. Each runs through all places, so the last piece is followed by the first.
struct Streams {
    next: Vec<u64>,
    turn: usize,
}

impl Streams {
    fn next(&mut self, count: u64) -> u64 {
        let streams = self.next.len();
        let next = &mut self.next[self.turn];
        let place = std::mem::replace(next, (*next + 1) % count);
        self.turn = (self.turn + 1) % streams;
        place
    }
}

/// A seed of its own for each client.
pub(super) fn seed_of(client: usize) -> u64 {
    to_u64(client + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::{Pattern, Places, seed_of};

    const PATTERN: Pattern = Pattern {
        is_random: true,
        streams: 1,
        client: (0, 1),
        bytes: 8192,
        start_bytes: 0,
        span_bytes: 1 << 20,
    };

    #[test]
    fn requests_lie_within_the_span_and_reach_all_of_it() {
        for (is_random, streams) in [(true, 1), (false, 1), (false, 3)] {
            for is_read in [true, false] {
                let mut places = Places::of(Pattern { is_random, streams, ..PATTERN }, seed_of(0));
                let mut seen: Vec<u64> = (0..4096).map(|_| places.next_offset(is_read)).collect();
                seen.sort_unstable();
                seen.dedup();
                let all: Vec<u64> = (0..128).map(|place| place * 8192).collect();
                assert_eq!(seen, all, "random: {is_random}, {streams} streams");
            }
        }
    }

    #[test]
    fn streams_take_turns_and_begin_after_the_start() {
        let pattern = Pattern { is_random: false, streams: 2, start_bytes: 4096, ..PATTERN };
        let mut places = Places::of(pattern, seed_of(0));
        let offsets: Vec<u64> = (0..4).map(|_| places.next_offset(false)).collect();
        let second = 4096 + 63 * 8192;
        assert_eq!(offsets, [4096, second, 4096 + 8192, second + 8192]);
        // 127 whole requests fit after the start.
        let last = (0..256).map(|_| places.next_offset(false)).max();
        assert_eq!(last, Some(4096 + 126 * 8192));
        assert_eq!(places.next_offset(true), 4096 + 31 * 8192, "reads have their own streams");
    }

    #[test]
    fn every_client_has_its_own_streams() {
        let first = |client, is_read| {
            let pattern = Pattern { is_random: false, client: (client, 2), ..PATTERN };
            Places::of(pattern, seed_of(client)).next_offset(is_read) / 8192
        };
        let firsts = [first(0, false), first(0, true), first(1, false), first(1, true)];
        assert_eq!(firsts, [0, 32, 64, 96]);
    }

    #[test]
    fn a_payload_is_never_what_it_was() {
        let mut places = Places::of(PATTERN, seed_of(0));
        let mut payload = vec![0; 8192];
        places.renew(&mut payload);
        let first = payload.clone();
        places.renew(&mut payload);
        assert!(first[..8] != payload[..8] && first[4096..4104] != payload[4096..4104]);
    }

    #[test]
    fn a_share_of_calls_is_true() {
        let mut places = Places::of(PATTERN, seed_of(0));
        let count = (0..10_000).filter(|_| places.is_among(30)).count();
        assert!((2_700..3_300).contains(&count), "{count}");
        assert!(!places.is_among(0));
    }
}
