//! Why a start came to nothing after it had begun to write.
//!
//! What must stay true: what happened, what is safe, and what to do next are in one line.

use crate::array::Array;
use crate::coordinator::messages::ArrayLost;
use crate::error::Refusal;

pub(super) fn not_recorded(array: &Array, lost: ArrayLost) -> Refusal {
    Refusal::new(
        "array.not_started",
        format!("the start of array '{}' could not be recorded: {lost}", array.name()),
        "check the members with `ashlar examine`",
    )
}

/// Why a start that met members without room was refused.
pub(super) fn no_room(array: &Array) -> Option<Refusal> {
    let slots: Vec<String> = array.room.full().iter().map(ToString::to_string).collect();
    array.room.is_given_up().then(|| {
        let (name, slots) = (array.name(), slots.join(", "));
        Refusal::new(
            "array.no_room",
            format!(
                "array '{name}' was not started: no space under slots {slots}; nothing is lost"
            ),
            "make room where these members lie, and run the command again",
        )
    })
}
