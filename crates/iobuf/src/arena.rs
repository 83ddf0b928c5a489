//! The one mapping behind a pool.
//!
//! What must stay true: an arena is mapped, page-aligned, zero-filled memory until it is dropped,
//! and nobody outside this crate can unmap it. If the thread that maps it may run on one NUMA node
//! only, its pages are on that node, whoever uses them first. Huge pages are tried first (one TLB
//! entry for 2 MiB instead of 512): reserved ones, then transparent ones. Not here: how the arena
//! is cut into slots (`pool`).

use crate::node::Nodes;
use std::io;
use std::ptr::NonNull;
#[cfg(not(miri))]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much memory pools may take before it is used, bytes.
static FILLED_MAX: AtomicUsize = AtomicUsize::new(0);

/// From now on pools have all of their memory when they are made, but for sparse ones: the first
/// use of a buffer does not wait for memory then. Pools that would take more than `bytes` together
/// get their memory with first use, as they do without this call.
pub fn fill_pools_at_once(bytes: usize) {
    FILLED_MAX.store(bytes, Ordering::Relaxed);
}

/// What kind of pages a pool's arena is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Huge pages from the system's reserve.
    ReservedHugePages,
    /// Ordinary memory that the kernel was asked to put on huge pages, and is configured to, for
    /// the system and for this process. It does so where it finds free ones.
    TransparentHugePages,
    /// Ordinary pages.
    SmallPages,
}

impl Backing {
    /// The name to show: `reserved huge`, `transparent huge` or `small`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backing::ReservedHugePages => "reserved huge",
            Backing::TransparentHugePages => "transparent huge",
            Backing::SmallPages => "small",
        }
    }
}

/// What pages an arena is to be on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Huge ones if there are any: fast, and memory comes in pieces of 2 MiB.
    Huge,
    /// Ordinary ones: memory comes in pieces of 4 KiB.
    Small,
}

const HUGE_PAGE_BYTES: usize = 2 << 20;

pub(crate) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
    pages: Pages,
    backing: Backing,
    node: Option<u32>,
    /// Bytes of [`FILLED_MAX`] that it took.
    filled: usize,
    mapping: Mapping,
}

/// What has to be given back, which may be larger than the arena because of its alignment.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an arena is plain memory; who may touch which byte of it is `buf`'s to keep.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Arena {
    /// At least `bytes` bytes of zeros. Their physical memory comes with first use.
    pub(crate) fn map(bytes: usize, pages: Pages) -> io::Result<Arena> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|bytes| bytes.checked_add(HUGE_PAGE_BYTES).is_some())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "pool too large"))?;
        if pages == Pages::Huge
            && let Ok(mapping) = Mapping::new(bytes, true)
        {
            let (start, backing) = (mapping.start, Backing::ReservedHugePages);
            let node = settle(start, bytes);
            return Ok(Arena { start, bytes, pages, backing, node, filled: 0, mapping });
        }
        let mapping = Mapping::new(bytes + HUGE_PAGE_BYTES, false)?;
        let skip = mapping.start.align_offset(HUGE_PAGE_BYTES);
        assert!(skip <= HUGE_PAGE_BYTES, "a huge page boundary is at most one huge page away");
        // SAFETY: the mapping is longer than the arena by more than `skip`.
        let start = unsafe { mapping.start.add(skip) };
        let backing = advise(start, bytes, pages);
        let node = settle(start, bytes);
        Ok(Arena { start, bytes, pages, backing, node, filled: 0, mapping })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// The NUMA node that its pages are taken from; `None`: whichever is near to who uses a page
    /// first.
    pub(crate) fn node(&self) -> Option<u32> {
        self.node
    }

    /// Take all of its memory now, if pools are to.
    pub(crate) fn filled(mut self) -> Arena {
        let take = |left: usize| left.checked_sub(self.bytes);
        let is_taken = self.pages == Pages::Huge
            && FILLED_MAX.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if is_taken {
            self.filled = self.bytes;
            fill(self.start, self.bytes);
        }
        self
    }

    /// The byte `offset` bytes in.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes, "offset {offset} in an arena of {} bytes", self.bytes);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.filled > 0 {
            FILLED_MAX.fetch_add(self.filled, Ordering::Relaxed);
        }
        self.mapping.unmap();
    }
}

#[cfg(not(miri))]
impl Mapping {
    fn new(bytes: usize, on_reserved_huge_pages: bool) -> io::Result<Mapping> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let mut flags = MapFlags::PRIVATE;
        if on_reserved_huge_pages {
            flags |= MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        }
        let wanted = std::ptr::null_mut();
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches
        // nothing.
        let start =
            unsafe { mmap_anonymous(wanted, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    fn unmap(&self) {
        // SAFETY: the arena is being dropped, so no buffer of it is left.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping: {unmapped:?}");
    }
}

/// Whether the kernel has transparent huge pages. Asked once a process: a simulator maps arenas all
/// the time.
#[cfg(not(miri))]
static HAS_HUGE_PAGES: LazyLock<bool> = LazyLock::new(|| {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
});

#[cfg(not(miri))]
fn advise(start: NonNull<u8>, bytes: usize, pages: Pages) -> Backing {
    use rustix::mm::Advice;
    let advice = match pages {
        Pages::Huge => Advice::LinuxHugepage,
        Pages::Small => Advice::LinuxNoHugepage,
    };
    let advised = advise_own(start, bytes, advice);
    let is_forbidden = rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false);
    let is_possible = pages == Pages::Huge && !is_forbidden && *HAS_HUGE_PAGES;
    if advised.is_ok() && is_possible { Backing::TransparentHugePages } else { Backing::SmallPages }
}

/// Puts a fresh mapping on the node of the calling thread, if it has one. Which that is.
#[cfg(not(miri))]
fn settle(start: NonNull<u8>, bytes: usize) -> Option<u32> {
    let node = Nodes::here().of_thread()?;
    crate::node::prefer(node, start, bytes).then_some(node)
}

#[cfg(not(miri))]
fn fill(start: NonNull<u8>, bytes: usize) {
    // A kernel before 5.14 cannot: the memory comes with first use.
    let _comes_later = advise_own(start, bytes, rustix::mm::Advice::LinuxPopulateWrite).is_err();
}

/// Tells the kernel of a mapping of ours something that changes none of its content.
#[cfg(not(miri))]
fn advise_own(
    start: NonNull<u8>,
    bytes: usize,
    advice: rustix::mm::Advice,
) -> rustix::io::Result<()> {
    // SAFETY: the range is our own fresh mapping and such advice changes none of its content.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, advice) }
}

#[cfg(miri)]
fn fill(_start: NonNull<u8>, _bytes: usize) {}

/// Miri knows no mmap: the heap stands in, so that the rest of the pool can be checked.
#[cfg(miri)]
impl Mapping {
    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, 4096).expect("small in tests")
    }

    fn new(bytes: usize, on_reserved_huge_pages: bool) -> io::Result<Mapping> {
        if on_reserved_huge_pages {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the layout's size is at least one huge page.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    fn unmap(&self) {
        // SAFETY: allocated in `new` with the same layout; the arena is being dropped.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.bytes)) };
    }
}

#[cfg(miri)]
fn settle(_start: NonNull<u8>, _bytes: usize) -> Option<u32> {
    Nodes::default().of_thread()
}

#[cfg(miri)]
fn advise(_start: NonNull<u8>, _bytes: usize, _pages: Pages) -> Backing {
    Backing::SmallPages
}
