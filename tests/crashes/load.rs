//! Clients that write, read and flush until the daemon is gone, and keep books of it.
//!
//! What must stay true: every request is in the ledger before it is sent, and counts as answered
//! only when the answer is here. Before the kill is announced nothing may fail. Not here: when the
//! kill comes (`kills`).

use crate::client::Client;
use crate::ledger::{BLOCK_BYTES, Ledger, fill};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Numbers that a seed decides.
pub struct Random(u64);

impl Random {
    /// A seed of its own for each stream.
    pub fn new(seed: u64, stream: u64) -> Random {
        let state =
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Random(state | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// Less than `end`.
    pub fn next_below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("small");
        usize::try_from(self.next_below(end)).expect("small")
    }
}

/// Where on the volume the ledger's blocks are: half of them at its start, half in its middle.
#[derive(Clone, Copy)]
pub struct Place {
    /// Blocks of the ledger.
    pub blocks: usize,
    /// Size of the volume.
    pub volume_bytes: u64,
}

impl Place {
    /// The offset on the volume.
    pub fn of(self, block: usize) -> u64 {
        let bytes = |blocks: usize| u64::try_from(blocks * BLOCK_BYTES).expect("small");
        let half = self.blocks / 2;
        let middle = self.volume_bytes / 2 / 4096 * 4096;
        if block < half { bytes(block) } else { middle + bytes(block - half) }
    }

    /// A block behind all of the ledger's, for probes.
    pub fn probe(self) -> u64 {
        self.volume_bytes / 4096 * 4096 - 4096
    }

    /// Up to `count` blocks in one piece from a random place.
    fn pick(self, random: &mut Random, count: usize) -> usize {
        let half = self.blocks / 2;
        random.below(2) * half + random.below(half - count + 1)
    }
}

/// What all clients of one life share.
pub struct Shared<'a> {
    /// Their books.
    pub ledger: &'a Ledger,
    /// Where they write.
    pub place: Place,
    /// The longest request, in blocks.
    pub blocks_max: usize,
    /// Requests answered in this life.
    pub done: AtomicU64,
    /// At how many of them somebody is told.
    pub kill_at: u64,
    /// Who is told.
    pub now: SyncSender<()>,
    /// The daemon is being killed: from now on requests may fail.
    pub is_killed: AtomicBool,
}

/// Write, read and flush until the daemon is gone.
///
/// # Panics
/// If a request fails before that, or a read brings what cannot be there.
pub fn run(client: &mut dyn Client, random: &mut Random, shared: &Shared) {
    loop {
        match step(client, random, shared) {
            Ok(()) if shared.done.fetch_add(1, Ordering::SeqCst) + 1 == shared.kill_at => {
                shared.now.send(()).expect("somebody waits");
            }
            Ok(()) => {}
            Err(_) if shared.is_killed.load(Ordering::SeqCst) => return,
            Err(error) => panic!("failed before the kill: {error}"),
        }
    }
}

fn step(client: &mut dyn Client, random: &mut Random, shared: &Shared) -> std::io::Result<()> {
    // Mostly single blocks, some runs, some that cover whole stripes.
    let count = match random.below(10) {
        0..6 => 1,
        6..9 => 1 + random.below(8),
        _ => 1 + random.below(96),
    };
    let count = count.min(shared.blocks_max);
    match random.below(100) {
        0..70 => {
            let first = shared.place.pick(random, count);
            write(client, shared, first, count)
        }
        70..76 => zero(client, random, shared),
        76..95 => {
            let (first, ledger) = (shared.place.pick(random, count), shared.ledger);
            let before = ledger.readable(first, count);
            let mut bytes = vec![0; count * BLOCK_BYTES];
            client.read(shared.place.of(first), &mut bytes)?;
            ledger.check(first, &before, &bytes);
            Ok(())
        }
        _ => {
            let began = shared.ledger.begin_flush();
            client.flush()?;
            shared.ledger.answer_flush(began);
            Ok(())
        }
    }
}

/// Write blocks, and have it in the books.
fn write(
    client: &mut dyn Client,
    shared: &Shared,
    first: usize,
    count: usize,
) -> std::io::Result<()> {
    let ticket = shared.ledger.begin(first, count, false);
    let mut bytes = vec![0; count * BLOCK_BYTES];
    for (at, bytes) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        fill(first + at, ticket.number, bytes);
    }
    client.write(shared.place.of(first), &bytes)?;
    shared.ledger.answer(ticket);
    Ok(())
}

/// Zeros: less than any stripe where stripes are to stay in use (a stripe of a mirror is one strip,
/// four blocks), whole ones elsewhere.
fn zero(client: &mut dyn Client, random: &mut Random, shared: &Shared) -> std::io::Result<()> {
    let place = shared.place;
    let (first, count) = match random.below(2) {
        0 => (random.below(place.blocks / 2 - 3), 1 + random.below(3)),
        _ => (place.blocks / 2 + random.below(place.blocks / 2 - 48), 48),
    };
    let ticket = shared.ledger.begin(first, count, true);
    client.zero(place.of(first), count * BLOCK_BYTES)?;
    shared.ledger.answer(ticket);
    Ok(())
}
