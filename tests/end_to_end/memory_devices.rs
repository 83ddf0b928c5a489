//! Arrays whose members are memory of the daemon: they work as others do, and what is lost is said
//! and never taken for something else.

use crate::raw_nbd::RawNbd;
use crate::world::World;

const FOUR: [&str; 4] = ["memory:64M"; 4];

fn refusal(world: &World, arguments: &[&str]) -> String {
    let output = world.run(arguments);
    assert!(!output.status.success(), "{arguments:?} was carried out");
    String::from_utf8(output.stderr).expect("text")
}

/// Whether the daemon says so; what it has said may not have been read yet.
fn says(world: &World, line: &str) -> bool {
    let is_said = || world.said.lock().expect("nobody panics with it").contains(line);
    (0..2400).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(if is_said() { 0 } else { 50 }));
        is_said()
    })
}

fn create(world: &World, name: &str, devices: &[&str]) -> String {
    world.ok(&[&["create", name, "--level", "6"], devices].concat())
}

#[test]
fn an_array_in_memory_keeps_its_data_until_the_daemon_ends() {
    let mut world = World::without_daemon();
    world.start(&[]);
    let told = create(&world, "t", &FOUR);
    assert!(told.contains("lost when the daemon ends"), "{told}");
    RawNbd::open(&world, "t").write(0, &[7; 4096]).expect("written");
    let status = world.ok(&["status"]);
    assert!(status.contains("all data is lost when the daemon ends"), "{status}");
    assert!(status.contains("memory devices: 4, 256 MiB of at most"), "{status}");

    let told = world.ok(&["stop", "t"]);
    assert!(told.contains("ashlar assemble memory:m1 memory:m2 memory:m3 memory:m4"), "{told}");
    let status = world.ok(&["status"]);
    assert!(status.contains("no running array has memory:m1 memory:m2"), "{status}");
    world.ok(&["assemble", "memory:m1", "memory:m2", "memory:m3", "memory:m4"]);
    assert_eq!(RawNbd::open(&world, "t").read(0, 4096), Ok(vec![7; 4096]));

    assert!(world.end().success());
    assert!(says(&world, "it was in memory and is gone now"));
    world.start(&[]);
    let told = refusal(&world, &["assemble", "memory:m1", "memory:m2", "memory:m3", "memory:m4"]);
    assert!(told.contains("this daemon has no memory device memory:m1"), "{told}");
    assert!(told.contains("is lost when their daemon ends; nothing was written"), "{told}");
    assert!(told.contains("ashlar create"), "{told}");
    assert!(world.end().success());
}

#[test]
fn a_memory_member_that_is_lost_is_replaced_by_another_and_by_nothing_else() {
    let mut world = World::without_daemon();
    world.start(&[]);
    world.sparse("drive", 64 << 20);
    create(&world, "t", &["memory:a:64M", "memory:b:64M", "memory:64M", "memory:64M"]);
    RawNbd::open(&world, "t").write(1 << 20, &[9; 4096]).expect("written");
    world.ok(&["fail", "t", "memory:a"]);
    let told = refusal(&world, &["replace", "t", "0", "drive"]);
    assert!(told.contains("drive is not memory"), "{told}");
    let told = refusal(&world, &["spare", "add", "memory:64M"]);
    assert!(told.contains("cannot be a spare"), "{told}");
    world.ok(&["replace", "t", "0", "memory:c:64M", "--wait"]);
    world.ok(&["fail", "t", "1"]);
    world.ok(&["fail", "t", "2"]);
    assert_eq!(RawNbd::open(&world, "t").read(1 << 20, 4096), Ok(vec![9; 4096]));
    assert!(world.end().success());
}

#[test]
fn mixtures_sizes_beyond_the_limit_and_memory_at_a_start_are_refused() {
    let mut world = World::without_daemon();
    let told = refusal(&world, &["serve", "memory:1G", "memory:1G"]);
    assert!(told.contains("memory:1G is a memory device") && told.contains("ashlar create"));
    // Arrays run all the same.
    world.start(&["--memory-devices", "15P"]);
    let told = world.ok(&["status"]);
    assert!(told.contains("more than this process may have"), "{told}");
    assert!(world.end().success());
    world.start(&["--memory-devices", "256M"]);
    world.sparse("drive", 64 << 20);
    let told = refusal(&world, &["create", "t", "-l", "5", "memory:64M", "memory:64M", "drive"]);
    assert!(told.contains("2 of 3 devices are memory"), "{told}");
    let told = refusal(&world, &["create", "t", "-l", "5", "memory:a", "memory:b", "memory:c"]);
    assert!(told.contains("has no memory device memory:a"), "{told}");
    let told = refusal(&world, &[&["create", "t", "-l", "6", "memory:64M"], &FOUR[..]].concat());
    assert!(told.contains("there are 256 MiB of at most 256 MiB"), "{told}");
    // What was refused, or only looked at, has taken nothing.
    world.ok(&[&["create", "t", "-l", "6", "--dry-run"], &FOUR[..]].concat());
    let status: serde_json::Value =
        serde_json::from_str(&world.ok(&["status", "--json"])).expect("JSON");
    assert_eq!(status["memory"]["devices"], serde_json::json!([]));
    assert_eq!(status["memory"]["limit_bytes"], 256 << 20);
    create(&world, "t", &FOUR);
    // Memory of a stopped array is erased by name alone.
    world.ok(&["stop", "t"]);
    let again = ["memory:m1", "memory:m2", "memory:m3", "memory:m4"];
    let told = refusal(&world, &[&["create", "u", "-l", "6"], &again[..]].concat());
    assert!(told.contains("--destroy"), "{told}");
    let destroy = again.map(|device| ["--destroy", device]).concat();
    world.ok(&[&["create", "u", "-l", "6"], &destroy[..], &again[..]].concat());
    assert!(world.end().success());
}
