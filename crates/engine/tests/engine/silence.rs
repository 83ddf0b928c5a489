//! Devices that do not answer: no error at the client, a stall of less than ten seconds, and nobody
//! put out whom the others cannot do without.

use crate::world::jobs::{
    Rig, audit, count, filled, last, ms, on_array, raid5, raid6, status, steps, until_all_in_sync,
    until_idle,
};
use crate::world::{Model, assemble_spec, names, shapes};
use ashlar_engine::{Engine, NewDevice, SlotState, Stopped, event_names as events};
use ashlar_layout::Shape;
use ashlar_ring::Handle;
use ashlar_sim::SimDisk;
use ashlar_units::{Extent, MemberIdx};
use ashlar_volume::{Command, Request, Volume};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What a silent member may cost a client.
const STALL_MAX: Duration = Duration::from_secs(10);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Run `test` on a filled array of this shape.
fn with_array(seed: u64, shape: Shape, test: impl AsyncFnOnce(Engine, Handle, Disks, Model)) {
    on_array(seed, &shape, async move |Rig { engine, handle, disks, new }| {
        let model = filled(&engine, seed).await;
        test(engine, handle, Disks { members: disks, new }, model).await;
    });
}

struct Disks {
    members: Vec<SimDisk>,
    new: SimDisk,
}

async fn states(engine: &Engine) -> Vec<SlotState> {
    status(engine).await.members.iter().map(|member| member.state).collect()
}

async fn nothing_is_wrong(engine: &Engine, handle: &Handle) {
    engine.scrub("tank", false).await.expect("started");
    until_idle(engine, handle).await;
    let found = last(engine, events::JOB_FINISHED, "mismatches");
    assert_eq!(found.as_deref(), Some("0"), "what a scrub finds");
}

#[test]
fn a_silent_member_costs_every_level_a_stall_and_no_error() {
    for (at, (shape, _)) in shapes().into_iter().enumerate() {
        with_array(at as u64, shape, async |engine, handle, disks, model| {
            let disk = &disks.members[1];
            disk.fall_silent();
            let began = handle.now();
            let model = steps(&engine, 1, model, 60).await;
            let took = handle.now().since(began);
            assert!(took < STALL_MAX, "level {at}: {took:?}");
            assert_eq!(states(&engine).await[1], SlotState::Out);
            let reason = last(&engine, events::MEMBER_FAILED, "reason").expect("it failed");
            assert!(reason.contains("did not answer for"), "{reason}");
            let model = audit(&engine, model).await;

            // Late is too late: what comes back changes nothing.
            let refused = engine.re_add("tank", &disk.name()).await.expect_err("it owes commands");
            assert!(refused.to_string().contains("still has"), "{refused}");
            assert!(disk.owed() > 0);
            let model = steps(&engine, 0, model, 60).await;
            disk.speak();
            handle.sleep(seconds(5)).await;
            assert_eq!(disk.owed(), 0);
            assert_eq!(states(&engine).await[1], SlotState::Out);
            let model = audit(&engine, model).await;

            engine.re_add("tank", &disk.name()).await.expect("its commands have come back");
            let model = steps(&engine, 0, model, 60).await;
            until_all_in_sync(&engine, &handle).await;
            audit(&engine, model).await;
            nothing_is_wrong(&engine, &handle).await;
            assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
        });
    }
}

#[test]
fn two_members_that_fall_silent_together_cost_no_more_than_one() {
    with_array(20, raid6(), async |engine, handle, disks, model| {
        disks.members[0].fall_silent();
        disks.members[4].fall_silent();
        let began = handle.now();
        let model = steps(&engine, 1, model, 60).await;
        assert!(handle.now().since(began) < STALL_MAX);
        let out = states(&engine).await.iter().filter(|state| **state == SlotState::Out).count();
        assert_eq!(out, 2);
        audit(&engine, model).await;
    });
}

/// The superblocks are being written for another member when the silent one is met, so whoever has
/// leave to change them waits for it.
#[test]
fn a_silent_member_does_not_hold_up_the_record_of_another_that_failed() {
    with_array(21, raid6(), async |engine, handle, disks, model| {
        disks.members[2].vanish();
        disks.members[5].fall_silent();
        let began = handle.now();
        let model = steps(&engine, 0, model, 60).await;
        assert!(handle.now().since(began) < STALL_MAX);
        assert_eq!(states(&engine).await[2], SlotState::Out);
        assert_eq!(states(&engine).await[5], SlotState::Out);
        audit(&engine, model).await;
    });
}

/// Random requests in the background; what comes of them.
fn in_background(engine: &Engine, handle: &Handle, model: Model) -> Rc<RefCell<Option<Model>>> {
    let done = Rc::new(RefCell::new(None));
    let (own, engine) = (Rc::clone(&done), engine.clone());
    handle.spawn(async move {
        let model = steps(&engine, 1, model, 40).await;
        *own.borrow_mut() = Some(model);
    });
    done
}

async fn end_of(handle: &Handle, done: &RefCell<Option<Model>>) -> Model {
    for _ in 0..10_000 {
        if let Some(model) = done.take() {
            return model;
        }
        handle.sleep(ms(10)).await;
    }
    panic!("requests are stuck");
}

#[test]
fn nobody_is_put_out_while_all_members_are_silent_and_requests_go_on_when_they_answer() {
    for (seed, shape) in [(30, raid6()), (31, raid5()), (32, shapes()[0].0.clone())] {
        with_array(seed, shape, async |engine, handle, disks, model| {
            disks.members.iter().for_each(SimDisk::fall_silent);
            let done = in_background(&engine, &handle, model);
            handle.sleep(seconds(120)).await;
            assert!(done.borrow().is_none(), "they wait");
            assert!(count(&engine, events::MEMBER_SILENT) > 0);
            let silent = status(&engine).await.members.iter().map(|it| it.silent).max();
            assert!(silent > Some(seconds(60)), "{silent:?}");
            assert_eq!(count(&engine, events::MEMBER_FAILED), 0);
            disks.members.iter().for_each(SimDisk::speak);
            let model = end_of(&handle, &done).await;
            audit(&engine, model).await;
            handle.sleep(seconds(3)).await;
            let told =
                (count(&engine, events::MEMBER_SILENT), count(&engine, events::MEMBER_ANSWERED));
            assert_eq!(told.0, told.1, "told of each once, and of each that it answers");
            assert!(states(&engine).await.iter().all(|state| *state == SlotState::InSync));
            assert_eq!(count(&engine, events::MEMBER_FAILED), 0);
            nothing_is_wrong(&engine, &handle).await;
        });
    }
}

/// What hung was the controller, and its drives come back one after the other: the last ones were
/// put out half a second after the others answered (seed 20942 of the universes).
#[test]
fn members_that_fell_silent_together_may_come_back_one_by_one() {
    for (seed, shape) in [(34, raid6()), (35, raid5())] {
        with_array(seed, shape, async |engine, handle, disks, model| {
            disks.members.iter().for_each(SimDisk::fall_silent);
            let done = in_background(&engine, &handle, model);
            handle.sleep(seconds(20)).await;
            for disk in &disks.members {
                disk.speak();
                handle.sleep(ms(4000)).await;
            }
            let model = end_of(&handle, &done).await;
            let model = audit(&engine, model).await;
            assert_eq!(count(&engine, events::MEMBER_FAILED), 0);
            // One of them does not: it has its limit from then on, and no more.
            disks.members.iter().for_each(SimDisk::fall_silent);
            let done = in_background(&engine, &handle, model);
            handle.sleep(seconds(20)).await;
            disks.members[1..].iter().for_each(SimDisk::speak);
            handle.sleep(seconds(10)).await;
            assert_eq!(states(&engine).await[0], SlotState::Out);
            audit(&engine, end_of(&handle, &done).await).await;
        });
    }
}

#[test]
fn a_member_that_its_group_needs_is_waited_for() {
    with_array(33, raid5(), async |engine, handle, disks, model| {
        engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        disks.members[2].fall_silent();
        let done = in_background(&engine, &handle, model);
        handle.sleep(seconds(300)).await;
        assert!(done.borrow().is_none(), "they wait");
        let reason = last(&engine, events::MEMBER_SILENT, "reason").expect("it is told");
        assert!(reason.contains("cannot do without it"), "{reason}");
        disks.members[2].speak();
        let model = end_of(&handle, &done).await;
        audit(&engine, model).await;
        assert_eq!(states(&engine).await[2], SlotState::InSync);
        assert_eq!(count(&engine, events::MEMBER_SILENT), 1);
    });
}

#[test]
fn a_member_that_is_put_out_by_hand_lets_go_of_requests_at_once() {
    with_array(34, raid6(), async |engine, handle, disks, model| {
        disks.members[3].fall_silent();
        let done = in_background(&engine, &handle, model);
        handle.sleep(seconds(1)).await;
        assert!(done.borrow().is_none(), "they wait");
        let began = handle.now();
        engine.fail("tank", MemberIdx(3)).await.expect("two may go");
        let model = end_of(&handle, &done).await;
        assert!(handle.now().since(began) < seconds(1));
        let reason = last(&engine, events::MEMBER_FAILED, "reason");
        assert_eq!(reason.as_deref(), Some("put out by the operator"));
        audit(&engine, model).await;
    });
}

/// A write of whole stripes in the background, and whether it went well.
fn one_write(engine: &Engine, handle: &Handle) -> Rc<RefCell<Option<bool>>> {
    let answered = Rc::new(RefCell::new(None));
    let (own, client) = (Rc::clone(&answered), engine.clone());
    handle.spawn(async move {
        let write = client.with_volume(0, "tank", async |volume| {
            let command = Command::Write(volume.buffer(256 << 10).await.freeze());
            let extent = Extent::new(0, 256 << 10);
            volume.submit(Request { command, extent, fua: false }).await.is_ok()
        });
        *own.borrow_mut() = Some(write.await.expect("runs"));
    });
    answered
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    with_array(35, raid6(), async |engine, handle, disks, model| {
        drop(model);
        disks.members[3].fall_silent();
        let answered = one_write(&engine, &handle);
        handle.sleep(ms(100)).await;
        let began = handle.now();
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
        assert!(handle.now().since(began) < STALL_MAX);
        assert_eq!(*answered.borrow(), Some(true));
    });
    with_array(36, raid5(), async |engine, handle, disks, _| {
        engine.fail("tank", MemberIdx(2)).await.expect("one may go");
        disks.members[1].fall_silent();
        let answered = one_write(&engine, &handle);
        handle.sleep(ms(100)).await;
        let began = handle.now();
        match engine.stop("tank").await {
            // Its members may be unable to say that it was not clean.
            Ok(stopped) => assert_eq!(stopped, Stopped::Failed),
            Err(refused) => assert_eq!(refused.code, "array.stopped_unclean"),
        }
        assert!(handle.now().since(began) < seconds(60));
        assert_eq!(*answered.borrow(), Some(false), "the client has an answer");
    });
}

#[test]
fn silent_devices_on_their_way_into_a_slot_are_dropped() {
    with_array(37, raid6(), async |engine, handle, disks, model| {
        // The one that replaces another.
        engine.replace("tank", MemberIdx(2), "new0", false).await.expect("it takes it");
        disks.new.fall_silent();
        let began = handle.now();
        let model = steps(&engine, 1, model, 60).await;
        assert!(handle.now().since(began) < STALL_MAX);
        assert_eq!(last(&engine, events::MEMBER_FAILED, "role").as_deref(), Some("replacement"));
        until_idle(&engine, &handle).await;
        assert_eq!(states(&engine).await[2], SlotState::InSync);
        disks.new.speak();
        handle.sleep(seconds(5)).await;

        // The one that is being rebuilt.
        engine.fail("tank", MemberIdx(2)).await.expect("two may go");
        engine.replace("tank", MemberIdx(2), "new0", true).await.expect("it takes the slot");
        disks.new.fall_silent();
        let began = handle.now();
        let model = steps(&engine, 1, model, 60).await;
        assert!(handle.now().since(began) < STALL_MAX);
        assert_eq!(states(&engine).await[2], SlotState::Out);
        audit(&engine, model).await;
    });
}

#[test]
fn a_silent_device_is_not_taken_as_new_one_or_spare_and_is_let_go() {
    with_array(38, raid6(), async |engine, handle, disks, model| {
        disks.new.fall_silent();
        let refused = engine.add_spare_device("spares", NewDevice::at("new0", true)).await;
        assert_eq!(refused.expect_err("it does not answer").code, "device.failed");
        let refused = engine.replace("tank", MemberIdx(1), "new0", true).await;
        assert!(refused.expect_err("it owes commands").to_string().contains("still has"));
        disks.new.speak();
        handle.sleep(seconds(1)).await;
        engine.add_spare_device("spares", NewDevice::at("new0", true)).await.expect("it answers");
        // It is silent again when it is needed.
        disks.new.fall_silent();
        engine.fail("tank", MemberIdx(1)).await.expect("two may go");
        let model = steps(&engine, 1, model, 60).await;
        handle.sleep(seconds(200)).await;
        assert!(count(&engine, events::SPARE_REMOVED) > 0);
        audit(&engine, model).await;
    });
}

#[test]
fn an_array_starts_without_a_silent_member_and_takes_it_back_when_that_answers() {
    with_array(39, raid6(), async |engine, handle, disks, model| {
        assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
        disks.members[1].fall_silent();
        let began = handle.now();
        engine.assemble(assemble_spec(6)).await.expect("one may be missing");
        assert!(handle.now().since(began) < seconds(60));
        let model = steps(&engine, 1, model, 60).await;
        assert_eq!(states(&engine).await[1], SlotState::Out);
        disks.members[1].speak();
        handle.sleep(seconds(1)).await;
        engine.re_add("tank", &names(6)[1]).await.expect("it answers");
        until_all_in_sync(&engine, &handle).await;
        audit(&engine, model).await;
        nothing_is_wrong(&engine, &handle).await;
    });
}

#[test]
fn a_member_that_pauses_for_less_than_the_limit_stays() {
    with_array(40, raid6(), async |engine, handle, disks, mut model| {
        for turn in 0..20 {
            let disk = disks.members[turn % 6].clone();
            disk.fall_silent();
            let (later, own) = (handle.clone(), disk.clone());
            handle.spawn(async move {
                later.sleep(seconds(4)).await;
                own.speak();
            });
            model = steps(&engine, turn % 3, model, 20).await;
            handle.sleep(seconds(4)).await;
        }
        assert!(states(&engine).await.iter().all(|state| *state == SlotState::InSync));
        audit(&engine, model).await;
    });
}

/// A flush waited for the device that was being replaced when its copy was done: the slot was the
/// other's then, nobody looked at the silent one any more, and a stop waited for that flush for
/// ever.
#[test]
fn a_silent_device_whose_copy_is_done_holds_up_nobody() {
    let mut left_silent = 0;
    for delay in 0..30 {
        with_array(60 + delay, raid6(), async |engine, handle, disks, model| {
            engine.replace("tank", MemberIdx(2), "new0", false).await.expect("it takes it");
            handle.sleep(ms(delay)).await;
            disks.members[2].fall_silent();
            let began = handle.now();
            let model = steps(&engine, 1, model, 30).await;
            until_idle(&engine, &handle).await;
            audit(&engine, model).await;
            assert_eq!(engine.stop("tank").await.expect("stopped"), Stopped::Clean);
            assert!(handle.now().since(began) < seconds(30));
            left_silent += usize::from(count(&engine, events::MEMBER_FAILED) == 0);
        });
    }
    assert!(left_silent > 0, "no copy was done while its source was silent");
}
