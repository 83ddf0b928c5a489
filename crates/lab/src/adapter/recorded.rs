//! Programs from a transcript, for tests of adapters.

use super::commands::{Answer, Commands};
use crate::Refusal;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

/// Programs from a transcript: each command must come in its turn, word for word.
#[derive(Default)]
pub struct Recorded {
    lines: RefCell<VecDeque<(String, Answer)>>,
}

impl Recorded {
    /// A transcript: lines `$ COMMAND`, each followed by what it printed; `? N` before the next
    /// command is its exit code.
    pub fn parse(transcript: &str) -> Recorded {
        let mut lines: VecDeque<(String, Answer)> = VecDeque::new();
        for line in transcript.lines() {
            match (line.strip_prefix("$ "), line.strip_prefix("? "), lines.back_mut()) {
                (Some(command), _, _) => {
                    lines.push_back((
                        command.to_owned(),
                        Answer { code: Some(0), ..Answer::default() },
                    ));
                }
                (None, Some(code), Some((_, answer))) => answer.code = code.trim().parse().ok(),
                (None, None, Some((_, answer))) => {
                    answer.stdout.push_str(line);
                    answer.stdout.push('\n');
                    line.clone_into(&mut answer.complaint);
                }
                (None, _, None) => {}
            }
        }
        Recorded { lines: RefCell::new(lines) }
    }

    /// Commands of the transcript that were not run.
    pub fn left(&self) -> usize {
        self.lines.borrow().len()
    }

    /// The command that comes next in the transcript.
    pub fn coming(&self) -> Option<String> {
        self.lines.borrow().front().map(|(command, _)| command.clone())
    }

    fn next(&self, argv: &[&str]) -> Result<Answer, Refusal> {
        let typed = argv.join(" ");
        match self.lines.borrow_mut().pop_front() {
            Some((command, answer)) if command == typed => Ok(answer),
            Some((command, _)) => {
                let said = format!("the transcript has '{command}', the adapter ran '{typed}'");
                Err(Refusal::new("transcript.differs", said))
            }
            None => Err(Refusal::new("transcript.ended", format!("the adapter ran '{typed}'"))),
        }
    }
}

impl Commands for Recorded {
    fn run(&self, argv: &[&str], _why: &str) -> Result<Answer, Refusal> {
        self.next(argv)
    }

    fn begin(&self, argv: &[&str], _why: &str) -> Result<u32, Refusal> {
        self.next(argv).map(|_| 1)
    }

    fn end(&self, process: u32) -> Result<(), Refusal> {
        self.next(&["(end", &format!("{process})")]).map(|_| ())
    }

    fn pause(&self, _time: Duration) {}
}
