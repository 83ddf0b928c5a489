//! What the volume is copied to: a file, a block device, a stream, or nothing.
//!
//! What must stay true: a file or device that holds something is touched only with the operator's
//! word; ranges of zeros become holes; what is skipped keeps its bytes.

use crate::fault::Fault;
use ashlar_device::{HeldGround, holders};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What may happen to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Overwrite,
    Complete,
}

impl Existing {
    pub fn of(overwrite: bool, skip_lost: bool) -> Existing {
        match (overwrite, skip_lost) {
            (true, _) => Existing::Overwrite,
            (false, true) => Existing::Complete,
            (false, false) => Existing::Refuse,
        }
    }
}

/// Where the bytes go. Everything is handed over in the order of the volume.
pub enum Target {
    Nowhere,
    Stream(io::Stdout),
    File {
        file: File,
        path: PathBuf,
        /// It was empty, so that holes need not be made.
        is_fresh: bool,
        existing: Existing,
        /// Nobody else has its bytes.
        _held: HeldGround,
    },
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl Target {
    pub fn stdout() -> Target {
        Target::Stream(io::stdout())
    }

    pub fn is_stream(&self) -> bool {
        matches!(self, Target::Stream(_))
    }

    /// A file of `bytes` bytes.
    ///
    /// # Errors
    /// If it holds something and may not, cannot be written, or is too small.
    pub fn file(path: &Path, bytes: u64, existing: Existing) -> Result<Target, Fault> {
        let hint = "name a file in a directory that you may write to";
        let complain = |error: io::Error| Fault::file(path, &error, hint);
        let mut options = File::options();
        options.read(true).write(true);
        options.create(existing != Existing::Refuse).create_new(existing == Existing::Refuse);
        let is_block = path.metadata().is_ok_and(|it| it.file_type().is_block_device());
        if is_block && existing != Existing::Refuse {
            // Nobody else has it: no file system, no mapping, no array.
            options.create(false).custom_flags(i32::try_from(OFlags::EXCL.bits()).unwrap_or(0));
        }
        let mut file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(in_use(path, path));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("{} is there already; nothing was written", path.display());
                let hint = "name a new file, or add --overwrite, or --skip-lost to complete it";
                return Err(Fault::new("salvage.refused", message, hint));
            }
            opened => opened.map_err(complain)?,
        };
        let opened = descriptor_path(&file);
        let held = HeldGround::take(&opened);
        let held = held.map_err(|user| in_use(path, if user == opened { path } else { &user }))?;
        let kind = file.metadata().map_err(complain)?.file_type();
        let there = file.seek(SeekFrom::End(0)).map_err(complain)?;
        if kind.is_block_device() && there >= bytes {
            let path = path.into();
            return Ok(Target::File { file, path, is_fresh: false, existing, _held: held });
        }
        let fits = kind.is_file() && (existing == Existing::Overwrite || there <= bytes);
        if !fits {
            let message = format!(
                "{} has {there} bytes and the volume {bytes}; nothing was written",
                path.display()
            );
            let hint = "name a new file, or a block device that is at least as big as the volume";
            return Err(Fault::new("salvage.refused", message, hint));
        }
        if existing == Existing::Overwrite {
            file.set_len(0).map_err(complain)?;
        }
        file.set_len(bytes).map_err(complain)?;
        let is_fresh = existing != Existing::Complete || there == 0;
        Ok(Target::File { file, path: path.into(), is_fresh, existing, _held: held })
    }

    /// Store `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let all_zeros = bytes.iter().all(|byte| *byte == 0);
        let done = match self {
            Target::Nowhere => Ok(()),
            Target::Stream(stdout) => stdout.write_all(bytes),
            Target::File { is_fresh: true, .. } if all_zeros => Ok(()),
            Target::File { file, .. } => file.write_all_at(bytes, offset),
        };
        done.map_err(|error| self.fault(&error))
    }

    /// Make `bytes` bytes from `offset` on zeros.
    pub fn zeros(&mut self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let done = match self {
            Target::Nowhere | Target::File { is_fresh: true, .. } => Ok(()),
            Target::Stream(stdout) => in_parts(bytes, |_, part| stdout.write_all(part)),
            Target::File { file, .. } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match rustix::fs::fallocate(&*file, flags, offset, bytes) {
                    Ok(()) => Ok(()),
                    Err(_) => in_parts(bytes, |at, part| file.write_all_at(part, offset + at)),
                }
            }
        };
        done.map_err(|error| self.fault(&error))
    }

    /// Deal with lost bytes: zeros, or what is there already.
    pub fn lost(&mut self, offset: u64, bytes: u64) -> Result<(), Fault> {
        match self {
            Target::File { existing: Existing::Complete, .. } => Ok(()),
            _ => self.zeros(offset, bytes),
        }
    }

    /// Make all of it durable.
    pub fn finish(&mut self) -> Result<(), Fault> {
        let done = match self {
            Target::Nowhere => Ok(()),
            Target::Stream(stdout) => stdout.flush(),
            Target::File { file, .. } => file.sync_all(),
        };
        done.map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &io::Error) -> Fault {
        let hint = "what was copied so far is incomplete; the members are as they were";
        match self {
            Target::File { path, .. } => Fault::file(path, error, hint),
            _ => Fault::file(Path::new("stdout"), error, hint),
        }
    }
}

/// A path to what is open, wherever the path that it was opened by leads.
fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// `user`: the name under which somebody has it.
fn in_use(path: &Path, user: &Path) -> Fault {
    let by = holders(user).unwrap_or_default();
    let by: Vec<String> = by.iter().map(ToString::to_string).collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let under = match path == user {
        true => String::new(),
        false => format!(" as {}", user.display()),
    };
    let path = path.display();
    let message = format!("--to names {path}, which is in use{under}{by}; nothing was written");
    Fault::new("salvage.refused", message, "name a file or device that nobody uses")
}

fn in_parts(bytes: u64, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let part = usize::try_from(bytes - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        write(at, &ZEROS[..part])?;
        at += u64::try_from(part).unwrap_or(u64::MAX);
    }
    Ok(())
}
