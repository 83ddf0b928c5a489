//! Distributed spares: a lost member is rebuilt into spare cells of the others, and copied back to
//! the device that replaces it.
//!
//! What must stay true: at every moment the array can lose as many members more as parity replaces
//! beyond what is lost and not rebuilt, and nothing wrong is ever read.

use crate::grown::superblock_of;
use crate::world::jobs::{
    audit, filled, filled_to_the_brim, is_as_filled, ms, started, status, steps, until_all_in_sync,
    world_for,
};
use crate::world::{
    DISK_BYTES, Model, add_disks, assemble_dirty, assemble_spec, create_spec, declustered, engine,
    names, read, submit,
};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{CreateSpec, Engine, LostMember, NewDevice, SlotState};
use ashlar_layout::{DeclusteredShape, Level, Shape};
use ashlar_ondisk::{EnclosureKind, EnclosureRecord, JobKind};
use ashlar_ring::Handle;
use ashlar_salvage::{Choices, How, Salvage};
use ashlar_sim::{DiskOptions, Ended, Latency, SimDisk, SimWorld, Stop};
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Volume};
use std::time::Duration;

/// Two spares, stripes of 3+2 on nine members.
fn two_spares() -> Shape {
    declustered(Level::Raid6, 9, 5, 2)
}

/// Wait until the lost members are so.
async fn until(engine: &Engine, handle: &Handle, is_so: impl Fn(&[LostMember]) -> bool) {
    for _ in 0..3_000 {
        if is_so(&status(engine).await.lost_members) {
            return;
        }
        handle.sleep(ms(100)).await;
    }
    panic!("never: {:?}, {:?}", status(engine).await.lost_members, status(engine).await);
}

/// Every data cell of the lost members is on a spare: their own spare cells hold nothing.
fn are_on_spares(lost: &[LostMember], count: usize) -> bool {
    lost.len() == count && lost.iter().all(|it| 2 * it.missing < it.on_spare)
}

/// Everything that is lost can be borne once more.
async fn until_rebuilt(engine: &Engine, handle: &Handle, lost: usize) {
    until(engine, handle, |members| members.len() == lost).await;
    for _ in 0..3_000 {
        if status(engine).await.tolerates == 2 {
            return;
        }
        handle.sleep(ms(100)).await;
    }
    panic!("never: {:?}", status(engine).await);
}

#[test]
fn a_lost_member_is_rebuilt_into_spares_and_two_more_may_go() {
    let (mut world, disks, _) = world_for(930, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            filled_to_the_brim(&engine).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            assert!(are_on_spares(&status(&engine).await.lost_members, 1));
            is_as_filled(&engine).await;
            disks[0].vanish();
            is_as_filled(&engine).await;
            until_rebuilt(&engine, &handle, 2).await;
            disks[7].vanish();
            is_as_filled(&engine).await;
            disks[8].vanish();
            is_as_filled(&engine).await;
        })
        .done();
}

/// Stripes near each other are one worker's, so steps are taken for rows that are not.
#[test]
fn every_worker_takes_part_in_a_rebuild_into_spares() {
    const WORKERS: usize = 4;
    let mut world = SimWorld::new(929);
    let options = DiskOptions::sized(32 << 20);
    let names = names(two_spares().members);
    let disks: Vec<SimDisk> =
        names.iter().map(|name| world.add_disk(name, options.clone())).collect();
    let opener = world.opener();
    let run = async move |handle: Handle| {
        let engine = engine(opener, &handle, WORKERS);
        let spec = CreateSpec { region_bytes: Some(6 << 20), ..create_spec(two_spares()) };
        engine.create(spec).await.expect("created");
        engine.assemble(assemble_spec(disks.len())).await.expect("assembled");
        filled_to_the_brim(&engine).await;
        let slow = Latency { read: ms(20)..=ms(20), ..Latency::default() };
        disks.iter().for_each(|disk| disk.set_latency(slow.clone()));
        engine.fail("tank", MemberIdx(4)).await.expect("it may go");
        let mut seen = [0; WORKERS + 1];
        while status(&engine).await.tolerates < 2 {
            handle.sleep(ms(7)).await;
            let workers = engine.status().await.expect("running").workers;
            seen[workers.iter().filter(|worker| worker.in_flight > 0).count()] += 1;
        }
        let at_work: usize = seen[1..].iter().sum();
        assert!(seen[WORKERS] * 10 >= at_work * 7, "so many workers had work: {seen:?}");
    };
    world.run(run).done();
}

#[test]
fn a_start_finds_cells_on_spares_where_they_are() {
    let (mut world, disks, _) = world_for(931, &two_spares());
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 931).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            let model = steps(&engine, 0, model, 50).await;
            engine.stop("tank").await.expect("stopped clean");
            model
        })
        .done();
    disks[1].vanish();
    disks[2].vanish();
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_spec(9)).await.expect("assembled");
            let model = audit(&engine, model).await;
            let model = steps(&engine, 0, model, 50).await;
            audit(&engine, model).await;
        })
        .done();
}

#[test]
fn a_new_device_gets_everything_back_and_the_spare_is_free_again() {
    let (mut world, disks, _) = world_for(932, &two_spares());
    world.add_disk("new1", DiskOptions::sized(DISK_BYTES));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 932).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            engine.fail("tank", MemberIdx(0)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 2).await;
            let model = steps(&engine, 1, model, 30).await;
            engine.replace("tank", MemberIdx(4), "new0", true).await.expect("replaced");
            let model = steps(&engine, 0, model, 30).await;
            engine.replace("tank", MemberIdx(0), "new1", true).await.expect("replaced");
            let model = steps(&engine, 1, model, 30).await;
            until(&engine, &handle, <[LostMember]>::is_empty).await;
            let states: Vec<SlotState> =
                status(&engine).await.members.iter().map(|it| it.state).collect();
            assert!(states.iter().all(|state| *state == SlotState::InSync), "{states:?}");
            let model = audit(&engine, model).await;
            engine.fail("tank", MemberIdx(6)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            disks[1].vanish();
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// A member is lost while nobody runs the array, and the device that was to replace it has little
/// yet. A start once took that device for whole: in the record that it found the slot serves.
#[test]
fn a_replacement_with_little_content_is_filled_when_its_member_is_lost() {
    let (mut world, disks, _) = world_for(939, &two_spares());
    let opener = world.opener();
    let model = world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 939).await;
            engine.replace("tank", MemberIdx(4), "new0", true).await.expect("a copy begins");
            engine.pause("tank", JobKind::Replace).await.expect("paused");
            engine.stop("tank").await.expect("stopped clean");
            model
        })
        .done();
    disks[4].vanish();
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = assemble_spec(9);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            assert_eq!(status(&engine).await.members[4].state, SlotState::Rebuilding);
            let model = audit(&engine, model).await;
            until(&engine, &handle, <[LostMember]>::is_empty).await;
            disks[1].vanish();
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// A member is lost while its array starts, and the device that was to replace it takes over. The
/// table listed the loss alone: cells were rebuilt into spares, and never came to the device (seed
/// 914467558 of the universes).
#[test]
fn a_device_that_takes_over_while_the_array_starts_is_filled() {
    let (mut world, disks, _) = world_for(939, &two_spares());
    let (opener, again) = (world.opener(), world.opener());
    world
        .run(async move |handle| {
            let first = started(opener, &handle, two_spares()).await;
            filled_to_the_brim(&first).await;
            let slow = Latency { read: ms(20)..=ms(20), ..Latency::default() };
            disks[2].set_latency(slow);
            first.replace("tank", MemberIdx(2), "new0", true).await.expect("a copy begins");
            first.stop("tank").await.expect("stopped");
            drop(first);
            disks[2].set_latency(Latency::default());
            disks[2].fail(CommandKind::Write, FaultKind::Media, None);
            let engine = engine(again, &handle, 2);
            let mut spec = assemble_spec(two_spares().members);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.expect("assembled");
            until_all_in_sync(&engine, &handle).await;
            assert_eq!(status(&engine).await.members[2].path, "new0");
            is_as_filled(&engine).await;
        })
        .done();
}

/// The device that was lost comes back: clean cells are trusted, others are copied back.
#[test]
fn a_member_that_comes_back_has_what_was_written_meanwhile() {
    let (mut world, disks, _) = world_for(933, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 933).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            let model = steps(&engine, 1, model, 10).await;
            engine.re_add("tank", "disk4").await.expect("it is back");
            let model = steps(&engine, 0, model, 10).await;
            until(&engine, &handle, <[LostMember]>::is_empty).await;
            disks[1].vanish();
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// What is under way when the power goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// Cells of a lost member are being rebuilt into spares.
    Rebuild,
    /// One member is on spares, and two more are lost one after the other.
    SecondLoss,
    /// So long after a member was lost, one is lost that its cells are being rebuilt onto.
    LostTarget { after: Duration },
    /// Cells are being copied back to a new device.
    CopyBack,
    /// Cells are being copied back to the device that was lost.
    Return,
}

async fn flushed(engine: &Engine) {
    let flush = async |volume: ashlar_engine::ArrayVolume| {
        submit(&volume, Command::Flush, Extent::default(), false).await;
    };
    engine.with_volume(0, "tank", flush).await.expect("runs");
}

async fn begin(engine: &Engine, handle: &Handle, phase: Phase, model: Model) -> Model {
    if matches!(phase, Phase::LostTarget { .. }) {
        return model;
    }
    engine.fail("tank", MemberIdx(4)).await.expect("it may go");
    if phase == Phase::Rebuild {
        return model;
    }
    until_rebuilt(engine, handle, 1).await;
    let model = steps(engine, 0, model, 5).await;
    match phase {
        Phase::SecondLoss => engine.fail("tank", MemberIdx(8)).await.expect("it may go"),
        Phase::CopyBack => {
            engine.replace("tank", MemberIdx(4), "new0", true).await.expect("replaced");
        }
        _ => engine.re_add("tank", "disk4").await.expect("it is back"),
    }
    model
}

/// What the reader that shares no code with the engine finds: never anything wrong, and nothing
/// lost.
fn salvaged(disks: &[SimDisk], model: &Model, case: &str) {
    let images: Vec<Vec<u8>> =
        disks.iter().map(|disk| disk.peek(Extent::new(0, DISK_BYTES))).collect();
    let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let salvage = Salvage::open(images.iter().collect(), &Choices::default()).expect("an array");
    for (number, wanted) in (0..).zip(model.bytes.chunks(4096)) {
        let found = salvage.read_block(number);
        let found = found.unwrap_or_else(|_| panic!("{case}: block {number} is lost"));
        if found.how != How::InDoubt {
            assert!(found.bytes[..] == *wanted, "{case}: block {number}, {:?}", found.how);
        }
    }
}

/// The power goes `operations` after a phase has begun, and with it another member, unless two are
/// lost already.
fn survive(phase: Phase, seed: u64, operations: u64) {
    let case = format!("{phase:?}, seed {seed}, {operations} operations");
    let (mut world, mut disks, new) = world_for(seed, &two_spares());
    let opener = world.opener();
    let (running, model) = world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, seed).await;
            flushed(&engine).await;
            let model = begin(&engine, &handle, phase, model).await;
            flushed(&engine).await;
            (engine, model)
        })
        .done();
    world.stop_at(world.operations() + operations, Stop::PowerCut);
    let ended = world.run(async move |handle| {
        if let Phase::LostTarget { after } = phase {
            running.fail("tank", MemberIdx(4)).await.expect("it may go");
            handle.sleep(after).await;
            running.fail("tank", MemberIdx(8)).await.expect("it may go");
        }
        handle.sleep(ms(30_000)).await;
        drop(running);
    });
    if matches!(ended, ashlar_sim::Ended::Done(())) {
        world.call_off();
        world.stop(Stop::PowerCut);
    }
    disks.push(new);
    let mut here = disks.clone();
    if !matches!(phase, Phase::LostTarget { .. }) {
        here.remove(1).vanish();
    }
    salvaged(&here, &model, &case);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let mut spec = assemble_dirty(9);
            spec.devices.push("new0".to_owned());
            engine.assemble(spec).await.unwrap_or_else(|refused| panic!("{case}: {refused}"));
            let model = audit(&engine, model).await;
            let model = steps(&engine, 0, model, 5).await;
            handle.sleep(ms(20_000)).await;
            let model = audit(&engine, model).await;
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// Cuts at points spread over a phase.
fn survive_all(phase: Phase, seed: u64) {
    for at in 0..24 {
        survive(phase, seed + at, at * at * 3);
    }
}

#[test]
fn a_power_cut_in_a_rebuild_into_spares_costs_nothing() {
    survive_all(Phase::Rebuild, 1_000);
}

#[test]
fn a_power_cut_after_a_second_loss_costs_nothing() {
    survive_all(Phase::SecondLoss, 1_100);
}

#[test]
fn a_power_cut_after_the_loss_of_a_member_that_cells_are_rebuilt_onto_costs_nothing() {
    for after in [Duration::ZERO, Duration::from_micros(300)] {
        survive_all(Phase::LostTarget { after }, 1_400);
    }
}

#[test]
fn a_power_cut_in_a_copy_back_costs_nothing() {
    survive_all(Phase::CopyBack, 1_200);
}

#[test]
fn a_power_cut_while_a_member_returns_costs_nothing() {
    survive_all(Phase::Return, 1_300);
}

/// After the kill the array starts, and all is there.
fn starts_as_filled(world: &mut SimWorld, ended: &Ended<()>) {
    assert_eq!(*ended, Ended::Stopped(Stop::Kill));
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.assemble(assemble_dirty(9)).await.expect("assembled after the kill");
            is_as_filled(&engine).await;
        })
        .done();
}

/// Killed at the `nth` write of a page of states after the loss of a member that cells of another
/// one were just written to. The batch is not over then: reads take long.
fn killed_at_a_page_after_the_target_went(written_bytes: u64, nth: u64) {
    let (mut world, disks, _) = world_for(1_500, &two_spares());
    let opener = world.opener();
    let running = world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            filled_to_the_brim(&engine).await;
            flushed(&engine).await;
            engine
        })
        .done();
    let (areas, switch) = (superblock_of(&disks[0]).areas, world.switch());
    let slow = ms(10);
    let slow_reads = Latency { read: slow..=slow, ..Latency::default() };
    disks.iter().for_each(|disk| disk.set_latency(slow_reads.clone()));
    disks[8].count_traffic(areas.data);
    let target = disks[8].clone();
    let ended: Ended<()> = world.run(async move |handle| {
        running.fail("tank", MemberIdx(4)).await.expect("it may go");
        while target.traffic().written_bytes < written_bytes {
            handle.sleep(Duration::from_micros(10)).await;
        }
        switch.stop_at_write_in(areas.spare_states, nth, Stop::Kill);
        running.fail("tank", MemberIdx(8)).await.expect("it may go");
        handle.sleep(ms(60_000)).await;
    });
    starts_as_filled(&mut world, &ended);
}

/// The batch marked such cells as rebuilt in their next targets, where nothing was written. The
/// pages were put right at once, unless the process was killed before.
#[test]
fn cells_whose_target_was_lost_never_count_as_rebuilt_in_their_next_one() {
    for written_bytes in [240 << 10, 256 << 10, 288 << 10] {
        for nth in [1, 5, 9, 13, 17] {
            killed_at_a_page_after_the_target_went(written_bytes, nth);
        }
    }
}

/// A device that is being filled goes while states of its cells are about to be stored, and two
/// others with it. Killed at the `nth` write of a page of states after that.
fn killed_at_a_page_after_three_went(nth: u64) {
    let (mut world, disks, new) = world_for(1_600, &two_spares());
    let opener = world.opener();
    let running = world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            filled_to_the_brim(&engine).await;
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 1).await;
            engine
        })
        .done();
    let (areas, switch) = (superblock_of(&disks[0]).areas, world.switch());
    let slow = ms(100);
    let slow_flushes = Latency { flush: slow..=slow, ..Latency::default() };
    disks.iter().chain([&new]).for_each(|disk| disk.set_latency(slow_flushes.clone()));
    new.count_traffic(areas.data);
    let gone = [disks[0].clone(), disks[1].clone(), new];
    let ended: Ended<()> = world.run(async move |handle| {
        running.replace("tank", MemberIdx(4), "new0", true).await.expect("replaced");
        let [.., filled] = &gone;
        let mut before = 0;
        // What is copied is copied when nothing comes for a while: its flush is under way.
        while before == 0 || filled.traffic().written_bytes != before {
            before = filled.traffic().written_bytes;
            handle.sleep(ms(30)).await;
        }
        switch.stop_at_write_in(areas.spare_states, nth, Stop::Kill);
        gone.iter().for_each(SimDisk::vanish);
        handle.sleep(ms(60_000)).await;
    });
    starts_as_filled(&mut world, &ended);
}

/// The pages said that the cells were in place on the device that went. So the array, which could
/// do without all three, did not start without them.
#[test]
fn states_of_cells_are_not_stored_after_a_loss_that_they_do_not_know() {
    (1..=12).for_each(killed_at_a_page_after_three_went);
}

/// More members go than there are spares: the array stays degraded, says so, and goes on.
#[test]
fn losses_beyond_the_spares_leave_the_array_degraded() {
    let (mut world, disks, _) = world_for(934, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 934).await;
            for (lost, member) in [(1, 4), (2, 0)] {
                engine.fail("tank", MemberIdx(member)).await.expect("it may go");
                until_rebuilt(&engine, &handle, lost).await;
            }
            engine.fail("tank", MemberIdx(7)).await.expect("it may go");
            handle.sleep(ms(20_000)).await;
            let now = status(&engine).await;
            assert_eq!((now.tolerates, now.lost_members.len()), (1, 3));
            let waiting = now.lost_members.iter().find(|it| it.slot == MemberIdx(7));
            assert_eq!(waiting.expect("it is lost").spare_column, None);
            let model = audit(&engine, model).await;
            engine.replace("tank", MemberIdx(4), "new0", true).await.expect("replaced");
            // The spare that becomes free goes to the member that waits.
            until(&engine, &handle, |lost| lost.len() == 2).await;
            until_rebuilt(&engine, &handle, 2).await;
            disks[1].vanish();
            disks[2].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// The update that should have recorded lost members failed with the next one, so their slots had
/// no entry in the spare table. A spare took one of the slots, and reads found nothing on it where
/// data had been.
#[test]
fn a_spare_that_joins_an_array_that_has_failed_is_not_read() {
    let (mut world, disks, _) = world_for(935, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            filled_to_the_brim(&engine).await;
            engine.add_spare_device("spares", NewDevice::at("new0", true)).await.expect("free");
            [0, 1, 6].into_iter().for_each(|at: usize| disks[at].vanish());
            for _ in 0..60 {
                right_or_an_error(&engine).await;
                handle.sleep(ms(20)).await;
            }
        })
        .done();
}

async fn right_or_an_error(engine: &Engine) {
    let look = async |volume: ashlar_engine::ArrayVolume| {
        for at in (0..volume.facts().size_bytes).step_by(64 << 10) {
            let wanted = u8::try_from(at / (256 << 10) * 4 % 251).expect("below 251");
            if let Ok(got) = read(&volume, Extent::new(at, 64 << 10)).await {
                assert!(got.iter().all(|byte| *byte == wanted), "at {at}");
            }
        }
    };
    engine.with_volume(1, "tank", look).await.expect("runs");
}

/// Each member that may be lost together with others needs an entry in the spare table.
#[test]
fn domains_that_are_too_large_for_the_spare_table_are_refused() {
    let shape = declustered(Level::Raid5, 110, 3, 2);
    let own = shape.declustered.map(|own| DeclusteredShape { domain_members: 22, ..own });
    let shape = Shape { declustered: own, ..shape };
    let mut world = SimWorld::new(936);
    add_disks(&mut world, 110);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            let enclosures = Some(EnclosureRecord { kind: EnclosureKind::Listed, domains: 1 });
            let spec = CreateSpec { enclosures, ..create_spec(shape) };
            let refused = engine.create(spec).await.expect_err("66 are too many");
            assert!(refused.what.contains("66 drives may be lost together"), "{refused}");
        })
        .done();
}

/// OpenZFS 18286: a drive that holds spare cells of another one returns with a clean bitmap. What
/// was rebuilt to it meanwhile is not on it, and left no mark. Then 16547: as many others go.
#[test]
fn openzfs_18286_a_returned_member_is_not_trusted_with_spare_cells() {
    let (mut world, disks, _) = world_for(937, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 937).await;
            // Regions are clean when the member goes, and nobody writes until it is back.
            handle.sleep(ms(20_000)).await;
            engine.fail("tank", MemberIdx(6)).await.expect("it may go");
            engine.fail("tank", MemberIdx(2)).await.expect("it may go");
            until_rebuilt(&engine, &handle, 2).await;
            engine.re_add("tank", "disk6").await.expect("it is back");
            until(&engine, &handle, |lost| lost.len() == 1).await;
            let model = audit(&engine, model).await;
            disks[0].vanish();
            disks[1].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// OpenZFS 18420: more drives fail while a rebuild to spare space is under way, as many as parity
/// replaces, and clients write meanwhile.
#[test]
fn openzfs_18420_losses_in_the_middle_of_a_rebuild_leave_nothing_wrong() {
    let (mut world, disks, _) = world_for(938, &two_spares());
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = started(opener, &handle, two_spares()).await;
            let model = filled(&engine, 938).await;
            engine.fail("tank", MemberIdx(0)).await.expect("it may go");
            engine.fail("tank", MemberIdx(4)).await.expect("it may go");
            assert_eq!(status(&engine).await.tolerates, 0, "the rebuild has not ended");
            let model = steps(&engine, 1, model, 50).await;
            let model = audit(&engine, model).await;
            until_rebuilt(&engine, &handle, 2).await;
            let model = audit(&engine, model).await;
            disks[7].vanish();
            disks[8].vanish();
            audit(&engine, model).await;
        })
        .done();
}

/// OpenZFS 14041: the second of two spares was never filled. Both are, whether the second loss
/// comes after the rebuild of the first one or before it.
#[test]
fn openzfs_14041_the_second_spare_is_filled() {
    for waits in [true, false] {
        let (mut world, disks, _) = world_for(939, &two_spares());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, two_spares()).await;
                let model = filled(&engine, 939).await;
                engine.fail("tank", MemberIdx(1)).await.expect("it may go");
                if waits {
                    until_rebuilt(&engine, &handle, 1).await;
                }
                engine.fail("tank", MemberIdx(7)).await.expect("it may go");
                until_rebuilt(&engine, &handle, 2).await;
                let lost = status(&engine).await.lost_members;
                let columns: Vec<Option<usize>> = lost.iter().map(|it| it.spare_column).collect();
                assert_eq!(columns, [Some(0), Some(1)]);
                assert!(are_on_spares(&lost, 2), "{lost:?}");
                disks[3].vanish();
                disks[5].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}

/// OpenZFS 16547: two spare cells of a stripe were on one drive, whose loss took both. With two
/// members on spares, any two others may go.
#[test]
fn openzfs_16547_two_spare_cells_of_a_stripe_are_on_two_drives() {
    for third in 2..9 {
        let fourth = if third == 8 { 2 } else { third + 1 };
        let (mut world, disks, _) = world_for(940, &two_spares());
        let opener = world.opener();
        world
            .run(async move |handle| {
                let engine = started(opener, &handle, two_spares()).await;
                let model = filled(&engine, 940).await;
                for (lost, member) in [(1, 0), (2, 1)] {
                    engine.fail("tank", MemberIdx(member)).await.expect("it may go");
                    until_rebuilt(&engine, &handle, lost).await;
                }
                disks[third].vanish();
                disks[fourth].vanish();
                audit(&engine, model).await;
            })
            .done();
    }
}
