//! Where the daemon is, and asking it.

use crate::fault::Fault;
use crate::say;
use ashlar_api::v1::Done;
use ashlar_api::{Call, Client, codes};
use std::path::{Path, PathBuf};

/// How this invocation reaches the daemon, and how it prints.
pub struct Reach {
    /// The socket, if it was named.
    pub socket: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

impl Reach {
    /// The control socket: the named one, or the usual place for this user.
    ///
    /// # Errors
    /// If it was not named and this user has no directory for such things.
    pub fn socket(&self) -> Result<PathBuf, Fault> {
        if let Some(socket) = &self.socket {
            return absolute(socket);
        }
        usual_folder().map(|folder| folder.join("control.sock")).ok_or_else(|| {
            let message = "XDG_RUNTIME_DIR is not set, so there is no usual socket";
            Fault::usage(message, "name one with --socket")
        })
    }

    /// A client of the daemon.
    ///
    /// # Errors
    /// If the system has no resources for one.
    pub fn client(&self) -> Result<Client, Fault> {
        Client::new(&self.socket()?).map_err(|error| {
            Fault::new(codes::SYSTEM_FAULT, format!("no resources for a client: {error}"), "")
        })
    }

    /// Ask.
    ///
    /// # Errors
    /// Nobody there, or a refusal.
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Answer, Fault> {
        Ok(self.client()?.call(call)?)
    }

    /// Print the answer: as JSON, or with `text`.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn print<T: serde::Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Fault> {
        if self.json {
            say::line(serde_json::to_string_pretty(answer)?)
        } else {
            say::line(text(answer).trim_end())
        }
    }

    /// Print a line for people; JSON was printed with the answer, and is one document.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub fn tell(&self, line: impl std::fmt::Display) -> Result<(), Fault> {
        if self.json { Ok(()) } else { say::line(line) }
    }

    /// Ask for a change and print what came of it.
    ///
    /// # Errors
    /// Nobody there, or a refusal.
    pub fn change<C: Call<Answer = Done>>(&self, call: &C) -> Result<Done, Fault> {
        let done = self.call(call)?;
        self.print(&done, |done| done.message.clone())?;
        Ok(done)
    }
}

/// Make the folder of `socket` if it is the usual one of this user. Others are whose they are.
///
/// # Errors
/// If it cannot be made.
pub fn make_usual_folder(socket: &Path) -> Result<(), Fault> {
    let Some(folder) = usual_folder().filter(|folder| socket.parent() == Some(folder)) else {
        return Ok(());
    };
    std::fs::create_dir_all(&folder)
        .map_err(|error| Fault::file(&folder, &error, "name another place with --socket"))
}

/// The folder for sockets and attached volumes of this user, if there is one.
fn usual_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/ashlar"));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("ashlar"))
}

/// `path` as the daemon, which may run elsewhere, must see it. Links are kept: names below
/// /dev/disk/by-id are better than what they point at.
///
/// # Errors
/// If the path is empty, is not UTF-8, or the current folder is gone.
pub fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|error| Fault::file(path, &error, "give a full path"))
}

/// [`absolute`], as text.
///
/// # Errors
/// As [`absolute`].
pub fn device(path: &Path) -> Result<String, Fault> {
    // A memory device is no path; a file of such a name is `./memory:...`.
    let path = match path.to_str().is_some_and(|text| text.starts_with("memory:")) {
        true => path.to_owned(),
        false => absolute(path)?,
    };
    let text = path.to_str().ok_or_else(|| {
        Fault::usage(format!("{} is not UTF-8", path.display()), "use another name for the device")
    })?;
    Ok(text.to_owned())
}

/// [`device`] for each.
///
/// # Errors
/// As [`device`], for the first that fails.
pub fn devices(paths: &[PathBuf]) -> Result<Vec<String>, Fault> {
    paths.iter().map(|path| device(path)).collect()
}
