//! The real program is killed, again and again, under clients that remember what was answered.
//!
//! - `ledger`  what each block may hold
//! - `client`  NBD and FUSE as a client that survives the daemon sees them
//! - `load`    clients at work until the daemon is gone
//! - `first_writes`  first writes of stripes, with a kept map
//! - `kills`   SIGKILL, a new start, a look at every block
//! - `replay`    from a record of writes to what a power cut may have left
//! - `recorded`  the engine, the second reader and the program on that
//!
//! What must stay true: an answered write is there after a kill, flushed or not: its bytes had left
//! the process. A power cut, which loses caches too, is for simulated worlds (`crates/universe`)
//! and for `recorded`.

mod client;
mod first_writes;
mod kills;
mod ledger;
mod load;
mod recorded;
mod replay;
#[path = "../end_to_end/world.rs"]
mod world;
