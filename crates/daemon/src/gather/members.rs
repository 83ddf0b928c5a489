//! Devices that joined an array while it ran are remembered with it: a spare that took a slot is
//! looked for at the next start, also if it is a file.
//!
//! What must stay true: only of arrays that were created or assembled by hand. A device that is
//! gone stays on the list, for it may come back. What cannot be written down costs a start nothing
//! but that device.

use super::Gather;
use crate::arrays::Arrays;
use ashlar_engine::ArrayStatus;
use std::time::Duration;

/// How often to look who has joined.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Gather {
    /// Remember the members of running arrays again and again, for ever.
    pub async fn keep_remembering(&self, arrays: &Arrays) {
        loop {
            arrays.running().await.iter().for_each(|array| self.note_members(array));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Remember the members of this array.
    pub fn note_members(&self, array: &ArrayStatus) {
        let paths = || array.members.iter().map(|member| &member.path).filter(|it| !it.is_empty());
        let _kept = self.remembered.change(array.uuid, |own| {
            if own.start {
                let new: Vec<_> = paths().filter(|it| !own.devices.contains(it)).cloned().collect();
                own.devices.extend(new);
            }
        });
    }
}
