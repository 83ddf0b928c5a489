//! The page at the metrics listener: what it says of a real array, and its stream of changes.
//!
//! What must stay true: the page only reads. A change is on the stream within seconds. Streams that
//! are left open keep out neither scrapes nor the end of the daemon.

use crate::tools::wait_for;
use crate::world::World;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Nothing on the stream for so long is a fault: frames are two seconds apart.
const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// A change must be among so many lines.
const LINES_MAX: usize = 1000;

/// A daemon with the listener and an array in memory; the port of the listener.
fn daemon() -> (World, u16) {
    let mut world = World::without_daemon();
    world.start(&["--metrics", "127.0.0.1:0"]);
    let mut create = vec!["create", "tank0", "--level", "6"];
    create.extend(["memory:64M"; 4]);
    world.ok(&create);
    let said = world.said();
    let line = said.lines().find_map(|line| line.split_once("page at http://127.0.0.1:"));
    let port = line.and_then(|(_, rest)| rest.strip_suffix('/'));
    let port = port.and_then(|port| port.parse().ok()).expect(&said);
    (world, port)
}

fn ask(port: u16, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(SEEN_WITHIN)).expect("a socket");
    let close = "host: a\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{request} HTTP/1.1\r\n{close}").as_bytes()).expect("sent");
    stream
}

fn answer(port: u16, request: &str) -> String {
    let mut text = String::new();
    ask(port, request).read_to_string(&mut text).expect("an answer");
    text
}

/// The first line of the stream that holds for `wanted`.
fn line(stream: &mut impl BufRead, wanted: impl Fn(&str) -> bool) -> String {
    let mut passed = String::new();
    for _ in 0..LINES_MAX {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("in time") > 0, "it ended: {passed}");
        if wanted(&line) {
            return line;
        }
        passed.push_str(&line);
    }
    panic!("not on the stream: {passed}");
}

#[test]
fn a_member_that_is_taken_out_is_on_the_page_and_on_the_stream() {
    let (mut world, port) = daemon();
    let page = answer(port, "GET /");
    let (head, body) = page.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let head = head.to_lowercase();
    for wanted in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(head.contains(wanted), "{wanted}: {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    assert!(body.contains("</svg>RIGHT</h1>") && body.contains("tank0 is clean."), "{body}");
    assert_eq!(body.matches("<li class=\"slot in-sync\">").count(), 4, "{body}");

    let mut live = BufReader::new(ask(port, "GET /live"));
    let status = line(&mut live, |_| true);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    line(&mut live, |line| line == "content-type: text/event-stream\r\n");
    line(&mut live, |line| line.starts_with("data: [") && line.contains("tank0 is clean."));
    world.ok(&["fail", "tank0", "2"]);
    let told = line(&mut live, |line| line.contains("tank0 is DEGRADED, slot 2 OUT."));
    assert!(told.contains("<li class=\\\"slot out\\\">"), "{told}");
    assert!(!told.contains("\"jobs-now\""), "what did not change is not sent again: {told}");
    let page = answer(port, "GET /");
    assert!(page.contains("</svg>DEGRADED</h1>") && page.contains("slot out"), "{page}");
    for request in ["POST /", "DELETE /", "POST /live", "PUT /metrics"] {
        assert!(answer(port, request).starts_with("HTTP/1.1 405"), "{request}");
    }
    // The stream is still open.
    assert!(world.end().success());
}

/// Whether the daemon has not ended it. What it has sent is passed over.
fn is_open(stream: &BufReader<TcpStream>) -> bool {
    let mut socket = stream.get_ref();
    socket.set_nonblocking(true).expect("a socket");
    loop {
        match socket.read(&mut [0; 4096]) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Ok(0) | Err(_) => return false,
        }
    }
}

#[test]
fn streams_that_nobody_closes_keep_out_neither_scrapes_nor_pages_nor_the_end() {
    let (mut world, port) = daemon();
    let held: Vec<_> = (0..60).map(|_| BufReader::new(ask(port, "GET /live"))).collect();
    let mut firsts = held.into_iter().map(|mut stream| {
        let mut status = String::new();
        // Those that made room for a newer one were ended.
        let _ended = stream.read_line(&mut status);
        (status, stream)
    });
    let (streams, others): (Vec<_>, Vec<_>) =
        firsts.by_ref().partition(|(status, _)| status.starts_with("HTTP/1.1 200"));
    // One that had begun may have made room, too.
    let open = || streams.iter().filter(|(_, stream)| is_open(stream)).count();
    wait_for("eight streams at most", || open() <= 8);
    assert!(open() > 0, "no stream goes on");
    assert!(others.iter().any(|(status, _)| status.starts_with("HTTP/1.1 503")), "{others:?}");
    for _ in 0..20 {
        assert!(answer(port, "GET /metrics").ends_with("# EOF\n"));
    }
    assert!(answer(port, "GET /").contains("</html>"));
    assert!(world.end().success());
    drop(streams);
}
