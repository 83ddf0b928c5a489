//! What a worker keeps about stripes while requests are under way: the row locks.

pub(crate) mod lock;
