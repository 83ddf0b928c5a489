//! fio, the load generator: its job files, its command line, its results, and running it.
//!
//! - value: sizes, durations and truth values as fio writes them
//! - job: job files: sections, inheritance, and writing them again
//! - args: the same from a command line
//! - result: `json+` results, whatever surrounds them
//! - series: logs over time, added over jobs
//! - measure: results as measurements
//! - run: starting fio through the forensic log
//!
//! What must stay true: no input, however broken, makes a parser panic; it is read, or refused in
//! one clear line. fio's own files are the workload language, there is no dialect. Not here: what
//! is wrong with a job (lint).

pub mod args;
pub mod job;
pub mod measure;
pub mod result;
pub mod run;
pub mod series;
#[cfg(test)]
pub(crate) mod tests;
pub mod value;

pub use job::{Job, JobFile, Section, Setting, escaped};
pub use result::FioResult;
