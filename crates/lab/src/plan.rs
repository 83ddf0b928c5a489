//! A run by plan: stages as the field does them, around real fio job files.
//!
//! - file: the plan, in TOML
//! - profile: fio job files with targets, depth and time filled in
//! - points: the plan as a list of points to measure, before anything is started
//! - execute: measuring them one by one, with resumption
//! - made: arrays that the lab makes itself, through the engines' adapters
//! - mounted: a file system on an array, while it is measured through it
//! - stripes: how an array's stripes lie over its drives
//! - ceilings: what the raw drives allow: BASELINE and ceiling of each point
//! - alone: what each raw drive did alone, against all at once and against its maker's figures
//! - findings: what is concluded from several points: slow members, cliffs, steady state, zones
//! - progress: a bar on a terminal, plain lines elsewhere
//! - environment: what the machine was during the run
//! - cli: `lab run`
//!
//! What must stay true: every command can be seen before it runs (`--dry-run`); a point that was
//! measured is not measured again after an interruption; stages that could not be done are named
//! with the reason.

pub mod alone;
pub mod ceilings;
pub mod cli;
pub mod environment;
pub mod execute;
pub mod file;
pub mod findings;
pub mod made;
pub mod mounted;
pub mod points;
pub mod profile;
pub mod progress;
pub mod stripes;
#[cfg(test)]
mod tests;
