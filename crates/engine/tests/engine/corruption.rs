//! Arrays with checksums on disks that lie: blocks change silently, writes are lost or go
//! elsewhere. Damage within the budget is repaired and never seen. Damage beyond it is answered
//! with an error. A wrong byte is never handed out.
//!
//! How many corruptions are injected: `ASHLAR_CORRUPTIONS` (1,800 unless it is set), over all
//! levels.
//!
//! What must stay true: everything comes from the seed. In a row of a stripe the test damages at
//! most as many blocks as the parity replaces, or on purpose more, and knows which.

use crate::world::jobs::{count, last, ms, raid6, scrub, until_idle};
use crate::world::{add_disks, assemble_spec, create_spec, engine, read, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::event_names as names;
use ashlar_engine::{ArrayVolume, CreateSpec, Engine};
use ashlar_layout::{Geometry, Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_ring::Handle;
use ashlar_sim::{Latency, Lie, Random, SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, StripIdx, StripeNo, to_usize};
use ashlar_volume::{Command, Request, Volume, VolumeErrorKind};
use std::collections::BTreeSet;

/// An array and what its volume holds.
struct Tank {
    disks: Vec<SimDisk>,
    geometry: Geometry,
    data_offset: u64,
    /// What every block holds: the number of its write.
    ids: Vec<u64>,
    next_id: u64,
    random: Random,
    tally: Tally,
}

/// What was injected, and what became of it.
#[derive(Default, Clone, Copy, Debug)]
struct Tally {
    changed: u64,
    lost_writes: u64,
    misdirected: u64,
    beyond: u64,
    errors: u64,
}

impl Tally {
    fn injected(&self) -> u64 {
        self.changed + self.lost_writes + self.misdirected + self.beyond
    }
}

fn content(block: u64, id: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Random::stream(id, block).fill(&mut bytes);
    bytes
}

fn summed(shape: Shape) -> CreateSpec {
    CreateSpec {
        policy: ConsistencyPolicy::Log,
        checksums: ChecksumKind::Crc32c,
        ..create_spec(shape)
    }
}

impl Tank {
    async fn create(engine: &Engine, disks: Vec<SimDisk>, shape: Shape, seed: u64) -> Tank {
        let members = shape.members;
        let report = engine.create(summed(shape)).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        let blocks = to_usize(report.volume_bytes / BLOCK_BYTES);
        Tank {
            disks,
            geometry: report.geometry,
            data_offset: report.data_offset,
            ids: vec![0; blocks],
            next_id: 1,
            random: Random::stream(seed, 77),
            tally: Tally::default(),
        }
    }

    fn m(&self) -> u64 {
        self.geometry.parity_strips() as u64
    }

    fn stripe_blocks(&self) -> u64 {
        self.geometry.stripe_bytes() / BLOCK_BYTES
    }

    /// The volume's block at that place.
    fn block(&self, stripe: u64, strip: u64, row: u64) -> u64 {
        stripe * self.stripe_blocks() + strip * u64::from(self.geometry.strip_blocks()) + row
    }

    fn place(&self, stripe: u64, strip: u64, row: u64) -> (usize, Extent) {
        let strip = StripIdx(u8::try_from(strip).expect("few"));
        let place = self.geometry.place(self.geometry.stripe(StripeNo(stripe)), strip);
        let offset = self.data_offset + place.offset + row * BLOCK_BYTES;
        (place.member.at(), Extent::new(offset, BLOCK_BYTES))
    }

    async fn write(&mut self, volume: &ArrayVolume, first: u64, blocks: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let extent = Extent::new(first * BLOCK_BYTES, blocks * BLOCK_BYTES);
        let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
        for (block, part) in (first..).zip(buffer.chunks_mut(4096)) {
            part.copy_from_slice(&content(block, id));
            self.ids[to_usize(block)] = id;
        }
        submit(volume, Command::Write(buffer.freeze()), extent, false).await;
    }

    /// Blocks read back: right, or an error if that is allowed. True if they were right.
    async fn check(
        &self,
        volume: &ArrayVolume,
        (first, blocks): (u64, u64),
        may_fail: bool,
    ) -> bool {
        let extent = Extent::new(first * BLOCK_BYTES, blocks * BLOCK_BYTES);
        let got = match read(volume, extent).await {
            Ok(got) => got,
            Err(kind) => {
                assert_eq!(kind, VolumeErrorKind::Io);
                assert!(may_fail, "blocks {first} to {} are within the budget", first + blocks);
                return false;
            }
        };
        for (block, part) in (first..).zip(got.chunks(4096)) {
            let id = self.ids[to_usize(block)];
            assert!(part == content(block, id), "block {block} is wrong");
        }
        true
    }

    /// Write the first stripes, with one request.
    async fn begun(mut self, engine: &Engine, stripes: u64) -> Tank {
        let run = engine.with_volume(0, "tank", async move |volume| {
            let blocks = self.stripe_blocks();
            self.write(&volume, 0, stripes * blocks).await;
            self
        });
        run.await.expect("runs")
    }

    /// Write all stripes.
    async fn filled(mut self, engine: &Engine) -> Tank {
        let run = engine.with_volume(0, "tank", async move |volume| {
            for stripe in 0..self.geometry.stripe_count() {
                let blocks = self.stripe_blocks();
                self.write(&volume, stripe * blocks, blocks).await;
            }
            self
        });
        run.await.expect("runs")
    }

    /// Spoil a block in one of several ways; it is not what it was.
    fn spoil(&mut self, (stripe, strip, row): (u64, u64, u64)) {
        let (member, place) = self.place(stripe, strip, row);
        let disk = self.disks[member].clone();
        let mut bytes = disk.peek(place);
        match self.random.below(5) {
            0 => bytes[to_usize(self.random.below(4096))] ^= 1 << self.random.below(8),
            1 => bytes[512..1024].iter_mut().for_each(|byte| *byte = !*byte),
            2 if bytes.iter().any(|byte| *byte != 0) => bytes.fill(0),
            // Another block of the same disk, whole and right in its own place.
            3 => {
                let other = (row + 1) % u64::from(self.geometry.strip_blocks());
                let found = disk.peek(self.place(stripe, strip, other).1);
                if found == bytes {
                    bytes[0] ^= 1;
                } else {
                    bytes = found;
                }
            }
            _ => bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1)),
        }
        disk.poke(place.offset, &bytes);
    }

    /// Some strips of a stripe, each once.
    fn some_strips(&mut self, wanted: u64) -> BTreeSet<u64> {
        let strips = self.geometry.stripe_width() as u64;
        let mut chosen = BTreeSet::new();
        while (chosen.len() as u64) < wanted {
            chosen.insert(self.random.below(strips));
        }
        chosen
    }

    /// Rows of stripes are spoilt within the budget, then read, written or left to a scrub.
    async fn within_budget(&mut self, volume: &ArrayVolume) {
        let (k, rows) =
            (self.geometry.data_strips() as u64, u64::from(self.geometry.strip_blocks()));
        for _ in 0..24 {
            let stripe = self.random.below(self.geometry.stripe_count());
            // What was left to a scrub is read first, so that no row gets more than its share.
            let first = stripe * self.stripe_blocks();
            self.check(volume, (first, self.stripe_blocks()), false).await;
            self.settle_parity(volume, stripe).await;
            for row in 0..rows {
                let wanted = self.random.below(self.m() + 1);
                for strip in self.some_strips(wanted) {
                    self.spoil((stripe, strip, row));
                    self.tally.changed += 1;
                }
            }
            let (strip, row) = (self.random.below(k), self.random.below(rows));
            match self.random.below(4) {
                0 => drop(self.check(volume, (first, self.stripe_blocks()), false).await),
                1 => {
                    let block = self.block(stripe, strip, row);
                    self.write(volume, block, 1).await;
                }
                2 => {
                    for block in first..first + self.stripe_blocks() {
                        self.check(volume, (block, 1), false).await;
                    }
                }
                _ => {}
            }
        }
    }

    /// Parity that was spoilt and never looked at is made whole by writing the stripe anew.
    async fn settle_parity(&mut self, volume: &ArrayVolume, stripe: u64) {
        let blocks = self.stripe_blocks();
        self.write(volume, stripe * blocks, blocks).await;
    }

    /// One block more than the parity replaces: those are errors, everything else is right.
    async fn beyond_budget(&mut self, volume: &ArrayVolume) {
        let (k, rows) =
            (self.geometry.data_strips() as u64, u64::from(self.geometry.strip_blocks()));
        let (stripe, row) =
            (self.random.below(self.geometry.stripe_count()), self.random.below(rows));
        self.settle_parity(volume, stripe).await;
        let strips = self.some_strips(self.m() + 1);
        for strip in &strips {
            self.spoil((stripe, *strip, row));
            self.tally.beyond += 1;
        }
        let mut errors = 0;
        for strip in 0..k {
            for other in 0..rows {
                let is_damaged = other == row && strips.contains(&strip);
                // Of a mirror every block is the same block.
                let is_lost = is_damaged || (k == 1 && other == row);
                let block = self.block(stripe, strip, other);
                let is_right = self.check(volume, (block, 1), is_lost).await;
                assert_eq!(is_right, !is_lost, "stripe {stripe} strip {strip} row {other}");
                errors += u64::from(!is_right);
            }
        }
        let touches = errors > 0;
        let first = stripe * self.stripe_blocks();
        assert_eq!(self.check(volume, (first, self.stripe_blocks()), touches).await, !touches);
        self.tally.errors += errors;
        // To write the stripe whole is to have it back.
        self.settle_parity(volume, stripe).await;
        self.check(volume, (first, self.stripe_blocks()), false).await;
    }

    /// One disk loses writes, or lets them go where others lie, while a client writes and flushes.
    async fn lying_disk(&mut self, volume: &ArrayVolume) {
        let at = to_usize(self.random.below(self.disks.len() as u64));
        let end = self.geometry.member_bytes();
        let mut stripes = BTreeSet::new();
        for _ in 0..12 {
            let block = self.random.below(self.ids.len() as u64);
            let stripe = block / self.stripe_blocks();
            let on = self.geometry.stripe(StripeNo(stripe));
            let has_strip = self.geometry.strip_on(on, MemberIdx::from_at(at)).is_some();
            if !has_strip {
                continue;
            }
            if self.random.percent(50) {
                self.disks[at].lose_writes(1 + u32::try_from(self.random.below(3)).expect("few"));
                self.tally.lost_writes += 1;
            } else {
                let place = self.random.below(end / BLOCK_BYTES) * BLOCK_BYTES;
                self.disks[at].misdirect_next_write(self.data_offset + place);
                self.tally.misdirected += 1;
            }
            let most = (self.stripe_blocks() - block % self.stripe_blocks()).min(3);
            let blocks = 1 + self.random.below(most);
            self.write(volume, block, blocks).await;
            stripes.insert(stripe);
            if self.random.percent(20) {
                submit(volume, Command::Flush, Extent::default(), false).await;
            }
        }
        // What is still to be lost or misdirected goes with this.
        for _ in 0..3 {
            let stripe = stripes.first().copied().unwrap_or(0);
            self.settle_parity(volume, stripe).await;
        }
        for stripe in stripes {
            let blocks = self.stripe_blocks();
            self.check(volume, (stripe * blocks, blocks), false).await;
        }
    }

    async fn audit(&self, volume: &ArrayVolume) {
        for stripe in 0..self.geometry.stripe_count() {
            let blocks = self.stripe_blocks();
            self.check(volume, (stripe * blocks, blocks), false).await;
        }
    }
}

/// Run `test` on a new array of this shape.
fn on_tank<T>(shape: &Shape, seed: u64, test: impl AsyncFnOnce(Engine, Handle, Tank) -> T) -> T {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, shape.members);
    let (opener, shape) = (world.opener(), shape.clone());
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let tank = Tank::create(&engine, disks, shape, seed).await;
            test(engine, handle, tank).await
        })
        .done()
}

/// A scrub, after which nothing is left to be found.
async fn scrubbed(engine: &Engine, handle: &Handle) {
    scrub(engine, handle, true).await;
    let (mismatches, _) = scrub(engine, handle, false).await;
    assert_eq!(mismatches, "0", "a second scrub finds nothing");
    assert_eq!(last(engine, names::JOB_FINISHED, "lost_blocks").unwrap_or("0".into()), "0");
}

fn soak(shape: &Shape, seed: u64, wanted: u64) -> Tally {
    on_tank(shape, seed, async move |engine, handle, mut tank| {
        tank = tank.filled(&engine).await;
        while tank.tally.injected() < wanted {
            let kind = tank.random.below(4);
            if kind == 0 {
                // What the disk spoils may lie in any row: nothing else may be spoilt there.
                scrubbed(&engine, &handle).await;
            }
            let run = engine.with_volume(1, "tank", async move |volume| {
                match kind {
                    0 => tank.lying_disk(&volume).await,
                    1 => tank.beyond_budget(&volume).await,
                    _ => tank.within_budget(&volume).await,
                }
                tank
            });
            tank = run.await.expect("runs");
            if kind == 0 || tank.random.percent(10) {
                scrubbed(&engine, &handle).await;
            }
        }
        scrubbed(&engine, &handle).await;
        let run = engine.with_volume(0, "tank", async move |volume| {
            tank.audit(&volume).await;
            tank
        });
        tank = run.await.expect("runs");
        let members = &engine.status().await.expect("runs").arrays[0].members;
        assert!(members.iter().all(|member| member.counts.checksum_mismatches > 0));
        engine.stop("tank").await.expect("stopped clean");
        tank.tally
    })
}

#[test]
fn silent_corruption_within_the_budget_is_repaired_and_beyond_it_is_an_error() {
    let asked = std::env::var("ASHLAR_CORRUPTIONS").ok().map(|text| text.parse::<u64>());
    let wanted = asked.map_or(1800, |count| count.expect("a number"));
    let shapes = [
        crate::world::shape(Level::Raid5, 4, None, None),
        crate::world::shape(Level::Raid6, 6, None, None),
        crate::world::shape(Level::Raid7, 7, None, None),
        crate::world::shape(Level::NPlusM, 12, None, Some(4)),
        crate::world::shape(Level::Raid1, 3, None, None),
        crate::world::shape(Level::Raid60, 10, Some(5), None),
        crate::world::declustered(Level::Raid6, 8, 5, 1),
    ];
    let mut total = Tally::default();
    for (at, shape) in (0..).zip(shapes) {
        let label = format!("{shape:?}");
        let tally = soak(&shape, 9000 + at, wanted.div_ceil(6));
        eprintln!("{label}: {} injected, {tally:?}", tally.injected());
        total.changed += tally.changed;
        total.lost_writes += tally.lost_writes;
        total.misdirected += tally.misdirected;
        total.beyond += tally.beyond;
        total.errors += tally.errors;
    }
    eprintln!("all: {} injected, {total:?}", total.injected());
    assert!(total.injected() >= wanted && total.errors > 0);
}

#[test]
fn a_mismatch_names_the_device_and_the_place() {
    on_tank(&raid6(), 4, async move |engine, _, mut tank| {
        let run = engine.with_volume(0, "tank", async move |volume| {
            let blocks = tank.stripe_blocks();
            tank.write(&volume, 0, blocks).await;
            let (member, place) = tank.place(0, 2, 1);
            let before = tank.disks[member].peek(place);
            tank.disks[member].corrupt(place);
            let block = tank.block(0, 2, 1);
            tank.check(&volume, (block, 1), false).await;
            assert_eq!(tank.disks[member].peek(place), before, "it was repaired");
            tank.check(&volume, (block, 1), false).await;
            (member, place.offset)
        });
        let (member, offset) = run.await.expect("runs");
        let field = |name| last(&engine, names::MEMBER_CHECKSUM_MISMATCH, name);
        assert_eq!(count(&engine, names::MEMBER_CHECKSUM_MISMATCH), 1);
        assert_eq!(field("slot"), Some(member.to_string()));
        assert_eq!(field("path"), Some(format!("disk{member}")));
        assert_eq!(field("offset"), Some(offset.to_string()));
    });
}

#[test]
fn checksums_without_a_log_are_refused() {
    let mut world = SimWorld::new(5);
    add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 1);
            for policy in [ConsistencyPolicy::Bitmap, ConsistencyPolicy::None] {
                let spec = CreateSpec { policy, ..summed(raid6()) };
                let refused = engine.create(spec).await.expect_err("nothing would vouch for it");
                assert_eq!(refused.code, "array.checksums_need_log");
            }
        })
        .done();
}

/// A degraded array verifies what it decodes from: a lost member and a spoilt block are two faults.
#[test]
fn a_degraded_array_decodes_from_nothing_that_is_wrong() {
    for (level, members, m) in [(Level::Raid5, 4, 1), (Level::Raid6, 6, 2)] {
        let shape = crate::world::shape(level, members, None, None);
        on_tank(&shape, 6, async move |engine, _, mut tank| {
            tank = tank.begun(&engine, 2).await;
            let (gone, _) = tank.place(0, 0, 0);
            engine.fail("tank", MemberIdx::from_at(gone)).await.expect("one may go");
            let run = engine.with_volume(0, "tank", async move |volume| {
                tank.spoil((0, 1, 2));
                let lost = tank.block(0, 0, 2);
                let can = m > 1;
                assert_eq!(tank.check(&volume, (lost, 1), !can).await, can);
                let other = tank.block(0, 1, 3);
                tank.check(&volume, (other, 1), false).await;
                // Parity is never computed from the spoilt block.
                let request = |block: u64, bytes| Request {
                    command: Command::Write(bytes),
                    extent: Extent::new(block * BLOCK_BYTES, BLOCK_BYTES),
                    fua: false,
                };
                let bytes = volume.buffer(4096).await.freeze();
                if m == 1 {
                    let refused = volume.submit(request(lost, bytes)).await;
                    assert_eq!(refused.expect_err("beyond").kind, VolumeErrorKind::Io);
                }
            });
            run.await.expect("runs");
        });
    }
}

/// Seed 1 of the universes with checksums, when they were new: a scrub called a block lost because
/// the device had acknowledged its repair and not stored it.
#[test]
fn a_repair_that_the_disk_does_not_store_is_repeated_and_nothing_is_called_lost() {
    on_tank(&raid6(), 7, async move |engine, handle, mut tank| {
        tank = tank.begun(&engine, 1).await;
        for strip in [1, 4] {
            let (member, place) = tank.place(0, strip, 2);
            let before = tank.disks[member].peek(place);
            tank.disks[member].rot(place);
            tank.disks[member].lie_about_next_write(place, Lie::Lost);
            scrub(&engine, &handle, false).await;
            assert_eq!(tank.disks[member].lies_told(), 2);
            assert_eq!(tank.disks[member].peek(place), before, "it was repaired");
            assert_eq!(count(&engine, names::BLOCK_LOST), 0);
        }
    });
}

/// Seeds 23 and 45 of the universes with checksums, when they were new: blocks of a device that
/// failed all reads, or went while the scrub was there, were called lost, though every one of them
/// follows from the others.
#[test]
fn a_scrub_calls_nothing_lost_that_follows_from_the_others() {
    for is_gone in [false, true] {
        on_tank(&raid6(), 8, async move |engine, handle, mut tank| {
            tank = tank.filled(&engine).await;
            if is_gone {
                engine.scrub("tank", false).await.expect("started");
                handle.sleep(ms(3)).await;
                tank.disks[3].vanish();
            } else {
                tank.disks[3].fail(CommandKind::Read, FaultKind::Media, None);
                engine.scrub("tank", false).await.expect("started");
            }
            until_idle(&engine, &handle).await;
            assert_eq!(count(&engine, names::BLOCK_LOST), 0, "gone: {is_gone}");
            let unrepairable = last(&engine, names::JOB_FINISHED, "unrepairable");
            assert_eq!(unrepairable, Some("0".to_owned()), "gone: {is_gone}");
        });
    }
}

/// Seed 1045905 of the universes: the device was put out by the operator while its row was still
/// being read, and the event named none; with a spare at hand it would have named that.
#[test]
fn a_mismatch_names_the_device_that_was_read_though_another_has_its_slot_by_then() {
    on_tank(&raid6(), 9, async move |engine, handle, mut tank| {
        tank = tank.begun(&engine, 1).await;
        let (rotten, place) = tank.place(0, 1, 2);
        let (slow, _) = tank.place(0, 4, 2);
        tank.disks[rotten].rot(place);
        let time = ms(300);
        tank.disks[slow].set_latency(Latency { read: time..=time, ..Latency::default() });
        engine.scrub("tank", false).await.expect("started");
        // The scrub reads the row, then the repair reads it again, and each of them its
        // checksums.
        handle.sleep(ms(1000)).await;
        engine.fail("tank", MemberIdx::from_at(rotten)).await.expect("one may go");
        assert_eq!(count(&engine, names::MEMBER_CHECKSUM_MISMATCH), 0, "it is being read");
        until_idle(&engine, &handle).await;
        let named = last(&engine, names::MEMBER_CHECKSUM_MISMATCH, "path");
        assert_eq!(named, Some(tank.disks[rotten].name()));
        assert_eq!(count(&engine, names::MEMBER_CHECKSUM_MISMATCH), 1);
    });
}
