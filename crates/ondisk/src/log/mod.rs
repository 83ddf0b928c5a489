//! The stripe intent log: what lies in a member's log area, and what a restart makes of it.
//!
//! The rules are in docs/on-disk-format.md (Stripe intent log), the reasons in
//! docs/adr/0008-stripe-intent-log.md. The writer is in the engine.
//!
//! What the writer must keep, or a restart judges wrongly:
//! 1. Nothing of an update goes in place before its record is durable on every holder, and before
//!    every member that would be believed later and lacks the record is recorded as out on the
//!    others.
//! 2. All updates of a stripe are in one log ring, and of two that share rows the later has the
//!    higher sequence and is planned after the earlier has gone in place. An update whose record is
//!    durable on all its holders but which does not go in place must not be followed by another of
//!    its rows, unless that one writes the same blocks, too.
//! 3. `settled_below` says what is durable in place: written, then flushed on all members.
//! 4. **Space on a device is used again only for updates below a `settled_below` that a whole batch
//!    on that same device says, and this batch is not among what is overwritten.** Its newest batch
//!    will do; if none says enough, one without records goes first. Otherwise the write that reuses
//!    the space may be torn, the device then lacks a record of a settled update and nothing on it
//!    says why, and an older update of the row, still whole on others, is rolled forward over it.
//! 5. No number is used twice: sequences of updates rise in a log ring as long as the incarnation
//!    lasts.
//! 6. What a client was promised as durable (flush, FUA) is durable in place, not in the log: a
//!    record of rows in doubt outdates older ones, whose blocks may then be had from nowhere else.
//! 7. A parity-only record is of one block whose device, in service and not being replaced, writes
//!    it whole or not at all; parity goes in place only after the block is durable there, or its
//!    device is recorded as out.
//!
//! In reading order:
//! - `record`: what one record says
//! - `batch`: the records of one write, encode and decode
//! - `scan`: the batches of a log area, found piece by piece
//! - `show`: the log of one member, for people
//! - `updates`: the records of all devices, put together
//! - `judge`: what they add up to; `rows`: a set of rows

mod batch;
mod judge;
mod record;
mod rows;
mod scan;
mod show;
mod updates;

pub use batch::{Batch, BatchEncoder, BatchFault, BatchHead, HeaderEncoder, LogIdentity};
pub use judge::{
    ChangedBlock, Found, FoundBlock, Judgement, LostBlock, ReplayTally, ReplayWrite, StripeReplay,
    changed_blocks, judge,
};
pub use record::{
    BlockChange, Holder, LogLimits, NewRecord, Part, Record, RecordKind, block_checksum,
};
pub use scan::{
    BATCHES_IN_FLIGHT_MAX, LogHole, LogRingSummary, LogScan, LoggedRecord, MemberLog,
    SCAN_BYTES_MAX,
};
pub use updates::{Contradiction, DeviceLog};
