//! The bottleneck diagram: every link with its bandwidth, from the drives to memory, and the
//! narrowest one marked.
//!
//! - text: for a terminal
//! - svg: for a page, light and dark, with measured flows if there are any
//!
//! What must stay true: both show the same flow, and every figure has its unit.

pub mod svg;
pub mod text;

use crate::metrics::bandwidth::Rate;
use std::collections::BTreeMap;

/// What was measured on links: the link's id -> bytes a second.
pub type Measured = BTreeMap<String, Rate>;
