//! The path of every request, from a volume's extent to the members and back.
//!
//! In reading order:
//! - `turn`         wait until a limit lets a request begin
//! - `submit`       admit a request, cut it at stripes, send each piece to the stripe's owner
//! - `read`         straight from the members, where the request arrived
//! - `reconstruct`  parts of a stripe that cannot be read straight, on the stripe's owner
//! - `write`        the story of one stripe write
//! - `block`        the same for one block of a healthy stripe, in fewer steps
//! - `block_sums`   its checksums
//! - `clock`        how long its stages take
//! - `edges`        complete a write of partial blocks
//! - `merge`        pieces of a sequential stream become full stripes; `streams`   which streams;
//!   `joined`       their bytes
//! - `gather`       read what a plan asks for
//! - `parity`       compute what a plan stores besides the data
//! - `log`          make the record durable before anything changes in place
//! - `parity_only`  record and order of writes if a device writes a block whole
//! - `store`        write it, in parallel
//! - `trim`         discard and write zeroes; `written_stripes`   looks for stripes, in turns
//! - `flush`        FLUSH and FUA
//!
//! What must stay true: plans (the layout crate) decide what to read and write; code here carries
//! them out. Nothing here allocates once its pools are warm. Pieces of one stripe run on the
//! stripe's owner only.

mod avoid;
mod block;
mod block_sums;
mod clock;
mod edges;
pub(crate) mod flush;
pub(crate) mod gather;
pub(crate) mod heal;
mod joined;
mod log;
pub(crate) mod merge;
mod parity;
mod parity_only;
pub(crate) mod payload;
pub(crate) mod read;
pub(crate) mod reconstruct;
pub(crate) mod store;
pub(crate) mod streams;
pub(crate) mod submit;
pub(crate) mod trim;
pub(crate) mod turn;
pub(crate) mod write;
mod write_times;
pub(crate) mod written_stripes;
