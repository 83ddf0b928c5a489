//! What an engine or a plan needs of this machine, asked before anything is started.
//!
//! What must stay true: everything that is missing is named at once; nothing is loaded or changed.

use super::is_there;
use crate::refusal::Refusal;
use std::path::Path;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// A program, by name or path.
    Program(String),
    /// A kernel module, and a file that is there when it is, or a file system's line.
    Kernel(&'static str, &'static str),
}

impl Need {
    pub fn program(name: &str) -> Need {
        Need::Program(name.to_owned())
    }

    fn is_met(&self) -> bool {
        match self {
            Need::Program(name) => is_there(name),
            Need::Kernel(module, sign) => {
                let has_sign = Path::new(sign).exists() || is_file_system(sign);
                has_sign || can_be_loaded(module)
            }
        }
    }

    fn told(&self) -> String {
        match self {
            Need::Program(name) => format!("the program {name}"),
            Need::Kernel(module, _) => format!("{module} in this kernel"),
        }
    }
}

fn is_file_system(name: &str) -> bool {
    let text = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().last() == Some(name))
}

fn can_be_loaded(module: &str) -> bool {
    let mut command = std::process::Command::new("modprobe");
    let quiet = command.args(["--dry-run", "--quiet", module]).stdin(std::process::Stdio::null());
    quiet.output().is_ok_and(|output| output.status.success())
}

pub fn refuse_missing(mut needs: Vec<Need>) -> Result<(), Refusal> {
    needs.sort();
    needs.dedup();
    let missing: Vec<String> = needs.iter().filter(|need| !need.is_met()).map(Need::told).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let said = format!("missing: {}; nothing was started", missing.join(", "));
    Err(Refusal::cannot_run("needs.missing", said).hint("install what is missing, or leave it out"))
}

#[cfg(test)]
mod tests {
    use super::{Need, refuse_missing};

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let needs = ["sh", "no-such-program", "no-such-engine"].map(Need::program);
        let kernel = Need::Kernel("no_such_module", "/sys/module/no_such_module");
        let refusal =
            refuse_missing(needs.into_iter().chain([kernel]).collect()).expect_err("missing");
        let wanted = "missing: the program no-such-engine, the program no-such-program, \
                      no_such_module in this kernel; nothing was started";
        assert_eq!((refusal.message.as_str(), refusal.exit_code()), (wanted, 2));
        assert!(refuse_missing(vec![Need::program("sh"), Need::program("/bin/sh")]).is_ok());
        assert!(refuse_missing(vec![Need::Kernel("x", "proc")]).is_ok());
    }
}
