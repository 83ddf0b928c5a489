//! What frontends and drivers do not do: the connection ends, and nothing else does.

use crate::client::{
    BORDER, Client, ENTRIES, FEATURES, GUEST_AT, MEMORY_BYTES, NEXT, Request, USER_AT, WRITE,
    connection, descriptor, event, head_at, sealed, unsealed, wait_for,
};
use crate::server::{Setting, start};
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

/// A guest does `evil`, and another one is served on the same thread meanwhile and afterwards.
fn broken_by(evil: impl FnOnce(&mut Client)) -> String {
    let ((ours, theirs), (other, others)) = (connection(), connection());
    let server = start(vec![theirs, others], Setting::default());
    let mut honest = Client::new(other, 1);
    honest.introduce();
    honest.start_rings();
    assert_eq!(honest.write(0, 0, &[5; 512]), 0);
    let mut client = Client::new(ours, 1);
    evil(&mut client);
    assert_eq!(honest.read(0, 0, 512), [5; 512]);
    // The server hangs up first.
    let mut rest = Vec::new();
    let read = client.stream.read_to_end(&mut rest);
    let is_over = read.map_or_else(|error| error.kind(), |_| std::io::ErrorKind::UnexpectedEof);
    assert!(
        [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset].contains(&is_over),
        "{is_over:?}"
    );
    assert_eq!(honest.read(0, 0, 512), [5; 512]);
    drop(honest);
    let mut ends = server.ends().0;
    assert_eq!(ends.pop(), Some(Ok(())), "the honest one");
    ends.pop().expect("the other one").expect_err("it is dropped")
}

/// The same, of a guest whose rings run.
fn queue_broken_by(evil: impl FnOnce(&mut Client)) -> String {
    broken_by(|client| {
        client.introduce();
        client.start_rings();
        assert_eq!(client.write(0, 8, &[1; 512]), 0);
        evil(client);
        client.kick(0);
        wait_for(&client.queues[0].error);
    })
}

#[test]
fn a_guest_that_does_what_no_driver_does_loses_its_device_and_its_neighbour_does_not() {
    let request = Request { kind: 1, reads: &[3; 512], ..Request::default() };
    let told = [
        queue_broken_by(|client| {
            client.describe(0, 0, &descriptor(GUEST_AT + head_at(0, 0), 16, (NEXT, 0)));
            client.offer(0, 0);
        }),
        queue_broken_by(|client| client.offer(0, ENTRIES)),
        queue_broken_by(|client| client.offer(0, u16::MAX)),
        queue_broken_by(|client| client.show(0, client.queues[0].available + ENTRIES + 1)),
        queue_broken_by(|client| client.show(0, client.queues[0].available.wrapping_sub(1))),
        queue_broken_by(|client| {
            client.write_down(0, 3, &request);
            client.describe(0, 4, &descriptor(GUEST_AT + MEMORY_BYTES - 1, 2, (NEXT, 5)));
            client.offer(0, 3);
        }),
        queue_broken_by(|client| {
            client.write_down(0, 3, &request);
            client.describe(0, 5, &descriptor(GUEST_AT, 1, (0, 0)));
            client.offer(0, 3);
        }),
    ];
    let wanted = [
        "a chain of descriptors has no end",
        "a request begins beyond the end of the ring",
        "a request begins beyond the end of the ring",
        "more requests than the ring has entries",
        "more requests than the ring has entries",
        "a descriptor names memory that the guest does not have",
        "a request without room for a status",
    ];
    assert_eq!(told.to_vec(), wanted.map(|what| format!("queue 0 is broken: {what}")));
}

#[test]
fn a_head_that_comes_twice_is_told_from_one_that_comes_again() {
    let told = broken_by(|client| {
        client.introduce();
        client.start_rings();
        client.write_down(0, 0, &Request { kind: 4, ..Request::default() });
        for _ in 0..2 {
            client.offer(0, 0);
        }
        client.kick(0);
        wait_for(&client.queues[0].error);
    });
    assert_eq!(told, "queue 0 is broken: a request that is under way comes again");
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let ring = |entries: u32, at: u64| {
        broken_by(|client| {
            client.introduce();
            client.describe_ring(0);
            client.ring_number(8, 0, entries);
            client.ring_addresses(0, at);
            client.enable(0);
        })
    };
    let length = "queue 0 is broken: a ring of a length that there is not";
    let outside = "queue 0 is broken: a ring outside the guest's memory";
    assert_eq!(ring(0, USER_AT), length);
    assert_eq!(ring(63, USER_AT), length);
    assert_eq!(ring(2048, USER_AT), length);
    assert_eq!(ring(64, USER_AT + 8), "queue 0 is broken: a ring at an odd place");
    assert_eq!(ring(64, USER_AT - 4096), outside);
    assert_eq!(ring(64, USER_AT + MEMORY_BYTES - 4096), outside);
    assert_eq!(ring(64, USER_AT + BORDER - 512), outside, "across two regions");
    assert_eq!(ring(64, u64::MAX - 4095), outside);
}

#[test]
fn memory_that_can_go_away_or_is_not_there_is_refused() {
    let with = |memory: std::fs::File, bytes| {
        broken_by(move |client| {
            client.introduce();
            client.say_memory(&memory, bytes);
        })
    };
    let told = with(unsealed(MEMORY_BYTES), MEMORY_BYTES);
    assert!(told.contains("memory-backend-memfd"), "{told}");
    let told = with(sealed(MEMORY_BYTES), MEMORY_BYTES + 1);
    assert!(told.contains("beyond the end of its file"), "{told}");
    let told = with(sealed(MEMORY_BYTES), u64::MAX - GUEST_AT);
    assert!(told.contains("beyond all addresses"), "{told}");
    let told = with(sealed(MEMORY_BYTES), BORDER);
    assert!(told.contains("no bytes"), "{told}");
    let told = broken_by(|client| {
        client.introduce();
        let region = [GUEST_AT, BORDER, USER_AT, 0];
        let numbers = [region, region].concat().into_iter().flat_map(u64::to_ne_bytes);
        let content: Vec<u8> = [2, 0, 0, 0, 0, 0, 0, 0].into_iter().chain(numbers).collect();
        let memory = client.memory.as_fd();
        client.say(5, &content, &[memory, memory]);
    });
    assert!(told.contains("two regions at one place"), "{told}");
    let told = broken_by(|client| client.say(5, &[0; 40], &[client.memory.as_fd()]));
    assert!(told.contains("not one file for each region"), "{told}");
}

#[test]
fn messages_that_make_no_sense_end_the_connection() {
    let saying =
        |request: u32, content: &[u8]| broken_by(|client| client.say(request, content, &[]));
    let nonsense = |request: u32| format!("message {request} makes no sense");
    assert_eq!(saying(2, &u64::MAX.to_ne_bytes()), nonsense(2), "features that are not offered");
    assert_eq!(saying(2, &[1]), nonsense(2));
    assert_eq!(saying(5, &[9, 0, 0, 0]), nonsense(5));
    assert_eq!(saying(8, &[0; 7]), nonsense(8));
    assert_eq!(saying(8, &[16, 0, 0, 0, 64, 0, 0, 0]), nonsense(8), "no such ring");
    assert_eq!(saying(8, &[0, 0, 0, 0, 0, 0, 1, 0]), nonsense(8), "a number of more than 16 bits");
    assert_eq!(saying(12, &256_u64.to_ne_bytes()), nonsense(12), "a kick without an eventfd");
    assert_eq!(saying(24, &[0; 11]), nonsense(24));
    let far = [[u32::MAX - 4, 4, 0].map(u32::to_ne_bytes).concat(), vec![0; 4]].concat();
    assert_eq!(saying(24, &far), nonsense(24), "configuration of 4 GiB");
    assert_eq!(saying(25, &[0; 13]), nonsense(25), "only the cache mode is the driver's");
    assert_eq!(saying(32, &[0; 24]), nonsense(32), "no memory came with it");
    assert_eq!(saying(6, &[0; 16]), "message 6 is not spoken here");
    assert_eq!(saying(u32::MAX, &[]), format!("message {} is not spoken here", u32::MAX));
    let raw = |bytes: Vec<u8>| broken_by(move |client| client.send(&bytes, &[]));
    assert_eq!(raw([1_u32, 2, 0].map(u32::to_ne_bytes).concat()), nonsense(1), "another version");
    assert_eq!(raw([1_u32, 5, 0].map(u32::to_ne_bytes).concat()), nonsense(1), "a reply");
    assert_eq!(raw([1_u32, 1, 1025].map(u32::to_ne_bytes).concat()), nonsense(1), "too long");
    assert_eq!(raw([1_u32, 1, u32::MAX].map(u32::to_ne_bytes).concat()), nonsense(1));
    let told = broken_by(|client| client.say(12, &0_u64.to_ne_bytes(), &[client.memory.as_fd()]));
    assert!(told.contains("an eventfd that is none"), "{told}");
}

#[test]
fn descriptors_that_come_with_each_byte_of_a_message_are_not_kept() {
    let told = broken_by(|client| {
        let memory = client.memory.as_fd();
        for byte in [1_u32, 1, 0].map(u32::to_ne_bytes).concat() {
            client.send(&[byte], &[memory; 8]);
        }
    });
    assert_eq!(told, "the connection failed: too many descriptors");
}

#[test]
fn whoever_says_nothing_or_half_of_it_is_given_up() {
    let patience = Some(Duration::from_secs(2));
    let end = |bytes: &[u8]| {
        let (ours, theirs) = connection();
        let server = start(vec![theirs], Setting { patience, ..Setting::default() });
        let client = Client::new(ours, 0);
        client.send(bytes, &[]);
        let end = server.end();
        drop(client);
        end.expect_err("it is dropped")
    };
    assert_eq!(end(&[]), "the handshake did not end in time");
    assert_eq!(end(&[1, 0, 0]), "a message did not arrive in time");
    let half = [[2_u32, 1, 8].map(u32::to_ne_bytes).concat(), vec![0; 4]].concat();
    assert_eq!(end(&half), "a message did not arrive in time");
}

#[test]
fn an_eventfd_whose_count_is_at_its_end_keeps_nobody() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    let mut client = Client::new(ours, 1);
    client.features = FEATURES;
    // One that a plain write would wait for.
    client.queues[0].call = event();
    let most = (u64::MAX - 1).to_ne_bytes();
    rustix::io::write(&client.queues[0].call, &most).expect("an eventfd");
    client.introduce();
    client.start_rings();
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    assert_eq!(client.read(0, 0, 512), [1; 512]);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_guest_that_changes_a_request_under_way_hurts_itself_only() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    let mut client = Client::new(ours, 1);
    client.introduce();
    client.start_rings();
    let other = client.memory.try_clone().expect("a duplicate");
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = std::sync::Arc::clone(&is_over);
    let flipping = std::thread::spawn(move || {
        use std::os::unix::fs::FileExt;
        let mut sector = 0_u64;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            // The sector that is read, and the length of the data's descriptor within bounds.
            sector = (sector + 8) % 1024;
            other.write_all_at(&sector.to_le_bytes(), head_at(0, 0) + 8).expect("within");
            let length = if sector.is_multiple_of(16) { 512_u32 } else { 4096 };
            other.write_all_at(&length.to_le_bytes(), 16 + 8).expect("within");
        }
    });
    for _ in 0..500 {
        let read = Request { kind: 0, writes: 4096, ..Request::default() };
        assert_eq!(client.carry_out(0, &read), 0, "either request is a good one");
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    flipping.join().expect("the thread ends");
    client.describe(0, 2, &descriptor(GUEST_AT, 1, (WRITE, 0)));
    drop(client);
    assert_eq!(server.end(), Ok(()));
}
