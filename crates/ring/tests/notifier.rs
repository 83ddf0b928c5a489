//! Signals to eventfds of others.

use ashlar_ring::Notifier;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;

fn event(flags: EventfdFlags) -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | flags).expect("an eventfd")
}

fn count(event: &OwnedFd) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    read(event, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[test]
fn signals_are_counted_also_when_there_are_many() {
    let event = event(EventfdFlags::NONBLOCK);
    let mut notifier = Notifier::new(&event).expect("a notifier");
    assert_eq!(count(&event), Err(Errno::AGAIN));
    for _ in 0..1000 {
        notifier.notify().expect("signalled");
    }
    assert_eq!(count(&event), Ok(1000));
    notifier.notify().expect("signalled");
    assert_eq!(count(&event), Ok(1));
}

#[test]
fn a_count_at_its_end_makes_nobody_wait() {
    // Not non-blocking: write(2) would wait here for ever.
    let event = event(EventfdFlags::empty());
    write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("written");
    let mut notifier = Notifier::new(&event).expect("a notifier");
    for _ in 0..10 {
        notifier.notify().expect("signalled");
    }
    assert!(count(&event).is_ok_and(|count| count >= u64::MAX - 1));
}

#[test]
fn what_is_no_eventfd_is_refused() {
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    assert!(Notifier::new(&writer).is_err());
}
