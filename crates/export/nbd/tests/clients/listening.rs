//! Sockets: permissions, stale paths, TCP, too many connections.

use crate::server::TestServer;
use crate::tools::run;
use ashlar_nbd::Limits;
use ashlar_session::{Listen, SessionLimits, listen};
use ashlar_volume::MemVolume;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;

#[test]
fn the_socket_has_the_permissions_that_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o660, 0o666] {
        let path = directory.path().join(format!("{mode:o}"));
        let _listener = listen(&Listen::Unix(path.clone(), mode)).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    drop(UnixListener::bind(&path).unwrap());
    let listener = listen(&Listen::Unix(path.clone(), 0o600)).unwrap();
    let second = listen(&Listen::Unix(path.clone(), 0o600));
    assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(listener);
    assert!(listen(&Listen::Unix(path, 0o600)).is_ok());
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, b"data").unwrap();
    assert!(listen(&Listen::Unix(path.clone(), 0o600)).is_err());
    assert_eq!(std::fs::read(path).unwrap(), b"data");
}

#[test]
fn tcp_clients_are_served() {
    let server = TestServer::on_tcp(|| vec![MemVolume::new("disk", 4 << 20)]);
    let size = run("nbdinfo", &["--size", &server.uri()]);
    assert_eq!(size.trim(), "4194304");
    run("qemu-io", &["-f", "raw", "-c", "write -P 3 0 4M", "-c", "read -P 3 0 4M", &server.uri()]);
    server.stop();
}

#[test]
fn one_connection_too_many_is_closed_at_once() {
    let limits = Limits::from(SessionLimits { sessions_max: 1, ..SessionLimits::default() });
    let server = TestServer::with_limits(limits, || vec![MemVolume::new("disk", 1 << 20)]);
    let mut first = UnixStream::connect(server.socket()).unwrap();
    first.read_exact(&mut [0; 18]).unwrap();
    let mut second = UnixStream::connect(server.socket()).unwrap();
    assert_eq!(second.read(&mut [0; 18]).unwrap(), 0);
    assert_eq!(server.counters.sessions.refused.load(Ordering::Relaxed), 1);
    drop(first);
    server.until(|server| server.counters.sessions.open.load(Ordering::Relaxed) == 0);
    UnixStream::connect(server.socket()).unwrap().read_exact(&mut [0; 18]).unwrap();
    server.stop();
}
