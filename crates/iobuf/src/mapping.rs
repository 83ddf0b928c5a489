//! Memory of another owner: a guest's, or what a kernel driver shares.
//!
//! What must stay true: a mapping lives as long as a buffer that was lent from it. A byte is lent
//! to one buffer at a time, however often the other side names it. Everything else that is read
//! here is copied out first and judged then. Not here: what lies in it.
//!
//! **Why a buffer may lie in memory that another process can write.** A slice promises that its
//! bytes do not change, and this memory's other owner can break that promise: two reads of one byte
//! may differ. Three facts keep that harmless to this process:
//!
//! 1. Address and length of a buffer are never in the memory that it covers, and every value of a
//!    byte is a valid one. So no access leaves the buffer, whatever is in it.
//! 2. Payload is copied, combined, summed and handed to the kernel. Nothing derives a length, an
//!    address or an index from it but look-ups of one byte in tables of 256.
//! 3. The bytes are the other owner's own data. If it changes them while a request is under way,
//!    only that owner gets the result.
//!
//! The third fact ends where bytes are used twice. Data and parity of a stripe must come from the
//! same bytes, or a lost member takes its neighbours' blocks along. So a lent buffer is for reads.
//! A write's payload is copied into memory of our own before it goes to a volume.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buf::BufMut;
use crate::memory::Share;

/// What may be done with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading, writing and lending.
    ReadWrite,
}

/// Memory of a descriptor that somebody else shares, mapped. Cheap to clone; unmapped with the last
/// clone and the last buffer lent from it.
#[derive(Clone)]
pub struct SharedMapping(Arc<Lender>);

/// The mapping itself, and which of it is lent.
pub(crate) struct Lender {
    start: NonNull<u8>,
    bytes: usize,
    access: Access,
    /// Disjoint.
    lent: Mutex<Vec<Range<usize>>>,
}

// SAFETY: plain memory; who may touch which byte of it is kept by `lent`.
unsafe impl Send for Lender {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lender {}

impl SharedMapping {
    /// Maps `bytes` bytes of `file` from byte `at` on, a multiple of the page size.
    ///
    /// A file that its owner makes shorter takes its pages along, and touching those ends the
    /// process: see [`can_shrink`]. The kernel's own reads and writes of them fail instead.
    ///
    /// # Errors
    /// What mmap(2) says; `InvalidInput` for nothing.
    pub fn map(
        file: impl AsFd,
        at: u64,
        bytes: usize,
        access: Access,
    ) -> io::Result<SharedMapping> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        if bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let wanted = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let start = unsafe { mmap(wanted, bytes, protection, MapFlags::SHARED, file, at) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMapping(Arc::new(Lender { start, bytes, access, lent: Mutex::default() })))
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Copies what is there now, from byte `at` on. `None` if that is not all within the mapping.
    ///
    /// Each aligned group of eight bytes is read at once; nothing is promised of several.
    #[must_use]
    pub fn load(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let start = self.0.place(at..at.checked_add(into.len())?)?;
        let mut done = 0;
        if start.cast::<u64>().is_aligned() {
            let (words, _) = into.as_chunks_mut::<8>();
            for word in words {
                // SAFETY: `place` says that all of `into.len()` bytes from here are mapped.
                let place = unsafe { start.add(done) }.cast::<u64>();
                // SAFETY: mapped and aligned; volatile because the other side may write it.
                *word = unsafe { place.read_volatile() }.to_ne_bytes();
                done += word.len();
            }
        }
        for byte in &mut into[done..] {
            // SAFETY: as above.
            let place = unsafe { start.add(done) };
            // SAFETY: as above.
            *byte = unsafe { place.read_volatile() };
            done += 1;
        }
        Some(())
    }

    /// Copies `from` to byte `at` and on. `None` if that is not all within the mapping, or if the
    /// mapping is for reading.
    ///
    /// Each aligned group of eight bytes is written at once, in rising order; nothing is promised
    /// of several. Bytes that are lent may be written too: whoever named them twice gets what came
    /// of that.
    #[must_use]
    pub fn store(&self, at: usize, from: &[u8]) -> Option<()> {
        let start = self.0.writable(at..at.checked_add(from.len())?)?;
        let mut done = 0;
        if start.cast::<u64>().is_aligned() {
            let (words, _) = from.as_chunks::<8>();
            for word in words {
                // SAFETY: `writable` says that all of `from.len()` bytes from here are mapped.
                let place = unsafe { start.add(done) }.cast::<u64>();
                // SAFETY: mapped, writable and aligned; volatile as the other side may read it.
                unsafe { place.write_volatile(u64::from_ne_bytes(*word)) };
                done += word.len();
            }
        }
        for byte in &from[done..] {
            // SAFETY: as above.
            let place = unsafe { start.add(done) };
            // SAFETY: as above.
            unsafe { place.write_volatile(*byte) };
            done += 1;
        }
        Some(())
    }

    /// The number of two bytes at byte `at`, in the machine's order. What the other side wrote
    /// before it wrote this number is seen by whatever is loaded afterwards. `None` if the place is
    /// not within the mapping or not even.
    #[must_use]
    pub fn load_index(&self, at: usize) -> Option<u16> {
        let place = self.0.index(at, self.0.place(at..at.checked_add(2)?)?)?;
        // SAFETY: mapped and aligned, and both sides use it as an atomic number.
        let index = unsafe { AtomicU16::from_ptr(place.as_ptr()) };
        Some(index.load(Ordering::Acquire))
    }

    /// Writes the number of two bytes at byte `at`, in the machine's order. Whoever loads it sees
    /// what was stored before. `None` if the place is not within the mapping or not even, or if the
    /// mapping is for reading.
    #[must_use]
    pub fn store_index(&self, at: usize, index: u16) -> Option<()> {
        let place = self.0.index(at, self.0.writable(at..at.checked_add(2)?)?)?;
        // SAFETY: mapped, writable and aligned, and both sides use it as an atomic number.
        let place = unsafe { AtomicU16::from_ptr(place.as_ptr()) };
        place.store(index, Ordering::Release);
        Some(())
    }

    /// A buffer over a part of it, until that is dropped. `None` if the part is not all within the
    /// mapping, if any of it is lent already, or if the mapping is for reading. Then the caller
    /// copies.
    #[must_use]
    pub fn lend(&self, range: Range<usize>) -> Option<BufMut> {
        let start = self.0.place(range.clone())?;
        if self.0.access == Access::Read || !self.0.take(&range) {
            return None;
        }
        let bytes = range.len();
        let share = Share::of_loan(Arc::clone(&self.0), range);
        // SAFETY: the range is mapped memory (always initialised) that lives as long as `share`,
        // and `take` lent it to nobody else. The other process: see above.
        Some(unsafe { BufMut::sole(share, start, bytes) })
    }
}

/// Whether `file` can be made shorter while it is mapped: it is not sealed against that, as a memfd
/// can be, and is no device.
pub fn can_shrink(file: impl AsFd) -> bool {
    use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
    let is_device = fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice);
    !is_device && !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

impl Lender {
    /// Where `range` begins, if it is all within.
    fn place(&self, range: Range<usize>) -> Option<NonNull<u8>> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        // SAFETY: within the mapping, or just behind it for an empty range.
        Some(unsafe { self.start.add(range.start) })
    }

    /// As [`Lender::place`], to write there.
    fn writable(&self, range: Range<usize>) -> Option<NonNull<u8>> {
        let start = self.place(range)?;
        (self.access == Access::ReadWrite).then_some(start)
    }

    /// `start`, which is at byte `at`, as the place of an aligned number. The mapping begins at a
    /// page.
    fn index(&self, at: usize, start: NonNull<u8>) -> Option<NonNull<u16>> {
        at.is_multiple_of(align_of::<u16>()).then(|| start.cast())
    }

    /// Notes that `range` is lent; `false` if any of it is.
    fn take(&self, range: &Range<usize>) -> bool {
        let mut lent = self.lent();
        let is_free = lent.iter().all(|other| other.end <= range.start || range.end <= other.start);
        if is_free {
            lent.push(range.clone());
        }
        is_free
    }

    /// The last owner of a loan is gone.
    pub(crate) fn take_back(&self, range: &Range<usize>) {
        let mut lent = self.lent();
        let at = lent.iter().position(|other| other == range).expect("what comes back was lent");
        lent.swap_remove(at);
    }

    fn lent(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no buffer is left in it: each keeps the lender.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping: {unmapped:?}");
    }
}
