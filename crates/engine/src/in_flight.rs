//! Commands of requests that are under way on members, and on which of a slot's devices.
//!
//! What must stay true: a command names its device by slot and device epoch, so that its outcome
//! never counts for or against another device of the slot. Not here: how commands start
//! (`local_array.rs`), what their outcome means (`datapath`, `blame.rs`).

use crate::local_array::LocalArray;
use crate::slot::WriteTarget;
use crate::slot::{DeviceEpoch, MemberDevice};
use crate::stripe::work::Answer;
use ashlar_device::Outcome;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{StripIo, Stripe};
use ashlar_ring::Pending;
use ashlar_units::{Extent, MemberIdx, Nanos, StripIdx};
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// One write under way; what it writes and where, unless somebody else sees to its end.
pub(crate) type StoreWrite = (WriteTarget, Pending<Outcome>, Option<(u64, Buf)>);

/// One read of a gather: under way, or not to be had.
pub(crate) type GatherRead = (StripIo, Option<MemberRead>);

/// A read under way, and on which of the slot's devices.
pub(crate) struct MemberRead {
    pub(crate) device: MemberDevice,
    /// Bytes from the device's start.
    pub(crate) offset: u64,
    pub(crate) began: Nanos,
    pub(crate) pending: Pending<Outcome>,
}

/// A part of a read that lies in one strip. `extent` is bytes within the strip.
#[derive(Clone, Copy)]
pub(crate) struct StripPart {
    pub(crate) stripe: Stripe,
    pub(crate) strip: StripIdx,
    pub(crate) extent: Extent,
}

/// When a read began, on which of the slot's devices, and where: bytes from the member's start.
pub(crate) struct Began {
    pub(crate) at: Nanos,
    pub(crate) offset: u64,
    /// Of where strips are.
    pub(crate) version: u64,
    pub(crate) device_epoch: DeviceEpoch,
    pub(crate) awaited: Awaited,
}

impl Began {
    /// The member that it goes to. By now its strip may be elsewhere.
    pub(crate) fn member(&self) -> MemberIdx {
        self.awaited.member
    }

    /// The device that it goes to.
    pub(crate) fn device(&self) -> MemberDevice {
        MemberDevice { member: self.member(), device_epoch: self.device_epoch }
    }
}

/// A member's command that somebody waits for. It counts as completed when this drops, so also when
/// a client leaves in the middle.
pub(crate) struct Awaited {
    pub(crate) local: Rc<LocalArray>,
    pub(crate) member: MemberIdx,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.local.tally(self.member).counters.completed.add(1);
    }
}

/// A part of a read that was started.
pub(crate) enum Started {
    /// Nothing to wait for: never written.
    Zeros(BufMut),
    /// On its way from a member.
    Straight(StripPart, Began, Pending<Outcome>),
    /// At the stripe's owner.
    Reconstructing(Pending<Answer>),
}

/// A part of a longer read, on its way to being done.
pub(crate) enum ReadPart {
    /// Under way.
    Under(Started),
    /// Being waited for.
    Taken,
    /// Ended.
    Done(Result<BufMut, VolumeErrorKind>),
}
