//! Sequential streams: what becomes of their pieces, and how long these wait. Members are memory
//! that answers at once, and time passes in waits alone.

use crate::world::{assemble_spec, create_spec, read, submit};
use ashlar_device::{Access, MemDevice, OpenRefusal, Opened, Opener};
use ashlar_engine::{ArrayCounts, ArrayVolume, Engine, EngineConfig};
use ashlar_layout::{Level, Shape};
use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
use ashlar_units::{Extent, MemberIdx, Nanos, to_usize};
use ashlar_volume::{Command, Volume};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const KIB: u64 = 1 << 10;

/// Members in memory, by name.
#[derive(Default)]
struct MemoryOpener(Mutex<HashMap<String, MemDevice>>);

impl Opener for MemoryOpener {
    fn open(&self, path: &str, _: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let mut devices = self.0.lock().expect("one thread");
        let make = || MemDevice::new(path, crate::world::DISK_BYTES);
        Ok(Arc::new(devices.entry(path.to_owned()).or_insert_with(make).clone()))
    }
}

/// Run `test` with an engine of one worker that has an array of this shape.
fn with_array<F: Future<Output = ()> + 'static>(
    shape: Shape,
    test: impl FnOnce(Engine, Handle) -> F + 'static,
) {
    // In order, as in life: a seeded schedule would shuffle the stream before it reaches its owner.
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    let handle = executor.handle();
    executor.block_on(async {
        let config = EngineConfig {
            worker_count: 1,
            payload_bytes: 32 << 20,
            ..EngineConfig::new(Arc::new(MemoryOpener::default()))
        };
        let engine = Engine::on_executor(config, &handle).expect("memory for pools");
        let members = shape.members;
        engine.create(create_spec(shape)).await.expect("created");
        engine.assemble(assemble_spec(members)).await.expect("assembled");
        test(engine, handle.clone()).await;
    });
}

/// Stripes of 64 KiB.
fn raid6() -> Shape {
    crate::world::shape(Level::Raid6, 6, None, None)
}

/// What is at a byte of the volume after all writes of these tests.
fn content(extent: Extent) -> Vec<u8> {
    let block = |at: u64| (extent.offset + at) / 512;
    (0..extent.bytes).map(|at| u8::try_from(block(at) * 7 % 251).expect("a byte")).collect()
}

async fn write(volume: &ArrayVolume, extent: Extent) {
    let mut buffer = volume.buffer(to_usize(extent.bytes)).await;
    buffer.copy_from_slice(&content(extent));
    submit(volume, Command::Write(buffer.freeze()), extent, false).await;
}

/// All of these at once.
async fn write_all(volume: &ArrayVolume, extents: impl Iterator<Item = Extent>) {
    let mut writes: Vec<_> = extents.map(|extent| Box::pin(write(volume, extent))).collect();
    poll_fn(|context| {
        writes.retain_mut(|write| write.as_mut().poll(context).is_pending());
        if writes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Pieces that follow each other.
fn pieces(begin: u64, end: u64, bytes: u64) -> impl Iterator<Item = Extent> {
    let piece = move |offset: u64| Extent::new(offset, bytes.min(end - offset));
    (begin..end).step_by(to_usize(bytes)).map(piece)
}

async fn counts(engine: &Engine) -> ArrayCounts {
    engine.status().await.expect("runs").arrays[0].counts
}

async fn on_volume<F: Future<Output = ()> + 'static>(
    engine: &Engine,
    act: impl FnOnce(ArrayVolume) -> F + Send + 'static,
) {
    engine.with_volume(0, "tank", act).await.expect("runs");
}

#[test]
fn a_sequential_stream_in_small_pieces_becomes_full_stripes() {
    with_array(raid6(), async |engine, _| {
        on_volume(&engine, async |volume| {
            // Four stripes.
            write_all(&volume, pieces(0, 256 * KIB, 8 * KIB)).await;
        })
        .await;
        let counts = counts(&engine).await;
        assert!(counts.merged_writes > 24, "{} of 32 pieces merged", counts.merged_writes);
        let part = counts.rmw_writes + counts.rcw_writes;
        assert_eq!(part, 1, "only the first stripe came before the stream was known");
    });
}

/// Pieces end in the middle of strips, at their ends, and in the middle of stripes. What is read
/// from two parities shows that those were made of the right bytes.
#[test]
fn pieces_of_any_length_become_full_stripes_that_hold_what_was_written() {
    for piece in [4, 12, 20, 24, 48, 52, 68, 80].map(|kib| kib * KIB) {
        with_array(raid6(), async move |engine, _| {
            let end = 1 << 20;
            on_volume(&engine, async move |volume| {
                write_all(&volume, pieces(0, end, piece)).await;
                write_all(&volume, pieces(0, end, piece)).await;
            })
            .await;
            let counts = counts(&engine).await;
            let part = counts.rmw_writes + counts.rcw_writes;
            // In each round the first piece comes before the stream is known.
            assert!(part <= 9, "pieces of {piece} bytes: {part} parts of 32 stripes");
            for slot in [0, 1] {
                engine.fail("tank", MemberIdx(slot)).await.expect("within its losses");
            }
            on_volume(&engine, async move |volume| {
                for extent in pieces(0, end, 64 * KIB) {
                    let got = read(&volume, extent).await.expect("readable");
                    assert!(got == content(extent), "{extent} of pieces of {piece} bytes");
                }
            })
            .await;
        });
    }
}

#[test]
fn a_stripe_longer_than_any_request_becomes_full() {
    let shape =
        Shape { strip_bytes: 64 << 10, ..crate::world::shape(Level::NPlusM, 24, None, Some(4)) };
    with_array(shape, async |engine, _| {
        let stripe = 20 * 64 * KIB;
        on_volume(&engine, async move |volume| {
            write_all(&volume, pieces(0, 4 * stripe, 512 * KIB)).await;
        })
        .await;
        let counts = counts(&engine).await;
        let part = counts.rmw_writes + counts.rcw_writes;
        assert!(part <= 3, "{part} parts of {} stripes", counts.full_stripe_writes);
        on_volume(&engine, async move |volume| {
            for extent in pieces(0, 4 * stripe, 64 * KIB) {
                assert!(read(&volume, extent).await.expect("readable") == content(extent));
            }
        })
        .await;
    });
}

/// How long it took to write rounds of `count` pieces of 8 KiB each, of which all of a round are
/// answered before the next begins.
async fn time_of_rounds(engine: &Engine, handle: &Handle, (rounds, count): (u64, u64)) -> Duration {
    let began: Nanos = handle.now();
    on_volume(engine, async move |volume| {
        for round in 0..rounds {
            let begin = round * count * 8 * KIB;
            write_all(&volume, pieces(begin, begin + count * 8 * KIB, 8 * KIB)).await;
        }
    })
    .await;
    handle.now().since(began)
}

/// Their stripes cannot become full: nothing follows before something was answered.
#[test]
fn clients_with_less_under_way_than_a_stripe_do_not_wait_each_time() {
    with_array(raid6(), async |engine, handle| {
        let quarter = Duration::from_micros(125);
        for count in [1, 2] {
            let before = counts(&engine).await.merged_writes;
            let took = time_of_rounds(&engine, &handle, (64, count)).await;
            assert!(took <= quarter * 8, "{count} at once waited {took:?}");
            let merged = counts(&engine).await.merged_writes - before;
            assert!(count == 1 || merged > 32, "{count} at once: {merged} merged");
        }
    });
}

#[test]
fn many_streams_at_once_become_full_stripes() {
    with_array(raid6(), async |engine, _| {
        let mut part = Vec::new();
        for round in 0..4 {
            let begin = round * 128 * KIB;
            on_volume(&engine, async move |volume| {
                // A piece of each in turn.
                let own: Vec<_> = pieces(begin, begin + 128 * KIB, 24 * KIB).collect();
                let all = own.iter().flat_map(|piece| {
                    (0..24).map(|at| Extent::new(at * 512 * KIB + piece.offset, piece.bytes))
                });
                write_all(&volume, all).await;
            })
            .await;
            let counts = counts(&engine).await;
            part.push(counts.rmw_writes + counts.rcw_writes);
        }
        assert_eq!(part[0], part[3], "once the streams are known, no stripe is written in parts");
    });
}
