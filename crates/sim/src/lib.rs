//! A deterministic world for tests: a virtual clock, a seeded schedule, and disks that fail as real
//! ones do.
//!
//! What must stay true: the same seed and the same program give the same trace hash; nothing here
//! reads a real clock, real randomness or a file; disks outlive the executor, so a test can cut the
//! power, start anew and look at what survived. Not here: any knowledge of what runs on the disks.
//!
//! Map, in reading order:
//! - `world`: [`SimWorld`], which runs a program until it ends or is stopped
//! - `disk`: [`SimDisk`], what a test does to a disk; [`DiskOptions`]
//! - `gate`: how fast a disk is, and what passed it
//! - `opener`: [`SimOpener`], how the program finds the disks by name
//! - `state`: what a disk holds, durably and in its cache, and what a power cut leaves of it
//! - `lies`: writes that are acknowledged and not stored as they should be, rot, and what of it is
//!   still there
//! - `pages`: sparse bytes
//! - `memory`: memory that outlives a killed program, and no power cut
//! - `trace`, `random`: the hash that identifies a run, and the seed it comes from
#![forbid(unsafe_code)]

mod device;
mod disk;
mod gate;
mod lies;
mod memory;
mod opener;
mod pages;
mod random;
mod state;
mod trace;
mod world;

pub use disk::{DiskImage, DiskOptions, KeptDisk, Latency, SimDisk};
pub use gate::Traffic;
pub use lies::Lie;
pub use memory::{MemoryImage, SimMemory};
pub use opener::SimOpener;
pub use random::Random;
pub use state::Fate;
pub use trace::Operation;
pub use world::{Ended, SimSwitch, SimWorld, Stop};
