//! A machine under emulation that runs a script in a stock kernel, with this machine's root below
//! it.
//!
//! What must stay true: the guest writes to memory of its own only; it ends by itself, or is ended
//! after [`PATIENCE_SECONDS`]; what it said is in the failure. One guest runs at a time: emulation
//! takes all the processor there is.

use crate::kernel::{self, Kernel};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A guest that takes longer is stuck. Fifty kills take twenty minutes.
const PATIENCE_SECONDS: &str = "3600";

/// What every kernel is told: its words go to the console, it ends rather than hangs, and it does
/// not take the timer of a busy machine for a broken one.
pub const CONSOLE: &str = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check";

/// What the first program of every guest says.
const STARTED: &str = "the kernel runs";

/// How a kernel ends that the emulator failed: a processor went on to see the breakpoint that the
/// kernel sets while it changes its own code. It hits the start, where the kernel changes much.
const EMULATOR_FAILED: &str = "Oops: int3";

/// So often a guest is switched on before its kernel must run.
const BOOTS_MAX: u32 = 3;

/// What the guest says when its script is over.
const ENDED: &str = "the script ended with ";

/// How often a daemon is killed: `ASHLAR_EMULATED_KILLS` times, 5 unless it is set.
pub fn kills() -> u64 {
    let kills = std::env::var("ASHLAR_EMULATED_KILLS").unwrap_or_else(|_| "5".to_owned());
    kills.parse().expect("a number")
}

/// Where cargo or somebody else installed fsx; nothing if it is not, which is said.
pub fn fsx(test: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("fsx"));
    match found.into_iter().find(|it| it.exists()) {
        Some(path) => path.display().to_string(),
        None => {
            skipped(test, "its part with fsx: not installed (cargo install fsx --locked)");
            String::new()
        }
    }
}

/// Run `tests/emulated/SCRIPT` in a guest; its words by name. Fails if it does not end well.
/// What it said; `None` if `test` cannot run here, which is said then.
pub fn run(test: &str, script: &str, settings: &[(&str, &str)]) -> Option<String> {
    run_beside(test, script, Beside { settings, machine: Vec::new(), tend: |_: &mut Talk| {} })
}

/// What a guest has beside its script.
pub struct Beside<'a, T> {
    /// Words for the script, by name.
    pub settings: &'a [(&'a str, &'a str)],
    /// More arguments of the machine.
    pub machine: Vec<String>,
    /// What this machine does meanwhile.
    pub tend: T,
}

/// A guest that runs, from outside.
pub struct Talk {
    lines: BufReader<ChildStdout>,
    to: ChildStdin,
    said: String,
}

impl Talk {
    /// Wait until the guest says a line with these words.
    ///
    /// # Panics
    /// If it ends before.
    pub fn wait_for(&mut self, words: &str) {
        assert!(self.hears(words), "the guest ended before it said '{words}':\n{}", self.said);
    }

    /// Wait until the guest says a line with these words, or until it ends: `false` then.
    fn hears(&mut self, words: &str) -> bool {
        while self.listen() {
            if self.said.lines().last().is_some_and(|line| line.contains(words)) {
                return true;
            }
        }
        false
    }

    /// A line for the guest's console.
    pub fn say(&mut self, line: &str) {
        self.to.write_all(format!("{line}\n").as_bytes()).expect("the guest listens");
    }

    /// One more line; `false` at the end.
    fn listen(&mut self) -> bool {
        let mut line = Vec::new();
        let heard = self.lines.read_until(b'\n', &mut line).expect("our own child");
        self.said.push_str(&String::from_utf8_lossy(&line));
        heard > 0
    }
}

/// As [`run`], with more.
pub fn run_beside(
    test: &str,
    script: &str,
    beside: Beside<'_, impl FnOnce(&mut Talk)>,
) -> Option<String> {
    let kernel = match kernel::ready() {
        Ok(kernel) => kernel,
        Err(why) => {
            skipped(test, &why);
            return None;
        }
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let first = first_script(folder.path(), script, kernel, beside.settings);
    let (_guest, said) = watched(|| start(kernel, &first, &beside.machine), beside.tend);
    let end = said.lines().find_map(|line| line.trim().strip_prefix(ENDED));
    assert_eq!(end, Some("0"), "the guest ended badly, and said:\n{said}");
    Some(said)
}

/// Say that a test does not run here, past the test runner.
pub fn skipped(test: &str, why: &str) {
    let line = format!("skipped: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is there");
}

/// Held by whoever runs a guest.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program that guests and machines run: this build's, unless `ASHLAR_EMULATED_PROGRAM` names
/// another. Emulation makes a program that is not optimised very slow.
pub fn program() -> PathBuf {
    let other = std::env::var_os("ASHLAR_EMULATED_PROGRAM");
    other.map_or_else(|| env!("CARGO_BIN_EXE_ashlar").into(), PathBuf::from)
}

/// What the guest runs: the settings, and then the script.
fn first_script(
    folder: &Path,
    script: &str,
    kernel: &Kernel,
    settings: &[(&str, &str)],
) -> PathBuf {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/emulated");
    let mut text = format!(
        "export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
         export ASHLAR={} KERNEL={} SCRIPTS={scripts}\n",
        program().display(),
        kernel.root.display(),
    );
    for (name, value) in settings {
        text.push_str(&format!("export {name}='{value}'\n"));
    }
    text.push_str(&format!("cd /mnt && . {scripts}/prelude.sh && . {scripts}/{script}\n"));
    let path = folder.join("first.sh");
    std::fs::write(&path, text).expect("a script");
    path
}

fn start(kernel: &Kernel, script: &Path, more: &[String]) -> Machine {
    let mut machine = emulator(PATIENCE_SECONDS);
    machine.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&kernel.initial);
    machine.args(["-append", &format!("{CONSOLE} script={}", script.display())]);
    let below = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap";
    machine.args(["-fsdev", below, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
    machine.args(more);
    Machine(machine.spawn().expect("the emulator runs"))
}

/// A machine without a kernel and drives; it is ended after so many seconds.
///
/// Its two processors take turns in one thread. In threads of their own, one of them may go on to
/// see a breakpoint that a kernel has taken back, after any change of its code.
pub fn emulator(patience_seconds: &str) -> Command {
    let mut machine = Command::new("timeout");
    machine.args(["--kill-after=10", patience_seconds, "qemu-system-x86_64"]);
    machine.args(["-accel", "tcg,thread=single", "-cpu", "max", "-machine", "q35"]);
    machine.args(["-smp", "2", "-m", "1G", "-nographic", "-no-reboot", "-net", "none"]);
    machine.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    machine
}

/// A machine that is ended with the test.
pub struct Machine(pub Child);

impl Drop for Machine {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // `timeout` passes it on.
        if let Some(id) = rustix::process::Pid::from_raw(self.0.id().try_into().expect("small")) {
            let _over = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _over = self.0.wait();
    }
}

/// Switch a guest on; the guest, and all that it says until it ends. Meanwhile this machine does
/// `tend`.
pub fn watched(start: impl Fn() -> Machine, tend: impl FnOnce(&mut Talk)) -> (Machine, String) {
    let (guest, mut talk) = booted(start);
    tend(&mut talk);
    while talk.listen() {}
    (guest, talk.said)
}

/// A guest whose kernel runs, or has ended for a reason of its own.
fn booted(start: impl Fn() -> Machine) -> (Machine, Talk) {
    let mut boots = 0;
    loop {
        boots += 1;
        let (guest, mut talk) = switched_on(&start);
        let failed = !talk.hears(STARTED) && talk.said.contains(EMULATOR_FAILED);
        if !failed || boots == BOOTS_MAX {
            return (guest, talk);
        }
        println!("the emulator failed the kernel, which is booted again:\n{}", talk.said);
    }
}

fn switched_on(start: impl Fn() -> Machine) -> (Machine, Talk) {
    let mut guest = start();
    let lines = BufReader::new(guest.0.stdout.take().expect("piped"));
    let to = guest.0.stdin.take().expect("piped");
    (guest, Talk { lines, to, said: String::new() })
}

#[test]
fn a_kernel_that_the_emulator_failed_is_booted_again_and_no_other() {
    let boots_of = |words: &str| {
        let boots = std::cell::Cell::new(0);
        let start = || {
            boots.set(boots.get() + 1);
            let mut shell = Command::new("echo");
            shell.arg(words).stdin(Stdio::piped()).stdout(Stdio::piped());
            Machine(shell.spawn().expect("a program of every machine"))
        };
        let (_guest, said) = watched(start, |_| {});
        assert_eq!(said.trim(), words);
        boots.get()
    };
    assert_eq!(boots_of(&format!("[ 3.1] {EMULATOR_FAILED}: 0000 [#1]")), BOOTS_MAX);
    assert_eq!(boots_of(STARTED), 1);
    assert_eq!(boots_of("Kernel panic: no init found"), 1);
    assert_eq!(boots_of(&format!("{STARTED}, then {EMULATOR_FAILED}")), 1);
}
