//! Standard output and error: where answers and refusals go.
//!
//! What must stay true: if the reader of the output is gone (`ashlar examine DEVICE | head`), a
//! command ends quietly and never in a panic. A command makes its changes before it prints, so
//! nothing is left half done. A daemon goes on without readers.

use crate::fault::Fault;
use ashlar_api::codes;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::exit;

/// Exit code when the reader has gone: what a shell shows for a program that the system ended for
/// that.
const NOBODY_READS: i32 = 141;

/// Print a line of an answer. Ends the program, in order, if nobody reads any more.
///
/// # Errors
/// If it cannot be written for another reason: a full file system, say.
pub fn line(text: impl Display) -> Result<(), Fault> {
    write(format_args!("{text}\n"))
}

/// The same without an end of line.
///
/// # Errors
/// As [`line()`].
pub fn write(text: impl Display) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(NOBODY_READS),
        Err(error) => Err(Fault::partly(
            codes::SYSTEM_FAULT,
            format!("the answer could not be printed: {error}"),
            "the command was carried out; see 'ashlar status'",
        )),
    }
}

/// Whether somebody looks at a screen.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Print a line that nobody has to read: a daemon does not end because its console did.
pub fn in_passing(text: impl Display) {
    let _unread = writeln!(io::stdout(), "{text}");
}

/// Print a line on standard error. There is nobody to tell if that is closed.
pub fn complain(text: impl Display) {
    let _unread = writeln!(io::stderr(), "{text}");
}
