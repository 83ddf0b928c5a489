//! Universes with an aim: they go where planted faults are otherwise found once in thousands.
//!
//! What must stay true: an aim changes what is drawn and where a host is cut off, never what is
//! demanded. Without an aim nothing here draws anything.

use crate::config::{Class, Config, Profile};
use crate::menu::{Act, Menu};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::Latency;
use std::time::Duration;

/// What most of a universe is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Starts after a crash are cut off, most of them, and members come and go in between.
    Starts,
    /// Whole stripes and blocks of them, on few stripes, while members are lost, and crashes soon
    /// after.
    Stripes,
    /// First writes and trims, with crashes while the map is stored, and after a start has shown
    /// what there is.
    Maps,
    /// Members are replaced while it writes, and starts come between.
    Rebuilds,
    /// The same on slow devices, so that jobs record how far they are; crashes where superblocks
    /// are written.
    SlowRebuilds,
    /// Members fail while they are being replaced, blocks are written again and again, and crashes
    /// come soon.
    Takeovers,
    /// Devices stand still for a while, one or two at a time, and members are put out, replaced and
    /// come back meanwhile.
    Standstills,
    /// Sectors that cannot be read, on devices that leave junk where storing them anew was cut off.
    Repairs,
    /// Single blocks on devices that write them whole and cache nothing; crashes where the stripes
    /// lie.
    ParityOnly,
    /// The same, with sectors that cannot be read.
    ParityOnlySectors,
    /// Whole stripes, flushes, and blocks that rot or are lost; crashes where the stripes lie.
    Rot,
    /// The same, and most of the starts that follow are cut off, with members that come and go in
    /// between.
    RotStarts,
    /// Scrubs that begin, are paused and cancelled, on devices that stand still, while blocks rot
    /// and members come and go.
    Scrubs,
    /// Devices fail some commands, get well and come back, again and again, and crashes come
    /// between.
    Relapses,
    /// Devices do not answer, alone and together, while members are put out, replaced and come
    /// back.
    Silences,
    /// Arrays grow while clients write, and members are lost and crashes come soon after a growth
    /// began.
    Growths,
    /// Short universes of tiny pools: what operators do, in any order, with few writes between.
    Operators,
}

/// Size of a disk of a short universe, bytes.
const SMALL_DISK_BYTES: u64 = 4 << 20;

/// Where hosts are cut off on purpose, rather than anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where superblocks lie.
    Heads,
    /// In the written map.
    Map,
    /// In the intent log.
    Log,
    /// Where the stripes lie.
    Data,
}

/// Where a universe is cut off, and what comes and goes meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cuts {
    /// Starts after a crash that are to be cut off, of a hundred.
    pub starts: u64,
    /// Of those, how many after the start has shown all there is, of a hundred.
    pub after_reads: u64,
    /// Where two of three of the others are cut off: at one of so many writes there.
    pub starts_in: Option<(Place, u64)>,
    /// Times of a hundred that devices are lost while nobody uses them.
    pub losses_at_rest: u64,
    /// Between two starts that are cut off: how many devices come back, and how often others are
    /// lost, of a hundred.
    pub comes_and_goes: (u64, u64),
    /// Where lives are cut off: at one of so many writes there.
    pub lives_in: Option<(Place, u64)>,
    /// In every life all devices are well when the array has started, and clients come when it is
    /// whole.
    pub begins_whole: bool,
    /// How often the power goes soon after a member has vanished, of a hundred.
    pub after_losses: u64,
}

impl Default for Cuts {
    /// What universes without an aim have.
    fn default() -> Cuts {
        Cuts {
            starts: 25,
            after_reads: 0,
            starts_in: None,
            losses_at_rest: 25,
            comes_and_goes: (40, 30),
            lives_in: None,
            begins_whole: false,
            after_losses: 0,
        }
    }
}

impl Aim {
    /// Every aim.
    pub const ALL: [Aim; 17] = [
        Aim::Starts,
        Aim::Stripes,
        Aim::Maps,
        Aim::Rebuilds,
        Aim::SlowRebuilds,
        Aim::Takeovers,
        Aim::Standstills,
        Aim::Repairs,
        Aim::ParityOnly,
        Aim::ParityOnlySectors,
        Aim::Rot,
        Aim::RotStarts,
        Aim::Scrubs,
        Aim::Relapses,
        Aim::Silences,
        Aim::Growths,
        Aim::Operators,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Aim::Starts => "starts",
            Aim::Stripes => "stripes",
            Aim::Maps => "maps",
            Aim::Rebuilds => "rebuilds",
            Aim::SlowRebuilds => "slow-rebuilds",
            Aim::Takeovers => "takeovers",
            Aim::Standstills => "standstills",
            Aim::Repairs => "repairs",
            Aim::ParityOnly => "parity-only",
            Aim::ParityOnlySectors => "parity-only-sectors",
            Aim::Rot => "rot",
            Aim::RotStarts => "rot-starts",
            Aim::Scrubs => "scrubs",
            Aim::Relapses => "relapses",
            Aim::Silences => "silences",
            Aim::Growths => "growths",
            Aim::Operators => "operators",
        }
    }

    /// Whether it is about pools: then every array is one.
    pub(crate) fn is_of_pools(self) -> bool {
        matches!(self, Aim::Growths | Aim::Operators)
    }

    fn cuts(self) -> Cuts {
        let (starts, losses_at_rest) = match self {
            Aim::Starts => (90, 70),
            Aim::RotStarts => (80, 25),
            Aim::Maps => (60, 20),
            Aim::Stripes => (10, 0),
            Aim::Rebuilds => (50, 60),
            Aim::SlowRebuilds | Aim::Takeovers | Aim::Standstills => (10, 10),
            Aim::Repairs => (25, 10),
            Aim::ParityOnly | Aim::ParityOnlySectors | Aim::Rot => (10, 25),
            Aim::Scrubs | Aim::Growths | Aim::Operators => (10, 10),
            Aim::Relapses | Aim::Silences => (30, 10),
        };
        let cuts = Cuts { starts, losses_at_rest, ..Cuts::default() };
        match self {
            Aim::Starts => Cuts {
                starts_in: Some((Place::Data, 12)),
                comes_and_goes: (70, 50),
                lives_in: Some((Place::Log, 40)),
                begins_whole: true,
                ..cuts
            },
            Aim::Maps => Cuts {
                after_reads: 60,
                comes_and_goes: (70, 90),
                lives_in: Some((Place::Map, 24)),
                ..cuts
            },
            // Rarely before a member is lost.
            Aim::Stripes => Cuts {
                lives_in: Some((Place::Heads, 250)),
                begins_whole: true,
                after_losses: 60,
                ..cuts
            },
            Aim::SlowRebuilds => Cuts { lives_in: Some((Place::Heads, 250)), ..cuts },
            Aim::ParityOnly | Aim::ParityOnlySectors => {
                Cuts { lives_in: Some((Place::Data, 120)), begins_whole: true, ..cuts }
            }
            Aim::Rot => Cuts { lives_in: Some((Place::Data, 300)), begins_whole: true, ..cuts },
            Aim::RotStarts => Cuts {
                starts_in: Some((Place::Data, 12)),
                comes_and_goes: (60, 30),
                lives_in: Some((Place::Data, 150)),
                begins_whole: true,
                ..cuts
            },
            Aim::Takeovers | Aim::Standstills | Aim::Scrubs | Aim::Relapses | Aim::Silences => {
                Cuts { begins_whole: true, ..cuts }
            }
            Aim::Growths => {
                let lives_in = Some((Place::Heads, 250));
                Cuts { lives_in, begins_whole: true, after_losses: 30, ..cuts }
            }
            Aim::Operators => cuts,
            Aim::Rebuilds | Aim::Repairs => cuts,
        }
    }

    pub(crate) fn take(self, config: &mut Config) {
        config.lives = 6;
        // A cache that loses nothing hides most of it.
        config.disks.iter_mut().for_each(|disk| disk.has_volatile_cache = true);
        config.cuts = self.cuts();
        if config.class == Class::Crashes {
            return;
        }
        match self {
            Aim::Starts => config.requests = 90,
            Aim::Stripes => {
                config.clients = vec![Profile::Pairs, Profile::Pairs];
                config.requests = 400;
                config.window.1 = 12;
                let acts = [Act::Pause, Act::Vanish, Act::Heal, Act::ReAdd, Act::AwaitRebuild];
                config.menu = Menu::of(&acts);
            }
            Aim::Maps => {
                config.clients = vec![Profile::Large, Profile::Large];
                config.requests = 60;
                config.window.1 = 24;
                config.menu = Menu::of(&[Act::Pause, Act::Heal, Act::ReAdd]);
            }
            Aim::Rebuilds => {
                config.window.1 = config.window.1.max(20);
                let acts = [Act::Pause, Act::Fail, Act::Replace, Act::Heal, Act::PauseJobs];
                config.menu = Menu::of(&acts);
            }
            Aim::SlowRebuilds => slow_rebuilds(config),
            Aim::Takeovers => {
                config.clients = vec![Profile::Blocks, Profile::Hot, Profile::Large];
                config.requests = 300;
                config.window.1 = 4;
                let acts = [Act::Pause, Act::Replace, Act::Replace, Act::FailWrites, Act::Heal];
                config.menu = Menu::of(&acts);
            }
            Aim::Standstills => {
                config.clients = vec![Profile::Blocks, Profile::Mixed];
                config.requests = 250;
                config.window.1 = 8;
                let operator = [Act::Fail, Act::Replace, Act::Replace, Act::ReAdd, Act::AddSpare];
                let devices = [Act::Pause, Act::Slow, Act::Slow, Act::VanishTogether, Act::Heal];
                config.menu = Menu::of(&[operator, devices].concat());
            }
            Aim::Repairs => repairs(config),
            Aim::ParityOnly => parity_only(config),
            Aim::Rot | Aim::RotStarts => {
                config.clients = vec![Profile::Pairs];
                config.requests = 300;
                config.window.1 = 8;
                config.menu = with_lies(config, &[Act::Pause, Act::Pause]);
            }
            Aim::Scrubs => scrubs(config),
            Aim::Relapses => relapses(config),
            Aim::Silences => silences(config),
            Aim::Growths => growths(config),
            Aim::Operators => operators(config),
            Aim::ParityOnlySectors => {
                parity_only(config);
                config.menu = Menu::of(&[Act::Pause, Act::BreakSectors, Act::BreakSectors]);
            }
        }
    }
}

/// These acts, and lies where checksums may have to notice them.
fn with_lies(config: &Config, acts: &[Act]) -> Menu {
    let lies = [Act::Rot, Act::Rot, Act::LoseWrite, Act::MisdirectWrite];
    let may_lie = config.has_checksums && config.class == Class::Everything;
    let lies = if may_lie { &lies[..] } else { &[] };
    Menu::of(&[acts, lies].concat())
}

fn scrubs(config: &mut Config) {
    config.clients = vec![Profile::Mixed, Profile::Blocks];
    config.requests = 250;
    config.window.1 = 12;
    let jobs = [Act::Scrub, Act::Repair, Act::CancelScrub, Act::PauseJobs];
    let devices = [Act::Slow, Act::Slow, Act::BreakSectors, Act::Heal, Act::Idle];
    let operator = [Act::Fail, Act::ReAdd, Act::Replace];
    config.menu = with_lies(config, &[&jobs[..], &devices, &operator].concat());
}

fn relapses(config: &mut Config) {
    config.clients = vec![Profile::Mixed, Profile::Hot, Profile::Blocks];
    config.requests = 300;
    config.window.1 = 8;
    let fails = [Act::FailWrites, Act::FailWrites, Act::FailFlush, Act::FailReads];
    let back = [Act::Heal, Act::Heal, Act::ReAdd, Act::ReAdd, Act::Pause, Act::Vanish];
    config.menu = Menu::of(&[&fails[..], &back].concat());
}

fn silences(config: &mut Config) {
    config.clients = vec![Profile::Mixed, Profile::Blocks, Profile::Large];
    config.requests = 300;
    config.window.1 = 8;
    let silence = [Act::FallSilent, Act::FallSilent, Act::StandStill, Act::Pause];
    let operator = [Act::Fail, Act::Replace, Act::AddSpare, Act::ReAdd, Act::ReAdd];
    let devices = [Act::Heal, Act::Heal, Act::FailWrites, Act::Vanish, Act::AwaitRebuild];
    config.menu = Menu::of(&[&silence[..], &operator, &devices].concat());
}

/// A job records how far it is every few seconds: here it takes longer.
fn slow_rebuilds(config: &mut Config) {
    config.window.1 = 60;
    config.clients = vec![Profile::Large, Profile::Large, Profile::Mixed];
    config.menu = Menu::of(&[Act::Idle, Act::Fail, Act::Replace]);
    let ms = Duration::from_millis;
    // What a job has under way outlasts the record of it.
    let latency = Latency { read: ms(300)..=ms(6000), write: ms(1)..=ms(30), flush: ms(1)..=ms(5) };
    config.disks.iter_mut().for_each(|disk| disk.latency = latency.clone());
}

fn parity_only(config: &mut Config) {
    for disk in &mut config.disks {
        (disk.atomic_write_bytes, disk.has_volatile_cache) = (4096, false);
    }
    if config.policy == ConsistencyPolicy::Log {
        config.stated_atomic_bytes = 4096;
    }
    config.clients = vec![Profile::Blocks, Profile::Blocks];
    config.requests = 300;
    config.window.1 = 4;
    config.menu = Menu::of(&[Act::Pause]);
}

fn repairs(config: &mut Config) {
    // Of mirrors and without a log nobody promises that such a block is repaired.
    if config.contract.repairs_torn_blocks {
        let disks = config.disks.iter_mut();
        disks.for_each(|disk| disk.torn_repairs_leave_junk = true);
    }
    config.clients = vec![Profile::Reader, Profile::Reader, Profile::Mixed];
    config.menu = Menu::of(&[Act::Pause, Act::BreakSectors, Act::BreakSectors, Act::Repair]);
}

fn growths(config: &mut Config) {
    config.clients = vec![Profile::Mixed, Profile::Blocks, Profile::Blocks, Profile::Large];
    config.requests = 1200;
    config.window = (0, 60);
    let grow = [Act::Grow, Act::Grow, Act::Grow, Act::Pause, Act::PauseJobs];
    let devices = [Act::Vanish, Act::FailWrites, Act::Heal, Act::Heal];
    let operator = [Act::Fail, Act::ReAdd, Act::ReAdd, Act::Replace, Act::AwaitRebuild];
    config.menu = Menu::of(&[&grow[..], &devices, &operator].concat());
}

fn operators(config: &mut Config) {
    config.is_short = true;
    config.lives = 2;
    config.workers = config.workers.min(2);
    config.clients = vec![Profile::Mixed];
    config.requests = 60;
    config.window = (0, 8);
    config.disks.iter_mut().for_each(|disk| disk.size_bytes = SMALL_DISK_BYTES);
    let operator = [Act::Fail, Act::Fail, Act::ReAdd, Act::ReAdd, Act::Replace, Act::Replace];
    let more = [Act::Grow, Act::Grow, Act::Scrub, Act::Repair, Act::CancelScrub, Act::PauseJobs];
    let devices = [Act::Vanish, Act::VanishCold, Act::Heal, Act::Heal, Act::AwaitRebuild];
    config.menu = Menu::of(&[&operator[..], &more, &devices].concat());
}
