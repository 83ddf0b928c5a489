//! What a ring counts of its calls of the kernel.

use crate::{BLOCK, pool, temporary_file, world};
use ashlar_ring::{KernelCalls, mailbox};

/// Messages to a ring that waits for each of them.
const MESSAGES: usize = 1000;

#[test]
fn operations_and_the_system_calls_for_them_are_counted_and_turns_without_any_are_not() {
    let (mut executor, handle, ring) = world(8);
    let (file, pool) = (temporary_file(), pool(1));
    executor.block_on(async {
        for _ in 0..100 {
            handle.yield_now().await;
        }
    });
    assert_eq!(ring.load().calls, KernelCalls::default(), "nothing was asked of the kernel");
    executor.block_on(async {
        let block = pool.try_get(BLOCK).expect("it is free").freeze();
        for _ in 0..10 {
            let (written, _) = ring.write_at(&file, 0, block.clone()).await;
            written.expect("written");
        }
    });
    let calls = ring.load().calls;
    assert_eq!(calls.operations, 10);
    assert!((10..=20).contains(&calls.enters), "each was waited for: {calls:?}");
    assert!(calls.sleeps <= calls.enters, "{calls:?}");
    assert_eq!(calls.bells, 0, "no other thread had anything to say");
}

#[test]
fn a_sleep_that_another_thread_ends_is_counted_as_a_bell() {
    let (mut executor, handle, ring) = world(8);
    let (sender, mut receiver) = mailbox::mailbox::<usize>(&handle);
    let (answer, answers) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            sender.send(number);
            assert_eq!(answers.recv(), Ok(number));
        }
    });
    executor.block_on(async {
        for _ in 0..MESSAGES {
            answer.send(receiver.receive().await).expect("the peer waits");
        }
    });
    peer.join().expect("the peer ends");
    let calls = ring.load().calls;
    assert!(calls.bells > 0, "{calls:?}");
    assert!(calls.bells <= calls.sleeps && calls.sleeps <= calls.enters, "{calls:?}");
    assert_eq!(calls.operations, 0, "the bell is no operation");
}
