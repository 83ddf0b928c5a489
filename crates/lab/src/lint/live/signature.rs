//! What is in the way of destroying a device: mounts, holders, swap, partitions, signatures.
//!
//! What must stay true: a device that could not be read is never called free; what is known to be
//! in use is said even if it cannot be read.

use super::Sysfs;
use crate::adapter::commands::Unlogged;
use crate::guard::signatures;
use crate::hold::is_held;
use crate::lint::machine::Known;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// What is in the way of writing to the device at `path`; empty if nothing is.
pub fn occupied(path: &Path, sysfs: &Sysfs) -> Known<Vec<String>> {
    let mut found = in_use(path, sysfs)?;
    found.extend(is_held(path).then(|| "measured by another lab".to_owned()));
    match signatures(&Unlogged, path) {
        Ok(more) => found.extend(more.into_iter().map(|name| format!("{name} is on it"))),
        // Whoever uses a device may keep others from reading it: that it is used is known.
        Err(why) if found.is_empty() => return Err(why.to_string()),
        Err(_) => {}
    }
    Ok(found)
}

/// What uses the device or a part of it: a mount, a device on it, swap, its partitions, a program.
pub fn in_use(path: &Path, sysfs: &Sysfs) -> Known<Vec<String>> {
    let mut found = Vec::new();
    let parts = parts(sysfs);
    for part in &parts {
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        let number = fs::read_to_string(part.join("dev")).map_err(|error| error.to_string())?;
        let place = mounted(number.trim())?;
        found.extend(place.map(|place| format!("{name} is mounted on {place}")));
    }
    found.extend(parts.iter().flat_map(|part| held(part)));
    found.extend((parts.len() > 1).then(|| "divided into partitions".to_owned()));
    found.extend(swap(path)?);
    found.extend(claimed(path).filter(|_| found.is_empty()));
    Ok(found)
}

/// Whether somebody has the block device for himself: a mount, md, the device mapper, ZFS, a
/// program that opened it so. Opening it for reading changes nothing.
fn claimed(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    (opened.err() == Some(Errno::BUSY)).then(|| "claimed by the kernel or a program".to_owned())
}

/// The directory of the device and, of a whole disk, those of its partitions.
fn parts(sysfs: &Sysfs) -> Vec<PathBuf> {
    let items = fs::read_dir(&sysfs.own).into_iter().flatten().filter_map(Result::ok);
    let parts = items.map(|item| item.path()).filter(|path| path.join("partition").exists());
    [sysfs.own.clone()].into_iter().chain(parts).collect()
}

fn mounted(number: &str) -> Known<Option<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let place = text.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then(|| fields.nth(1).unwrap_or("?").to_owned())
    });
    Ok(place)
}

/// Devices built on this one: md, device mapper, bcache.
fn held(part: &Path) -> impl Iterator<Item = String> {
    let holders = fs::read_dir(part.join("holders")).into_iter().flatten().filter_map(Result::ok);
    holders.map(|item| format!("held by {}", item.file_name().to_string_lossy()))
}

fn swap(path: &Path) -> Known<Option<String>> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let own = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let is_own =
        |line: &str| line.split_whitespace().next().is_some_and(|name| Path::new(name) == own);
    Ok(text.lines().any(is_own).then(|| "used as swap".to_owned()))
}
