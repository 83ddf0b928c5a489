//! What a device says it is: both ends of it, with the copies of its superblock.
//!
//! What must stay true: it only reads. A device that grew has copies 2 and 3 where it ended before:
//! its superblock says where that was, or what the others record of the members' sizes.

use crate::control_io;
use crate::worker::Worker;
use ashlar_device::{Device, Fault};
use ashlar_iobuf::BufMut;
use ashlar_ondisk::examine::{
    examine_ranges, grown_from, has_only_ours, recorded_tail, split_copies,
};
use ashlar_ondisk::{Choice, SuperblockCopies};
use std::collections::BTreeSet;

/// Both ends, as far as they could be read.
pub(crate) struct ReadEnds {
    /// The first bytes: superblock copies 0 and 1, heartbeat, flush marks, drive pages.
    pub(crate) head: Option<BufMut>,
    /// What the copies add up to.
    pub(crate) choice: Choice,
    /// Nobody else has written at either end of the device.
    pub(crate) has_only_ours: bool,
    /// What a read of an end came to, if it failed.
    pub(crate) fault: Option<Fault>,
}

/// Ends that are being read. A caller with many devices starts all before it waits for the first.
pub(crate) struct EndsRead {
    ranges: Option<[control_io::ControlRead; 2]>,
}

impl EndsRead {
    pub(crate) fn start(worker: &Worker, device: &dyn Device) -> EndsRead {
        let ranges = examine_ranges(device.facts().size_bytes);
        let start = |extent| control_io::start_read(worker, device, extent);
        EndsRead { ranges: ranges.map(|ranges| ranges.map(start)) }
    }

    /// The ends of `device`, the one that it was started with.
    pub(crate) async fn finish(self, worker: &Worker, device: &dyn Device) -> ReadEnds {
        let (mut head, mut tail, mut fault) = (None, None, None);
        if let Some([head_read, tail_read]) = self.ranges {
            // A range that cannot be read counts as lost copies: the judgement weighs that.
            let (head_end, tail_end) = (head_read.finish().await, tail_read.finish().await);
            fault = head_end.as_ref().err().or(tail_end.as_ref().err()).copied();
            (head, tail) = (head_end.ok(), tail_end.ok());
        }
        let choice = chosen(head.as_ref(), tail.as_ref());
        let has_only_ours = has_only_ours(head.as_deref(), tail.as_deref());
        let ends = ReadEnds { head, choice, has_only_ours, fault };
        match recorded_tail(&ends.choice, device.facts().size_bytes) {
            None => ends,
            Some(recorded) => {
                let tail = control_io::read(worker, device, recorded).await.ok();
                let choice = chosen(ends.head.as_ref(), tail.as_ref());
                // What lies at its end is not ours.
                ReadEnds { choice, has_only_ours: false, ..ends }
            }
        }
    }
}

impl ReadEnds {
    pub(crate) async fn read(worker: &Worker, device: &dyn Device) -> ReadEnds {
        EndsRead::start(worker, device).finish(worker, device).await
    }

    /// Of a device whose ends tell nothing: perhaps its head is damaged, and it grew from one of
    /// these `sizes`. If it was a member before it grew, and again since, what it was then lies at
    /// the smaller size: the largest that tells something counts.
    pub(crate) async fn look_before(
        &mut self,
        worker: &Worker,
        device: &dyn Device,
        sizes: &BTreeSet<u64>,
    ) {
        for recorded in sizes.iter().rev().copied() {
            if self.choice.newest.is_some() || self.choice.unsupported().is_some() {
                return;
            }
            let Some(extent) = grown_from(recorded, device.facts().size_bytes) else { continue };
            let tail = control_io::read(worker, device, extent).await.ok();
            let choice = chosen(self.head.as_ref(), tail.as_ref());
            if choice.newest.as_ref().is_some_and(|label| label.member_bytes() == recorded) {
                self.choice = choice;
            }
        }
    }
}

fn chosen(head: Option<&BufMut>, tail: Option<&BufMut>) -> Choice {
    SuperblockCopies::choose(&split_copies(head.map(|it| &**it), tail.map(|it| &**it)))
}
