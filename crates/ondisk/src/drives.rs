//! Drive pages: which drive filled each slot last, and where it was plugged in. Somebody who has to
//! pull a drive finds it so after a restart, and on another host.
//!
//! What must stay true: people read this, and nothing else depends on it. A page that is torn or
//! another array's says nothing. What it says of a slot counts only for the member that it names.

use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use ashlar_units::{BLOCK_BYTES_USIZE, MemberIdx, to_u64, to_usize};

use crate::bitmap::array_tag;
use crate::format::{
    BAY_BYTES, BY_PATH_BYTES, CHECKSUM_AT, DRIVE_PAGE_BYTES, DRIVE_PAGE_MAGIC, DRIVE_PAGE_OFFSET,
    DRIVE_PAGES_MAX, DRIVE_PATH_BYTES, DRIVES_PER_PAGE, ENCLOSURE_BYTES, FORMAT_VERSION,
    MODEL_BYTES, RawDrive, RawDrivePage, checksum_without,
};
use crate::seal::{is_zero, sealed_block};
use crate::text::Text;

/// The drive of one slot. Empty text: not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drive {
    /// Tag of the member that it is; 0: nothing is known of the slot.
    pub member_tag: u64,
    /// What it calls itself.
    pub model: Text<MODEL_BYTES>,
    /// Its path.
    pub path: Text<DRIVE_PATH_BYTES>,
    /// Its name by the way that leads to it, as udev gives it.
    pub by_path: Text<BY_PATH_BYTES>,
    /// The enclosure that it was in.
    pub enclosure: Text<ENCLOSURE_BYTES>,
    /// Its bay there.
    pub bay: Text<BAY_BYTES>,
    /// The host that saw it there.
    pub host: Text<BAY_BYTES>,
}

impl Drive {
    /// Whether this is what is known of `member`.
    pub fn is_of(&self, member: Uuid) -> bool {
        self.member_tag == array_tag(member)
    }

    /// The same, as what is known of `member`.
    #[must_use]
    pub fn of(self, member: Uuid) -> Drive {
        Drive { member_tag: array_tag(member), ..self }
    }

    fn to_raw(self) -> RawDrive {
        RawDrive {
            member_tag: self.member_tag.into(),
            model: self.model.to_bytes(),
            path: self.path.to_bytes(),
            by_path: self.by_path.to_bytes(),
            enclosure: self.enclosure.to_bytes(),
            bay: self.bay.to_bytes(),
            host: self.host.to_bytes(),
        }
    }

    fn from_raw(raw: &RawDrive) -> Option<Drive> {
        Some(Drive {
            member_tag: raw.member_tag.get(),
            model: Text::from_bytes(raw.model)?,
            path: Text::from_bytes(raw.path)?,
            by_path: Text::from_bytes(raw.by_path)?,
            enclosure: Text::from_bytes(raw.enclosure)?,
            bay: Text::from_bytes(raw.bay)?,
            host: Text::from_bytes(raw.host)?,
        })
    }
}

/// One page as it lies on a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrivePage {
    /// The array.
    pub array_uuid: Uuid,
    /// Generation of the superblock with which it was written: the highest is the newest.
    pub generation: u64,
    /// Its number: slots from `page * DRIVES_PER_PAGE` on.
    pub page: u32,
    /// The drives of its slots.
    pub drives: [Drive; DRIVES_PER_PAGE],
}

impl DrivePage {
    /// Where it lies, in bytes from the start of the member.
    pub fn offset(&self) -> u64 {
        DRIVE_PAGE_OFFSET + u64::from(self.page) * DRIVE_PAGE_BYTES
    }

    /// The 4 KiB for the member.
    pub fn encode(&self) -> [u8; BLOCK_BYTES_USIZE] {
        let raw = RawDrivePage {
            magic: DRIVE_PAGE_MAGIC,
            version: FORMAT_VERSION.into(),
            array_uuid: self.array_uuid.into_bytes(),
            generation: self.generation.into(),
            page: self.page.into(),
            drives: self.drives.map(Drive::to_raw),
            ..RawDrivePage::new_zeroed()
        };
        sealed_block(raw.as_bytes())
    }

    /// The page in a 4 KiB block; `None` if there is none, or it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<DrivePage> {
        let raw = RawDrivePage::ref_from_bytes(bytes).ok()?;
        let is_intact = raw.magic == DRIVE_PAGE_MAGIC
            && raw.version.get() == FORMAT_VERSION
            && raw.checksum.get() == checksum_without(bytes, CHECKSUM_AT)
            && is_zero(&raw.reserved_0);
        if !is_intact || u64::from(raw.page.get()) >= DRIVE_PAGES_MAX {
            return None;
        }
        let mut drives = [Drive::default(); DRIVES_PER_PAGE];
        for (drive, raw) in drives.iter_mut().zip(&raw.drives) {
            *drive = Drive::from_raw(raw)?;
        }
        Some(DrivePage {
            array_uuid: Uuid::from_bytes(raw.array_uuid),
            generation: raw.generation.get(),
            page: raw.page.get(),
            drives,
        })
    }

    /// The intact pages in the first bytes of a device, each in its own place.
    pub fn all_in(head: &[u8]) -> Vec<DrivePage> {
        let blocks = head.get(to_usize(DRIVE_PAGE_OFFSET)..).unwrap_or(&[]);
        let blocks = blocks.chunks_exact(BLOCK_BYTES_USIZE).take(to_usize(DRIVE_PAGES_MAX));
        let in_place = |(at, block): (usize, &[u8])| {
            DrivePage::decode(block).filter(|page| u64::from(page.page) == to_u64(at))
        };
        blocks.enumerate().filter_map(in_place).collect()
    }
}

/// The drives of all slots, as far as they are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drives(Vec<Drive>);

impl Drives {
    /// These, slot by slot.
    pub fn new(drives: Vec<Drive>) -> Drives {
        Drives(drives)
    }

    /// What is known of the slot; nothing if it is of another member than this one.
    pub fn of(&self, slot: MemberIdx, member: Uuid) -> Option<Drive> {
        self.0.get(slot.at()).copied().filter(|drive| drive.is_of(member))
    }

    /// The pages for the members.
    pub fn pages(&self, array_uuid: Uuid, generation: u64) -> Vec<DrivePage> {
        let page = |(page, own): (u32, &[Drive])| {
            let mut drives = [Drive::default(); DRIVES_PER_PAGE];
            drives[..own.len()].copy_from_slice(own);
            DrivePage { array_uuid, generation, page, drives }
        };
        (0..).zip(self.0.chunks(DRIVES_PER_PAGE)).map(page).collect()
    }

    /// What the pages of `array` say. Of each page the newest counts.
    pub fn newest<'a>(pages: impl Iterator<Item = &'a DrivePage>, array: Uuid) -> Drives {
        let mut newest: Vec<Option<&DrivePage>> = vec![None; to_usize(DRIVE_PAGES_MAX)];
        for page in pages.filter(|page| page.array_uuid == array) {
            let Some(at) = newest.get_mut(to_usize(page.page.into())) else { continue };
            if at.is_none_or(|known| known.generation < page.generation) {
                *at = Some(page);
            }
        }
        let nothing = [Drive::default(); DRIVES_PER_PAGE];
        Drives(newest.iter().flat_map(|page| page.map_or(nothing, |page| page.drives)).collect())
    }
}
