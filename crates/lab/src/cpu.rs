//! `lab cpu`: who uses the CPU, in whose context, for what, on which cores.
//!
//! - verb: the flags, and what is done with them
//! - files: accounts from files of others
//! - script: what perf prints, and one frame
//! - groups: which engine and which work, from versioned files
//! - tally: stacks are counted
//! - account: counts become shares
//! - live: accounts of this machine, around measurements and while a load runs
//! - perf, load: sampling, and what runs meanwhile
//! - flame: flame graphs and their differences
//! - text: how an account looks
//!
//! What must stay true: shares are of cores x wall-clock time, whatever the samples were; an
//! engine's work is charged to it wherever it runs. Not here: the formulas (metrics).

pub mod account;
pub mod files;
pub mod flame;
pub mod groups;
pub mod live;
pub mod load;
pub mod perf;
pub mod script;
pub mod tally;
pub mod text;
pub mod verb;

pub use account::CpuAccount;
