//! A minimal check for foreign data, for systems without util-linux's prober.
//!
//! What must stay true: each format is known by the bytes in its own documentation. Finding too
//! much is better than finding too little, because the answer only makes somebody ask. Not here:
//! whether the data is valid.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use ashlar_units::{to_u64, to_usize};

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

/// A format without an identity that is looked at.
const fn plain(kind: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    Magic { kind, offset, bytes, uuid: Uuid::None, label: None }
}

/// A second header of LUKS 2.
const fn luks2(offset: u64) -> Magic {
    plain("crypto_LUKS", offset, b"SKUL\xBA\xBE")
}

const BCACHE: &[u8] = &[
    0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81,
];

const AT_FIXED_PLACES: [Magic; 38] = [
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
    luks2(0x4000),
    luks2(0x8000),
    luks2(0x1_0000),
    luks2(0x2_0000),
    luks2(0x4_0000),
    luks2(0x8_0000),
    luks2(0x10_0000),
    luks2(0x20_0000),
    luks2(0x40_0000),
    plain("bcache", 4096 + 24, BCACHE),
    plain("ceph_bluestore", 0, b"bluestore block device"),
    plain("stratis", 512 + 4, b"!Stra0tis\x86\xFF\x02^\x41rh"),
    plain("stratis", 9 * 512 + 4, b"!Stra0tis\x86\xFF\x02^\x41rh"),
    plain("vdo", 0, b"dmvdo001"),
    plain("oracleasm", 32, b"ORCLDISK"),
    plain("ntfs", 3, b"NTFS    "),
    plain("exfat", 3, b"EXFAT   "),
    plain("BitLocker", 3, b"-FVE-FS-"),
    plain("vfat", 54, b"FAT16   "),
    plain("vfat", 82, b"FAT32   "),
    plain("f2fs", 1024, &[0x10, 0x20, 0xF5, 0xF2]),
    plain("apfs", 32, b"NXSB"),
    plain("iso9660", 32_769, b"CD001"),
    plain("reiserfs", 0x1_0034, b"ReIsEr"),
    plain("gfs2", 0x1_0000, &[0x01, 0x16, 0x19, 0x70]),
];

/// What lies before the end of a device of this size.
fn at_the_end(size_bytes: u64) -> Vec<Magic> {
    let before = |bytes: u64| size_bytes.checked_sub(bytes);
    let mut all = vec![
        before(512).map(gpt),
        before(4096).map(gpt),
        // md 1.0 is 8 to 12 KiB before the end, 0.90 in the last whole 64 KiB.
        (size_bytes / 512).checked_sub(16).map(|sector| md((sector & !7) * 512)),
        (size_bytes & !0xFFFF).checked_sub(0x1_0000).map(|offset| Magic {
            uuid: Uuid::None,
            label: None,
            ..md(offset)
        }),
        before(4096 - 60).map(|at| plain("drbd", at, &[0x83, 0x74, 0x02, 0x6B])),
        before(4096 - 60).map(|at| plain("drbd", at, &[0x83, 0x74, 0x02, 0x6D])),
        before(512).map(|at| plain("lsi_mega_raid_member", at, b"$XIDE$")),
        before(1024).map(|at| plain("nvidia_raid_member", at, b"NVIDIA")),
        before(512).map(|at| plain("adaptec_raid_member", at, &[0x37, 0xFC, 0x4D, 0x1E])),
    ];
    let ddf = [512, 4096, 257 * 512].map(before).into_iter();
    all.extend(ddf.map(|at| at.map(|at| plain("ddf_raid_member", at, &[0xDE, 0x11, 0xDE, 0x11]))));
    let intel = [1024, 8192].map(before).into_iter();
    let intel_says = b"Intel Raid ISM Cfg Sig. ";
    all.extend(intel.map(|at| at.map(|at| plain("isw_raid_member", at, intel_says))));
    let promise = [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087].into_iter();
    let promise = promise.map(|sectors: u64| before(sectors * 512));
    let promise_says = b"Promise Technology, Inc.";
    all.extend(promise.map(|at| at.map(|at| plain("promise_fasttrack", at, promise_says))));
    all.into_iter().flatten().collect()
}

/// Whether its mark is long enough not to be there by chance.
pub(super) fn is_distinct(found: &Signature) -> bool {
    found.bytes >= 4
}

/// What is on the device or file, in order of offsets.
pub(super) fn signatures(file: &File) -> io::Result<Vec<Signature>> {
    let mut end = file;
    let size_bytes = end.seek(SeekFrom::End(0))?;
    let device = Bytes { file, size_bytes };
    let mut found = Vec::new();
    for magic in AT_FIXED_PLACES.iter().chain(&at_the_end(size_bytes)) {
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
        let (kind, bytes) = (magic.kind.to_owned(), to_u64(magic.bytes.len()));
        Ok(Signature { kind, offset: magic.offset, bytes, uuid, label })
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
        let (offset, bytes) = (510, 2);
        Ok(is_table.then_some(Signature { kind, offset, bytes, uuid: None, label: None }))
    }

    /// ZFS has no magic at a fixed place but a ring of 128 KiB of them in each of its labels, of
    /// which two are at each end of the device. The rest of a ring counts as the mark.
    fn zfs(&self) -> io::Result<Vec<Signature>> {
        const LABEL: u64 = 256 << 10;
        const RING: u64 = 128 << 10;
        let end = self.size_bytes & !(LABEL - 1);
        let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
        let mut found = Vec::new();
        for label in labels.into_iter().flatten() {
            let Some(ring) = self.read(label + RING, to_usize(RING))? else { continue };
            let is_uberblock = |slot: &[u8]| {
                slot[..8] == 0x00BA_B10C_u64.to_le_bytes()
                    || slot[..8] == 0x00BA_B10C_u64.to_be_bytes()
            };
            if let Some(at) = ring.chunks_exact(1024).position(is_uberblock) {
                let within = to_u64(at) * 1024;
                let (kind, bytes) = ("zfs_member".to_owned(), RING - within);
                let offset = label + RING + within;
                found.push(Signature { kind, offset, bytes, uuid: None, label: None });
            }
        }
        Ok(found)
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
