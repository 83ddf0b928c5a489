//! A machine of its own with Debian, systemd and virtio drives, that can be switched on again and
//! again, with or without some of its drives.
//!
//! What must stay true: its root and its drives are files in a folder that goes with the test. At
//! each boot the root runs the test's script, after `machine.sh`, with the number of the step. The
//! package to install lies in the root; this module does not install it.

use crate::guest::{self, CONSOLE, Machine, Talk, emulator, watched};
use crate::kernel::{self, Kernel, build_initial, here, install_missing, output, run};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Long enough that writes are under way when the power is cut.
const BEFORE_CUT: Duration = Duration::from_millis(1500);

/// What a slow drive takes in a second.
const SLOW_BYTES: u64 = 2 << 20;

/// What the root may hold; it is sparse.
const ROOT_BYTES: u64 = 3 << 30;

/// Programs, and the package each comes from.
const PROGRAMS: [(&str, &str); 5] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mkfs.ext4", "e2fsprogs"),
    ("tar", "tar"),
    ("objcopy", "binutils"),
    ("depmod", "kmod"),
];

/// Modules that mount the root.
const ROOT_MODULES: [&str; 2] = ["virtio_blk", "ext4"];
/// More modules, in the root.
const MODULES: [&str; 6] = ["virtio_blk", "ext4", "xfs", "loop", "fuse", "ublk_drv"];

/// What the root of the machine leaves out of Debian.
const LEFT_OUT: [&str; 6] = [
    "./dev/*",
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/locale/*",
    "./var/cache/*",
    // Without it, man-db reads no manual pages whenever a package is installed.
    "./var/lib/man-db/auto-update",
];

/// Units that the machine can do without; each takes seconds under emulation.
const MASKED: [&str; 12] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "man-db.timer",
    "serial-getty@ttyS0.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-networkd-wait-online.service",
];

/// What a test gives to its machine.
pub struct Setting<'a> {
    /// What it runs, out of `tests/emulated`.
    pub script: &'a str,
    /// The names and sizes of drives, in bytes.
    pub drives: &'a [(&'a str, u64)],
    /// More files below `/drill`, with their text.
    pub files: &'a [(&'a str, &'a str)],
    /// A drive that takes [`SLOW_BYTES`] a second until it is set free.
    pub slow: Option<&'static str>,
    /// A boot that takes longer is stuck.
    pub patience_seconds: &'static str,
}

/// The machine, switched off.
pub struct DebianMachine {
    folder: tempfile::TempDir,
    kernel: &'static Kernel,
    slow: Option<&'static str>,
    patience_seconds: &'static str,
}

impl DebianMachine {
    /// With a fresh root and fresh drives.
    ///
    /// # Errors
    /// One line that says what is missing here.
    pub fn new(setting: &Setting<'_>) -> Result<DebianMachine, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        install_missing(&PROGRAMS)?;
        let kernel = kernel::ready()?;
        let debian = output(&mut script("packaging/debian-root"))?;
        let debian = debian.trim();
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let Setting { slow, patience_seconds, .. } = *setting;
        let machine = DebianMachine { folder, kernel, slow, patience_seconds };
        let modules = kernel.modules(&ROOT_MODULES)?;
        build_initial(&modules, "machine_init.sh", &machine.path("initial"))?;
        let modules = kernel.modules(&MODULES)?;
        // From here on it is a failure, not something that is missing.
        machine.make_root(debian, &modules, setting);
        for (name, bytes) in setting.drives {
            empty(&machine.path(name), *bytes);
        }
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_root(&self, debian: &str, modules: &[PathBuf], setting: &Setting<'_>) {
        let (tree, image) = (self.path("tree"), self.path("root"));
        fs::create_dir(&tree).expect("a folder");
        let text = tree.to_string_lossy();
        let left_out = LEFT_OUT.map(|it| format!("--exclude={it}"));
        let mut arguments = vec!["-C", &text, "-xf", debian, "--wildcards"];
        arguments.extend(left_out.iter().map(String::as_str));
        run("tar", arguments).expect("unpacked");
        settle(&tree);
        fill(&tree.join("drill"), setting);
        self.copy_modules(&tree, modules);
        fs::copy(package(&self.path("deb")), tree.join("drill/ashlar.deb")).expect("copied");
        empty(&image, ROOT_BYTES);
        let image = image.to_string_lossy();
        run("mkfs.ext4", ["-q", "-F", "-L", "guest", "-d", &text, &image]).expect("a root");
        fs::remove_dir_all(&tree).expect("ours");
    }

    fn copy_modules(&self, tree: &Path, modules: &[PathBuf]) {
        let release = &self.kernel.release;
        let from = self.kernel.root.join("lib/modules").join(release);
        // `lib` is a link in Debian.
        let to = tree.join("usr/lib/modules").join(release);
        let lists = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];
        for file in lists.iter().map(|name| from.join(name)).chain(modules.iter().cloned()) {
            let copy = to.join(file.strip_prefix(&from).expect("a file of the kernel"));
            fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
            fs::copy(file, copy).expect("copied");
        }
        run("depmod", ["-b", &tree.to_string_lossy(), release]).expect("a list of modules");
    }

    /// Switch it on with these drives. All that it says until it has switched itself off, which it
    /// must do, after step `step` has ended well. Meanwhile this machine does `tend`.
    pub fn boot(&self, step: u32, drives: &[&str], tend: impl FnOnce(&mut Talk)) -> String {
        let (mut guest, said) = watched(
            || self.start(step, drives),
            |talk| {
                tend(talk);
                talk.wait_for(&format!("STEP {step} OK"));
            },
        );
        let end = guest.0.wait().expect("our own child");
        assert!(end.success(), "it does not switch itself off ({end}):\n{said}");
        said
    }

    /// Switch it on with these drives, and cut its power a while after step `step` has ended well.
    /// All that it says.
    pub fn boot_and_cut(&self, step: u32, drives: &[&str]) -> String {
        let (_guest, said) = watched(
            || self.start(step, drives),
            |talk| {
                talk.wait_for(&format!("STEP {step} OK"));
                std::thread::sleep(BEFORE_CUT);
                self.cut();
            },
        );
        said
    }

    fn start(&self, step: u32, drives: &[&str]) -> Machine {
        let mut machine = emulator(self.patience_seconds);
        machine.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(self.path("initial"));
        let append = format!("{CONSOLE} systemd.show_status=no drill={step}");
        machine.args(["-append", &append]).arg("-pidfile").arg(self.path("id"));
        machine.arg("-qmp").arg(format!("unix:{},server=on,wait=off", self.path("qmp").display()));
        machine.args(["-drive", &self.drive("root"), "-device", "virtio-blk-pci,drive=root"]);
        for (number, name) in drives.iter().enumerate() {
            // A slot of its own: there it can be pulled and plugged.
            let port = format!("pcie-root-port,id=port-{name},chassis={number},slot={number}");
            machine.args(["-device", &port, "-drive", &self.drive(name), "-device", &device(name)]);
        }
        Machine(machine.spawn().expect("the emulator runs"))
    }

    fn drive(&self, name: &str) -> String {
        let slow = match self.slow {
            Some(slow) if slow == name => format!(",throttling.bps-write={SLOW_BYTES}"),
            _ => String::new(),
        };
        format!("if=none,id={name},format=raw,file={}{slow}", self.path(name).display())
    }

    /// Let a slow drive of the machine that runs be as fast as the others.
    pub fn set_free(&self, drive: &str) {
        self.order(&format!("block_set_io_throttle {drive} 0 0 0 0 0 0"));
    }

    /// Pull a drive out of the machine that runs.
    pub fn pull(&self, drive: &str) {
        self.order(&format!("device_del device-{drive}"));
    }

    /// Plug a drive that was pulled.
    pub fn plug(&self, drive: &str) {
        self.order(&format!("drive_add 0 {}", self.drive(drive)));
        self.order(&format!("device_add {}", device(drive)));
    }

    /// Have the emulator do something.
    fn order(&self, line: &str) {
        let stream = UnixStream::connect(self.path("qmp")).expect("the emulator listens");
        let mut answers = BufReader::new(&stream).lines();
        let order = serde_json::json!({
            "execute": "human-monitor-command",
            "arguments": { "command-line": line },
        });
        for order in [serde_json::json!({ "execute": "qmp_capabilities" }), order] {
            writeln!(&stream, "{order}").expect("the emulator listens");
            let is_answer = |it: &String| it.contains("\"return\"") || it.contains("\"error\"");
            let answer = answers.by_ref().map_while(Result::ok).find(is_answer);
            let answer: serde_json::Value =
                serde_json::from_str(&answer.expect("an answer")).expect("JSON");
            let text = answer["return"].as_str().unwrap_or_default().trim();
            let is_done = answer["error"].is_null() && (text.is_empty() || text == "OK");
            assert!(is_done, "{line}: {answer}");
        }
    }

    /// The emulator is killed: nobody in the guest hears of it, and its memory is gone.
    fn cut(&self) {
        let id = fs::read_to_string(self.path("id")).expect("the emulator writes it");
        let id = id.trim().parse().ok().and_then(rustix::process::Pid::from_raw).expect("an id");
        rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("our own");
    }
}

/// A drive as a device, in its own slot.
fn device(name: &str) -> String {
    format!("virtio-blk-pci,id=device-{name},drive={name},serial={name},bus=port-{name}")
}

/// What the machine runs, in the folder for it.
fn fill(folder: &Path, setting: &Setting<'_>) {
    fs::create_dir(folder).expect("a folder");
    for (script, name) in [("machine.sh", "machine.sh"), (setting.script, "guest.sh")] {
        fs::copy(here(script), folder.join(name)).expect("copied");
    }
    for (name, text) in setting.files {
        fs::write(folder.join(name), text).expect("written");
    }
}

/// What makes a Debian of packages a machine that runs the script.
fn settle(tree: &Path) {
    let put = |name: &str, text: &str| {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    };
    put("etc/hostname", "guest\n");
    // Not the first boot of a new machine, which would ask and enable what it likes.
    put("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    put("etc/fstab", "LABEL=guest / ext4 defaults 0 0\n");
    // A busy machine emulates slowly: the device of a file system may take longer to appear.
    let limits = "[Manager]\nDefaultDeviceTimeoutSec=300\nDefaultTimeoutStartSec=300\n";
    put("etc/systemd/system.conf.d/drill.conf", limits);
    put("etc/systemd/journald.conf.d/drill.conf", "[Journal]\nStorage=persistent\n");
    let unit = "[Service]\nExecStart=/bin/bash /drill/machine.sh\nStandardOutput=tty\n\
                StandardError=inherit\nTTYPath=/dev/ttyS0\n";
    put("etc/systemd/system/drill.service", unit);
    let link = |to: &str, name: &str| {
        let path = tree.join("etc/systemd/system").join(name);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        std::os::unix::fs::symlink(to, path).expect("a link");
    };
    link("../drill.service", "multi-user.target.wants/drill.service");
    for unit in MASKED {
        link("/dev/null", unit);
    }
}

fn empty(path: &Path, bytes: u64) {
    File::create_new(path).and_then(|file| file.set_len(bytes)).expect("a file");
}

/// The package with the program of this build; made in that folder, which is new.
fn package(folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    let program = folder.join("ashlar");
    let from = guest::program();
    let (from, to) = (from.to_string_lossy(), program.to_string_lossy());
    // Most of it tells debuggers of lines.
    run("strip", ["--strip-unneeded", "-o", &to, &from]).expect("stripped");
    let mut build = script("packaging/build-deb");
    let made = output(build.arg(folder).env("ASHLAR_PROGRAM", &program)).expect("a package");
    PathBuf::from(made.lines().next().expect("its path"))
}

/// A script of this repository, with the target folder of this build.
fn script(name: &str) -> Command {
    let mut command = Command::new(here("../..").join(name));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    command.env("CARGO_TARGET_DIR", target);
    command
}
