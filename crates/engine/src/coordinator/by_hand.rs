//! A member goes out of service because the operator says so.

use super::take_out_alone;
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::watch;
use ashlar_units::MemberIdx;
use std::rc::Rc;

/// The reason that an operator needs not give.
const BY_HAND: &str = "put out by the operator";

/// Put a member out of service because the operator says so. Nothing is wrong with the array if
/// that cannot be: no event is recorded.
///
/// # Errors
/// If the group cannot do without the member, or the others could not be told.
pub(crate) async fn take_out(local: &Rc<LocalArray>, member: MemberIdx) -> Result<(), Refusal> {
    let (array, name) = (&local.array, local.array.name());
    let is_there = array.slot(member).state() != SlotState::Out;
    if is_there && array.is_needed(member) {
        return Err(Refusal::new(
            "member.needed",
            format!("slot {member} of array '{name}' cannot go: its group has no redundancy left"),
            "replace the missing members first; nothing was changed",
        ));
    }
    // Requests that are stuck on it are released before this task waits for the gate: the gate's
    // holder may be one of them.
    watch::put_out(local, member, BY_HAND);
    let _gate = local.coordinator().gate().await;
    let taken = take_out_alone(local, member, BY_HAND).await;
    taken.map_err(|_| {
        Refusal::new(
            "array.failed",
            format!("the other members of array '{name}' could not record that slot {member} goes"),
            "look at its members with `ashlar status`",
        )
    })
}
