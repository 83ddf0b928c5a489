//! The table of mounts, as in /proc/self/mounts.
//!
//! What must stay true: blanks, line ends, `\` and `#` stand there as `\` and three octal digits,
//! and are decoded. Without that, a path with them would never be found again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// What is mounted: a device, or a name.
    pub source: PathBuf,
    /// Where.
    pub place: PathBuf,
    /// The file system.
    pub kind: String,
}

/// The mounts of a text, in the order in which they were made.
pub fn parse(text: &str) -> impl Iterator<Item = Mount> {
    text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (source, place) = (unescaped(words.next()?), unescaped(words.next()?));
        Some(Mount { source, place, kind: words.next()?.to_owned() })
    })
}

/// The mounts of this process; none if they cannot be read.
pub fn here() -> Vec<Mount> {
    parse(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default()).collect()
}

/// The mounts of this process with the minor numbers of their devices, for file systems without a
/// block device (major number 0); none if they cannot be read.
pub fn with_devices() -> Vec<(u32, Mount)> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    parse_info(&text).collect()
}

/// A mount, and the number of its device, as `8:1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnDevice {
    /// The device that files on it have.
    pub number: String,
    /// The mount.
    pub mount: Mount,
}

/// The mounts of this process with the numbers of their devices; none if they cannot be read.
pub fn on_devices() -> Vec<OnDevice> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    parse_numbered(&text).collect()
}

/// Those of file systems without a block device, by its minor number.
fn parse_info(text: &str) -> impl Iterator<Item = (u32, Mount)> {
    parse_numbered(text).filter_map(|OnDevice { number, mount }| {
        Some((number.strip_prefix("0:")?.parse().ok()?, mount))
    })
}

/// Lines of /proc/self/mountinfo: an id, the parent's, the device, the root within it, the place,
/// options, and more of them; after a single `-` the kind and the source.
fn parse_numbered(text: &str) -> impl Iterator<Item = OnDevice> {
    text.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut words = front.split(' ').skip(2);
        let number = words.next()?.to_owned();
        let place = unescaped(words.nth(1)?);
        let mut words = back.split(' ');
        let kind = words.next()?.to_owned();
        Some(OnDevice { number, mount: Mount { source: unescaped(words.next()?), place, kind } })
    })
}

fn unescaped(word: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.filter(|digits| digits.iter().all(|c| (b'0'..=b'7').contains(c)));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Mount, parse, parse_info};

    #[test]
    fn every_escape_of_the_kernel_is_read_as_what_it_is() {
        let text = "ashlar /run/v/a\\134b\\040c\\011d\\012e\\043f fuse.ashlar rw 0 0\nshort\n\
                    /dev/loop0 /\\7 xfs rw 0 0\n";
        let mount = |source: &str, place: &str, kind: &str| Mount {
            source: source.into(),
            place: place.into(),
            kind: kind.to_owned(),
        };
        let wanted = [
            mount("ashlar", "/run/v/a\\b c\td\ne#f", "fuse.ashlar"),
            mount("/dev/loop0", "/\\7", "xfs"),
        ];
        assert_eq!(parse(text).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn devices_are_told_with_what_is_mounted_by_them() {
        let text = "36 35 0:57 / /run/v/a\\040b rw,ro shared:1 - fuse.ashlar ashlar r\n\
                    37 35 8:1 / /boot rw - ext4 /dev/sda1 rw\nshort - of words\n";
        let wanted = Mount {
            source: "ashlar".into(),
            place: "/run/v/a b".into(),
            kind: "fuse.ashlar".to_owned(),
        };
        assert_eq!(parse_info(text).collect::<Vec<_>>(), [(57, wanted)]);
    }
}
