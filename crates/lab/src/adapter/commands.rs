//! Running programs, through the forensic log.

use crate::evidence::{Evidence, Exit, Order};
use crate::refusal::{AtPath, Refusal};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// Name of the file in a run's directory with the commands that were still to be run when the lab
/// was interrupted twice.
pub const LEFT_BEHIND: &str = "left-behind.sh";

/// What a program answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Exit code; `None` if it was ended by a signal or a time limit.
    pub code: Option<i32>,
    pub stdout: String,
    /// Its last line on stderr.
    pub complaint: String,
    /// Number of its line in `evidence.jsonl`.
    pub evidence: Option<u64>,
}

/// Who runs programs.
pub trait Commands {
    /// Run `argv` to its end. `why` is one sentence for the forensic log.
    ///
    /// # Errors
    /// If it cannot be started. A program that fails is an answer, not an error.
    fn run(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal>;

    /// Start a program that goes on until [`end`](Commands::end).
    fn begin(&self, argv: &[&str], why: &str) -> Result<u32, Refusal>;

    /// Ask a program that was begun to end, and wait for it.
    fn end(&self, process: u32) -> Result<(), Refusal>;

    /// Wait for less than a second, so that something can come about.
    fn pause(&self, time: Duration);

    /// Run `argv` and demand that it succeeds.
    fn succeed(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal> {
        let answer = self.run(argv, why)?;
        if answer.code == Some(0) {
            return Ok(answer);
        }
        let program = argv.first().copied().unwrap_or_default();
        let code =
            answer.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        let said = format!("{program} ended with {code} ({why}): {}", answer.complaint);
        Err(Refusal::cannot_run("command.failed", said)
            .hint("its outputs are kept under evidence/"))
    }
}

/// Programs for real. While something is [taken away](Live::taking_away), an interruption does not
/// end them; a second one does, and what is left to be run then is kept as text.
pub struct Live<'a> {
    evidence: &'a Evidence,
    limit: Duration,
    begun: RefCell<Vec<std::process::Child>>,
    takes_away: Cell<bool>,
    has_said: Cell<bool>,
    left: RefCell<Vec<String>>,
}

impl<'a> Live<'a> {
    /// Programs whose outputs go to `evidence`.
    pub fn new(evidence: &'a Evidence) -> Live<'a> {
        Live {
            evidence,
            limit: Duration::from_secs(300),
            begun: RefCell::default(),
            takes_away: Cell::new(false),
            has_said: Cell::new(false),
            left: RefCell::default(),
        }
    }

    /// Do `work`, which takes away what was made: it is not ended by an interruption, unless by a
    /// second one.
    pub fn taking_away<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = self.takes_away.replace(true);
        if self.evidence.interrupt().is_raised() && !self.has_said.replace(true) {
            let said =
                "interrupted: taking away what was made; interrupt again to leave it as it is\n";
            let _nobody_reads_it = std::io::stderr().write_all(said.as_bytes());
        }
        let done = work();
        self.takes_away.set(outer);
        done
    }

    /// `done`, unless a second interruption kept things from being taken away: then what is left,
    /// and how it goes away.
    ///
    /// # Errors
    /// That of `done`, or that something is left behind.
    pub fn all_gone<T>(&self, done: Result<T, Refusal>) -> Result<T, Refusal> {
        let left = self.left.borrow();
        if left.is_empty() {
            return done;
        }
        let path = self.evidence.dir().join(LEFT_BEHIND);
        let text = format!("#!/bin/sh\n{}\n", left.join("\n"));
        let kept = match std::fs::write(&path, text) {
            Ok(()) => format!("sh {}", path.display()),
            Err(_) => "run these commands".to_owned(),
        };
        let said =
            format!("interrupted again, and left behind what these take away: {}", left.join("; "));
        Err(Refusal::cannot_run("made.left_behind", said).hint(kept))
    }

    /// Keep a command for whoever takes away what is left.
    fn leave(&self, argv: &[&str]) {
        // No argument of a program has a zero byte, and nothing else cannot be quoted.
        let command = shlex::try_join(argv.iter().copied());
        self.left.borrow_mut().push(command.unwrap_or_else(|_| argv.join(" ")));
    }
}

impl Commands for Live<'_> {
    fn run(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal> {
        let takes_away = self.takes_away.get();
        if takes_away && self.evidence.interrupt().is_raised_again() {
            self.leave(argv);
            return Ok(Answer { code: Some(0), ..Answer::default() });
        }
        let order = Order::new(argv.iter().copied(), why).limit(self.limit);
        let ran = match self.evidence.run(&Order { takes_away, ..order }) {
            // A full disk keeps nothing from being taken away.
            Err(_) if takes_away => return Unlogged.run(argv, why),
            ran => ran?,
        };
        let code = match ran.entry.exit {
            Exit::Code(code) => Some(code),
            Exit::Interrupted if takes_away => {
                self.leave(argv);
                Some(0)
            }
            _ => None,
        };
        Ok(Answer {
            code,
            stdout: String::from_utf8_lossy(&ran.stdout()?).into_owned(),
            complaint: ran.complaint(),
            evidence: Some(ran.entry.n),
        })
    }

    fn begin(&self, argv: &[&str], why: &str) -> Result<u32, Refusal> {
        let (program, words) = argv
            .split_first()
            .ok_or_else(|| Refusal::cannot_run("command.empty", "there is no program to start"))?;
        let name = program.rsplit('/').next().unwrap_or(program);
        let log = self.evidence.dir().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).at(&log, why)?;
        let same = file.try_clone().at(&log, why)?;
        let child = std::process::Command::new(program)
            .args(words)
            .stdin(std::process::Stdio::null())
            .stdout(file)
            .stderr(same)
            // Ctrl-C is for the lab: what it began is ended in its turn.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Refusal::cannot_run("command.missing", format!("{program}: {error}")).hint(why)
            })?;
        let process = child.id();
        self.begun.borrow_mut().push(child);
        Ok(process)
    }

    fn end(&self, process: u32) -> Result<(), Refusal> {
        let mut begun = self.begun.borrow_mut();
        let Some(at) = begun.iter().position(|child| child.id() == process) else { return Ok(()) };
        if self.takes_away.get() && self.evidence.interrupt().is_raised_again() {
            self.leave(&["kill", &process.to_string()]);
            return Ok(());
        }
        let mut child = begun.swap_remove(at);
        let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        child.wait().map(|_| ()).map_err(|error| {
            Refusal::cannot_run("command.lost", format!("process {process}: {error}"))
        })
    }

    fn pause(&self, time: Duration) {
        // An engine offers nothing to wait on, so time it is; an interruption ends it early.
        let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let _elapsed = rustix::event::poll(&mut [], Some(&time));
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        // What is taken away by hand later needs the program that serves it.
        if !self.left.get_mut().is_empty() {
            return;
        }
        for child in self.begun.get_mut() {
            let _gone_already = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Programs for real that only look, before there is a run to write them down in: for a dry run.
#[derive(Clone, Copy, Debug)]
pub struct Unlogged;

impl Commands for Unlogged {
    fn run(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal> {
        let (program, words) = argv
            .split_first()
            .ok_or_else(|| Refusal::cannot_run("command.empty", "there is no program to start"))?;
        let output = std::process::Command::new(program)
            .args(words)
            .stdin(std::process::Stdio::null())
            .process_group(0)
            .output()
            .map_err(|error| {
                Refusal::cannot_run("command.missing", format!("{program}: {error}")).hint(why)
            })?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        Ok(Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            complaint: complaint.lines().last().unwrap_or_default().to_owned(),
            evidence: None,
        })
    }

    fn begin(&self, argv: &[&str], _why: &str) -> Result<u32, Refusal> {
        let said = format!("{} is not begun in a dry run", argv.join(" "));
        Err(Refusal::cannot_run("command.dry", said))
    }

    fn end(&self, _process: u32) -> Result<(), Refusal> {
        Ok(())
    }

    fn pause(&self, _time: Duration) {}
}
