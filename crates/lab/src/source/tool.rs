//! One run of a program: its input closed, its language English, its time limited.
//!
//! What must stay true: a program that is missing, fails or hangs costs its limit and nothing else;
//! what it printed is kept as it was.

use serde::{Deserialize, Serialize};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What one program may print; more is cut off and said.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Exit(i32),
    Signal,
    /// It took longer than it may; it was killed.
    TimedOut,
    NotInstalled,
    /// It could not be started, with the reason.
    NotStarted(String),
    NotCaptured,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub argv: Vec<String>,
    pub ending: Ending,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn without_output(argv: &[&str], ending: Ending) -> Run {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Run { argv, ending, stdout: String::new(), stderr: String::new() }
    }

    pub fn is_good(&self) -> bool {
        self.ending == Ending::Exit(0)
    }

    /// Why it gave nothing, in a few words.
    pub fn why_not(&self) -> String {
        let complaint =
            self.stderr.lines().chain(self.stdout.lines()).find(|it| !it.trim().is_empty());
        match &self.ending {
            Ending::Exit(0) => String::new(),
            Ending::Exit(code) => match complaint {
                Some(line) => format!("exit code {code}: {}", line.trim()),
                None => format!("exit code {code}"),
            },
            Ending::Signal => "ended by a signal".to_owned(),
            Ending::TimedOut => "took too long".to_owned(),
            Ending::NotInstalled => "not installed".to_owned(),
            Ending::NotStarted(why) => why.clone(),
            Ending::NotCaptured => "not in this capture".to_owned(),
        }
    }
}

/// Run `argv` and wait at most `limit` for each of its outputs to end.
pub fn run(argv: &[&str], limit: Duration) -> Run {
    let Some((program, rest)) = argv.split_first() else {
        return Run::without_output(argv, Ending::NotStarted("nothing to start".to_owned()));
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    // System tools are in sbin folders, which the path of plain users often lacks.
    command
        .args(rest)
        .env("LC_ALL", "C")
        .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Run::without_output(argv, Ending::NotInstalled);
        }
        Err(error) => return Run::without_output(argv, Ending::NotStarted(error.to_string())),
    };
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let texts = stdout.recv_timeout(limit).and_then(|out| Ok((out, stderr.recv_timeout(limit)?)));
    let Ok((stdout, stderr)) = texts else {
        // It may be gone already; its parts that hang in the kernel are left to it.
        let _ = child.kill();
        return Run::without_output(argv, Ending::TimedOut);
    };
    let ending = match child.wait() {
        Ok(status) => status.code().map_or(Ending::Signal, Ending::Exit),
        Err(error) => Ending::NotStarted(error.to_string()),
    };
    Run { stdout, stderr, ..Run::without_output(argv, ending) }
}

/// Read to the end on a thread of its own, so that neither a full pipe nor a hanging program holds
/// us.
fn reader(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is kept; an error here means the program is gone.
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        // Nobody listens any more after a time limit.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::{Ending, run};
    use std::time::Duration;

    #[test]
    fn a_tool_that_is_missing_hangs_or_fails_says_why_and_one_that_prints_much_is_read_to_its_end()
    {
        let limit = Duration::from_secs(120);
        let missing = run(&["no-such-tool-of-ours"], limit);
        assert_eq!(
            (missing.ending.clone(), missing.why_not().as_str()),
            (Ending::NotInstalled, "not installed")
        );
        let hangs = run(&["sleep", "600"], Duration::from_millis(50));
        assert!(hangs.ending == Ending::TimedOut && !hangs.is_good());
        let fails = run(&["sh", "-c", "echo; echo no table >&2; exit 3"], limit);
        assert_eq!(fails.why_not(), "exit code 3: no table");
        // More than a pipe holds.
        let much = run(&["head", "-c", "300000", "/dev/zero"], limit);
        assert_eq!((much.is_good(), much.stdout.len()), (true, 300_000));
    }
}
