//! Programs from a transcript, for tests of adapters.

use super::commands::{Answer, Commands};
use crate::Refusal;
use std::cell::RefCell;
use std::collections::VecDeque;

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
            if let Some(command) = line.strip_prefix("$ ") {
                let answer = Answer { code: Some(0), ..Answer::default() };
                lines.push_back((command.to_owned(), answer));
            } else if let Some((_, answer)) = lines.back_mut() {
                match line.strip_prefix("? ") {
                    Some(code) => answer.code = code.trim().parse().ok(),
                    None => {
                        answer.stdout += &format!("{line}\n");
                        line.clone_into(&mut answer.complaint);
                    }
                }
            }
        }
        Recorded { lines: RefCell::new(lines) }
    }

    pub fn left(&self) -> usize {
        self.lines.borrow().len()
    }

    pub fn coming(&self) -> Option<String> {
        self.lines.borrow().front().map(|(command, _)| command.clone())
    }
}

impl Commands for Recorded {
    fn run(&self, argv: &[&str], _why: &str) -> Result<Answer, Refusal> {
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

    fn begin(&self, argv: &[&str], why: &str) -> Result<u32, Refusal> {
        self.run(argv, why).map(|_| 1)
    }

    fn end(&self, process: u32) -> Result<(), Refusal> {
        self.run(&["(end", &format!("{process})")], "").map(drop)
    }
}
