//! The formulas, without any I/O: numbers in, numbers out.
//!
//! - latency: percentiles from merged histogram bins
//! - baseline: what an array could do if the engine cost nothing; efficiencies
//! - slow_member: which member is slow, and what the slow ones share
//! - plausible: Little's law and ceilings (F13, F14)
//! - steady: steady state on both criteria
//! - cliff: where a series falls and stays down, where a working set stops fitting into a cache
//! - pairs: A against B in turns
//! - bandwidth: what a link can carry
//! - zones: how a spinning drive's rate falls, and what that means for all of it
//! - per_work: CPU time for each I/O and each MiB, and what the load generator took of it
//! - share: which share of the machine something takes (F1)
//! - spread: how a load lies over the cores
//!
//! What must stay true: percentiles are merged by adding bins, never by averaging; each formula
//! says its source.

pub mod bandwidth;
pub mod baseline;
pub mod cliff;
pub mod latency;
pub mod pairs;
pub mod per_work;
pub mod plausible;
pub mod share;
pub mod slow_member;
pub mod spread;
pub mod steady;
pub mod zones;
