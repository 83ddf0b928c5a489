//! All members are rolled back to a copy of one moment, as snapshots of a storage below them are,
//! while the machine and so the kept map go on.
//!
//! What must stay true: a start believes the kept map only if the members have what it speaks of.
//! Before, it believed every map of the incarnation: stripes that the copy never had showed what
//! lay on the drives before, and blocks written there later were lost with a member.

use crate::world::kept::TestMemory;
use crate::world::{DISK_BYTES, add_disks, assemble_spec, create_spec, engine, read, shapes};
use ashlar_engine::{ArrayVolume, Refusal, event_names};
use ashlar_layout::Shape;
use ashlar_sim::{KeptDisk, SimDisk, SimWorld, Stop};
use ashlar_units::{BLOCK_BYTES, Extent};
use ashlar_volume::{Command, Request, Volume};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OLD: u8 = 0xEE;
/// Longer than the time between two marks.
const A_MOMENT: Duration = Duration::from_millis(400);

/// An array on disks full of old data, and the memory beside it.
struct Machine {
    world: SimWorld,
    disks: Vec<SimDisk>,
    memory: TestMemory,
    stripe_bytes: u64,
}

/// What is done after the copy was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Written,
    WrittenAndFlushed,
    Discarded,
    /// Only what was written before: the map says what it said.
    Overwritten,
}

type Copies = Arc<Mutex<Vec<KeptDisk>>>;

fn block(number: u64, stripe_bytes: u64) -> Extent {
    Extent::new(number * stripe_bytes, BLOCK_BYTES)
}

async fn write(volume: &ArrayVolume, extent: Extent, byte: u8) {
    let mut buffer = volume.buffer(4096).await;
    buffer.fill(byte);
    let command = Command::Write(buffer.freeze());
    volume.submit(Request { command, extent, fua: false }).await.expect("healthy");
}

async fn submit(volume: &ArrayVolume, command: Command, extent: Extent) {
    volume.submit(Request { command, extent, fua: false }).await.expect("healthy");
}

async fn holds(volume: &ArrayVolume, extent: Extent, byte: u8) {
    let bytes = read(volume, extent).await.expect("readable");
    assert_eq!(bytes[0], byte, "{extent:?}");
    assert!(bytes.iter().all(|it| *it == byte), "{extent:?}");
}

impl Machine {
    fn new(shape: Shape) -> Machine {
        let mut world = SimWorld::new(1);
        let disks = add_disks(&mut world, shape.members);
        let old = vec![OLD; usize::try_from(DISK_BYTES - (4 << 20)).expect("small")];
        disks.iter().for_each(|disk| disk.poke(2 << 20, &old));
        let (opener, memory) = (world.opener(), TestMemory::new(world.memory()));
        let made = world.run(async move |handle| {
            engine(opener, &handle, 2).create(create_spec(shape)).await.expect("created")
        });
        let stripe_bytes = made.done().geometry.stripe_bytes();
        world.stop(Stop::Kill);
        Machine { world, disks, memory, stripe_bytes }
    }

    /// A life that ends by a kill.
    fn live<F: Future<Output = ()> + 'static>(
        &mut self,
        accepts: bool,
        work: impl FnOnce(ArrayVolume) -> F + Send + 'static,
    ) {
        let (opener, memory) = (self.world.opener(), self.memory.clone());
        let members = self.disks.len();
        self.world
            .run(async move |handle| {
                let engine = memory.engine(opener, &handle);
                let mut spec = assemble_spec(members);
                spec.request.accept_lost_map = accepts;
                engine.assemble(spec).await.expect("assembled");
                let events = engine.events().since(0);
                let is_said = events.iter().any(|it| it.name == event_names::ARRAY_MAP_LOST);
                assert_eq!(is_said, accepts);
                engine.with_volume(0, "tank", work).await.expect("runs");
            })
            .done();
        self.world.stop(Stop::Kill);
    }

    /// A life in which all members are copied at one moment, while it goes on.
    fn live_and_copy(&mut self, then: Then) -> Copies {
        let (copies, stripe) = (Copies::default(), self.stripe_bytes);
        let (own, disks) = (Arc::clone(&copies), self.disks.clone());
        self.live(false, async move |volume| {
            write(&volume, block(1, stripe), 1).await;
            write(&volume, block(2, stripe), 2).await;
            submit(&volume, Command::Flush, Extent::default()).await;
            write(&volume, block(3, stripe), 3).await;
            volume.handle().sleep(A_MOMENT).await;
            *own.lock().expect("alone") = disks.iter().map(SimDisk::keep).collect();
            match then {
                Then::Written | Then::WrittenAndFlushed => {
                    write(&volume, block(4, stripe), 4).await;
                }
                Then::Discarded => {
                    submit(&volume, Command::Discard, Extent::new(stripe, stripe)).await;
                }
                Then::Overwritten => write(&volume, block(1, stripe), 9).await,
            }
            if then == Then::WrittenAndFlushed {
                submit(&volume, Command::Flush, Extent::default()).await;
            }
            volume.handle().sleep(A_MOMENT).await;
        });
        copies
    }

    fn roll_back(&self, copies: &Copies) {
        let copies = copies.lock().expect("alone");
        self.disks.iter().zip(copies.iter()).for_each(|(disk, copy)| disk.put_back(copy.clone()));
    }

    /// How a start was refused, and that it changed nothing then.
    fn refused(&mut self) -> Refusal {
        let changes = |disks: &[SimDisk]| disks.iter().map(SimDisk::changes).collect::<Vec<_>>();
        let (before, members) = (changes(&self.disks), self.disks.len());
        let (opener, memory) = (self.world.opener(), self.memory.clone());
        let refused = self.world.run(async move |handle| {
            let engine = memory.engine(opener, &handle);
            let would = engine.would_assemble(assemble_spec(members)).await;
            let refused = engine.assemble(assemble_spec(members)).await.expect_err("refused");
            assert_eq!(would.map(drop), Err(refused.clone()));
            refused
        });
        let refused = refused.done();
        self.world.stop(Stop::Kill);
        assert_eq!(changes(&self.disks), before);
        refused
    }

    /// What the copy had is there, the rest are zeros, and what is written now bears a loss.
    fn is_as_copied(&mut self, accepts: bool) {
        let stripe = self.stripe_bytes;
        // Only the kept map knew it: it is lost as in a power cut.
        let third = if accepts { 0 } else { 3 };
        let look = async move |volume: ArrayVolume| {
            for (number, byte) in [(0, 0), (1, 1), (2, 2), (3, third), (4, 0), (5, 0)] {
                holds(&volume, block(number, stripe), byte).await;
            }
            write(&volume, block(4, stripe), 7).await;
            submit(&volume, Command::Flush, Extent::default()).await;
        };
        self.live(accepts, look);
        let first = self.disks[0].clone();
        self.live(false, async move |volume| {
            // Until resyncs have ended.
            volume.handle().sleep(A_MOMENT * 20).await;
            first.vanish();
            for (number, byte) in [(1, 1), (2, 2), (3, third), (4, 7), (5, 0)] {
                holds(&volume, block(number, stripe), byte).await;
            }
        });
    }
}

#[test]
fn a_kept_map_of_changes_that_the_members_never_had_is_not_believed() {
    for (shape, _) in shapes() {
        for then in [Then::Written, Then::WrittenAndFlushed, Then::Discarded] {
            let mut machine = Machine::new(shape.clone());
            let copies = machine.live_and_copy(then);
            machine.roll_back(&copies);
            let refusal = machine.refused();
            assert_eq!(refusal.code, "array.kept_map_newer", "{shape:?}, {then:?}: {refusal}");
            assert!(refusal.next.contains("--accept-lost-map"), "{refusal}");
            machine.is_as_copied(true);
        }
    }
}

#[test]
fn a_kept_map_that_says_what_the_copy_has_is_believed() {
    for (shape, _) in shapes() {
        let mut machine = Machine::new(shape);
        let copies = machine.live_and_copy(Then::Overwritten);
        machine.roll_back(&copies);
        machine.is_as_copied(false);
    }
}

#[test]
fn a_copy_together_with_the_memory_of_its_moment_starts_right() {
    let (shape, _) = shapes().remove(3);
    let mut machine = Machine::new(shape);
    let stripe = machine.stripe_bytes;
    machine.live(false, async move |volume| {
        for number in 1..4 {
            write(&volume, block(number, stripe), u8::try_from(number).expect("small")).await;
        }
    });
    let copies = Arc::new(Mutex::new(machine.disks.iter().map(SimDisk::keep).collect::<Vec<_>>()));
    let memory = machine.memory.memory.keep();
    machine.live(false, async move |volume| write(&volume, block(4, stripe), 4).await);
    machine.roll_back(&copies);
    // The map of the later start does not count, and that of the copy's own is gone.
    assert_eq!(machine.refused().code, "array.kept_map_missing");
    machine.memory.memory.put_back(&memory);
    machine.is_as_copied(false);
}

/// However short the time was: nothing that was answered is missing, and no start is refused.
#[test]
fn a_kill_right_after_first_writes_is_no_rollback() {
    for operations in 1..120 {
        let (shape, _) = shapes().remove(2);
        let mut machine = Machine::new(shape);
        let (stripe, answered) = (machine.stripe_bytes, Arc::new(Mutex::new(0)));
        let (opener, memory) = (machine.world.opener(), machine.memory.clone());
        let (switch, count) = (machine.world.switch(), Arc::clone(&answered));
        machine.world.run(async move |handle| {
            let engine = memory.engine(opener, &handle);
            engine.assemble(assemble_spec(4)).await.expect("assembled");
            switch.stop_after(operations, Stop::Kill);
            let work = async move |volume: ArrayVolume| {
                for number in 0..20 {
                    write(&volume, block(number, stripe), 1).await;
                    *count.lock().expect("alone") = number + 1;
                }
            };
            engine.with_volume(0, "tank", work).await.expect("runs");
            handle.sleep(A_MOMENT).await;
        });
        machine.world.call_off();
        machine.world.stop(Stop::Kill);
        let answered = *answered.lock().expect("alone");
        machine.live(false, async move |volume| {
            for number in 0..answered {
                holds(&volume, block(number, stripe), 1).await;
            }
        });
    }
}
