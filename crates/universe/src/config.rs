//! The configuration of a universe: everything that is fixed before its first moment, drawn from
//! the seed.
//!
//! What must stay true: equal seeds give equal configurations. What the oracle may demand under a
//! policy is written here, in [`Contract`], and nowhere else.

use ashlar_engine::SlowReaction;
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{DiskOptions, Latency, Random};
use ashlar_units::{to_u64, to_usize};
use std::fmt;
use std::time::Duration;

use crate::aim::{Aim, Cuts};
use crate::ledger::Relaxed;
use crate::menu::{Act, Menu};

/// Devices that wait to replace others.
pub const SPARE_DEVICES: usize = 3;

/// What blocks are filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// 16-byte tags that name the block and the write.
    Tags,
    /// Random bytes that belong to the block and the write.
    Random,
}

/// How one client behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// A bit of everything, anywhere.
    Mixed,
    /// Writes small pieces one after the other.
    Stream,
    /// Writes and reads a few blocks that others write, too.
    Hot,
    /// Reads, mostly.
    Reader,
    /// Writes whole stripes, trims and zeroes.
    Large,
    /// Writes a whole stripe, then a block of it; on request only.
    Pairs,
    /// Writes single blocks anywhere, and reads a few; on request only.
    Blocks,
}

/// What may happen to a universe besides its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Crashes and faults in any order. Needs a policy that closes the write hole.
    Everything,
    /// Crashes only while no member is lost and none is failing.
    Crashes,
    /// Losses, but every life ends with a clean stop, save the last: that has no losses, heals
    /// first, and ends with a crash. With some aims the power goes soon after a loss.
    Losses,
    /// Losses, then one crash; after it the array may come up read-only, and must not lie. It is
    /// for writing when its operator accepts what the crash may have cost.
    LossesThenCrash,
}

/// What a policy promises, and so what the oracle demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// A crash may come together with losses: all data stays, the array starts for writing.
    pub survives_losses_with_crash: bool,
    /// A logical block is old or new as a whole. Otherwise each unit that a device writes whole is.
    pub repairs_torn_blocks: bool,
}

impl Contract {
    /// What `policy` promises.
    ///
    /// `bitmap`: after a crash of a whole array every unit that devices write whole is old or new;
    /// a crash with losses leaves an array that reads what it can prove and takes no writes. `log`:
    /// section 3.1 of the promises in full; copies of a mirror are equal after the start, but a
    /// block in flight may be torn on all of them. `none`: as `bitmap`.
    pub fn of(policy: ConsistencyPolicy, geometry: &Geometry) -> Contract {
        let is_log = policy == ConsistencyPolicy::Log;
        let is_mirror = geometry.data_strips() == 1;
        Contract { survives_losses_with_crash: is_log, repairs_torn_blocks: is_log && !is_mirror }
    }
}

/// Everything that is fixed in a universe.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it all comes from.
    pub seed: u64,
    /// Level, members, strip.
    pub shape: Shape,
    /// How the array stays consistent.
    pub policy: ConsistencyPolicy,
    /// What that promises.
    pub contract: Contract,
    /// What is stated of what devices write whole; 0: nothing. Never more than they do.
    pub stated_atomic_bytes: u32,
    /// What may happen.
    pub class: Class,
    /// Which faults and commands are drawn from.
    pub menu: Menu,
    /// Logical block of the volume, bytes.
    pub logical_block_bytes: u32,
    /// Workers of the engine.
    pub workers: usize,
    /// Devices: members first, then those that wait.
    pub disks: Vec<DiskOptions>,
    /// Stripes that share a write-intent bit.
    pub stripes_per_region: u64,
    /// First stripe that clients touch, and how many.
    pub window: (u64, u64),
    /// What the oracle keeps one entry for, bytes.
    pub unit_bytes: u64,
    /// What blocks are filled with.
    pub payload: Payload,
    /// The clients.
    pub clients: Vec<Profile>,
    /// Requests of all clients together, over all lives.
    pub requests: usize,
    /// How often the array is started in the safety phase.
    pub lives: usize,
    /// Discards of clients are passed on to the members.
    pub passes_discards: bool,
    /// What follows when a member is slow.
    pub slow: SlowReaction,
    /// The array keeps checksums of its blocks, and devices may lie.
    pub has_checksums: bool,
    /// There is memory that outlives a killed program.
    pub keeps_map: bool,
    /// Members, the last ones, that come to a declustered array by a growth. It is under way from
    /// the first start on.
    pub grows: usize,
    /// Clients ask for the volume from before each start on, and of each dry run.
    pub has_early_clients: bool,
    /// Serial numbers, paths and sizes of devices change while nobody uses them.
    pub devices_change: bool,
    /// Devices carry what other programs left there, and are given to others.
    pub has_remnants: bool,
    /// There are no abuses between lives, and no last look at what was looked at before.
    pub is_short: bool,
    /// Where it is cut off, and what comes and goes meanwhile.
    pub cuts: Cuts,
}

/// Arrays with checksums, of a hundred with a log.
const CHECKSUMS: u64 = 40;
/// Universes whose devices may all be without space for a while, of a hundred.
const NO_ROOM: u64 = 25;
/// Universes with clients that come while the array starts, of a hundred.
const EARLY_CLIENTS: u64 = 25;
/// Universes whose devices show other serial numbers, have other paths and grow, of a hundred.
const DEVICES_CHANGE: u64 = 15;
/// Universes whose devices carry signatures of others, of a hundred.
const REMNANTS: u64 = 15;
/// Size of each disk, bytes.
const DISK_BYTES: u64 = 8 << 20;

impl Config {
    /// The configuration of `seed`; a wish overrides what it would draw.
    pub fn draw(seed: u64, wish: Wish) -> Config {
        let mut random = Random::stream(seed, 0xC0);
        let shape = draw_array(seed, &mut random, wish);
        let geometry = Geometry::smallest(&shape).expect("drawn shapes are possible");
        let policy = draw_policy(&mut random, &geometry, wish.policy);
        let contract = Contract::of(policy, &geometry);
        let drawn = draw_class(&mut random, policy, &geometry);
        let class = wish.class.unwrap_or(drawn);
        let logical_block_bytes = if random.percent(50) { 512 } else { 4096 };
        let mut disks = draw_disks(&mut random, shape.members + SPARE_DEVICES);
        if contract.repairs_torn_blocks && Random::stream(seed, 0xC1).percent(30) {
            tear_sectors(&mut disks);
        }
        let atomic = disks.iter().map(|disk| disk.atomic_write_bytes).min().unwrap_or(512);
        let may_state = policy == ConsistencyPolicy::Log && atomic == 4096;
        let is_stated = may_state && Random::stream(seed, 0xC3).percent(70);
        if is_stated && contract.repairs_torn_blocks && Random::stream(seed, 0xC4).percent(50) {
            // Nothing was stated of devices that come later.
            let waiting = &mut disks[shape.members..];
            waiting.iter_mut().for_each(|disk| disk.atomic_write_bytes = 512);
        }
        let logical = u64::from(logical_block_bytes);
        let unit_bytes = if contract.repairs_torn_blocks { logical } else { logical.min(atomic) };
        let stripe_count = 4 + random.below(20);
        let first = if random.percent(50) { 0 } else { random.below(64) };
        let client_count = to_usize(1 + random.below(5));
        let mut menu = Menu::draw(&mut random, class, geometry.parity_strips());
        // From a stream of its own: who has none is what it was before there were any.
        let mut own = Random::stream(seed, 0xC5);
        let is_summed = own.percent(CHECKSUMS) || wish.has_checksums;
        let has_checksums = is_summed && policy == ConsistencyPolicy::Log;
        if has_checksums && class == Class::Everything {
            menu.add_lies(&mut own);
        }
        if Random::stream(seed, 0xC6).percent(NO_ROOM) {
            menu.add(Act::NoRoom);
            disks.iter_mut().for_each(|disk| disk.store = Some(1));
        }
        menu.add_silence(&mut Random::stream(seed, 0xC8), class, geometry.parity_strips());
        if shape.declustered.is_some_and(|own| own.spare_columns > 0) {
            menu.add_growth(&mut Random::stream(seed, 0xCE));
        }
        let mut config = Config {
            seed,
            policy,
            contract,
            stated_atomic_bytes: if is_stated { 4096 } else { 0 },
            class,
            menu,
            logical_block_bytes,
            workers: to_usize(1 + random.below(3)),
            disks,
            stripes_per_region: 1 << random.below(5),
            window: (first, stripe_count),
            unit_bytes,
            payload: if random.percent(80) { Payload::Tags } else { Payload::Random },
            clients: (0..client_count).map(|_| draw_profile(&mut random)).collect(),
            requests: to_usize(60 + random.below(240)),
            lives: to_usize(3 + random.below(4)),
            passes_discards: Random::stream(seed, 0xC2).percent(50),
            slow: draw_slow(&mut Random::stream(seed, 0xC9)),
            has_checksums,
            keeps_map: wish.keeps_map.unwrap_or(Random::stream(seed, 0xCA).percent(50)),
            has_early_clients: Random::stream(seed, 0xCF).percent(EARLY_CLIENTS),
            devices_change: Random::stream(seed, 0xE0).percent(DEVICES_CHANGE),
            has_remnants: Random::stream(seed, 0xE1).percent(REMNANTS),
            is_short: false,
            cuts: Cuts::default(),
            grows: draw_growth(&mut Random::stream(seed, 0xCD), &shape, wish.aim),
            shape,
        };
        wish.aim.into_iter().for_each(|aim| aim.take(&mut config));
        config
    }

    /// Members of a group that may be lost.
    pub fn losses(&self) -> usize {
        self.one_row().parity_strips()
    }

    /// The geometry with a single row, or slice: for counts, not for places.
    pub fn one_row(&self) -> Geometry {
        Geometry::smallest(&self.shape).expect("drawn shapes are possible")
    }

    /// What of whole stripes under way at a crash is excepted. Of mirrors, and without a log,
    /// nothing is promised beyond the units that devices write whole.
    pub fn relaxed(&self) -> Option<Relaxed> {
        let is_relaxed = self.policy == ConsistencyPolicy::Log && self.one_row().data_strips() > 1;
        let atomic = self.disks.iter().map(|disk| disk.atomic_write_bytes).min().unwrap_or(512);
        is_relaxed.then(|| Relaxed {
            stripe_units: to_usize(self.stripe_bytes() / self.unit_bytes),
            torn_at: to_usize(self.unit_bytes.min(atomic)),
            leaves_junk: self.disks.iter().any(|disk| disk.torn_repairs_leave_junk),
        })
    }

    /// What is created: without the members of a growth.
    pub fn created(&self) -> Shape {
        Shape { members: self.shape.members - self.grows, ..self.shape.clone() }
    }

    /// Whether it may grow at some time.
    pub fn may_grow(&self) -> bool {
        self.grows > 0 || self.menu.has(Act::Grow)
    }

    /// Data bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.one_row().stripe_bytes()
    }
}

fn draw_slow(random: &mut Random) -> SlowReaction {
    match random.below(3) {
        0 => SlowReaction::Warn,
        1 => SlowReaction::Avoid,
        _ => SlowReaction::Replace,
    }
}

/// What is wished instead of drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// The policy. Without redundancy there is nothing to log, so raid0 has `bitmap` all the same.
    pub policy: Option<ConsistencyPolicy>,
    /// What may happen.
    pub class: Option<Class>,
    /// Every array with a log has checksums.
    pub has_checksums: bool,
    /// Every array of a level that can be is declustered.
    pub declustered: bool,
    /// Whether there is memory that outlives a killed program.
    pub keeps_map: Option<bool>,
    /// What it is all about.
    pub aim: Option<Aim>,
}

impl Wish {
    /// Everything that can be wished: nothing, every aim with and without what goes with it, every
    /// policy, class and option. What is new in one of these is in it by itself.
    pub fn all() -> Vec<Wish> {
        let none = Wish::default();
        let kept = [true, false].map(|keeps| Wish { keeps_map: Some(keeps), ..none });
        let mut all = vec![none, Wish { has_checksums: true, ..none }];
        all.push(Wish { declustered: true, ..none });
        all.push(Wish { has_checksums: true, declustered: true, ..none });
        all.extend(kept);
        let policies = ConsistencyPolicy::ALL.into_iter();
        all.extend(policies.map(|policy| Wish { policy: Some(policy), ..none }));
        all.extend(Class::ALL.into_iter().map(|class| Wish { class: Some(class), ..none }));
        for aim in Aim::ALL {
            let own = Wish { aim: Some(aim), ..none };
            all.extend([own, Wish { has_checksums: true, ..own }]);
            // Arrays of these are declustered in any case.
            all.extend((!aim.is_of_pools()).then_some(Wish { declustered: true, ..own }));
        }
        all.push(Wish::operators());
        all
    }

    /// Short universes of tiny pools: what operators do, in any order.
    pub fn operators() -> Wish {
        Wish {
            policy: Some(ConsistencyPolicy::Log),
            class: Some(Class::Everything),
            declustered: true,
            aim: Some(Aim::Operators),
            ..Wish::default()
        }
    }
}

/// The options of the command line that wish it.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = self.policy {
            write!(f, " --policy {}", policy.name())?;
        }
        if let Some(class) = self.class {
            write!(f, " --class {}", class.name())?;
        }
        if self.has_checksums {
            write!(f, " --checksums")?;
        }
        if self.declustered {
            write!(f, " --declustered")?;
        }
        if let Some(keeps_map) = self.keeps_map {
            write!(f, "{}", if keeps_map { " --keeps-map" } else { " --keeps-no-map" })?;
        }
        if let Some(aim) = self.aim {
            write!(f, " --aim {}", aim.name())?;
        }
        Ok(())
    }
}

fn draw_policy(
    random: &mut Random,
    geometry: &Geometry,
    wish: Option<ConsistencyPolicy>,
) -> ConsistencyPolicy {
    // Drawn in any case, so that a wish changes no other draw.
    let is_log = random.percent(50);
    let drawn = if is_log { ConsistencyPolicy::Log } else { ConsistencyPolicy::Bitmap };
    match wish.unwrap_or(drawn) {
        ConsistencyPolicy::Log if geometry.parity_strips() == 0 => ConsistencyPolicy::Bitmap,
        policy => policy,
    }
}

fn draw_class(random: &mut Random, policy: ConsistencyPolicy, geometry: &Geometry) -> Class {
    let draw = random.below(100);
    if geometry.parity_strips() == 0 {
        return Class::Crashes;
    }
    match (policy, draw) {
        (ConsistencyPolicy::Log, 0..90) => Class::Everything,
        (ConsistencyPolicy::Log, _) => Class::Losses,
        (_, 0..50) => Class::Crashes,
        (_, 50..85) => Class::Losses,
        _ => Class::LossesThenCrash,
    }
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 4] =
        [Class::Everything, Class::Crashes, Class::Losses, Class::LossesThenCrash];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Class::Everything => "everything",
            Class::Crashes => "crashes",
            Class::Losses => "losses",
            Class::LossesThenCrash => "losses-then-crash",
        }
    }
}

/// The shape of the array that `seed` has.
fn draw_array(seed: u64, random: &mut Random, wish: Wish) -> Shape {
    let mut shape = match wish.aim.is_some_and(Aim::is_of_pools) {
        true => draw_pool(random),
        false => draw_shape(random),
    };
    if wish.aim == Some(Aim::Operators) {
        vary_pool(&mut Random::stream(seed, 0xCF), &mut shape);
    }
    // From a stream of its own: who is not declustered is what it was before there were any.
    decluster(&mut Random::stream(seed, 0xCB), &mut shape, wish.declustered);
    shape
}

fn draw_shape(random: &mut Random) -> Shape {
    let wide =
        |random: &mut Random, from: u64, to: u64| to_usize(from + random.below(to - from + 1));
    let (level, members, group_members, parity) = match random.below(100) {
        0..3 => (Level::Raid0, wide(random, 2, 4), None, None),
        3..13 => (Level::Raid1, wide(random, 2, 4), None, None),
        13..38 => (Level::Raid5, wide(random, 3, 5), None, None),
        38..63 => (Level::Raid6, wide(random, 4, 6), None, None),
        63..73 => (Level::Raid7, wide(random, 5, 7), None, None),
        73..81 => {
            let parity = wide(random, 1, 4);
            (Level::NPlusM, parity + wide(random, 2, 4), None, Some(parity))
        }
        81..88 => (Level::Raid10, 2 * wide(random, 2, 3), None, None),
        88..94 => (Level::Raid50, 6, Some(3), None),
        94..98 => (Level::Raid60, 8, Some(4), None),
        _ => (Level::Raid70, 10, Some(5), None),
    };
    let strip_bytes = match random.below(10) {
        0..7 => 4096,
        7..9 => 8192,
        _ => 16384,
    };
    Shape { level, members, parity, group_members, strip_bytes, declustered: None }
}

/// A pool with a distributed spare or two.
fn draw_pool(random: &mut Random) -> Shape {
    let few = |random: &mut Random, most: u64| to_usize(random.below(most));
    let parity = 1 + few(random, 2);
    let level = if parity == 1 { Level::Raid5 } else { Level::Raid6 };
    let stripe_width = parity + 2 + few(random, 2);
    let spare_columns = 1 + few(random, 2);
    let members = stripe_width + spare_columns + few(random, 3);
    let strip_bytes = 4096;
    let cell_bytes = Some(strip_bytes * (1 + random.below(3)));
    let declustered =
        Some(DeclusteredShape { domain_members: 1, stripe_width, spare_columns, cell_bytes });
    Shape { level, members, parity: None, group_members: None, strip_bytes, declustered }
}

/// Some have failure domains of two members, some no spare columns.
fn vary_pool(random: &mut Random, shape: &mut Shape) {
    let (has_domains, is_spareless) = (random.percent(35), random.percent(25));
    let Some(own) = &mut shape.declustered else { return };
    if is_spareless {
        shape.members -= own.spare_columns;
        own.spare_columns = 0;
    }
    if has_domains {
        own.domain_members = 2;
        shape.members *= 2;
    }
}

/// Universes whose array is declustered, of a hundred whose level can be.
const DECLUSTERED: u64 = 25;

/// Make it an array of more members than its stripes are wide, perhaps; some have columns that stay
/// empty. Cells are short, so that stripes in the window lie on changing members.
fn decluster(random: &mut Random, shape: &mut Shape, is_wished: bool) {
    let is_drawn = random.percent(DECLUSTERED);
    let can_be = matches!(shape.level, Level::Raid5 | Level::Raid6 | Level::Raid7 | Level::NPlusM);
    if shape.declustered.is_some() || !can_be || !(is_drawn || is_wished) {
        return;
    }
    let stripe_width = shape.members;
    shape.members += to_usize(random.below(4));
    let spare_columns = to_usize(random.below(to_u64(shape.members - stripe_width + 1).min(3)));
    let cell_bytes = Some(shape.strip_bytes * (1 + random.below(3)));
    shape.declustered =
        Some(DeclusteredShape { domain_members: 1, stripe_width, spare_columns, cell_bytes });
}

/// Of arrays that may grow, how many do, of a hundred.
const GROWING: u64 = 60;

/// Members that come later, as far as stripes and spare columns do without: whole domains.
fn draw_growth(random: &mut Random, shape: &Shape, aim: Option<Aim>) -> usize {
    let is_drawn = random.percent(GROWING);
    let may_grow = |own: &DeclusteredShape| own.spare_columns > 0 || aim == Some(Aim::Operators);
    let Some(own) = shape.declustered.filter(|own| is_drawn && may_grow(own)) else { return 0 };
    let columns = shape.members / own.domain_members;
    match columns - own.stripe_width - own.spare_columns {
        0 => 0,
        most => own.domain_members * (1 + to_usize(random.below(to_u64(most)))),
    }
}

fn draw_disks(random: &mut Random, count: usize) -> Vec<DiskOptions> {
    let atomic = if random.percent(50) { 512 } else { 4096 };
    let caches = random.below(3);
    let latency = draw_latency(random);
    let disk = |random: &mut Random| DiskOptions {
        atomic_write_bytes: atomic,
        has_volatile_cache: match caches {
            0 => true,
            1 => false,
            _ => random.percent(50),
        },
        discard_reads_zeros: random.percent(70),
        latency: latency.clone(),
        ..DiskOptions::sized(DISK_BYTES)
    };
    (0..count).map(|_| disk(random)).collect()
}

/// Where a log repairs what is torn, sectors may tear inside, too.
fn tear_sectors(disks: &mut [DiskOptions]) {
    for disk in disks.iter_mut().filter(|disk| disk.atomic_write_bytes == 512) {
        disk.atomic_write_bytes = 128;
    }
}

fn draw_latency(random: &mut Random) -> Latency {
    let us = Duration::from_micros;
    match random.below(4) {
        0 => Latency::constant(us(100)),
        1 => {
            Latency { read: us(10)..=us(5000), write: us(10)..=us(5000), flush: us(10)..=us(9000) }
        }
        _ => Latency::default(),
    }
}

fn draw_profile(random: &mut Random) -> Profile {
    match random.below(10) {
        0..5 => Profile::Mixed,
        5..6 => Profile::Stream,
        6..8 => Profile::Hot,
        8..9 => Profile::Reader,
        _ => Profile::Large,
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.one_row();
        let (k, m) = (geometry.data_strips(), geometry.parity_strips());
        let disk = &self.disks[0];
        writeln!(
            f,
            "  array    {} {k}+{m} on {} members, strip {}, policy {}{}, blocks of {}",
            self.shape.level.name(),
            self.shape.members,
            self.shape.strip_bytes,
            self.policy.name(),
            if self.has_checksums { " with checksums" } else { "" },
            self.logical_block_bytes
        )?;
        let cached = self.disks.iter().filter(|disk| disk.has_volatile_cache).count();
        writeln!(
            f,
            "  devices  {}, {cached} with a volatile cache, {} bytes written whole ({} stated), \
             latency {:?}",
            self.disks.len(),
            disk.atomic_write_bytes,
            self.stated_atomic_bytes,
            disk.latency.write
        )?;
        writeln!(
            f,
            "  clients  {:?}, {} requests in stripes {} to {}, {} bytes a unit, payload {:?}",
            self.clients,
            self.requests,
            self.window.0,
            self.window.0 + self.window.1 - 1,
            self.unit_bytes,
            self.payload
        )?;
        writeln!(
            f,
            "  engine   {} workers, {} stripes a region, {} lives, class {:?}{}{}",
            self.workers,
            self.stripes_per_region,
            self.lives,
            self.class,
            if self.keeps_map { ", memory that outlives a kill" } else { "" },
            if self.has_early_clients { ", clients that come early" } else { "" }
        )?;
        write!(f, "  menu     {}", self.menu)
    }
}

/// Count as a number for arithmetic with bytes.
pub(crate) fn number(count: usize) -> u64 {
    to_u64(count)
}
