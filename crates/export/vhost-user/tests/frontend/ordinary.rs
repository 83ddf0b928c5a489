//! What frontends and drivers do.

use crate::client::{
    BORDER, Client, DATA_AT, ENTRIES, EVENT_INDEX, FEATURES, GUEST_AT, INDIRECT, NEXT, Request,
    WRITE, connection, descriptor, head_at, is_signalled, number, status_at, wait_for,
};
use crate::server::{Server, Setting, VOLUME_BYTES, start};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn begun(queues: usize, features: u64, setting: Setting) -> (Client, Server) {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], setting);
    let mut client = Client::new(ours, queues);
    client.features = features;
    client.introduce();
    client.start_rings();
    (client, server)
}

fn ended(client: Client, server: Server) {
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn requests_of_every_kind_arrive_over_two_queues() {
    let (mut client, server) = begun(2, FEATURES, Setting::default());
    let content: Vec<u8> = (0..=255).cycle().take(8192).collect();
    assert_eq!(client.write(0, 8, &content), 0);
    assert_eq!(client.read(1, 8, 8192), content, "seen by the other queue");
    assert_eq!(client.carry_out(1, &Request { kind: 4, ..Request::default() }), 0);
    let name = Request { kind: 8, writes: 20, ..Request::default() };
    assert_eq!(client.carry_out(0, &name), 0);
    assert_eq!(client.get(DATA_AT, 20), b"5a5a5a5a5a5a5a5a5a5a");
    let range = |sector: u64, sectors: u32, flags: u32| {
        [
            sector.to_le_bytes().to_vec(),
            sectors.to_le_bytes().to_vec(),
            flags.to_le_bytes().to_vec(),
        ]
        .concat()
    };
    let discard = Request { kind: 11, reads: &range(8, 8, 0), ..Request::default() };
    assert_eq!(client.carry_out(0, &discard), 0);
    assert_eq!(client.read(0, 8, 4096), [0; 4096]);
    let zeroes = Request { kind: 13, reads: &range(16, 4, 1), ..Request::default() };
    assert_eq!(client.carry_out(1, &zeroes), 0);
    let rest = client.read(1, 16, 4096);
    assert_eq!((&rest[..2048], &rest[2048..]), (&[0; 2048][..], &content[6144..]));
    let beyond = Request { sector: VOLUME_BYTES / 512, writes: 512, ..Request::default() };
    assert_eq!(client.carry_out(0, &beyond), 1);
    assert_eq!(client.carry_out(0, &Request { kind: 99, ..Request::default() }), 2);
    assert_eq!(client.read(0, 8, 512), [0; 512], "errors end nothing");
    let counters = &server.counters;
    let counted = [&counters.reads, &counters.writes, &counters.flushes, &counters.discards];
    assert_eq!(counted.map(|it| it.load(Ordering::Relaxed)), [4, 1, 1, 2]);
    assert_eq!(counters.errors.load(Ordering::Relaxed), 2);
    ended(client, server);
}

#[test]
fn many_requests_are_under_way_and_every_answer_is_heard_with_and_without_event_indexes() {
    for features in [FEATURES, FEATURES | EVENT_INDEX] {
        let (mut client, server) = begun(1, features, Setting::default());
        let heads: Vec<u16> = (0..ENTRIES / 3).map(|index| index * 3).collect();
        for round in 0..20_u8 {
            for (sector, head) in (0_u64..).zip(&heads) {
                let data_at = DATA_AT + sector * 512;
                let reads = [round + 1; 512];
                client.write_down(
                    0,
                    *head,
                    &Request { kind: 1, sector, reads: &reads, data_at, ..Request::default() },
                );
                client.offer(0, *head);
            }
            client.kick(0);
            let mut answered: Vec<u16> = heads.iter().map(|_| client.answered(0)).collect();
            answered.sort_unstable();
            assert_eq!(answered, heads);
            assert!(heads.iter().all(|head| client.status(0, *head) == 0));
        }
        let bytes = 512 * u32::from(ENTRIES / 3);
        assert!(client.read(0, 0, bytes).iter().all(|byte| *byte == 20));
        ended(client, server);
    }
}

#[test]
fn a_driver_that_asked_to_hear_late_is_not_told_early() {
    let (mut client, server) = begun(1, FEATURES | EVENT_INDEX, Setting::default());
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    // It was told of that one by the time that the queue has stopped, and asks for the third.
    client.stop_ring(0);
    if is_signalled(&client.queues[0].call, Duration::ZERO) {
        wait_for(&client.queues[0].call);
    }
    client.describe_ring(0);
    client.enable(0);
    client.put(0x1000 + 4 + u64::from(ENTRIES) * 2, &3_u16.to_le_bytes());
    for head in [3, 6] {
        client.write_down(0, head, &Request { kind: 1, reads: &[2; 512], ..Request::default() });
        client.offer(0, head);
        client.kick(0);
    }
    // Both have been answered once the queue has stopped.
    assert_eq!(client.stop_ring(0), 3);
    assert!(!is_signalled(&client.queues[0].call, Duration::ZERO));
    client.describe_ring(0);
    client.enable(0);
    client.write_down(0, 9, &Request { kind: 4, ..Request::default() });
    client.offer(0, 9);
    client.kick(0);
    wait_for(&client.queues[0].call);
    ended(client, server);
}

#[test]
fn data_in_an_indirect_table_across_two_regions_arrives() {
    let (mut client, server) = begun(1, FEATURES, Setting::default());
    let content: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    let data_at = BORDER - (1 << 20) - 100;
    client.put(data_at, &content);
    client.write_down(0, 0, &Request { kind: 1, ..Request::default() });
    let guest = |at: u64| GUEST_AT + at;
    // Parts of odd lengths.
    let cuts = [0, 100, 4_000, 1_048_777, 3 << 20];
    let mut table = vec![descriptor(guest(head_at(0, 0)), 16, (NEXT, 1))];
    for (index, cut) in (2..).zip(cuts.windows(2)) {
        let length = u32::try_from(cut[1] - cut[0]).expect("small");
        table.push(descriptor(guest(data_at + cut[0]), length, (NEXT, index)));
    }
    table.push(descriptor(guest(status_at(0, 0)), 1, (WRITE, 0)));
    let table_at = 0x18_0000;
    client.put(table_at, &table.concat());
    let bytes = u32::try_from(table.len() * 16).expect("small");
    client.describe(0, 0, &descriptor(guest(table_at), bytes, (INDIRECT, 0)));
    client.offer(0, 0);
    client.kick(0);
    assert_eq!(client.answered(0), 0);
    assert_eq!(client.status(0, 0), 0);
    client.put(data_at, &vec![0; 3 << 20]);
    let read = client.read(0, 0, 3 << 20);
    assert!(read == content, "all of it, and in order");
    ended(client, server);
}

#[test]
fn a_queue_goes_on_where_it_stopped() {
    let (mut client, server) = begun(1, FEATURES, Setting::default());
    for round in 1..=3 {
        assert_eq!(client.write(0, 0, &[7; 512]), 0);
        assert_eq!(client.stop_ring(0), round);
        // Nobody looks at it now.
        client.kick(0);
        client.describe_ring(0);
        client.enable(0);
    }
    // Another place to signal, while it runs.
    let call = crate::client::event();
    client.say(13, &0_u64.to_ne_bytes(), &[call.as_fd()]);
    client.settle();
    assert_eq!(client.read(0, 0, 512), [7; 512]);
    wait_for(&call);
    // Other memory, while it runs: with what was in the old one.
    let other = crate::client::sealed(crate::client::MEMORY_BYTES);
    std::os::unix::fs::FileExt::write_all_at(&other, &client.get(0, 0x4000), 0).expect("copied");
    client.memory = other;
    client.say_memory(&client.memory, crate::client::MEMORY_BYTES);
    client.settle();
    assert_eq!(client.read(0, 0, 512), [7; 512]);
    ended(client, server);
}

#[test]
fn answered_writes_are_durable_when_the_driver_wants_that_or_cannot_flush() {
    let can_flush = FEATURES;
    let cannot = FEATURES & !(1 << 9 | 1 << 11);
    for (features, mode, durable_writes) in [(can_flush, 1, 0), (can_flush, 0, 2), (cannot, 1, 2)] {
        let (mut client, server) = begun(1, features, Setting::default());
        let head = [32_u32, 1, 0].map(u32::to_ne_bytes).concat();
        client.say(25, &[head.clone(), vec![mode]].concat(), &[]);
        let told = client.ask(24, &[head, vec![0]].concat());
        assert_eq!(told[12], u8::from(durable_writes == 0));
        assert_eq!((client.write(0, 0, &[7; 512]), client.write(0, 1, &[7; 512])), (0, 0));
        drop(client);
        let (ends, flushes) = server.ends();
        assert_eq!((ends, flushes), (vec![Ok(())], durable_writes));
    }
}

#[test]
fn a_device_says_how_large_it_is_and_how_many_queues_it_may_have() {
    let (client, server) = begun(0, FEATURES, Setting { is_read_only: true, ..Setting::default() });
    assert_eq!(number(&client.ask(17, &[])), 16);
    let asked = [[0_u32, 60, 0].map(u32::to_ne_bytes).concat(), vec![0; 60]].concat();
    let told = client.ask(24, &asked);
    assert_eq!(told[12..20], (VOLUME_BYTES / 512).to_le_bytes());
    let offered = number(&client.ask(1, &[]));
    assert_eq!(offered & (1 << 5 | 1 << 13 | 1 << 14), 1 << 5, "to be read only");
    let longer = [[40_u32, 100, 0].map(u32::to_ne_bytes).concat(), vec![0; 100]].concat();
    assert_eq!(client.ask(24, &longer)[32..], [0; 80], "nothing behind it");
    ended(client, server);
}

#[test]
fn whoever_asks_hears_that_a_message_was_obeyed() {
    let (client, server) = begun(0, FEATURES, Setting::default());
    let header = [8_u32, 1 | 8, 8].map(u32::to_ne_bytes).concat();
    client.send(&[header, [0_u32, 64].map(u32::to_ne_bytes).concat()].concat(), &[]);
    let mut answer = [0; 20];
    std::io::Read::read_exact(&mut &client.stream, &mut answer).expect("an answer");
    assert_eq!(answer[..12], [8_u32, 5, 8].map(u32::to_ne_bytes).concat());
    assert_eq!(answer[12..], [0; 8]);
    ended(client, server);
}

#[test]
fn a_frontend_that_agrees_on_nothing_has_rings_that_run_by_themselves() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    let mut client = Client::new(ours, 1);
    client.features = FEATURES & !(1 << 30);
    client.introduce();
    client.describe_ring(0);
    assert_eq!(client.write(0, 0, &[7; 512]), 0);
    assert_eq!(client.read(0, 0, 512), [7; 512]);
    ended(client, server);
}

#[test]
fn a_queue_that_no_worker_takes_ends_the_connection() {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting { is_full: true, ..Setting::default() });
    let client = Client::new(ours, 1);
    client.introduce();
    client.describe_ring(0);
    client.enable(0);
    let end = server.end().expect_err("it is dropped");
    assert!(end.starts_with("queue 0 is not served: "), "{end}");
}
