//! Members that answer much later than their peers: told once, read around, replaced by a spare
//! while they serve; and never when that would cost redundancy or when most of them are slow.

use crate::world::jobs::{audit, count, filled, last, ms, raid5, raid6, status, steps, world_for};
use crate::world::{Model, assemble_spec, checksums, create_spec, engine, shape};
use ashlar_engine::{
    ArrayTuning, AssembleSpec, CommandsKind, Engine, MemberStatus, SlotState, SlowLimits,
    SlowReaction, event_names as events,
};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::ChecksumKind;
use ashlar_ring::Handle;
use ashlar_sim::{Latency, SimDisk};
use ashlar_units::MemberIdx;
use std::time::Duration;

/// How long a member must be slow here.
const AFTER: Duration = Duration::from_secs(3);

fn limits(reaction: SlowReaction) -> SlowLimits {
    SlowLimits { reaction, after: AFTER, commands_min: 4, ..SlowLimits::default() }
}

struct Host {
    engine: Engine,
    handle: Handle,
    disks: Vec<SimDisk>,
}

/// Run `test` on a filled array of this shape, with a disk `new0` beside it.
fn with_array(
    (seed, shape, reaction): (u64, Shape, SlowReaction),
    test: impl AsyncFnOnce(&Host, Model),
) {
    let (mut world, disks, _) = world_for(seed, &shape);
    let opener = world.opener();
    world
        .run(async move |handle| {
            let engine = engine(opener, &handle, 3);
            let members = shape.members;
            engine.create(create_spec(shape)).await.expect("created");
            let tuning = ArrayTuning { slow: limits(reaction), ..ArrayTuning::default() };
            let spec = AssembleSpec { tuning: Some(tuning), ..assemble_spec(members) };
            engine.assemble(spec).await.expect("assembled");
            let model = filled(&engine, seed).await;
            test(&Host { engine, handle, disks }, model).await;
        })
        .done();
}

/// Reads take 20 times as long as the slowest of the others, and writes 40 times.
fn be_slow(disk: &SimDisk) {
    disk.set_latency(Latency::constant(ms(4)));
}

fn be_well(disk: &SimDisk) {
    disk.set_latency(Latency::default());
}

impl Host {
    /// Random requests for so long.
    async fn work(&self, mut model: Model, time: Duration) -> Model {
        let began = self.handle.now();
        let mut turn = 0;
        while self.handle.now().since(began) < time {
            model = steps(&self.engine, turn % 3, model, 50).await;
            turn += 1;
        }
        model
    }

    async fn member(&self, at: usize) -> MemberStatus {
        status(&self.engine).await.members.swap_remove(at)
    }

    fn told(&self) -> (usize, usize) {
        let of = |name| count(&self.engine, name);
        (of(events::MEMBER_SLOW), of(events::MEMBER_SLOW_NO_MORE))
    }

    /// Reads of each member when clients only read.
    async fn client_reads(&self, model: Model) -> (Model, Vec<u64>) {
        let reads = async || -> Vec<u64> {
            status(&self.engine).await.members.iter().map(|member| member.counts.reads).collect()
        };
        let before = reads().await;
        let model = audit(&self.engine, audit(&self.engine, model).await).await;
        let after = reads().await;
        (model, after.iter().zip(before).map(|(after, before)| after - before).collect())
    }
}

/// Whether member 1 is read as much as member 2.
fn is_read(reads: &[u64]) -> bool {
    2 * reads[1] > reads[2]
}

/// Whether next to nothing is read from member 1.
fn is_read_around(reads: &[u64]) -> bool {
    10 * reads[1] < reads[2]
}

#[test]
fn a_slow_member_is_told_once_and_so_is_that_it_is_well_again() {
    with_array((700, raid6(), SlowReaction::Warn), async |host: &Host, model| {
        let model = host.work(model, AFTER * 2).await;
        assert_eq!(host.told(), (0, 0), "all are alike");
        be_slow(&host.disks[2]);
        let model = host.work(model, AFTER / 2).await;
        assert_eq!(host.told(), (0, 0), "it may pass");
        let model = host.work(model, AFTER * 2).await;
        assert_eq!(host.told(), (1, 0));
        let field = |name| last(&host.engine, events::MEMBER_SLOW, name).expect("there");
        assert_eq!((field("slot").as_str(), field("path").as_str()), ("2", "disk2"));
        assert_eq!(field("lasts_s"), "3");
        let own: u64 = field("own_us").parse().expect("a number");
        let peers: u64 = field("peers_us").parse().expect("a number");
        assert!((3_900..4_500).contains(&own) && peers < 1_000, "{own} against {peers}");
        let slow = host.member(2).await.slow.expect("it is slow");
        assert!(slow.lasts > AFTER && slow.own > 4 * slow.peers, "{slow:?}");
        let (model, reads) = host.client_reads(model).await;
        assert!(3 * reads[2] > 2 * reads[1], "nothing else follows: {reads:?}");

        be_well(&host.disks[2]);
        let model = host.work(model, AFTER * 2).await;
        assert_eq!(host.told(), (1, 1));
        assert_eq!(host.member(2).await.slow, None);
        audit(&host.engine, model).await;
    });
}

#[test]
fn a_member_that_is_slow_at_writes_alone_is_told_wherever_it_is() {
    let mirror = || shape(Level::Raid1, 2, None, None);
    for (seed, shape, at) in [(701, mirror(), 0), (702, mirror(), 1), (703, raid5(), 3)] {
        with_array((seed, shape, SlowReaction::Warn), async |host: &Host, model| {
            let slow = Latency { write: ms(4)..=ms(4), ..Latency::default() };
            host.disks[at].set_latency(slow);
            let model = host.work(model, AFTER * 3).await;
            assert_eq!(host.told(), (1, 0));
            let figures = host.member(at).await.slow.expect("it is slow");
            assert_eq!(figures.kind, CommandsKind::Writes);
            audit(&host.engine, model).await;
        });
    }
}

#[test]
fn reads_go_around_a_slow_member_until_it_is_well() {
    let shapes =
        [raid6(), shape(Level::Raid1, 3, None, None), shape(Level::Raid60, 10, Some(5), None)];
    // With checksums the way round is the same; only what is read is looked at once more.
    let most = if checksums() == ChecksumKind::None { shapes.len() } else { 1 };
    for (seed, shape) in (710..).zip(shapes.into_iter().take(most)) {
        with_array((seed, shape, SlowReaction::Avoid), async |host: &Host, model| {
            be_slow(&host.disks[1]);
            let model = host.work(model, AFTER * 3).await;
            assert_eq!(host.told(), (1, 0), "{seed}");
            let (model, around) = host.client_reads(model).await;
            assert!(is_read_around(&around), "{seed}: {around:?}");
            let model = host.work(model, AFTER).await;
            assert_eq!(host.told(), (1, 0), "{seed}: those that look how it is tell that");

            be_well(&host.disks[1]);
            let model = host.work(model, AFTER * 4).await;
            assert_eq!(host.told(), (1, 1), "{seed}");
            let (_, reads) = host.client_reads(model).await;
            assert!(is_read(&reads), "{seed}: {reads:?}");
            assert_eq!(count(&host.engine, events::MEMBER_FAILED), 0);
            assert_eq!(status(&host.engine).await.counts.lost_blocks, 0);
        });
    }
}

#[test]
fn a_group_that_lacks_a_member_reads_its_slow_one() {
    with_array((720, raid6(), SlowReaction::Avoid), async |host: &Host, model| {
        be_slow(&host.disks[1]);
        let model = host.work(model, AFTER * 3).await;
        assert_eq!(host.told(), (1, 0));
        let (model, around) = host.client_reads(model).await;
        assert!(is_read_around(&around), "{around:?}");
        host.engine.fail("tank", MemberIdx(4)).await.expect("one may go");
        let (model, reads) = host.client_reads(model).await;
        assert!(is_read(&reads), "{reads:?}");
        assert!(host.member(1).await.slow.is_some());
        host.engine.replace("tank", MemberIdx(4), "new0", false).await.expect("it takes it");
        let model = host.work(model, AFTER).await;
        assert_eq!(host.member(4).await.state, SlotState::InSync);
        let (_, around) = host.client_reads(model).await;
        assert!(is_read_around(&around), "whole again: {around:?}");
    });
}

#[test]
fn a_spare_takes_over_from_a_slow_member_while_that_serves() {
    with_array((730, raid6(), SlowReaction::Replace), async |host: &Host, model| {
        host.engine.add_spare("spares", "new0", true).await.expect("added");
        be_slow(&host.disks[3]);
        let model = host.work(model, AFTER * 4).await;
        let member = host.member(3).await;
        assert_eq!((member.path.as_str(), member.state), ("new0", SlotState::InSync));
        assert_eq!((member.slow, member.replacement), (None, None));
        let role = last(&host.engine, events::MEMBER_JOINED, "role");
        assert_eq!(role.as_deref(), Some("replacement"), "a copy, no rebuild");
        assert_eq!(count(&host.engine, events::MEMBER_FAILED), 0, "never less than whole");
        assert_eq!(host.told(), (1, 0));
        assert!(host.engine.spares().is_empty());
        let model = host.work(audit(&host.engine, model).await, AFTER).await;
        assert_eq!(host.told().0, 1);
        audit(&host.engine, model).await;
        host.engine.scrub("tank", false).await.expect("started");
        crate::world::jobs::until_idle(&host.engine, &host.handle).await;
        let found = last(&host.engine, events::JOB_FINISHED, "mismatches");
        assert_eq!(found.as_deref(), Some("0"));
    });
}

#[test]
fn without_a_spare_a_slow_member_stays_and_that_is_told_once() {
    with_array((731, raid6(), SlowReaction::Replace), async |host: &Host, model| {
        be_slow(&host.disks[3]);
        let model = host.work(model, AFTER * 4).await;
        assert_eq!(host.told(), (1, 0));
        assert_eq!(count(&host.engine, events::SPARE_MISSING), 1);
        assert_eq!(host.member(3).await.state, SlotState::InSync);
        host.engine.add_spare("spares", "new0", true).await.expect("added");
        let model = host.work(model, AFTER * 3).await;
        assert_eq!(host.member(3).await.path, "new0");
        audit(&host.engine, model).await;
    });
}

#[test]
fn a_spare_goes_to_a_member_that_is_missing_before_one_that_is_slow() {
    with_array((732, raid6(), SlowReaction::Replace), async |host: &Host, model| {
        be_slow(&host.disks[3]);
        let model = host.work(model, AFTER * 3).await;
        assert_eq!(host.told(), (1, 0));
        host.engine.fail("tank", MemberIdx(0)).await.expect("one may go");
        host.engine.add_spare("spares", "new0", true).await.expect("added");
        let model = host.work(model, AFTER * 3).await;
        assert_eq!(host.member(0).await.path, "new0");
        assert_eq!((host.member(3).await.path.as_str(), host.told().0), ("disk3", 1));
        audit(&host.engine, model).await;
    });
}

#[test]
fn nobody_is_judged_when_all_or_too_many_are_slow() {
    for (seed, slow) in [(740, 6), (741, 3)] {
        with_array((seed, raid6(), SlowReaction::Avoid), async |host: &Host, model| {
            host.disks.iter().take(slow).for_each(be_slow);
            let model = host.work(model, AFTER * 4).await;
            assert_eq!(host.told(), (0, 0));
            audit(&host.engine, model).await;
        });
    }
}
