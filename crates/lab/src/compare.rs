//! Two engines in turns on the same devices, or two stored runs against each other.
//!
//! - workloads: what both are asked to do, as fio jobs
//! - members: the devices, made from files if need be, and what the raw ones can do (BASELINE)
//! - turns: A, B, A, B: make the array, measure it healthy, take members out, measure again, take
//!   it away
//! - library, fingerprint: runs that were kept under a name, and whether they are of the same
//!   machine
//! - baseline: `ashlar lab baseline`
//! - stored: two runs that were measured at different times, and an exit code for automation
//! - cli: `ashlar lab compare`
//!
//! What must stay true: both engines get the same devices, the same jobs and the same time; every
//! array is made anew for each turn and filled before it is read; nothing is measured while an
//! engine still works in the background.

pub mod baseline;
pub mod cli;
pub mod fingerprint;
pub mod library;
pub mod members;
pub mod stored;
pub mod turns;
pub mod workloads;
