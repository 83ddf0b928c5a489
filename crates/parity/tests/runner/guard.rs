//! Guard pages: strips that end where memory ends, or begin where it begins.
//!
//! A kernel that reads or writes one byte outside its strips dies here. (A prefetch does not
//! fault.)

use ashlar_parity::{Change, Code, DecodePlan, Kernel, Locality};
use ashlar_units::StripSet;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE_BYTES: usize = 4096;

/// Two usable pages between two that cannot be touched.
struct Guarded(*mut u8);

impl Guarded {
    fn new() -> Guarded {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of
        // ours.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), 4 * PAGE_BYTES, ProtFlags::empty(), flags)
        };
        let memory = memory.unwrap().cast::<u8>();
        let usable = memory.wrapping_add(PAGE_BYTES);
        // SAFETY: the two pages in the middle of the mapping just made.
        let opened = unsafe {
            mprotect(usable.cast(), 2 * PAGE_BYTES, MprotectFlags::READ | MprotectFlags::WRITE)
        };
        opened.unwrap();
        Guarded(memory)
    }

    /// The first or the last `bytes` usable bytes.
    fn strip(&mut self, bytes: usize, at_end: bool) -> &mut [u8] {
        let skip = if at_end { 2 * PAGE_BYTES - bytes } else { 0 };
        let start = self.0.wrapping_add(PAGE_BYTES + skip);
        // SAFETY: inside the two usable pages, which are zeroed memory and borrowed through `self`.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `new`; slices of it borrowed `self` and are gone.
        unsafe { munmap(self.0.cast(), 4 * PAGE_BYTES) }.unwrap();
    }
}

/// All verbs on k + m strips of `bytes` bytes, each with a guard page right at one end.
fn run_everything(kernel: Kernel, (k, m): (usize, usize), bytes: usize, at_end: bool) {
    let code = Code::new(k, m, kernel).unwrap();
    let mut memory: Vec<Guarded> = (0..2 * k + m).map(|_| Guarded::new()).collect();
    let mut strips: Vec<&mut [u8]> = memory.iter_mut().map(|g| g.strip(bytes, at_end)).collect();
    for (n, strip) in strips.iter_mut().enumerate().take(k) {
        strip.fill(u8::try_from(n * 29 + 5).unwrap());
    }
    for locality in [Locality::Cached, Locality::Streaming] {
        let (data, rest) = strips.split_at_mut(k);
        let (copies, parity) = rest.split_at_mut(k);
        let data: Vec<&[u8]> = data.iter().map(|strip| &**strip).collect();
        let mut out: Vec<Option<&mut [u8]>> = parity.iter_mut().map(|p| Some(&mut **p)).collect();
        code.generate(&data, &mut out, locality).unwrap();
        for (copy, strip) in copies.iter_mut().zip(&data) {
            copy.copy_from_slice(strip);
        }
        let changes =
            [0, k - 1].map(|column| Change { column, old: data[column], new: &*copies[column] });
        code.update(&changes, &mut out, locality).unwrap();
        let stored: Vec<Option<&[u8]>> = parity.iter().map(|p| Some(&**p)).collect();
        assert!(code.check(&data, &stored).unwrap().is_consistent());
        let lost = m.min(k);
        let survivors = StripSet::range(lost, k + m);
        let plan = DecodePlan::new(&code, survivors, StripSet::first(lost)).unwrap();
        let all: Vec<&[u8]> = data.iter().copied().chain(stored.into_iter().flatten()).collect();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|strip| all[strip.at()]).collect();
        plan.run(&sources, &mut copies[..lost], locality).unwrap();
        for (strip, copy) in data.iter().zip(copies.iter()) {
            assert_eq!(*strip, &**copy);
        }
    }
}

#[test]
fn no_kernel_touches_a_byte_outside_its_strips() {
    for kernel in Kernel::all() {
        for shape in [(1, 1), (2, 1), (3, 2), (8, 2), (5, 3), (4, 6), (3, 9)] {
            for bytes in [1, 63, 64, 100, 256, 320, 4096, 8192] {
                run_everything(kernel, shape, bytes, true);
                run_everything(kernel, shape, bytes, false);
            }
        }
    }
}
