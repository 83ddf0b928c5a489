//! What the lab says of recorded and made-up input: nothing here measures this machine.
//!
//! - adapters: engines against recorded transcripts
//! - audited: the source documents' own numbers
//! - baseline: the library of baselines
//! - golden: accounts of recorded profiles
//! - inspect: captured servers
//! - mutations: parsers under seeded mutations
//! - report: a made-up run as a report
#![forbid(unsafe_code)]

mod adapters;
mod audited;
mod baseline;
mod golden;
mod inspect;
mod mutations;
#[path = "../program/mod.rs"]
mod program;
mod report;
