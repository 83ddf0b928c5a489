//! The walk over the volume: each stripe is read, handed to the target, and checked if that was
//! asked for.
//!
//! What must stay true: every byte of the volume is handed over once, in order, and counted under
//! one heading.

use super::target::Target;
use crate::fault::Fault;
use ashlar_salvage::{FileImage, How, Lost, Run, RunState, Salvage, StripeCheck};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::ops::Range;

const BLOCK_BYTES: u64 = 4096;
/// Extents and disagreements that are listed; beyond that they are only counted.
const LISTED_MAX: usize = 100_000;

/// Bytes of the volume that share a fate, as ranges.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pub list: Vec<Range<u64>>,
    pub bytes: u64,
    /// Ranges that did not fit into the list.
    pub unlisted: u64,
}

impl Extents {
    fn add(&mut self, range: Range<u64>) {
        self.bytes += range.end - range.start;
        if let Some(last) = self.list.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
        } else if self.list.len() < LISTED_MAX {
            self.list.push(range);
        } else {
            self.unlisted += 1;
        }
    }
}

/// Stripes whose redundancy disagrees with their data in the same way.
#[derive(Clone, Debug)]
pub struct Disagreement {
    pub stripes: Range<u64>,
    pub parities: Vec<usize>,
    /// The slot that alone explains it.
    pub suspect_slot: Option<usize>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes by how they were come by.
    pub bytes_by_how: BTreeMap<How, u64>,
    pub lost: Extents,
    pub in_doubt: Extents,
    pub unproven: Extents,
    pub by_hand: Extents,
    /// Filled if redundancy was compared.
    pub verified: Option<Verified>,
}

/// What comparing found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    pub rows_compared: u64,
    pub rows_bare: u64,
    pub stripes_disagreeing: u64,
    pub disagreements: Vec<Disagreement>,
}

pub fn run(
    salvage: &Salvage<FileImage>,
    target: &mut Target,
    verify: bool,
) -> Result<Outcome, Fault> {
    let mut walk = Walk { salvage, outcome: Outcome::default() };
    walk.outcome.verified = verify.then(Verified::default);
    let bar = bar(salvage.geometry().stripes());
    let mut stripe = 0;
    while let Some(Run { stripes, state }) = salvage.run_from(stripe) {
        stripe = stripes.end;
        match state {
            RunState::Written => {
                for stripe in stripes {
                    walk.copy_stripe(stripe, target)?;
                    walk.check_stripe(stripe);
                    bar.set_position(stripe);
                }
            }
            RunState::Unwritten => {
                let range = walk.bytes_of(&stripes);
                target.zeros(range.start, range.end - range.start)?;
                walk.count(range, Ok(How::Unwritten));
            }
            RunState::OutOfReach => {
                let range = walk.bytes_of(&stripes);
                target.lost(range.start, range.end - range.start)?;
                walk.count(range, Err(Lost));
            }
        }
    }
    bar.finish_and_clear();
    target.finish()?;
    Ok(walk.outcome)
}

/// On stderr, and only if that is a terminal.
fn bar(stripes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} %  left {eta}");
    ProgressBar::new(stripes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

struct Walk<'a> {
    salvage: &'a Salvage<FileImage>,
    outcome: Outcome,
}

impl Walk<'_> {
    fn bytes_of(&self, stripes: &Range<u64>) -> Range<u64> {
        let stripe_bytes = self.salvage.geometry().stripe_blocks() * BLOCK_BYTES;
        stripes.start * stripe_bytes..stripes.end * stripe_bytes
    }

    fn count(&mut self, range: Range<u64>, fate: Result<How, Lost>) {
        match fate {
            Err(Lost) => return self.outcome.lost.add(range),
            Ok(How::InDoubt) => self.outcome.in_doubt.add(range.clone()),
            Ok(How::Unproven) => self.outcome.unproven.add(range.clone()),
            Ok(How::ByHand) => self.outcome.by_hand.add(range.clone()),
            Ok(_) => {}
        }
        if let Ok(how) = fate {
            *self.outcome.bytes_by_how.entry(how).or_default() += range.end - range.start;
        }
    }

    fn copy_stripe(&mut self, stripe: u64, target: &mut Target) -> Result<(), Fault> {
        let geometry = self.salvage.geometry();
        let mut buffer = vec![0; usize::try_from(geometry.strip_bytes).unwrap_or(0)];
        for strip in 0..geometry.k() {
            let start = geometry.first_block(stripe, strip) * BLOCK_BYTES;
            let fates = self.salvage.read_strip(stripe, strip, &mut buffer);
            let mut done = 0;
            for same in fates.chunk_by(|one, other| one == other) {
                let bytes = &buffer[done * 4096..(done + same.len()) * 4096];
                let from = start + u64::try_from(done).unwrap_or(0) * BLOCK_BYTES;
                let range = from..from + u64::try_from(bytes.len()).unwrap_or(0);
                match same[0] {
                    Ok(_) => target.write(from, bytes)?,
                    Err(Lost) => target.lost(from, range.end - from)?,
                }
                self.count(range, same[0]);
                done += same.len();
            }
        }
        Ok(())
    }

    fn check_stripe(&mut self, stripe: u64) {
        let Some(verified) = &mut self.outcome.verified else { return };
        let check = self.salvage.check_stripe(stripe);
        verified.rows_compared += check.rows_compared;
        verified.rows_bare += check.rows_bare;
        if check.agrees() {
            return;
        }
        verified.stripes_disagreeing += 1;
        let slot = |strip| self.salvage.geometry().strip_place(stripe, strip).slot;
        let parities = disagreeing(&check);
        let suspect_slot = check.suspect.map(slot);
        if let Some(last) = verified.disagreements.last_mut()
            && last.stripes.end == stripe
            && last.parities == parities
            && last.suspect_slot == suspect_slot
        {
            last.stripes.end = stripe + 1;
        } else if verified.disagreements.len() < LISTED_MAX {
            let stripes = stripe..stripe + 1;
            verified.disagreements.push(Disagreement { stripes, parities, suspect_slot });
        }
    }
}

fn disagreeing(check: &StripeCheck) -> Vec<usize> {
    let numbered = check.rows_disagreeing.iter().enumerate();
    numbered.filter(|(_, rows)| **rows > 0).map(|(parity, _)| parity).collect()
}
