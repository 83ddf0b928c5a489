//! How a refusal looks: `ashlar: what happened; what is still safe; what to do next`, on one line.

use crate::say;
use ashlar_api::{ApiError, ClientError, codes};
use ashlar_daemon::config::ConfigError;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// Why a command did not do what it was asked. Also what `--json` prints.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Fault {
    error: ApiError,
    #[serde(skip)]
    exit: u8,
    /// Whether an answer was printed already, so that JSON of this fault would be a second
    /// document.
    #[serde(skip)]
    is_answered: bool,
}

impl Fault {
    /// A refusal after the command line was understood: exit code 1.
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault { error: ApiError::new(code, message, hint), exit: 1, is_answered: false }
    }

    /// The command line makes no sense: exit code 2.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault {
            error: ApiError::new(codes::REQUEST_MALFORMED, message, hint),
            exit: 2,
            is_answered: false,
        }
    }

    /// The answer was printed, and it is not what was hoped for: exit code 1.
    pub fn answered(code: &str, message: impl Into<String>, hint: String) -> Fault {
        Fault { is_answered: true, ..Fault::new(code, message, hint) }
    }

    /// The answer was printed, and something is missing from it: exit code 3.
    pub fn partly(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault { error: ApiError::new(code, message, hint), exit: 3, is_answered: true }
    }

    /// A file that could not be used.
    pub fn file(path: &Path, error: &std::io::Error, hint: &str) -> Fault {
        Fault::new(codes::SYSTEM_FAULT, format!("{}: {error}", path.display()), hint)
    }

    /// Whether there is no daemon.
    pub fn is_unreachable(&self) -> bool {
        self.error.code == codes::DAEMON_UNREACHABLE
    }

    /// The same with one more thing to do next.
    pub fn and_then(mut self, hint: String) -> Fault {
        let hints = [std::mem::take(&mut self.error.hint), hint];
        self.error.hint =
            hints.iter().filter(|it| !it.is_empty()).cloned().collect::<Vec<_>>().join("; ");
        self
    }

    /// Print it and say which code to exit with.
    pub fn report(&self, json: bool) -> ExitCode {
        if json
            && !self.is_answered
            && let Ok(text) = serde_json::to_string(self)
        {
            say::in_passing(text);
        }
        say::complain(format_args!("ashlar: {self}"));
        ExitCode::from(self.exit)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a device or a peer put into its text.
        let line = self.error.to_string();
        for part in line.split_inclusive(char::is_control) {
            f.write_str(part.trim_end_matches(char::is_control))?;
            if part.ends_with(char::is_control) {
                f.write_str(" ")?;
            }
        }
        Ok(())
    }
}

impl From<ashlar_lab::Refusal> for Fault {
    fn from(refusal: ashlar_lab::Refusal) -> Fault {
        let exit = refusal.exit_code();
        Fault { exit, ..Fault::new(&refusal.code, refusal.message, refusal.hint) }
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        match error {
            ClientError::Refused(error) => Fault { error, exit: 1, is_answered: false },
            ClientError::Unreachable { socket, source }
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                Fault::new(
                    codes::PEER_REFUSED,
                    format!(
                        "user {} may not open {}: Permission denied; nothing was changed",
                        rustix::process::geteuid().as_raw(),
                        socket.display()
                    ),
                    "root, the daemon's user and the socket's group may: see ls -l of it",
                )
            }
            ClientError::Unreachable { .. } => Fault::new(
                codes::DAEMON_UNREACHABLE,
                format!("{error}; nothing was changed"),
                "start one with 'ashlar serve', or name its socket with --socket",
            ),
            ClientError::Protocol(_) => Fault::new(
                codes::DAEMON_UNREADABLE,
                error.to_string(),
                "see whether the daemon still runs and has the same version, then 'ashlar status'",
            ),
        }
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Fault {
        let hint = "correct the file; ashlar.toml(5) lists what it may say";
        Fault::new(codes::REQUEST_MALFORMED, error.to_string(), hint)
    }
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Fault {
        Fault { error, exit: 1, is_answered: false }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Fault {
        Fault::new(codes::SYSTEM_FAULT, format!("the answer cannot be printed: {error}"), "")
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use ashlar_api::codes;

    #[test]
    fn a_fault_is_one_line_whatever_is_in_it() {
        let fault = Fault::new(codes::SYSTEM_FAULT, "serial A\nB\tC failed", "look\r\nagain");
        assert_eq!(fault.to_string(), "serial A B C failed; look  again");
    }

    #[test]
    fn json_has_the_code_the_message_and_the_hint() {
        let fault = Fault::usage("no", "yes");
        let text = serde_json::to_string(&fault).expect("plain data");
        assert_eq!(text, r#"{"error":{"code":"request.malformed","message":"no","hint":"yes"}}"#);
    }
}
