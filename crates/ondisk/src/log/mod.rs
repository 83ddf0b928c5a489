//! The stripe intent log: the contents of a member's log area, and its judgement at a restart.
//!
//! The rules are in docs/on-disk-format.md (Stripe intent log), the reasons in
//! docs/adr/0008-stripe-intent-log.md. The writer is in the engine.
//!
//! If the writer breaks one of these rules, a restart judges wrongly:
//! 1. Nothing of an update goes in place before its record is durable on every holder. Before that,
//!    every member that lacks the record is also recorded as out on the others.
//! 2. All updates of a stripe are in one log ring. Of two that share rows the later has the higher
//!    sequence and is planned after the earlier has gone in place. If an update's record is durable
//!    on all its holders but the update does not go in place, the next update of its rows must
//!    write the same blocks, too.
//! 3. Updates below `settled_below` are durable in place: written, then flushed on all members.
//! 4. **Space on a device is used again only for updates below a `settled_below` in a whole batch
//!    on that same device, and this batch is not overwritten.** Its newest batch will do; if none
//!    says enough, one without records goes first. Otherwise the write that reuses the space may be
//!    torn. Then the device lacks a record of a settled update, nothing on it says why, and an
//!    older update of the row, still whole on others, is rolled forward over it.
//! 5. No number is used twice: sequences of updates rise in a log ring as long as the incarnation
//!    lasts.
//! 6. A write that a client was promised as durable (flush, FUA) is durable in place, not in the
//!    log. A record of rows in doubt outdates older ones, whose blocks may then exist nowhere else.
//! 7. A parity-only record is of one block. Its device is in service, is not being replaced, and
//!    writes the block whole or not at all. Parity goes in place only after the block is durable
//!    there, or its device is recorded as out.
//!
//! In reading order:
//! - `record`: one record
//! - `batch`: the records of one write, encode and decode
//! - `scan`: the batches of a log area, found piece by piece
//! - `show`: the log of one member, for people
//! - `updates`: the records of all devices, put together
//! - `judge`: what follows from them; `rows`: a set of rows

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
pub use updates::{Contradiction, DeviceLog, Places};
