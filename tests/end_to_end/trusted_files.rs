//! Files that another user may have changed: a device's path while the daemon looks at it,
//! configuration, keys and authorities; and names with misleading characters.

use crate::certificates::{Authority, PROGRAM, Role};
use crate::contents::lacks;
use crate::tools::{all_here, run, skipped};
use crate::world::{MEMBER_BYTES, World};
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// A user who is nobody here.
const STRANGER: u32 = 65_534;

/// A program in the place of `wipefs`, for the daemon alone, that swaps the path of a device once
/// it has looked.
const SWAP: &str = "#!/bin/sh
./own-wipefs \"$@\"
for device; do :; done
case $(readlink -f \"$device\") in */m1) mv m1 looked-at && mv victim m1 ;; esac
";

/// Once the device was looked at by its path, and opened by it afterwards: what was swapped in
/// between was overwritten.
#[test]
fn a_device_whose_path_is_swapped_while_it_is_looked_at_is_not_written_to() {
    let test = "a_device_whose_path_is_swapped_while_it_is_looked_at_is_not_written_to";
    if !Path::new("/usr/sbin/wipefs").exists() || !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root and a wipefs to look with");
    }
    let mut world = World::without_daemon();
    world.members(4);
    world.sparse("victim", MEMBER_BYTES);
    let victim = std::fs::File::options().write(true).open(world.path("victim")).expect("ours");
    for at in (0..MEMBER_BYTES).step_by(1 << 20) {
        victim.write_all_at(&[0x77; 4096], at).expect("written");
    }
    let before = std::fs::read(world.path("victim")).expect("read");
    let program = with_wipefs(&world, SWAP);
    world.start_by(program, &[]);
    let created = world.run(&["create", "tank0", "-l", "5", "m0", "m1", "m2", "m3"]);
    assert!(!world.path("victim").exists(), "nothing was swapped: {created:?}");
    let after = std::fs::read(world.path("m1")).expect("read");
    assert!(after == before, "what was swapped in was written to");
}

/// The daemon's program, with this one in the place of `wipefs`: `own-wipefs` is the real one.
pub fn with_wipefs(world: &World, script: &str) -> Command {
    // By another process: one that a test beside starts meanwhile would have it open (ETXTBSY).
    std::fs::write(world.path("draft"), script).expect("written");
    let [draft, program] = ["draft", "wipefs"].map(|name| world.path(name).display().to_string());
    run("cp", &[&draft, &program]);
    let mode = Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("wipefs"), mode).expect("ours");
    run("cp", &["/usr/sbin/wipefs", &world.path("own-wipefs").display().to_string()]);
    let daemon = world.command();
    let mut program = Command::new("unshare");
    let swap = "mount --bind wipefs /usr/sbin/wipefs && exec \"$0\" \"$@\"";
    program.args(["--mount", "sh", "-c", swap]).arg(daemon.get_program());
    program.current_dir(world.folder.path());
    program.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
    program
}

#[test]
fn a_configuration_that_others_may_change_starts_nothing() {
    let test = "a_configuration_that_others_may_change_starts_nothing";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to give a file away");
    }
    let world = World::without_daemon();
    let file = world.path("a.toml");
    std::fs::write(&file, "[serve]\nworkers = 2\n").expect("written");
    for mode in [0o646, 0o664, 0o777] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
        let line = world.refused(&["serve", "--config", "a.toml"]);
        assert!(line.contains("a.toml: others may change it (mode "), "{line}");
        assert!(line.contains("nothing was started"), "{line}");
    }
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
    chown(&file, Some(STRANGER), None).expect("root");
    let line = world.refused(&["serve", "--config", "a.toml"]);
    assert!(line.contains("a.toml: it belongs to user 65534, who may change it"), "{line}");
    assert!(!world.path("control.sock").exists());
}

#[test]
fn keys_certificates_and_authorities_that_others_may_change_are_refused() {
    let test = "keys_certificates_and_authorities_that_others_may_change_are_refused";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "needs root to give a file away");
    }
    if !all_here(test, &[PROGRAM]) {
        return;
    }
    let world = World::without_daemon();
    let ours = Authority::new(&world, "ours");
    let folder = ours.folder("server");
    ours.certify(&folder, Role::Server);
    let refused = || {
        let tls = folder.display().to_string();
        lacks(&["--nbd", "127.0.0.1:0", "--nbd-tls", &tls])
    };
    for name in ["server-cert.pem", "server-key.pem", "ca-cert.pem"] {
        let file = folder.join(name);
        let about = std::fs::metadata(&file).expect("there").permissions();
        for mode in [0o622, 0o620, 0o602] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
            let line = refused();
            assert!(line.contains(name) && line.contains("others may "), "{line}");
            assert!(line.contains("change"), "{line}");
        }
        std::fs::set_permissions(&file, about).expect("ours");
        chown(&file, Some(STRANGER), None).expect("root");
        let line = refused();
        assert!(line.contains(name) && line.contains("it belongs to user 65534"), "{line}");
        chown(&file, Some(0), None).expect("root");
    }
    let key = folder.join("server-key.pem");
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("ours");
    let line = refused();
    assert!(line.contains("others may read or change this key (mode 0640)"), "{line}");
}

/// Such a name looks like another, turns the rest of a line round, or is not found in the table of
/// mounts.
#[test]
fn names_with_what_is_not_seen_are_refused() {
    let world = World::new();
    world.members(3);
    let unseen =
        ["\u{202e}", "\u{2066}", "\u{200b}", "\u{200d}", "\u{2028}", "\u{2029}", "\u{feff}", "\\"];
    for unseen in unseen {
        let name = format!("ta{unseen}nk");
        let line = world.refused(&["create", &name, "-l", "5", "m0", "m1", "m2"]);
        assert!(line.contains("cannot be a name"), "{line}");
        assert!(
            !line.contains(unseen) || unseen == "\\",
            "it is told as it would be written: {line}"
        );
        let line = world.refused(&["spare", "add", "m0", "--pool", &name]);
        assert!(line.contains("cannot be a name"), "{line}");
    }
    for member in ["m0", "m1", "m2"] {
        let bytes = std::fs::read(world.path(member)).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 0), "{member} was written to");
    }
}
