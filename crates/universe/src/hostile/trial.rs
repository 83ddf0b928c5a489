//! One set: the devices of an array with some faults applied, one start, everything read, some
//! written, a stop.
//!
//! What must stay true, of every set: no panic, a bounded number of device operations and of
//! virtual hours, no write to foreign devices, no write outside the areas, and no write by a
//! refused start. Of sets without forged records also: every block is right or an error. A block of
//! a stripe that was being written when the host stopped is not judged here: universes do that.

use super::damage::{Excused, Victims};
use super::subject::{BLOCKS, DISK_BYTES, Subject, engine, flush, names, write};
use crate::config::Payload;
use crate::content::{WriteId, is_of, is_zero};
use ashlar_engine::{ArrayVolume, AssembleSpec, Engine};
use ashlar_ondisk::assembly::{ArrayChoice, AssemblyRequest};
use ashlar_ondisk::format::{
    DRIVE_PAGE_BYTES, DRIVE_PAGE_OFFSET, DRIVE_PAGES_MAX, FLUSH_MARKS, copy_slots,
};
use ashlar_ondisk::{BitmapKind, PageIdentity, Superblock, SuperblockCopies};
use ashlar_ring::{Handle, within};
use ashlar_sim::{DiskOptions, Ended, Random, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, BLOCK_BYTES_USIZE, Extent, to_u64, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Far more than a start, all reads and a resync need.
const OPERATIONS_MAX: u64 = 200_000;
/// Virtual time in which a set must come to its end.
const HOURS_MAX: Duration = Duration::from_secs(3 * 3600);
/// Virtual time for jobs that the start begins.
const JOBS: Duration = Duration::from_secs(30);
/// No more of a volume is read: a forged one may be large.
const VOLUME_BYTES_MAX: u64 = 64 << 20;
const READ_BYTES: u64 = 64 << 10;
/// Behind what clients wrote, one read in so many.
const READ_EVERY: u64 = 8;
/// A write was answered with an error: the block holds what it held, or not.
const UNKNOWN: WriteId = WriteId(u64::MAX);

/// What came of a set that went as it must.
#[derive(Default, Debug)]
pub struct Outcome {
    /// A record was forged under a right checksum.
    pub is_forged: bool,
    /// The code of the refusal, if it did not start.
    pub refused: Option<String>,
    /// It started read-only.
    pub is_read_only: bool,
    /// Blocks that are what they must be.
    pub right: u64,
    /// Blocks that are not, but that nothing protects from what was done.
    pub excused: u64,
    /// Blocks that were answered with errors.
    pub failed: u64,
}

/// Set number `seed`, of one of the `subjects`.
///
/// # Errors
/// What was wrong, with what was done before.
pub fn trial(seed: u64, subjects: &[Subject]) -> Result<Outcome, String> {
    let mut random = Random::stream(seed, 1);
    let subject = &subjects[to_usize(random.below(to_u64(subjects.len())))];
    let mut scene = Scene::new(seed, subject);
    scene.suffer();
    let told = format!("set {seed}, {}: {}", subject.name, scene.story.join("; "));
    let run = catch_unwind(AssertUnwindSafe(|| scene.run(&mut random)));
    let result = run.unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(cause.downcast_ref().copied()).unwrap_or("?")))
    });
    result.map_err(|what| format!("{told}: {what}"))
}

struct Scene<'s> {
    subject: &'s Subject,
    world: SimWorld,
    disks: Vec<SimDisk>,
    /// Two devices that have nothing to do with the array, and a third that may hold a copy of a
    /// member.
    stranger: SimDisk,
    other: SimDisk,
    twin: SimDisk,
    seed: u64,
    excused: Excused,
    no_members: Vec<usize>,
    gone: Vec<usize>,
    story: Vec<String>,
    /// The page of the written map that all members had.
    map_sequence: Option<u64>,
}

/// What the program in the world found out.
#[derive(Default)]
struct Found {
    outcome: Outcome,
    /// First block that was wrong, and what was tried.
    wrong: Option<String>,
}

impl<'s> Scene<'s> {
    fn new(seed: u64, subject: &'s Subject) -> Scene<'s> {
        let mut world = SimWorld::new(seed);
        let mut disks = Vec::new();
        for (name, image) in names(subject.now.len()).iter().zip(&subject.now) {
            let disk = world.add_disk(name, DiskOptions::sized(DISK_BYTES));
            disk.put_image(image);
            disks.push(disk);
        }
        let mut add = |name: &str| world.add_disk(name, DiskOptions::sized(DISK_BYTES));
        let (stranger, other, twin) = (add("stranger"), add("other"), add("twin"));
        let junk: Vec<u8> =
            (0..64 << 10_u32).map(|at| u8::try_from(at % 253).expect("small")).collect();
        stranger.poke(0, &junk);
        other.put_image(&subject.other);
        let in_service = disks.iter().enumerate().filter(|(at, _)| !subject.out.contains(at));
        let map_sequence = in_service.map(|(_, disk)| map_sequence(subject, disk)).min().flatten();
        Scene {
            subject,
            world,
            disks,
            stranger,
            other,
            twin,
            seed,
            excused: Excused::default(),
            no_members: Vec::new(),
            gone: Vec::new(),
            story: Vec::new(),
            map_sequence,
        }
    }

    fn suffer(&mut self) {
        let mut victims = Victims {
            subject: self.subject,
            disks: &self.disks,
            twin: &self.twin,
            random: Random::stream(self.seed, 2),
            excused: Excused::default(),
            strangers: std::collections::BTreeSet::new(),
            gone: Vec::new(),
            story: Vec::new(),
        };
        victims.suffer();
        let Victims { excused, strangers, gone, story, .. } = victims;
        (self.excused, self.gone) = (excused, gone);
        self.no_members = strangers.into_iter().collect();
        self.story = story;
        let useless = self.useless();
        self.excused.all |= self.cannot_know(&useless);
        self.excused.map_is_older = self.subject.is_crashed && self.map_is_older(&useless);
        if self.subject.is_crashed {
            self.excused.rows_in_doubt(&self.subject.geometry, &useless);
        }
    }

    /// Devices that no start can take a member from.
    fn useless(&self) -> Vec<bool> {
        let is_useless = |(at, disk): (usize, &SimDisk)| {
            let is_out = self.subject.out.contains(&at);
            is_out
                || self.gone.contains(&at)
                || self.excused.stale.contains(&at)
                || disk.size_bytes() < DISK_BYTES
                || !has_superblock(disk)
        };
        self.disks.iter().enumerate().map(is_useless).collect()
    }

    /// More devices of a group are of no use than it can do without, and one of those that are left
    /// is older than they were: it cannot know.
    fn cannot_know(&self, useless: &[bool]) -> bool {
        let geometry = &self.subject.geometry;
        let lost = geometry.losses(|member| useless[member.at()]);
        let is_old = !self.excused.stale.is_empty() || !self.subject.out.is_empty();
        is_old && lost > geometry.parity_strips()
    }

    /// Some page of the written map was newer on all members than it is on any that is left.
    fn map_is_older(&self, useless: &[bool]) -> bool {
        let left = self.disks.iter().zip(useless).filter(|(_, is_useless)| !**is_useless);
        let left = left.map(|(disk, _)| map_sequence(self.subject, disk)).max().flatten();
        left.is_some() && left < self.map_sequence
    }

    fn run(&mut self, random: &mut Random) -> Result<Outcome, String> {
        let before: u64 = self.disks.iter().map(SimDisk::changes).sum();
        let looks_at_gaps = random.percent(25);
        let images: Vec<Vec<u8>> = match looks_at_gaps {
            true => self.disks.iter().map(whole).collect(),
            false => Vec::new(),
        };
        let (is_read_only, accept_serials) = (random.percent(10), random.percent(10));
        let mut devices = names(self.disks.len());
        devices.extend(["twin".to_owned()]);
        if random.percent(50) {
            devices.extend(["stranger".to_owned(), "other".to_owned()]);
        }
        random.shuffle(&mut devices);
        let spec = AssembleSpec {
            devices,
            request: AssemblyRequest {
                array: ArrayChoice::Uuid(self.subject.superblock.array_uuid),
                accept_serials,
                accept_dirty_degraded: false,
                ..AssemblyRequest::default()
            },
            is_read_only,
            ..AssembleSpec::default()
        };
        let found = self.run_program(spec, random.clone())?;
        let changed = self.disks.iter().map(SimDisk::changes).sum::<u64>() != before;
        if changed && found.outcome.refused.is_some() {
            return Err(format!("refused ({:?}), but devices were written", found.outcome.refused));
        }
        if changed && is_read_only {
            return Err("a read-only start wrote".to_owned());
        }
        self.nobody_else_was_written(accept_serials)?;
        for (disk, before) in self.disks.iter().zip(&images) {
            gaps_are_as_they_were(disk, before)?;
        }
        match found.wrong {
            Some(wrong) => Err(wrong),
            None => Ok(Outcome { is_forged: self.excused.all, ..found.outcome }),
        }
    }

    fn run_program(&mut self, spec: AssembleSpec, random: Random) -> Result<Found, String> {
        let opener = self.world.opener();
        self.world.stop_at(self.world.operations() + OPERATIONS_MAX, Stop::Kill);
        let judge = Judge { subject: self.subject, excused: &self.excused };
        let ended = self.world.run(async |handle| {
            let engine = engine(opener, &handle);
            within(&handle, HOURS_MAX, judge.use_it(&engine, &handle, spec, random)).await
        });
        let found = match ended {
            Ended::Done(Some(found)) => found,
            Ended::Done(None) => return Err(format!("not at its end after {HOURS_MAX:?}")),
            Ended::Stopped(_) => return Err(format!("{OPERATIONS_MAX} device operations")),
        };
        self.world.stop(Stop::Kill);
        Ok(found)
    }

    /// A copy of a member may take its place where the operator says that serials do not matter.
    fn nobody_else_was_written(&self, accept_serials: bool) -> Result<(), String> {
        let may_be = |disk: &SimDisk| accept_serials && disk.name() == self.twin.name();
        for disk in [&self.stranger, &self.other, &self.twin] {
            if disk.changes() > 0 && !may_be(disk) {
                return Err(format!("device {} is no member and was written", disk.name()));
            }
        }
        for at in &self.no_members {
            if self.disks[*at].changes() > 0 && !has_superblock(&self.disks[*at]) {
                return Err(format!("disk{at} holds somebody else's data and was written"));
            }
        }
        Ok(())
    }
}

/// What must be read.
struct Judge<'j> {
    subject: &'j Subject,
    excused: &'j Excused,
}

/// What a block was read as.
enum Block {
    Zero,
    Data(Vec<u8>),
    Failed,
}

impl Judge<'_> {
    /// Start it, read all, write some, wait for its jobs, read all again, and stop it.
    async fn use_it(
        &self,
        engine: &Engine,
        handle: &Handle,
        spec: AssembleSpec,
        mut random: Random,
    ) -> Found {
        let mut found = Found::default();
        let name = match engine.assemble(spec).await {
            Ok(name) => name,
            Err(refusal) => {
                found.outcome.refused = Some(refusal.code.to_owned());
                return found;
            }
        };
        let mut held = self.subject.held.clone();
        let Ok(looked) = engine.with_volume(0, &name, read_all).await else { return found };
        found.outcome.is_read_only = looked.is_read_only;
        self.judge(&looked, &held, &mut found);
        if !looked.is_read_only && random.percent(60) {
            let writing = async move |volume| write_some(volume, random).await;
            for (block, id) in engine.with_volume(1, &name, writing).await.unwrap_or_default() {
                held[to_usize(block)] = id;
            }
            handle.sleep(JOBS).await;
            if let Ok(looked) = engine.with_volume(0, &name, read_all).await {
                let mut again = Found::default();
                self.judge(&looked, &held, &mut again);
                let wrong = again.wrong.map(|wrong| format!("after writes and jobs: {wrong}"));
                found.wrong = found.wrong.or(wrong);
            }
        }
        // Members may have been lost on the way: then it cannot say that it stopped cleanly.
        let _stopped = engine.stop(&name).await;
        found
    }

    fn judge(&self, looked: &Looked, held: &[WriteId], found: &mut Found) {
        let wanted_bytes = self.subject.geometry.volume_bytes();
        if !self.excused.all && looked.volume_bytes != wanted_bytes {
            found.wrong = Some(format!("{} bytes, not {wanted_bytes}", looked.volume_bytes));
        }
        for (number, block) in &looked.blocks {
            let number = *number;
            let id = held.get(to_usize(number)).copied().unwrap_or_default();
            let is_right = match block {
                _ if id == UNKNOWN => continue,
                Block::Failed => {
                    found.outcome.failed += 1;
                    continue;
                }
                Block::Zero => id == WriteId(0),
                Block::Data(bytes) => id != WriteId(0) && is_of(Payload::Tags, number, id, bytes),
            };
            if is_right {
                found.outcome.right += 1;
            } else if self.is_excused(number) {
                found.outcome.excused += 1;
            } else {
                let is = match block {
                    Block::Data(bytes) => format!("{:02x?}", &bytes[..16]),
                    _ => "zeros".to_owned(),
                };
                let wrong = format!("block {number} should hold {id} and is {is}");
                found.wrong.get_or_insert(wrong);
            }
        }
    }

    fn is_excused(&self, block: u64) -> bool {
        let stripe = block * BLOCK_BYTES / self.subject.geometry.stripe_bytes();
        self.excused.all
            || self.subject.in_flight.contains(&stripe)
            || self.excused.stripes.contains(&stripe)
            || self.excused.map_is_older
    }
}

/// What was read of a volume.
struct Looked {
    volume_bytes: u64,
    is_read_only: bool,
    blocks: Vec<(u64, Block)>,
}

/// All that clients wrote, and some of the rest.
async fn read_all(volume: ArrayVolume) -> Looked {
    let facts = volume.facts();
    let size = facts.size_bytes.min(VOLUME_BYTES_MAX);
    let mut blocks = Vec::new();
    let mut offset = 0;
    while offset < size {
        let extent = Extent::new(offset, READ_BYTES.min(size - offset));
        let is_written = offset <= BLOCKS * BLOCK_BYTES;
        offset += if is_written { READ_BYTES } else { READ_EVERY * READ_BYTES };
        if read(&volume, extent, &mut blocks).await.is_some() {
            continue;
        }
        // One of them fails: one after the other.
        let mut at = extent.offset;
        while at < extent.end() {
            if read(&volume, Extent::new(at, BLOCK_BYTES), &mut blocks).await.is_none() {
                blocks.push((at / BLOCK_BYTES, Block::Failed));
            }
            at += BLOCK_BYTES;
        }
    }
    Looked { volume_bytes: facts.size_bytes, is_read_only: facts.read_only, blocks }
}

async fn read(volume: &ArrayVolume, extent: Extent, blocks: &mut Vec<(u64, Block)>) -> Option<()> {
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    // No client writes this byte.
    buffer.fill(0xA5);
    let request = Request { command: Command::Read(buffer), extent, fua: false };
    let Ok(Reply::Data(data)) = volume.submit(request).await else { return None };
    for (number, part) in (extent.offset / BLOCK_BYTES..).zip(data.chunks(BLOCK_BYTES_USIZE)) {
        let block = if is_zero(part) { Block::Zero } else { Block::Data(part.to_vec()) };
        blocks.push((number, block));
    }
    Some(())
}

/// Write some single blocks at the beginning: what each holds then, the last word counts.
async fn write_some(volume: ArrayVolume, mut random: Random) -> Vec<(u64, WriteId)> {
    let mut written = Vec::new();
    for number in 0..6 {
        let block = random.below(256);
        let id = WriteId((1 << 40) + number);
        if (block + 1) * BLOCK_BYTES > volume.facts().size_bytes {
            continue;
        }
        let is_done = write(&volume, block..block + 1, id).await;
        written.push((block, if is_done { id } else { UNKNOWN }));
    }
    flush(&volume).await;
    written
}

fn whole(disk: &SimDisk) -> Vec<u8> {
    disk.peek(Extent::new(0, DISK_BYTES.min(disk.size_bytes())))
}

fn superblock(disk: &SimDisk) -> Option<Superblock> {
    let slots = copy_slots(disk.size_bytes())?;
    let bytes = slots.map(|slot| disk.peek(slot));
    let copies = [0, 1, 2, 3].map(|at: usize| Some(bytes[at].as_slice()));
    SuperblockCopies::choose(&copies).superblock().cloned()
}

/// Sequence of the newest page of the written map that the device has whole; these arrays have one
/// page.
fn map_sequence(subject: &Subject, disk: &SimDisk) -> Option<u64> {
    let superblock = &subject.superblock;
    let member = self::superblock(disk)?.member_uuid;
    let owner_tag = superblock.page_tag(member);
    let identity = PageIdentity { kind: BitmapKind::WrittenMap, owner_tag, page: 0 };
    let place = |place: u64| {
        let offset = superblock.areas.written_map.offset + place * BLOCK_BYTES;
        let page = identity.decode(&disk.peek(Extent::new(offset, BLOCK_BYTES))).ok()?;
        (page.sequence > 0).then_some(page.sequence)
    };
    (0..superblock.written_map_places()).filter_map(place).max()
}

fn has_superblock(disk: &SimDisk) -> bool {
    superblock(disk).is_some()
}

/// What lies between the areas was not touched. The flush marks and the records of drives lie where
/// the format says, so no superblock names them.
fn gaps_are_as_they_were(disk: &SimDisk, before: &[u8]) -> Result<(), String> {
    let now = whole(disk);
    if now == before {
        return Ok(());
    }
    let Some(superblock) = superblock(disk) else {
        return Err(format!("{} was written and has no superblock", disk.name()));
    };
    let mut areas: Vec<Extent> = superblock.areas.named().map(|(_, area)| area).to_vec();
    areas.push(FLUSH_MARKS);
    areas.push(Extent::new(DRIVE_PAGE_OFFSET, DRIVE_PAGE_BYTES * DRIVE_PAGES_MAX));
    areas.sort_by_key(|area| area.offset);
    areas.push(Extent::new(to_u64(now.len()), 0));
    let mut from = 0;
    for area in areas {
        let gap = from..to_usize(area.offset).min(now.len()).max(from);
        if now[gap.clone()] != before[gap.clone()] {
            return Err(format!("{} was written outside its areas, in {gap:?}", disk.name()));
        }
        from = from.max(to_usize(area.end()).min(now.len()));
    }
    Ok(())
}
