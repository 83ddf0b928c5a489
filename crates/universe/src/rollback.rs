//! All devices are rolled back to a copy that was made while the array ran, as snapshots of a
//! storage below them are. The program was killed later; the machine and its memory go on.
//!
//! What must stay true: whatever became of the kept map, a start gives what the copy had, or is
//! refused and changes nothing. If it is refused the operator can start from the copy, as after a
//! power cut when it was made. A map from the moment of the copy is believed. Undone afterwards.

use crate::abuse::Abuses;
use crate::audit;
use crate::drive_slot::{DriveSlots, Rest};
use crate::kept::boot_id;
use crate::ledger::{Crash, Ledger};
use crate::life::{Outlook, assemble_as, engine};
use crate::stage::Stage;
use ashlar_engine::{AssembleSpec, Refusal};
use ashlar_ring::Handle;
use ashlar_sim::{KeptDisk, MemoryImage, Random, SimDisk, SimMemory, Stop};
use ashlar_units::{BLOCK_BYTES_USIZE, Extent, to_usize};
use std::time::Duration;

/// Of lives with a copy that ended by a kill, how many are rolled back to it, of a hundred.
const ROLLED_BACK: u64 = 70;
/// All devices and what clients know, at one moment of a life.
pub(crate) struct Copy {
    disks: Vec<KeptDisk>,
    ledger: Ledger,
    memory: MemoryImage,
}

/// What became of the kept map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Map {
    /// It went on after the copy.
    Later,
    /// It was rolled back, too.
    OfThen,
    Gone,
}

/// Make a copy at some moment of this life.
pub(crate) fn copy_some_day(stage: &Stage, handle: &Handle, (slots, life): (&DriveSlots, u64)) {
    stage.set_copy(None);
    let Some(memory) = stage.memory() else { return };
    let mut random = Random::stream(stage.config().seed, 0xCC00 + life);
    let most = 1_u64 << (8 + random.below(18));
    let wait = Duration::from_micros(random.below(most));
    let disks: Vec<SimDisk> = slots.all.iter().map(|drive_slot| drive_slot.disk.clone()).collect();
    let (stage, timer) = (stage.clone(), handle.clone());
    handle.spawn(async move {
        timer.sleep(wait).await;
        let ledger = stage.ledger().clone();
        stage.set_copy(Some(Copy {
            disks: disks.iter().map(SimDisk::keep).collect(),
            ledger,
            memory: memory.keep(),
        }));
    });
}

/// The newest flush mark on a device, read by the test's own hand.
fn newest_mark(disk: &SimDisk) -> Option<u64> {
    let marks = [136 << 10, 140 << 10].into_iter().filter_map(|offset| {
        let block = disk.peek(Extent::new(offset, 4096));
        let is_mark = block.starts_with(b"ASHLARFM");
        is_mark.then(|| u64::from_le_bytes(block[48..56].try_into().expect("eight bytes")))
    });
    marks.max()
}

/// A kept map; empty if there is none.
fn map_in(memory: &SimMemory, name: &str) -> Vec<u8> {
    let mut map = vec![0; to_usize(memory.bytes(name).unwrap_or(0))];
    memory.read(name, 0, &mut map);
    map
}

/// What it says of stripes.
fn bits_of(map: &[u8]) -> Vec<&[u8]> {
    map.chunks(BLOCK_BYTES_USIZE).map(|page| &page[32..]).collect()
}

/// The newest flush mark that a kept map names.
fn mark_of(map: &[u8]) -> u64 {
    let sequence = |page: &[u8]| u64::from_le_bytes(page[24..32].try_into().expect("eight bytes"));
    map.chunks(BLOCK_BYTES_USIZE).map(|page| sequence(page) >> 24).max().unwrap_or(0)
}

impl Abuses<'_> {
    /// The program was killed and the machine still runs: sometimes, all devices are rolled back.
    pub(crate) fn roll_all_back(&mut self, random: &mut Random, rest: &Rest, outlook: &Outlook) {
        let Some(copy) = self.stage.take_copy() else { return };
        let Some(memory) = self.stage.memory() else { return };
        let boot = Some(boot_id(memory.boot()));
        let is_here = rest.newest.kept_map_boot.map(|boot| boot.into_bytes()) == boot;
        let is_clear = self.drive_slots.all.iter().all(|it| it.trouble.is_none());
        if !random.percent(ROLLED_BACK) || !is_here || !is_clear || self.stage.errors_are_allowed()
        {
            return;
        }
        let name = format!("{}.{}", rest.newest.array_uuid, rest.newest.incarnation);
        let map = map_in(&memory, &name);
        let before = self.keep();
        memory.put_back(&copy.memory);
        let then = map_in(&memory, &name);
        memory.put_back(&before.memory);
        self.drive_slots.all.iter().zip(copy.disks).for_each(|(it, disk)| it.disk.put_back(disk));
        // What was under way then has arrived or has not.
        self.world.stop(Stop::Kill);
        // A mark that was being written when the copy was made is on the devices by now, if it
        // arrived. Then they have the mark that the map names.
        let mark = self.drive_slots.all.iter().filter_map(|it| newest_mark(&it.disk)).max();
        if let Some(kind) = self.is_known(rest, outlook, random) {
            *self.stage.ledger() = copy.ledger;
            self.stage.say(|| format!("abuse: all are rolled back, the kept map is {kind:?}"));
            self.drive_slots.make_room();
            self.drive_slots.go_on();
            match kind {
                Map::Later if mark_of(&map) > mark.unwrap_or(0) => {
                    self.must_accept("newer", outlook)
                }
                Map::Later if bits_of(&map) == bits_of(&then) => self.must_be_there(outlook),
                // The copy is of the last moments, and no mark has followed.
                Map::Later => self.stage.mark("rollback.unnoticed"),
                Map::OfThen => {
                    memory.put_back(&copy.memory);
                    self.must_be_there(outlook);
                }
                Map::Gone => {
                    memory.forget(&name);
                    self.must_accept("missing", outlook);
                }
            }
        }
        self.world.call_off();
        self.world.stop(Stop::Kill);
        self.put_back(before);
    }

    /// Whether the copy is of the same start and members, with all of them in sync.
    fn is_known(&self, rest: &Rest, outlook: &Outlook, random: &mut Random) -> Option<Map> {
        let then = self.drive_slots.at_rest()?;
        let is_same = (then.newest.incarnation, then.newest.generation)
            == (rest.newest.incarnation, rest.newest.generation);
        let out = self.drive_slots.maybe_out_at_rest(&then, self.drive_slots.slots());
        let are_whole = self
            .drive_slots
            .all
            .iter()
            .all(|it| it.disk.unreadable_sectors() == 0 && !it.disk.is_damaged_anywhere());
        let is_clear = is_same && are_whole && !out.contains(&true) && !outlook.was_degraded;
        let kinds = [Map::Later, Map::Later, Map::OfThen, Map::Gone];
        let kind = kinds[to_usize(random.below(4))];
        is_clear.then_some(kind)
    }

    /// It is refused for the kept map alone, and starts from the copy if that is accepted.
    fn must_accept(&mut self, what: &str, outlook: &Outlook) {
        let changes = |slots: &DriveSlots| -> Vec<u64> {
            slots.all.iter().map(|drive_slot| drive_slot.disk.changes()).collect()
        };
        let before = changes(self.drive_slots);
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let devices = self.drive_slots.names();
        let refused: Option<Refusal> = self
            .world
            .run(async move |handle| {
                let engine = engine(opener, &handle, &stage);
                let spec = AssembleSpec { devices, ..AssembleSpec::default() };
                engine.assemble(spec).await.err()
            })
            .done();
        let code = refused.map_or("none", |refusal| refusal.code);
        if code != format!("array.kept_map_{what}") {
            self.stage.fail(format!("rolled back, and the kept map is {what}: refusal {code}"));
        }
        if changes(self.drive_slots) != before {
            self.stage.fail("a start that did not believe its kept map changed a device");
        }
        self.world.stop(Stop::Kill);
        self.stage.mark(&format!("rollback.{what}"));
        self.stage.ledger().crashed(Crash::Power, true);
        self.start_from_copy(true, outlook);
    }

    fn must_be_there(&mut self, outlook: &Outlook) {
        self.stage.mark("rollback.believed");
        self.stage.ledger().crashed(Crash::Kill { discards_stay: true }, true);
        self.start_from_copy(false, outlook);
    }

    fn start_from_copy(&mut self, accepts: bool, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let outlook = Outlook { was_crash: true, ..*outlook };
        let drive_slots = &mut *self.drive_slots;
        self.world
            .run(async |handle| {
                let mut spec = AssembleSpec { devices: drive_slots.names(), ..Default::default() };
                spec.request.accept_lost_map = accepts;
                let engine = engine(opener, &handle, &stage);
                let slots = (&mut *drive_slots, &outlook);
                let running = assemble_as((engine, spec), &handle, &stage, slots).await;
                audit::read_all(&running.engine, &stage).await;
            })
            .done();
    }
}
