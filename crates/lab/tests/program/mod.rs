//! The real binary, as a test starts it.

use std::path::Path;
use std::process::{Command, Output};

/// The lab.
pub const LAB: &str = env!("CARGO_BIN_EXE_ashlar-lab");

/// Start it with these words.
pub fn lab(words: &[&str]) -> Output {
    Command::new(LAB).args(words).output().expect("started")
}

/// Everything that it printed.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat())
        .into_owned()
}

/// A path as one of its words.
pub fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
