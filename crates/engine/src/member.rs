//! The states of a member slot, and the one function that changes them.
//!
//! What must stay true: a slot is read only in `InSync`, or below its rebuilt point while it
//! rebuilds. It is written in `InSync` and `Rebuilding`. `Failing` means: no request uses the slot
//! any more, but the other members do not say so yet. So no write that left it out may be
//! acknowledged.

use std::fmt;

/// What the engine may do with a slot right now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SlotState {
    /// Holds everything: read and written.
    InSync = 0,
    /// A device is being filled: written always, read below the rebuilt point.
    Rebuilding = 1,
    /// Out, and that is not yet recorded on the others.
    Failing = 2,
    /// Out, recorded on the others; or never there.
    Out = 3,
}

/// What happens to a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotEvent {
    /// A write or flush failed, the device is gone, or the operator says so.
    Fault,
    /// The surviving members have recorded that the slot is out.
    OutRecorded,
    /// A device was put in and the members have recorded that.
    DeviceJoined,
    /// The device holds everything and the members have recorded that.
    RebuildRecorded,
}

/// An event that makes no sense in a state: a bug in the caller, returned so that it can be
/// reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("slot cannot take {event:?} while {state:?}")]
pub struct BadTransition {
    /// State of the slot.
    pub state: SlotState,
    /// What was to happen.
    pub event: SlotEvent,
}

impl SlotState {
    /// The state after `event`.
    ///
    /// # Errors
    /// [`BadTransition`] where the event makes no sense.
    pub fn next(self, event: SlotEvent) -> Result<SlotState, BadTransition> {
        use SlotEvent::{DeviceJoined, Fault, OutRecorded, RebuildRecorded};
        use SlotState::{Failing, InSync, Out, Rebuilding};
        match (self, event) {
            (InSync | Rebuilding | Failing, Fault) => Ok(Failing),
            (Failing, OutRecorded) => Ok(Out),
            (Out, DeviceJoined) => Ok(Rebuilding),
            (Rebuilding, RebuildRecorded) => Ok(InSync),
            (Out, Fault) => Ok(Out),
            (state, event) => Err(BadTransition { state, event }),
        }
    }

    /// From its number in an atomic.
    pub(crate) fn from_u8(code: u8) -> SlotState {
        match code {
            0 => SlotState::InSync,
            1 => SlotState::Rebuilding,
            2 => SlotState::Failing,
            3 => SlotState::Out,
            other => unreachable!("slot state {other} is never stored"),
        }
    }

    /// The word for people and metrics.
    pub fn word(self) -> &'static str {
        match self {
            SlotState::InSync => "in sync",
            SlotState::Rebuilding => "rebuilding",
            SlotState::Failing => "failing",
            SlotState::Out => "out",
        }
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::SlotEvent::{self, DeviceJoined, Fault, OutRecorded, RebuildRecorded};
    use super::SlotState::{self, Failing, InSync, Out, Rebuilding};

    #[test]
    fn the_whole_table_is_as_documented() {
        // Rows: states. Columns: Fault, OutRecorded, DeviceJoined, RebuildRecorded.
        let events: [SlotEvent; 4] = [Fault, OutRecorded, DeviceJoined, RebuildRecorded];
        let table: [(SlotState, [Option<SlotState>; 4]); 4] = [
            (InSync, [Some(Failing), None, None, None]),
            (Rebuilding, [Some(Failing), None, None, Some(InSync)]),
            (Failing, [Some(Failing), Some(Out), None, None]),
            (Out, [Some(Out), None, Some(Rebuilding), None]),
        ];
        for (state, row) in table {
            for (event, wanted) in events.into_iter().zip(row) {
                assert_eq!(state.next(event).ok(), wanted, "{state:?} x {event:?}");
            }
        }
    }

    #[test]
    fn codes_come_back() {
        for state in [InSync, Rebuilding, Failing, Out] {
            assert_eq!(SlotState::from_u8(state as u8), state);
        }
    }
}
