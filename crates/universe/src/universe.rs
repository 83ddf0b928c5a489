//! One universe from its first moment to its last: creation, lives that end well or badly, healing,
//! audit.
//!
//! What must stay true: the seed decides everything; a universe that goes wrong comes back as a
//! [`Failure`] with its story, whatever went wrong: an oracle, a panic of the engine, a deadlock.

use crate::abuse::{Abuses, Older};
use crate::aim::Place;
use crate::audit;
use crate::changed;
use crate::config::{Class, Config, Wish};
use crate::drive_slot::DriveSlots;
use crate::growth;
use crate::kept::OlderMap;
use crate::life::{Life, Outlook, StartCut};
use crate::marks::Marks;
use crate::remnants::{self, Prober};
use crate::stage::{Stage, Stopper};
use ashlar_sim::{Operation, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, to_u64};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where superblocks lie at the beginning of a member.
const HEADS: Extent = Extent { offset: 0, bytes: 128 << 10 };
/// Abuses between two lives, of a hundred.
const ABUSES: u64 = 40;
/// Of kept maps that a killed program left, how many are spoiled, of a hundred.
const KEPT_MAPS_SPOILED: u64 = 50;
/// Of arrays with checksums: how often more of a row is damaged than the parity replaces, of a
/// hundred.
const DAMAGED_BEYOND: u64 = 30;

/// What of a universe is to be left out: to find the least that still fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Client requests at most.
    pub requests: usize,
    /// Acts of the director at most.
    pub acts: usize,
    /// Lives at most.
    pub lives: usize,
    /// Clients at most.
    pub clients: usize,
    /// Keep the last requests of clients for the story.
    pub is_told: bool,
    /// What is wished instead of drawn.
    pub wish: Wish,
}

impl Default for Limits {
    fn default() -> Limits {
        let most = usize::MAX;
        Limits {
            requests: most,
            acts: most,
            lives: most,
            clients: most,
            is_told: false,
            wish: Wish::default(),
        }
    }
}

/// A universe that went well.
#[derive(Clone, Debug)]
pub struct Report {
    /// Identifies all that happened.
    pub hash: u64,
    /// Device operations.
    pub operations: u64,
    /// What was reached.
    pub marks: Marks,
    /// Faults: of devices, of hosts, and abuses.
    pub faults: u64,
    /// The story so far.
    pub story: String,
}

/// A universe that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its configuration.
    pub config: Config,
    /// What it was limited to.
    pub limits: Limits,
    /// What is wrong, first.
    pub what: String,
    /// What was done, in order.
    pub story: String,
    /// The last device operations.
    pub operations: Vec<Operation>,
}

/// Run the universe of `seed`.
///
/// # Errors
/// What went wrong in it.
pub fn run(seed: u64, limits: Limits) -> Result<Report, Box<Failure>> {
    use_small_pages();
    let mut config = Config::draw(seed, limits.wish);
    config.clients.truncate(limits.clients);
    let stage = Stage::new(config.clone(), (limits.requests, limits.acts), limits.is_told);
    let mut world = SimWorld::new(seed);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut universe = Universe::new(&mut world, stage.clone(), limits);
        universe.run();
    }));
    let marks = stage.marks().clone();
    match ended {
        Ok(()) => Ok(Report {
            hash: world.trace_hash(),
            operations: world.operations(),
            faults: marks.faults(),
            marks,
            story: stage.story(),
        }),
        Err(panic) => {
            let what = match panic.downcast::<Stopper>() {
                Ok(stopper) => stopper.0,
                Err(panic) => format!("panic: {}", text_of(panic.as_ref())),
            };
            let operations = world.last_operations();
            Err(Box::new(Failure { config, limits, what, story: stage.story(), operations }))
        }
    }
}

/// Each start of an engine makes pools of which a universe touches a corner: on huge pages,
/// clearing them took more than half of the time of a run. A kernel that does not know the wish
/// costs time, nothing else.
fn use_small_pages() {
    let _slower = rustix::thread::disable_transparent_huge_pages(true);
}

pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "of an unknown kind".to_owned(),
    }
}

struct Universe<'w> {
    world: &'w mut SimWorld,
    stage: Stage,
    drive_slots: DriveSlots,
    random: Random,
    lives_max: usize,
    /// Of abuses: with a stream of their own, so that they disturb nothing.
    abuses: Random,
    /// Of what is damaged beyond the budget.
    lies: Random,
    older: Vec<Older>,
    older_map: OlderMap,
}

impl Universe<'_> {
    fn new(world: &mut SimWorld, stage: Stage, limits: Limits) -> Universe<'_> {
        let drive_slots = DriveSlots::new(world, stage.config());
        stage.set_switch(world.switch());
        stage.set_memory(world.memory());
        stage.set_prober(Prober::of(&drive_slots));
        let random = Random::stream(stage.config().seed, 0xD1);
        let abuses = Random::stream(stage.config().seed, 0xD2);
        let lies = Random::stream(stage.config().seed, 0xD3);
        let lives_max = limits.lives;
        Universe {
            world,
            stage,
            drive_slots,
            random,
            lives_max,
            abuses,
            lies,
            older: Vec::new(),
            older_map: OlderMap::default(),
        }
    }

    fn run(&mut self) {
        let config = self.stage.config();
        self.stage.mark(&format!("level.{}", config.shape.level.name()));
        self.stage.mark(&format!("policy.{}, class.{}", config.policy.name(), config.class.name()));
        if config.shape.declustered.is_some() {
            self.stage.mark("layout.declustered");
        }
        if config.has_checksums {
            self.stage.mark("policy.log, with checksums");
        }
        self.create();
        let mut outlook = Outlook::default();
        let lives = self.stage.config().lives.min(self.lives_max);
        for number in 1..=lives {
            self.between((number, lives), &outlook);
            outlook = self.life(u64::try_from(number).expect("few lives"), lives - number, outlook);
            // Sectors that cannot be read cost blocks then, whoever accepts what.
            let mut disks = self.drive_slots.all.iter().map(|it| &it.disk);
            let is_broken = disks.any(|disk| disk.unreadable_sectors() > 0);
            if outlook.is_over && (is_broken || !outlook.is_read_only) {
                return;
            }
            if outlook.is_over {
                break;
            }
        }
        self.world.call_off();
        (0..self.drive_slots.all.len()).for_each(|at| {
            self.drive_slots.heal(at, self.stage.config(), self.world.now());
        });
        self.stage.say(|| "everything heals".to_owned());
        let healed = self.heal(0x99, outlook).or_else(|| {
            // What the status of a read-only array says.
            self.stage.say(|| "the operator accepts the doubt".to_owned());
            self.heal(0x9B, Outlook { accepts_doubt: true, ..outlook })
        });
        let healed = healed.expect("the array is for writing then, or it went wrong before");
        audit::at_rest(&self.stage, &self.drive_slots, healed.generation);
        if !self.stage.config().is_short {
            Life::new(self.world, &self.stage, 0x9A, &healed).look_again(&mut self.drive_slots);
        }
        let found = self.stage.ledger().found_in_doubt;
        self.stage.marks().add("uncertain.read", found);
        self.stage.mark("universe.whole_at_the_end");
    }

    fn heal(&mut self, number: u64, outlook: Outlook) -> Option<Outlook> {
        Life::new(self.world, &self.stage, number, &outlook).heal(&mut self.drive_slots, outlook)
    }

    /// Make the array; sometimes the power goes meanwhile, and it is made again.
    fn create(&mut self) {
        let config = self.stage.config();
        let is_used = |at: &usize| *at < config.created().members || *at >= config.shape.members;
        let used: Vec<usize> = (0..self.drive_slots.all.len()).filter(is_used).collect();
        remnants::use_some(&self.stage, &self.drive_slots, (&used[..], 0));
        for attempt in 0..3 {
            let is_cut = attempt < 2 && self.random.percent(8);
            if is_cut {
                let stop = draw_stop(&mut self.random);
                let operations = self.random.below(60);
                self.world.switch().stop_after(operations, stop);
            }
            let made = Life::new(self.world, &self.stage, 0x90 + attempt, &Outlook::default())
                .create(&self.drive_slots, attempt > 0);
            let Some((data_offset, geometry)) = made else {
                self.stage.say(|| "the host stopped while the array was created".to_owned());
                self.stage.mark("crash.in_create");
                continue;
            };
            self.world.call_off();
            self.world.stop(Stop::Kill);
            let members = &self.drive_slots.all[..self.stage.config().created().members];
            members.iter().for_each(|it| remnants::none_is_left(&self.stage, &it.disk));
            self.drive_slots.data_offset = data_offset;
            self.drive_slots.geometry = Some(geometry);
            self.drive_slots.leave_old_content(&geometry, self.stage.config().window);
            self.begin_growth();
            return;
        }
        self.stage.fail("the third creation was stopped, too: a fault of the simulator");
    }

    /// The array that was just created is to grow.
    fn begin_growth(&mut self) {
        let config = self.stage.config();
        if config.grows == 0 {
            return;
        }
        let disks = self.drive_slots.all.iter().map(|drive_slot| &drive_slot.disk);
        let disks: Vec<&SimDisk> = disks.take(config.shape.members).collect();
        if let Err(fault) = growth::begin(&disks, config) {
            self.stage.fail(format!("the array cannot grow: {fault}"));
        }
        self.stage.mark("layout.growing");
    }

    /// What happens while nobody uses the devices.
    fn between(&mut self, (number, lives): (usize, usize), outlook: &Outlook) {
        let Some(rest) = self.drive_slots.at_rest() else { return };
        self.drive_slots.geometry = rest.newest.geometry.to_layout();
        if number > 1 {
            self.drive_slots.adopt(&rest);
            self.drive_slots.forget_suspicions();
        }
        let now = self.world.now();
        for at in 0..self.drive_slots.all.len() {
            let heals = self.drive_slots.all[at].trouble.is_some() && self.random.percent(30);
            // One that went unseen, and others that are lost next, may be too many.
            if heals && !self.drive_slots.all[at].went_unseen {
                let config = self.stage.config().clone();
                self.drive_slots.heal(at, &config, now);
                self.drive_slots.forget_suspicions();
                self.stage.say(|| {
                    format!("{} heals while nobody uses it", self.drive_slots.all[at].name)
                });
            }
        }
        changed::grow_some(&self.stage, &mut self.drive_slots, to_u64(number));
        let free = self.drive_slots.free();
        remnants::use_some(&self.stage, &self.drive_slots, (&free[..], to_u64(number)));
        let class = self.stage.config().class;
        let is_calm = class == Class::Losses && number == lives;
        if is_calm {
            self.heal_all();
        }
        let may_lose = match class {
            Class::Everything => true,
            Class::Losses if is_calm => false,
            Class::Losses | Class::LossesThenCrash => !outlook.was_crash,
            Class::Crashes => false,
        };
        if may_lose && self.random.percent(self.stage.config().cuts.losses_at_rest) {
            self.lose_at_rest(&rest);
        }
        if !self.stage.config().is_short {
            self.abuse(to_u64(number), &rest, outlook);
        }
    }

    /// Between two starts that were cut off: devices come back, others are lost.
    fn come_and_go(&mut self, rest: &crate::drive_slot::Rest) {
        let now = self.world.now();
        let (comes, goes) = self.stage.config().cuts.comes_and_goes;
        for at in 0..self.drive_slots.all.len() {
            let heals = self.drive_slots.all[at].trouble.is_some() && self.random.percent(comes);
            if heals && !self.drive_slots.all[at].went_unseen {
                let config = self.stage.config().clone();
                self.drive_slots.heal(at, &config, now);
                self.stage
                    .say(|| format!("{} heals between starts", self.drive_slots.all[at].name));
                self.stage.mark("start.device_came_between");
            }
        }
        self.drive_slots.forget_suspicions();
        if self.random.percent(goes) {
            self.lose_at_rest(rest);
        }
    }

    /// Nothing is wrong with any device any more.
    fn heal_all(&mut self) {
        for at in 0..self.drive_slots.all.len() {
            self.drive_slots.heal(at, self.stage.config(), self.world.now());
            self.drive_slots.all[at].disk.repair_media();
        }
        self.drive_slots.forget_suspicions();
        self.stage.say(|| "all devices heal while nobody uses them".to_owned());
    }

    fn abuse(&mut self, number: u64, rest: &crate::drive_slot::Rest, outlook: &Outlook) {
        let is_due = self.abuses.percent(ABUSES);
        let mut abuses = Abuses {
            world: self.world,
            stage: &self.stage,
            drive_slots: &mut self.drive_slots,
            random: &mut self.abuses,
            older: &mut self.older,
        };
        if is_due {
            abuses.undergo(rest, outlook);
        }
        abuses.remember(rest, outlook);
        let mut random = Random::stream(abuses.stage.config().seed, 0xCB00 + number);
        if random.percent(KEPT_MAPS_SPOILED) {
            abuses.spoil_kept_map(&mut random, rest, &mut self.older_map);
        }
        abuses.roll_all_back(&mut random, rest, outlook);
        let mut random = Random::stream(abuses.stage.config().seed, 0xE400 + number);
        abuses.call_otherwise(&mut random, rest, outlook);
        abuses.give_away(&mut random, rest, outlook);
        if self.lies.percent(DAMAGED_BEYOND) {
            abuses.spoil_beyond(&mut self.lies, outlook);
        }
    }

    fn lose_at_rest(&mut self, rest: &crate::drive_slot::Rest) {
        let slots = self.drive_slots.slots();
        // The device that another is being filled from, rather than any.
        let sources: Vec<usize> =
            self.drive_slots.all.iter().filter_map(|drive_slot| drive_slot.target_of).collect();
        for _ in 0..1 + self.random.below(3) {
            let out = self.drive_slots.maybe_out_at_rest(rest, slots);
            let slot = usize::try_from(self.random.below(u64::try_from(slots).expect("few")));
            let mut slot = slot.expect("few");
            if let (Some(source), true) = (sources.first(), self.random.percent(50)) {
                slot = *source;
            }
            let Some(at) = self.drive_slots.in_slot(slot) else { continue };
            let now = self.world.now();
            if self.drive_slots.all[at].trouble.is_none()
                && !out[slot]
                && self.drive_slots.may_lose(slot, &out, now)
            {
                self.drive_slots.all[at].disk.vanish();
                self.drive_slots.set_trouble(at, Some(crate::drive_slot::Trouble::Absent), now);
                self.stage.say(|| {
                    format!("{} is lost while nobody uses it", self.drive_slots.all[at].name)
                });
                self.stage.mark("fault.vanished_at_rest");
            }
        }
        self.drive_slots.forget_suspicions();
    }

    fn life(&mut self, number: u64, later: usize, outlook: Outlook) -> Outlook {
        let mut outlook = outlook;
        // Cut during the start, and again, and again.
        for depth in 0..3 {
            let cuts = self.stage.config().cuts;
            let is_cut = outlook.was_crash && self.random.percent(cuts.starts);
            let may_crash = matches!(self.stage.config().class, Class::Crashes | Class::Everything);
            if !(is_cut && may_crash) {
                break;
            }
            let stop = draw_stop(&mut self.random);
            let is_after_reads = cuts.after_reads > 0 && self.random.percent(cuts.after_reads);
            let place = cuts.starts_in.filter(|_| self.random.percent(66));
            if is_after_reads {
                // By whoever starts it.
            } else if let Some((extent, writes)) =
                place.and_then(|(place, writes)| Some((self.extent_of(place)?, writes)))
            {
                let writes = 1 + self.random.below(writes);
                self.world.switch().stop_at_write_in(extent, writes, stop);
            } else if self.random.percent(50) {
                let operations = self.random.below(80);
                self.world.switch().stop_after(operations, stop);
            } else {
                // Where a start tells the members what it has come to.
                let writes = 1 + self.random.below(60);
                self.world.switch().stop_at_write_in(HEADS, writes, stop);
            }
            let number = number * 16 + depth;
            let reads = is_after_reads || self.random.percent(50);
            if !Life::new(self.world, &self.stage, number, &outlook).only_start(
                &mut self.drive_slots,
                &outlook,
                StartCut { reads, after_reads: is_after_reads.then_some(stop) },
            ) {
                self.world.call_off();
                break;
            }
            outlook.was_crash = true;
            self.stage.mark(match depth {
                0 => "crash.in_start",
                1 => "crash.in_start_twice",
                _ => "crash.in_start_thrice",
            });
            if let Some(rest) = self.drive_slots.at_rest() {
                self.drive_slots.adopt(&rest);
                if self.stage.config().class == Class::Everything {
                    self.come_and_go(&rest);
                }
            }
        }
        let mut random = self.random.clone();
        self.random.next_u64();
        let place = self
            .stage
            .config()
            .cuts
            .lives_in
            .and_then(|(place, writes)| Some((self.extent_of(place)?, writes)));
        Life::new(self.world, &self.stage, number, &outlook).live(
            &mut self.drive_slots,
            outlook,
            (later, place, &mut random),
        )
    }

    /// Where on every member it is.
    fn extent_of(&self, place: Place) -> Option<Extent> {
        let areas = self.drive_slots.at_rest()?.newest.areas;
        Some(match place {
            Place::Heads => HEADS,
            Place::Map => areas.written_map,
            Place::Log => areas.intent_log,
            Place::Data => {
                let geometry = self.drive_slots.geometry?;
                Extent::new(self.drive_slots.data_offset, geometry.member_bytes())
            }
        })
    }
}

/// How the host ends.
pub(crate) fn draw_stop(random: &mut Random) -> Stop {
    if random.percent(75) { Stop::PowerCut } else { Stop::Kill }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "universe {} went wrong: {}", self.config.seed, self.what)?;
        writeln!(f, "configuration:\n{}", self.config)?;
        writeln!(f, "what was done (device operation, then what):\n{}", self.story)?;
        if !self.limits.is_told {
            return write!(f, "again, with requests and operations: {} --story", self.command());
        }
        writeln!(f, "the last device operations:")?;
        for operation in self.operations.iter().rev().take(60).rev() {
            writeln!(f, "  {operation}")?;
        }
        write!(f, "again: {}", self.command())
    }
}

impl Failure {
    /// What is wrong, in one line.
    pub fn first_line(&self) -> &str {
        self.what.lines().next().unwrap_or_default()
    }

    /// The line that repeats it.
    pub fn command(&self) -> String {
        let mut line = format!("just sim {}", self.config.seed);
        let Limits { requests, acts, lives, clients, .. } = self.limits;
        let limits =
            [("requests", requests), ("acts", acts), ("lives", lives), ("clients", clients)];
        for (name, limit) in limits {
            if limit != usize::MAX {
                line.push_str(&format!(" --{name} {limit}"));
            }
        }
        line.push_str(&self.limits.wish.to_string());
        line
    }
}
