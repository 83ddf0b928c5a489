//! The end of a daemon whose successor goes on: arrays stop in order, their users only wait.
//!
//! What must stay true: no attached volume is detached, and no request that has not ended well is
//! answered, so that the successor finds all of them. The process ends right afterwards, and drops
//! nothing before: what an export drops, it answers.
//!
//! A killed daemon leaves the same to its successor, but arrays that were not stopped: their logs
//! are rolled forward or their regions resynced, and a degraded array with policy `bitmap` starts
//! read-only.

use crate::arrays::Arrays;
use crate::exports::{Export, Say};

/// The exit code of a process that has handed over (`EX_TEMPFAIL` of sysexits.h). The unit starts
/// the next one for it.
pub const HANDED_OVER: u8 = 75;

/// Hand over all arrays.
///
/// # Errors
/// Why not: nothing was changed.
pub async fn hand_over(arrays: &Arrays, say: Say<'_>) -> Result<(), String> {
    if let Some(why) = obstacle(arrays).await {
        return Err(why);
    }
    arrays.gather.end();
    for array in arrays.engine.arrays() {
        let name = array.name().to_owned();
        drop(array);
        match arrays.engine.hand_over(&name).await {
            Ok(stopped) => say(&format!("array '{name}' is handed over ({stopped:?})")),
            Err(refusal) => say(&refusal.to_string()),
        }
    }
    arrays.gather.remembered.settle().await.iter().for_each(|line| say(line));
    Ok(())
}

/// What would be lost, or would never end.
async fn obstacle(arrays: &Arrays) -> Option<String> {
    for array in arrays.engine.arrays() {
        let name = array.name().to_owned();
        if array.pause().is_some() {
            return Some(format!("array '{name}' is paused and its writes wait"));
        }
        drop(array);
        if !arrays.memory_of(&name).await.is_empty() {
            return Some(format!("array '{name}' is in the memory of this process"));
        }
    }
    arrays.exports.iter().find_map(Export::obstacle_to_hand_over)
}
