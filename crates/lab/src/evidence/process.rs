//! A command in its own process group: closed stdin, a time limit, and nothing of it left behind.
//!
//! What must stay true: when a command's run returns, every process of the group has been killed,
//! and the kill comes before its leader is reaped, so that its number cannot have been given to
//! somebody else. Not here: where the outputs go and what is written down about them (log).

use super::log::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time a command has between the request to end and being killed: fio writes its results in it.
const GRACE: Duration = Duration::from_secs(5);
/// How soon an interruption is noticed at the latest, nanoseconds.
const LOOK_NS: i64 = 200_000_000;

/// Stands in a job file for a path to which extensions are added.
pub const PLACE: &str = "@PLACE@";

#[derive(Clone, Debug)]
pub struct Order {
    pub argv: Vec<String>,
    pub why: String,
    /// A job file that becomes its last argument. [`PLACE`] in it is replaced by where it lies:
    /// what it writes there is kept.
    pub job: Option<String>,
    /// Environment to set beside `LC_ALL=C`.
    pub env: BTreeMap<String, String>,
    /// When it is ended at the latest.
    pub limit: Duration,
    /// Whether it takes something away that would be left behind otherwise: only a second
    /// interruption ends it.
    pub takes_away: bool,
}

impl Order {
    /// Run `argv` for at most a minute.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>, why: &str) -> Order {
        Order {
            argv: argv.into_iter().map(Into::into).collect(),
            why: why.to_owned(),
            job: None,
            env: BTreeMap::from([("LC_ALL".to_owned(), "C".to_owned())]),
            limit: Duration::from_secs(60),
            takes_away: false,
        }
    }

    #[must_use]
    pub fn limit(self, limit: Duration) -> Order {
        Order { limit, ..self }
    }

    /// Run it to its end, with its outputs to these files. `began` is told the process id.
    pub(super) fn run(
        &self,
        stdout: File,
        stderr: File,
        interrupt: &Interrupt,
        began: impl FnOnce(u32),
    ) -> Exit {
        let Some((program, arguments)) = self.argv.split_first() else {
            return Exit::NotStarted("no command".to_owned());
        };
        let child = Command::new(program)
            .args(arguments)
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn();
        match child {
            Ok(child) => {
                began(child.id());
                self.until_end(child, interrupt)
            }
            Err(error) => Exit::NotStarted(error.to_string()),
        }
    }

    fn until_end(&self, mut child: Child, interrupt: &Interrupt) -> Exit {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let stopped = group.and_then(|group| self.watch(group, interrupt));
        if let Some(group) = group {
            // ESRCH means that nobody is left, which is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
        match (child.wait(), stopped) {
            (_, Some(stopped)) => stopped,
            (Ok(status), None) => match status.code() {
                Some(code) => Exit::Code(code),
                None => Exit::Signal(status.signal().unwrap_or(0)),
            },
            (Err(error), None) => Exit::NotStarted(error.to_string()),
        }
    }

    /// Wait until the leader of `group` has ended or had to be asked to; why, if it was asked.
    fn watch(&self, group: Pid, interrupt: &Interrupt) -> Option<Exit> {
        let pidfd = pidfd_open(group, PidfdFlags::empty()).ok()?;
        let is_unwanted = || match self.takes_away {
            true => interrupt.is_raised_again(),
            false => interrupt.is_raised(),
        };
        let ended_within = |limit: Duration, heeds_interrupt: bool| {
            let deadline = monotonic().saturating_add(limit);
            loop {
                if heeds_interrupt && is_unwanted() {
                    return Ended::Interrupted;
                }
                let look = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
                let mut wanted = [PollFd::new(&pidfd, PollFlags::IN)];
                // An interrupted poll looks again at once.
                if poll(&mut wanted, Some(&look)).is_ok_and(|ready| ready > 0) {
                    return Ended::Itself;
                }
                if monotonic() >= deadline {
                    return Ended::TooLate;
                }
            }
        };
        let stopped = match ended_within(self.limit, true) {
            Ended::Itself => return None,
            Ended::Interrupted => Exit::Interrupted,
            Ended::TooLate => Exit::TimeLimit(self.limit.as_secs()),
        };
        let _ = kill_process_group(group, Signal::TERM);
        ended_within(GRACE, false);
        Some(stopped)
    }
}

/// End what a killed lab left running, if process `pid` still is what it started: it would disturb
/// what is measured now.
pub(super) fn end_orphan(pid: u32, argv: &[String]) {
    let expected: Vec<u8> = argv.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let running = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(group) = group.filter(|_| !expected.is_empty() && running == expected) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

enum Ended {
    Itself,
    TooLate,
    Interrupted,
}

/// Time since the machine started, for durations: it never goes back.
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Whether someone asked the lab to stop (Ctrl-C, termination): commands are ended, what was
/// measured is kept, what was made is taken away. Who asks a second time does not want to wait for
/// that.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// What a signal sets; `Arc`, because it outlives everything.
    signal: Arc<AtomicBool>,
    /// A signal was seen while things were taken away, and taken note of.
    once: AtomicBool,
    again: AtomicBool,
}

impl Interrupt {
    /// Raised by SIGINT, SIGTERM and SIGHUP from now on.
    pub fn from_signals() -> std::io::Result<Interrupt> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.asked.signal))?;
        }
        Ok(interrupt)
    }

    #[cfg(test)]
    pub fn raise(&self) {
        self.asked.signal.store(true, Ordering::SeqCst);
    }

    pub fn is_raised(&self) -> bool {
        self.asked.signal.load(Ordering::SeqCst) || self.asked.once.load(Ordering::SeqCst)
    }

    /// Whether it was raised once more after this was first asked. To be asked only while things
    /// are taken away: the first time it was raised is taken note of here.
    pub fn is_raised_again(&self) -> bool {
        let asked = &self.asked;
        if asked.signal.swap(false, Ordering::SeqCst) && asked.once.swap(true, Ordering::SeqCst) {
            asked.again.store(true, Ordering::SeqCst);
        }
        asked.again.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::Interrupt;

    #[test]
    fn only_what_is_raised_while_things_are_taken_away_counts_as_again() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.is_raised_again() && !interrupt.is_raised());
        interrupt.raise();
        interrupt.raise();
        assert!(interrupt.is_raised() && !interrupt.is_raised_again(), "both before: one");
        assert!(interrupt.is_raised() && !interrupt.is_raised_again());
        interrupt.raise();
        assert!(interrupt.is_raised_again() && interrupt.is_raised_again());
        assert!(interrupt.is_raised());
    }
}
