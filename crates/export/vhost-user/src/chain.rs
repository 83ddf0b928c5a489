//! The descriptors of one request: pure but for the guest's memory that it loads from.
//!
//! What must stay true: a descriptor is loaded once and judged as it was loaded; the number of
//! descriptors of a chain is bounded, so a loop ends; every span lies within the guest's memory and
//! is not empty; what the device may read comes before what it may write. Not here: what is in the
//! spans.

use ashlar_units::to_u64;

/// Entries of the longest ring.
pub const RING_ENTRIES_MAX: u16 = 1024;

/// Descriptors of one chain at most, those of an indirect table included. A request of as many
/// segments as the device says it takes has half as many.
pub const CHAIN_MAX: u16 = 256;

/// Length of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What a guest did that no driver does: its device is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub &'static str);

/// A guest's memory by its own addresses.
pub trait GuestBytes {
    /// Copies what is there now. `None` if the guest has no such memory.
    fn load(&self, at: u64, into: &mut [u8]) -> Option<()>;

    /// Whether the guest has all of it.
    fn holds(&self, at: u64, bytes: u64) -> bool;
}

/// A run of a guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where the guest has it.
    pub at: u64,
    /// How long it is; never zero.
    pub bytes: u64,
}

/// The spans of one request. Kept and filled again, so that a request allocates nothing.
#[derive(Default, Debug)]
pub struct Chain {
    /// What the driver wrote.
    pub readable: Vec<Span>,
    /// What the driver reads.
    pub writable: Vec<Span>,
    descriptors: u16,
}

/// A table of descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Where the guest has it.
    pub at: u64,
    /// How many descriptors it has.
    pub entries: u16,
    /// Whether one of them may stand for another table.
    pub may_be_indirect: bool,
}

struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Chain {
    /// Length of all that the driver wrote, in bytes.
    pub fn readable_bytes(&self) -> u64 {
        self.readable.iter().map(|span| span.bytes).sum()
    }

    /// Length of all that the driver reads, in bytes.
    pub fn writable_bytes(&self) -> u64 {
        self.writable.iter().map(|span| span.bytes).sum()
    }

    /// Follow the descriptors of a ring's table from `head` on.
    ///
    /// # Errors
    /// The first thing that no driver does.
    pub fn gather(
        &mut self,
        memory: &impl GuestBytes,
        table: Table,
        head: u16,
    ) -> Result<(), Fault> {
        self.readable.clear();
        self.writable.clear();
        self.descriptors = 0;
        let Some(indirect) = self.walk(memory, table, head)? else { return Ok(()) };
        self.walk(memory, indirect, 0).map(|_none| ())
    }

    /// Follow one table; the table that its last descriptor stands for.
    fn walk(
        &mut self,
        memory: &impl GuestBytes,
        table: Table,
        head: u16,
    ) -> Result<Option<Table>, Fault> {
        let mut index = head;
        loop {
            if self.descriptors == CHAIN_MAX {
                return Err(Fault("a chain of descriptors has no end"));
            }
            self.descriptors += 1;
            let descriptor = table.load(memory, index)?;
            if descriptor.flags & INDIRECT != 0 {
                return table.indirect(memory, &descriptor).map(Some);
            }
            self.add(memory, &descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(None);
            }
            index = descriptor.next;
        }
    }

    fn add(&mut self, memory: &impl GuestBytes, descriptor: &Descriptor) -> Result<(), Fault> {
        let span = Span { at: descriptor.at, bytes: u64::from(descriptor.bytes) };
        if span.bytes == 0 {
            return Err(Fault("a descriptor of no bytes"));
        }
        if !memory.holds(span.at, span.bytes) {
            return Err(Fault("a descriptor names memory that the guest does not have"));
        }
        match descriptor.flags & WRITE != 0 {
            true => self.writable.push(span),
            false if self.writable.is_empty() => self.readable.push(span),
            false => return Err(Fault("a descriptor to read comes after one to write")),
        }
        Ok(())
    }
}

impl Table {
    fn load(&self, memory: &impl GuestBytes, index: u16) -> Result<Descriptor, Fault> {
        if index >= self.entries {
            return Err(Fault("a descriptor beyond the end of its table"));
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = self.at.checked_add(u64::from(index) * to_u64(DESCRIPTOR_BYTES));
        let loaded = at.and_then(|at| memory.load(at, &mut bytes));
        loaded.ok_or(Fault("a table of descriptors outside the guest's memory"))?;
        let [at, rest] = halves(bytes);
        let field = |from: usize| u16::from_le_bytes([rest[from], rest[from + 1]]);
        Ok(Descriptor {
            at: u64::from_le_bytes(at),
            bytes: u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]),
            flags: field(4),
            next: field(6),
        })
    }

    /// The table that a descriptor stands for.
    fn indirect(&self, memory: &impl GuestBytes, of: &Descriptor) -> Result<Table, Fault> {
        if !self.may_be_indirect {
            return Err(Fault("an indirect table where there can be none"));
        }
        if of.flags & NEXT != 0 {
            return Err(Fault("a descriptor after an indirect table"));
        }
        let bytes = u64::from(of.bytes);
        let length = to_u64(DESCRIPTOR_BYTES);
        if bytes == 0 || !bytes.is_multiple_of(length) {
            return Err(Fault("an indirect table of no whole descriptors"));
        }
        let entries = u16::try_from(bytes / length).ok().filter(|it| *it <= CHAIN_MAX);
        let entries = entries.ok_or(Fault("an indirect table is too long"))?;
        if !memory.holds(of.at, bytes) {
            return Err(Fault("an indirect table outside the guest's memory"));
        }
        Ok(Table { at: of.at, entries, may_be_indirect: false })
    }
}

fn halves(bytes: [u8; DESCRIPTOR_BYTES]) -> [[u8; 8]; 2] {
    let (halves, _) = bytes.as_chunks::<8>();
    [halves[0], halves[1]]
}
