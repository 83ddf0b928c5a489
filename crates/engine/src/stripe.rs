//! Row locks: what a worker keeps about stripes while requests are under way.

pub(crate) mod lock;
