//! From the superblocks of many devices to one verdict: which member fills which slot, and whether
//! the array may start. Pure judgement, no I/O: the same readings give the same verdict everywhere.
//!
//! What must stay true: fail closed. When the readings do not prove one coherent array, the verdict
//! is a refusal of one line that says what happened, to what, what is still safe and what to do
//! next.
//!
//! - `reading`: what was read from each device, and what the operator asks for
//! - `verdict`: the answer
//! - `judge`: the rules, in order
//! - `split_brain`: finding members that lived on separately
//! - `behind`: members that lack the last updates and no data
//! - `older`: finding devices that are older copies of members
//! - `refusal`: the lines for people

mod behind;
mod judge;
mod older;
mod reading;
mod refusal;
mod split_brain;
mod verdict;

pub use judge::{arrays, assemble};
pub use reading::{
    ArrayChoice, AssemblyRequest, FoundArray, MemberReading, ReadLabel, recorded_sizes,
};
pub use split_brain::has_only_missed;
pub use verdict::{
    Extra, ExtraReason, JoiningDevice, ReadOnlyReason, Refusal, RefusalKind, SlotState,
    SlotVerdict, Start, Taken, Verdict,
};
