//! A minimal check for foreign data, for systems without util-linux's prober.
//!
//! What must stay true: each format is known by the bytes in its own documentation. Finding too
//! much is better than finding too little, because the answer only makes somebody ask. Not here:
//! whether the data is valid.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use ashlar_units::to_usize;

use super::Signature;

/// A format known by bytes at a fixed place.
struct Magic {
    kind: &'static str,
    offset: u64,
    bytes: &'static [u8],
    uuid: Uuid,
    label: Option<Text>,
}

/// Where a format keeps its identity.
enum Uuid {
    None,
    /// Sixteen bytes.
    Binary(u64),
    Text(Text),
}

/// Padded text.
struct Text {
    offset: u64,
    bytes: u64,
}

const fn text(offset: u64, bytes: u64) -> Option<Text> {
    Some(Text { offset, bytes })
}

const MD: &[u8] = &[0xFC, 0x4E, 0x2B, 0xA9];

const fn md(offset: u64) -> Magic {
    let uuid = Uuid::Binary(offset + 16);
    Magic { kind: "linux_raid_member", offset, bytes: MD, uuid, label: text(offset + 32, 32) }
}

const fn lvm(sector: u64) -> Magic {
    let start = sector * 512;
    let uuid = Uuid::Text(Text { offset: start + 32, bytes: 32 });
    Magic { kind: "LVM2_member", offset: start + 24, bytes: b"LVM2 001", uuid, label: None }
}

const fn gpt(offset: u64) -> Magic {
    let uuid = Uuid::Binary(offset + 56);
    Magic { kind: "gpt", offset, bytes: b"EFI PART", uuid, label: None }
}

const AT_FIXED_PLACES: [Magic; 13] = [
    gpt(512),
    gpt(4096),
    Magic {
        kind: "ext",
        offset: 0x438,
        bytes: &[0x53, 0xEF],
        uuid: Uuid::Binary(0x468),
        label: text(0x478, 16),
    },
    Magic { kind: "xfs", offset: 0, bytes: b"XFSB", uuid: Uuid::Binary(32), label: text(108, 12) },
    Magic {
        kind: "btrfs",
        offset: 0x1_0040,
        bytes: b"_BHRfS_M",
        uuid: Uuid::Binary(0x1_0020),
        label: text(0x1_012B, 256),
    },
    md(0),
    md(4096),
    lvm(0),
    lvm(1),
    lvm(2),
    lvm(3),
    Magic {
        kind: "crypto_LUKS",
        offset: 0,
        bytes: b"LUKS\xBA\xBE",
        uuid: Uuid::Text(Text { offset: 168, bytes: 40 }),
        label: None,
    },
    Magic {
        kind: "swap",
        offset: 4086,
        bytes: b"SWAPSPACE2",
        uuid: Uuid::Binary(1036),
        label: text(1052, 16),
    },
];

/// What is on the device or file, in order of offsets.
pub(super) fn signatures(file: &File) -> io::Result<Vec<Signature>> {
    let mut end = file;
    let size_bytes = end.seek(SeekFrom::End(0))?;
    let device = Bytes { file, size_bytes };
    let mut found = Vec::new();
    let at_the_end = [
        size_bytes.checked_sub(512).map(gpt),
        size_bytes.checked_sub(4096).map(gpt),
        // md 1.0 is 8 to 12 KiB before the end, 0.90 in the last whole 64 KiB.
        (size_bytes / 512).checked_sub(16).map(|sector| md((sector & !7) * 512)),
        (size_bytes & !0xFFFF).checked_sub(0x1_0000).map(|offset| Magic {
            uuid: Uuid::None,
            label: None,
            ..md(offset)
        }),
    ];
    for magic in AT_FIXED_PLACES.iter().chain(at_the_end.iter().flatten()) {
        if device.read(magic.offset, magic.bytes.len())?.as_deref() == Some(magic.bytes) {
            found.push(device.describe(magic)?);
        }
    }
    found.extend(device.partition_table()?);
    found.extend(device.zfs()?);
    found.sort_by_key(|signature| signature.offset);
    found.dedup();
    Ok(found)
}

struct Bytes<'file> {
    file: &'file File,
    size_bytes: u64,
}

impl Bytes<'_> {
    /// `None` if the device ends before.
    fn read(&self, offset: u64, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let mut content = vec![0; bytes];
        match self.file.read_exact_at(&mut content, offset) {
            Ok(()) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_text(&self, text: &Text) -> io::Result<Option<String>> {
        let content = self.read(text.offset, to_usize(text.bytes))?.unwrap_or_default();
        let used = content.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(used).trim().to_owned();
        Ok((!name.is_empty()).then_some(name))
    }

    fn describe(&self, magic: &Magic) -> io::Result<Signature> {
        let uuid = match &magic.uuid {
            Uuid::None => None,
            Uuid::Binary(offset) => self.read(*offset, 16)?.map(|bytes| hyphenated(&bytes)),
            Uuid::Text(text) => self.read_text(text)?,
        };
        let label = match &magic.label {
            Some(text) => self.read_text(text)?,
            None => None,
        };
        Ok(Signature { kind: magic.kind.to_owned(), offset: magic.offset, uuid, label })
    }

    /// An MBR: its mark alone is on many boot sectors, so there has to be an entry in use, and no
    /// senseless one.
    fn partition_table(&self) -> io::Result<Option<Signature>> {
        let Some(sector) = self.read(0, 512)? else { return Ok(None) };
        let entries = || sector[446..510].chunks_exact(16);
        let is_table = sector[510..] == [0x55, 0xAA]
            && entries().all(|entry| matches!(entry[0], 0 | 0x80))
            && entries().any(|entry| entry[4] != 0);
        let kind = "dos".to_owned();
        Ok(is_table.then_some(Signature { kind, offset: 510, uuid: None, label: None }))
    }

    /// ZFS has no magic at a fixed place but a ring of 128 KiB of them in each of its labels; one
    /// label at each end of the device is looked at.
    fn zfs(&self) -> io::Result<Option<Signature>> {
        const LABEL: u64 = 256 << 10;
        const RING: u64 = 128 << 10;
        let last = (self.size_bytes & !(LABEL - 1)).checked_sub(2 * LABEL);
        for label in [Some(0), last].into_iter().flatten() {
            let Some(ring) = self.read(label + RING, to_usize(RING))? else { continue };
            let is_uberblock = |slot: &[u8]| {
                slot[..8] == 0x00BA_B10C_u64.to_le_bytes()
                    || slot[..8] == 0x00BA_B10C_u64.to_be_bytes()
            };
            if let Some(at) = ring.chunks_exact(1024).position(is_uberblock) {
                let within = u64::try_from(at).expect("below 128") * 1024;
                let kind = "zfs_member".to_owned();
                let offset = label + RING + within;
                return Ok(Some(Signature { kind, offset, uuid: None, label: None }));
            }
        }
        Ok(None)
    }
}

fn hyphenated(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
