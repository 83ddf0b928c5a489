//! A server that is gone, and its successor: requests without an answer are carried out by the
//! successor, in their order, and answered ones are not.

use crate::client::{Client, DATA_AT, Request, connection, is_signalled};
use crate::server::{Server, Setting, VOLUME_BYTES, start};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sectors from here on are stuck in a server that is to be killed.
const STUCK: u64 = VOLUME_BYTES / 512 / 2;

/// A frontend that keeps what is under way, and its first server.
fn begun(setting: Setting) -> (Client, Server, (Vec<u8>, OwnedFd)) {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], setting);
    let client = Client::new(ours, 1);
    client.introduce();
    let wanted = [[0; 16].to_vec(), 1_u16.to_ne_bytes().to_vec(), 64_u16.to_ne_bytes().to_vec()];
    let (place, file) = client.ask_for(31, &[wanted.concat(), vec![0; 4]].concat());
    let kept = (place, file.expect("memory to keep"));
    client.say(32, &kept.0, &[kept.1.as_fd()]);
    client.start_rings();
    (client, server, kept)
}

/// Another server for the same frontend, which comes back with what it kept.
fn successor(client: &mut Client, kept: &(Vec<u8>, OwnedFd)) -> Server {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    client.stream = ours;
    client.introduce();
    client.say(32, &kept.0, &[kept.1.as_fd()]);
    // A frontend cannot know where its server was.
    client.describe_ring(0);
    client.ring_number(10, 0, u32::from(client.queues[0].used));
    client.enable(0);
    client.settle();
    server
}

fn offer_write(client: &mut Client, head: u16, (sector, fill): (u64, u8)) {
    let data_at = DATA_AT + u64::from(head) * 512;
    let reads = [fill; 512];
    let write = Request { kind: 1, sector, reads: &reads, data_at, ..Request::default() };
    client.write_down(0, head, &write);
    client.offer(0, head);
    client.kick(0);
}

#[test]
fn unanswered_requests_are_carried_out_by_the_successor_and_answered_ones_are_not() {
    let (mut client, server, kept) = begun(Setting { is_stuck: true, ..Setting::default() });
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    for (head, sector) in [(3, STUCK), (6, STUCK + 1), (9, STUCK)] {
        offer_write(&mut client, head, (sector, u8::try_from(head).expect("small")));
    }
    // This one overtakes them, so its server has taken them all.
    offer_write(&mut client, 12, (2, 12));
    assert_eq!(client.answered(0), 12);
    server.kill();
    // Offered while nobody serves.
    offer_write(&mut client, 15, (STUCK + 2, 15));
    let server = successor(&mut client, &kept);
    let answered: Vec<u16> = (0..4).map(|_| client.answered(0)).collect();
    assert_eq!(answered, [3, 6, 9, 15], "in their order, and no other");
    assert!(answered.iter().all(|head| client.status(0, *head) == 0));
    let read = client.read(0, STUCK, 1536);
    let wanted = [[9; 512], [6; 512], [15; 512]].concat();
    assert_eq!(read, wanted, "the last write to a sector is the last");
    assert_eq!(client.read(0, 0, 512), [0; 512], "answered by the first server, so not repeated");
    assert_eq!(server.counters.repeated.load(Ordering::Relaxed), 3);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_request_is_carried_out_however_many_servers_are_killed_over_it() {
    let (mut client, mut server, kept) = begun(Setting { is_stuck: true, ..Setting::default() });
    offer_write(&mut client, 0, (STUCK, 7));
    for sector in 1..=5 {
        offer_write(&mut client, 3, (sector, 3));
        assert_eq!(client.answered(0), 3);
        server.kill();
        let (ours, theirs) = connection();
        server = start(vec![theirs], Setting { is_stuck: true, ..Setting::default() });
        client.stream = ours;
        client.introduce();
        client.say(32, &kept.0, &[kept.1.as_fd()]);
        client.describe_ring(0);
        client.enable(0);
    }
    server.kill();
    let server = successor(&mut client, &kept);
    assert_eq!(client.answered(0), 0);
    assert_eq!(client.read(0, STUCK, 512), [7; 512]);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_connection_that_ends_is_followed_by_the_answers_of_what_was_taken() {
    let (mut client, server, kept) = begun(Setting::default());
    for head in [0, 3, 6] {
        offer_write(&mut client, head, (u64::from(head), 5));
    }
    // What was not taken by then is left to the next one.
    client.stream = connection().0;
    assert_eq!(server.end(), Ok(()));
    let server = successor(&mut client, &kept);
    let mut answered: Vec<u16> = (0..3).map(|_| client.answered(0)).collect();
    answered.sort_unstable();
    assert_eq!(answered, [0, 3, 6], "each once");
    assert!(!is_signalled(&client.queues[0].error, Duration::ZERO));
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_successor_knows_that_the_driver_wants_durable_writes() {
    let (mut client, server, kept) = begun(Setting::default());
    let head = [32_u32, 1, 0].map(u32::to_ne_bytes).concat();
    client.say(25, &[head, vec![0]].concat(), &[]);
    client.settle();
    server.kill();
    let server = successor(&mut client, &kept);
    assert_eq!(client.write(0, 0, &[7; 512]), 0);
    drop(client);
    assert_eq!(server.ends(), (vec![Ok(())], 1));
}

#[test]
fn memory_for_requests_under_way_that_can_go_away_is_refused() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    let client = Client::new(ours, 1);
    client.introduce();
    let (place, _kept) =
        client.ask_for(31, &[[0; 16].to_vec(), vec![1, 0, 64, 0, 0, 0, 0, 0]].concat());
    let other = crate::client::unsealed(1 << 20);
    client.say(32, &place, &[other.as_fd()]);
    let end = server.end().expect_err("it is dropped");
    assert!(end.contains("can be taken away"), "{end}");
}

#[test]
fn a_request_that_a_stopped_volume_refuses_waits_for_the_successor() {
    let (mut client, server, kept) = begun(Setting { is_stopped: true, ..Setting::default() });
    client.write_down(0, 0, &Request { kind: 4, ..Request::default() });
    client.offer(0, 0);
    client.kick(0);
    assert_eq!(server.end(), Err("the volume was stopped".to_owned()));
    assert!(!is_signalled(&client.queues[0].error, Duration::ZERO), "the guest did no wrong");
    let server = successor(&mut client, &kept);
    assert_eq!(client.answered(0), 0);
    assert_eq!(client.status(0, 0), 0);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_frontend_that_keeps_nothing_hears_that_the_volume_was_stopped() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting { is_stopped: true, ..Setting::default() });
    let mut client = Client::new(ours, 1);
    client.introduce();
    client.start_rings();
    assert_eq!(client.carry_out(0, &Request { kind: 4, ..Request::default() }), 1);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}
