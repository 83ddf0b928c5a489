//! Blocks of the volume: read where they lie, or reconstructed from the rest of their row.
//!
//! What must stay true: a block is either returned with how it was come by, or it is lost; never
//! guessed. Members that lost a part, and after them those put into a slot by hand, are asked only
//! when there is no other way, and the block says so.

use crate::array::{Salvage, Source};
use crate::bytes::index;
use crate::doubt::Trust;
use crate::field::{Equation, add_scaled, coefficient, solve};
use crate::image::ReadAt;
use crate::place::{BLOCK_BYTES, Place};
use crate::sums::sum_of;

/// Bytes of a block, as a length.
pub const BLOCK: usize = 4096;

/// How a block was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Its stripe was never written: zeros.
    Unwritten,
    /// Read where it lies.
    Direct,
    /// Read from the stripe intent log: it was on its way when the array was not stopped.
    FromLog,
    /// Computed from the rest of its row.
    Reconstructed,
    /// Computed from the rest of its row, for what lies in its place is not what was written there.
    Repaired,
    /// Computed in a stripe that was being written when the array was not stopped: may be wrong.
    InDoubt,
    /// From a member that lost a part of what it held, without a checksum: may be wrong.
    Unproven,
    /// From a member that the operator put into its slot: may be old.
    ByHand,
}

/// A block that cannot be read: more of its row is missing than parity can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A block and how it was come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub bytes: [u8; BLOCK],
    /// How.
    pub how: How,
}

/// A block of a strip, and whether it is the log that has it.
#[derive(Clone)]
pub(crate) struct Cell {
    pub(crate) bytes: [u8; BLOCK],
    pub(crate) from_log: bool,
}

impl<I: ReadAt> Salvage<I> {
    /// Block `number` of the volume, of 4 KiB.
    ///
    /// # Errors
    /// If it is lost, or lies beyond the end of the volume.
    pub fn read_block(&self, number: u64) -> Result<Found, Lost> {
        if number >= self.geometry().volume_blocks() {
            return Err(Lost);
        }
        let place = self.geometry().place(number);
        if !self.is_written(place.stripe) {
            return Ok(Found { bytes: [0; BLOCK], how: How::Unwritten });
        }
        if let Some(cell) = self.cell(place.stripe, place.strip, place.block, Trust::Proven) {
            let how = if cell.from_log { How::FromLog } else { How::Direct };
            return Ok(Found { bytes: cell.bytes, how });
        }
        if let Some(known) = self.known_of_wrong(place, Trust::Proven) {
            return self.repaired(place, known);
        }
        if let Some(bytes) = self.reconstructed(place, Trust::Proven) {
            let doubt = self.is_in_flight(place.stripe)
                || self.overlay.is_in_doubt(place.stripe, place.block);
            if !doubt || self.geometry().k() == 1 {
                return Ok(Found { bytes, how: How::Reconstructed });
            }
            // What lies in its place is better, even if its member lost an end.
            let direct = self.cell(place.stripe, place.strip, place.block, Trust::Damaged);
            return Ok(match direct {
                Some(cell) => Found { bytes: cell.bytes, how: How::Unproven },
                None => Found { bytes, how: How::InDoubt },
            });
        }
        self.last_resorts().find_map(|trust| self.unproven(place, trust)).ok_or(Lost)
    }

    /// How far to trust where the proven members do not suffice, step by step.
    fn last_resorts(&self) -> impl Iterator<Item = Trust> {
        let is_there = |trust: Trust| {
            trust == Trust::ByHand || self.sources.iter().flatten().any(|it| it.trust == trust)
        };
        [Trust::Damaged, Trust::Doubtful, Trust::ByHand].into_iter().filter(move |it| is_there(*it))
    }

    /// A block as members say that are trusted so far.
    fn unproven(&self, place: Place, trust: Trust) -> Option<Found> {
        let direct = self.cell(place.stripe, place.strip, place.block, trust);
        let direct = direct.map(|cell| cell.bytes);
        let bytes = direct.or_else(|| self.reconstructed(place, trust))?;
        let how = if trust == Trust::ByHand { How::ByHand } else { How::Unproven };
        Some(Found { bytes, how })
    }

    /// A whole data strip into `strip_bytes` of `buffer`, with the fate of each of its blocks. Lost
    /// blocks are zeros in the buffer.
    ///
    /// # Panics
    /// If the buffer is not as long as a strip.
    pub fn read_strip(
        &self,
        stripe: u64,
        strip: usize,
        buffer: &mut [u8],
    ) -> Vec<Result<How, Lost>> {
        let geometry = self.geometry();
        assert!(buffer.len() == index(geometry.strip_bytes), "a buffer of one strip");
        let blocks = index(geometry.strip_blocks());
        let at = self.strip_place(stripe, strip);
        let source = at.and_then(|at| Some((at, self.sources[at.slot].first()?)));
        if let Some((at, source)) =
            source.filter(|(_, it)| it.trust == Trust::Proven && stripe < it.until_stripe)
            && self.sums.is_none()
            && self.is_written(stripe)
            && !self.overlay.touches(stripe)
            && self.images[source.image].read_at(self.offset(at.first_block), buffer).is_ok()
        {
            return vec![Ok(How::Direct); blocks];
        }
        let first = geometry.first_block(stripe, strip);
        let parts = buffer.chunks_exact_mut(BLOCK);
        (first..)
            .zip(parts)
            .map(|(number, part)| {
                let found = self.read_block(number);
                part.copy_from_slice(found.as_ref().map_or(&[0; BLOCK], |found| &found.bytes));
                found.map(|found| found.how)
            })
            .collect()
    }

    /// Byte offset on a member of block `number` of its data area.
    fn offset(&self, number: u64) -> u64 {
        self.superblock().data.offset + number * BLOCK_BYTES
    }

    /// One block of one strip of a stripe, data or parity, as its member has it or is to have it: a
    /// member that is trusted so far, or one whose checksum proves it.
    pub(crate) fn cell(&self, stripe: u64, strip: usize, block: u64, ask: Trust) -> Option<Cell> {
        let (slot, number) = self.address(stripe, strip, block)?;
        let may = |source: &&Source| {
            let is_behind = self.overlay.is_unproven(source.image, stripe, block);
            stripe < source.until_stripe
                && (ask == Trust::ByHand || !is_behind)
                && (source.trust <= ask || source.is_proven_by_sums)
        };
        self.sources[slot].iter().filter(may).find_map(|source| {
            let logged = self.overlay.cell(source.image, stripe, block);
            let offset = logged.unwrap_or_else(|| self.offset(number));
            let mut bytes = [0; BLOCK];
            self.images[source.image].read_at(offset, &mut bytes).ok()?;
            let is_free = logged.is_some() || self.overlay.is_in_doubt(stripe, block);
            let is_right = match source.trust <= ask {
                true => is_free || self.is_right(source, slot, number, &bytes),
                false => {
                    !is_free && self.known(source, number) == Some(sum_of(slot, number, &bytes))
                }
            };
            is_right.then_some(Cell { bytes, from_log: logged.is_some() })
        })
    }

    /// Whether nothing is known that says otherwise. Rows in doubt after a crash may be newer than
    /// what is known of them: do not ask for those.
    fn is_right(&self, source: &Source, slot: usize, number: u64, bytes: &[u8]) -> bool {
        let known = self.known(source, number);
        known.is_none_or(|known| known == sum_of(slot, number, bytes))
    }

    fn known(&self, source: &Source, number: u64) -> Option<u32> {
        self.sums.as_ref()?.known(source.image, &self.images[source.image], number)
    }

    /// The slot of a block, and its number in the data area there; `None` if it is lost.
    fn address(&self, stripe: u64, strip: usize, block: u64) -> Option<(usize, u64)> {
        let at = self.strip_place(stripe, strip)?;
        Some((at.slot, at.first_block + block))
    }

    /// What is known of a block whose member, trusted so far, gives back something else.
    pub(crate) fn known_of_wrong(&self, place: Place, trust: Trust) -> Option<u32> {
        self.sums.as_ref()?;
        let Place { stripe, strip, block } = place;
        let (slot, number) = self.address(stripe, strip, block)?;
        let source = self.trusted(slot, stripe, trust)?;
        let mut bytes = [0; BLOCK];
        self.images[source.image].read_at(self.offset(number), &mut bytes).ok()?;
        let is_logged = self.overlay.cell(source.image, stripe, block).is_some();
        let is_wrong = !is_logged
            && !self.overlay.is_in_doubt(stripe, block)
            && !self.is_right(source, slot, number, &bytes);
        is_wrong.then(|| self.known(source, number)).flatten()
    }

    /// The best source of a slot, if it is trusted so far.
    fn trusted(&self, slot: usize, stripe: u64, trust: Trust) -> Option<&Source> {
        let mut sources = self.sources[slot].iter();
        sources.find(|it| it.trust <= trust && stripe < it.until_stripe)
    }

    /// A block that is wrong where it lies, as it follows from its row: if that is what is known of
    /// it, whoever was needed for it, or if it is what lies there after all, for then what is known
    /// is old.
    fn repaired(&self, place: Place, known: u32) -> Result<Found, Lost> {
        let (slot, number) = self.address(place.stripe, place.strip, place.block).ok_or(Lost)?;
        let is_known = |bytes: &[u8; BLOCK]| sum_of(slot, number, bytes) == known;
        let proven = self.reconstructed(place, Trust::Proven);
        let mut repaired = proven.filter(is_known);
        let mut more = self.last_resorts().filter(|trust| *trust < Trust::ByHand);
        while let (None, Some(trust)) = (repaired, more.next()) {
            repaired = self.reconstructed(place, trust).filter(is_known);
        }
        if let Some(bytes) = repaired {
            return Ok(Found { bytes, how: How::Repaired });
        }
        let source = self.trusted(slot, place.stripe, Trust::Proven).ok_or(Lost)?;
        let mut held = [0; BLOCK];
        let offset = self.offset(number);
        self.images[source.image].read_at(offset, &mut held).map_err(|_| Lost)?;
        if proven == Some(held) { Ok(Found { bytes: held, how: How::Direct }) } else { Err(Lost) }
    }

    fn reconstructed(&self, place: Place, ask: Trust) -> Option<[u8; BLOCK]> {
        let row = Row::read(self, place.stripe, place.block, ask);
        row.data(place.strip)
    }
}

/// One row of blocks of a stripe: data strips, then parity strips; `None` where a block is missing.
pub(crate) struct Row {
    pub(crate) k: usize,
    pub(crate) cells: Vec<Option<Cell>>,
}

impl Row {
    pub(crate) fn read<I: ReadAt>(from: &Salvage<I>, stripe: u64, block: u64, ask: Trust) -> Row {
        let (k, m) = (from.geometry().k(), from.geometry().m());
        Row { k, cells: (0..k + m).map(|strip| from.cell(stripe, strip, block, ask)).collect() }
    }

    /// Strips whose data block is missing.
    pub(crate) fn missing_data(&self) -> Vec<usize> {
        (0..self.k).filter(|strip| self.cells[*strip].is_none()).collect()
    }

    /// Parity strips whose block is here.
    pub(crate) fn parities(&self) -> Vec<usize> {
        (0..self.cells.len() - self.k).filter(|j| self.cells[self.k + j].is_some()).collect()
    }

    /// What parity `j` adds up to after all data that is here was taken out of it.
    pub(crate) fn remainder(&self, j: usize) -> Vec<u8> {
        let parity = self.cells[self.k + j].as_ref();
        let mut sum = parity.map_or_else(|| vec![0; BLOCK], |cell| cell.bytes.to_vec());
        for (i, cell) in self.cells[..self.k].iter().enumerate() {
            if let Some(cell) = cell {
                add_scaled(&mut sum, coefficient(j, i), &cell.bytes);
            }
        }
        sum
    }

    /// Solve for the missing data with the parities `using`.
    pub(crate) fn solve(&self, using: &[usize]) -> Option<Vec<Vec<u8>>> {
        let missing = self.missing_data();
        if using.len() < missing.len() {
            return None;
        }
        let equation = |j: &usize| Equation {
            factors: missing.iter().map(|i| coefficient(*j, *i)).collect(),
            sum: self.remainder(*j),
        };
        solve(using.iter().map(equation).collect(), missing.len())
    }

    /// Data strip `strip`, reconstructed if it is missing.
    fn data(&self, strip: usize) -> Option<[u8; BLOCK]> {
        let missing = self.missing_data();
        let mut parities = self.parities();
        parities.truncate(missing.len());
        let solved = self.solve(&parities)?;
        let at = missing.iter().position(|it| *it == strip)?;
        solved[at].as_slice().try_into().ok()
    }
}
