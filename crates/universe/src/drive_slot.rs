//! The devices of a universe, the faults of each, and what a group may still lose.
//!
//! What must stay true: within the budget no stripe lacks more strips than its parity replaces,
//! whatever the engine knows of it. If the bookkeeping cannot be sure, it counts too much as lost,
//! never too little.

use crate::config::Config;
use crate::director::SILENT_IF_WAITED_FOR;
use ashlar_engine::{Array, SlotState};
use ashlar_layout::{Geometry, Shape};
use ashlar_ondisk::format::copy_slots;
use ashlar_ondisk::{Role, Superblock, SuperblockCopies};
use ashlar_ring::Handle;
use ashlar_sim::{SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, Nanos, StripIdx, StripeNo, to_usize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time after a fault in which its device may still go out for it.
const SUSPECT: Duration = Duration::from_secs(20);
/// A superblock of an array of these sizes is no longer.
const SUPERBLOCK_BYTES_MAX: u64 = 16 << 10;

/// What is wrong with a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    Absent,
    /// Its cache is lost, too: it may come back only when the engine has seen that it was gone.
    AbsentCold,
    FailsWrites,
    FailsFlushes,
    FailsReads,
    Slow,
    /// Nothing that it is asked comes back.
    Silent,
}

/// One device.
pub(crate) struct DriveSlot {
    pub(crate) disk: SimDisk,
    pub(crate) name: String,
    /// Each size that it had.
    sizes: Vec<u64>,
    pub(crate) trouble: Option<Trouble>,
    /// Until then it counts as lost although nothing is wrong with it any more.
    suspect_until: Nanos,
    /// It lost its cache and then the program was killed, which had not seen it go.
    pub(crate) went_unseen: bool,
    /// The slot it is in, or was in when it went out.
    pub(crate) slot: Option<usize>,
    pub(crate) is_spare: bool,
    /// It is being filled to replace the device of this slot.
    pub(crate) target_of: Option<usize>,
}

/// All of them.
pub(crate) struct DriveSlots {
    pub(crate) all: Vec<DriveSlot>,
    losses: usize,
    /// Which members can lose a stripe together, of a shape that has as many as there are slots.
    groups: Geometry,
    shape: Shape,
    /// Where the data area begins on every member, bytes.
    pub(crate) data_offset: u64,
    /// The array's geometry, once there is one.
    pub(crate) geometry: Option<Geometry>,
    /// Strips that one of the starts since the last that came about may have been unable to read:
    /// what it made of them before it was cut off is what the next one finds.
    unread: BTreeSet<(StripeNo, StripIdx)>,
}

/// What the superblocks on the devices say, read by the test's own hand.
pub(crate) struct Rest {
    /// The newest superblock there is.
    pub(crate) newest: Superblock,
    /// Of each drive slot: its slot and role according to that.
    pub(crate) places: Vec<Option<(usize, Role)>>,
    /// Of each drive slot: what it says itself.
    pub(crate) own: Vec<Option<Superblock>>,
    /// Of each drive slot: the generation it knows.
    pub(crate) generations: Vec<Option<u64>>,
}

impl DriveSlot {
    /// What it holds can be read at a start.
    pub(crate) fn is_sound(&self) -> bool {
        let is_mute = matches!(self.trouble, Some(Trouble::FailsReads | Trouble::Silent));
        !matches!(self.trouble, Some(Trouble::Absent | Trouble::AbsentCold)) && !is_mute
    }

    /// It lost its cache, and an array with slots in these states has not seen it gone. No engine
    /// without checksums could tell what it forgot if it came back to a running array.
    pub(crate) fn is_unseen_loss(&self, states: Option<&[SlotState]>) -> bool {
        let is_out = |slot: usize| states.is_some_and(|states| states[slot] == SlotState::Out);
        let was_seen = self.target_of.is_none() && self.slot.is_none_or(is_out);
        self.trouble == Some(Trouble::AbsentCold) && !was_seen
    }
}

impl DriveSlots {
    pub(crate) fn new(world: &mut SimWorld, config: &Config) -> DriveSlots {
        let mut all = Vec::new();
        for (at, options) in config.disks.iter().enumerate() {
            let name = format!("disk{at}");
            let disk = world.add_disk(&name, options.clone());
            world.add_path(&name, &second_path(&name));
            world.add_path(&name, &third_path(&name));
            all.push(DriveSlot {
                disk,
                name,
                sizes: vec![options.size_bytes],
                trouble: None,
                suspect_until: Nanos(0),
                went_unseen: false,
                slot: (at < config.shape.members).then_some(at),
                is_spare: false,
                target_of: None,
            });
        }
        let geometry = config.one_row();
        DriveSlots {
            all,
            losses: config.losses(),
            groups: geometry,
            shape: config.shape.clone(),
            data_offset: 0,
            geometry: None,
            unread: BTreeSet::new(),
        }
    }

    /// This device is larger from now on.
    pub(crate) fn grow(&mut self, at: usize, bytes: u64) {
        let drive_slot = &mut self.all[at];
        let size = drive_slot.disk.size_bytes() + bytes;
        drive_slot.disk.set_size(size);
        drive_slot.sizes.push(size);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|drive_slot| drive_slot.name.clone()).collect()
    }

    /// Slots that the array has.
    pub(crate) fn slots(&self) -> usize {
        self.groups.members()
    }

    /// The array has so many slots: more, when it has begun to grow.
    pub(crate) fn resize(&mut self, slots: usize) {
        if slots != self.slots() {
            self.shape.members = slots;
            self.groups = Geometry::smallest(&self.shape).expect("an array that grew is possible");
        }
    }

    /// The same devices by their other paths.
    pub(crate) fn second_paths(&self) -> Vec<String> {
        self.all.iter().map(|drive_slot| second_path(&drive_slot.name)).collect()
    }

    /// Everything by each of its names.
    pub(crate) fn all_paths(&self) -> Vec<Vec<String>> {
        let third = self.all.iter().map(|drive_slot| third_path(&drive_slot.name)).collect();
        vec![self.names(), self.second_paths(), third]
    }

    /// The drive slot in a slot, as far as is known.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<usize> {
        self.all.iter().position(|drive_slot| drive_slot.slot == Some(slot))
    }

    /// Drive slots nobody uses and nothing is wrong with.
    pub(crate) fn free(&self) -> Vec<usize> {
        let is_free = |at: &usize| {
            let drive_slot = &self.all[*at];
            let is_held =
                drive_slot.slot.is_some() || drive_slot.is_spare || drive_slot.target_of.is_some();
            !is_held && drive_slot.trouble.is_none()
        };
        (0..self.all.len()).filter(is_free).collect()
    }

    pub(crate) fn set_trouble(&mut self, at: usize, trouble: Option<Trouble>, now: Nanos) {
        let drive_slot = &mut self.all[at];
        drive_slot.trouble = trouble;
        drive_slot.suspect_until = now.after(SUSPECT);
    }

    /// Devices stood still from `began` on: what was to be held against one by then comes only now.
    pub(crate) fn suspect_longer(&mut self, began: Nanos, now: Nanos) {
        for drive_slot in self.all.iter_mut().filter(|it| it.suspect_until > began) {
            drive_slot.suspect_until = now.after(SUSPECT);
        }
    }

    pub(crate) fn is_uncertain(&self, slot: usize, now: Nanos) -> bool {
        // A device that is to take the slot brings its trouble along.
        let is_here = |drive_slot: &&DriveSlot| {
            drive_slot.slot == Some(slot) || drive_slot.target_of == Some(slot)
        };
        let mut here = self.all.iter().filter(is_here);
        here.any(|drive_slot| drive_slot.trouble.is_some() || drive_slot.suspect_until > now)
    }

    /// Spares that fail, or may still.
    pub(crate) fn spares_in_trouble(&self, now: Nanos) -> usize {
        let fails = |it: &&DriveSlot| it.trouble.is_some() || it.suspect_until > now;
        self.all.iter().filter(|it| it.is_spare).filter(fails).count()
    }

    pub(crate) fn is_broken(&self, slot: usize) -> bool {
        let mut in_slot = self.all.iter().filter(|drive_slot| drive_slot.slot == Some(slot));
        in_slot.any(|drive_slot| {
            drive_slot.disk.unreadable_sectors() > 0 || drive_slot.disk.is_damaged_anywhere()
        })
    }

    /// Whether some group lacks more of these than its parity replaces.
    pub(crate) fn is_beyond(&self, out: &[bool]) -> bool {
        self.groups.losses(|member| out[member.at()]) > self.losses
    }

    /// The slots of the group that the slot is in.
    pub(crate) fn group_of(&self, slot: usize) -> std::ops::Range<usize> {
        self.group(slot)
    }

    /// Slots that can lose a stripe together.
    pub(crate) fn sets(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        self.groups.failure_sets()
    }

    fn group(&self, slot: usize) -> std::ops::Range<usize> {
        let mut sets = self.sets();
        sets.find(|set| set.contains(&slot)).expect("each member is in one set")
    }

    /// Whether the slot may be lost now, with these slots not in sync.
    pub(crate) fn may_lose(&self, slot: usize, out: &[bool], now: Nanos) -> bool {
        let is_spent = |other: &usize| {
            *other == slot
                || out[*other]
                || self.is_uncertain(*other, now)
                || self.is_broken(*other)
        };
        self.group(slot).filter(is_spent).count() <= self.losses
    }

    /// Whether the engine itself must see that the slot is needed: too many others are out.
    pub(crate) fn is_needed(&self, slot: usize, out: &[bool]) -> bool {
        let others = self.group(slot).filter(|other| *other != slot && out[*other]);
        others.count() >= self.losses
    }

    /// Whether the strip of this stripe on `slot` may become unreadable.
    pub(crate) fn may_break(
        &self,
        (geometry, stripe, slot): (&Geometry, StripeNo, usize),
        out: &[bool],
        now: Nanos,
    ) -> bool {
        let is_spent = |other: &usize| {
            let is_here = || self.strip_is_broken(geometry, stripe, *other);
            *other == slot || out[*other] || self.is_uncertain(*other, now) || is_here()
        };
        self.group(slot).filter(is_spent).count() <= self.losses
    }

    fn strip_is_broken(&self, geometry: &Geometry, stripe: StripeNo, slot: usize) -> bool {
        let strip = geometry.strip_on(geometry.stripe(stripe), MemberIdx::from_at(slot));
        let Some(strip) = strip else { return false };
        let extent = self.strip_extent(geometry, stripe, strip);
        let mut in_slot = self.all.iter().filter(|drive_slot| drive_slot.slot == Some(slot));
        in_slot.any(|drive_slot| {
            drive_slot.disk.is_broken(extent) || drive_slot.disk.is_damaged(extent)
        })
    }

    /// Blocks of the window that are not what they should be, though the device gives them back:
    /// stripe, strip and row.
    pub(crate) fn damaged_blocks(&self, config: &Config) -> BTreeSet<(StripeNo, StripIdx, u64)> {
        let mut damaged = BTreeSet::new();
        let Some(geometry) = self.geometry else { return damaged };
        if !self.all.iter().any(|drive_slot| drive_slot.disk.is_damaged_anywhere()) {
            return damaged;
        }
        let (first, count) = config.window;
        for stripe in (first..first + count).map(StripeNo) {
            for strip in (0..geometry.stripe_width()).map(StripIdx::from_at) {
                let slot = geometry.place(geometry.stripe(stripe), strip).member.at();
                let extent = self.strip_extent(&geometry, stripe, strip);
                let here = || self.all.iter().filter(|drive_slot| drive_slot.slot == Some(slot));
                if !here().any(|drive_slot| drive_slot.disk.is_damaged(extent)) {
                    continue;
                }
                for row in 0..extent.bytes / BLOCK_BYTES {
                    let block = Extent::new(extent.offset + row * BLOCK_BYTES, BLOCK_BYTES);
                    if here().any(|drive_slot| drive_slot.disk.is_damaged(block)) {
                        damaged.insert((stripe, strip, row));
                    }
                }
            }
        }
        damaged
    }

    /// The devices had a life before: what is under the window is not zeros.
    pub(crate) fn leave_old_content(&self, geometry: &Geometry, (first, count): (u64, u64)) {
        let stripes = (first..first + count).map(|at| geometry.stripe(StripeNo(at)));
        let of_stripe = |stripe| {
            let strips = geometry.all_strips().iter();
            strips.map(move |strip| geometry.place(stripe, strip).offset)
        };
        // Strips of one stripe, and stripes that follow each other, may lie in any order.
        let offsets: Vec<u64> = stripes.flat_map(of_stripe).collect();
        let start = offsets.iter().copied().min().expect("a window has stripes");
        let end = offsets.iter().copied().max().expect("it has") + geometry.strip_bytes();
        let old = vec![0xD5; to_usize(end - start)];
        self.all.iter().for_each(|drive_slot| drive_slot.disk.poke(self.data_offset + start, &old));
    }

    /// Where a strip lies on its device.
    pub(crate) fn strip_extent(
        &self,
        geometry: &Geometry,
        stripe: StripeNo,
        strip: StripIdx,
    ) -> Extent {
        let place = geometry.place(geometry.stripe(stripe), strip);
        Extent::new(self.data_offset + place.offset, geometry.strip_bytes())
    }

    /// A start begins.
    pub(crate) fn note_start(&mut self, config: &Config) {
        let now = self.unreadable_strips(config);
        self.unread.extend(now);
    }

    /// The start came about: strips that it, or one before it that was cut off, may have been
    /// unable to read.
    pub(crate) fn unread_at_starts(&mut self) -> BTreeSet<(StripeNo, StripIdx)> {
        std::mem::take(&mut self.unread)
    }

    /// Strips of the window that a start may be unable to read, though their member is there.
    fn unreadable_strips(&self, config: &Config) -> BTreeSet<(StripeNo, StripIdx)> {
        let Some(geometry) = self.geometry else { return BTreeSet::new() };
        let (first, count) = config.window;
        let mut unreadable = BTreeSet::new();
        for stripe in (first..first + count).map(StripeNo) {
            for strip in (0..geometry.stripe_width()).map(StripIdx::from_at) {
                let slot = geometry.place(geometry.stripe(stripe), strip).member.at();
                let fails = |drive_slot: &DriveSlot| {
                    drive_slot.slot == Some(slot) && drive_slot.trouble.is_some()
                };
                if self.strip_is_broken(&geometry, stripe, slot) || self.all.iter().any(fails) {
                    unreadable.insert((stripe, strip));
                }
            }
        }
        unreadable
    }

    /// Whether nothing is wrong with any device, and nothing was a moment ago.
    pub(crate) fn are_well(&self, now: Nanos) -> bool {
        let is_well = |drive_slot: &DriveSlot| {
            let is_whole =
                drive_slot.disk.unreadable_sectors() == 0 && !drive_slot.disk.is_damaged_anywhere();
            drive_slot.trouble.is_none() && drive_slot.suspect_until <= now && is_whole
        };
        self.all.iter().all(is_well)
    }

    /// Everything that is wrong with a device ends.
    pub(crate) fn heal(&mut self, at: usize, config: &Config, now: Nanos) {
        let drive_slot = &self.all[at];
        drive_slot.disk.come_back();
        drive_slot.disk.stop_failing();
        drive_slot.disk.stop_lying();
        drive_slot.disk.speak();
        drive_slot.disk.set_latency(config.disks[at].latency.clone());
        if drive_slot.trouble.is_some() {
            self.set_trouble(at, None, now);
        }
    }

    /// Whether some device is gone that lost its cache.
    pub(crate) fn has_lost_a_cache(&self) -> bool {
        self.all.iter().any(|it| it.trouble == Some(Trouble::AbsentCold))
    }

    /// The program was killed, with slots in these states: it may not have seen all that went.
    pub(crate) fn note_unseen(&mut self, states: Option<&[SlotState]>) {
        for drive_slot in &mut self.all {
            drive_slot.went_unseen |= drive_slot.is_unseen_loss(states);
        }
    }

    /// Whether a device has lost its cache, and an array with slots in these states does not know.
    pub(crate) fn has_unseen_loss(&self, states: &[SlotState]) -> bool {
        self.all.iter().any(|drive_slot| drive_slot.is_unseen_loss(Some(states)))
    }

    /// Whether a device went that nobody saw.
    pub(crate) fn has_unseen(&self) -> bool {
        self.all.iter().any(|drive_slot| drive_slot.went_unseen)
    }

    /// The array has started, with them or without.
    pub(crate) fn forget_unseen(&mut self) {
        self.all.iter_mut().for_each(|drive_slot| drive_slot.went_unseen = false);
    }

    /// There is space under all devices.
    pub(crate) fn make_room(&self) {
        self.all.iter().for_each(|drive_slot| drive_slot.disk.make_room());
    }

    /// Whoever stood still for a moment, and is not silent for good, goes on.
    pub(crate) fn go_on(&self) {
        let others =
            self.all.iter().filter(|drive_slot| drive_slot.trouble != Some(Trouble::Silent));
        others.for_each(|drive_slot| drive_slot.disk.speak());
    }

    /// Those that were silent when the last life ended do not outlast this one's requests.
    pub(crate) fn speak_some_day(&self, handle: &Handle) {
        for drive_slot in
            self.all.iter().filter(|drive_slot| drive_slot.trouble == Some(Trouble::Silent))
        {
            let (disk, own) = (drive_slot.disk.clone(), handle.clone());
            handle.spawn(async move {
                own.sleep(SILENT_IF_WAITED_FOR).await;
                disk.speak();
            });
        }
    }

    /// Whatever was about to go when the host stopped has gone.
    pub(crate) fn absent_are_gone(&self) {
        let absent = self.all.iter().filter(|it| it.trouble == Some(Trouble::Absent));
        absent.for_each(|drive_slot| drive_slot.disk.vanish());
    }

    /// After a stop: nothing is under way any more that a device could go out for.
    pub(crate) fn forget_suspicions(&mut self) {
        self.all.iter_mut().for_each(|drive_slot| drive_slot.suspect_until = Nanos(0));
    }

    /// What the devices say while nobody uses them. `None` if there is no array on them.
    pub(crate) fn at_rest(&self) -> Option<Rest> {
        let mut own: Vec<Option<Superblock>> =
            self.all.iter().map(|drive_slot| superblock_of(drive_slot, SimDisk::peek)).collect();
        forget_unknown_new_members(&mut own);
        let present = own.iter().flatten();
        let newest = present.max_by_key(|superblock| superblock.generation)?.clone();
        let place = |own: &Option<Superblock>| {
            let entry = newest.member(own.as_ref()?.member_uuid)?;
            Some((entry.slot.at(), entry.role))
        };
        let places = own.iter().map(place).collect();
        let generations = own.iter().map(|own| own.as_ref().map(|own| own.generation)).collect();
        Some(Rest { newest, places, own, generations })
    }

    /// The newest generation that is on the media of a device, and not in its cache alone.
    pub(crate) fn durable_generation(&self) -> Option<u64> {
        let own = self.all.iter().map(|it| superblock_of(it, SimDisk::peek_durable));
        let mut own: Vec<Option<Superblock>> = own.collect();
        forget_unknown_new_members(&mut own);
        own.iter().flatten().map(|superblock| superblock.generation).max()
    }

    /// Take over from the devices which member is in which slot.
    pub(crate) fn adopt(&mut self, rest: &Rest) {
        self.geometry = rest.newest.geometry.to_layout();
        self.resize(usize::from(rest.newest.geometry.slots()));
        for (drive_slot, place) in self.all.iter_mut().zip(&rest.places) {
            drive_slot.slot = match place {
                Some((slot, Role::Active | Role::Rebuilding | Role::Out)) => Some(*slot),
                _ => None,
            };
            drive_slot.target_of = match place {
                Some((slot, Role::Replacement)) => Some(*slot),
                _ => None,
            };
        }
    }

    /// Slots that no present device holds in sync, as the newest record has it.
    pub(crate) fn out_at_rest(&self, rest: &Rest, slots: usize) -> Vec<bool> {
        let holds = |slot: usize| {
            self.all.iter().zip(&rest.places).any(|(drive_slot, place)| {
                *place == Some((slot, Role::Active)) && drive_slot.is_sound()
            })
        };
        (0..slots).map(|slot| !holds(slot)).collect()
    }

    /// Slots that may count as out at the next start, whatever else is lost now. A crash in the
    /// middle of an update leaves two records, and the newer one may be on devices only that are
    /// lost next: then the older one counts. So both must say it.
    pub(crate) fn maybe_out_at_rest(&self, rest: &Rest, slots: usize) -> Vec<bool> {
        let counts = |own: &&Superblock| own.generation + 1 >= rest.newest.generation;
        let records: Vec<&Superblock> = rest.own.iter().flatten().filter(counts).collect();
        let holds = |slot: usize| {
            self.all.iter().zip(&rest.own).any(|(drive_slot, own)| {
                let Some(own) = own else { return false };
                let is_active = |record: &&Superblock| {
                    record
                        .member(own.member_uuid)
                        .is_some_and(|entry| entry.slot.at() == slot && entry.role == Role::Active)
                };
                drive_slot.is_sound() && records.iter().all(is_active)
            })
        };
        (0..slots).map(|slot| !holds(slot)).collect()
    }
}

fn second_path(name: &str) -> String {
    format!("{name}-again")
}

fn third_path(name: &str) -> String {
    format!("{name}-elsewhere")
}

/// Slots that are not in sync.
pub(crate) fn out_of_sync(array: &Array) -> Vec<bool> {
    array.slot_states().into_iter().map(|state| state != SlotState::InSync).collect()
}

/// A growth begins when a member that was there before knows of it: new members are told first, and
/// until then they are none. Ones that went on since are, whatever the others say.
fn forget_unknown_new_members(own: &mut [Option<Superblock>]) {
    let elders = own.iter().flatten().filter(|it| !it.is_new_member());
    let elders: Vec<Superblock> = elders.cloned().collect();
    let Some(begins_by) = elders.iter().map(|it| it.generation + 1).max() else { return };
    let is_known = |it: &Superblock| {
        it.generation > begins_by || elders.iter().any(|own| own.member(it.member_uuid).is_some())
    };
    for superblock in own {
        let counts = |it: &Superblock| !it.is_new_member() || is_known(it);
        *superblock = superblock.take().filter(counts);
    }
}

fn superblock_of(
    drive_slot: &DriveSlot,
    peek: fn(&SimDisk, Extent) -> Vec<u8>,
) -> Option<Superblock> {
    let read =
        |slot: Extent| peek(&drive_slot.disk, Extent::new(slot.offset, SUPERBLOCK_BYTES_MAX));
    // The end of a member is where its device ended when it joined.
    let of_size = |size: &u64| {
        let copies: Vec<Vec<u8>> = copy_slots(*size)?.into_iter().map(read).collect();
        let choice = SuperblockCopies::choose(&[
            Some(&copies[0]),
            Some(&copies[1]),
            Some(&copies[2]),
            Some(&copies[3]),
        ]);
        choice.superblock().cloned()
    };
    let all = drive_slot.sizes.iter().filter_map(of_size);
    all.max_by_key(|superblock| superblock.generation)
}
