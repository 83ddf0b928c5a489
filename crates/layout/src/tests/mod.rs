//! Tests that look at the whole crate: every small geometry, and the maps that are on disks.
//!
//! - `geometries` the arrays that the others enumerate
//! - `shapes`     what is accepted, and what a refusal says
//! - `exhaustive` every strip and every byte of small arrays, there and back
//! - `golden`     printed maps that never change
//! - `code`       a code over a prime field for the model
//! - `model`      a stripe of numbers that executes plans and knows what the result must be
//! - `plans`      every write to small stripes with every set of lost strips, executed on the model
//! - `reads`      every read of small stripes with every set of lost strips, executed on the model
//! - `costs`      how many reads and writes a plan takes, and when it is refused

mod code;
mod costs;
mod declustered;
mod exhaustive;
mod geometries;
mod golden;
mod model;
mod plans;
mod reads;
mod shapes;
