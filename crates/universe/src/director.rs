//! The director of one life: takes acts from the menu, one after the other, while clients work.
//!
//! What must stay true: it takes no more redundancy than the budget allows. It decides and acts in
//! one step, so that the engine cannot change anything in between. The answer to an operator's
//! command is compared with the allowed answers.

use crate::config::Class;
use crate::drive_slot::{DriveSlots, Trouble, out_of_sync};
use crate::menu::Act;
use crate::stage::{Stage, seconds};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{Array, Engine, Refusal, SlotState, event_names};
use ashlar_ondisk::JobKind;
use ashlar_ring::Handle;
use ashlar_sim::{Latency, Lie, Random, Stop};
use ashlar_units::{Extent, MemberIdx, Nanos, SECTOR_BYTES, StripIdx, StripeNo, to_u64, to_usize};
use std::sync::Arc;
use std::time::Duration;

/// Name of the array in every universe.
pub(crate) const TANK: &str = "tank";

/// A spare may be on its way into a slot: then nobody shows it, and it cannot be opened.
pub(crate) const IN_USE: &str = "device.not_opened";

/// A silent device that the engine says it waits for speaks after this time: requests that need it
/// must end some day.
pub(crate) const SILENT_IF_WAITED_FOR: Duration = Duration::from_secs(240);
/// Any other silent device speaks this much later: after longer than a request may take.
const SILENT_BEYOND: Duration = Duration::from_secs(660);

pub(crate) struct Director<'l> {
    pub(crate) stage: Stage,
    pub(crate) engine: Engine,
    pub(crate) handle: Handle,
    pub(crate) random: Random,
    pub(crate) drive_slots: &'l mut DriveSlots,
    pub(crate) array: Arc<Array>,
    /// A resync is under way: until it is through a loss goes with the crash.
    pub(crate) is_resyncing: bool,
    /// Nothing may be lost in this life.
    pub(crate) is_calm: bool,
}

impl Director<'_> {
    /// So many acts, with little time between them.
    pub(crate) async fn direct(&mut self, acts: u64) {
        for _ in 0..acts {
            if !self.stage.take_act() {
                return;
            }
            let wait = Duration::from_micros(self.random.below(6000));
            self.handle.sleep(wait).await;
            self.refresh().await;
            let act = self.stage.config().menu.choose(&mut self.random);
            let contract = self.stage.config().contract;
            let is_at_risk = self.is_resyncing && !contract.survives_losses_with_crash;
            if act.is_loss() && (is_at_risk || self.is_calm) {
                continue;
            }
            self.act(act).await;
            self.note_lost_in_growth();
        }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Idle => self.pass(2_000_000, 4_000_000).await,
            Act::Pause => self.pass(0, 30_000).await,
            Act::Vanish | Act::VanishCold | Act::VanishTogether => self.vanish(act),
            Act::FailWrites | Act::FailFlush | Act::FailReads | Act::Slow => self.trouble(act),
            Act::BreakSectors => self.break_sectors(),
            Act::Rot | Act::LoseWrite | Act::TearWrite | Act::MisdirectWrite => self.spoil(act),
            Act::FallSilent => self.fall_silent(),
            Act::StandStill => self.stand_still().await,
            Act::Heal => self.heal_one(),
            Act::ReAdd => self.re_add_one().await,
            Act::Fail => self.put_out().await,
            Act::Replace => self.replace().await,
            Act::AddSpare => self.add_spare().await,
            Act::RemoveSpare => self.remove_spare().await,
            Act::Scrub | Act::Repair => {
                let answer = self.engine.scrub(TANK, act == Act::Repair).await;
                self.answered("scrub", answer, &["scrub.running", "job.table_full"]);
            }
            Act::CancelScrub => {
                let answer = self.engine.cancel_scrub(TANK, None).await;
                self.answered("cancel the scrub", answer, &["job.unknown"]);
            }
            Act::PauseJobs => self.pause_jobs().await,
            Act::AwaitRebuild => self.await_rebuild().await,
            Act::NoRoom => self.no_room().await,
            Act::Grow => self.grow().await,
        }
    }

    /// Nothing but time passes meanwhile: requests and jobs wait, and nobody goes out for it.
    async fn no_room(&mut self) {
        self.say("no space under any device");
        self.stage.mark("fault.no_room");
        self.drive_slots.all.iter().for_each(|drive_slot| drive_slot.disk.fill_up());
        self.stage.ledger().set_no_space(true);
        let may_crash = matches!(self.stage.config().class, Class::Crashes | Class::Everything);
        if may_crash && self.random.percent(20) {
            let stop = if self.random.percent(50) { Stop::PowerCut } else { Stop::Kill };
            self.stage.cut_after(1 + self.random.below(60), stop);
        }
        self.pass(100_000, 6_000_000).await;
        if self.array.pause().is_some() {
            self.stage.mark("array.is_paused");
        }
        self.drive_slots.make_room();
        self.stage.ledger().set_no_space(false);
        self.say("there is space again");
    }

    async fn pass(&mut self, least_us: u64, more_us: u64) {
        let time = Duration::from_micros(least_us + self.random.below(more_us));
        self.handle.sleep(time).await;
    }

    pub(crate) fn say(&self, line: &str) {
        self.stage.say(|| format!("{} {line}", seconds(&self.handle)));
    }

    /// Which member is in which slot now.
    pub(crate) async fn refresh(&mut self) {
        let Ok(status) = self.engine.status().await else { return };
        let Some(array) = status.arrays.first() else { return };
        self.is_resyncing = self.array.running_jobs().iter().any(|job| job.kind == JobKind::Resync);
        let spares = self.engine.spares();
        for drive_slot in &mut self.drive_slots.all {
            drive_slot.is_spare = spares.iter().any(|spare| spare.path == drive_slot.name);
            drive_slot.target_of = array
                .members
                .iter()
                .position(|member| member.replacement.as_deref() == Some(&drive_slot.name));
            let now_in = array.members.iter().position(|member| member.path == drive_slot.name);
            // Out of its slot it is still remembered as the slot's, until another takes it.
            let keeps = |slot: &usize| array.members[*slot].path.is_empty();
            drive_slot.slot = now_in.or(drive_slot.slot.filter(keeps));
        }
    }

    fn out(&self) -> Vec<bool> {
        out_of_sync(&self.array)
    }

    /// Slots that may be lost, or are lost already, with a device that has no trouble.
    pub(crate) fn victims(&self) -> Vec<usize> {
        let (out, now) = (self.out(), self.handle.now());
        let is_victim = |at: &usize| {
            let drive_slot = &self.drive_slots.all[*at];
            let is_well = drive_slot.trouble.is_none();
            match drive_slot.slot.or(drive_slot.target_of) {
                Some(slot) => is_well && self.may_go(slot, &out, now),
                None => is_well && drive_slot.is_spare && self.may_lose_spare(now),
            }
        };
        (0..self.drive_slots.all.len()).filter(is_victim).collect()
    }

    fn may_lose_spare(&self, now: Nanos) -> bool {
        let states = self.array.slot_states();
        let bears = self.array.tolerated_losses();
        !self.array.has_spare_table() || self.drive_slots.may_lose_spare(&states, bears, now)
    }

    /// Whether the slot may be lost now, or is lost already.
    fn may_go(&self, slot: usize, out: &[bool], now: Nanos) -> bool {
        if !self.array.has_spare_table() {
            return out[slot] || self.drive_slots.may_lose(slot, out, now);
        }
        // A device that is being filled serves what it has.
        let states = self.array.slot_states();
        let may = self.drive_slots.may_lose_of((slot, &states), self.array.tolerated_losses(), now);
        if may
            && !out[slot]
            && out.iter().filter(|out| **out).count() >= self.stage.config().losses()
        {
            self.stage.mark("spares.bear_a_loss_more");
        }
        may
    }

    pub(crate) fn choose<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let count = to_u64(items.len());
        (count > 0).then(|| items[to_usize(self.random.below(count))])
    }

    fn vanish(&mut self, act: Act) {
        let most = if act == Act::VanishTogether { 3 } else { 1 };
        for _ in 0..most {
            let victims = self.victims();
            let Some(at) = self.choose(&victims) else { return };
            self.drive_slots.all[at].disk.vanish();
            let mut trouble = Trouble::Absent;
            if act == Act::VanishCold {
                self.drive_slots.all[at].disk.lose_cache();
                trouble = Trouble::AbsentCold;
            }
            self.drive_slots.set_trouble(at, Some(trouble), self.handle.now());
            self.say(&format!("{act:?} {}", self.drive_slots.all[at].name));
            self.stage.mark(match act {
                Act::Vanish => "fault.vanished",
                Act::VanishCold => "fault.vanished_with_its_cache",
                _ => "fault.vanished_together",
            });
        }
        self.stop_after_a_loss();
        if act == Act::VanishCold {
            self.kill_before_it_is_seen();
        }
    }

    /// Perhaps the program is killed before it sees that a device has gone.
    fn kill_before_it_is_seen(&self) {
        // A stream of its own, so that this draws nothing from the other.
        let mut own = Random::stream(self.random.clone().next_u64(), 0xD5);
        if self.stage.config().class == Class::Everything && own.percent(15) {
            self.stage.cut_after(own.below(12), Stop::Kill);
        }
    }

    fn stop_after_a_loss(&mut self) {
        let after_losses = self.stage.config().cuts.after_losses;
        if after_losses > 0 && self.random.percent(after_losses) {
            let operations = 1 + self.random.below(150);
            self.stage.cut_after(operations, Stop::PowerCut);
        }
    }

    fn trouble(&mut self, act: Act) {
        let victims = self.victims();
        let Some(at) = self.choose(&victims) else { return };
        let times = [None, Some(1), Some(3)];
        let times = self.choose(&times).expect("three");
        let kinds = [FaultKind::Media, FaultKind::TimedOut, FaultKind::Gone];
        let kind = self.choose(&kinds).expect("three");
        let disk = self.drive_slots.all[at].disk.clone();
        let (trouble, mark) = match act {
            Act::FailWrites => {
                disk.fail(CommandKind::Write, kind, times);
                (Trouble::FailsWrites, "fault.writes_fail")
            }
            Act::FailFlush => {
                disk.fail(CommandKind::Flush, kind, times);
                (Trouble::FailsFlushes, "fault.flush_fails")
            }
            Act::FailReads => {
                disk.fail(CommandKind::Read, kind, times);
                (Trouble::FailsReads, "fault.reads_fail")
            }
            _ => {
                let ms = Duration::from_millis(1 + self.random.below(1500));
                disk.set_latency(Latency::constant(ms));
                (Trouble::Slow, "fault.slow")
            }
        };
        self.drive_slots.set_trouble(at, Some(trouble), self.handle.now());
        self.say(&format!("{act:?} {kind:?} x {times:?} on {}", self.drive_slots.all[at].name));
        self.stage.mark(mark);
        if act == Act::FailWrites {
            self.stage.ledger().writes_may_fail();
            self.stop_after_a_loss();
        }
    }

    fn fall_silent(&mut self) {
        let victims = self.victims();
        let Some(at) = self.choose(&victims) else { return };
        let name = self.drive_slots.all[at].name.clone();
        let disk = self.drive_slots.all[at].disk.clone();
        disk.fall_silent();
        let (handle, engine, path) = (self.handle.clone(), self.engine.clone(), name.clone());
        self.handle.spawn(async move {
            handle.sleep(SILENT_IF_WAITED_FOR).await;
            if !is_told_of(&engine, &path) {
                handle.sleep(SILENT_BEYOND).await;
            }
            disk.speak();
        });
        self.drive_slots.set_trouble(at, Some(Trouble::Silent), self.handle.now());
        self.stage.note_silent(&name);
        self.say(&format!("{name} falls silent"));
        self.stage.mark("fault.silent");
    }

    /// Nobody may be put out for that, and no request may fail.
    async fn stand_still(&mut self) {
        let slots = self.array.geometry().members();
        let group = self.drive_slots.group_of(to_usize(self.random.below(to_u64(slots))));
        let is_all = self.random.percent(60);
        let is_meant = |slot: Option<usize>| slot.is_some_and(|it| is_all || group.contains(&it));
        let all = &self.drive_slots.all;
        let meant: Vec<usize> =
            (0..all.len()).filter(|at| is_meant(all[*at].slot.or(all[*at].target_of))).collect();
        // One that was silent does not go on with the others: it may speak while they stand still.
        let is_silent = |at: &usize| all[*at].trouble == Some(Trouble::Silent);
        let (silent, others): (Vec<usize>, Vec<usize>) = meant.into_iter().partition(is_silent);
        others.iter().for_each(|at| all[*at].disk.fall_silent());
        let magnitude = 8 + self.random.below(9);
        let time = Duration::from_millis(self.random.below(1 << magnitude));
        self.say(&format!("all (or else {group:?}): {is_all}, stand still for {time:?}"));
        let began = self.handle.now();
        self.handle.sleep(time).await;
        // What a device is about to go out for stood still, too.
        self.drive_slots.suspect_longer(began, self.handle.now());
        // Then not all stood still, and the others may have been too few to be waited for.
        let all = &self.drive_slots.all;
        if silent.iter().any(|at| !all[*at].disk.is_silent()) {
            others.iter().for_each(|at| self.stage.note_silent(&all[*at].name));
            self.stage.mark("fault.spoke_while_others_stood_still");
        }
        self.drive_slots.go_on();
        self.stage.mark("fault.stood_still");
    }

    /// Sectors of some strip, or of several in a row.
    fn break_sectors(&mut self) {
        let geometry = self.array.geometry_now();
        let (first, count) = self.stage.config().window;
        let (out, now) = (self.out(), self.handle.now());
        for _ in 0..1 + self.random.below(3) {
            let stripe = StripeNo(first + self.random.below(count));
            let strip =
                StripIdx::from_at(to_usize(self.random.below(to_u64(geometry.stripe_width()))));
            let slot = geometry.place(geometry.stripe(stripe), strip).member.at();
            let Some(at) = self.drive_slots.in_slot(slot) else { continue };
            if !self.drive_slots.may_break((&geometry, stripe, slot), &out, now) {
                continue;
            }
            let strip = self.drive_slots.strip_extent(&geometry, stripe, strip);
            let sectors = strip.bytes / SECTOR_BYTES;
            let from = self.random.below(sectors);
            let many = 1 + self.random.below(sectors - from);
            let extent = Extent::new(strip.offset + from * SECTOR_BYTES, many * SECTOR_BYTES);
            self.drive_slots.all[at].disk.break_media(extent);
            self.say(&format!(
                "break {extent} of {} (stripe {stripe})",
                self.drive_slots.all[at].name
            ));
            self.stage.mark("fault.sectors_broken");
        }
    }

    /// A strip's device lies about the next write of it, or blocks of it change.
    fn spoil(&mut self, act: Act) {
        let geometry = self.array.geometry_now();
        let (first, count) = self.stage.config().window;
        let (out, now) = (self.out(), self.handle.now());
        for _ in 0..1 + self.random.below(3) {
            let stripe = StripeNo(first + self.random.below(count));
            let other = StripeNo(first + self.random.below(count));
            let strip =
                StripIdx::from_at(to_usize(self.random.below(to_u64(geometry.stripe_width()))));
            let member = geometry.place(geometry.stripe(stripe), strip).member;
            let Some(at) = self.drive_slots.in_slot(member.at()) else { continue };
            let may_break =
                |stripe| self.drive_slots.may_break((&geometry, stripe, member.at()), &out, now);
            if !may_break(stripe) {
                continue;
            }
            let extent = self.drive_slots.strip_extent(&geometry, stripe, strip);
            let disk = self.drive_slots.all[at].disk.clone();
            let mark = match act {
                Act::Rot => {
                    let sectors = extent.bytes / SECTOR_BYTES;
                    let from = self.random.below(sectors);
                    let many = 1 + self.random.below((sectors - from).min(8));
                    let start = extent.offset + from * SECTOR_BYTES;
                    disk.rot(Extent::new(start, many * SECTOR_BYTES));
                    "fault.rot"
                }
                Act::LoseWrite => {
                    disk.lie_about_next_write(extent, Lie::Lost);
                    "fault.lost_write"
                }
                Act::TearWrite => {
                    disk.lie_about_next_write(extent, Lie::Torn);
                    "fault.torn_write"
                }
                _ => {
                    let elsewhere = geometry.strip_on(geometry.stripe(other), member);
                    let (Some(elsewhere), true) = (elsewhere, other != stripe && may_break(other))
                    else {
                        continue;
                    };
                    let to = self.drive_slots.strip_extent(&geometry, other, elsewhere).offset;
                    disk.lie_about_next_write(extent, Lie::Misdirected(to));
                    "fault.misdirected_write"
                }
            };
            self.stage.note_liar(&disk.name());
            self.say(&format!("{act:?} at {extent} of {} (stripe {stripe})", disk.name()));
            self.stage.mark(mark);
        }
    }

    fn heal_one(&mut self) {
        let states = self.array.slot_states();
        let is_ill = |at: &usize| {
            let drive_slot = &self.drive_slots.all[*at];
            drive_slot.trouble.is_some() && !drive_slot.is_unseen_loss(Some(&states))
        };
        let ill: Vec<usize> = (0..self.drive_slots.all.len()).filter(is_ill).collect();
        if let Some(at) = self.choose(&ill) {
            let config = self.stage.config().clone();
            self.drive_slots.heal(at, &config, self.handle.now());
            self.say(&format!("heal {}", self.drive_slots.all[at].name));
        }
    }

    /// Drive slots whose slot is out and that work.
    fn returnable(&self) -> Vec<usize> {
        let states = self.array.slot_states();
        let is_back = |at: &usize| {
            let drive_slot = &self.drive_slots.all[*at];
            let is_out = drive_slot.slot.is_some_and(|slot| states[slot] == SlotState::Out);
            is_out && drive_slot.trouble.is_none()
        };
        (0..self.drive_slots.all.len()).filter(is_back).collect()
    }

    async fn re_add_one(&mut self) {
        let back = self.returnable();
        if let Some(at) = self.choose(&back) {
            self.re_add(at).await;
        }
    }

    /// Take a member back. False if it was refused.
    pub(crate) async fn re_add(&mut self, at: usize) -> bool {
        let name = self.drive_slots.all[at].name.clone();
        self.say(&format!("re-add {name}"));
        let answer = self.engine.re_add(TANK, &name).await;
        let is_taken = answer.is_ok();
        let may_be = [
            "slot.taken",
            "member.none_out",
            "member.not_joined",
            "member.not_returned",
            "device.failed",
            IN_USE,
        ];
        self.answered("re-add", answer, &may_be);
        if is_taken {
            self.stage.mark("operator.re_added");
        }
        is_taken
    }

    async fn put_out(&mut self) {
        let slots = to_u64(self.array.geometry().members());
        let slot = to_usize(self.random.below(slots));
        let (out, now) = (self.out(), self.handle.now());
        if out[slot] {
            return;
        }
        // Only devices that are gone count: one that is being filled may be in sync before the
        // command is looked at, and then it is obeyed, whatever else is wrong that the engine has
        // not met yet.
        let states = self.array.slot_states();
        let gone: Vec<bool> = states
            .iter()
            .map(|state| matches!(state, SlotState::Out | SlotState::Failing))
            .collect();
        let has_spares = self.array.has_spare_table();
        if !has_spares && self.drive_slots.is_needed(slot, &gone) {
            let answer = self.engine.fail(TANK, MemberIdx::from_at(slot)).await;
            // Meanwhile this one may have gone.
            self.answered("put out a needed member", answer, &["member.needed"]);
            return;
        }
        if self.may_go(slot, &out, now) {
            if let Some(at) = self.drive_slots.in_slot(slot) {
                // Whatever comes of it, the slot counts as lost for a while.
                let trouble = self.drive_slots.all[at].trouble;
                self.drive_slots.set_trouble(at, trouble, now);
            }
            self.say(&format!("put out slot {slot}"));
            let answer = self.engine.fail(TANK, MemberIdx::from_at(slot)).await;
            self.answered("put out", answer, &["member.needed"]);
            self.stage.mark("operator.put_out");
        }
    }

    async fn replace(&mut self) {
        let free = self.drive_slots.free();
        let Some(at) = self.choose(&free) else { return };
        let slot = to_usize(self.random.below(to_u64(self.array.geometry().members())));
        let was_out = self.array.slot_states()[slot] == SlotState::Out;
        let is_taken = self.replace_with(slot, at).await;
        if is_taken && self.random.percent(30) {
            // So that lives end while a device is filled: there is little to be filled here.
            let kind = if was_out { JobKind::Rebuild } else { JobKind::Replace };
            let answer = self.engine.pause(TANK, kind).await;
            self.answered("pause what has just begun", answer, &["job.unknown"]);
        }
    }

    /// Put a device into a slot. False if it was refused.
    pub(crate) async fn replace_with(&mut self, slot: usize, at: usize) -> bool {
        let name = self.drive_slots.all[at].name.clone();
        // What it was told to lie about was said of the slot that it was in.
        self.drive_slots.all[at].disk.stop_lying();
        if self.carries_something(at) {
            let changes = self.drive_slots.all[at].disk.changes();
            let answer = self.engine.replace(TANK, MemberIdx::from_at(slot), &name, false).await;
            self.must_be_refused(at, changes, answer);
        }
        let was_out = self.array.slot_states()[slot] == SlotState::Out;
        self.say(&format!("replace slot {slot} (out: {was_out}) by {name}"));
        let answer = self.engine.replace(TANK, MemberIdx::from_at(slot), &name, true).await;
        let is_taken = answer.is_ok();
        let mut may_be = vec!["slot.taken", "member.not_joined", "device.failed", IN_USE];
        if self.array.has_spare_table() && !was_out {
            may_be.push("array.members_lost");
        }
        self.answered("replace", answer, &may_be);
        if is_taken {
            self.stage.mark(if was_out { "operator.rebuild" } else { "operator.copy" });
            self.nothing_is_left_on(at);
        }
        self.refresh().await;
        is_taken
    }

    async fn add_spare(&mut self) {
        let free = self.drive_slots.free();
        let Some(at) = self.choose(&free) else { return };
        let name = self.drive_slots.all[at].name.clone();
        self.drive_slots.all[at].disk.stop_lying();
        let pool = ashlar_ondisk::DEFAULT_POOL;
        if self.carries_something(at) {
            let changes = self.drive_slots.all[at].disk.changes();
            let answer = self.engine.add_spare(pool, &name, false).await;
            self.must_be_refused(at, changes, answer);
        }
        self.say(&format!("add spare {name}"));
        let answer = self.engine.add_spare(pool, &name, true).await;
        if answer.is_ok() {
            self.nothing_is_left_on(at);
        }
        self.answered("add a spare", answer, &["device.failed", IN_USE]);
        self.stage.mark("operator.spare_added");
    }

    async fn remove_spare(&mut self) {
        let is_spare = |at: &usize| self.drive_slots.all[*at].is_spare;
        let spares: Vec<usize> = (0..self.drive_slots.all.len()).filter(is_spare).collect();
        let Some(at) = self.choose(&spares) else { return };
        let name = self.drive_slots.all[at].name.clone();
        self.say(&format!("remove spare {name}"));
        let answer = self.engine.remove_spare(&name).await;
        self.answered("remove a spare", answer, &["spare.unknown", "device.failed"]);
        self.stage.mark("operator.spare_removed");
    }

    async fn pause_jobs(&mut self) {
        let kinds = [JobKind::Rebuild, JobKind::Resync, JobKind::Scrub, JobKind::Replace];
        let kind = self.choose(&kinds).expect("four");
        // Few arrays grow, and the others are as they were before any did.
        let is_growth = self.stage.config().may_grow() && self.random.percent(40);
        let kind = if is_growth { JobKind::Grow } else { kind };
        let is_pause = self.random.percent(60);
        let answer = match is_pause {
            true => self.engine.pause(TANK, kind).await,
            false => self.engine.unpause(TANK, kind).await,
        };
        if answer.is_ok() {
            self.say(&format!("pause {is_pause} {kind:?}"));
            self.stage.mark(if is_pause { "operator.paused" } else { "operator.unpaused" });
        }
        self.answered("pause", answer, &["job.unknown"]);
    }

    pub(crate) async fn await_rebuild(&mut self) {
        for _ in 0..200 {
            if !self.out().contains(&true) {
                self.stage.mark("rebuild.awaited");
                return;
            }
            self.handle.sleep(Duration::from_millis(50)).await;
        }
    }

    /// A command was answered: with success, or with one of these refusals.
    pub(crate) fn answered(&self, what: &str, answer: Result<(), Refusal>, may_be: &[&str]) {
        let Err(refusal) = answer else { return };
        if !may_be.contains(&refusal.code) {
            self.stage.fail(format!("{what}: refused with {}: {refusal}", refusal.code));
        }
        self.say(&format!("{what}: refused, {}", refusal.code));
        self.stage.mark("operator.refused");
    }
}

/// Whether the engine has said that it waits for this silent device.
fn is_told_of(engine: &Engine, path: &str) -> bool {
    let is_of_it = |(key, value): &(&str, String)| *key == "path" && value == path;
    let events = engine.events().since(0);
    let mut told = events.iter().filter(|event| event.name == event_names::MEMBER_SILENT);
    told.any(|event| event.fields.iter().any(is_of_it))
}
