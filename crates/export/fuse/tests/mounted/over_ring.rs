//! Requests over io_uring: depths, an end under load, and a kernel that does not offer it.

use crate::parameter::Parameter;
use crate::server::{Mounted, Over, Setup};
use crate::tools::may_mount;
use ashlar_fuse::{RingOffer, ring_offer};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

fn may_run(test: &str) -> bool {
    may_mount(test) && Parameter::is_there(test)
}

fn over_ring() -> Mounted {
    Mounted::new(Setup { over: Over::Ring, ..Setup::default() })
}

/// So many threads write and read blocks of their own.
fn verify_at_depth(mounted: &Mounted, depth: u8) {
    std::thread::scope(|scope| {
        for writer in 0..depth {
            let path = mounted.file();
            scope.spawn(move || {
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                for round in 0..100_u8 {
                    let at = (u64::from(round) * u64::from(depth) + u64::from(writer)) * 4096;
                    let content = [writer.wrapping_mul(7) ^ round; 4096];
                    file.write_all_at(&content, at).unwrap();
                    let mut back = [0; 4096];
                    file.read_exact_at(&mut back, at).unwrap();
                    assert_eq!(back, content, "{at}");
                }
                file.sync_all().unwrap();
            });
        }
    });
}

#[test]
fn what_was_written_over_the_ring_is_read_at_depths_of_one_and_more_than_there_are_entries() {
    let test =
        "what_was_written_over_the_ring_is_read_at_depths_of_one_and_more_than_there_are_entries";
    if !may_run(test) {
        return;
    }
    let mounted = over_ring();
    for depth in [1, 32, 100] {
        verify_at_depth(&mounted, depth);
    }
    mounted.stop();
}

#[test]
fn a_mount_that_is_aborted_under_load_ends_requests_with_errors_and_the_server_in_order() {
    let test =
        "a_mount_that_is_aborted_under_load_ends_requests_with_errors_and_the_server_in_order";
    if !may_run(test) {
        return;
    }
    let mounted = over_ring();
    let (done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..16_u64 {
            let (done, failed) = (&done, &failed);
            let file = OpenOptions::new().read(true).write(true).open(mounted.file()).unwrap();
            scope.spawn(move || {
                while file.write_all_at(&[1; 8192], writer * 8192).is_ok() {
                    done.fetch_add(1, Ordering::Relaxed);
                }
                failed.fetch_add(1, Ordering::Relaxed);
            });
        }
        while done.load(Ordering::Relaxed) < 500 {
            std::thread::yield_now();
        }
        mounted.abort();
    });
    assert_eq!(failed.load(Ordering::Relaxed), 16);
    mounted.stop();
}

#[test]
fn where_the_kernel_does_not_offer_it_requests_come_by_the_device() {
    let test = "where_the_kernel_does_not_offer_it_requests_come_by_the_device";
    if !may_run(test) {
        return;
    }
    let off = Parameter::off();
    assert_eq!(ring_offer(), RingOffer::Off);
    let (mounted, agreed) = Mounted::asking(Setup { over: Over::Ring, ..Setup::default() });
    let agreed = *agreed.wait();
    drop(off);
    assert!(!agreed.over_ring && agreed.sends_again);
    verify_at_depth(&mounted, 4);
    mounted.stop();
}
