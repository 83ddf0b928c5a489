//! What a director may choose from: faults of devices, commands of operators. Each universe has its
//! own subset.
//!
//! What must stay true: nothing is on a menu that the class of the universe does not allow. What
//! only checksums can notice (blocks that rot, lost, torn and misdirected writes) is on the menus
//! of arrays that have them; what not even they can (a flush that lies) is on none.

use crate::config::Class;
use ashlar_sim::Random;
use std::fmt;

/// Something a director can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    /// Let time pass, seconds of it: idle regions are cleaned.
    Idle,
    /// Let a little time pass.
    Pause,
    /// A device is pulled and keeps its cache.
    Vanish,
    /// A device is pulled and loses its cache.
    VanishCold,
    /// Several devices vanish at the same moment.
    VanishTogether,
    /// Writes of a device fail, some or all.
    FailWrites,
    /// A flush of a device fails.
    FailFlush,
    /// Reads of a device fail, some or all.
    FailReads,
    /// Sectors of a device become unreadable.
    BreakSectors,
    /// A device becomes slow.
    Slow,
    /// What is wrong with a device ends.
    Heal,
    /// A member that is out and works again is taken back.
    ReAdd,
    /// The operator puts a member out.
    Fail,
    /// A new device takes a slot, or is filled to take it.
    Replace,
    /// A device becomes a spare.
    AddSpare,
    /// A spare is let go.
    RemoveSpare,
    /// A scrub begins.
    Scrub,
    /// A scrub that repairs begins.
    Repair,
    /// The scrub is ended.
    CancelScrub,
    /// Jobs are paused, later they go on.
    PauseJobs,
    /// Wait until all members are in sync.
    AwaitRebuild,
    /// No device has space for writes, and after a while they have.
    NoRoom,
    /// Blocks of a strip change silently.
    Rot,
    /// A write is acknowledged and not stored.
    LoseWrite,
    /// A write is acknowledged, and its first half is stored.
    TearWrite,
    /// A write is acknowledged, and stored in another strip of the device.
    MisdirectWrite,
    /// A device does not answer any more, until it is healed.
    FallSilent,
    /// All devices, or all of a group, do not answer for up to a minute: the host stood still, or a
    /// controller.
    StandStill,
    /// The array grows by devices that wait.
    Grow,
}

/// What only checksums can notice.
const LIES: [Act; 4] = [Act::Rot, Act::LoseWrite, Act::TearWrite, Act::MisdirectWrite];

/// Everything, in the order of the lists.
const ALL: [Act; 21] = [
    Act::Idle,
    Act::Pause,
    Act::Vanish,
    Act::VanishCold,
    Act::VanishTogether,
    Act::FailWrites,
    Act::FailFlush,
    Act::FailReads,
    Act::BreakSectors,
    Act::Slow,
    Act::Heal,
    Act::ReAdd,
    Act::Fail,
    Act::Replace,
    Act::AddSpare,
    Act::RemoveSpare,
    Act::Scrub,
    Act::Repair,
    Act::CancelScrub,
    Act::PauseJobs,
    Act::AwaitRebuild,
];

impl Act {
    /// Whether it takes redundancy away.
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            Act::Vanish
                | Act::VanishCold
                | Act::VanishTogether
                | Act::FailWrites
                | Act::FailFlush
                | Act::FailReads
                | Act::BreakSectors
                | Act::Slow
                | Act::Fail
                | Act::FallSilent
        ) || LIES.contains(&self)
    }
}

/// The acts one universe draws from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Menu(Vec<Act>);

impl Menu {
    /// A random subset, within what `class` allows with `parity` strips of parity.
    pub fn draw(random: &mut Random, class: Class, parity: usize) -> Menu {
        let share = [30, 60, 90][usize::try_from(random.below(3)).expect("three")];
        let mut acts = vec![Act::Pause];
        for act in ALL {
            let is_drawn = random.percent(share);
            let is_allowed = match class {
                Class::Crashes => !act.is_loss() && act != Act::ReAdd,
                _ => parity > 0,
            };
            if is_drawn && is_allowed {
                acts.push(act);
            }
        }
        if acts.iter().any(|act| act.is_loss()) {
            acts.extend([Act::Heal, Act::ReAdd]);
        }
        acts.sort_unstable();
        acts.dedup();
        Menu(acts)
    }

    /// These acts, rising.
    pub fn of(acts: &[Act]) -> Menu {
        let mut acts = acts.to_vec();
        acts.sort_unstable();
        Menu(acts)
    }

    /// One more.
    pub fn add(&mut self, act: Act) {
        self.0.push(act);
    }

    /// Some of what only checksums can notice.
    pub fn add_lies(&mut self, random: &mut Random) {
        self.0.extend(LIES.into_iter().filter(|_| random.percent(70)));
    }

    /// Devices that do not answer. Of what is drawn for other universes nothing changes.
    pub fn add_silence(&mut self, random: &mut Random, class: Class, parity: usize) {
        if random.percent(70) {
            return;
        }
        self.0.push(Act::StandStill);
        if class != Class::Crashes && parity > 0 {
            self.0.extend([Act::FallSilent, Act::FallSilent, Act::Heal, Act::ReAdd]);
        }
    }

    /// The array grows, perhaps. Of what is drawn for other universes nothing changes.
    pub fn add_growth(&mut self, random: &mut Random) {
        if random.percent(50) {
            self.0.push(Act::Grow);
        }
    }

    /// Whether this is on it.
    pub fn has(&self, act: Act) -> bool {
        self.0.contains(&act)
    }

    /// One of them.
    pub fn choose(&self, random: &mut Random) -> Act {
        let count = u64::try_from(self.0.len()).expect("a short list");
        self.0[usize::try_from(random.below(count)).expect("below the length")]
    }
}

impl fmt::Display for Menu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, act) in self.0.iter().enumerate() {
            write!(f, "{}{act:?}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
