//! Members that fail together: more of them than parity replaces, and all are well again later.
//!
//! What must stay true: whatever was answered is there after the next start. A start that cannot
//! have it refuses.

use crate::world::jobs::{
    Rig, begin_rebuild, filled_to_the_brim, is_as_filled, ms, on_array, raid6, status, until_idle,
};
use crate::world::{add_disks, assemble_spec, create_spec, declustered, engine, read, shape};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::ArrayVolume;
use ashlar_layout::Level;
use ashlar_ring::Handle;
use ashlar_sim::{SimDisk, SimWorld};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::time::Duration;

const SPAN: u64 = 2 << 20;

/// What a disk fails while its adapter is away.
const WRITES: [CommandKind; 2] = [CommandKind::Write, CommandKind::WriteDurable];

fn fail(disks: &[SimDisk], failing: &[usize], kinds: &[CommandKind]) {
    for disk in failing.iter().map(|at| &disks[*at]) {
        kinds.iter().for_each(|kind| disk.fail(*kind, FaultKind::Media, None));
    }
}

/// The fill byte of each block; none if a write of it was answered with an error.
type Known = Vec<Option<u8>>;

/// Write every block of the volume's first bytes, one after the other.
async fn write_each(volume: &ArrayVolume, fill: u8, known: &mut Known) {
    for (at, known) in known.iter_mut().enumerate() {
        let extent = Extent::new(u64::try_from(at).expect("few") * BLOCK_BYTES, BLOCK_BYTES);
        let mut buffer = volume.buffer(to_usize(BLOCK_BYTES)).await;
        buffer.fill(fill);
        let command = Command::Write(buffer.freeze());
        let answer = volume.submit(Request { command, extent, fua: false }).await;
        *known = answer.is_ok().then_some(fill);
    }
}

/// Blocks that are not what was answered last.
async fn wrong_blocks(volume: &ArrayVolume, known: &Known) -> usize {
    let mut wrong = 0;
    for (at, known) in known.iter().enumerate() {
        let extent = Extent::new(u64::try_from(at).expect("few") * BLOCK_BYTES, BLOCK_BYTES);
        let Some(known) = known else { continue };
        let bytes = read(volume, extent).await;
        wrong += usize::from(bytes.is_ok_and(|bytes| bytes.iter().any(|byte| byte != known)));
    }
    wrong
}

/// One pair of mirrors is lost for a while, and one of each other pair. The first one to fail was
/// out by an update that ended at the lost pair: it counted as recorded, its pair's writes were
/// answered, and the next start had all drives and read what they held before (660 to 1,038 blocks
/// of 24,000 with the program).
#[test]
pub fn mirrors_that_lost_a_pair_answer_nothing_that_the_next_start_does_not_have() {
    let mut world = SimWorld::new(41);
    let disks = add_disks(&mut world, 8);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(create_spec(shape(Level::Raid10, 8, None, None))).await.expect("created");
            engine.assemble(assemble_spec(8)).await.expect("assembled");
            let own = disks.clone();
            let wrote = engine.with_volume(0, "tank", async move |volume| {
                let mut known = vec![None; to_usize(SPAN / BLOCK_BYTES)];
                write_each(&volume, 1, &mut known).await;
                assert!(known.iter().all(Option::is_some), "all is well");
                fail(&own, &[0, 2, 4, 6, 7], &WRITES);
                write_each(&volume, 2, &mut known).await;
                known
            });
            let known = wrote.await.expect("runs");
            assert!(known.iter().any(Option::is_none), "some blocks are lost for now");
            // It cannot say that it stopped.
            let _stopped = engine.stop("tank").await;
            disks.iter().for_each(SimDisk::stop_failing);
            if engine.assemble(assemble_spec(8)).await.is_err() {
                return;
            }
            let looked = engine
                .with_volume(0, "tank", async move |volume| wrong_blocks(&volume, &known).await);
            assert_eq!(looked.await.expect("runs"), 0, "blocks are older than what was answered");
        })
        .done();
}

/// The disk cannot be read for two seconds: a cable, or a link that is set up anew.
fn unreadable_for_two_seconds(handle: &Handle, disk: &SimDisk) {
    disk.fail(CommandKind::Read, FaultKind::Media, None);
    let (own, disk) = (handle.clone(), disk.clone());
    handle.spawn(async move {
        own.sleep(Duration::from_secs(2)).await;
        disk.stop_failing();
    });
}

/// A third member could not be read for two seconds during a rebuild: stripes counted as lost, and
/// the rebuild stood still for a minute under "100 %".
#[test]
fn a_rebuild_soon_goes_on_by_itself_when_members_can_be_read_again() {
    on_array(170, &raid6(), async move |Rig { engine, handle, disks, .. }| {
        filled_to_the_brim(&engine).await;
        engine.fail("tank", MemberIdx(1)).await.expect("two may go");
        begin_rebuild(&engine).await;
        handle.sleep(ms(5)).await;
        unreadable_for_two_seconds(&handle, &disks[2]);
        let began = handle.now();
        until_idle(&engine, &handle).await;
        let took = handle.now().since(began);
        assert!(took < Duration::from_secs(10), "{took:?}");
        is_as_filled(&engine).await;
    });
}

/// Cells were not filled any more after that until the array was started again: that a member could
/// not be read counted as an update that ended half way.
#[test]
fn cells_are_soon_filled_when_members_can_be_read_again() {
    on_array(171, &declustered(Level::Raid6, 9, 5, 1), async move |rig| {
        let Rig { engine, handle, disks, .. } = rig;
        filled_to_the_brim(&engine).await;
        engine.fail("tank", MemberIdx(0)).await.expect("two may go");
        engine.fail("tank", MemberIdx(1)).await.expect("two may go");
        handle.sleep(ms(5)).await;
        unreadable_for_two_seconds(&handle, &disks[2]);
        handle.sleep(Duration::from_secs(30)).await;
        let jobs = status(&engine).await.jobs;
        assert!(jobs.is_empty(), "{jobs:?}");
        is_as_filled(&engine).await;
    });
}
