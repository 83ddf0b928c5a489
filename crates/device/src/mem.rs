//! A device in memory of this process: for tests, and for measuring the engine without drives.
//!
//! What must stay true: a command is done within `submit`. Every worker sees the same bytes. Pages
//! that were never written read as zeros and take no memory, except what their mapping rounds up
//! to. A command costs a memcpy, and a lock for each 64 KiB page, so workers on different pages do
//! not meet. Not here: durability. The bytes go with the last holder.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ashlar_iobuf::{BufMut, copy_past_caches};
use ashlar_ring::{Completion, Handle};
use ashlar_units::{to_u64, to_usize};

use crate::device::{Command, Device, DeviceFacts, DeviceKind, Opened, Outcome};
use crate::fault::Fault;
use crate::flights::Owed;

/// Lock and allocation unit. 64 KiB: a default strip is one lock.
const PAGE_BYTES: usize = 64 << 10;
/// Pages are cut from mappings of this size, a huge page each: blocks of 4 KiB then lie on one page
/// of memory each, and 32 pages of ours on one of the processor's.
const MAPPING_BYTES: usize = 2 << 20;

/// Writes of at least this go past the caches, as they do to a drive: nobody reads them soon, and
/// what they overwrite is in none. Small ones often change what has just been read.
const STREAMED_BYTES: usize = 16 << 10;

type Page = RwLock<Option<BufMut>>;

/// A device in memory. Clones share the bytes.
#[derive(Clone)]
pub struct MemDevice(Arc<Shared>);

struct Shared {
    facts: DeviceFacts,
    pages: Box<[Page]>,
    /// What the next page is cut from.
    uncut: Mutex<BufMut>,
}

impl MemDevice {
    /// A device called `name` with `size_bytes` (rounded down to 512) bytes of zeros. It takes 32
    /// bytes of memory for each 64 KiB now, and those 64 KiB with the first write to them (the
    /// first of every 32: a huge page).
    pub fn new(name: &str, size_bytes: u64) -> MemDevice {
        let mut facts = DeviceFacts::plain(name, size_bytes, DeviceKind::Memory);
        facts.size_bytes -= size_bytes % u64::from(facts.logical_block_bytes);
        let count = to_usize(facts.size_bytes).div_ceil(PAGE_BYTES);
        let pages = std::iter::repeat_with(|| RwLock::new(None)).take(count).collect();
        let uncut = Mutex::new(BufMut::zeroed(0));
        MemDevice(Arc::new(Shared { facts, pages, uncut }))
    }

    /// Memory that its pages take up now, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let used = self.0.pages.iter().filter(|page| shared(page).is_some()).count();
        to_u64(used) * to_u64(PAGE_BYTES)
    }

    /// Takes the memory of its first `bytes` bytes now; what they hold stays.
    pub fn take_memory(&self, bytes: u64) {
        let bytes = to_usize(bytes.min(self.0.facts.size_bytes));
        for part in parts(0, bytes) {
            let mut page = exclusive(&self.0.pages[part.page]);
            let page = page.get_or_insert_with(|| self.0.new_page());
            // The kernel gives memory with the first write.
            for byte in page.iter_mut().step_by(4096) {
                *byte = std::hint::black_box(*byte);
            }
        }
    }

    /// Fills `target` with what is at `offset`, without a worker.
    ///
    /// # Panics
    /// If that is not within the device.
    pub fn peek(&self, offset: u64, target: &mut [u8]) {
        self.0.read(to_usize(offset), target);
    }

    /// Stores `source` at `offset`, without a worker: what a test does behind an engine's back.
    ///
    /// # Panics
    /// If that is not within the device.
    pub fn poke(&self, offset: u64, source: &[u8]) {
        self.0.write(to_usize(offset), source);
    }
}

impl Shared {
    fn read(&self, offset: usize, target: &mut [u8]) {
        let mut rest = target;
        for part in parts(offset, rest.len()) {
            let (front, back) = rest.split_at_mut(part.bytes);
            match &*shared(&self.pages[part.page]) {
                Some(page) => front.copy_from_slice(&page[part.at..part.at + part.bytes]),
                None => front.fill(0),
            }
            rest = back;
        }
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.write_joined(offset, source.len(), [source]);
    }

    /// Sources of `bytes` in all, one behind the other. A page is held until the sources leave it:
    /// to let go of it waits for all that was copied to memory that no cache held, and a batch of
    /// the log has a source for each block.
    fn write_joined<'s>(
        &self,
        offset: usize,
        bytes: usize,
        sources: impl IntoIterator<Item = &'s [u8]>,
    ) {
        let is_small = bytes < STREAMED_BYTES;
        let store = if is_small { <[u8]>::copy_from_slice } else { copy_past_caches };
        let mut at = offset;
        let mut held: Option<(usize, RwLockWriteGuard<'_, Option<BufMut>>)> = None;
        for source in sources {
            let mut rest = source;
            for part in parts(at, source.len()) {
                let (front, back) = rest.split_at(part.bytes);
                if held.as_ref().is_none_or(|(page, _)| *page != part.page) {
                    // Never two at once: others may hold them the other way round.
                    drop(held.take());
                    held = Some((part.page, exclusive(&self.pages[part.page])));
                }
                let (_, page) = held.as_mut().expect("just taken");
                let page = page.get_or_insert_with(|| self.new_page());
                store(&mut page[part.at..part.at + part.bytes], front);
                rest = back;
            }
            at += source.len();
        }
    }

    /// Memory for a page, all zeros.
    fn new_page(&self) -> BufMut {
        let mut uncut = self.uncut.lock().unwrap_or_else(PoisonError::into_inner);
        if uncut.is_empty() {
            match BufMut::mapped(MAPPING_BYTES) {
                Ok(mapping) => *uncut = mapping,
                // The kernel gives no more mappings: it limits their number.
                Err(_) => return BufMut::zeroed(PAGE_BYTES),
            }
        }
        uncut.split_to(PAGE_BYTES)
    }

    fn zero(&self, offset: usize, bytes: usize) {
        for part in parts(offset, bytes) {
            let mut page = exclusive(&self.pages[part.page]);
            if part.bytes == PAGE_BYTES {
                *page = None;
            } else if let Some(page) = page.as_mut() {
                page[part.at..part.at + part.bytes].fill(0);
            }
        }
    }

    fn run(&self, offset: u64, command: Command) -> Outcome {
        if !self.facts.contains(offset, &command) {
            let fault = beyond_the_end(&command);
            return Outcome::refused(command, fault);
        }
        match command {
            Command::Read(mut buffer) => {
                self.read(to_usize(offset), &mut buffer);
                Outcome::done(Some(buffer))
            }
            Command::Write(buffer)
            | Command::WriteWhole(buffer)
            | Command::WriteDurable(buffer) => {
                self.write(to_usize(offset), &buffer);
                Outcome::done(None)
            }
            Command::WriteParts { parts, .. } => {
                let bytes = parts.iter().map(|part| part.len()).sum();
                self.write_joined(to_usize(offset), bytes, parts.iter().map(|part| &**part));
                Outcome::done(None)
            }
            Command::Flush => Outcome::done(None),
            Command::Discard { bytes } | Command::WriteZeroes { bytes } => {
                self.zero(to_usize(offset), to_usize(bytes));
                Outcome::done(None)
            }
        }
    }
}

/// What a device answers to a command that goes beyond its end.
pub(crate) fn beyond_the_end(command: &Command) -> Fault {
    match command {
        Command::Read(_) => Fault::MEDIA,
        _ => Fault::NO_SPACE,
    }
}

impl Opened for MemDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    fn attach(&self, _handle: &Handle) -> Rc<dyn Device> {
        Rc::new(Attached(Arc::clone(&self.0)))
    }
}

/// The memory on one worker.
struct Attached(Arc<Shared>);

impl Device for Attached {
    fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        done.complete(self.0.run(offset, command));
    }

    fn look_at_commands(&self) -> Owed {
        Owed::default()
    }

    /// Nothing is ever under way here: there is nothing to give up.
    fn give_up(&self) {}

    fn runs_now(&self) -> bool {
        true
    }

    fn run_now(&self, offset: u64, command: Command) -> Result<Outcome, Command> {
        Ok(self.0.run(offset, command))
    }
}

/// The piece of an extent that is on one page.
struct Part {
    page: usize,
    at: usize,
    bytes: usize,
}

fn parts(offset: usize, bytes: usize) -> impl Iterator<Item = Part> {
    let (mut at, mut rest) = (offset, bytes);
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let in_page = at % PAGE_BYTES;
        let bytes = rest.min(PAGE_BYTES - in_page);
        let part = Part { page: at / PAGE_BYTES, at: in_page, bytes };
        at += bytes;
        rest -= bytes;
        Some(part)
    })
}

// A panic while a page is locked leaves it with some bytes copied, which is what an interrupted
// write is.
fn shared(page: &Page) -> RwLockReadGuard<'_, Option<BufMut>> {
    page.read().unwrap_or_else(PoisonError::into_inner)
}

fn exclusive(page: &Page) -> RwLockWriteGuard<'_, Option<BufMut>> {
    page.write().unwrap_or_else(PoisonError::into_inner)
}
