//! An array on a volume of the same daemon.
//!
//! Its end waited for itself: the lower array could not stop while the upper one had its volume.

use crate::tools::{all_here, run, skipped};
use crate::world::World;

const FOLDER: &str = "volumes";

fn daemon() -> World {
    let mut world = World::without_daemon();
    world.start(&["--fuse", world.path(FOLDER).to_str().expect("text")]);
    world
}

fn is_root_with_fuse(test: &str) -> bool {
    let has_all = rustix::process::geteuid().is_root()
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|it| std::path::Path::new(it).exists());
    if !has_all {
        skipped(test, "needs root, fuse and loop devices");
    }
    has_all && all_here(test, &["losetup", "mkfs.ext4", "mount"])
}

#[test]
fn a_volume_of_this_daemon_is_no_member_by_whatever_way() {
    let test = "a_volume_of_this_daemon_is_no_member_by_whatever_way";
    if !is_root_with_fuse(test) {
        return;
    }
    let mut world = daemon();
    world.members(5);
    world.ok(&["create", "lower", "--level", "5", "m0", "m1", "m2"]);
    let file = world.ok(&["attach", "lower", "--file"]).trim().to_owned();
    let device = run("losetup", &["--find", "--show", &file]).trim().to_owned();
    let link = world.path("link").display().to_string();
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    for path in [&file, &link, &device] {
        for arguments in [
            &["create", "upper", "--level", "1", "m3", path, "--destroy", path][..],
            &["create", "upper", "--level", "1", "m3", path, "--destroy", path, "--dry-run"],
            &["assemble", path],
            &["spare", "add", path, "--destroy", path],
            &["replace", "lower", "1", path, "--destroy", path],
        ] {
            let line = world.refused(arguments);
            assert!(line.contains("a volume of this daemon"), "{arguments:?}: {line}");
        }
    }
    // A file on a file system on it lies there, too.
    run("mkfs.ext4", &["-q", "-F", &device]);
    let folder = world.path("on");
    std::fs::create_dir(&folder).expect("made");
    run("mount", &[&device, folder.to_str().expect("text")]);
    world.sparse("on/member", 16 << 20);
    let line = world.refused(&["create", "upper", "--level", "1", "m3", "on/member"]);
    run("umount", &[folder.to_str().expect("text")]);
    run("losetup", &["--detach", &device]);
    assert!(line.contains("lies on a volume of this daemon"), "{line}");
    world.ok(&["create", "other", "--level", "1", "m3", "m4"]);
    world.ok(&["detach", "lower"]);
    assert!(world.end().success());
}
