//! Claims about buffers and pools, seen from outside. Everything here also runs under Miri, with an
//! arena from the heap.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use crate::{Alignment, Backing, Buf, BufMut, Pool, PoolClass, copy_past_caches};

fn class(buffer_bytes: usize, count: usize) -> PoolClass {
    PoolClass { buffer_bytes, count }
}

fn counted(buf: &mut [u8]) {
    for (at, byte) in buf.iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).expect("below 251");
    }
}

/// A waker that counts, and a context to poll with.
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting_waker() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (Arc::clone(&count), Waker::from(count))
}

#[test]
fn zeroed_memory_is_page_aligned_zero_and_writable() {
    for bytes in [0, 1, 511, 4096, 70_000] {
        let mut buf = BufMut::zeroed(bytes);
        assert_eq!(buf.len(), bytes);
        assert_eq!(buf.address() % 4096, 0);
        assert!(buf.iter().all(|byte| *byte == 0));
        buf.fill(7);
        assert!(buf.freeze().iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_mapping_is_zeros_and_lives_as_long_as_any_part_of_it() {
    let mut rest = BufMut::mapped(100_000).expect("memory");
    assert_eq!((rest.len(), rest.address() % 4096), (100_000, 0));
    assert!(rest.iter().all(|byte| *byte == 0));
    let mut front = rest.split_to(4096);
    drop(rest);
    front.fill(3);
    assert!(front.freeze().iter().all(|byte| *byte == 3));
}

#[test]
fn several_are_taken_at_once_as_far_as_there_are_and_all_come_back() {
    let pool = Pool::new(&[class(4096, 3), class(8192, 2)]).expect("small pool");
    for _ in 0..2 {
        let mut buffers = Vec::new();
        pool.try_get_each(4000, 2, &mut buffers);
        assert_eq!(buffers.len(), 2);
        pool.try_get_each(4000, 9, &mut buffers);
        assert!(buffers.iter().all(|buffer| buffer.len() == 4000));
        let mut starts: Vec<usize> = buffers.iter().map(BufMut::address).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 5, "the larger class helps out, and no two are the same");
        pool.try_get_each(1 << 20, 1, &mut buffers);
        assert_eq!(buffers.len(), 5, "no class is that large");
        drop(buffers);
        assert!(pool.usage().classes.iter().all(|class| class.in_use == 0));
    }
}

#[test]
fn splits_are_disjoint_and_join_back_in_order_only() {
    let mut rest = BufMut::zeroed(1000);
    counted(&mut rest);
    let mut front = rest.split_to(300);
    let empty = rest.split_to(0);
    front.fill(1);
    rest.fill(2);
    let (rest, front) = rest.try_join(front).expect_err("the wrong way round");
    let front = front.try_join(empty).expect("an empty neighbour is a neighbour");
    let whole = front.try_join(rest).expect("neighbours");
    assert_eq!(whole.len(), 1000);
    assert!(whole[..300].iter().all(|byte| *byte == 1));
    assert!(whole[300..].iter().all(|byte| *byte == 2));
}

#[test]
fn neighbours_by_address_in_different_memory_do_not_join() {
    let pool = Pool::with_alignment(&[class(4096, 2)], Alignment::Page).expect("small pool");
    let (a, b) = (pool.try_get(4096).expect("first"), pool.try_get(4096).expect("second"));
    assert_eq!(a.address() + 4096, b.address(), "slots of whole pages follow each other");
    let (a, b) = a.try_join(b).expect_err("two slots");
    drop((a, b));
    assert_eq!(pool.usage().classes[0].in_use, 0);
}

#[test]
fn a_truncated_front_does_not_join_over_the_gap() {
    let mut rest = BufMut::zeroed(64);
    let mut front = rest.split_to(32);
    front.truncate(16);
    front.truncate(20);
    assert_eq!(front.len(), 16);
    assert!(front.try_join(rest).is_err());
}

#[test]
#[should_panic(expected = "split at 65 of 64 bytes")]
fn splitting_beyond_the_end_panics() {
    let _front = BufMut::zeroed(64).split_to(65);
}

#[test]
#[should_panic(expected = "of 64 bytes")]
fn slicing_beyond_the_end_panics() {
    let _part = Buf::from(BufMut::zeroed(64)).slice(60..65);
}

#[test]
fn slices_share_memory_and_only_the_last_one_becomes_unique() {
    let buf = Buf::copied(&[1, 2, 3, 4, 5, 6]);
    let part = buf.slice(2..5);
    assert_eq!(part.address(), buf.address() + 2);
    assert_eq!(&part[..], [3, 4, 5]);
    let part = part.try_into_mut().expect_err("the whole is still there");
    drop(buf);
    let mut part = part.try_into_mut().expect("now it is the only one");
    part[0] = 9;
    assert_eq!(&part[..], [9, 4, 5]);
}

#[test]
fn a_frozen_half_does_not_become_unique_while_the_other_half_lives() {
    let mut rest = BufMut::zeroed(8);
    let front = rest.split_to(4).freeze();
    let front = front.try_into_mut().expect_err("the other half has an owner");
    drop(rest);
    assert_eq!(front.try_into_mut().expect("alone").len(), 4);
}

#[test]
fn buffers_come_from_the_smallest_class_that_has_one() {
    let pool = Pool::new(&[class(8192, 1), class(512, 1)]).expect("small pool");
    assert_eq!(pool.buffer_bytes_max(), 8192);
    assert!(pool.try_get(8193).is_none());
    let small = pool.try_get(100).expect("small");
    assert_eq!(small.len(), 100);
    let usage = pool.usage();
    assert_eq!((usage.classes[0].in_use, usage.classes[1].in_use), (1, 0));
    let large = pool.try_get(100).expect("the larger class steps in");
    assert!(pool.try_get(1).is_none(), "all out");
    drop(small);
    drop(large);
    let usage = pool.usage();
    assert_eq!((usage.classes[0].in_use_max, usage.classes[1].in_use_max), (1, 1));
    assert_eq!((usage.classes[0].in_use, usage.classes[1].in_use), (0, 0));
}

#[test]
fn nonsense_pools_are_refused() {
    assert!(Pool::new(&[]).is_err());
    assert!(Pool::new(&[class(0, 4)]).is_err());
    assert!(Pool::new(&[class(usize::MAX, 4)]).is_err());
    assert!(Pool::new(&[class(4096, usize::MAX)]).is_err());
}

#[test]
fn page_pools_align_every_buffer_to_pages() {
    let pool = Pool::with_alignment(&[class(512, 3), class(5000, 3)], Alignment::Page);
    let pool = pool.expect("small pool");
    let all: Vec<BufMut> = (0..6).map(|_| pool.try_get(512).expect("six in all")).collect();
    assert!(all.iter().all(|buf| buf.address() % 4096 == 0));
}

#[test]
fn strips_taken_one_after_another_have_eight_different_colours() {
    for bytes in [4096, 65_536] {
        let pool = Pool::new(&[class(bytes, 32)]).expect("small pool");
        // Returned in an order of their own: colours must not depend on a fresh pool.
        let mut used: Vec<BufMut> = (0..32).map(|_| pool.try_get(bytes).expect("32")).collect();
        used.swap(3, 20);
        used.swap(7, 11);
        drop(used);
        let stripe: Vec<BufMut> = (0..8).map(|_| pool.try_get(bytes).expect("8 of 32")).collect();
        let mut colours: Vec<usize> = stripe.iter().map(|buf| buf.address() % 4096).collect();
        assert!(colours.iter().all(|colour| colour % 512 == 0));
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), 8, "buffers of {bytes} bytes");
    }
}

#[test]
fn buffers_of_a_pool_never_overlap() {
    let classes = [class(512, 5), class(3000, 4), class(4096, 9), class(20_000, 3)];
    for alignment in [Alignment::Coloured, Alignment::Page] {
        let pool = Pool::with_alignment(&classes, alignment).expect("small pool");
        let mut all = Vec::new();
        for class in classes {
            for _ in 0..class.count {
                all.push(pool.try_get(class.buffer_bytes).expect("as many as promised"));
            }
        }
        for (at, buf) in all.iter_mut().enumerate() {
            buf.fill(u8::try_from(at).expect("21 buffers"));
        }
        let arena = pool.arena_addresses();
        for (at, buf) in all.iter().enumerate() {
            assert!(buf.iter().all(|byte| usize::from(*byte) == at), "buffer {at} was overwritten");
            assert!(arena.contains(&buf.address()) && buf.address() + buf.len() <= arena.end);
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn returned_buffers_are_poisoned_as_a_whole() {
    let pool = Pool::new(&[class(4096, 1)]).expect("small pool");
    let mut buf = pool.try_get(4096).expect("free");
    buf.fill(1);
    drop(buf.split_to(100));
    drop(buf);
    assert!(pool.try_get(4096).expect("free").iter().all(|byte| *byte == 0xDB));
}

#[test]
fn a_slot_returns_only_with_its_last_piece() {
    let pool = Pool::new(&[class(4096, 1)]).expect("small pool");
    let mut rest = pool.try_get(4096).expect("free");
    let front = rest.split_to(512).freeze();
    let copy = front.slice(1..2);
    drop(rest);
    drop(front);
    assert!(pool.try_get(1).is_none(), "one byte is still shared");
    drop(copy);
    assert!(pool.try_get(4096).is_some());
}

#[test]
fn buffers_outlive_the_last_handle_to_their_pool() {
    let pool = Pool::new(&[class(4096, 2)]).expect("small pool");
    let mut buf = pool.try_get(4096).expect("free");
    drop(pool);
    buf.fill(3);
    let shared = buf.freeze();
    assert!(shared.iter().all(|byte| *byte == 3));
}

#[test]
fn who_waits_first_is_served_first_and_nobody_overtakes() {
    let pool = Pool::new(&[class(512, 1)]).expect("small pool");
    let held = pool.try_get(512).expect("free");
    let (woken, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    let mut first = pin!(pool.get(512));
    let mut second = pin!(pool.get(512));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    drop(held);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "exactly one is woken");
    assert!(pool.try_get(512).is_none(), "a newcomer does not overtake");
    assert!(second.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(buf) = first.as_mut().poll(&mut cx) else { panic!("granted to the first") };
    drop(buf);
    assert!(second.as_mut().poll(&mut cx).is_ready());
    assert_eq!(pool.usage().classes[0].waits, 2);
}

#[test]
fn a_dropped_waiter_passes_its_buffer_on() {
    let pool = Pool::new(&[class(512, 1)]).expect("small pool");
    let held = pool.try_get(512).expect("free");
    let (_, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(pool.get(512));
    let mut gone = Box::pin(pool.get(512));
    let mut last = Box::pin(pool.get(512));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(gone.as_mut().poll(&mut cx).is_pending());
    assert!(last.as_mut().poll(&mut cx).is_pending());
    drop(gone);
    drop(held);
    // The buffer is granted to the first, who goes away without having looked.
    drop(first);
    assert!(last.as_mut().poll(&mut cx).is_ready());
    drop(last);
    assert_eq!(pool.usage().classes[0].in_use, 0);
    assert!(pool.try_get(512).is_some());
}

#[test]
fn a_waiter_for_a_large_buffer_does_not_hold_up_small_ones() {
    let pool = Pool::new(&[class(512, 1), class(4096, 1)]).expect("small pool");
    let small = pool.try_get(512).expect("free");
    let large = pool.try_get(4096).expect("free");
    let (_, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    let mut wants_large = pin!(pool.get(4096));
    let mut wants_small = pin!(pool.get(512));
    assert!(wants_large.as_mut().poll(&mut cx).is_pending());
    assert!(wants_small.as_mut().poll(&mut cx).is_pending());
    drop(small);
    assert!(wants_large.as_mut().poll(&mut cx).is_pending(), "a small buffer is of no use to it");
    assert!(wants_small.as_mut().poll(&mut cx).is_ready());
    drop(large);
    assert!(wants_large.as_mut().poll(&mut cx).is_ready());
}

/// A waker that owns a buffer of the pool it waits for, as the task behind a real one does.
struct Owning {
    _buffer: BufMut,
}
impl Wake for Owning {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn dropping_a_waker_that_owns_a_buffer_does_not_lock_up() {
    let pool = Pool::new(&[class(512, 2)]).expect("small pool");
    let owning = || Waker::from(Arc::new(Owning { _buffer: pool.try_get(512).expect("free") }));
    let (first, second) = (owning(), owning());
    let mut waiting = Box::pin(pool.get(512));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
    drop(first);
    // Replaces the first waker, whose buffer then goes to this very waiter.
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
    drop(second);
    drop(waiting);
    assert_eq!(pool.usage().classes[0].in_use, 0);
}

#[test]
fn buffers_dropped_on_other_threads_come_back() {
    let rounds: u8 = if cfg!(miri) { 20 } else { 200 };
    let pool = Pool::new(&[class(1024, 3)]).expect("small pool");
    let (sender, receiver) = mpsc::channel::<(u8, Buf)>();
    let (thread_sender, thread_receiver) = mpsc::channel::<Buf>();
    let checks = std::thread::spawn(move || {
        for (round, buf) in receiver {
            assert!(buf.iter().all(|byte| *byte == round), "changed while shared");
            thread_sender.send(buf.slice(5..9)).expect("the third thread listens");
        }
    });
    let drops = std::thread::spawn(move || thread_receiver.iter().map(|buf| buf.len()).sum());
    for round in 0..rounds {
        let mut buf = block_on(pool.get(1024));
        buf.fill(round);
        let shared = buf.freeze();
        sender.send((round, shared.clone())).expect("the checking thread listens");
        assert!(shared.iter().all(|byte| *byte == round));
    }
    drop(sender);
    checks.join().expect("no mismatch");
    let dropped: usize = drops.join().expect("summed");
    assert_eq!(dropped, usize::from(rounds) * 4);
    assert_eq!(pool.usage().classes[0].in_use, 0);
    assert!(pool.usage().classes[0].in_use_max <= 3);
}

#[test]
fn many_threads_waiting_for_few_buffers_all_get_theirs() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let pool = Pool::new(&[class(64, 2)]).expect("small pool");
    let threads: Vec<_> = (0..4u8)
        .map(|me| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for _ in 0..rounds {
                    let mut buf = block_on(pool.get(64));
                    buf.fill(me);
                    assert!(buf.iter().all(|byte| *byte == me), "two owners of one buffer");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("alone with its buffer");
    }
    let usage = pool.usage().classes[0];
    assert_eq!(usage.in_use, 0);
    assert!(usage.in_use_max <= 2);
}

#[test]
fn usage_names_the_pages_under_the_arena() {
    let usage = Pool::new(&[class(1 << 20, 4)]).expect("small pool").usage();
    assert!(usage.arena_bytes >= 4 << 20);
    assert_eq!(usage.on_huge_pages, usage.backing != Backing::SmallPages);
    assert_eq!(usage.alignment, Alignment::Coloured);
}

#[cfg(not(miri))]
#[test]
fn a_sparse_pool_takes_the_memory_that_is_used_of_its_buffers() {
    let pool = Pool::sparse(&[class(1 << 20, 16)]).expect("small pool");
    let mut buffers: Vec<BufMut> = (0..16).filter_map(|_| pool.try_get(1 << 20)).collect();
    for buffer in &mut buffers {
        assert_eq!(buffer.address() % 4096, 0);
        buffer[0] = 1;
    }
    let resident = resident_kib(pool.arena_addresses().start);
    assert!((64..=128).contains(&resident), "{resident} KiB for 16 pages");
    assert_eq!(pool.usage().backing, Backing::SmallPages);
}

/// What the kernel says is resident of the mapping that begins at `start`.
#[cfg(not(miri))]
fn resident_kib(start: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("it is mapped");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Parks the thread while `wanted` is not there.
fn block_on<T>(wanted: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut wanted = pin!(wanted);
    loop {
        match wanted.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_copy_past_the_caches_copies_all_of_it_and_nothing_else_at_any_alignment() {
    let mut source = [0; 400];
    counted(&mut source);
    for start in 0..40 {
        for bytes in [0, 1, 15, 16, 17, 64, 127, 300] {
            let mut target = BufMut::zeroed(400);
            target.fill(0xFF);
            let from = &source[start / 3..start / 3 + bytes];
            copy_past_caches(&mut target[start..start + bytes], from);
            assert_eq!(&target[start..start + bytes], from, "{bytes} bytes to {start}");
            assert!(target[..start].iter().all(|byte| *byte == 0xFF));
            assert!(target[start + bytes..].iter().all(|byte| *byte == 0xFF));
        }
    }
}

#[test]
fn what_is_written_off_is_stood_in_for_and_never_lent_before_it_is_back() {
    let pool = Pool::new(&[class(4096, 2), class(8192, 1)]).expect("small pool");
    let get = || pool.try_get(4096).expect("one is free");
    let lost: Vec<Buf> = (0..2).map(|_| get().freeze()).collect();
    let addresses = |buffers: &[Buf]| buffers.iter().map(Buf::address).collect::<Vec<_>>();
    let kept = lost[0].slice(0..512);
    lost.iter().for_each(Buf::write_off);
    kept.write_off();
    let counts = || pool.usage().classes[0];
    assert_eq!((counts().in_use, counts().written_off), (0, 2));
    let others: Vec<Buf> = (0..2).map(|_| get().freeze()).collect();
    assert!(addresses(&others).iter().all(|at| !addresses(&lost).contains(at)));
    drop(pool.try_get(8192).expect("the other class is as it was"));
    let (waker, wanted) = (Waker::noop(), addresses(&lost)[1]);
    let mut larger = pool.try_get(8192);
    let mut waiting = pin!(pool.get(4096));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    drop(lost);
    assert_eq!(counts().written_off, 1, "a part of the first is still out");
    assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending(), "none too many");
    // Another one is lost: now the one that came back stands in.
    others[0].write_off();
    let Poll::Ready(got) = waiting.as_mut().poll(&mut Context::from_waker(waker)) else {
        panic!("a stand-in was granted")
    };
    assert_eq!(got.address(), wanted);
    drop((got, kept, others, larger.take()));
    let usage = pool.usage();
    assert!(usage.classes.iter().all(|class| (class.in_use, class.written_off) == (0, 0)));
    let all: Vec<BufMut> = std::iter::from_fn(|| pool.try_get(4096)).collect();
    assert_eq!(all.len(), 3, "as many as the pool was made with");
}

#[test]
fn own_memory_cannot_be_written_off() {
    let own = BufMut::zeroed(4096);
    own.write_off();
    drop(own);
}
