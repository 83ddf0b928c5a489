//! The guest's memory, mapped here.
//!
//! What must stay true: only memory that its owner cannot take away is mapped, since a touch of a
//! page that is gone ends the process; nothing outside of what the frontend named is touched.
//!
//! So memory is refused unless it is sealed against shrinking, as a memfd can be, is at least as
//! long as the frontend says, and is not of the reserve of huge pages: whoever punches a hole into
//! one of those may find the reserve empty when the page is touched again.
//!
//! Payload is copied here once, in both directions. A read that a slow member answers late may end
//! after its request was answered from the others, and must not end in the guest's memory; a
//! write's parity and data must come of the same bytes.

use crate::chain::GuestBytes;
use crate::wire::Region;
use ashlar_iobuf::{Access, SharedMapping};
use ashlar_units::to_usize;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use std::io;
use std::os::fd::OwnedFd;

/// Where a mapping may begin in its file.
const PAGE_BYTES: u64 = 4096;
/// What a file on reserved huge pages says of its file system.
const HUGE_PAGES: u64 = 0x9584_58f6;

/// Why memory is not taken.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It may go away.
    #[error(
        "memory that can be taken away while it is in use; in QEMU, take memory-backend-memfd \
         with share=on (it is sealed)"
    )]
    NotSealed,
    /// It may go away.
    #[error("memory of reserved huge pages; in QEMU, take memory-backend-memfd without hugetlb")]
    HugePages,
    /// It makes no sense.
    #[error("a table of memory that makes no sense: {0}")]
    Nonsense(&'static str),
    /// The system says no.
    #[error("memory cannot be mapped: {0}")]
    System(#[from] io::Error),
}

/// The memory of one guest.
#[derive(Default)]
pub struct GuestMemory {
    regions: Vec<Mapped>,
}

/// One region.
struct Mapped {
    guest: u64,
    user: u64,
    bytes: u64,
    mapping: SharedMapping,
    /// Where in the mapping it begins.
    start: usize,
}

/// A part of one region.
#[derive(Clone)]
pub struct Part {
    mapping: SharedMapping,
    start: usize,
    bytes: usize,
    /// Where the guest has it.
    pub guest: u64,
}

impl GuestMemory {
    /// Map what a frontend names.
    ///
    /// # Errors
    /// It is not taken; see the module.
    pub fn map(regions: &[Region], files: Vec<OwnedFd>) -> Result<GuestMemory, MemoryError> {
        if regions.len() != files.len() {
            return Err(MemoryError::Nonsense("not one file for each region"));
        }
        let mut mapped: Vec<Mapped> = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let region = Mapped::map(region, &file)?;
            if mapped.iter().any(|other| other.overlaps(&region)) {
                return Err(MemoryError::Nonsense("two regions at one place"));
            }
            mapped.push(region);
        }
        Ok(GuestMemory { regions: mapped })
    }

    /// The part of one region that the frontend has at `user`.
    pub fn part(&self, user: u64, bytes: usize) -> Option<Part> {
        let region = self.regions.iter().find(|it| within(it.user, it.bytes, user))?;
        let from = user - region.user;
        let is_within = u64::try_from(bytes).is_ok_and(|bytes| bytes <= region.bytes - from);
        is_within.then(|| Part {
            mapping: region.mapping.clone(),
            start: region.start + to_usize(from),
            bytes,
            guest: region.guest + from,
        })
    }

    /// Copies `from` to where the guest has `at`. `None` if it has no such memory.
    pub fn store(&self, at: u64, from: &[u8]) -> Option<()> {
        let mut done = 0;
        while done < from.len() {
            let (region, start, most) = self.find(at, done)?;
            let bytes = most.min(from.len() - done);
            region.mapping.store(start, &from[done..done + bytes])?;
            done += bytes;
        }
        Some(())
    }

    /// The region with the byte `done` bytes behind `at`, where that is in its mapping, and how
    /// many bytes there are from there.
    fn find(&self, at: u64, done: usize) -> Option<(&Mapped, usize, usize)> {
        let at = at.checked_add(u64::try_from(done).ok()?)?;
        let region = self.regions.iter().find(|it| within(it.guest, it.bytes, at))?;
        let from = at - region.guest;
        Some((region, region.start + to_usize(from), to_usize(region.bytes - from)))
    }
}

impl GuestBytes for GuestMemory {
    fn load(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < into.len() {
            let (region, start, most) = self.find(at, done)?;
            let bytes = most.min(into.len() - done);
            region.mapping.load(start, &mut into[done..done + bytes])?;
            done += bytes;
        }
        Some(())
    }

    fn holds(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let mut at = at;
        while at < end {
            let Some(region) = self.regions.iter().find(|it| within(it.guest, it.bytes, at)) else {
                return false;
            };
            at = region.guest + region.bytes;
        }
        true
    }
}

impl Mapped {
    fn map(region: &Region, file: &OwnedFd) -> Result<Mapped, MemoryError> {
        let ends = [
            region.guest.checked_add(region.bytes),
            region.user.checked_add(region.bytes),
            region.offset.checked_add(region.bytes),
        ];
        let [Some(_), Some(_), Some(end)] = ends else {
            return Err(MemoryError::Nonsense("a region beyond all addresses"));
        };
        if region.bytes == 0 {
            return Err(MemoryError::Nonsense("a region of no bytes"));
        }
        check_stays(file, end)?;
        let skip = region.offset % PAGE_BYTES;
        let bytes = to_usize(region.bytes + skip);
        let mapping = SharedMapping::map(file, region.offset - skip, bytes, Access::ReadWrite)?;
        let Region { guest, user, bytes, .. } = *region;
        Ok(Mapped { guest, user, bytes, mapping, start: to_usize(skip) })
    }

    fn overlaps(&self, other: &Mapped) -> bool {
        let one = within(self.guest, self.bytes, other.guest);
        one || within(other.guest, other.bytes, self.guest)
    }
}

impl Part {
    /// Copies `from` there. `None` beyond its end.
    pub fn store(&self, at: usize, from: &[u8]) -> Option<()> {
        self.mapping.store(self.place(at, from.len())?, from)
    }

    /// The number at an even place; see [`SharedMapping::load_index`].
    pub fn load_index(&self, at: usize) -> Option<u16> {
        self.mapping.load_index(self.place(at, 2)?).map(u16::from_le)
    }

    /// Writes the number at an even place; see [`SharedMapping::store_index`].
    pub fn store_index(&self, at: usize, index: u16) -> Option<()> {
        self.mapping.store_index(self.place(at, 2)?, index.to_le())
    }

    fn place(&self, at: usize, bytes: usize) -> Option<usize> {
        let end = at.checked_add(bytes)?;
        (end <= self.bytes).then(|| self.start + at)
    }
}

/// Refuse a file whose first `end` bytes may go away.
///
/// # Errors
/// Why.
pub fn check_stays(file: &OwnedFd, end: u64) -> Result<(), MemoryError> {
    let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    if !is_sealed {
        return Err(MemoryError::NotSealed);
    }
    let system = fstatfs(file).map_err(io::Error::from)?;
    if u64::try_from(system.f_type).is_ok_and(|it| it == HUGE_PAGES) {
        return Err(MemoryError::HugePages);
    }
    // Sealed, so it does not become shorter from here on.
    let about = fstat(file).map_err(io::Error::from)?;
    let is_long_enough = u64::try_from(about.st_size).is_ok_and(|bytes| end <= bytes);
    is_long_enough.then_some(()).ok_or(MemoryError::Nonsense("a region beyond the end of its file"))
}

fn within(start: u64, bytes: u64, at: u64) -> bool {
    at.checked_sub(start).is_some_and(|from| from < bytes)
}
