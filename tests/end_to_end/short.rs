//! One round trip in a few seconds.

use crate::contents::starts_with;
use crate::tools::{all_here, run};
use crate::world::World;

#[test]
fn short_data_outlives_two_members_a_stop_and_a_new_daemon() {
    if !all_here("short_data_outlives_two_members_a_stop_and_a_new_daemon", &["nbdcopy"]) {
        return;
    }
    let mut world = World::new();
    world.create("tank0", 6, &["--level", "6"]);
    let noise = world.noise("noise", 24 << 20);
    run("nbdcopy", &[noise.to_str().expect("text"), &world.uri("tank0")]);
    world.ok(&["fail", "tank0", "1"]);
    world.ok(&["fail", "tank0", "4"]);
    assert_eq!(world.array()["state"], "degraded");
    let read = |world: &World, name: &str| {
        let copy = world.path(name);
        run("nbdcopy", &[&world.uri("tank0"), copy.to_str().expect("text")]);
        copy
    };
    assert!(starts_with(&read(&world, "degraded"), &noise), "wrong with two members out");
    assert!(world.end().success());
    world.start(&["m0", "m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(world.array()["state"], "degraded");
    assert!(starts_with(&read(&world, "again"), &noise), "wrong after a new start");
}
