//! Pages of the checksum table that cannot be read. If the newer of a page's two places is lost,
//! right blocks must not become wrong. If one device lacks it, no read may fail.
//!
//! What must stay true: everything here is wrong on one device, and the array bears the loss of
//! one.

use crate::world::jobs::count;
use crate::world::{add_disks, assemble_spec, create_spec, engine, read, shape, submit};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{ArrayVolume, CreateReport, CreateSpec, Engine, event_names as names};
use ashlar_layout::{Geometry, Level};
use ashlar_ondisk::checksums::place_offset;
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy, SuperblockCopies};
use ashlar_sim::{SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, StripIdx, StripeNo, to_usize};
use ashlar_volume::{Command, Volume};

/// The array's first stripe, which is written anew in each round; its table has been in no memory
/// since.
struct Stripe {
    disks: Vec<SimDisk>,
    geometry: Geometry,
    data_offset: u64,
    checksums_offset: u64,
    rounds: u8,
}

impl Stripe {
    async fn create(engine: &Engine, disks: Vec<SimDisk>) -> Stripe {
        let spec = CreateSpec {
            policy: ConsistencyPolicy::Log,
            checksums: ChecksumKind::Crc32c,
            ..create_spec(shape(Level::Raid5, 4, None, None))
        };
        let CreateReport { geometry, data_offset, .. } =
            engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(4)).await.expect("assembled");
        let [head, tail] = examine_ranges(disks[0].size_bytes()).expect("large enough");
        let (head, tail) = (disks[0].peek(head), disks[0].peek(tail));
        let choice = SuperblockCopies::choose(&split_copies(Some(&head), Some(&tail)));
        let checksums_offset = choice.superblock().expect("there").areas.checksums.offset;
        Stripe { disks, geometry, data_offset, checksums_offset, rounds: 0 }
    }

    /// Written and flushed, and the array stopped and started. Which place of a page is the newer
    /// one differs from round to round.
    async fn next_round(&mut self, engine: &Engine) {
        self.rounds += 1;
        let (content, bytes) = (self.rounds, self.geometry.stripe_bytes());
        let run = engine.with_volume(0, "tank", async move |volume: ArrayVolume| {
            let mut buffer = volume.buffer(to_usize(bytes)).await;
            buffer.fill(content);
            submit(&volume, Command::Write(buffer.freeze()), Extent::new(0, bytes), false).await;
            submit(&volume, Command::Flush, Extent::default(), false).await;
        });
        run.await.expect("runs");
        engine.stop("tank").await.expect("stopped");
        engine.assemble(assemble_spec(4)).await.expect("assembled");
    }

    /// A block of the stripe's second strip, and its disk.
    fn block(&self) -> (&SimDisk, Extent) {
        self.block_of(StripIdx(1))
    }

    /// The block of that strip in the third row of the stripe, and its disk.
    fn block_of(&self, strip: StripIdx) -> (&SimDisk, Extent) {
        let place = self.geometry.place(self.geometry.stripe(StripeNo(0)), strip);
        let offset = self.data_offset + place.offset + 2 * BLOCK_BYTES;
        (&self.disks[place.member.at()], Extent::new(offset, BLOCK_BYTES))
    }

    /// That block, then all of the stripe.
    async fn is_as_written(&self, engine: &Engine) {
        let (content, bytes) = (self.rounds, self.geometry.stripe_bytes());
        let block = self.geometry.strip_bytes() + 2 * BLOCK_BYTES;
        let run = engine.with_volume(0, "tank", async move |volume| {
            for extent in [Extent::new(block, BLOCK_BYTES), Extent::new(0, bytes)] {
                let got = read(&volume, extent).await.expect("one device is all that is wrong");
                assert!(got.iter().all(|byte| *byte == content), "round {content}: {}", got[0]);
            }
        });
        run.await.expect("runs");
    }
}

/// Seed 1708208 of the universes. The older place spoke of blocks as they were, so right ones did
/// not match, and their device was named.
#[test]
fn a_page_that_is_not_given_back_at_once_makes_no_right_block_wrong() {
    let mut world = SimWorld::new(1_708_208);
    let (disks, opener) = (add_disks(&mut world, 4), world.opener());
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut stripe = Stripe::create(&engine, disks).await;
            for failures in [1, 1, 2, 2, 3, 3, 4, 4, 5, 5] {
                stripe.next_round(&engine).await;
                stripe.block().0.fail(CommandKind::Read, FaultKind::Media, Some(failures));
                stripe.is_as_written(&engine).await;
                let named = count(&engine, names::MEMBER_CHECKSUM_MISMATCH);
                assert_eq!(named, 0, "with {failures} failures");
            }
        })
        .done();
}

/// What follows from the others of a row is stored though the sum is another, if that may be an old
/// one.
#[test]
fn a_page_and_a_block_that_cannot_be_read_are_one_bad_device() {
    let mut world = SimWorld::new(12);
    let (disks, opener) = (add_disks(&mut world, 4), world.opener());
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut stripe = Stripe::create(&engine, disks).await;
            for place in [0, 0, 1, 1] {
                stripe.next_round(&engine).await;
                let (disk, block) = stripe.block();
                let page = stripe.checksums_offset + place_offset(0, place);
                disk.break_media(Extent::new(page, BLOCK_BYTES));
                disk.break_media(block);
                stripe.is_as_written(&engine).await;
                assert!(!disk.is_broken(block), "it was stored anew");
            }
        })
        .done();
}

/// Universe 3001906, aim `relapses`. A device gave back no page of its table, and was well again;
/// nothing was known of its blocks. Then another one gave back no blocks. Each is what follows from
/// the others, and the checksum that is known proves both.
#[test]
fn a_block_of_which_nothing_is_known_is_proven_by_another_that_cannot_be_read() {
    let mut world = SimWorld::new(3_001_906);
    let (disks, opener) = (add_disks(&mut world, 4), world.opener());
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut stripe = Stripe::create(&engine, disks).await;
            for is_bad_too in [false, true] {
                stripe.next_round(&engine).await;
                let ((disk, block), (other, lost)) = (stripe.block(), stripe.block_of(StripIdx(2)));
                for place in 0..2 {
                    let page = stripe.checksums_offset + place_offset(0, place);
                    disk.break_media(Extent::new(page, BLOCK_BYTES));
                }
                other.break_media(lost);
                if is_bad_too {
                    // Then nothing is proven: an error, and what is there stays.
                    disk.poke(block.offset, &[0x5A; 4096]);
                    let strip = stripe.geometry.strip_bytes();
                    let wanted = Extent::new(2 * strip + 2 * BLOCK_BYTES, BLOCK_BYTES);
                    let run = engine.with_volume(0, "tank", async move |volume| {
                        read(&volume, wanted).await.expect_err("two of its row are wrong");
                    });
                    run.await.expect("runs");
                    assert!(other.is_broken(lost), "it is not stored anew");
                    assert_eq!(disk.peek(block), [0x5A; 4096]);
                } else {
                    stripe.is_as_written(&engine).await;
                    assert!(!other.is_broken(lost), "it was stored anew");
                    // What is known now, is known for good.
                    disk.break_media(block);
                    stripe.is_as_written(&engine).await;
                }
            }
        })
        .done();
}
