//! Commands of requests that are under way on members, and on which of a slot's devices.
//!
//! What must stay true: a command names its device by slot and device epoch, so that its outcome
//! never counts for or against another device of the slot. Not here: how commands start
//! (`local_array.rs`), what their outcome means (`datapath`, `blame.rs`).

use crate::local_array::LocalArray;
use crate::slot::{MemberDevice, WriteTarget};
use crate::stripe::work::Answer;
use ashlar_device::Outcome;
use ashlar_iobuf::{Buf, BufMut};
use ashlar_layout::{StripIo, Stripe};
use ashlar_ring::Pending;
use ashlar_units::{Extent, Nanos, StripIdx};
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
#[derive(Clone, Copy)]
pub(crate) struct Began {
    pub(crate) at: Nanos,
    pub(crate) offset: u64,
    /// Of where strips are.
    pub(crate) version: u64,
    /// The device that it goes to. By now its strip may be elsewhere.
    pub(crate) device: MemberDevice,
}

/// A member's read that somebody waits for. It counts as completed when this drops, so also when a
/// client leaves in the middle.
pub(crate) struct Awaited {
    local: Rc<LocalArray>,
    pub(crate) began: Began,
}

impl Awaited {
    /// A read that has begun.
    pub(crate) fn new(local: &Rc<LocalArray>, began: Began) -> Awaited {
        Awaited { local: Rc::clone(local), began }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.local.tally(self.began.device.member).counters.completed.add(1);
    }
}

/// What a read brought, if it went well and is not in doubt. Else its outcome, or `None` if it is
/// late.
pub(crate) type Brought = Result<BufMut, Option<Option<Outcome>>>;

/// A part of a read that was started and is not done.
pub(crate) enum Started {
    /// On its way from a member.
    Straight(StripPart, Awaited, Pending<Outcome>),
    /// Its member answered within the call that started it. What it brought may not be right.
    Answered(StripPart, Began, Brought),
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
