//! Tests of the format at its boundary: bytes in, values and verdicts out. One binary, a module a
//! subject.
//!
//! What must stay true: images under `tests/images/` are never rewritten; a new version adds new
//! ones.

mod assembly;
mod checksums;
mod choices;
mod copies;
mod declustered;
mod document;
mod domains;
mod drives;
mod examine;
mod golden;
mod growth;
mod hostile;
mod lineages;
mod log;
mod log_judge;
mod log_parity_only;
mod log_scan;
mod members;
mod older;
mod pages;
mod plan;
mod runner;
mod samples;
mod spare_table;
mod split_brain;
mod superblock;
mod together;
