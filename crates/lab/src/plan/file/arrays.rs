//! What the arrays of a plan must be beside each other, and for the stages that measure them.
//!
//! What must stay true: no array is taken for another one; nothing is read that was not written.

use super::{Array, Kind, Plan, refused};
use crate::Refusal;
use crate::fio::value;

/// Whether all arrays can be told apart and hold what is asked of them.
pub(super) fn check(plan: &Plan) -> Result<(), Refusal> {
    check_names(plan)?;
    check_working_sets(plan)
}

/// Records know an array by its name: of two with the same one, only one would be measured.
fn check_names(plan: &Plan) -> Result<(), Refusal> {
    for (at, array) in plan.arrays.iter().enumerate() {
        let is_same = |other: &&Array| other.target_path() == array.target_path();
        if plan.arrays[..at].iter().any(|other| is_same(&other)) {
            let name = array.name();
            let hint = if array.is_made() { "give each a name of its own" } else { "name it once" };
            return Err(refused(format!("two arrays would both be called {name}: {hint}")));
        }
    }
    Ok(())
}

/// What was not written must not be read: a working set lies within the span.
fn check_working_sets(plan: &Plan) -> Result<(), Refusal> {
    let stages = plan.stages.iter().filter(|stage| stage.kind == Kind::WorkingSet);
    for size in stages.flat_map(|stage| &stage.sizes) {
        let bytes = value::bytes(size).unwrap_or(0);
        let is_small = |array: &&Array| array.is_made() && array.span_bytes() < bytes;
        if let Some(array) = plan.arrays.iter().find(is_small) {
            let said = format!("a working set of {size} is more than the span of {}", array.name());
            return Err(refused(said));
        }
    }
    Ok(())
}
