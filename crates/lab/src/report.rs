//! The report: one page that opens from disk, made from the records of a run alone.
//!
//! - points: rounds of the same workload, engine and condition, as one figure with its samples
//! - findings: the sentence on top: what limits, what to do next, and whether the figures may be
//!   used
//! - forest: two engines at one glance, beside the verdict
//! - charts: which charts there are, and the figures behind each
//! - media: figures over sizes
//! - waterfall: what is lost on the way from the raw drives to the file system
//! - cards: what one drive does, and what that says of the whole bay
//! - tables: engines side by side, CPU time, resources, traces, checks
//! - chart: bars and lines as SVG, with every sample as a dot
//! - page: the HTML page
//! - pictures: flame graphs inside the page, and how many fit
//! - sections: every table as plain rows, the same in all forms of the report
//! - text: Markdown and CSV
//! - cli: `ashlar lab report`
//!
//! What must stay true: no figure without its mark, its unit and the command it came from; what is
//! missing is shown as missing; the page asks the network for nothing.

pub mod cards;
pub mod chart;
pub mod charts;
pub mod cli;
pub mod findings;
pub mod forest;
pub mod media;
pub mod page;
pub mod pictures;
pub mod points;
pub mod sections;
pub mod tables;
pub mod text;
pub mod waterfall;
