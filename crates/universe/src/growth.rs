//! Arrays that grow. One that was just created begins to, by hand: what `Superblock::growing` says
//! is written to all members, the new ones among them, with empty maps. One that runs does when its
//! operator says so, with devices that wait.
//!
//! What must stay true: by hand it is what an engine would write that begins a growth before the
//! first start. A command may be refused, and then the array is as it was.

use crate::config::{Class, Config};
use crate::director::{Director, IN_USE, TANK};
use crate::drive_slot::{DriveSlots, Trouble, out_of_sync};
use crate::universe::draw_stop;
use ashlar_engine::{GrowSpec, SlotState};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{
    BitmapKind, GrowthFault, JobKind, JobRecord, MemberEntry, PageIdentity, Role, Superblock, Text,
};
use ashlar_sim::{DiskOptions, SimDisk, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_u64, to_usize};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Bits of a page of the written map.
const BITS_PER_PAGE: u64 = 32_512;

/// The array on the first of these disks grows over all of them.
///
/// # Errors
/// If it cannot.
pub(crate) fn begin(disks: &[&SimDisk], config: &Config) -> Result<(), GrowthFault> {
    let slots = copy_slots(disks[0].size_bytes()).expect("large enough");
    let created = Superblock::decode(&disks[0].peek(slots[0])).expect("it was just created");
    let first = created.members.len();
    let mut grown = created.growing(disks.len() - first)?;
    grown.generation += 1;
    grown.jobs.push(JobRecord::new(JobKind::Grow));
    for slot in (first..disks.len()).map(MemberIdx::from_at) {
        grown.members.push(entry(disks[slot.at()], slot, config));
    }
    for (disk, entry) in disks.iter().zip(&grown.members).skip(first) {
        make_map(disk, &grown, entry.uuid);
    }
    for (disk, entry) in disks.iter().zip(&grown.members) {
        let own = grown.for_member(entry.uuid).expect("listed").encode().expect("valid");
        slots.iter().for_each(|slot| disk.poke(slot.offset, &own));
    }
    Ok(())
}

fn entry(disk: &SimDisk, slot: MemberIdx, config: &Config) -> MemberEntry {
    let number = config.seed << 16 | u64::from(slot.0);
    let has_log = config.policy == ashlar_ondisk::ConsistencyPolicy::Log;
    MemberEntry {
        log_tag: if has_log { number | 1 << 62 } else { 0 },
        stated_atomic_bytes: config.stated_atomic_bytes,
        ..MemberEntry::new(Uuid::from_u128(0x6_0000 << 96 | u128::from(number)), slot, Role::Active)
    }
    .on_device(disk.size_bytes(), Text::cut(&disk.name()))
}

/// Both places of every page, without a bit.
fn make_map(disk: &SimDisk, grown: &Superblock, member: Uuid) {
    let owner_tag = grown.page_tag(member);
    for page in 0..grown.geometry.stripes_when_grown().div_ceil(BITS_PER_PAGE) {
        let number = u32::try_from(page).expect("few pages");
        let identity = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page: number };
        for place in 0..2 {
            disk.poke(grown.written_map_offset(page, place), &identity.first());
        }
    }
}

/// What may stand against a growth.
const MAY_BE: [&str; 4] = ["array.cannot_grow", "array.busy", "device.failed", IN_USE];
/// Growths that come to something, of one universe.
pub(crate) const GROWTHS_MAX: usize = 2;
/// Time between two looks whether members are told of a frontier, and looks at most.
const LOOK_EVERY: Duration = Duration::from_micros(40);
const LOOKS_MAX: usize = 5000;
/// Commands one after the other, from the first that fails until all members say so.
const ANSWERS: u32 = 20;
/// Times that an array is made whole before it grows all the same.
const SETTLES_MAX: usize = 4;

impl Director<'_> {
    /// The operator has the array grow by a device that waits, or by two. Sometimes the host stops
    /// meanwhile, or a member goes.
    pub(crate) async fn grow(&mut self) {
        self.wait_until_whole().await;
        let mut devices = self.drive_slots.free();
        self.random.shuffle(&mut devices);
        devices.truncate(if self.random.percent(60) { 1 } else { 2 });
        if devices.is_empty() || self.stage.growths() == GROWTHS_MAX {
            return;
        }
        devices.iter().for_each(|at| self.drive_slots.all[*at].disk.stop_lying());
        let chosen = devices;
        let names = chosen.iter().map(|at| self.drive_slots.all[*at].name.clone());
        let devices: Vec<String> = names.collect();
        self.say(&format!("grow by {}", devices.join(", ")));
        self.stop_soon();
        let gone = self.lose_soon();
        self.stage.growth_begins(Some(self.drive_slots.slots()));
        let array = TANK.to_owned();
        let spec = GrowSpec { array, destroy: devices.clone(), devices, is_dry_run: false };
        let answer = self.engine.grow(spec).await;
        self.stage.growth_begins(None);
        self.until_gone(gone).await;
        let has_begun = answer.is_ok();
        self.answered("grow", answer.map(drop), &MAY_BE);
        self.follow_array();
        self.refresh().await;
        if has_begun {
            chosen.iter().for_each(|at| self.nothing_is_left_on(*at));
            self.stage.mark("operator.grown");
            self.stage.count_growth();
            self.stop_soon();
            match self.random.below(4) {
                0 => self.lose_as_it_moves().await,
                1 => self.replace_in_the_middle().await,
                _ => {}
            }
        }
    }

    /// A member goes as the first members are told of a new frontier.
    async fn lose_as_it_moves(&mut self) {
        if !self.may_lose_now() {
            return;
        }
        let victims = self.victims();
        let Some(at) = self.choose(&victims) else { return };
        let heads = |slots: &DriveSlots| -> Vec<Vec<u8>> {
            let head = Extent::new(0, BLOCK_BYTES);
            slots.all.iter().map(|drive_slot| drive_slot.disk.peek(head)).collect()
        };
        let before = heads(self.drive_slots);
        for _ in 0..LOOKS_MAX {
            self.handle.sleep(LOOK_EVERY).await;
            if heads(self.drive_slots) != before {
                break;
            }
        }
        self.drive_slots.all[at].disk.vanish();
        self.drive_slots.set_trouble(at, Some(Trouble::Absent), self.handle.now());
        self.say(&format!("{} goes as the frontier moves", self.drive_slots.all[at].name));
        self.stage.mark("growth.member_lost_as_it_moves");
    }

    /// The growth pauses somewhere, and a member gets another device meanwhile.
    async fn replace_in_the_middle(&mut self) {
        let magnitude = 10 + self.random.below(9);
        self.handle.sleep(Duration::from_micros(self.random.below(1 << magnitude))).await;
        let answer = self.engine.pause(TANK, JobKind::Grow).await;
        self.answered("pause the growth", answer, &["job.unknown"]);
        self.refresh().await;
        let free = self.drive_slots.free();
        let Some(at) = self.choose(&free) else { return };
        let slot = to_usize(self.random.below(to_u64(self.drive_slots.slots())));
        if self.replace_with(slot, at).await {
            self.stage.mark("growth.member_replaced");
        }
    }

    /// Whether a loss is within what this universe allows now.
    fn may_lose_now(&self) -> bool {
        let config = self.stage.config();
        let may_lose = config.class != Class::Crashes && !self.is_calm;
        may_lose && config.contract.survives_losses_with_crash
    }

    /// What is not whole does not grow, so operators wait, mostly.
    async fn wait_until_whole(&mut self) {
        if !self.random.percent(80) {
            return;
        }
        // A device that lost its cache, and that nobody has seen go, must not come back unseen.
        let went_unseen = self.drive_slots.has_unseen_loss(&self.array.slot_states());
        let begins_whole = self.stage.config().cuts.begins_whole && !went_unseen;
        if begins_whole && !self.stage.errors_are_allowed() {
            // Clients write: a device may go out for what it failed before it was healed. Until
            // that is known it counts as lost (seed 914481332).
            for _ in 0..SETTLES_MAX {
                self.heal_devices();
                self.make_whole().await;
                self.handle.sleep(self.time_of_answers()).await;
                if !out_of_sync(&self.array).contains(&true) {
                    self.drive_slots.forget_suspicions();
                    break;
                }
            }
        } else {
            self.await_rebuild().await;
        }
        self.refresh().await;
    }

    /// Time in which every command that is under way is answered, and the members are told of it.
    fn time_of_answers(&self) -> Duration {
        let longest = |disk: &DiskOptions| *disk.latency.write.end().max(disk.latency.flush.end());
        let longest = self.stage.config().disks.iter().map(longest).max();
        longest.unwrap_or_default() * ANSWERS
    }

    async fn until_gone(&self, gone: Rc<Cell<bool>>) {
        while !gone.get() {
            self.handle.sleep(Duration::from_millis(1)).await;
        }
    }

    /// A growth made another array of it, which the clients have already.
    fn follow_array(&mut self) {
        let Ok(array) = self.engine.array(TANK) else {
            self.stage.fail("there is no array after a growth")
        };
        self.stage.set_array(Some(&array));
        self.drive_slots.resize(array.geometry().members());
        self.array = array;
    }

    fn stop_soon(&mut self) {
        let may_stop = matches!(self.stage.config().class, Class::Crashes | Class::Everything);
        if may_stop && self.random.percent(30) {
            let magnitude = 4 + self.random.below(6);
            let operations = 1 + self.random.below(1 << magnitude);
            let stop = draw_stop(&mut self.random);
            // Whoever lost its cache is to be seen as gone before it may come back.
            if stop != Stop::Kill || !self.drive_slots.has_lost_a_cache() {
                self.stage.cut_after(operations, stop);
            }
        }
    }

    /// Perhaps a member goes soon; whether it has gone, or none will.
    fn lose_soon(&mut self) -> Rc<Cell<bool>> {
        let gone = Rc::new(Cell::new(true));
        if !self.may_lose_now() || !self.random.percent(15) {
            return gone;
        }
        let victims = self.victims();
        let Some(at) = self.choose(&victims) else { return gone };
        self.drive_slots.set_trouble(at, Some(Trouble::Absent), self.handle.now());
        self.say(&format!("{} goes soon", self.drive_slots.all[at].name));
        self.stage.mark("growth.member_lost_as_it_begins");
        let magnitude = 8 + self.random.below(11);
        let wait = Duration::from_micros(self.random.below(1 << magnitude));
        let (handle, disk, is_gone) =
            (self.handle.clone(), self.drive_slots.all[at].disk.clone(), Rc::clone(&gone));
        gone.set(false);
        self.handle.spawn(async move {
            handle.sleep(wait).await;
            disk.vanish();
            is_gone.set(true);
        });
        gone
    }

    /// Count it if a member is lost while the array grows.
    pub(crate) fn note_lost_in_growth(&self) {
        let is_lost = |state: &SlotState| matches!(state, SlotState::Out | SlotState::Failing);
        let grows = self.array.running_jobs().iter().any(|job| job.kind == JobKind::Grow);
        if grows && self.array.slot_states().iter().any(is_lost) {
            self.stage.mark("growth.member_lost");
        }
    }
}
