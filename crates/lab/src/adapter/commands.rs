//! Running programs: through the forensic log, without it, or only written down.

use crate::evidence::{Evidence, Exit, Order};
use crate::refusal::{AtPath, Refusal};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Name of the file in a run's directory with the commands that were still to be run when the lab
/// was interrupted twice.
pub const LEFT_BEHIND: &str = "left-behind.sh";
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Exit code; `None` if it was ended by a signal or a time limit.
    pub code: Option<i32>,
    pub stdout: String,
    pub complaint: String,
}

pub trait Commands {
    /// Run `argv` to its end. `why` is one sentence for the forensic log.
    ///
    /// # Errors
    /// If it cannot be started. A program that fails is an answer, not an error.
    fn run(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal>;

    /// Start a program that goes on until [`end`](Commands::end).
    fn begin(&self, argv: &[&str], _why: &str) -> Result<u32, Refusal> {
        let said = format!("{} is not begun here", argv.join(" "));
        Err(Refusal::cannot_run("command.not_begun", said))
    }

    /// Ask a program that was begun to end, and wait for it.
    fn end(&self, _process: u32) -> Result<(), Refusal> {
        Ok(())
    }

    /// Wait, so that something can come about.
    fn pause(&self, _time: Duration) {}

    /// Run `argv` and demand that it succeeds; what it printed.
    fn succeed(&self, argv: &[&str], why: &str) -> Result<String, Refusal> {
        let answer = self.run(argv, why)?;
        if answer.code == Some(0) {
            return Ok(answer.stdout);
        }
        let program = argv.first().copied().unwrap_or_default();
        let code = answer.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        let said = format!("{program} ended with {code} ({why}): {}", answer.complaint);
        Err(Refusal::cannot_run("command.failed", said)
            .hint("its outputs are kept under evidence/"))
    }

    /// The same for what it does, and not for what it prints.
    fn done(&self, argv: &[&str], why: &str) -> Result<(), Refusal> {
        self.succeed(argv, why).map(drop)
    }

    /// The same for a command of a plan.
    fn planned(&self, argv: &[String], why: &str) -> Result<(), Refusal> {
        self.done(&argv.iter().map(String::as_str).collect::<Vec<_>>(), why)
    }
}

/// Programs for real. While something is [taken away](Live::taking_away), an interruption does not
/// end them; a second one does, and what is left to be run then is kept as text.
pub struct Live<'a> {
    evidence: &'a Evidence,
    begun: RefCell<Vec<std::process::Child>>,
    takes_away: Cell<bool>,
    has_said: Cell<bool>,
    left: RefCell<Vec<String>>,
}

impl<'a> Live<'a> {
    pub fn new(evidence: &'a Evidence) -> Live<'a> {
        Live {
            evidence,
            begun: RefCell::default(),
            takes_away: Cell::new(false),
            has_said: Cell::new(false),
            left: RefCell::default(),
        }
    }

    /// Do `work`, which takes away what was made: only a second interruption ends it.
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

    /// Whether a command must be left to whoever takes away what is left.
    fn leaves(&self, argv: &[&str]) -> bool {
        let leaves = self.takes_away.get() && self.evidence.interrupt().is_raised_again();
        if leaves {
            self.left.borrow_mut().push(quoted(argv));
        }
        leaves
    }
}

/// A command for a shell. No argument of a program has a zero byte, and nothing else cannot be
/// quoted.
fn quoted(argv: &[&str]) -> String {
    shlex::try_join(argv.iter().copied()).unwrap_or_else(|_| argv.join(" "))
}

/// A command whose input is closed. Ctrl-C is for the lab: what it began is ended in its turn.
fn started<T>(
    argv: &[&str],
    why: &str,
    start: impl FnOnce(&mut Command) -> std::io::Result<T>,
) -> Result<T, Refusal> {
    let (program, words) = argv
        .split_first()
        .ok_or_else(|| Refusal::cannot_run("command.empty", "there is no program to start"))?;
    let mut command = Command::new(program);
    start(command.args(words).stdin(Stdio::null()).process_group(0)).map_err(|error| {
        Refusal::cannot_run("command.missing", format!("{program}: {error}")).hint(why)
    })
}

impl Commands for Live<'_> {
    fn run(&self, argv: &[&str], why: &str) -> Result<Answer, Refusal> {
        let nothing = Answer { code: Some(0), ..Answer::default() };
        if self.leaves(argv) {
            return Ok(nothing);
        }
        let takes_away = self.takes_away.get();
        let order = Order::new(argv.iter().copied(), why).limit(LIMIT);
        let ran = match self.evidence.run(&Order { takes_away, ..order }) {
            // A full disk keeps nothing from being taken away.
            Err(_) if takes_away => return Unlogged.run(argv, why),
            ran => ran?,
        };
        let code = match ran.entry.exit {
            Exit::Code(code) => Some(code),
            Exit::Interrupted if self.leaves(argv) => return Ok(nothing),
            _ => None,
        };
        let stdout = String::from_utf8_lossy(&ran.stdout()?).into_owned();
        Ok(Answer { code, stdout, complaint: ran.complaint() })
    }

    fn begin(&self, argv: &[&str], why: &str) -> Result<u32, Refusal> {
        let name = argv.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        let log = self.evidence.dir().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).at(&log, why)?;
        let same = file.try_clone().at(&log, why)?;
        let child = started(argv, why, |command| command.stdout(file).stderr(same).spawn())?;
        let process = child.id();
        self.begun.borrow_mut().push(child);
        Ok(process)
    }

    fn end(&self, process: u32) -> Result<(), Refusal> {
        let mut begun = self.begun.borrow_mut();
        let Some(at) = begun.iter().position(|child| child.id() == process) else { return Ok(()) };
        if self.leaves(&["kill", &process.to_string()]) {
            return Ok(());
        }
        let mut child = begun.swap_remove(at);
        let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        child.wait().map(drop).map_err(|error| {
            Refusal::cannot_run("command.lost", format!("process {process}: {error}"))
        })
    }

    fn pause(&self, time: Duration) {
        // An engine offers nothing to wait on, so time it is.
        std::thread::park_timeout(time);
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
        let output = started(argv, why, Command::output)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let complaint = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
        Ok(Answer { code: output.status.code(), stdout: text(&output.stdout), complaint })
    }
}

/// Programs that are not started: what an engine would be told, for a dry run. Names that it would
/// learn are made up so that nobody takes them for real ones.
#[derive(Debug, Default)]
pub struct Imagined {
    pub lines: RefCell<Vec<String>>,
}

impl Imagined {
    /// What was last echoed into `file`.
    fn written(&self, file: &str) -> Option<String> {
        let lines = self.lines.borrow();
        let line = lines.iter().rev().find(|line| line.contains(&format!("> {file}")))?;
        Some(line.split_once("echo ")?.1.split(" >").next()?.to_owned())
    }
}

impl Commands for Imagined {
    fn run(&self, argv: &[&str], _why: &str) -> Result<Answer, Refusal> {
        self.lines.borrow_mut().push(quoted(argv));
        let stdout = match argv {
            ["cat", file] => self.written(file).unwrap_or_default(),
            ["readlink", "-f", ..] => "/dev/mdN".to_owned(),
            _ if argv.contains(&"attach") => "/dev/loopN".to_owned(),
            _ => String::new(),
        };
        Ok(Answer { code: Some(0), stdout, ..Answer::default() })
    }

    fn begin(&self, argv: &[&str], why: &str) -> Result<u32, Refusal> {
        self.run(&[argv, &["&"]].concat(), why).map(|_| 0)
    }

    fn end(&self, _process: u32) -> Result<(), Refusal> {
        self.done(&["kill", "DAEMON"], "")
    }
}
