//! Tests of the pure parts.

mod chains;
mod requests;
