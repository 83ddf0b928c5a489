//! Aligned buffers for devices and parity, in fixed pools.
//!
//! What must stay true: a byte of a buffer has either exactly one [`BufMut`] over it or any number
//! of [`Buf`], never both; a pool never grows after it was made; memory goes back to where it came
//! from when the last piece of it is dropped, on whichever thread that happens. Not here: what is
//! in the buffers, and who reads or writes them.
//!
//! Map, in reading order:
//! - `buf`: [`BufMut`] and [`Buf`], the two kinds of owners
//! - `memory`: the counted header behind both
//! - `pool`: [`Pool`], its classes and its usage
//! - `line`: free slots and who waits for them
//! - `mapping`: buffers in somebody else's memory
//! - `arena`: the one mapping behind a pool, on huge pages where there are any
//! - `node`: the machine's NUMA nodes, so that memory lies beside who uses it
//! - `streaming`: copies that leave the caches to others

mod arena;
mod buf;
mod line;
mod mapping;
mod memory;
mod node;
mod pool;
mod streaming;

#[cfg(test)]
mod tests;

pub use arena::{Backing, fill_pools_at_once};
pub use buf::{Buf, BufMut};
pub use mapping::{Access, SharedMapping, can_shrink};
pub use node::Nodes;
pub use pool::{Alignment, ClassUsage, Pool, PoolClass, PoolUsage};
pub use streaming::copy_past_caches;
