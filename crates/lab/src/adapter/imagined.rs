//! Programs that are only written down: what an engine would be told, for a dry run.
//!
//! What must stay true: nothing is started; names that an engine would learn are made up so that
//! nobody takes them for real ones.

use super::commands::{Answer, Commands};
use super::{Wanted, by_name};
use crate::refusal::Refusal;
use std::cell::RefCell;
use std::time::Duration;

/// Commands that were asked for, in order.
#[derive(Debug, Default)]
pub struct Imagined {
    lines: RefCell<Vec<String>>,
}

impl Imagined {
    fn note(&self, argv: &[&str]) {
        let line = shlex::try_join(argv.iter().copied()).unwrap_or_else(|_| argv.join(" "));
        self.lines.borrow_mut().push(line);
    }

    /// What was last echoed into `file`.
    fn written(&self, file: &str) -> Option<String> {
        let lines = self.lines.borrow();
        let line = lines.iter().rev().find(|line| line.contains(&format!("> {file}")))?;
        Some(line.split_once("echo ")?.1.split(" >").next()?.to_owned())
    }
}

impl Commands for Imagined {
    fn run(&self, argv: &[&str], _why: &str) -> Result<Answer, Refusal> {
        self.note(argv);
        let stdout = match argv {
            ["cat", file] => self.written(file).unwrap_or_default(),
            ["readlink", "-f", ..] => "/dev/mdN".to_owned(),
            _ if argv.contains(&"attach") => "/dev/loopN".to_owned(),
            _ => String::new(),
        };
        Ok(Answer { code: Some(0), stdout, ..Answer::default() })
    }

    fn begin(&self, argv: &[&str], _why: &str) -> Result<u32, Refusal> {
        self.note(&[argv, &["&"]].concat());
        Ok(0)
    }

    fn end(&self, _process: u32) -> Result<(), Refusal> {
        self.note(&["kill", "DAEMON"]);
        Ok(())
    }

    fn pause(&self, _time: Duration) {}
}

/// What the engine called `name` would be told: to make the array, to take `out` members out, to
/// take the array away.
pub fn told(name: &str, wanted: &Wanted, out: usize) -> Result<Vec<String>, Refusal> {
    let (commands, mut engine) = (Imagined::default(), by_name(name)?);
    engine.create(&commands, wanted)?;
    if out > 0 {
        let count = wanted.members.len().max(1);
        engine.take_out(&commands, &(0..out).map(|at| at * 3 % count).collect::<Vec<_>>())?;
    }
    engine.destroy(&commands)?;
    Ok(commands.lines.into_inner())
}

#[cfg(test)]
mod tests {
    use super::told;
    use crate::adapter::Wanted;
    use std::path::PathBuf;

    #[test]
    fn every_engine_says_what_it_would_do_without_doing_it() {
        let wanted = Wanted {
            members: ["/dev/a", "/dev/b", "/dev/c", "/dev/d", "/dev/e"].map(PathBuf::from).into(),
            level: "raid6".into(),
            strip_bytes: 65_536,
            place: PathBuf::from("/nowhere"),
        };
        for (engine, first, last) in [
            ("mdadm", "mdadm --create /dev/md/lab", "--zero-superblock /dev/e"),
            ("btrfs", "mkfs.btrfs", "wipefs -a -q /dev/e"),
            ("ashlar", "serve --fuse", "kill DAEMON"),
        ] {
            let lines = told(engine, &wanted, 1).expect(engine);
            assert!(lines[0].contains(first) || lines[1].contains(first), "{engine}: {lines:?}");
            assert!(lines.last().is_some_and(|line| line.ends_with(last)), "{engine}: {lines:?}");
        }
        assert_eq!(told("hardware", &wanted, 0).expect_err("unknown").code, "engine.unknown");
    }
}
