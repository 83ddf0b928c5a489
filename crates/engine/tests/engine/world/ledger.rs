//! Clients that write until the power goes, and what may be found in each block afterwards.
//!
//! What must stay true: a block holds what was last flushed or something written since, nothing
//! else; what is found is final from then on.

use super::read;
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_sim::Random;
use ashlar_units::{BLOCK_BYTES, Extent, to_usize};
use ashlar_volume::{Command, Request, Volume};
use std::sync::{Arc, Mutex};

/// Blocks of the volume that the clients write.
pub const BLOCKS: u64 = 256;
/// Clients that write at the same time, each its own blocks.
pub const CLIENTS: u64 = 4;

/// What may be found in a block.
#[derive(Clone, Default)]
pub struct BlockHistory {
    /// The write that a flush made durable; 0 for none yet.
    durable: u64,
    /// Writes submitted since, oldest first.
    since: Vec<u64>,
    /// The last write that was answered.
    answered: u64,
}

/// What a client or the auditor knows of all blocks.
pub type Ledger = Arc<Mutex<Vec<BlockHistory>>>;

/// The content that write `id` puts into a block: names the write and the block.
fn content(block: u64, id: u64) -> Vec<u8> {
    if id == 0 {
        return vec![0; 4096];
    }
    let tag = [block.to_le_bytes(), id.to_le_bytes()].concat();
    tag.iter().copied().cycle().take(4096).collect()
}

fn who_wrote(block: u64, bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
    (bytes == content(block, id)).then_some(id)
}

/// Nothing written yet.
pub fn blank() -> Ledger {
    Arc::new(Mutex::new(vec![BlockHistory::default(); to_usize(BLOCKS)]))
}

/// One client: writes runs of at most so many of its blocks, flushes now and then, until the power
/// goes.
pub async fn client(
    volume: ArrayVolume,
    ledger: Ledger,
    (seed, client): (u64, u64),
    blocks_max: u64,
) {
    let mut random = Random::stream(seed, client);
    let own = BLOCKS / CLIENTS;
    for round in 1.. {
        if random.percent(10) {
            flush(&volume, &ledger).await;
            continue;
        }
        let count = if random.percent(20) { random.below(blocks_max) + 1 } else { 1 };
        let first = client * own + random.below(own - count + 1);
        let id = round * CLIENTS + client;
        let extent = Extent::new(first * BLOCK_BYTES, count * BLOCK_BYTES);
        let bytes = usize::try_from(extent.bytes).expect("small");
        let mut buffer = volume.buffer(bytes).await;
        for (block, part) in (first..).zip(buffer.chunks_mut(4096)) {
            part.copy_from_slice(&content(block, id));
            ledger.lock().expect("one thread")[to_usize(block)].since.push(id);
        }
        let request = Request { command: Command::Write(buffer.freeze()), extent, fua: false };
        volume.submit(request).await.expect("healthy");
        let mut ledger = ledger.lock().expect("one thread");
        (first..first + count).for_each(|block| ledger[to_usize(block)].answered = id);
    }
}

async fn flush(volume: &ArrayVolume, ledger: &Ledger) {
    let answered: Vec<u64> =
        ledger.lock().expect("one thread").iter().map(|block| block.answered).collect();
    let request = Request { command: Command::Flush, extent: Extent::default(), fua: false };
    volume.submit(request).await.expect("healthy");
    let mut ledger = ledger.lock().expect("one thread");
    for (block, id) in ledger.iter_mut().zip(answered) {
        // Flushes of several clients may be answered in any order: durability never goes back.
        if let Some(at) = block.since.iter().position(|since| *since == id) {
            block.durable = id;
            block.since.drain(..=at);
        }
    }
}

/// The process was killed and the disks keep their caches: everything that was answered is to be
/// found.
pub fn answered_counts(ledger: &Ledger) {
    for block in ledger.lock().expect("one thread").iter_mut() {
        if let Some(at) = block.since.iter().position(|since| *since == block.answered) {
            block.durable = block.answered;
            block.since.drain(..=at);
        }
    }
}

/// Read every block: it must be one of those that may be found. What is found is final from then
/// on.
pub async fn audit(volume: &ArrayVolume, ledger: &Ledger, seed: u64) {
    for block in 0..BLOCKS {
        let extent = Extent::new(block * BLOCK_BYTES, BLOCK_BYTES);
        let bytes = read(volume, extent).await;
        let bytes = bytes.unwrap_or_else(|kind| panic!("seed {seed}: block {block}: {kind:?}"));
        let mut ledger = ledger.lock().expect("one thread");
        let history = &mut ledger[to_usize(block)];
        let found = who_wrote(block, &bytes);
        let is_allowed =
            found.is_some_and(|id| id == history.durable || history.since.contains(&id));
        assert!(
            is_allowed,
            "seed {seed}: block {block} holds {found:?}, allowed: {} or one of {:?}",
            history.durable, history.since
        );
        *history = BlockHistory { durable: found.expect("allowed"), ..BlockHistory::default() };
        history.answered = history.durable;
    }
}

/// Audit every block through a volume of the engine.
pub async fn look(engine: &Engine, ledger: &Ledger, seed: u64) {
    let ledger = Arc::clone(ledger);
    let looked = engine.with_volume(0, "tank", async move |volume| {
        audit(&volume, &ledger, seed).await;
    });
    looked.await.expect("runs");
}
