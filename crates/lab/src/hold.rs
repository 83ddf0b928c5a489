//! Drives that a lab measures: another lab on the same drive would be in the figures of both.
//!
//! A socket in the kernel's abstract namespace stands for each drive. It ends with its process.
//!
//! What must stay true: a drive is held from before the first load until after the last one; the
//! partitions of a disk are one drive. A lab in another network namespace is not seen.

use crate::Refusal;
use crate::lint::live::Sysfs;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// Drives that are held until it is dropped.
#[derive(Debug)]
pub struct Hold {
    _held: Vec<UnixDatagram>,
}

impl Hold {
    /// Of the drives and files at `paths`; what is neither needs none.
    pub fn of(paths: &[PathBuf]) -> Result<Hold, Refusal> {
        let named: BTreeMap<String, &PathBuf> =
            paths.iter().filter_map(|path| Some((name(path)?, path))).collect();
        let held = named.iter().map(|(name, path)| {
            let held = address(name).and_then(|address| UnixDatagram::bind_addr(&address));
            held.map_err(|error| {
                let why = match error.kind() {
                    ErrorKind::AddrInUse => "another lab measures it".to_owned(),
                    _ => format!("it cannot be held: {error}"),
                };
                let said = format!("{}: {why}; nothing was started", path.display());
                Refusal::new("target.held", said).hint("wait for it, or name other drives")
            })
        });
        Ok(Hold { _held: held.collect::<Result<_, _>>()? })
    }
}

pub fn is_held(path: &Path) -> bool {
    let asked = name(path).map(|name| {
        UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&address(&name)?)).is_ok()
    });
    asked.unwrap_or(false)
}

fn address(name: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("ashlar-lab-{name}"))
}

/// The number of the whole disk, or of a file and the file system that it is on.
fn name(path: &Path) -> Option<String> {
    let facts = fs::metadata(path).ok()?;
    if facts.is_file() {
        return Some(format!("{}-{}", facts.dev(), facts.ino()));
    }
    facts.file_type().is_block_device().then(|| {
        let disk = Sysfs::of(facts.rdev()).and_then(|sysfs| {
            fs::read_to_string(sysfs.disk.join("dev")).map_err(|error| error.to_string())
        });
        disk.map_or_else(|_| facts.rdev().to_string(), |number| number.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{Hold, is_held};

    #[test]
    fn a_drive_is_held_once_and_free_again_afterwards() {
        let place = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| place.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "x").unwrap());
        let held = Hold::of(&[&paths[..1], &paths[..1]].concat()).unwrap();
        let refusal = Hold::of(&paths).unwrap_err();
        assert!(refusal.to_string().contains("a: another lab measures it"), "{refusal}");
        assert!(is_held(&paths[0]) && !is_held(&paths[1]), "the other one was let go");
        drop(held);
        assert!(!is_held(&paths[0]));
        Hold::of(&paths).unwrap();
    }
}
