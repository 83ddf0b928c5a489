//! A client that goes on writing and reading back while a test does things to the array.
//!
//! What must stay true: each block that is read must be this client's last write there, and no
//! request may fail. The first wrong block ends the load, and the test that waits for it fails with
//! it.

use crate::raw_nbd::RawNbd;
use crate::world::World;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Where its area begins: behind what the other clients of a test write.
pub const BEGINS: u64 = 12 << 20;
/// Pieces of the area, and bytes from one to the next: no multiple of a strip, so that pieces lie
/// across borders.
const PIECES: u64 = 96;
const PITCH: u64 = 28 << 10;

/// A way to the volume that can be used from a thread of its own.
pub enum Client {
    Nbd(RawNbd),
    File(File),
}

impl Client {
    /// A connection of its own to `volume`.
    pub fn over_nbd(world: &World, volume: &str) -> Client {
        Client::Nbd(RawNbd::open(world, volume))
    }

    /// The volume's file.
    pub fn of_file(path: &Path) -> Client {
        Client::File(File::options().read(true).write(true).open(path).expect("open"))
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        match self {
            Client::Nbd(nbd) => {
                nbd.write(offset, data).expect("a write is answered without an error")
            }
            Client::File(file) => file.write_all_at(data, offset).expect("a write succeeds"),
        }
    }

    fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        match self {
            Client::Nbd(nbd) => {
                let bytes = u32::try_from(bytes).expect("small");
                nbd.read(offset, bytes).expect("a read is answered without an error")
            }
            Client::File(file) => {
                let mut data = vec![0; bytes];
                file.read_exact_at(&mut data, offset).expect("a read succeeds");
                data
            }
        }
    }
}

/// A running load.
pub struct Load {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Load {
    /// Begin to write, and to read back what was written before.
    pub fn begin(mut client: Client) -> Load {
        let (is_over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, done) = (Arc::clone(&is_over), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            let mut holds = vec![Vec::new(); usize::try_from(PIECES).expect("few")];
            for round in 1_u64.. {
                if over.load(Ordering::Acquire) {
                    return holds.iter().enumerate().for_each(|it| compare(&mut client, it));
                }
                // A stride without a common divisor visits every piece; what is read was written
                // some rounds ago.
                let (at, before) = (piece(round * 37), piece(round * 37 + 53 * 37));
                holds[at] = content(round);
                client.write(place(at), &holds[at]);
                compare(&mut client, (before, &holds[before]));
                done.store(round, Ordering::Release);
            }
        });
        Load { is_over, rounds, thread }
    }

    /// Wait until it has done `rounds` more writes and reads.
    pub fn goes_on(&self, rounds: u64) {
        let wanted = self.rounds.load(Ordering::Acquire) + rounds;
        while self.rounds.load(Ordering::Acquire) < wanted {
            assert!(!self.thread.is_finished(), "the load ended early: its thread says why");
            std::thread::yield_now();
        }
    }

    /// End it, after every piece was read once more.
    pub fn end(self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().expect("every request was answered and every block right");
    }
}

fn piece(number: u64) -> usize {
    usize::try_from(number % PIECES).expect("few")
}

fn place(piece: usize) -> u64 {
    BEGINS + u64::try_from(piece).expect("few") * PITCH
}

/// What round `round` writes: 4 to 28 KiB that name it.
fn content(round: u64) -> Vec<u8> {
    let blocks = usize::try_from(round % 7 + 1).expect("few");
    round.to_le_bytes().repeat(512 * blocks)
}

fn compare(client: &mut Client, (piece, held): (usize, &Vec<u8>)) {
    if !held.is_empty() {
        assert!(
            client.read(place(piece), held.len()) == *held,
            "piece {piece} holds something else"
        );
    }
}
