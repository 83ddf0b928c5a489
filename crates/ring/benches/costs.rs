//! What the pieces cost: nanoseconds of process CPU time for one task, one-shot, message and read.
//! Five rounds, all printed.
//!
//! `cargo bench -p ashlar-ring`; with `-- --tiny`, a few rounds to show that it runs; with `--
//! WORD`, only what has the word in its name. The numbers in docs/notes/ring.md are from here. Not
//! here: devices; files are in the page cache.

use ashlar_iobuf::BufMut;
use ashlar_ring::local::Semaphore;
use ashlar_ring::{Completions, EntryBytes, Executor, Handle, Ring, RingConfig, Schedule, mailbox};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

const ROUNDS: usize = 5;
const BLOCK: usize = 4096;

fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn report(what: &str, count: i64, mut run: impl FnMut()) {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    if filter.is_some_and(|filter| !what.contains(&filter)) {
        return;
    }
    let mut costs = Vec::new();
    for _ in 0..=ROUNDS {
        let before = cpu_ns();
        run();
        costs.push((cpu_ns() - before) / count);
    }
    // The first round warms up.
    println!("{what:<58} {:?} ns", &costs[1..]);
}

fn executor(entries: u32) -> (Executor, Handle, Ring) {
    executor_on(RingConfig::of(entries))
}

fn executor_on(config: RingConfig) -> (Executor, Handle, Ring) {
    let ring = Ring::new(config).expect("io_uring");
    let executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    (executor, handle, ring)
}

fn spawned_tasks(count: i64) {
    let (mut executor, handle, _ring) = executor(8);
    report("spawn, run and free a task that does nothing", count, || {
        for _ in 0..count / 100 {
            for _ in 0..100 {
                handle.spawn(async {});
            }
            executor.block_on(handle.yield_now());
        }
    });
}

fn woken_tasks(count: i64) {
    let (mut executor, handle, _ring) = executor(8);
    report("wake and poll of a task (16 tasks that yield)", count, || {
        for _ in 0..15 {
            let yielding = handle.clone();
            handle.spawn(async move {
                for _ in 0..count / 16 {
                    yielding.yield_now().await;
                }
            });
        }
        executor.block_on(async {
            for _ in 0..count / 16 {
                handle.yield_now().await;
            }
        });
    });
}

fn one_shots(count: i64) {
    let (mut executor, _, _ring) = executor(8);
    let supply = Completions::new();
    report("one-shot: pair, complete, await", count, || {
        executor.block_on(async {
            for value in 0..count {
                let (completion, pending) = supply.pair();
                completion.complete(value);
                assert_eq!(pending.await, Some(value));
            }
        });
    });
}

fn awaited_one_shots(count: i64) {
    let (mut executor, handle, _ring) = executor(8);
    let supply = Completions::new();
    report("one-shot between two tasks: await, complete, wake, poll", count, || {
        let slot = Rc::new(Cell::new(None));
        let (answers, slots) = (handle.clone(), Rc::clone(&slot));
        handle.spawn(async move {
            for value in 0..count {
                loop {
                    if let Some(completion) = slots.take() {
                        break ashlar_ring::Completion::complete(completion, value);
                    }
                    answers.yield_now().await;
                }
                answers.yield_now().await;
            }
        });
        executor.block_on(async {
            for value in 0..count {
                let (completion, pending) = supply.pair();
                slot.set(Some(completion));
                assert_eq!(pending.await, Some(value));
            }
        });
    });
}

fn messages(count: i64) {
    let (mut executor, handle, _ring) = executor(8);
    let (sender, mut receiver) = mailbox::mailbox::<i64>(&handle);
    report("mailbox message within a thread, 16 at a time", count, || {
        executor.block_on(async {
            for _ in 0..count / 16 {
                (0..16).for_each(|message| sender.send(message));
                for message in 0..16 {
                    assert_eq!(receiver.receive().await, message);
                }
            }
        });
    });
    report("mailbox message from another thread (both sides)", count, || {
        let sender = sender.clone();
        let sending =
            std::thread::spawn(move || (0..count).for_each(|message| sender.send(message)));
        executor.block_on(async {
            for message in 0..count {
                assert_eq!(receiver.receive().await, message);
            }
        });
        sending.join().expect("sender ended well");
    });
}

fn cached_reads(count: i64, depth: i64, entry_bytes: EntryBytes) {
    let (mut executor, handle, ring) = executor_on(RingConfig { entries: 64, entry_bytes });
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[5; 64 * BLOCK]).expect("write");
    let file: Arc<OwnedFd> = Arc::new(file.into());
    let what = format!("read of 4 KiB from the page cache at depth {depth}, {entry_bytes:?}");
    report(&what, count, || {
        let last = Semaphore::new(usize::try_from(depth).expect("small"));
        for task in 0..depth {
            let (ring, file) = (ring.clone(), Arc::clone(&file));
            let permit = last.try_acquire().expect("one each");
            handle.spawn(async move {
                let mut buf = BufMut::zeroed(BLOCK);
                for number in 0..count / depth {
                    let at = u64::try_from((task + number) % 64).expect("small") * 4096;
                    let read;
                    (read, buf) = ring.read_at(&file, at, buf).await;
                    assert_eq!(read.expect("read"), BLOCK);
                }
                drop(permit);
            });
        }
        executor.block_on(async {
            for _ in 0..depth {
                std::mem::forget(last.acquire().await);
            }
        });
    });
}

fn blocking_reads(count: i64) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[5; 64 * BLOCK]).expect("write");
    let mut buf = BufMut::zeroed(BLOCK);
    report("for comparison: pread of the same, one at a time", count, || {
        for number in 0..count {
            let at = u64::try_from(number % 64).expect("small") * 4096;
            assert_eq!(rustix::io::pread(&file, &mut buf[..], at).expect("read"), BLOCK);
        }
    });
}

fn main() {
    let tiny = std::env::args().any(|argument| argument == "--tiny");
    let count = if tiny { 1600 } else { 1_600_000 };
    spawned_tasks(count);
    woken_tasks(count);
    one_shots(count);
    awaited_one_shots(count);
    messages(count);
    for entry_bytes in [EntryBytes::Narrow, EntryBytes::Wide] {
        cached_reads(count / 4, 1, entry_bytes);
        cached_reads(count / 4, 32, entry_bytes);
    }
    blocking_reads(count / 4);
}
