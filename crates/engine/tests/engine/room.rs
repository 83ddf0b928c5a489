//! Members without space: a write that none of them can take waits, and has no other effect.
//!
//! Before the fix, members were put out one after the other, the array failed, and its stop called
//! it clean.

use crate::world::jobs::{count, raid6, status};
use crate::world::{Model, add_disks, assemble_spec, create_spec, engine, policy, range, read};
use ashlar_device::{CommandKind, FaultKind};
use ashlar_engine::{ArrayVolume, Engine, SlotState, Stopped, event_names};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_sim::{SimDisk, SimWorld};
use ashlar_units::{Extent, to_usize};
use ashlar_volume::{Command, Request, Volume, VolumeErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SPAN: u64 = 1 << 20;
const WRITE: Extent = Extent { offset: 64 << 10, bytes: 64 << 10 };

/// Run `test` on an array of six members.
fn on_raid6(seed: u64, test: impl AsyncFnOnce(Engine, Vec<SimDisk>)) {
    let mut world = SimWorld::new(seed);
    let disks = add_disks(&mut world, 6);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 2);
            engine.create(create_spec(raid6())).await.expect("created");
            engine.assemble(assemble_spec(6)).await.expect("assembled");
            test(engine, disks).await;
        })
        .done();
}

/// A model of the volume's first bytes, all of which are written.
async fn written(volume: &ArrayVolume, seed: u64) -> Model {
    let mut model = Model::new(seed, SPAN);
    model.write(volume, Extent::new(0, SPAN)).await;
    model
}

fn fill(disks: &[SimDisk]) {
    for disk in disks {
        for kind in [CommandKind::Write, CommandKind::WriteDurable] {
            disk.fail(kind, FaultKind::NoSpace, None);
        }
    }
}

fn make_room(disks: &[SimDisk]) {
    disks.iter().for_each(SimDisk::stop_failing);
}

/// How a write ended, once it did.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Option<Result<(), VolumeErrorKind>>>>);

impl Ended {
    fn get(&self) -> Option<Result<(), VolumeErrorKind>> {
        *self.0.lock().expect("nobody panics with it")
    }
}

/// A write of zeros, under way.
fn begin_write(volume: &ArrayVolume) -> Ended {
    let ended = Ended::default();
    let (volume, answer) = (volume.clone(), ended.clone());
    volume.handle().spawn(async move {
        let mut buffer = volume.buffer(to_usize(WRITE.bytes)).await;
        buffer.fill(0);
        let command = Command::Write(buffer.freeze());
        let request = Request { command, extent: WRITE, fua: false };
        let answered = volume.submit(request).await.map(drop).map_err(|error| error.kind);
        *answer.0.lock().expect("nobody panics with it") = Some(answered);
    });
    ended
}

#[test]
fn writes_that_no_member_has_room_for_wait_until_there_is_room_and_reads_go_on() {
    on_raid6(31, async move |engine, disks| {
        let looks = engine.clone();
        let run = engine.with_volume(0, "tank", async move |volume| {
            let clock = volume.handle();
            let mut model = written(&volume, 5).await;
            fill(&disks);
            let first = begin_write(&volume);
            clock.sleep(Duration::from_secs(5)).await;
            let later = begin_write(&volume);
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!((first.get(), later.get()), (None, None));
            let array = status(&looks).await;
            let pause = array.pause.expect("paused");
            assert!(pause.waiting > 0 && pause.slots.len() > 2, "{pause:?}");
            let before = read(&volume, Extent::new(SPAN / 2, 4096)).await.expect("read");
            assert_eq!(before, model.bytes[to_usize(SPAN / 2)..][..4096]);
            make_room(&disks);
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!((first.get(), later.get()), (Some(Ok(())), Some(Ok(()))));
            model.bytes[range(WRITE)].fill(0);
            model.audit(&volume).await;
        });
        run.await.expect("runs");
        let array = status(&engine).await;
        assert_eq!(array.pause, None);
        let is_in_sync = |slot: &SlotState| *slot == SlotState::InSync;
        assert!(array.members.iter().map(|it| &it.state).all(is_in_sync), "somebody is out");
        let paused = count(&engine, event_names::ARRAY_PAUSED);
        assert!((1..4).contains(&paused), "told {paused} times");
        assert_eq!(count(&engine, event_names::ARRAY_RESUMED), paused);
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
    });
}

/// Blocks of a write that met no room may be half old and half new on the members (seed 6902 of the
/// universes read such a block). With a log the record waits, and nothing has changed yet.
#[test]
fn what_a_waiting_write_is_to_change_is_read_when_it_is_written() {
    on_raid6(37, async move |engine, disks| {
        let run = engine.with_volume(0, "tank", async move |volume| {
            let clock = volume.handle();
            let model = written(&volume, 5).await;
            let old = model.bytes[to_usize(WRITE.offset)..][..4096].to_vec();
            let while_it_waits = (policy() == ConsistencyPolicy::Log).then_some(Ok(old));
            fill(&disks);
            let write = begin_write(&volume);
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(write.get(), None);
            let found = Arc::new(Mutex::new(None));
            let (reader, answer) = (volume.clone(), Arc::clone(&found));
            clock.spawn(async move {
                let block = read(&reader, Extent::new(WRITE.offset, 4096)).await;
                *answer.lock().expect("nobody panics with it") = Some(block);
            });
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(*found.lock().expect("whole"), while_it_waits);
            make_room(&disks);
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(write.get(), Some(Ok(())));
            let expected = while_it_waits.unwrap_or(Ok(vec![0; 4096]));
            assert_eq!(*found.lock().expect("whole"), Some(expected));
            let now = read(&volume, Extent::new(WRITE.offset, 4096)).await;
            assert_eq!(now, Ok(vec![0; 4096]));
        });
        run.await.expect("runs");
    });
}

#[test]
fn members_that_alone_have_no_room_go_out_and_writes_go_on() {
    on_raid6(32, async move |engine, disks| {
        let run = engine.with_volume(0, "tank", async move |volume| {
            let clock = volume.handle();
            fill(&disks[1..3]);
            let model = written(&volume, 6).await;
            clock.sleep(Duration::from_secs(5)).await;
            model.audit(&volume).await;
        });
        run.await.expect("runs");
        let array = status(&engine).await;
        let out = array.members.iter().filter(|it| it.state == SlotState::Out).count();
        assert_eq!((out, array.pause), (2, None));
    });
}

#[test]
fn a_stop_without_room_ends_waiting_writes_with_errors_and_is_not_called_clean() {
    on_raid6(33, async move |engine, disks| {
        let full = disks.clone();
        let run = engine.with_volume(0, "tank", async move |volume| {
            let clock = volume.handle();
            let model = written(&volume, 7).await;
            fill(&full);
            let ended = begin_write(&volume);
            clock.sleep(Duration::from_secs(5)).await;
            (model, ended)
        });
        let (mut model, ended) = run.await.expect("runs");
        engine.give_up_waiting("tank").expect("runs");
        let stopped = engine.stop("tank").await;
        assert_ne!(stopped.ok(), Some(Stopped::Clean));
        assert_eq!(ended.get(), Some(Err(VolumeErrorKind::NoSpace)));
        let refusal = engine.assemble(assemble_spec(6)).await.expect_err("no room for a start");
        assert_eq!(refusal.code, "array.no_room", "{refusal}");
        make_room(&disks);
        engine.assemble(assemble_spec(6)).await.expect("all are there");
        let run = engine.with_volume(0, "tank", async move |volume| {
            // Each sector of the write that failed may be old or new: these disks tear blocks.
            let now = read(&volume, WRITE).await.expect("read");
            let was = &mut model.bytes[range(WRITE)];
            for (now, was) in now.chunks(512).zip(was.chunks_mut(512)) {
                assert!(now == was || now.iter().all(|byte| *byte == 0), "neither");
                was.copy_from_slice(now);
            }
            model.audit(&volume).await;
        });
        run.await.expect("runs");
        let array = status(&engine).await;
        assert!(array.members.iter().all(|it| it.state == SlotState::InSync));
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
    });
}

#[test]
fn a_write_that_waits_for_too_long_is_answered_and_still_carried_out() {
    on_raid6(34, async move |engine, disks| {
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
        let tuning = ashlar_engine::ArrayTuning {
            no_room_wait_max: Some(Duration::from_secs(3)),
            ..Default::default()
        };
        let spec = ashlar_engine::AssembleSpec { tuning: Some(tuning), ..assemble_spec(6) };
        engine.assemble(spec).await.expect("assembled");
        let run = engine.with_volume(0, "tank", async move |volume| {
            let clock = volume.handle();
            let mut model = written(&volume, 8).await;
            fill(&disks);
            let ended = begin_write(&volume);
            clock.sleep(Duration::from_secs(10)).await;
            assert_eq!(ended.get(), Some(Err(VolumeErrorKind::NoSpace)));
            make_room(&disks);
            clock.sleep(Duration::from_secs(5)).await;
            model.bytes[range(WRITE)].fill(0);
            model.audit(&volume).await;
        });
        run.await.expect("runs");
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
    });
}
