//! Clients that know nothing of us, over both exports, with members lost while they work.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[test]
fn qemu_img_finds_its_image_again_with_two_members_out() {
    if !all_here("qemu_img_finds_its_image_again_with_two_members_out", &["qemu-img"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 6, &["--level", "6"]);
    let noise = world.noise("noise", 16 << 20);
    let (noise, uri) = (noise.to_str().expect("text"), world.uri("tank0"));
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", noise, &uri]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", noise, &uri]);
    world.ok(&["fail", "tank0", "0"]);
    world.ok(&["fail", "tank0", "5"]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", noise, &uri]);
}

#[test]
fn qemu_io_reads_back_patterns_zeros_and_discards_while_members_go() {
    let test = "qemu_io_reads_back_patterns_zeros_and_discards_while_members_go";
    if !all_here(test, &["qemu-io"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 6, &["--level", "6", "--strip-size", "16K"]);
    let uri = world.uri("tank0");
    let qemu_io = |commands: &[&str]| {
        let commands: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        let said = run("qemu-io", &[&commands[..], &["-f", "raw", &uri]].concat());
        assert!(!said.contains("Pattern verification failed"), "{said}");
    };
    let checks =
        ["read -P 0x5a 1M 3M", "read -P 0xa5 5000 9000", "read -P 0 8M 1M", "read -P 0 12M 1M"];
    qemu_io(&["write -P 0x5a 1M 3M", "write -P 0xa5 5000 9000", "write -P 1 8M 5M", "flush"]);
    qemu_io(&["write -z 8M 1M", "discard 12M 1M", "flush"]);
    qemu_io(&checks);
    world.ok(&["fail", "tank0", "2"]);
    qemu_io(&checks);
    qemu_io(&["write -P 0x5a 1M 3M", "write -z -u 8M 1M"]);
    world.ok(&["fail", "tank0", "3"]);
    qemu_io(&checks);
}

#[test]
fn what_a_client_discards_becomes_holes_in_the_members_if_the_daemon_is_told_so() {
    let test = "what_a_client_discards_becomes_holes_in_the_members_if_the_daemon_is_told_so";
    if !all_here(test, &["qemu-io"]) {
        return;
    }
    for pass in [false, true] {
        let mut world = World::without_daemon();
        let config = format!("[tuning]\npass_discards = {pass}\n");
        std::fs::write(world.path("a.toml"), config).expect("write");
        world.start(&["--config", "a.toml"]);
        let members = world.create("tank0", 6, &["--level", "6", "--strip-size", "16K"]);
        let uri = world.uri("tank0");
        let qemu_io = |commands: &[&str]| {
            let commands: Vec<&str> = commands.iter().flat_map(|it| ["-c", it]).collect();
            let said = run("qemu-io", &[&commands[..], &["-f", "raw", &uri]].concat());
            assert!(!said.contains("Pattern verification failed"), "{said}");
        };
        let allocated = || -> u64 {
            let blocks = |name: &String| world.path(name).metadata().expect("there").blocks();
            members.iter().map(blocks).sum::<u64>() * 512
        };
        let discarded = || world.array()["counters"]["discarded_bytes"].as_u64().expect("counted");
        qemu_io(&["write -P 0x5a 0 24M", "flush"]);
        let before = allocated();
        world.ok(&["fail", "tank0", "5"]);
        qemu_io(&["discard 8M 16M", "flush"]);
        // Five of six members are there, and 16 MiB of data are 24 MiB on six.
        while pass && discarded() < 20 << 20 {
            std::thread::yield_now();
        }
        let freed = before.saturating_sub(allocated());
        assert_eq!(freed >= 19 << 20, pass, "{freed} bytes of {before} are free again");
        qemu_io(&["read -P 0x5a 0 8M", "read -P 0 8M 16M", "write -P 0xa5 9M 4096"]);
        world.ok(&["fail", "tank0", "1"]);
        qemu_io(&["read -P 0x5a 0 8M", "read -P 0 8M 1M", "read -P 0xa5 9M 4096"]);
        qemu_io(&["read -P 0 9441280 14M"]);
    }
}

#[test]
fn nbdsh_sees_what_the_protocol_promises() {
    if !all_here("nbdsh_sees_what_the_protocol_promises", &["nbdsh"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 5, &["--level", "5"]);
    let script = "\
assert h.can_fua() and h.can_flush() and h.can_multi_conn() and h.can_trim() and h.can_zero()
h.pwrite(b'a' * 4096, 65536, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 65536) == b'a' * 4096
h.zero(4096, 65536)
assert h.pread(8192, 65536) == bytes(8192)
try:
    h.pread(4096, h.get_size())
    assert False
except nbd.Error as error:
    assert error.errnum == 22
h.flush()";
    run("nbdsh", &["-u", &world.uri("tank0"), "-c", script]);
}

#[test]
fn fio_verifies_every_block_while_members_are_failed() {
    if !all_here("fio_verifies_every_block_while_members_are_failed", &["fio"]) {
        return;
    }
    let world = World::new();
    world.create("tank0", 7, &["--level", "7.3"]);
    let uri = format!("--uri={}", world.uri("tank0"));
    std::thread::scope(|scope| {
        let fio = scope.spawn(|| {
            run(
                "fio",
                &[
                    "--name=verify",
                    "--ioengine=nbd",
                    &uri,
                    "--rw=randwrite",
                    "--bsrange=4k-128k",
                    "--iodepth=16",
                    "--size=96M",
                    "--verify=crc32c",
                    "--do_verify=1",
                    "--verify_state_save=0",
                    "--randrepeat=1",
                    "--rate=48M",
                ],
            )
        });
        for slot in ["1", "4", "6"] {
            std::thread::sleep(std::time::Duration::from_millis(500));
            world.ok(&["fail", "tank0", slot]);
        }
        fio.join().expect("no error and every block right");
    });
    assert_eq!(world.array()["tolerates"], 0);
    assert_eq!(world.array()["counters"]["errors"], 0);
}

/// What makes a file system, and how its check is called.
const FILE_SYSTEMS: [(&str, &[&str], &[&str]); 3] = [
    ("mkfs.xfs", &["-q", "-f"], &["xfs_repair", "-n"]),
    ("mkfs.ext4", &["-q", "-F"], &["e2fsck", "-f", "-n"]),
    ("mkfs.btrfs", &["-q", "-f"], &["btrfs", "check"]),
];

#[test]
fn file_systems_live_on_an_attached_volume_through_two_losses() {
    let test = "file_systems_live_on_an_attached_volume_through_two_losses";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skipped(test, "needs root and loop devices");
    }
    let programs =
        ["mkfs.xfs", "mkfs.ext4", "mkfs.btrfs", "xfs_repair", "e2fsck", "btrfs", "mount"];
    if !all_here(test, &programs) {
        return;
    }
    for (make, options, check) in FILE_SYSTEMS {
        let world = World::new();
        world.create_of(128 << 20, 6, &["--level", "6"]);
        let device = world.ok(&["attach", "tank0"]);
        let device = device.trim();
        run(make, &[options, &[device]].concat());
        let place = world.path("mounted");
        std::fs::create_dir_all(&place).expect("folder");
        let place = place.to_str().expect("text");
        let noise = world.noise("noise", 40 << 20);
        run("mount", &[device, place]);
        let copy = world.path("mounted/copy");
        run("cp", &[noise.to_str().expect("text"), copy.to_str().expect("text")]);
        world.ok(&["fail", "tank0", "0"]);
        run("sync", &["-f", place]);
        world.ok(&["fail", "tank0", "3"]);
        assert!(world.refused(&["detach", "tank0"]).contains("is mounted"));
        run("umount", &[place]);
        run("mount", &[device, place]);
        assert!(
            std::fs::read(&copy).expect("read") == std::fs::read(&noise).expect("read"),
            "{make}"
        );
        run("umount", &[place]);
        run(check[0], &[&check[1..], &[device]].concat());
        world.ok(&["detach", "tank0"]);
        world.ok(&["stop", "tank0"]);
    }
}
