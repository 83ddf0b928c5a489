//! Abuses: unused devices are changed in a way that no operator wants, and the array is started. It
//! must refuse and change nothing, or go on with right data and leave everything else alone.
//! Afterwards the world is put back as it was: an abuse costs the universe nothing, so it may go
//! beyond the budget.
//!
//! What must stay true: the demands depend on how many members of a group are useless, not on the
//! engine's word for it. Every read, at any time, is right or an error.

use crate::audit;
use crate::director::TANK;
use crate::drive_slot::{DriveSlot, DriveSlots, Rest, Trouble};
use crate::ledger::{Change, Ending};
use crate::life::{Outlook, assemble, engine, stop};
use crate::marks::ABUSES;
use crate::spares;
use crate::stage::Stage;
use crate::universe::draw_stop;
use ashlar_device::CommandKind;
use ashlar_engine::{
    ArrayState, ArrayVolume, AssembleSpec, Engine, Event, SlotState, Stopped, event_names as names,
};
use ashlar_ondisk::format::{SUPERBLOCK_COPIES, copy_slots};
use ashlar_ondisk::{MemberEntry, Role, Superblock};
use ashlar_sim::{KeptDisk, MemoryImage, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent, to_u64, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// The contents of two members are swapped.
    Swapped,
    /// A member's device is smaller than it was.
    Shrunk,
    /// Somebody else's data is where a member was.
    Foreign,
    /// A member is replaced by an older copy of itself.
    StaleCopy,
    /// Several members are, all copied at the same moment.
    StaleCopies,
    /// There are two of a member.
    Twice,
    /// Copies of superblocks are damaged, on some members all of them.
    DamagedCopies,
    /// More members of a group are gone than its parity replaces.
    TooManyGone,
    /// The same while the array runs.
    TooManyLost,
    /// The array is started once more while it runs, or at the same moment, by other paths to its
    /// devices.
    SecondRunner,
    /// Nothing: a dry run and a start of what is there.
    Nothing,
    /// A member was cut short and made as long as before again.
    CutAndGrown,
    /// A member becomes smaller while the array runs.
    CutWhileRunning,
}

/// In the order of [`ABUSES`].
const ALL: [Damage; 13] = [
    Damage::Swapped,
    Damage::Shrunk,
    Damage::Foreign,
    Damage::StaleCopy,
    Damage::StaleCopies,
    Damage::Twice,
    Damage::DamagedCopies,
    Damage::TooManyGone,
    Damage::TooManyLost,
    Damage::SecondRunner,
    Damage::Nothing,
    Damage::CutAndGrown,
    Damage::CutWhileRunning,
];

/// A device as it was a while ago.
pub(crate) struct Older {
    at: usize,
    disk: KeptDisk,
    /// What it said then.
    own: Superblock,
    /// Its newest flush mark; 0: none.
    mark: u64,
    /// It was taken after a crash; else after a clean stop.
    was_crash: bool,
}

impl Older {
    /// Whether it counts as one that was started on its own. It is a device that was replaced and
    /// came back as another member, its copy is of the first, none of the members of that time is
    /// left, and the copy is older than what is remembered of members that are out: nobody can tell
    /// it from one that was used elsewhere meanwhile, so nothing starts.
    fn may_have_lived_on(&self, newest: &Superblock) -> bool {
        let is_out = |entry: &&MemberEntry| entry.out_since != 0 && entry.role != Role::Rebuilding;
        let Some(entry) = newest.member(self.own.member_uuid).filter(is_out) else { return false };
        let in_service = |entry: &MemberEntry| !matches!(entry.role, Role::Out | Role::Removed);
        let mut active = newest.members.iter().filter(|entry| entry.role == Role::Active);
        let is_left = active.any(|entry| self.own.member(entry.uuid).is_some_and(in_service));
        // Who was put out long after that copy was made has seen it off.
        let went_on = |entry: &MemberEntry| {
            let is_later = entry.out_since > self.own.generation + 2;
            let is_other = entry.uuid != self.own.member_uuid;
            is_later && is_other && self.own.member(entry.uuid).is_some_and(in_service)
        };
        let is_seen_off = newest.members.iter().any(went_on);
        // The member itself went on from there, and the copy counts on another one that is known.
        let is_known = |other: &&MemberEntry| {
            let is_other = other.uuid != entry.uuid && other.out_since == 0;
            is_other && newest.member(other.uuid).is_some()
        };
        let is_history = self.own.generation + 2 < entry.out_since
            && self.own.members.iter().any(|other| is_known(&other));
        if is_history {
            return false;
        }
        !is_left && !is_seen_off && !entry.out_incarnations.contains(&self.own.incarnation)
    }
}

/// Whether it is clear what a start finds on the device: nothing is wrong with it, or it is gone.
pub(crate) fn is_clear(drive_slot: &DriveSlot) -> bool {
    let is_gone = matches!(drive_slot.trouble, Some(Trouble::Absent | Trouble::AbsentCold));
    let is_whole =
        drive_slot.disk.unreadable_sectors() == 0 && !drive_slot.disk.is_damaged_anywhere();
    (drive_slot.trouble.is_none() || is_gone) && is_whole
}

/// How long the member on a device is: the device may have grown since it joined.
fn member_bytes(rest: &Rest, at: usize) -> u64 {
    rest.own[at].as_ref().expect("a member").member_bytes
}

fn first_of(demand: &Demand) -> usize {
    *demand.useless.first().expect("one was chosen")
}

/// The newest flush mark on a device, and the one that it calls flushed.
fn mark_on(disk: &SimDisk) -> Option<(u64, u64)> {
    let marks = [136 << 10, 140 << 10].into_iter().filter_map(|offset| {
        let block = disk.peek(Extent::new(offset, 4096));
        let number = |at: usize| Some(u64::from_le_bytes(block[at..at + 8].try_into().ok()?));
        block.starts_with(b"ASHLARFM").then_some((number(48)?, number(56)?))
    });
    marks.max()
}

/// What a start must make of it.
struct Demand {
    /// Devices that must not be in service, nor be written.
    useless: Vec<usize>,
    is_refused: bool,
    /// Unless it takes back a member that missed nothing: then all is there.
    may_start: bool,
}

/// Everything that an abuse may change.
pub(crate) struct Before {
    disks: Vec<KeptDisk>,
    ledger: crate::ledger::Ledger,
    troubles: Vec<Option<Trouble>>,
    errors_are_allowed: bool,
    pub(crate) memory: MemoryImage,
}

pub(crate) struct Abuses<'u> {
    pub(crate) world: &'u mut SimWorld,
    pub(crate) stage: &'u Stage,
    pub(crate) drive_slots: &'u mut DriveSlots,
    pub(crate) random: &'u mut Random,
    /// Devices as they were at one moment.
    pub(crate) older: &'u mut Vec<Older>,
}

impl Abuses<'_> {
    /// One of them, if the devices are in a state in which it is clear what must come of it.
    pub(crate) fn undergo(&mut self, rest: &Rest, outlook: &Outlook) {
        let draw = to_usize(self.random.below(to_u64(ALL.len())));
        let (damage, mark) = (ALL[draw], ABUSES[draw]);
        if !self.drive_slots.all.iter().all(is_clear) {
            return;
        }
        let before = self.keep();
        // A start that finds no space is refused for that alone, and one that finds a device silent
        // does without it, whatever that one knows.
        self.drive_slots.make_room();
        self.drive_slots.go_on();
        if let Some(demand) = self.commit(damage, rest, outlook) {
            self.stage.say(|| format!("abuse: {damage:?} {:?}", demand.useless));
            self.stage.mark(mark);
            match damage {
                Damage::TooManyLost => {
                    self.lose_while_running(outlook);
                    self.drive_slots.all.iter().for_each(|drive_slot| {
                        drive_slot.disk.come_back();
                        drive_slot.disk.stop_failing();
                    });
                    self.rehearse();
                }
                Damage::CutWhileRunning => self.cut_while_running(first_of(&demand), outlook),
                Damage::Nothing => self.rehearse(),
                Damage::SecondRunner => self.run_twice(outlook),
                _ if demand.is_refused && !(demand.may_start && self.would_start()) => {
                    self.must_refuse();
                    self.world.stop(Stop::Kill);
                    self.rehearse();
                }
                Damage::StaleCopy | Damage::StaleCopies if demand.is_refused => {
                    self.must_go_on(&Demand { useless: Vec::new(), ..demand }, outlook);
                }
                _ => self.must_go_on(&demand, outlook),
            }
            self.world.call_off();
            self.world.stop(Stop::Kill);
            self.stage.say(|| "abuse: over, all is as it was".to_owned());
        }
        self.put_back(before);
    }

    /// A start does without this member, whatever it holds, and nobody writes to it; or nothing
    /// starts.
    pub(crate) fn leave_out(&mut self, at: usize, rest: &Rest, outlook: &Outlook) {
        match self.demand((Damage::Foreign, vec![at]), rest) {
            None => {}
            Some(demand) if demand.is_refused && !(demand.may_start && self.would_start()) => {
                self.must_refuse();
            }
            Some(demand) => self.must_go_on(&demand, outlook),
        }
        self.world.stop(Stop::Kill);
    }

    /// Members in service whose devices are well, in any order.
    pub(crate) fn in_service(&self, rest: &Rest, random: &mut Random) -> Vec<usize> {
        let is_sound = |at: &usize| {
            let is_active = matches!(rest.places[*at], Some((_, Role::Active)));
            is_active && self.drive_slots.all[*at].trouble.is_none()
        };
        let mut sound: Vec<usize> = (0..self.drive_slots.all.len()).filter(is_sound).collect();
        random.shuffle(&mut sound);
        sound
    }

    /// Sometimes, keep how the devices are now.
    pub(crate) fn remember(&mut self, rest: &Rest, outlook: &Outlook) {
        // Mostly from the last time: what one life lacks is harder to tell than what three do.
        if !self.older.is_empty() && !self.random.percent(70) {
            return;
        }
        let older = |at: usize| {
            let own = rest.own[at].clone()?;
            let disk = &self.drive_slots.all[at].disk;
            let mark = mark_on(disk).map_or(0, |mark| mark.0);
            Some(Older { at, disk: disk.keep(), own, mark, was_crash: outlook.was_crash })
        };
        *self.older = (0..self.drive_slots.all.len()).filter_map(older).collect();
    }

    pub(crate) fn keep(&self) -> Before {
        Before {
            disks: self.drive_slots.all.iter().map(|drive_slot| drive_slot.disk.keep()).collect(),
            ledger: self.stage.ledger().clone(),
            troubles: self.drive_slots.all.iter().map(|drive_slot| drive_slot.trouble).collect(),
            errors_are_allowed: self.stage.errors_are_allowed(),
            memory: self.world.memory().keep(),
        }
    }

    pub(crate) fn put_back(&mut self, before: Before) {
        for ((drive_slot, disk), trouble) in
            self.drive_slots.all.iter_mut().zip(before.disks).zip(before.troubles)
        {
            drive_slot.disk.put_back(disk);
            drive_slot.trouble = trouble;
        }
        self.world.memory().put_back(&before.memory);
        *self.stage.ledger() = before.ledger;
        self.stage.allow_errors(before.errors_are_allowed);
    }

    /// Do it. `None` if it cannot be done here.
    fn commit(&mut self, damage: Damage, rest: &Rest, outlook: &Outlook) -> Option<Demand> {
        let mut random = self.random.clone();
        let sound = self.in_service(rest, &mut random);
        *self.random = random;
        let first = *sound.first()?;
        let useless = match damage {
            Damage::Swapped => self.swap(&sound)?,
            Damage::Shrunk => {
                let less = (1 << 20) + (self.random.below(4) << 19);
                self.drive_slots.all[first].disk.set_size(member_bytes(rest, first) - less);
                vec![first]
            }
            Damage::CutAndGrown => {
                let disk = &self.drive_slots.all[first].disk;
                let first_byte = self.drive_slots.data_offset;
                let end = member_bytes(rest, first) - (1 << 20);
                let blocks = (end - first_byte) / BLOCK_BYTES;
                disk.cut_and_grow(first_byte + self.random.below(blocks) * BLOCK_BYTES);
                vec![first]
            }
            // Nothing but the reads asks anything of it: a write would make it grow again.
            Damage::CutWhileRunning
                if outlook.was_crash
                    || outlook.was_unsynced
                    || rest.newest.geometry.is_growing() =>
            {
                return None;
            }
            Damage::CutWhileRunning => {
                let out = self.drive_slots.out_at_rest(rest, self.drive_slots.slots());
                if out.contains(&true) || self.stage.config().losses() == 0 {
                    return None;
                }
                vec![first]
            }
            Damage::Foreign => self.make_foreign(first),
            Damage::StaleCopy => self.make_stale(&sound, rest, 1)?,
            Damage::StaleCopies => {
                let most = to_u64(sound.len()).checked_sub(3)?;
                let count = 2 + self.random.below(most + 1);
                self.make_stale(&sound, rest, to_usize(count))?
            }
            Damage::Twice => {
                let free = *self.drive_slots.free().first()?;
                let image = self.drive_slots.all[first].disk.image();
                self.drive_slots.all[free].disk.put_image(&image);
                let useless = vec![first, free];
                return Some(Demand { useless, is_refused: true, may_start: false });
            }
            Damage::DamagedCopies if outlook.was_crash => return None,
            Damage::DamagedCopies => self.damage(&sound, rest),
            Damage::TooManyGone => {
                let gone = self.too_many(rest)?;
                gone.iter().for_each(|at| self.drive_slots.all[*at].disk.vanish());
                gone
            }
            Damage::TooManyLost => {
                // A start within the budget comes first.
                self.too_many(rest)?;
                Vec::new()
            }
            Damage::SecondRunner | Damage::Nothing => Vec::new(),
        };
        self.demand((damage, useless), rest)
    }

    /// The required outcome, if one member with the truth is left.
    fn demand(&self, (damage, useless): (Damage, Vec<usize>), rest: &Rest) -> Option<Demand> {
        let is_beyond = spares::must_be_refused(self.drive_slots, rest, &useless)?;
        let is_stale = matches!(damage, Damage::StaleCopy | Damage::StaleCopies);
        let is_strange =
            |older: &Older| useless.contains(&older.at) && older.may_have_lived_on(&rest.newest);
        let is_stranger = is_stale && self.older.iter().any(is_strange);
        if is_stranger {
            self.stage.mark("abuse.stale_copy_of_another_member");
        }
        // With cells on distributed spares as many may be gone.
        let is_too_many = damage == Damage::TooManyGone && !rest.newest.has_spare_table();
        let is_refused = is_beyond || is_too_many || is_stranger;
        // One member with the truth must be left.
        let knows = |at: &usize| {
            // The same number under another start is another history.
            let is_newest = rest.own[*at].as_ref().is_some_and(|own| {
                (own.generation, own.incarnation)
                    == (rest.newest.generation, rest.newest.incarnation)
            });
            is_newest && self.drive_slots.all[*at].trouble.is_none() && !useless.contains(at)
        };
        let is_known = (0..self.drive_slots.all.len()).any(|at| knows(&at));
        if !is_known && !is_too_many {
            return None;
        }
        if is_stale {
            self.mark_stale(&useless, rest, is_refused);
        }
        // Copies of this run lack updates that nothing was answered under, or writes: then the
        // start must not come about, and shows what it lacks if it does.
        let is_of_this_run = |older: &Older| older.own.incarnation == rest.newest.incarnation;
        let mut chosen = self.older.iter().filter(|older| useless.contains(&older.at));
        let are_of_this_run = is_stale && chosen.all(is_of_this_run);
        let is_back = are_of_this_run || self.drive_slots.may_be_taken_back(rest, &useless);
        let may_start = is_beyond && !is_stranger && is_back;
        Some(Demand { useless, is_refused, may_start })
    }

    fn swap(&self, sound: &[usize]) -> Option<Vec<usize>> {
        let (one, other) = (*sound.first()?, *sound.get(1)?);
        let (one_disk, other_disk) =
            (&self.drive_slots.all[one].disk, &self.drive_slots.all[other].disk);
        let image = one_disk.image();
        one_disk.put_image(&other_disk.image());
        other_disk.put_image(&image);
        Some(vec![one, other])
    }

    fn make_foreign(&self, at: usize) -> Vec<usize> {
        let disk = &self.drive_slots.all[at].disk;
        disk.wipe();
        let mut foreign = vec![0; 256 << 10];
        for (number, part) in foreign.chunks_mut(8).enumerate() {
            part.copy_from_slice(&to_u64(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        }
        disk.poke(0, &foreign);
        vec![at]
    }

    /// So many of the sound devices are replaced by what they were.
    fn make_stale(&self, sound: &[usize], rest: &Rest, count: usize) -> Option<Vec<usize>> {
        let of = |at: usize| self.older.iter().find(|older| older.at == at);
        let chosen: Vec<&Older> = sound.iter().filter_map(|at| of(*at)).take(count).collect();
        let is_chosen = |at: &usize| chosen.iter().any(|older| older.at == *at);
        let others: Vec<usize> = sound.iter().filter(|at| !is_chosen(at)).copied().collect();
        // One generation behind is what a crash in the middle of an update leaves, but for what is
        // known to be flushed.
        let is_behind = |older: &Older| older.own.generation + 1 < rest.newest.generation;
        let is_older =
            |older: &&Older| is_behind(older) || self.lacks_what_is_flushed(older, &others);
        if chosen.len() < count || !chosen.iter().all(is_older) {
            return None;
        }
        for older in &chosen {
            self.drive_slots.all[older.at].disk.put_back(older.disk.clone());
            self.drive_slots.all[older.at].disk.come_back();
        }
        Some(chosen.iter().map(|older| older.at).collect())
    }

    /// What kind of older copies these are.
    fn mark_stale(&self, useless: &[usize], rest: &Rest, is_refused: bool) {
        let chosen: Vec<&Older> =
            self.older.iter().filter(|older| useless.contains(&older.at)).collect();
        let is_behind = |older: &&Older| older.own.generation + 1 < rest.newest.generation;
        let kinds = [
            ("older.beyond_the_budget", "older.within_the_budget", is_refused),
            (
                "older.taken_at_a_crash",
                "older.taken_at_a_stop",
                chosen.iter().any(|older| older.was_crash),
            ),
            ("older.with_checksums", "older.without_checksums", self.stage.config().has_checksums),
        ];
        for (kind, other, is_it) in kinds {
            self.stage.mark(if is_it { kind } else { other });
        }
        if !chosen.iter().all(is_behind) {
            self.stage.mark("abuse.stale_copy_of_this_generation");
        }
    }

    /// Whether another member knows something to be flushed that the copy lacks, read by the test's
    /// own hand.
    fn lacks_what_is_flushed(&self, older: &Older, others: &[usize]) -> bool {
        let flushed = others
            .iter()
            .filter_map(|at| mark_on(&self.drive_slots.all[*at].disk))
            .map(|mark| mark.1);
        flushed.max().is_some_and(|flushed| older.mark < flushed)
    }

    /// Some copies on every member, all of them on a few.
    fn damage(&mut self, sound: &[usize], rest: &Rest) -> Vec<usize> {
        let mut useless = Vec::new();
        let mut out = self.drive_slots.out_at_rest(rest, self.drive_slots.slots());
        for &at in sound {
            let Some((slot, _)) = rest.places[at] else { continue };
            out[slot] = true;
            let is_destroyed = self.random.percent(30) && !self.drive_slots.is_beyond(&out);
            out[slot] = is_destroyed;
            let count = if is_destroyed { SUPERBLOCK_COPIES } else { SUPERBLOCK_COPIES - 1 };
            let mut copies: Vec<usize> = (0..SUPERBLOCK_COPIES).collect();
            self.random.shuffle(&mut copies);
            let disk = &self.drive_slots.all[at].disk;
            let slots = copy_slots(member_bytes(rest, at)).expect("members have room for them");
            for copy in &copies[..count] {
                disk.corrupt(Extent::new(slots[*copy].offset, 512));
            }
            if is_destroyed {
                useless.push(at);
            }
        }
        useless
    }

    /// All devices of one slot more of a group than it can do without. Those that are out go, too:
    /// alone, one that does not know that it is out would be all there is to believe.
    fn too_many(&mut self, rest: &Rest) -> Option<Vec<usize>> {
        let slots = to_u64(self.drive_slots.slots());
        let group = self.drive_slots.group_of(to_usize(self.random.below(slots)));
        let mut slots: Vec<usize> = group.collect();
        self.random.shuffle(&mut slots);
        slots.truncate(self.stage.config().losses() + 1);
        let is_of = |at: &usize| rest.places[*at].is_some_and(|(slot, _)| slots.contains(&slot));
        Some((0..self.drive_slots.all.len()).filter(is_of).collect())
    }

    fn changes(&self) -> Vec<u64> {
        self.drive_slots.all.iter().map(|drive_slot| drive_slot.disk.changes()).collect()
    }

    /// Whether a start would come about, if nothing is certain but what must come of each answer.
    fn would_start(&mut self) -> bool {
        let (opener, devices) = (self.world.opener(), self.drive_slots.names());
        let stage = self.stage.clone();
        let would = self.world.run(async move |handle| {
            let engine = engine(opener, &handle, &stage);
            engine.would_assemble(AssembleSpec { devices, ..AssembleSpec::default() }).await.is_ok()
        });
        let would = would.done();
        self.world.stop(Stop::Kill);
        if would {
            self.stage.mark("abuse.taken_back");
        }
        would
    }

    /// Nothing starts, and nobody has written anywhere.
    pub(crate) fn must_refuse(&mut self) {
        let before = self.changes();
        let (opener, names) = (self.world.opener(), self.drive_slots.names());
        let stage = self.stage.clone();
        let answer = self.world.run(async move |handle| {
            let engine = engine(opener, &handle, &stage);
            let spec = AssembleSpec { devices: names, ..AssembleSpec::default() };
            engine.assemble(spec).await.map(drop)
        });
        match answer.done() {
            Ok(()) => self.stage.fail("the array started, though it must have been refused"),
            Err(refusal) => self.stage.say(|| format!("abuse: refused, {}", refusal.code)),
        }
        if self.changes() != before {
            self.stage.fail("a start that was refused changed a device");
        }
        self.stage.mark("abuse.refused");
    }

    /// It starts without them, everything is there, and they are as they were.
    fn must_go_on(&mut self, demand: &Demand, outlook: &Outlook) {
        for at in &demand.useless {
            self.drive_slots.all[*at].trouble = Some(Trouble::Absent);
        }
        let written: Vec<u64> =
            demand.useless.iter().map(|at| self.drive_slots.all[*at].disk.changes()).collect();
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let drive_slots = &mut *self.drive_slots;
        self.world
            .run(async |handle| {
                let running = assemble((opener, &handle), &stage, drive_slots, outlook).await;
                audit::read_all(&running.engine, &stage).await;
                stop((&running.engine, &handle), &stage).await
            })
            .done();
        let now: Vec<u64> =
            demand.useless.iter().map(|at| self.drive_slots.all[*at].disk.changes()).collect();
        if now != written {
            self.stage.fail("a device that is no member of this array any more was written");
        }
        let kind = if demand.useless.is_empty() { "abuse.whole" } else { "abuse.degraded" };
        self.stage.mark(kind);
    }

    /// What can be read is right, the rest are errors, and the array says what it has come to.
    /// All is read, from the end: a repair there would make the member grow over all that it lost.
    ///
    /// Jobs may run, and superblocks be on their way: whatever the array begins to write after the
    /// cut, it looks first. A write beyond that is with the device already makes it grow in the
    /// moment in which it is cut, and nobody could look in between; the cut comes after it.
    fn cut_while_running(&mut self, at: usize, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let (first_byte, draw) = (self.drive_slots.data_offset, self.random.below(1 << 40));
        let drive_slots = &mut *self.drive_slots;
        self.world
            .run(async |handle| {
                let running = assemble((opener, &handle), &stage, drive_slots, outlook).await;
                let strips = stage.config().window.0 + stage.config().window.1;
                let span = strips * running.array.geometry().strip_bytes();
                let cut = first_byte + draw % (span / BLOCK_BYTES) * BLOCK_BYTES;
                let disk = &drive_slots.all[at].disk;
                while disk.is_written_beyond(cut) {
                    handle.sleep(Duration::from_micros(10)).await;
                }
                disk.cut_beneath(cut);
                audit::read_backwards(&running.engine, &stage).await;
                audit::read_all(&running.engine, &stage).await;
            })
            .done();
    }

    fn lose_while_running(&mut self, outlook: &Outlook) {
        let Some(rest) = self.drive_slots.at_rest() else { return };
        let Some(gone) = self.too_many(&rest) else { return };
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let fails_only = self.random.percent(30);
        let (is_back, stop) = (self.random.percent(50), draw_stop(self.random));
        let drive_slots = &mut *self.drive_slots;
        self.world
            .run(async |handle| {
                let running = assemble((opener, &handle), &stage, drive_slots, outlook).await;
                for at in gone {
                    match fails_only {
                        true => drive_slots.all[at].disk.fail(
                            CommandKind::Write,
                            ashlar_device::FaultKind::Media,
                            None,
                        ),
                        false => drive_slots.all[at].disk.vanish(),
                    }
                }
                stage.allow_errors(true);
                stage.ledger().writes_may_fail();
                let failed_before = stage.marks().of("abuse.read_failed");
                write_some(&running.engine, &stage).await;
                audit::read_all(&running.engine, &stage).await;
                let Ok(status) = running.engine.status().await else { return };
                let state = status.arrays.first().map(|array| array.state);
                let out = running.array.slot_states();
                let is_out = |state: &&SlotState| **state != SlotState::InSync;
                stage
                    .say(|| format!("abuse: {state:?}, {} out", out.iter().filter(is_out).count()));
                let says =
                    |event: &Event| [names::ARRAY_FAILED, names::BLOCK_LOST].contains(&event.name);
                let is_said = running.engine.events().since(0).iter().any(says);
                if stage.marks().of("abuse.read_failed") > failed_before {
                    if !is_said {
                        stage.fail(
                            "reads failed for good, and no event says that the array has failed",
                        );
                    }
                    stage.mark("abuse.failure_was_said");
                }
                if is_back {
                    drive_slots.all.iter().for_each(|drive_slot| {
                        drive_slot.disk.come_back();
                        drive_slot.disk.stop_failing();
                    });
                    // What was lost while it ran was never whole again, whatever the devices say
                    // now.
                    let has_failed = state == Some(ArrayState::Failed);
                    if let (Ok(Stopped::Clean), true) =
                        (running.engine.stop(TANK).await, has_failed)
                    {
                        stage.fail("an array that had failed was stopped as clean");
                    }
                    stage.mark("abuse.stopped_after_a_failure");
                }
                match state {
                    Some(ArrayState::Failed) => stage.mark("abuse.failed"),
                    Some(ArrayState::ReadOnly) => stage.mark("abuse.read_only"),
                    _ => stage.mark("abuse.goes_on"),
                }
            })
            .done();
        self.world.call_off();
        self.world.stop(stop);
    }
}

/// A write to each of some stripes; any answer will do.
pub(crate) async fn write_some(engine: &Engine, stage: &Stage) {
    let own = stage.clone();
    let write = async move |volume: ArrayVolume| {
        let (stripe, window) = (own.config().stripe_bytes(), own.ledger().bytes());
        for offset in (0..window).step_by(to_usize(stripe)).take(4) {
            let extent = Extent::new(offset, 4096);
            let mut buffer = volume.buffer(4096).await;
            let begun = own.ledger().begin(Change::Write, extent, 15);
            own.ledger().fill(begun, &mut buffer);
            let command = Command::Write(buffer.freeze());
            let request = Request { command, extent: own.place(extent), fua: false };
            let is_done = volume.submit(request).await.is_ok();
            own.ledger().end(begun, if is_done { Ending::Done } else { Ending::Failed });
            own.mark(if is_done { "abuse.write_done" } else { "abuse.write_refused" });
        }
    };
    if let Err(refusal) = engine.with_volume(0, TANK, write).await {
        stage.fail(format!("no volume for an abuse: {refusal}"));
    }
}
