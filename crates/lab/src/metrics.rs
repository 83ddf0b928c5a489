//! The formulas, without any I/O: numbers in, numbers out.
//!
//! - latency: percentiles from merged histogram bins
//!
//! What must stay true: percentiles are merged by adding bins, never by averaging; each formula says its source.

pub mod latency;
