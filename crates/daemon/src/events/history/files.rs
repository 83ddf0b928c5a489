//! The files of the history: `events.jsonl`, and older ones as `events.jsonl.1` and so on.
//!
//! What must stay true: together they never take more than the limit. A line is written whole or
//! cut off again. One daemon writes: a lock keeps a second one away.

use ashlar_api::v1::event::Event;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file that is being written.
const NAME: &str = "events.jsonl";
/// The history is in so many files at most.
const FILES: u32 = 4;
/// Events tell who did what; only the daemon's group may read that.
const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;

/// The files, opened for writing.
pub(super) struct Files {
    folder: PathBuf,
    file: File,
    /// Bytes of whole lines in `file`.
    end: u64,
    /// Bytes in the older files.
    older: u64,
    /// The most that one file may have.
    file_max: u64,
    /// Held as long as this daemon writes.
    _lock: File,
}

/// The path of a file; the larger `age`, the older.
pub(super) fn path(folder: &Path, age: u32) -> PathBuf {
    match age {
        0 => folder.join(NAME),
        age => folder.join(format!("{NAME}.{age}")),
    }
}

/// How many files there can be.
pub(super) fn ages() -> std::ops::Range<u32> {
    0..FILES
}

impl Files {
    /// Open the files in `folder`, which is made if it is not there, and mend the last line if a
    /// crash cut it short. Whether that was so.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` if another daemon writes there.
    pub(super) fn open(folder: &Path, limit_bytes: u64) -> io::Result<(Files, bool)> {
        std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
        let lock = options().truncate(false).open(folder.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let error = io::Error::from(error);
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    io::Error::new(error.kind(), "another daemon writes its history there")
                }
                _ => error,
            }
        })?;
        let mut file = options().read(true).open(path(folder, 0))?;
        let end = file.seek(SeekFrom::End(0))?;
        let (end, is_cut) = whole_lines(&mut file, end)?;
        if is_cut {
            file.set_len(end)?;
        }
        file.seek(SeekFrom::Start(end))?;
        let mut older = 0;
        for age in ages().skip(1) {
            older += std::fs::metadata(path(folder, age)).map_or(0, |about| about.len());
        }
        let file_max = limit_bytes / u64::from(FILES);
        let files = Files { folder: folder.to_owned(), file, end, older, file_max, _lock: lock };
        Ok((files, is_cut))
    }

    /// Bytes that the history takes.
    pub(super) fn bytes(&self) -> u64 {
        self.end + self.older
    }

    /// Write all `events` and put them on the disk.
    ///
    /// # Errors
    /// What the system says. Then a first part of them may have been written, as whole lines.
    pub(super) fn append<'e>(&mut self, events: impl Iterator<Item = &'e Event>) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            let line = serde_json::to_vec(event).map_err(io::Error::other)?;
            let length = ashlar_units::to_u64(lines.len() + line.len() + 1);
            if self.end + length > self.file_max {
                self.put(&std::mem::take(&mut lines))?;
                if self.end > 0 {
                    self.rotate()?;
                }
            }
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
        self.put(&lines)?;
        self.file.sync_data()
    }

    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Half a line would spoil the next one; a full disk can always cut.
            let _kept = self.file.set_len(self.end);
            let _there = self.file.seek(SeekFrom::Start(self.end));
            return Err(error);
        }
        self.end += ashlar_units::to_u64(lines.len());
        Ok(())
    }

    /// The current file becomes the newest of the older ones, and the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        for age in ages().rev().skip(1) {
            match std::fs::rename(path(&self.folder, age), path(&self.folder, age + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = options().truncate(true).open(path(&self.folder, 0))?;
        self.end = 0;
        self.older = 0;
        for age in ages().skip(1) {
            self.older += std::fs::metadata(path(&self.folder, age)).map_or(0, |it| it.len());
        }
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options
}

/// Where the last whole line of a file of `end` bytes ends, and whether something follows it.
fn whole_lines(file: &mut File, end: u64) -> io::Result<(u64, bool)> {
    const STEP: u64 = 64 << 10;
    let mut from = end;
    while from > 0 {
        let begin = from.saturating_sub(STEP);
        let mut bytes = vec![0; ashlar_units::to_usize(from - begin)];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            let whole = begin + ashlar_units::to_u64(at) + 1;
            return Ok((whole, whole < end));
        }
        from = begin;
    }
    Ok((0, end > 0))
}
