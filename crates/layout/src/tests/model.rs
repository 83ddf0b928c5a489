//! A stripe of numbers that executes write plans and knows what the result must be.
//!
//! One number stands for one block. Content that must not be relied on (strips that cannot be read,
//! parity after an unclean stop) is filled with garbage: a plan that uses it produces a wrong
//! number somewhere and is caught. The code itself is in `code`.

use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripSet, to_u64, to_usize};

use super::code::{Cells, Code, PRIME, ROWS, STRIPS};
use crate::{
    Band, Geometry, ReadPlan, RowRange, StripIo, StripIos, StripeView, WriteKind, WritePlan,
};

/// Cells with holes.
pub type Partial = [[Option<u64>; ROWS]; STRIPS];

/// Where the content of a band comes from: the members and the request.
struct Sources {
    read: Partial,
    request: Partial,
}

/// A stripe in some state, and what it should be.
pub struct ModelStripe<'a> {
    geometry: &'a Geometry,
    code: &'a Code,
    view: StripeView,
    /// What the stripe's content is, lost strips included.
    truth: Cells,
    /// What is on the members.
    disk: Cells,
}

impl<'a> ModelStripe<'a> {
    /// A written stripe: data is some number per block, unreliable content is garbage.
    pub fn written(geometry: &'a Geometry, code: &'a Code, view: StripeView) -> ModelStripe<'a> {
        let mut truth = [[0; ROWS]; STRIPS];
        for (strip, cells) in truth.iter_mut().enumerate().take(code.data_strips) {
            *cells = std::array::from_fn(|row| 1_000 + 37 * to_u64(strip) + to_u64(row));
        }
        code.generate(&mut truth);
        ModelStripe { geometry, code, view, truth, disk: truth }.with_garbage()
    }

    /// A stripe never written: its content is zeros, everything on the members is garbage.
    pub fn unwritten(geometry: &'a Geometry, code: &'a Code, view: StripeView) -> ModelStripe<'a> {
        let zeros = [[0; ROWS]; STRIPS];
        let unread = StripeView { readable: StripSet::EMPTY, ..view };
        ModelStripe { geometry, code, view: unread, truth: zeros, disk: zeros }.with_garbage()
    }

    fn with_garbage(mut self) -> ModelStripe<'a> {
        let is_parity_trusted = self.view.is_parity_valid || self.code.data_strips == 1;
        for strip in 0..self.code.strips {
            let index = StripIdx::from_at(strip);
            let is_parity = self.geometry.parity().contains(index);
            if !self.view.readable.contains(index) || (is_parity && !is_parity_trusted) {
                let junk = |row| 700_000_001 + 1_013 * to_u64(strip) + to_u64(row);
                self.disk[strip] = std::array::from_fn(junk);
            }
        }
        self
    }

    /// Executes the plan of a write of `extent`, new numbers for every block, and checks the
    /// outcome.
    pub fn execute(mut self, plan: &WritePlan, extent: Extent) {
        let request = request(self.geometry, extent);
        check_coverage(self.geometry, plan, &request);
        let sources = Sources { read: self.read(plan.reads()), request };
        let before = self.disk;
        let mut stored = [[None; ROWS]; STRIPS];
        for band in plan.bands() {
            self.check_band(band);
            let decoded = self.decoded(band, &sources);
            for row in rows_of(band.rows) {
                let new = self.row(band, row, &sources, &decoded);
                (0..STRIPS).for_each(|strip| stored[strip][row] = new[strip]);
            }
        }
        self.write(plan, &stored);
        self.check_untouched(plan, &before);
        for (strip, cells) in self.truth.iter_mut().enumerate().take(self.code.data_strips) {
            for (row, cell) in cells.iter_mut().enumerate() {
                *cell = request[strip][row].unwrap_or(*cell);
            }
        }
        self.code.generate(&mut self.truth);
        self.check_content(plan);
    }

    /// Executes the plan of a read and returns what it brings, per strip and row.
    pub fn execute_read(&self, plan: &ReadPlan) -> Partial {
        let read = self.read(plan.reads());
        let mut brought = [[None; ROWS]; STRIPS];
        for band in plan.bands() {
            let decoded = self.decoded_from(band.sources, band.rows, &read);
            for (strip, row) in
                band.wanted.iter().flat_map(|strip| rows_of(band.rows).map(move |row| (strip, row)))
            {
                let is_decoded = band.decoded.contains(strip);
                let content = match decoded {
                    Some(cells) if is_decoded => self.code.of_data(strip, row, &cells),
                    _ => read[strip.at()][row].expect("what is not decoded is read"),
                };
                let before = brought[strip.at()][row].replace(content);
                assert_eq!(before, None, "{strip:?} row {row} is in two bands");
            }
        }
        brought
    }

    /// What a strip holds, whether it can be read or not.
    pub fn truth(&self, strip: StripIdx, row: usize) -> u64 {
        self.truth[strip.at()][row]
    }

    /// The data strips that follow from k strips that were read; `None` if fewer were.
    fn decoded_from(&self, sources: StripSet, rows: RowRange, read: &Partial) -> Option<Cells> {
        if sources.count() != self.code.data_strips {
            return None;
        }
        let mut survivors = [[0; ROWS]; STRIPS];
        for strip in sources.iter() {
            for row in rows_of(rows) {
                survivors[strip.at()][row] = read[strip.at()][row].expect("sources are read");
            }
        }
        Some(self.code.decode(sources, &survivors))
    }

    /// What these reads return. Nothing that cannot be read may be read.
    fn read(&self, reads: StripIos) -> Partial {
        let mut read = [[None; ROWS]; STRIPS];
        check_merged(reads.clone());
        for io in reads {
            assert!(self.view.readable.contains(io.strip), "{io:?} cannot be read");
            for row in rows_of(io.rows) {
                read[io.strip.at()][row] = Some(self.disk[io.strip.at()][row]);
            }
        }
        read
    }

    /// The data strips a band decodes, in its rows; elsewhere anything.
    fn decoded(&self, band: &Band, sources: &Sources) -> Cells {
        if band.decoded.is_empty() {
            return [[0; ROWS]; STRIPS];
        }
        let decoded = self.decoded_from(band.gather, band.rows, &sources.read);
        decoded.expect("k strips are gathered")
    }

    /// What one row of a band computes and wants stored, per strip.
    fn row(
        &self,
        band: &Band,
        row: usize,
        sources: &Sources,
        decoded: &Cells,
    ) -> [Option<u64>; STRIPS] {
        let old = |strip: StripIdx| {
            assert!(band.gather.contains(strip), "{strip:?} is not gathered: {band:?}");
            sources.read[strip.at()][row].expect("gathered strips are read")
        };
        let mut stored = [None; STRIPS];
        let mut new = [0; STRIPS];
        for strip in band.written.or(band.zeroed).iter() {
            if band.written.contains(strip) {
                let content = sources.request[strip.at()][row];
                new[strip.at()] = content.expect("written rows are in the request");
            }
            stored[strip.at()] = Some(new[strip.at()]);
        }
        if band.kind == WriteKind::ReadModifyWrite {
            for parity in band.parity.iter() {
                let sum = band.written.iter().fold(old(parity), |sum, strip| {
                    let difference = new[strip.at()] + PRIME - old(strip);
                    (sum + self.code.coefficient(parity, strip) * (difference % PRIME)) % PRIME
                });
                stored[parity.at()] = Some(sum);
            }
            return stored;
        }
        band.decoded.iter().for_each(|strip| new[strip.at()] = decoded[strip.at()][row]);
        if band.parity.is_empty() {
            return stored;
        }
        let computed = band.written.or(band.zeroed).or(band.decoded);
        for strip in self.geometry.data().minus(computed).iter() {
            new[strip.at()] = old(strip);
        }
        for parity in band.parity.iter() {
            let sum = self.code.parity(parity.at(), |at| new[at]);
            stored[parity.at()] = Some(sum);
        }
        stored
    }

    /// Applies the writes of the plan: exactly what the bands computed, less what cannot be
    /// written.
    fn write(&mut self, plan: &WritePlan, stored: &Partial) {
        let mut left = *stored;
        check_merged(plan.writes());
        for io in plan.writes() {
            assert!(self.view.writable.contains(io.strip), "{io:?} cannot be written: {plan:?}");
            for row in rows_of(io.rows) {
                let content = left[io.strip.at()][row].take().expect("a write has content");
                self.disk[io.strip.at()][row] = content;
            }
        }
        for strip in self.view.writable.iter() {
            assert_eq!(left[strip.at()], [None; ROWS], "content of {strip:?} is not written");
        }
    }

    /// Sets of a band that do not overlap, and only strips the code has.
    fn check_band(&self, band: &Band) {
        let data = self.geometry.data();
        let parts = [band.written, band.zeroed, band.decoded];
        let union = parts.iter().fold(StripSet::EMPTY, |union, part| union.or(*part));
        assert_eq!(union.count(), parts.iter().map(|part| part.count()).sum::<usize>());
        assert!(union.is_subset_of(data), "{band:?}");
        let parity = self.geometry.parity().and(self.view.writable);
        assert_eq!(band.parity, parity, "all parity that can be written is");
        assert_eq!(band.decoded.is_empty(), band.kind != WriteKind::DecodeThenWrite);
        assert_eq!(band.gather.is_empty(), band.kind == WriteKind::FullStripe);
    }

    /// Rows and strips that the plan leaves alone are as they were.
    fn check_untouched(&self, plan: &WritePlan, before: &Cells) {
        for (strip, cells) in before.iter().enumerate() {
            for (row, cell) in cells.iter().enumerate() {
                let is_written = plan.writes().any(|io| {
                    io.strip.at() == strip && rows_of(io.rows).any(|written| written == row)
                });
                assert!(is_written || self.disk[strip][row] == *cell);
            }
        }
    }

    /// After the write, in each row of the plan: parity is right, and the new data can be had, by
    /// decoding from the parity side where possible.
    fn check_content(&self, plan: &WritePlan) {
        let data = self.geometry.data();
        // Bands mostly share their survivors, and decoding is what takes the time.
        let mut last = (StripSet::EMPTY, [[0; ROWS]; STRIPS]);
        for band in plan.bands() {
            let stored = band.stored(self.view.writable);
            let kept = self.view.readable.and(self.view.writable).and(data).minus(stored);
            let sound = stored.or(kept);
            for row in rows_of(band.rows) {
                for strip in sound.iter() {
                    let (is, should) = (self.disk[strip.at()][row], self.truth[strip.at()][row]);
                    assert_eq!(is, should, "{strip:?} in row {row} is wrong: {plan:?}");
                }
            }
            let needs_parity = band.written.or(band.zeroed).minus(stored);
            if self.was_whole(band) || !needs_parity.is_empty() {
                let survivors = highest(sound, self.code.data_strips);
                if last.0 != survivors {
                    last = (survivors, self.code.decode(survivors, &self.disk));
                }
                for row in rows_of(band.rows) {
                    for strip in data.iter() {
                        let (is, should) = (last.1[strip.at()][row], self.truth[strip.at()][row]);
                        assert_eq!(is, should, "{strip:?} decodes wrong in row {row}: {plan:?}");
                    }
                }
            }
        }
    }

    /// Whether all data the band keeps could be had before the write.
    fn was_whole(&self, band: &Band) -> bool {
        let readable = self.view.readable.and(self.view.writable);
        let kept = self.geometry.data().minus(band.written).minus(band.zeroed);
        kept.is_subset_of(readable)
            || (self.view.is_parity_valid && readable.count() >= self.code.data_strips)
    }
}

/// The new number of every block in `extent`.
fn request(geometry: &Geometry, extent: Extent) -> Partial {
    let mut request = [[None; ROWS]; STRIPS];
    for block in extent.offset / BLOCK_BYTES..extent.end() / BLOCK_BYTES {
        let strip = to_usize(block / u64::from(geometry.strip_blocks()));
        request[strip][to_usize(block) % ROWS] = Some(5_000_000 + 101 * block);
    }
    request
}

/// The bands overwrite exactly the blocks of the request; rows rise and do not overlap.
fn check_coverage(geometry: &Geometry, plan: &WritePlan, request: &Partial) {
    for pair in plan.bands().windows(2) {
        assert!(pair[0].rows.end <= pair[1].rows.start, "{plan:?}");
    }
    for strip in geometry.data().iter() {
        for (row, content) in request[strip.at()].iter().enumerate() {
            let is_here = |band: &&Band| rows_of(band.rows).contains(&row);
            let covering = plan.bands().iter().filter(is_here);
            let written = covering.filter(|band| band.written.contains(strip)).count();
            assert_eq!(written, usize::from(content.is_some()), "{strip:?} row {row}: {plan:?}");
        }
    }
}

/// I/Os rise, are not empty, and two of one strip never touch: they would have been one.
fn check_merged(ios: impl Iterator<Item = StripIo>) {
    let mut before: Option<StripIo> = None;
    for io in ios {
        assert!(!io.rows.is_empty());
        if let Some(before) = before {
            let is_apart = before.strip == io.strip && before.rows.end < io.rows.start;
            assert!(before.strip < io.strip || is_apart, "{before:?} then {io:?}");
        }
        before = Some(io);
    }
}

fn rows_of(rows: RowRange) -> std::ops::Range<usize> {
    to_usize(rows.start.into())..to_usize(rows.end.into())
}

/// The `count` highest strips: parity first, so that it is parity that is put to the test.
fn highest(strips: StripSet, count: usize) -> StripSet {
    let surplus = strips.count().checked_sub(count).expect("enough sound strips to decode");
    strips.iter().skip(surplus).collect()
}
