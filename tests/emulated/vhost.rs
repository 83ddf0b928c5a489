//! Volumes of a daemon on this machine as disks of a guest with Linux 6.12, by vhost-user: QEMU is
//! the frontend, and the kernel's virtio_blk the driver.

use crate::guest::{Beside, Talk, fsx, kills, run_beside};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How often to look whether a daemon is ready or a client is back, and how long between two looks.
/// Two minutes.
const LOOKS: u32 = 1200;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A daemon on this machine with one array of six files.
struct Host {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Host {
    fn new(member_bytes: u64) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host { folder, daemon: None };
        host.members().iter().for_each(|member| sparse(member, member_bytes));
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn members(&self) -> [PathBuf; 6] {
        std::array::from_fn(|number| self.path(&format!("m{number}")))
    }

    /// Start the daemon, and wait until it answers.
    fn serve(&mut self, members: &[PathBuf]) {
        let log = std::fs::File::options().create(true).append(true).open(self.path("log"));
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        daemon.args(["serve", "--no-pin", "--workers", "2", "--pool", "96MiB", "--vhost-user"]);
        daemon.arg(self.path("disks")).args(members).env("ASHLAR_SOCKET", self.path("control"));
        daemon.stdout(Stdio::null()).stderr(log.expect("a file"));
        self.daemon = Some(daemon.spawn().expect("the daemon runs"));
        self.wait_until("the daemon answers", |host| host.call(&["status"]).status.success());
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("our own child");
        daemon.wait().expect("our own child");
    }

    /// End the daemon in order.
    fn end(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        let id = rustix::process::Pid::from_raw(daemon.id().try_into().expect("small"));
        let id = id.expect("not zero");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("our own child");
        assert!(daemon.wait().expect("our own child").success(), "{}", self.log());
    }

    fn call(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ashlar"));
        program.args(arguments).env("ASHLAR_SOCKET", self.path("control"));
        program.stdin(Stdio::null()).output().expect("the program runs")
    }

    /// What a call that must go well says.
    fn ashlar(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}{}", self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Host) -> bool) {
        for _ in 0..LOOKS {
            if is_so(self) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        panic!("waited in vain until {what}:\n{}", self.log());
    }

    /// Wait until the guest is connected.
    fn wait_for_client(&self) {
        self.wait_until("the machine is connected", |host| {
            let status =
                String::from_utf8_lossy(&host.call(&["status", "--json"]).stdout).into_owned();
            let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
            let exports = status["exports"].as_array().cloned().unwrap_or_default();
            exports.iter().any(|it| it["protocol"] == "vhost-user" && it["clients"] == 1)
        });
    }

    fn create(&self, more: &[&str]) {
        let members = self.members().map(|path| path.display().to_string());
        let mut arguments = vec!["create", "tank", "--level", "raid6", "--strip-size", "16KiB"];
        arguments.extend(more);
        arguments.extend(members.iter().map(String::as_str));
        self.ashlar(&arguments);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
    }
}

fn sparse(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path);
    file.and_then(|it| it.set_len(bytes)).expect("a file");
}

/// What a machine needs to have the volume as its disk.
fn machine(socket: &Path) -> Vec<String> {
    let socket = format!("socket,id=disk,path={},reconnect=1", socket.display());
    let arguments = [
        "-object",
        "memory-backend-memfd,id=memory,size=1G,share=on",
        "-machine",
        "memory-backend=memory",
        "-chardev",
        &socket,
        "-device",
        "vhost-user-blk-pci,chardev=disk,num-queues=2",
    ];
    arguments.map(str::to_owned).to_vec()
}

#[test]
fn a_guest_has_a_volume_as_its_disk_and_its_file_systems_survive_lost_members() {
    let test = "a_guest_has_a_volume_as_its_disk_and_its_file_systems_survive_lost_members";
    let mut host = Host::new(320 << 20);
    host.serve(&[]);
    host.create(&[]);
    let socket = host.path("disks/tank.sock");
    let tend = |talk: &mut Talk| {
        talk.wait_for("two members are lost");
        let refused = host.call(&["stop", "tank"]);
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(complaint.contains("is the disk of a virtual machine"), "{complaint}");
        host.ashlar(&["fail", "tank", host.members()[1].to_str().expect("a name")]);
        host.ashlar(&["fail", "tank", host.members()[4].to_str().expect("a name")]);
        talk.say("go on");
    };
    let beside = Beside { settings: &[("FSX", &fsx(test))], machine: machine(&socket), tend };
    let Some(said) = run_beside(test, "vhost_file_system.sh", beside) else { return };
    println!("{said}");
    let volumes = host.ashlar(&["volumes"]);
    assert!(volumes.contains(&format!("vhost-user:{}", socket.display())), "{volumes}");
    host.wait_until("the machine has let go", |host| host.call(&["stop", "tank"]).status.success());
    assert!(!socket.exists(), "no volume, no socket");
    host.end();
}

#[test]
fn a_killed_daemon_is_a_pause_and_nothing_else_for_a_guest() {
    let test = "a_killed_daemon_is_a_pause_and_nothing_else_for_a_guest";
    let mut host = Host::new(120 << 20);
    host.serve(&[]);
    host.create(&[]);
    let socket = host.path("disks/tank.sock");
    let tend = |talk: &mut Talk| {
        talk.wait_for("under load");
        for number in 1..=kills() {
            // Not always at the same place.
            std::thread::sleep(Duration::from_millis(1000 * (number % 3) + 170 * (number % 7)));
            host.kill();
            host.serve(&host.members());
            host.wait_for_client();
            println!("killed and back: {number}");
        }
        // In order, as for an upgrade: requests wait for the successor as well.
        host.end();
        host.serve(&host.members());
        host.wait_for_client();
        talk.say("enough");
        talk.wait_for("everything is written");
        // What the last call of sync promised is read from the members.
        host.kill();
        host.serve(&host.members());
        host.wait_for_client();
        talk.say("look");
    };
    let beside = Beside { settings: &[], machine: machine(&socket), tend };
    let Some(said) = run_beside(test, "vhost_killed.sh", beside) else { return };
    println!("{said}");
    let scrub = host.ashlar(&["scrub", "--wait", "tank"]);
    assert!(scrub.contains("0 mismatches"), "{scrub}");
    host.end();
}

#[test]
fn a_guest_sees_its_disk_grow_and_uses_the_room() {
    let test = "a_guest_sees_its_disk_grow_and_uses_the_room";
    let member_bytes = 160 << 20;
    let mut host = Host::new(member_bytes);
    host.serve(&[]);
    host.create(&["--declustered", "--stripe-width", "5", "--distributed-spares", "1"]);
    let socket = host.path("disks/tank.sock");
    let tend = |talk: &mut Talk| {
        talk.wait_for("the pool grows");
        let more = ["n0", "n1"].map(|name| host.path(name));
        more.iter().for_each(|drive| sparse(drive, member_bytes));
        let [first, second] = more.each_ref().map(|drive| drive.to_str().expect("a name"));
        host.ashlar(&["grow", "tank", "--wait", first, second]);
        talk.say("it has grown");
    };
    let beside = Beside { settings: &[], machine: machine(&socket), tend };
    let Some(said) = run_beside(test, "vhost_grown.sh", beside) else { return };
    println!("{said}");
    host.wait_until("the machine has let go", |host| host.call(&["stop", "tank"]).status.success());
    host.end();
}
