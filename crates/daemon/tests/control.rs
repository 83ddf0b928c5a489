//! The control socket from outside: a real client, real requests, and a backend of a few lines.

mod rehearsal;

use ashlar_api::v1::array::{Create, Stop};
use ashlar_api::v1::member::Fail;
use ashlar_api::v1::status::GetStatus;
use ashlar_api::{Client, ClientError, codes};
use ashlar_daemon::control;
use ashlar_daemon::peer::PeerLimits;
use ashlar_layout::Level;
use rehearsal::Rehearsal;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A control server on a thread of its own; it ends with the test's process.
fn serve() -> (tempfile::TempDir, PathBuf, Client) {
    let (folder, socket, client, _) = serve_within(PeerLimits::default());
    (folder, socket, client)
}

/// The same with limits, and what it keeps books in.
fn serve_within(limits: PeerLimits) -> (tempfile::TempDir, PathBuf, Client, Rehearsal) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("control.sock");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let gate = runtime.block_on(async { control::listen(&socket).expect("listen") });
    let backend = Rehearsal::default();
    let own = backend.clone();
    std::thread::spawn(move || {
        let answering = control::answer(gate.with_limits(limits), own);
        runtime.block_on(answering).expect("serve");
    });
    let client = Client::new(&socket).expect("client");
    (folder, socket, client, backend)
}

fn create(name: &str) -> Create {
    let text = format!(r#"{{"name": "{name}", "level": "6", "devices": ["a", "b", "c", "d"]}}"#);
    serde_json::from_str(&text).expect("request")
}

#[test]
fn a_request_reaches_the_backend_and_its_answer_comes_back() {
    let (_folder, _, client) = serve();
    let created = client.call(&create("tank0")).expect("created");
    assert!(created.changed && created.volume_bytes > 0);
    let status = client.call(&GetStatus {}).expect("status");
    assert_eq!((status.arrays[0].name.as_str(), status.arrays[0].level), ("tank0", Level::Raid6));
    assert!(
        client.call(&Stop { array: "tank0".to_owned(), force: false }).expect("stopped").changed
    );
    assert!(client.call(&GetStatus {}).expect("status").arrays.is_empty());
}

#[test]
fn a_refusal_keeps_its_code_through_the_socket() {
    let (_folder, _, client) = serve();
    let error =
        client.call(&Stop { array: "gone".to_owned(), force: false }).expect_err("no such array");
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.code == codes::ARRAY_UNKNOWN));
    client.call(&create("tank0")).expect("created");
    let fail = Fail { array: "tank0".to_owned(), member: "9".to_owned() };
    let error = client.call(&fail).expect_err("no such slot");
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.code == "member.unknown"));
}

/// Send bytes as they are and return the whole answer.
fn raw(socket: &PathBuf, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connect");
    stream.write_all(request.as_bytes()).expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn post(path: &str, body: &str) -> String {
    let bytes = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n\
         {body}"
    )
}

#[test]
fn a_body_that_is_not_exactly_a_request_is_refused_and_nothing_is_done() {
    let (_folder, socket, client) = serve();
    let misspelt = r#"{"name": "a", "level": "6", "devices": ["a"], "striip_bytes": 4096}"#;
    for (body, says) in [
        (misspelt, "unknown field `striip_bytes`"),
        (r#"{"name": "a"}"#, "missing field"),
        (r#"{"name": "a", "level": "4", "devices": []}"#, "'4' is not a level"),
        ("{", "EOF"),
        ("", "EOF"),
    ] {
        let answer = raw(&socket, &post("/v1/arrays/create", body));
        assert!(answer.starts_with("HTTP/1.1 400"), "{body}: {answer}");
        assert!(
            answer.contains(says) && answer.contains(codes::REQUEST_MALFORMED),
            "{body}: {answer}"
        );
    }
    assert!(client.call(&GetStatus {}).expect("status").arrays.is_empty());
}

#[test]
fn unknown_paths_and_wrong_methods_are_refused_in_json() {
    let (_folder, socket, _) = serve();
    for request in [
        post("/v1/arrays/shrink", "{}"),
        post("/v2/status", "{}"),
        "GET /v1/arrays/create HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_owned(),
    ] {
        let answer = raw(&socket, &request);
        assert!(answer.contains(codes::REQUEST_UNKNOWN), "{request}: {answer}");
    }
}

#[test]
fn who_asks_for_a_change_is_in_the_books_and_who_looks_is_not() {
    let (_folder, socket, client, backend) = serve_within(PeerLimits::default());
    client.call(&create("tank0")).expect("created");
    client.call(&GetStatus {}).expect("status");
    client.call(&Stop { array: "gone".to_owned(), force: false }).expect_err("no such array");
    raw(&socket, &post("/v1/arrays/create", "{"));
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let line = |path: &str, answer: &str| {
        let pid = std::process::id();
        format!("control.called request={path} uid={uid} gid={gid} pid={pid} answer={answer}")
    };
    let wanted = [
        line("/v1/arrays/create", "done"),
        line("/v1/arrays/stop", codes::ARRAY_UNKNOWN),
        line("/v1/arrays/create", codes::REQUEST_MALFORMED),
    ];
    assert_eq!(backend.asked(), wanted);
}

#[test]
fn a_body_that_is_too_long_is_refused_and_nothing_is_done() {
    let limits = PeerLimits { body_bytes: 4096, ..PeerLimits::default() };
    let (_folder, socket, client, _) = serve_within(limits);
    let body = format!(r#"{{"name": "a", "level": "6", "devices": ["{}"]}}"#, "d".repeat(4096));
    let answer = raw(&socket, &post("/v1/arrays/create", &body));
    assert!(answer.contains(codes::REQUEST_MALFORMED) && answer.contains("4096"), "{answer}");
    assert!(client.call(&GetStatus {}).expect("status").arrays.is_empty());
}

/// Sends `begun` and then nothing more; returns what came back before the daemon closed the
/// connection.
fn stalled(socket: &PathBuf, begun: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connect");
    stream.write_all(begun.as_bytes()).expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is closed by the other side");
    answer
}

#[test]
fn a_client_that_stalls_is_closed_and_one_that_follows_events_is_not() {
    let short = Duration::from_secs(2);
    let limits = PeerLimits { head_time: short, body_time: short, ..PeerLimits::default() };
    let (_folder, socket, client, _) = serve_within(limits);
    client.call(&create("tank0")).expect("created");
    let follower = Client::new(&socket).expect("client");
    let mut seen = 0;
    follower
        .events(true, |_| {
            seen += 1;
            if seen == 1 {
                // Each of these lasts as long as a connection may be silent, and the follower is
                // silent meanwhile.
                for begun in ["", "GET /v1/stat", "GET /v1/status HTTP/1.1\r\nhost: a\r\n"] {
                    assert_eq!(stalled(&socket, begun), "", "{begun}");
                }
                let head = "POST /v1/arrays/stop HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{";
                assert!(stalled(&socket, head).contains("did not come within"));
                client.call(&Stop { array: "tank0".to_owned(), force: false }).expect("stopped");
            }
            seen < 2
        })
        .expect("events");
    assert_eq!(seen, 2);
}

#[test]
fn one_connection_too_many_takes_the_seat_of_the_oldest_that_is_idle() {
    let limits = PeerLimits { connections: 3, ..PeerLimits::default() };
    let (_folder, socket, client, _) = serve_within(limits);
    let mut held: Vec<UnixStream> = Vec::new();
    let request = "GET /v1/status HTTP/1.1\r\nhost: a\r\n\r\n";
    for _ in 0..4 {
        let mut stream = UnixStream::connect(&socket).expect("connect");
        stream.write_all(request.as_bytes()).expect("write");
        // It is there once it has been answered.
        assert!(stream.read(&mut [0; 4096]).expect("an answer") > 0);
        held.push(stream);
    }
    let ended = held[0].read(&mut [0; 64]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    held[1].write_all(request.as_bytes()).expect("write");
    assert!(held[1].read(&mut [0; 4096]).expect("an answer") > 0);
    client.call(&GetStatus {}).expect("who comes gets in");
}

#[test]
fn a_follower_sees_what_was_and_then_what_happens() {
    let (_folder, socket, client) = serve();
    client.call(&create("tank0")).expect("created");
    let follower = Client::new(&socket).expect("client");
    let mut seen = Vec::new();
    follower
        .events(true, |event| {
            seen.push((event.sequence, event.name));
            if seen.len() == 1 {
                client.call(&Stop { array: "tank0".to_owned(), force: false }).expect("stopped");
            }
            seen.len() < 2
        })
        .expect("events");
    assert_eq!(seen, [(1, "array.created".to_owned()), (2, "array.stopped".to_owned())]);
}

#[test]
fn the_socket_is_for_owner_and_group_and_is_not_taken_from_a_living_daemon() {
    let (_folder, socket, _) = serve();
    let mode = std::fs::metadata(&socket).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let taken = control::listen(&socket).expect_err("somebody answers there");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        let file = socket.with_file_name("file");
        std::fs::write(&file, "precious").expect("write");
        control::listen(&file).expect_err("a file is there");
        assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
        let left = socket.with_file_name("left.sock");
        drop(std::os::unix::net::UnixListener::bind(&left).expect("bind"));
        control::listen(&left).expect("a dead daemon's socket is replaced");
    });
}

#[test]
fn metrics_are_sound_openmetrics() {
    let (_folder, _, client) = serve();
    client.call(&create("tank0")).expect("created");
    let text = client.metrics().expect("metrics");
    assert!(text.ends_with("# EOF\n"));
    let mut family = "";
    let mut families = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            family = declared.split(' ').next().expect("a name");
            assert!(families.insert(family), "{family} is declared twice");
        } else if !line.starts_with("# HELP ") {
            let name = line.split('{').next().expect("a name");
            assert!(name.starts_with(family), "{line} does not belong to {family}");
            let value = line.rsplit(' ').next().expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(
        text.contains("ashlar_array_state{array=\"tank0\",ashlar_array_state=\"clean\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("ashlar_array_full_stripe_writes_total{array=\"tank0\"} 0\n"), "{text}");
    assert!(text.contains("ashlar_array_parity_only_records_total{array=\"tank0\"} 0\n"), "{text}");
    for sample in [
        "ashlar_array_stripes{array=\"tank0\",losses=\"0\"} 7\n",
        "ashlar_array_stripes{array=\"tank0\",losses=\"2\"} 90\n",
        "ashlar_array_stripes_beyond_parity{array=\"tank0\"} 3\n",
        "ashlar_array_critical_left_seconds{array=\"tank0\"} 42\n",
    ] {
        assert!(text.contains(sample), "{sample} {text}");
    }
    assert!(text.contains("ashlar_start_put_back{array=\"tank0\"} 5\n"), "{text}");
    assert!(text.contains("ashlar_start_rows_left{array=\"tank0\"} 2\n"), "{text}");
}
