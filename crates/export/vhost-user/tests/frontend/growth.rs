//! A volume that grows under its frontend.

use crate::client::{Client, PATIENCE, Request, connection};
use crate::server::{GROWN_BYTES, Server, Setting, VOLUME_BYTES, start};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_BACKEND_CHANNEL: u32 = 21;
const GET_CONFIG: u32 = 24;
/// How often to ask for the new size: for some seconds.
const LOOKS: u32 = 200_000;
/// The part of the protocol that lets the server send notices.
const NOTICES: u64 = 1 << 5;

fn begun() -> (Client, Server) {
    let (ours, theirs) = connection();
    let server = start(vec![theirs], Setting::default());
    let client = Client::new(ours, 1);
    client.introduce();
    (client, server)
}

/// The size in the configuration of the device.
fn size_bytes(client: &Client) -> u64 {
    let asked = [[0, 8, 0].map(u32::to_ne_bytes).concat(), vec![0; 8]].concat();
    let told = client.ask(GET_CONFIG, &asked);
    u64::from_le_bytes(told[12..20].try_into().expect("eight bytes")) * 512
}

/// The frontend's end of the socket for notices.
fn channel(client: &Client) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.say(SET_BACKEND_CHANNEL, &[], &[theirs.as_fd()]);
    client.settle();
    ours
}

fn heard(channel: &UnixStream) -> [u32; 3] {
    let mut bytes = [0; 12];
    let mut channel = channel;
    channel.read_exact(&mut bytes).expect("a notice");
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|at| u32::from_ne_bytes(words[at]))
}

#[test]
fn growth_is_told_and_used_without_a_new_connection() {
    let (mut client, server) = begun();
    client.start_rings();
    let channel = channel(&client);
    assert_eq!(size_bytes(&client), VOLUME_BYTES);
    let sector = VOLUME_BYTES / 512;
    let read = Request { sector, writes: 512, ..Request::default() };
    assert_eq!(client.carry_out(0, &read), 1, "not there yet");
    server.grow(GROWN_BYTES);
    assert_eq!(heard(&channel), [2, 1, 0], "the configuration changed; no answer is wanted");
    assert_eq!(size_bytes(&client), GROWN_BYTES);
    assert_eq!(client.write(0, sector, &[7; 4096]), 0);
    assert_eq!(client.read(0, sector, 4096), [7; 4096]);
    let end = Request { sector: GROWN_BYTES / 512, writes: 512, ..Request::default() };
    assert_eq!(client.carry_out(0, &end), 1);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_frontend_that_does_not_listen_finds_the_new_size_by_asking() {
    let (mut client, server) = begun();
    client.start_rings();
    drop(channel(&client));
    server.grow(VOLUME_BYTES + 4096);
    server.grow(GROWN_BYTES);
    // Sizes are taken in their order, but beside messages.
    let is_told = (0..LOOKS).any(|_| size_bytes(&client) == GROWN_BYTES);
    assert!(is_told, "waited in vain for the new size");
    assert_eq!(client.write(0, GROWN_BYTES / 512 - 8, &[7; 4096]), 0);
    drop(client);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_channel_is_refused_unless_it_was_agreed_on_and_comes_with_a_socket() {
    let (client, server) = begun();
    client.say(SET_BACKEND_CHANNEL, &[], &[]);
    assert_eq!(server.end(), Err("message 21 makes no sense".into()));
    drop(client);
    let (client, server) = begun();
    client.say(SET_PROTOCOL_FEATURES, &(!NOTICES & 0x1229).to_ne_bytes(), &[]);
    client.say(SET_BACKEND_CHANNEL, &[], &[client.stream.as_fd()]);
    assert_eq!(server.end(), Err("message 21 is not spoken here".into()));
}
