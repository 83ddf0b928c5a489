//! Standard output: where answers go.
//!
//! What must stay true: if the reader is gone (`ashlar lab inspect | head`), the lab ends quietly
//! and never in a panic. It prints answers last, so nothing is left half done.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Exit code when the reader has gone: what a shell shows for a program that the system ended for
/// that.
const NOBODY_READS: i32 = 141;

/// Print `text`. Ends the program, in order, if nobody reads any more.
pub fn part(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(NOBODY_READS),
        Err(error) => {
            let said = format!("ashlar-lab: the answer could not be printed: {error}\n");
            let _nobody_to_tell = std::io::stderr().write_all(said.as_bytes());
            std::process::exit(2);
        }
        Ok(()) => {}
    }
}

/// Print a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::part(format_args!("{}\n", format_args!($($text)*))) };
}

/// Print text as it is.
macro_rules! say_part {
    ($($text:tt)*) => { $crate::say::part(format_args!($($text)*)) };
}

pub(crate) use {say, say_part};
