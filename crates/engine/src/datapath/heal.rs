//! Decodes wrong or unreadable blocks from right ones, and stores them anew.
//!
//! What must stay true: a row is decoded only from blocks that match their checksums under the
//! rows' exclusive lock. A decoded block is stored only if one of these holds:
//! - it has the known checksum;
//! - no checksum of it is known;
//! - the known checksum may be old: the media did not return the newer page, and the entry was not
//!   set since.
//!
//! A block without a known checksum is a source only if another block of its row proves it: the
//! block that follows from it has its known checksum. If the decoded block equals the block on the
//! device, the table is wrong, because a write of its page was lost. In all other cases nothing is
//! proven and nothing is changed.
//!
//! The caller holds the rows' lock, exclusively. Nothing here takes buffers of a pool, because
//! callers may hold some.

use crate::blame::read_failed;
use crate::canary::{Canary, sings};
use crate::checksums::page::Key;
use crate::checksums::pins::{Noted, note_alone};
use crate::checksums::{Judgement, judge, load, sum_of};
use crate::datapath::reconstruct::write_back;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::slot::{DeviceEpoch, MemberDevice};
use crate::stripe::StripRun;
use ashlar_device::{Command, FaultKind, Outcome};
use ashlar_iobuf::BufMut;
use ashlar_layout::{RowRange, Stripe};
use ashlar_ondisk::checksums::{UNKNOWN, locate};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, MemberIdx, StripIdx, StripSet};
use std::rc::Rc;

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Healed {
    /// Blocks that did not match their checksums.
    pub(crate) mismatches: u64,
    /// Blocks stored anew.
    pub(crate) repaired: u64,
    /// Blocks that nothing can be proven about, by strip and row.
    pub(crate) lost: Vec<(StripIdx, u32)>,
    /// Strips with a block that is known and could not be stored.
    pub(crate) unstored: StripSet,
}

impl Healed {
    /// Strips that are still not to be read.
    pub(crate) fn unusable(&self) -> StripSet {
        self.lost.iter().fold(self.unstored, |all, (strip, _)| all.with(*strip))
    }
}

/// A block of the row as its device holds it.
struct Block {
    strip: StripIdx,
    member: MemberIdx,
    device_epoch: DeviceEpoch,
    /// Of the device: it may have left its slot, and another may be there, by the time something is
    /// said of it.
    path: String,
    number: u64,
    /// The checksum that is known of it.
    known: u32,
    /// It may be that of an earlier content.
    may_be_old: bool,
    /// None if the medium does not give it back.
    bytes: Option<BufMut>,
    judgement: Judgement,
}

/// A strip and its block.
type Source<'a> = (StripIdx, &'a [u8]);

impl Block {
    fn as_source(&self) -> Option<Source<'_>> {
        Some((self.strip, self.bytes.as_deref()?))
    }
}

/// Put right what can be put right in these rows; `None` if the array keeps no checksums.
pub(crate) async fn heal(local: &Rc<LocalArray>, stripe: Stripe, rows: RowRange) -> Option<Healed> {
    local.array.checksums.as_ref()?;
    let mut healed = Healed::default();
    if !local.array.written.is_written(stripe) {
        // Trimmed meanwhile.
        return Some(healed);
    }
    for row in rows.start..rows.end {
        let blocks = read_row(local, stripe, row).await;
        let (mut good, bad): (Vec<Block>, Vec<Block>) =
            blocks.into_iter().partition(|block| block.judgement == Judgement::Right);
        let (vouched, bad) = vouched_for(local, stripe, &good, bad);
        for block in bad.iter().filter(|block| block.judgement == Judgement::Wrong) {
            healed.mismatches += 1;
            say_mismatch(local, stripe, block);
        }
        for block in &vouched {
            correct_table(local, block).await;
        }
        good.extend(vouched);
        let good: Vec<Source<'_>> = good.iter().filter_map(Block::as_source).collect();
        for block in bad {
            let strip = block.strip;
            match repair(local, stripe, row, &good, block).await {
                Repair::NotNeeded => {}
                Repair::Stored => healed.repaired += 1,
                Repair::NotStored => healed.unstored = healed.unstored.with(strip),
                Repair::Lost => healed.lost.push((strip, row)),
            }
        }
    }
    Some(healed)
}

/// Of a row that lacks too many right blocks, those of which nothing is known and which are right
/// all the same, and the other bad ones: what follows from them and the right ones has the checksum
/// that is known of another. Each block of a codeword depends on any k others, and on each of them.
fn vouched_for(
    local: &LocalArray,
    stripe: Stripe,
    good: &[Block],
    bad: Vec<Block>,
) -> (Vec<Block>, Vec<Block>) {
    let lacking = local.array.geometry_of(stripe).data_strips().saturating_sub(good.len());
    let is_nameless = |block: &&Block| block.known == UNKNOWN && block.bytes.is_some();
    let nameless: Vec<&Block> = bad.iter().filter(is_nameless).collect();
    if lacking == 0 || nameless.len() < lacking {
        return (Vec::new(), bad);
    }
    let right = nameless.windows(lacking).find(|some| {
        let all = good.iter().chain(some.iter().copied());
        let sources: Vec<Source<'_>> = all.filter_map(Block::as_source).collect();
        bad.iter().any(|other| follows(local, stripe, &sources, other))
    });
    let strips: StripSet = right.into_iter().flatten().map(|block| block.strip).collect();
    bad.into_iter().partition(|block| strips.contains(block.strip))
}

/// Whether `sources` are enough to say what the block should be, and its checksum, which cannot be
/// old, agrees.
fn follows(local: &LocalArray, stripe: Stripe, sources: &[Source<'_>], block: &Block) -> bool {
    let member = block.member;
    let is_known = block.known != UNKNOWN && !block.may_be_old;
    is_known
        && decode(local, stripe, sources, block.strip)
            .is_some_and(|decoded| block.known == sum_of(member, block.number, &decoded))
}

/// Every block of a row that may be read. Those on devices that failed are left out.
async fn read_row(local: &Rc<LocalArray>, stripe: Stripe, row: u32) -> Vec<Block> {
    let array = &local.array;
    let mut started = Vec::new();
    for strip in array.view(stripe).readable.iter() {
        let Some((member, offset)) = array.readable_place(stripe, strip, row) else { continue };
        let device_epoch = local.device_epochs(member).0;
        let read = Command::Read(BufMut::zeroed(BLOCK_BYTES_USIZE));
        let path = local.device(member).map(|device| device.facts().path.clone());
        if let Some(pending) = local.start(member, offset, read) {
            local.tally(member).begin_read(BLOCK_BYTES);
            let owner = MemberDevice { member, device_epoch };
            let number = (offset - array.data_offset) / BLOCK_BYTES;
            started.push((strip, owner, number, path.unwrap_or_default(), pending));
        }
    }
    let mut blocks = Vec::new();
    for (strip, owner, number, path, pending) in started {
        let outcome = pending.await;
        local.tally(owner.member).counters.completed.add(1);
        let bytes = match outcome {
            Some(Outcome { result: Ok(()), buffer }) => buffer,
            Some(Outcome { result: Err(fault), .. }) => {
                read_failed(local, owner, fault);
                if fault.kind != FaultKind::Media {
                    continue;
                }
                None
            }
            None => continue,
        };
        let (page, entry) = locate(number);
        let (known, may_be_old) = match load::load(local, Key::new(owner, page)).await {
            Ok(page) => (page.sum(entry), page.may_be_old(entry)),
            Err(fault) => {
                read_failed(local, owner, fault);
                continue;
            }
        };
        let judgement = match &bytes {
            Some(bytes) => judge(owner, number, bytes, known),
            None => Judgement::Unknown,
        };
        let device_epoch = owner.device_epoch;
        blocks.push(Block {
            strip,
            member: owner.member,
            device_epoch,
            path,
            number,
            known,
            may_be_old,
            bytes,
            judgement,
        });
    }
    blocks
}

/// What came of one bad block.
enum Repair {
    /// It is as it should be; the table was wrong.
    NotNeeded,
    /// Stored anew.
    Stored,
    /// Known, and could not be stored.
    NotStored,
    /// Nothing can be proven about it.
    Lost,
}

async fn repair(
    local: &Rc<LocalArray>,
    stripe: Stripe,
    row: u32,
    good: &[Source<'_>],
    block: Block,
) -> Repair {
    let strip = block.strip;
    let Some(decoded) = decode(local, stripe, good, strip) else {
        return Repair::Lost;
    };
    let member = block.member;
    let run = StripRun { stripe, strip, rows: RowRange::new(row, row + 1) };
    let is_proven = block.known == sum_of(member, block.number, &decoded);
    // Any copy of a mirror that matches its checksum is whole by itself.
    let is_codeword = local.array.view(stripe).is_parity_valid
        || local.array.geometry_of(stripe).data_strips() == 1;
    let is_held = block.bytes.as_ref().is_some_and(|bytes| bytes[..] == decoded[..]);
    if !is_proven && is_codeword && is_held {
        correct_table(local, &block).await;
        return Repair::NotNeeded;
    }
    let is_unknown = block.known == UNKNOWN || block.may_be_old;
    let may_be_stored = is_proven || is_codeword && is_unknown || sings(Canary::StoredUnproven);
    if !may_be_stored {
        return Repair::Lost;
    }
    let is_stored = sings(Canary::HealedNotStored)
        || !local.array.is_read_only() && write_back(local, run, &decoded).await;
    if is_stored { Repair::Stored } else { Repair::NotStored }
}

/// The block as it follows from others of its row that are right; `None` if they are too few.
fn decode(
    local: &LocalArray,
    stripe: Stripe,
    good: &[Source<'_>],
    strip: StripIdx,
) -> Option<BufMut> {
    let needed = local.array.geometry_of(stripe).data_strips();
    let present: StripSet = good.iter().map(|(strip, _)| *strip).collect();
    if present.count() < needed {
        return None;
    }
    let survivors = present.lowest(needed);
    let source = |strip| good.iter().find(|(it, _)| *it == strip).expect("it is present").1;
    let mut target = BufMut::zeroed(BLOCK_BYTES_USIZE);
    let plan = local.decode_plan(stripe, survivors, StripSet::only(strip));
    plan.run(source, &mut [&mut target[..]]);
    Some(target)
}

/// The block is what it should be: what was known of it is old, or nothing was known.
async fn correct_table(local: &Rc<LocalArray>, block: &Block) {
    let Some(bytes) = &block.bytes else { return };
    let mut content = BufMut::zeroed(bytes.len());
    content.copy_from_slice(bytes);
    local.counts().checksums_corrected.add(1);
    let owner = MemberDevice { member: block.member, device_epoch: block.device_epoch };
    // If the page cannot be had any more the block is looked at again another time.
    let _later = note_alone(local, Noted::new(owner, block.number, content.freeze())).await;
}

fn say_mismatch(local: &LocalArray, stripe: Stripe, block: &Block) {
    let array = &local.array;
    let member = block.member;
    local.tally(member).counters.checksum_mismatches.add(1);
    let offset = array.data_offset + block.number * ashlar_units::BLOCK_BYTES;
    let fields = vec![
        ("slot", member.to_string()),
        ("path", block.path.clone()),
        ("offset", offset.to_string()),
        ("stripe", stripe.to_string()),
    ];
    array.record(names::MEMBER_CHECKSUM_MISMATCH, fields);
}
