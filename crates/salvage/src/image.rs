//! Where a member's bytes come from: anything that can be read at an offset.
//!
//! What must stay true: there is no way to write. Files are opened for reading only. Part of an
//! image may be unreadable; the rest still counts.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// These bytes cannot be read, for whatever reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A member's device, or a copy of it.
pub trait ReadAt {
    /// Bytes from the start to the end.
    fn size_bytes(&self) -> u64;

    /// Fill `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If even one of them cannot be read, or lies beyond the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable>;
}

impl ReadAt for [u8] {
    fn size_bytes(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let from = usize::try_from(offset).map_err(|_| Unreadable)?;
        let to = from.checked_add(buffer.len()).ok_or(Unreadable)?;
        buffer.copy_from_slice(self.get(from..to).ok_or(Unreadable)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.as_slice().size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        self.as_slice().read_at(offset, buffer)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read_at(offset, buffer)
    }
}

/// A file or block device, opened for reading.
#[derive(Debug)]
pub struct FileImage {
    file: File,
    size_bytes: u64,
}

impl FileImage {
    /// Open it for reading only.
    ///
    /// # Errors
    /// If it is not there, may not be read, or has no end.
    pub fn open(path: &Path) -> io::Result<FileImage> {
        // A pipe would wait for somebody to write, and a folder has no end.
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = "neither a block device nor a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut file = File::open(path)?;
        // Block devices have no length in their metadata; both kinds can be sought to their end.
        let size_bytes = file.seek(SeekFrom::End(0))?;
        Ok(FileImage { file, size_bytes })
    }

    /// The open file, to see what it is.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for FileImage {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        self.file.read_exact_at(buffer, offset).map_err(|_| Unreadable)
    }
}
