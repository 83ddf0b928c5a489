//! The one clear line: what happened, to what, what is still safe, what to do next.

use std::path::Path;
use std::{fmt, io};

/// Why the lab did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Refusal {
    /// Stable name, `noun.verb_past` or `noun.adjective`: `fio.output_truncated`.
    pub code: String,
    /// What happened, to what, and what is still safe.
    pub message: String,
    /// What to do next.
    pub hint: String,
    #[serde(skip)]
    exit: u8,
}

impl Refusal {
    /// A check or a comparison that came out wrong, or a thing that was refused: exit code 1.
    pub fn new(code: &str, message: impl Into<String>) -> Refusal {
        let (code, message) = (code.to_owned(), message.into());
        Refusal { code, message, hint: String::new(), exit: 1 }
    }

    /// The lab could not run: a missing tool, no permission, bad input. Exit code 2.
    pub fn cannot_run(code: &str, message: impl Into<String>) -> Refusal {
        Refusal { exit: 2, ..Refusal::new(code, message) }
    }

    /// A file that could not be read or written: exit code 2.
    pub fn file(path: &Path, error: &io::Error, hint: &str) -> Refusal {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::disk_full(path),
            _ => Refusal::cannot_run("file.unusable", format!("{}: {error}", path.display()))
                .hint(hint),
        }
    }

    /// A file that there is no space for: exit code 2.
    pub fn disk_full(path: &Path) -> Refusal {
        let said = format!("no space left at {}; what was measured so far is kept", path.display());
        Refusal::cannot_run("disk.full", said)
            .hint("make room and start it again; a run goes on with --resume")
    }

    /// With what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = hint.into();
        self
    }

    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        self.exit
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a tool or a device put into its text.
        let line = match self.hint.as_str() {
            "" => self.message.clone(),
            hint => format!("{}; {hint}", self.message),
        };
        f.write_str(&line.replace(char::is_control, " "))
    }
}

impl std::error::Error for Refusal {}

/// What became of a file.
pub trait AtPath<T> {
    /// The same, where an error is a refusal that names the file and what to do next.
    ///
    /// # Errors
    /// The error that it is.
    fn at(self, path: &Path, hint: &str) -> Result<T, Refusal>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path, hint: &str) -> Result<T, Refusal> {
        self.map_err(|error| Refusal::file(path, &error, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn a_refusal_is_one_line_whatever_is_in_it() {
        let refusal = Refusal::new("x.y", "serial A\nB\tC").hint("look\r\nagain");
        assert_eq!(refusal.to_string(), "serial A B C; look  again");
        assert_eq!((refusal.exit_code(), Refusal::cannot_run("a.b", "").exit_code()), (1, 2));
    }
}
