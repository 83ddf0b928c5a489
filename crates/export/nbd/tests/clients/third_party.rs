//! What libnbd's tools, QEMU and fio make of the server.

use crate::server::TestServer;
use crate::tools::{nbdsh, run};
use ashlar_units::Extent;
use ashlar_volume::MemVolume;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

/// Bytes that differ from place to place, in a file.
fn write_pattern(path: &std::path::Path, bytes: u64) -> Vec<u8> {
    let words = (0..bytes / 8).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let content: Vec<u8> = words.flatten().collect();
    std::fs::write(path, &content).unwrap();
    content
}

#[test]
fn nbdinfo_sees_size_flags_and_block_sizes() {
    let server = TestServer::with_disk(64 * MIB);
    let info = run("nbdinfo", &["--json", &server.uri()]);
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"disk\"",
        "\"export-size\": 67108864",
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 65536",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(info.contains(expected), "{expected} is not in {info}");
    }
    server.stop();
}

#[test]
fn nbdinfo_lists_all_volumes() {
    let server =
        TestServer::start(|| vec![MemVolume::new("one", MIB), MemVolume::new("two", 2 * MIB)]);
    let list = run("nbdinfo", &["--list", &server.uri()]);
    assert!(list.contains("export=\"one\"") && list.contains("export=\"two\""), "{list}");
    let socket = server.socket();
    let size = run("nbdinfo", &["--size", &format!("nbd+unix:///two?socket={}", socket.display())]);
    assert_eq!(size.trim(), "2097152");
    server.stop();
}

#[test]
fn nbdinfo_maps_holes() {
    let server = TestServer::with_disk(16 * MIB);
    nbdsh(
        &server.uri(),
        "h.connect_uri(uri)\nh.pwrite(b'x' * 65536, 1048576)\nh.pwrite(b'y' * 4096, 8388608)\n",
    );
    let map = run("nbdinfo", &["--map", &server.uri()]);
    let lines: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    let runs: Vec<_> = lines.iter().map(|words| (words[0], words[1], words[2])).collect();
    let expected = [
        ("0", "1048576", "3"),
        ("1048576", "65536", "0"),
        ("1114112", "7274496", "3"),
        ("8388608", "4096", "0"),
        ("8392704", "8384512", "3"),
    ];
    assert_eq!(runs, expected, "{map}");
    server.stop();
}

#[test]
fn nbdcopy_over_several_connections_brings_every_byte_there_and_back() {
    let server = TestServer::with_disk(64 * MIB);
    let (source, copy) = (server.path("source"), server.path("copy"));
    let content = write_pattern(&source, 64 * MIB);
    let arguments = ["--connections=4", "--requests=64", "--flush"];
    let uri = server.uri();
    run("nbdcopy", &[&arguments[..], &[source.to_str().unwrap(), &uri]].concat());
    run("nbdcopy", &[&arguments[..], &[&uri, copy.to_str().unwrap()]].concat());
    assert!(std::fs::read(copy).unwrap() == content, "the copy differs");
    assert!(server.counters.flushes.load(Ordering::Relaxed) > 0);
    assert_eq!(server.counters.written_bytes.load(Ordering::Relaxed), 64 * MIB);
    server.stop();
}

#[test]
fn requests_of_32_mib_work_in_both_reply_dialects() {
    for structured in ["True", "False"] {
        let server = TestServer::with_disk(48 * MIB);
        let script = "
import os
n = 32 * 1024 * 1024
data = os.urandom(n)
h.set_request_structured_replies(STRUCTURED)
h.connect_uri(uri)
assert h.get_structured_replies_negotiated() == STRUCTURED
h.pwrite(data, 1024 * 1024 + 512)
small = [h.aio_pread(nbd.Buffer(4096), i * 4096) for i in range(8)]
assert h.pread(n, 1024 * 1024 + 512) == data
h.pwrite(data[:3 * 1024 * 1024], 0, nbd.CMD_FLAG_FUA)
assert h.pread(3 * 1024 * 1024, 0) == data[:3 * 1024 * 1024]
h.shutdown()
";
        nbdsh(&server.uri(), &script.replace("STRUCTURED", structured));
        server.until(|server| !server.ends.lock().unwrap().is_empty());
        assert_eq!(*server.ends.lock().unwrap(), ["Disconnected"]);
        assert!(server.counters.read_bytes.load(Ordering::Relaxed) >= 35 * MIB);
        server.stop();
    }
}

#[test]
fn every_command_does_what_it_says() {
    let server = TestServer::with_disk(8 * MIB);
    let script = "
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(uri)
M = 1024 * 1024
h.pwrite(b'a' * M, 0)
h.flush()
h.zero(65536, 65536, nbd.CMD_FLAG_FUA)
assert h.pread(65536, 65536) == bytearray(65536)
h.zero(65536, 131072, nbd.CMD_FLAG_FAST_ZERO)
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)
h.trim(65536, 196608, nbd.CMD_FLAG_FUA)
h.cache(M, 0)
got = []
h.pread_structured(4096, 0, lambda data, at, status, error: got.append(bytes(data)), \
    nbd.CMD_FLAG_DF)
assert got == [b'a' * 4096]
seen = []
h.block_status(M, 0, lambda context, at, entries, error: seen.append((context, entries)))
assert seen == [('base:allocation', [65536, 0, 196608, 3, 786432, 0])], seen
seen = []
h.block_status(M, 0, lambda context, at, entries, error: seen.append(entries), nbd.CMD_FLAG_REQ_ONE)
assert seen == [[65536, 0]], seen
try:
    h.zero(4096, 4096, nbd.CMD_FLAG_FAST_ZERO)
    assert False, 'a part of a stripe is not fast to zero'
except nbd.Error as error:
    assert error.errno == 'ENOTSUP', error.errno
";
    nbdsh(&server.uri(), script);
    server.stop();
}

#[test]
fn wrong_requests_get_their_errors_and_the_session_goes_on() {
    let server = TestServer::with_disk(8 * MIB);
    let script = "
h.set_strict_mode(0)
h.connect_uri(uri)
S = h.get_size()
def fails(errno, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errno == errno, (error.errno, errno, arguments)
        return
    assert False, arguments
fails('ENOSPC', h.pwrite, b'x' * 4096, S)
fails('ENOSPC', h.pwrite, b'x' * 2097152, S - 4096)
fails('ENOSPC', h.zero, 4096, S)
fails('EINVAL', h.pread, 4096, S)
fails('EINVAL', h.pread, 512, 100)
fails('EINVAL', h.pwrite, b'x' * 100, 0)
fails('EINVAL', h.trim, 4096, S - 512)
fails('EINVAL', h.cache, 4096, S)
fails('EINVAL', h.pread, 4096, 0, 64)
fails('EINVAL', h.pwrite, b'x' * 4096, 0, 2)
fails('EOVERFLOW', h.pread, 2097152, 0, nbd.CMD_FLAG_DF)
h.pwrite(b'good' * 1024, S - 4096)
assert h.pread(4096, S - 4096) == b'good' * 1024
";
    nbdsh(&server.uri(), script);
    assert_eq!(server.counters.errors.load(Ordering::Relaxed), 11);
    server.stop();
}

#[test]
fn an_unreadable_block_fails_its_read_and_tells_where() {
    let server = TestServer::start(|| {
        let volume = MemVolume::new("disk", 8 * MIB);
        volume.fail_at(Extent::new(2 * MIB + 4096, 4096));
        vec![volume]
    });
    let script = "
h.connect_uri(uri)
M = 1024 * 1024
seen = {}
def part(data, offset, status, error):
    seen[offset] = (len(data), status, error.value)
try:
    h.pread_structured(4 * M, 0, part)
    assert False, 'one piece of four cannot be read'
except nbd.Error as error:
    assert error.errno == 'EIO', error.errno
assert seen[0][0] == M and seen[M][0] == M and seen[3 * M][0] == M, seen
assert seen[2 * M][1] == nbd.READ_ERROR, seen
assert len(h.pread(M, 0)) == M
";
    nbdsh(&server.uri(), script);
    let simple = "
h.set_request_structured_replies(False)
h.connect_uri(uri)
for length, is_dead in [(4096, False), (4 * 1048576, True)]:
    try:
        h.pread(length, 2 * 1048576 + 4096 if not is_dead else 0)
        assert False, length
    except nbd.Error:
        pass
    assert h.aio_is_dead() == is_dead or h.aio_is_closed() == is_dead, length
";
    nbdsh(&server.uri(), simple);
    server.stop();
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let server = TestServer::start(|| {
        let volume = MemVolume::new("disk", MIB);
        volume.set_read_only();
        vec![volume]
    });
    let script = "
h.set_strict_mode(0)
h.connect_uri(uri)
assert h.is_read_only()
for change in [lambda: h.pwrite(b'x' * 4096, 0), lambda: h.trim(4096, 0), lambda: h.zero(4096, 0)]:
    try:
        change()
        assert False
    except nbd.Error as error:
        assert error.errno == 'EPERM', error.errno
h.pread(4096, 0)
";
    nbdsh(&server.uri(), script);
    server.stop();
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let server = TestServer::with_disk(32 * MIB);
    let (source, back) = (server.path("source.raw"), server.path("back.qcow2"));
    let mut content = write_pattern(&source, 8 * MIB);
    content.resize(32 << 20, 0);
    std::fs::write(&source, &content).unwrap();
    let (source, back, uri) = (source.to_str().unwrap(), back.to_str().unwrap(), server.uri());
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-m", "8", "-W", source, &uri]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri]);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri]);
    assert!(map.contains("\"start\": 8388608, \"length\": 25165824"), "{map}");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, back]);
    run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", back, source]);
    server.stop();
}

#[test]
fn qemu_io_patterns_hold() {
    let server = TestServer::with_disk(16 * MIB);
    let commands = [
        "write -P 0x5a 1M 3M",
        "read -P 0x5a 1M 3M",
        "write -f -P 0x11 2M 64k",
        "read -P 0x11 2M 64k",
        "discard 3M 512k",
        "write -z -u 1M 256k",
        "read -P 0 1M 256k",
        "aio_write -P 0x77 8M 1M",
        "aio_flush",
        "read -P 0x77 8M 1M",
        "flush",
    ];
    let uri = server.uri();
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", *command]));
    arguments.push(&uri);
    let text = run("qemu-io", &arguments);
    assert!(!text.contains("Pattern verification failed"), "{text}");
    server.stop();
}

#[test]
fn fio_verifies_mixed_sizes_at_depth() {
    let server = TestServer::with_disk(48 * MIB);
    let uri = format!("--uri={}", server.uri());
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=4k-128k",
        "--ba=4k",
        "--iodepth=32",
        "--size=48M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randseed=7",
    ];
    let text = run("fio", &arguments);
    assert!(text.contains("err= 0"), "{text}");
    server.stop();
}
