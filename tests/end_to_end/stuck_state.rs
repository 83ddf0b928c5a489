//! The directory for state does not answer: it may lie on a volume of this very daemon that is
//! paused. Commands are answered all the same, those above all that end the pause.
//!
//! What was lost: what is remembered was written on the control thread, with a lock that `status`
//! takes. `stop --force`, the only way to end the wait, could not get through.

use crate::tools::{all_here, run, skipped};
use crate::world::World;
use std::process::{Command, Output};

/// A command that waits for the directory would wait for ever: it is given up after so many
/// seconds.
const ANSWER_MAX_S: &str = "60";

/// A file system of its own that can be frozen; let go at the end.
struct Frozen {
    device: String,
    place: String,
}

impl Frozen {
    fn new(world: &World) -> Frozen {
        world.sparse("disk", 64 << 20);
        let image = world.path("disk").display().to_string();
        run("mkfs.ext4", &["-q", &image]);
        let device = run("losetup", &["--find", "--show", &image]).trim().to_owned();
        let place = world.path("place").display().to_string();
        std::fs::create_dir(&place).expect("made");
        run("mount", &[&device, &place]);
        Frozen { device, place }
    }

    fn freeze(&self) {
        run("fsfreeze", &["--freeze", &self.place]);
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", &self.place]);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let quiet = |program: &str, arguments: &[&str]| {
            // It may be thawed, or gone, already.
            let _over = Command::new(program).args(arguments).output();
        };
        quiet("fsfreeze", &["--unfreeze", &self.place]);
        quiet("umount", &["--lazy", &self.place]);
        quiet("losetup", &["--detach", &self.device]);
    }
}

#[test]
fn a_directory_for_state_that_does_not_answer_holds_up_no_command() {
    let test = "a_directory_for_state_that_does_not_answer_holds_up_no_command";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to freeze a file system");
    }
    if !all_here(test, &["mkfs.ext4", "losetup", "mount", "fsfreeze", "timeout"]) {
        return;
    }
    let mut world = World::without_daemon();
    let frozen = Frozen::new(&world);
    let config = format!(
        "[start]\nremember = true\n[nvme_tcp]\nlisten = [\"127.0.0.1:{}\"]\n\
         trusted_network = true\nstate = \"{}/nvme\"\n",
        crate::tools::own_port(),
        frozen.place
    );
    std::fs::write(world.path("a.toml"), config).expect("written");
    world.start(&["--config", "a.toml", "--state", &format!("{}/state", frozen.place)]);
    world.create("tank0", 4, &["--level", "6"]);
    frozen.freeze();
    let timed = |arguments: &[&str]| -> Output {
        let own = world.command();
        let mut bounded = Command::new("timeout");
        bounded.arg(ANSWER_MAX_S).arg(own.get_program()).args(arguments);
        bounded.current_dir(world.folder.path());
        bounded.env("ASHLAR_SOCKET", world.path("control.sock"));
        let output = bounded.output().expect("timeout runs");
        assert_ne!(output.status.code(), Some(124), "no answer to {arguments:?}");
        output
    };
    // It holds, and the answer says that it cannot be remembered.
    let set = timed(&["set", "tank0", "job_floor=7MiB"]);
    let told = String::from_utf8_lossy(&set.stderr).into_owned();
    assert!(!set.status.success() && told.contains("cannot be remembered"), "{told}");
    assert!(told.contains("does not answer"), "{told}");
    assert!(timed(&["status"]).status.success());
    // Who comes after that does not wait.
    world.sparse("a", crate::world::MEMBER_BYTES);
    assert!(timed(&["spare", "add", "a"]).status.success());
    let stopped = timed(&["stop", "--force", "tank0"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(timed(&["status"]).status.success());
    frozen.thaw();
    assert!(world.end().success());
}
