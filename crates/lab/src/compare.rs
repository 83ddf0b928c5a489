//! Two engines in turns on the same devices, or two stored runs against each other.
//!
//! - turns: the plan that a comparison is: raw devices, then A, B, B, A
//! - stored: two runs that were measured at different times, and an exit code for automation
//! - cli: `ashlar lab compare`
//!
//! What must stay true: both engines get the same devices, the same jobs and the same time; every
//! array is made anew for each turn and filled before it is read. Not here: measuring (plan).

pub mod cli;
pub mod stored;
pub mod turns;
