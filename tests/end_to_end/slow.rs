//! A member that answers, but much later than its peers: it is told, and reads go around it.
//!
//! The member is the file of an NBD server that delays what it is asked. What must stay true: no
//! client sees an error or a wrong byte, and the member stays in sync.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Slot of the slow member.
const SLOT: usize = 1;

/// What is beneath the slow member.
struct Beneath {
    nbdkit: Child,
    nbdfuse: Child,
    file: String,
}

impl Beneath {
    fn new(world: &World) -> Beneath {
        let text = |name: &str| world.path(name).to_str().expect("text").to_owned();
        world.sparse("disk", 64 << 20);
        let mut nbdkit = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--filter=delay", "--pidfile"])
            .args([&text("nbdkit.pid"), "--unix", &text("beneath.sock"), "file", &text("disk")])
            .args(["rdelay=60ms", "wdelay=60ms"])
            .stdin(Stdio::null())
            .spawn()
            .expect("it runs");
        until_there(&world.path("nbdkit.pid"), &mut nbdkit);
        std::fs::create_dir(world.path("late")).expect("a folder");
        let file = text("late/member");
        let uri = format!("nbd+unix:///?socket={}", text("beneath.sock"));
        let mut nbdfuse = Command::new("nbdfuse")
            .args(["-P", &text("nbdfuse.pid"), &file, &uri])
            .stdin(Stdio::null())
            .spawn()
            .expect("it runs");
        until_there(&world.path("nbdfuse.pid"), &mut nbdfuse);
        Beneath { nbdkit, nbdfuse, file }
    }

    fn end(mut self, world: &World) {
        run("fusermount3", &["-u", world.path("late").to_str().expect("text")]);
        self.nbdfuse.wait().expect("it ends");
    }
}

/// Also after a test that failed: whoever waits for the end of its output would wait for these.
impl Drop for Beneath {
    fn drop(&mut self) {
        for child in [&mut self.nbdfuse, &mut self.nbdkit] {
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

fn until_there(file: &Path, server: &mut Child) {
    while !file.exists() {
        assert_eq!(server.try_wait().expect("a child"), None, "it ended early");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client that checks what it reads.
fn fio(world: &World, seconds: u32) {
    let (uri, runtime) = (format!("--uri={}", world.uri("tank0")), format!("--runtime={seconds}"));
    let load = ["--name=load", "--ioengine=nbd", &uri, "--rw=randrw", "--bs=4k", "--iodepth=32"];
    let check =
        ["--size=16m", "--verify=crc32c", "--verify_state_save=0", "--time_based", &runtime];
    run("fio", &[&load[..], &check].concat());
}

fn reads(world: &World) -> Vec<u64> {
    let array = world.array();
    let members = array["members"].as_array().expect("members");
    members.iter().map(|member| member["reads"].as_u64().expect("counted")).collect()
}

#[test]
fn a_slow_member_is_told_and_reads_of_clients_go_around_it() {
    let test = "a_slow_member_is_told_and_reads_of_clients_go_around_it";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skipped(test, "needs root and FUSE");
    }
    if !all_here(test, &["fio", "fusermount3", "nbdfuse", "nbdkit"]) {
        return;
    }
    let mut world = World::without_daemon();
    let config = "[tuning]\nslow_member = \"avoid\"\nslow_after_s = 6\n";
    std::fs::write(world.path("a.toml"), config).expect("write");
    world.start(&["--config", "a.toml"]);
    let beneath = Beneath::new(&world);
    let mut devices = world.members(6);
    devices[SLOT].clone_from(&beneath.file);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank0", "--level", "6"], &devices[..]].concat());

    // On a busy machine its peers are slow as well: as long as it takes, up to ten minutes.
    let told = || world.ok(&["events"]).matches("member.slow ").count();
    let rounds = (0..20).take_while(|_| told() == 0);
    rounds.for_each(|_| fio(&world, 30));
    assert_eq!(told(), 1, "{}", world.ok(&["events"]));
    let status = world.ok(&["status"]);
    assert!(status.contains("SLOW for"), "{status}");
    let member = &world.array()["members"][SLOT];
    assert_eq!(member["state"], "in_sync");
    assert!(member["slow"]["own_us"].as_u64() > Some(20_000), "{member}");

    // The client reads what is there already: nothing is read for writes.
    let before = reads(&world);
    let uri = format!("--uri={}", world.uri("tank0"));
    let load = ["--name=load", "--ioengine=nbd", &uri, "--rw=randread", "--bs=4k", "--iodepth=8"];
    run("fio", &[&load[..], &["--size=16m", "--time_based", "--runtime=5"]].concat());
    let after = reads(&world);
    let done: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(10 * done[SLOT] < done[SLOT + 1], "{done:?}");
    world.ok(&["scrub", "tank0", "--wait"]);
    world.ok(&["stop", "tank0"]);
    beneath.end(&world);
}
