//! What other programs know devices by, at their ends and elsewhere: left on devices that an array
//! takes, and written to members that somebody gave away.
//!
//! What must stay true: no device that carries something known is taken without the operator's
//! word, and nothing is written to it. Of what is taken nothing is left that a prober finds, nor
//! anything at the ends that only other programs would know. A member that was given away is left
//! alone until the operator wants it back; then nothing of the other owner is left.

use crate::abuse::{Abuses, is_clear};
use crate::audit;
use crate::director::Director;
use crate::drive_slot::{DriveSlot, DriveSlots, Rest};
use crate::life::{Outlook, assemble_as, engine, stop};
use crate::stage::Stage;
use ashlar_engine::{AssembleSpec, Ends, ForeignSignature, Refusal, Signatures, Wiper};
use ashlar_sim::{Random, SimDisk, Stop};
use ashlar_units::{Extent, SECTOR_BYTES, to_u64, to_usize};
use std::sync::Arc;

/// Devices that somebody used meanwhile, of a hundred of those that are free.
const USED_MEANWHILE: u64 = 60;
/// Lives before which a member is given away, of a hundred.
const GIVEN_AWAY: u64 = 40;

/// Where a format has its mark: so many bytes from the front of a device, or from its end.
#[derive(Clone, Copy)]
enum Place {
    Front(u64),
    End(u64),
}

/// A mark of a format, and whether a prober knows it.
type Format = (&'static str, Place, bool);

/// In the order of a prober, which tells of the first alone: a table of partitions has its second
/// one, a file system its second superblock, and both count when the first is gone.
const FORMATS: [Format; 9] = [
    ("partitions", Place::Front(512), true),
    ("a file system", Place::Front(1024), true),
    ("md 1.2", Place::Front(4096), true),
    ("btrfs", Place::Front(64 << 10), true),
    ("md 1.0", Place::End(8 << 10), true),
    ("partitions, the second", Place::End(512), true),
    ("a file system, the second", Place::Front(3 << 20), true),
    ("labels that few know", Place::Front(512 << 10), false),
    ("labels at the end that few know", Place::End(256 << 10), false),
];

/// Where nobody but Ashlar writes on a member.
const ON_MEMBERS: usize = 4;

fn place(disk: &SimDisk, (_, place, _): Format) -> Extent {
    let offset = match place {
        Place::Front(offset) => offset,
        Place::End(before) => disk.size_bytes() - before,
    };
    Extent::new(offset, SECTOR_BYTES)
}

fn content(format: Format) -> Vec<u8> {
    let mark = format!("somebody else's: {}. ", format.0);
    mark.bytes().cycle().take(to_usize(SECTOR_BYTES)).collect()
}

fn is_there(disk: &SimDisk, format: Format) -> bool {
    disk.peek(place(disk, format)) == content(format)
}

fn leave(disk: &SimDisk, format: Format) {
    disk.poke(place(disk, format).offset, &content(format));
}

/// What a prober finds first.
fn found(disk: &SimDisk) -> Option<Format> {
    FORMATS.into_iter().find(|format| format.2 && is_there(disk, *format))
}

/// Something of somebody else that is on the device.
fn left_on(disk: &SimDisk) -> Option<Format> {
    FORMATS.into_iter().find(|format| is_there(disk, *format))
}

/// Whoever looks at devices for signatures, and wipes them: any disk, from which all paths lead on.
#[derive(Clone)]
pub(crate) struct Prober(SimDisk);

impl Prober {
    pub(crate) fn of(slots: &DriveSlots) -> Prober {
        Prober(slots.all[0].disk.clone())
    }

    pub(crate) fn signatures(&self) -> Signatures {
        let any = self.0.clone();
        Arc::new(move |path: &str, ends| {
            let disk = any.found_at(path).filter(|_| ends == Ends::Unknown);
            let Some(disk) = disk else { return Vec::new() };
            let signature = |format: Format| {
                let offset = Some(place(&disk, format).offset);
                ForeignSignature { words: format.0.to_owned(), offset }
            };
            found(&disk).map(signature).into_iter().collect()
        })
    }

    pub(crate) fn wiper(&self) -> Wiper {
        let any = self.0.clone();
        Arc::new(move |path: &str| {
            let Some(disk) = any.found_at(path) else { return Err("no such device".to_owned()) };
            while let Some(format) = found(&disk) {
                disk.poke(place(&disk, format).offset, &[0; 512]);
            }
            Ok(())
        })
    }
}

/// Somebody else uses some of these devices.
pub(crate) fn use_some(stage: &Stage, slots: &DriveSlots, (which, number): (&[usize], u64)) {
    let mut random = Random::stream(stage.config().seed, 0xE300 + number);
    if !stage.config().has_remnants {
        return;
    }
    for at in which {
        if random.percent(USED_MEANWHILE) {
            let disk = &slots.all[*at].disk;
            FORMATS.into_iter().filter(|_| random.percent(40)).for_each(|it| leave(disk, it));
        }
    }
}

/// Devices that carry something that is known.
pub(crate) fn known(slots: &DriveSlots) -> Vec<String> {
    let is_known = |drive_slot: &&DriveSlot| found(&drive_slot.disk).is_some();
    slots.all.iter().filter(is_known).map(|drive_slot| drive_slot.name.clone()).collect()
}

/// Nothing of somebody else may be left on this device.
pub(crate) fn none_is_left(stage: &Stage, disk: &SimDisk) {
    if let Some(format) = left_on(disk) {
        stage.fail(format!("{} joined and still carries {}", disk.name(), format.0));
    }
    if stage.config().has_remnants {
        stage.mark("remnant.none_left");
    }
}

/// The device was asked for without a word about its content.
pub(crate) fn was_refused<T>(
    stage: &Stage,
    (disk, changes): (&SimDisk, u64),
    answer: Result<T, Refusal>,
) {
    match answer {
        Ok(_) => stage.fail(format!("{} was taken with what it carries", disk.name())),
        Err(_) if disk.changes() != changes => {
            stage.fail(format!("{} was refused for its signature and written", disk.name()));
        }
        Err(refusal) if refusal.code == "device.has_signature" => stage.mark("remnant.refused"),
        // Something else stood against it.
        Err(_) => {}
    }
}

impl Director<'_> {
    /// A device is wanted: whether it carries something that stands against it.
    pub(crate) fn carries_something(&self, at: usize) -> bool {
        found(&self.drive_slots.all[at].disk).is_some()
    }

    /// It was asked for without a word about that, when it had been changed so often.
    pub(crate) fn must_be_refused(&self, at: usize, changes: u64, answer: Result<(), Refusal>) {
        was_refused(&self.stage, (&self.drive_slots.all[at].disk, changes), answer);
    }

    /// It was taken.
    pub(crate) fn nothing_is_left_on(&self, at: usize) {
        none_is_left(&self.stage, &self.drive_slots.all[at].disk);
    }
}

impl Abuses<'_> {
    /// Sometimes, somebody gives a member to another program, which writes to it.
    pub(crate) fn give_away(&mut self, random: &mut Random, rest: &Rest, outlook: &Outlook) {
        let is_due = self.stage.config().has_remnants && random.percent(GIVEN_AWAY);
        // Else a copy of the superblock may be the only one that knows the last update.
        let is_due = is_due && !outlook.was_crash;
        if !is_due || !self.drive_slots.all.iter().all(is_clear) {
            return;
        }
        let Some(&at) = self.in_service(rest, random).first() else { return };
        let before = self.keep();
        self.drive_slots.make_room();
        self.drive_slots.go_on();
        let disk = self.drive_slots.all[at].disk.clone();
        let format = FORMATS[to_usize(random.below(to_u64(ON_MEMBERS)))];
        leave(&disk, format);
        self.stage.say(|| format!("{} is given away: {}", disk.name(), format.0));
        if random.percent(60) {
            self.leave_out(at, rest, outlook);
            if !is_there(&disk, format) {
                self.stage.fail(format!("{} was taken from its new owner", disk.name()));
            }
            self.stage.mark("remnant.left_alone");
        } else {
            self.take_back(&disk, outlook);
        }
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.put_back(before);
    }

    /// The operator wants it all the same: the array has all that it had before.
    fn take_back(&mut self, disk: &SimDisk, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let drive_slots = &mut *self.drive_slots;
        let is_read_only = self.world.run(async |handle| {
            let mut spec = AssembleSpec { devices: drive_slots.names(), ..Default::default() };
            spec.request.accept_signatures = true;
            let engine = engine(opener, &handle, &stage);
            let slots = (&mut *drive_slots, outlook);
            let running = assemble_as((engine, spec), &handle, &stage, slots).await;
            audit::read_all(&running.engine, &stage).await;
            stop((&running.engine, &handle), &stage).await;
            running.is_read_only
        });
        if !is_read_only.done() {
            none_is_left(self.stage, disk);
            self.stage.mark("remnant.taken_back");
        }
        self.world.stop(Stop::Kill);
    }
}
