//! Power cuts of the real program: a run is recorded, and from the record come the disks that a cut
//! at any moment may have left. The engine starts on them in this process, on simulated disks; the
//! second reader looks at them too; and some are written to files for the real program to start on.
//!
//! What must stay true: each block holds what was flushed, by the clock of the record, or something
//! written since, and goes on to when further members are lost. Members are lost with the power
//! where the policy promises to bear that: not while whole stripes are written to a whole array,
//! and there blocks are not torn either. How many images: `ASHLAR_CRASH_IMAGES`, else 400. A
//! failure prints the entry and the number of its image.

use crate::client::{Client, Nbd};
use crate::kills::say;
use crate::ledger::{BLOCK_BYTES, Ledger, fill};
use crate::load::{Place, Random, Shared, run};
use crate::replay::{Cut, Replay};
use crate::world::World;
use ashlar_device::{RecordEntry, read_record};
use ashlar_engine::{AssembleSpec, Engine, EngineConfig};
use ashlar_salvage::{Choices, How, Salvage};
use ashlar_sim::{DiskImage, DiskOptions, SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES as BLOCK, Extent, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Images, if the environment does not say.
const IMAGES: usize = 400;
/// Blocks that clients write.
const BLOCKS: usize = 512;
const MEMBER_BYTES: u64 = 16 << 20;
const CLIENTS: u64 = 6;
/// Requests of a recorded run.
const REQUESTS: u64 = 600;
/// How long clients may take for them before something must be wrong.
const PATIENCE: Duration = Duration::from_secs(300);

/// A run to record, and what its cuts may do.
struct Run {
    level: &'static str,
    members: usize,
    /// Members that are out while clients write, and that more may be lost.
    out: usize,
    losses: usize,
    blocks_max: usize,
    atomic_bytes: usize,
}

const RUNS: [Run; 4] = [
    Run { level: "6", members: 5, out: 0, losses: 2, blocks_max: 3, atomic_bytes: 512 },
    Run { level: "6", members: 5, out: 0, losses: 0, blocks_max: 48, atomic_bytes: 4096 },
    Run { level: "6", members: 5, out: 1, losses: 1, blocks_max: 48, atomic_bytes: 512 },
    Run { level: "5", members: 4, out: 0, losses: 1, blocks_max: 3, atomic_bytes: 512 },
];

/// What was recorded.
struct Recorded {
    entries: Vec<RecordEntry>,
    ledger: Ledger,
    place: Place,
    paths: Vec<String>,
    /// The first entry at which the array is in use.
    from: usize,
}

impl Run {
    fn record(&self, seed: u64) -> Recorded {
        let mut world = World::without_daemon();
        world.start(&["--record-writes", "record"]);
        let arguments = ["--level", self.level, "--policy", "log", "--strip-size", "16K"];
        world.create_of(MEMBER_BYTES, self.members, &arguments);
        let socket = world.path("nbd.sock");
        let open = || Nbd::open(&socket, "tank0").expect("the volume is served");
        let ledger = Ledger::blank(BLOCKS, 0);
        let place = Place { blocks: BLOCKS, volume_bytes: open().volume_bytes };
        use_first_half(&mut open(), place, &ledger);
        (0..self.out).for_each(|slot| drop(world.ok(&["fail", "tank0", &slot.to_string()])));
        let in_use_ns = crate::ledger::now_ns();
        let (now, told) = sync_channel(1);
        let shared = Shared {
            ledger: &ledger,
            place,
            blocks_max: self.blocks_max,
            done: AtomicU64::new(0),
            kill_at: REQUESTS,
            now,
            is_killed: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            for stream in 0..CLIENTS {
                let (mut client, shared) = (open(), &shared);
                let mut random = Random::new(seed, stream);
                scope.spawn(move || run(&mut client, &mut random, shared));
            }
            let got_on = told.recv_timeout(PATIENCE);
            shared.is_killed.store(true, std::sync::atomic::Ordering::SeqCst);
            world.kill();
            got_on.expect("clients get on");
        });
        let entries = read_record(&world.path("record")).expect("a record");
        let from = entries.iter().position(|entry| entry.at_ns > in_use_ns).expect("some");
        let path = |slot: usize| world.path(&format!("m{slot}")).display().to_string();
        let paths = (0..self.members).map(path).collect();
        Recorded { entries, ledger, place, paths, from }
    }

    /// What survives of what is not certain, by chance.
    fn cut(&self, random: &mut Random) -> Cut {
        Cut {
            percent: [0, 10, 50, 90, 100][random.below(5)],
            torn_percent: [0, 30][random.below(2)],
            atomic_bytes: self.atomic_bytes,
        }
    }

    /// Cut the record at so many moments, evenly spread, and look at what is left.
    fn examine(&self, images: usize, seed: u64, found: &mut Found) {
        let recorded = self.record(seed);
        let mut replay = Replay::new(&recorded.entries, &recorded.paths, MEMBER_BYTES);
        let span = recorded.entries.len() - recorded.from;
        assert!(span > 1000, "a record of {span} entries is no load");
        for number in 0..images {
            let at = recorded.from + span * number / images;
            replay.advance(at);
            let mut random = Random::new(seed, u64::try_from(number).expect("few") + 1000);
            let cut = self.cut(&mut random);
            let image = Image {
                disks: replay.cut(cut, &mut random),
                ledger: recorded.ledger.as_of(recorded.entries[at].at_ns),
                recorded: &recorded,
                case: format!(
                    "level {}, seed {seed}, image {number}, entry {at}, {cut:?}",
                    self.level
                ),
            };
            if number % (images / 3).max(1) == 0 {
                image.start_the_program();
                found.by_program += 1;
            }
            let mut lost: Vec<usize> = (0..self.out).collect();
            if random.below(2) == 0 {
                lose(&mut lost, self.members, self.losses, &mut random);
            }
            let second = number.is_multiple_of(5).then(|| image.salvaged(&lost));
            found.salvaged += usize::from(second.is_some());
            let budget = self.out + self.losses;
            found.mixed += image.start(&lost, (budget, &mut random), second.as_deref());
            found.images += 1;
        }
        found.entries += span;
    }
}

/// Its stripes are in use from now on.
fn use_first_half(nbd: &mut Nbd, place: Place, ledger: &Ledger) {
    let mut bytes = vec![0; BLOCKS / 2 * BLOCK_BYTES];
    let ticket = ledger.begin(0, BLOCKS / 2, false);
    for (block, bytes) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        fill(block, ticket.number, bytes);
    }
    nbd.write(place.of(0), &bytes).expect("written");
    ledger.answer(ticket);
    let began = ledger.begin_flush();
    nbd.flush().expect("flushed");
    ledger.answer_flush(began);
}

fn lose(lost: &mut Vec<usize>, members: usize, more: usize, random: &mut Random) {
    let wanted = lost.len() + more;
    while lost.len() < wanted {
        let slot = random.below(members);
        if !lost.contains(&slot) {
            lost.push(slot);
        }
    }
}

/// What one cut left.
struct Image<'r> {
    disks: Vec<DiskImage>,
    ledger: Ledger,
    recorded: &'r Recorded,
    case: String,
}

impl Image<'_> {
    /// A world with these disks in it.
    fn world(&self) -> (SimWorld, Vec<SimDisk>) {
        let mut world = SimWorld::new(3);
        let add = |(slot, image): (usize, &DiskImage)| {
            let disk = world.add_disk(&format!("m{slot}"), DiskOptions::sized(MEMBER_BYTES));
            disk.put_image(image);
            disk
        };
        let disks = self.disks.iter().enumerate().map(add).collect();
        (world, disks)
    }

    /// The bytes of all blocks as the second reader has them; none where it is in doubt.
    fn salvaged(&self, lost: &[usize]) -> Vec<Option<Vec<u8>>> {
        let (_world, disks) = self.world();
        let here = disks.iter().enumerate().filter(|(slot, _)| !lost.contains(slot));
        let images: Vec<Vec<u8>> =
            here.map(|(_, disk)| disk.peek(Extent::new(0, MEMBER_BYTES))).collect();
        let salvage = Salvage::open(images, &Choices::default());
        let salvage = salvage.unwrap_or_else(|_| panic!("{}: salvage finds no array", self.case));
        let read = |block: usize| {
            let found = salvage.read_block(self.recorded.place.of(block) / BLOCK);
            let found = found.unwrap_or_else(|_| panic!("{}: block {block} is lost", self.case));
            if found.how == How::InDoubt {
                return None;
            }
            let may = self.ledger.may_hold(block, &found.bytes);
            may.unwrap_or_else(|what| panic!("{}, the second reader: {what}", self.case));
            Some(found.bytes.to_vec())
        };
        (0..BLOCKS).map(read).collect()
    }

    /// Start the engine without the `lost` members, look at every block, lose members up to
    /// `budget`, look again. How many blocks hold something that had not been flushed.
    fn start(
        &self,
        lost: &[usize],
        (budget, random): (usize, &mut Random),
        second: Option<&[Option<Vec<u8>>]>,
    ) -> usize {
        let (mut world, disks) = self.world();
        lost.iter().for_each(|slot| disks[*slot].vanish());
        let mut later = lost.to_vec();
        lose(&mut later, disks.len(), budget - lost.len(), random);
        let (opener, place, case) = (world.opener(), self.recorded.place, self.case.clone());
        let looks = world.run(async move |handle| {
            let config = EngineConfig {
                worker_count: 2,
                payload_bytes: 4 << 20,
                wall_clock_s: || 1_700_000_000,
                ..EngineConfig::new(Arc::new(opener))
            };
            let engine = Engine::on_executor(config, &handle).expect("memory for pools");
            let devices = (0..disks.len()).map(|slot| format!("m{slot}")).collect();
            let started =
                engine.assemble(AssembleSpec { devices, ..AssembleSpec::default() }).await;
            started.unwrap_or_else(|refusal| panic!("{case}: {refusal:?}"));
            let first = blocks(&engine, place, &case).await;
            later.iter().for_each(|slot| disks[*slot].vanish());
            [first, blocks(&engine, place, &case).await]
        });
        let [first, again] = looks.done();
        let mut mixed = 0;
        for (block, bytes) in first.iter().enumerate() {
            mixed += usize::from(!self.ledger.is_settled(block));
            let settled = self.ledger.settle(block, bytes);
            settled.unwrap_or_else(|what| panic!("{}, {lost:?} lost: {what}", self.case));
            assert!(*bytes == again[block], "{}: block {block} changed with a loss", self.case);
            let second = second.and_then(|second| second[block].as_ref());
            assert!(
                second.is_none_or(|second| second == bytes),
                "{}: the readers differ in block {block}",
                self.case
            );
        }
        mixed
    }

    /// The same with files and the real program.
    fn start_the_program(&self) {
        let mut world = World::without_daemon();
        let (_kept, disks) = self.world();
        for (slot, disk) in disks.iter().enumerate() {
            let bytes = disk.peek(Extent::new(0, MEMBER_BYTES));
            std::fs::write(world.path(&format!("m{slot}")), bytes).expect("written");
        }
        let names: Vec<String> = (0..disks.len()).map(|slot| format!("m{slot}")).collect();
        world.start(&names.iter().map(String::as_str).collect::<Vec<&str>>());
        let mut nbd = Nbd::open(&world.path("nbd.sock"), "tank0").expect("it started");
        for block in 0..BLOCKS {
            let mut bytes = vec![0; BLOCK_BYTES];
            nbd.read(self.recorded.place.of(block), &mut bytes).expect("readable");
            let may = self.ledger.may_hold(block, &bytes);
            may.unwrap_or_else(|what| panic!("{}, the program: {what}", self.case));
        }
        assert!(world.end().success());
    }
}

/// What every block holds.
async fn blocks(engine: &Engine, place: Place, case: &str) -> Vec<Vec<u8>> {
    let found: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let (case, keep) = (case.to_owned(), Arc::clone(&found));
    let looked = engine.with_volume(0, "tank0", async move |volume| {
        for block in 0..BLOCKS {
            let extent = Extent::new(place.of(block), BLOCK);
            let buffer = volume.buffer(to_usize(BLOCK)).await;
            let request = Request { command: Command::Read(buffer), extent, fua: false };
            let reply = volume.submit(request).await;
            let Ok(Reply::Data(buffer)) = reply else { panic!("{case}: block {block}: {reply:?}") };
            keep.lock().expect("one thread").push(buffer.to_vec());
        }
    });
    looked.await.expect("runs");
    std::mem::take(&mut *found.lock().expect("one thread"))
}

/// What was done.
#[derive(Default)]
struct Found {
    images: usize,
    entries: usize,
    salvaged: usize,
    by_program: usize,
    /// Blocks that might hold more than one thing.
    mixed: usize,
}

impl Found {
    fn and(self, other: &Found) -> Found {
        Found {
            images: self.images + other.images,
            entries: self.entries + other.entries,
            salvaged: self.salvaged + other.salvaged,
            by_program: self.by_program + other.by_program,
            mixed: self.mixed + other.mixed,
        }
    }
}

#[test]
fn whatever_a_power_cut_leaves_of_a_recorded_run_assembles_and_holds_what_was_flushed() {
    let wanted = std::env::var("ASHLAR_CRASH_IMAGES").map(|count| count.parse().expect("a number"));
    let images: usize = wanted.unwrap_or(IMAGES);
    // A record has so many moments; more images come from more records.
    let rounds = images.div_ceil(RUNS.len() * 1000).max(1);
    let each = images / (RUNS.len() * rounds);
    let examine = |run: &Run| {
        let mut found = Found::default();
        (1..=u64::try_from(rounds).expect("few"))
            .for_each(|seed| run.examine(each, seed, &mut found));
        found
    };
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = RUNS.iter().map(|run| scope.spawn(move || examine(run))).collect();
        let join = |found: Found, thread: std::thread::ScopedJoinHandle<Found>| {
            // What went wrong has been printed by its thread.
            found.and(&thread.join().expect("right"))
        };
        threads.into_iter().fold(Found::default(), join)
    });
    assert!(found.mixed > found.images, "next to nothing was under way at the cuts");
    let line = format!(
        "crash images: {} from {} entries of {} records, all assembled, 0 blocks wrong ({} blocks \
         might hold more than one thing); {} read by the second reader too, {} by the real program",
        found.images,
        found.entries,
        rounds * RUNS.len(),
        found.mixed,
        found.salvaged,
        found.by_program,
    );
    say(&line);
}
