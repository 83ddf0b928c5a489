//! What the lab says of recorded and made-up input: nothing here measures this machine.
//!
//! - adapters: engines against recorded transcripts
//! - audited: the source documents' own numbers
//! - inspect: captured servers
//! - mutations: parsers under seeded mutations
//! - report: a made-up run as a report

mod adapters;
mod audited;
mod inspect;
mod mutations;
mod report;
