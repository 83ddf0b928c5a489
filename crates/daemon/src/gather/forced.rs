//! What an operator accepted so that an array starts, for the status.
//!
//! What must stay true: it is told until the array has been stopped cleanly, also after a kill.

use super::Gather;
use ashlar_engine::HowStarted;
use ashlar_ondisk::ForcedActions;
use uuid::Uuid;

impl Gather {
    /// An array has started so.
    pub fn note_forced(&self, array: Uuid, how: HowStarted) {
        let now = words(how.forced);
        let is_known = self.remembered.of(array).is_some_and(|own| !own.forced.is_empty());
        if now.is_empty() && !is_known {
            return;
        }
        self.remembered.note(array, |own| {
            if !how.was_unclean {
                own.forced.clear();
            }
            own.forced
                .extend(now.into_iter().filter(|it| !own.forced.contains(it)).collect::<Vec<_>>());
        });
    }
}

/// What was accepted, with the option.
fn words(flags: u64) -> Vec<String> {
    const WORDS: [(u64, &str); 6] = [
        (
            ForcedActions::DIRTY_DEGRADED,
            "--accept-dirty-degraded: blocks of missing members that were being written at the \
             crash may be wrong",
        ),
        (
            ForcedActions::OLDER_MEMBERS,
            "--accept-older-members: blocks of members that lack writes may be old",
        ),
        (
            ForcedActions::LOST_MAP,
            "--accept-lost-map: first writes after the last flush may read as zeros, and stripes \
             never written as anything",
        ),
        (ForcedActions::CHOSE_SIDE, "--incarnation: what only the other half has is given up"),
        (
            ForcedActions::OVERWROTE_SIGNATURE,
            "--accept-signatures: what others had put on members was overwritten, and what lay \
             there before may be lost",
        ),
        (
            ForcedActions::SERIAL_CHANGED,
            "--accept-serials: devices with other serial numbers than recorded were taken",
        ),
    ];
    let accepted = WORDS.iter().filter(|(flag, _)| flags & flag != 0);
    accepted.map(|(_, words)| (*words).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Gather;
    use crate::config::Config;
    use ashlar_engine::HowStarted;
    use ashlar_ondisk::ForcedActions;
    use std::path::Path;
    use uuid::Uuid;

    #[test]
    fn what_was_accepted_is_told_over_a_kill_and_no_longer_after_a_clean_stop() {
        let gather = Gather::new(&Config::default(), Path::new("/"), "here".to_owned(), |_| {});
        let array = Uuid::from_u128(7);
        let told = |forced, was_unclean| {
            gather.note_forced(array, HowStarted { forced, was_unclean });
            gather.remembered.of(array).map_or(0, |own| own.forced.len())
        };
        assert_eq!(told(0, true), 0);
        assert_eq!(told(ForcedActions::DIRTY_DEGRADED, true), 1);
        assert_eq!(told(0, true), 1);
        assert_eq!(told(ForcedActions::OLDER_MEMBERS | ForcedActions::DIRTY_DEGRADED, true), 2);
        assert_eq!(told(ForcedActions::SERIAL_CHANGED, false), 1);
        assert_eq!(told(0, false), 0);
    }
}
