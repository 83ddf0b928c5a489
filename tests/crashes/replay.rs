//! From a record of writes to the disks that a power cut may have left.
//!
//! Take the moment of any entry. Each device then holds
//! - for certain: every durable write that was done, and every command that was done before the
//!   beginning of a flush that was done;
//! - by chance: any subset of the other writes that had begun, each whole or torn at sectors of 512
//!   bytes. If two overlap and one began after the other was done, the later one lies on top.
//!
//! What must stay true: the device holds nothing of later commands. The same seed makes the same
//! disks. Every promise to a client before that moment, by the same clock, must hold. Not here: the
//! use of the disks (`recorded`).

use crate::load::Random;
use ashlar_device::{RecordEntry, RecordKind};
use ashlar_sim::{DiskImage, DiskOptions, SimDisk, SimWorld};
use std::collections::BTreeMap;

/// A change of a disk: the entry that began it.
type Change = usize;

/// What has happened to one disk up to some entry.
struct Track {
    /// What is there for certain.
    sure: SimDisk,
    /// Done and not flushed, oldest first.
    cached: Vec<Change>,
    under_way: BTreeMap<u64, Change>,
    /// Flushes under way, and which changes they cover.
    flushes: BTreeMap<u64, Vec<Change>>,
}

/// How much of what is not certain survives.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Of each hundred changes.
    pub percent: usize,
    /// Of those that survive, of each hundred, how many are torn.
    pub torn_percent: usize,
    /// What is never torn, bytes.
    pub atomic_bytes: usize,
}

/// A walk through a record.
pub struct Replay<'r> {
    entries: &'r [RecordEntry],
    next: usize,
    /// Kept for its disks.
    _world: SimWorld,
    /// By path, in the order of `paths`.
    tracks: Vec<Track>,
    paths: Vec<String>,
    /// Which disk each opening is of; none for disks that nobody asks about.
    disks: Vec<Option<usize>>,
}

impl<'r> Replay<'r> {
    /// At the beginning of the record; `paths` are the disks, each of `disk_bytes`.
    pub fn new(entries: &'r [RecordEntry], paths: &[String], disk_bytes: u64) -> Replay<'r> {
        let mut world = SimWorld::new(1);
        let track = |path: &String| Track {
            sure: world.add_disk(path, DiskOptions::sized(disk_bytes)),
            cached: Vec::new(),
            under_way: BTreeMap::new(),
            flushes: BTreeMap::new(),
        };
        let tracks = paths.iter().map(track).collect();
        let paths = paths.to_vec();
        Replay { entries, next: 0, _world: world, tracks, paths, disks: Vec::new() }
    }

    /// Go on to behind entry `until`.
    pub fn advance(&mut self, until: usize) {
        while self.next <= until {
            self.step(self.next);
            self.next += 1;
        }
    }

    fn step(&mut self, at: usize) {
        let entry = &self.entries[at];
        if entry.kind == RecordKind::Opened {
            let is_it = |path: &String| path.as_bytes() == entry.payload;
            return self.disks.push(self.paths.iter().position(is_it));
        }
        let disk = self.disks[usize::try_from(entry.device).expect("few")];
        let Some(track) = disk.map(|disk| &mut self.tracks[disk]) else { return };
        match entry.kind {
            RecordKind::Opened => unreachable!("see above"),
            RecordKind::Flush => drop(track.flushes.insert(entry.number, track.cached.clone())),
            RecordKind::Done => track.done(self.entries, entry.number),
            // It may have had any part of its effect.
            RecordKind::Failed => track.done(self.entries, entry.number),
            _ => drop(track.under_way.insert(entry.number, at)),
        }
    }

    /// The disks, cut off here.
    pub fn cut(&self, cut: Cut, random: &mut Random) -> Vec<DiskImage> {
        let mut world = SimWorld::new(2);
        let image = |track: &Track| {
            let size = DiskOptions::sized(track.sure.size_bytes());
            let disk = world.add_disk(&track.sure.name(), size);
            disk.put_image(&track.sure.image());
            let mut under_way: Vec<Change> = track.under_way.values().copied().collect();
            for at in (1..under_way.len()).rev() {
                under_way.swap(at, random.below(at + 1));
            }
            for change in track.cached.iter().copied().chain(under_way) {
                let entry = &self.entries[change];
                let is_done = !track.under_way.contains_key(&entry.number);
                let is_sure = is_done && entry.kind == RecordKind::WriteDurable;
                if is_sure {
                    apply(&disk, entry);
                } else if random.below(100) < cut.percent {
                    let is_torn = random.below(100) < cut.torn_percent;
                    if is_torn { tear(&disk, entry, cut, random) } else { apply(&disk, entry) }
                }
            }
            disk.image()
        };
        self.tracks.iter().map(image).collect()
    }
}

impl Track {
    fn done(&mut self, entries: &[RecordEntry], number: u64) {
        if let Some(change) = self.under_way.remove(&number) {
            self.cached.push(change);
        }
        for change in self.flushes.remove(&number).into_iter().flatten() {
            // Another flush may have had it already.
            if let Some(at) = self.cached.iter().position(|cached| *cached == change) {
                self.cached.remove(at);
                apply(&self.sure, &entries[change]);
            }
        }
    }
}

fn apply(disk: &SimDisk, entry: &RecordEntry) {
    match entry.kind {
        RecordKind::Write | RecordKind::WriteDurable => disk.poke(entry.offset, &entry.payload),
        _ => {
            let bytes = usize::try_from(entry.bytes).expect("a part of a disk in memory");
            disk.poke(entry.offset, &vec![0; bytes]);
        }
    }
}

/// Only some of its sectors.
fn tear(disk: &SimDisk, entry: &RecordEntry, cut: Cut, random: &mut Random) {
    let unit = cut.atomic_bytes;
    for (at, part) in entry.payload.chunks(unit).enumerate() {
        if random.below(2) == 0 {
            let offset = u64::try_from(at * unit).expect("small");
            disk.poke(entry.offset + offset, part);
        }
    }
}
