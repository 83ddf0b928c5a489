//! The write hole as a small executable specification: what a crash together with lost members may
//! do to a row of blocks, and which ways of writing a row survive it.
//!
//! A strategy says in which rounds it writes a row, and what it does at the restart after a crash.
//! The model runs it through seeded universes, or through every state of a small one, and judges
//! every block: in flight means old or new, all others are exact. Run the table with `cargo run
//! --release -p ashlar-model --example write_hole`; docs/results/write-hole.md explains it.
//!
//! What must stay true: this crate uses no other crate of ours, so that no fault can be on both
//! sides. Not here: time, real devices, several updates at once, drives that lie about what is
//! durable.
//!
//! Reading order: [`field`] (blocks and parity), [`device`] (what a crash leaves on members),
//! [`update`] (rounds of writes), [`strategy`] (one file each), [`judge`] (the oracle), [`world`]
//! (array and judge together), [`run`] (one seed, one universe, by [`chance`]), [`exhaustive`]
//! (every crash state of small rows).

#![forbid(unsafe_code)]

pub mod chance;
pub mod device;
pub mod exhaustive;
pub mod field;
pub mod judge;
pub mod run;
pub mod strategy;
pub mod update;
pub mod world;
