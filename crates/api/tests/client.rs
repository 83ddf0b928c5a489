//! The client against a daemon of a few lines: what goes over the wire, and what each way of
//! failing looks like to the caller.
#![cfg(feature = "client")]

use ashlar_api::v1::array::Stop;
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{Client, ClientError, codes};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

/// A daemon that answers one connection with `status` and `body` and returns what it was asked.
fn daemon(status: &str, body: &str) -> (tempfile::TempDir, PathBuf, JoinHandle<String>) {
    answering(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn answering(answer: String) -> (tempfile::TempDir, PathBuf, JoinHandle<String>) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("control.sock");
    let listener = UnixListener::bind(&socket).expect("bind");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut asked = Vec::new();
        let mut part = [0; 4096];
        while !is_whole(&asked) {
            let count = stream.read(&mut part).expect("read");
            asked.extend_from_slice(&part[..count]);
        }
        stream.write_all(answer.as_bytes()).expect("write");
        String::from_utf8(asked).expect("text")
    });
    (folder, socket, thread)
}

/// Whether the head and as many bytes as it announces are there.
fn is_whole(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let announced = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= announced.map_or(0, |bytes| bytes.parse().expect("number"))
}

#[test]
fn a_call_is_one_request_with_the_path_and_json_of_its_type() {
    let (_folder, socket, daemon) = daemon("200 OK", "{\"changed\":true,\"message\":\"gone\"}");
    let client = Client::new(&socket).expect("client");
    let done = client.call(&Stop { array: "tank0".to_owned(), force: false }).expect("answer");
    assert!(done.changed);
    assert_eq!(done.message, "gone");
    let asked = daemon.join().expect("daemon");
    assert!(asked.starts_with("POST /v1/arrays/stop HTTP/1.1\r\n"), "{asked}");
    assert!(asked.ends_with("{\"array\":\"tank0\",\"force\":false}"), "{asked}");
}

#[test]
fn a_refusal_arrives_with_its_code_and_hint() {
    let (_folder, socket, daemon) = daemon(
        "404 Not Found",
        "{\"code\":\"array.unknown\",\"message\":\"no tank0\",\"hint\":\"look again\"}",
    );
    let client = Client::new(&socket).expect("client");
    let error =
        client.call(&Stop { array: "tank0".to_owned(), force: false }).expect_err("refusal");
    daemon.join().expect("daemon");
    assert_eq!(error.to_string(), "no tank0; look again");
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.code == codes::ARRAY_UNKNOWN));
}

#[test]
fn nobody_at_the_socket_is_said_with_its_path() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("nobody.sock");
    let error = Client::new(&socket).expect("client").call(&GetStatus {}).expect_err("nobody");
    assert!(matches!(error, ClientError::Unreachable { .. }));
    assert!(error.to_string().contains("nobody.sock"), "{error}");
}

#[test]
fn a_daemon_that_stops_half_way_is_an_error() {
    let (_folder, socket, daemon) =
        answering("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"cha".to_owned());
    let client = Client::new(&socket).expect("client");
    let error = client.call(&Stop { array: "a".to_owned(), force: false }).expect_err("cut short");
    daemon.join().expect("daemon");
    assert!(matches!(error, ClientError::Protocol(_)), "{error:?}");
}

#[test]
fn events_come_line_by_line_until_the_reader_has_enough() {
    let line =
        |sequence: u64| format!("{{\"sequence\":{sequence},\"unix_ms\":0,\"name\":\"a.b\"}}\n");
    let (_folder, socket, daemon) = daemon("200 OK", &(line(1) + &line(2)));
    let client = Client::new(&socket).expect("client");
    let mut seen = Vec::new();
    client
        .events(false, |event| {
            seen.push(event.sequence);
            true
        })
        .expect("events");
    daemon.join().expect("daemon");
    assert_eq!(seen, [1, 2]);
}
