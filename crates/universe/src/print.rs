//! What the program `universe` prints.
//!
//! What must stay true: it ends if nobody reads any more (`universe 7 --story | head`), and never
//! in a panic.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::process::exit;

/// Exit code then: what a shell shows for a program that the system ended for that.
const NOBODY_READS: i32 = 141;

/// Print a line. Ends the program if it cannot be printed.
pub fn line(text: impl Display) {
    if writeln!(stdout(), "{text}").is_err() {
        exit(NOBODY_READS);
    }
}

/// Print a line on standard error. There is nobody to tell if that is closed.
pub fn complain(text: impl Display) {
    let _unread = writeln!(stderr(), "{text}");
}
