//! Members and what writes leave on them, whole, missed or torn.
//!
//! Each member holds one block of every stripe (stripes are one row high here), a dirty bit for
//! each stripe, a small ring of log records, and the number up to which records are settled. Dirty
//! bits and that number lie in superblocks, which are written in turns and so never tear. Blocks
//! tear if the universe says so. A record is longer than a block, so it can always be cut short;
//! then its checksum does not fit.
//!
//! What must stay true: strategies see of a cut record no more than that it is not whole, and of a
//! checksum no more than whether a block fits it. A lost member never comes back.

use crate::field::{self, Block};
use crate::update::Round;

/// Records that the ring of a member holds. Small, so that it wraps within a run.
const RING_RECORDS: usize = 4;

/// How large the array is and where its blocks lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Data blocks of a row.
    pub k: usize,
    /// Parity blocks of a row.
    pub m: usize,
    /// Stripes.
    pub stripes: usize,
}

impl Shape {
    /// How many members there are.
    #[must_use]
    pub fn members(self) -> usize {
        self.k + self.m
    }

    /// The member that holds `column` of `stripe`: data columns from 0, then parities; each stripe
    /// is one further.
    #[must_use]
    pub fn member(self, stripe: usize, column: usize) -> usize {
        (column + stripe) % self.members()
    }

    /// Every member, in the order of the columns of `stripe`.
    pub fn columns(self, stripe: usize) -> impl Iterator<Item = usize> {
        (0..self.members()).map(move |column| self.member(stripe, column))
    }
}

/// What a checksum of a block is good for, and no more: the block itself cannot be had from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksum(Block);

impl Checksum {
    /// The checksum of `block`.
    #[must_use]
    pub fn of(block: Block) -> Checksum {
        Checksum(block)
    }

    /// Whether `block` is there and is the one that this was made of.
    #[must_use]
    pub fn fits(self, block: Option<Block>) -> bool {
        block == Some(self.0)
    }
}

/// What a log record says about its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// New data by column and, on a parity member, that member's new parity.
    Full(Vec<(usize, Block)>, Option<Block>),
    /// Column, old and new checksum of each changed block, and that member's new parity.
    ParityOnly(Vec<(usize, Checksum, Checksum)>, Block),
    /// The changed columns, and the parity of the unchanged ones.
    Partial(Vec<usize>, Block),
    /// Older records of the row no longer count, and all its blocks are being written.
    Void,
}

/// One log record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the update, rising.
    pub sequence: u64,
    /// The stripe that it is about.
    pub stripe: usize,
    /// What it says.
    pub body: Body,
    /// Whether its checksum fits.
    pub whole: bool,
}

/// What is written, and where on the member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A block of a stripe, in place.
    Place(usize, Block),
    /// The dirty bit of a stripe.
    Dirty(usize, bool),
    /// One more record in the ring.
    Append(Record),
    /// No record up to this number counts any more.
    Settled(u64),
}

/// What becomes of a write that was in flight at the crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nothing of it landed.
    Missed,
    /// All of it landed.
    Landed,
    /// The head is new, the tail old.
    TornHead,
    /// The tail is new, the head old.
    TornTail,
}

impl Item {
    /// What may become of this write at a crash; the first two are `Missed` and `Landed`.
    #[must_use]
    pub fn fates(&self, blocks_tear: bool) -> &'static [Fate] {
        use Fate::{Landed, Missed, TornHead, TornTail};
        match self {
            Item::Place(..) if blocks_tear => &[Missed, Landed, TornHead, TornTail],
            Item::Append(_) => &[Missed, Landed, TornHead],
            _ => &[Missed, Landed],
        }
    }
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    blocks: Vec<Block>,
    dirty: Vec<bool>,
    /// Log records, oldest first.
    pub ring: Vec<Record>,
    settled: u64,
}

fn torn(old: Block, new: Block, fate: Fate) -> Block {
    match fate {
        Fate::Missed => old,
        Fate::Landed => new,
        Fate::TornHead => Block([new.0[0], old.0[1]]),
        Fate::TornTail => Block([old.0[0], new.0[1]]),
    }
}

impl Device {
    fn apply(&mut self, item: &Item, fate: Fate) {
        match item {
            Item::Place(at, block) => self.blocks[*at] = torn(self.blocks[*at], *block, fate),
            _ if fate == Fate::Missed => {}
            Item::Dirty(at, dirty) => self.dirty[*at] = *dirty,
            Item::Settled(sequence) => self.settled = *sequence,
            Item::Append(record) => {
                // The oldest record goes even when the new one is cut short: it lay in the same
                // place.
                if self.ring.len() == RING_RECORDS {
                    self.ring.remove(0);
                }
                let whole = fate == Fate::Landed;
                let body = if whole { record.body.clone() } else { cut(&record.body, fate) };
                self.ring.push(Record { body, whole, ..*record });
            }
        }
    }
}

/// What is left of a record that was cut short: half of each block is what was in the ring before.
fn cut(body: &Body, fate: Fate) -> Body {
    let half = |block: Block| torn(Block::ZERO, block, fate);
    match body {
        Body::Full(data, parity) => {
            Body::Full(data.iter().map(|&(c, b)| (c, half(b))).collect(), parity.map(half))
        }
        Body::ParityOnly(changed, parity) => Body::ParityOnly(changed.clone(), half(*parity)),
        Body::Partial(columns, parity) => Body::Partial(columns.clone(), half(*parity)),
        Body::Void => Body::Void,
    }
}

/// The members that are left, and questions that a restart asks of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// Size and layout.
    pub shape: Shape,
    /// The members; `None` is lost.
    pub devices: Vec<Option<Device>>,
}

impl Array {
    /// An array whose stripes hold these rows (data and parity, by column).
    #[must_use]
    pub fn new(shape: Shape, rows: &[Vec<Block>]) -> Array {
        let clean = Device {
            blocks: Vec::new(),
            dirty: vec![false; rows.len()],
            ring: Vec::new(),
            settled: 0,
        };
        let mut devices = vec![clean; shape.members()];
        for (stripe, row) in rows.iter().enumerate() {
            for (member, block) in shape.columns(stripe).zip(row) {
                devices[member].blocks.push(*block);
            }
        }
        Array { shape, devices: devices.into_iter().map(Some).collect() }
    }

    /// Let a write do to `member` what `fate` says; nothing if the member is lost.
    pub fn apply(&mut self, member: usize, item: &Item, fate: Fate) {
        if let Some(device) = &mut self.devices[member] {
            device.apply(item, fate);
        }
    }

    /// Which members are there.
    #[must_use]
    pub fn live(&self) -> Vec<bool> {
        self.devices.iter().map(Option::is_some).collect()
    }

    /// The blocks in place of a stripe, by column.
    #[must_use]
    pub fn row(&self, stripe: usize) -> Vec<Option<Block>> {
        let block = |member: usize| Some(self.devices[member].as_ref()?.blocks[stripe]);
        self.shape.columns(stripe).map(block).collect()
    }

    /// Whether any member says that the stripe is dirty.
    #[must_use]
    pub fn dirty(&self, stripe: usize) -> bool {
        self.devices.iter().flatten().any(|device| device.dirty[stripe])
    }

    /// The same write to every member that is there.
    #[must_use]
    pub fn everywhere(&self, item: &Item) -> Round {
        let live = (0..self.devices.len()).filter(|&member| self.devices[member].is_some());
        live.map(|member| (member, item.clone())).collect()
    }

    /// Writes that make the stripe the whole row of `data`, where it is not that yet.
    #[must_use]
    pub fn make(&self, stripe: usize, data: &[Block]) -> Round {
        let wanted = field::whole_row(data, self.shape.m);
        let stored = self.row(stripe);
        let changes = |&c: &usize| stored[c].is_some_and(|block| block != wanted[c]);
        let columns = (0..wanted.len()).filter(changes);
        columns.map(|c| (self.shape.member(stripe, c), Item::Place(stripe, wanted[c]))).collect()
    }

    /// Writes that make parity match data, where lost data is whatever the first parities say.
    #[must_use]
    pub fn resync(&self, stripe: usize) -> Round {
        let data = field::solve(&self.row(stripe), self.shape.k);
        data.map_or_else(Round::new, |data| self.make(stripe, &data))
    }

    /// The highest number that any member calls settled.
    fn settled(&self) -> u64 {
        self.devices.iter().flatten().map(|device| device.settled).max().unwrap_or(0)
    }

    /// The whole records of a stripe on a member that still count, newest first.
    pub fn records(&self, member: usize, stripe: usize) -> impl Iterator<Item = &Record> {
        let settled = self.settled();
        let ring = self.devices[member].iter().flat_map(|device| device.ring.iter().rev());
        ring.filter(move |r| r.whole && r.stripe == stripe && r.sequence > settled)
    }

    /// The newest record of a stripe that all its live parity members hold: each such column with
    /// the record.
    ///
    /// `None` if there is no such record. Empty if no parity member lives.
    #[must_use]
    pub fn newest_on_all_parities(&self, stripe: usize) -> Option<Vec<(usize, &Record)>> {
        let member = |column| self.shape.member(stripe, column);
        let live =
            (self.shape.k..self.shape.members()).filter(|&c| self.devices[member(c)].is_some());
        let live: Vec<usize> = live.collect();
        let Some(&first) = live.first() else { return Some(Vec::new()) };
        let held = |column, sequence| {
            let record = self.records(member(column), stripe).find(|r| r.sequence == sequence)?;
            Some((column, record))
        };
        self.records(member(first), stripe)
            .find_map(|r| live.iter().map(|&column| held(column, r.sequence)).collect())
    }

    /// The last round of a restart: no record that is there now counts ever again.
    ///
    /// Without it a record that was discarded could be found on all live parity members once
    /// another of them is lost, and a block that was read as old would turn new. Every member must
    /// say so before clients read: one that says it alone may be the next to be lost.
    #[must_use]
    pub fn settle_records(&self) -> Round {
        let live = self.devices.iter().enumerate().filter_map(|(n, d)| Some((n, d.as_ref()?)));
        let records = self.devices.iter().flatten().flat_map(|device| &device.ring);
        let newest = records.map(|record| record.sequence).max().unwrap_or(0).max(self.settled());
        live.filter(|(_, device)| device.settled < newest)
            .map(|(member, _)| (member, Item::Settled(newest)))
            .collect()
    }
}
