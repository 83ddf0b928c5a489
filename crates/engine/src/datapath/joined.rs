//! The bytes of writes that go together, strip by strip.
//!
//! What must stay true: a strip that lies in one write shares its bytes. Others are copied, into
//! buffers that nobody waits for, because those who go together hold buffers of the same pool.

use crate::config::REQUEST_BYTES_MAX;
use crate::lists::List;
use crate::local_array::LocalArray;
use ashlar_iobuf::{Buf, BufMut, Pool};
use ashlar_units::{Extent, to_u64, to_usize};

/// The bytes of each strip of an extent that `parts` fill, one after the other. `None` if there is
/// no memory to copy strips of which several parts have some.
pub(super) fn by_strip<'b>(
    local: &LocalArray,
    extent: Extent,
    strip_bytes: u64,
    parts: impl Iterator<Item = &'b Buf> + Clone,
) -> Option<List<Buf>> {
    let copied = copied_bytes(extent, strip_bytes, parts.clone());
    let mut room = Room { pool: &local.worker.payload, free: None, left: copied };
    let mut parts = Parts::new(parts);
    let mut strips = local.pools.strips.list();
    let mut at = extent.offset;
    while at < extent.end() {
        let end = extent.end().min((at / strip_bytes + 1) * strip_bytes);
        let bytes = to_usize(end - at);
        strips.push(match parts.shared(bytes) {
            Some(shared) => shared,
            None => parts.copied(room.take(bytes)?),
        });
        at = end;
    }
    Some(strips)
}

/// Bytes of the strips in which a part ends and another begins.
fn copied_bytes<'b>(extent: Extent, strip_bytes: u64, parts: impl Iterator<Item = &'b Buf>) -> u64 {
    let (mut at, mut counted, mut sum) = (extent.offset, extent.offset, 0);
    for part in parts {
        at += to_u64(part.len());
        let strip = at / strip_bytes * strip_bytes;
        // Its strip is counted if the part ends within it, once.
        if at != strip && at != extent.end() && counted <= strip.max(extent.offset) {
            counted = extent.end().min(strip + strip_bytes);
            sum += counted - strip.max(extent.offset);
        }
    }
    sum
}

/// Memory for copies.
struct Room<'p> {
    pool: &'p Pool,
    free: Option<BufMut>,
    /// Bytes that are still to be copied.
    left: u64,
}

impl Room<'_> {
    fn take(&mut self, bytes: usize) -> Option<BufMut> {
        if self.free.as_ref().is_none_or(|free| free.len() < bytes) {
            self.free = Some(self.pool.try_get(to_usize(self.left).min(REQUEST_BYTES_MAX))?);
        }
        self.left -= to_u64(bytes);
        self.free.as_mut().map(|free| free.split_to(bytes))
    }
}

/// The parts from a byte on.
struct Parts<'b, I> {
    current: &'b Buf,
    /// The next byte of it.
    from: usize,
    rest: I,
}

impl<'b, I: Iterator<Item = &'b Buf>> Parts<'b, I> {
    fn new(mut parts: I) -> Self {
        let current = parts.next().expect("who goes with others comes after the first");
        Parts { current, from: 0, rest: parts }
    }

    /// The next bytes, if they lie in one part.
    fn shared(&mut self, bytes: usize) -> Option<Buf> {
        self.skip_ended();
        let range = self.from..self.from + bytes;
        let is_here = range.end <= self.current.len();
        is_here.then(|| {
            self.from = range.end;
            self.current.slice(range)
        })
    }

    /// As many of the next bytes as there is room for.
    fn copied(&mut self, mut target: BufMut) -> Buf {
        let mut filled = 0;
        while filled < target.len() {
            self.skip_ended();
            let bytes = (target.len() - filled).min(self.current.len() - self.from);
            let part = &self.current[self.from..self.from + bytes];
            target[filled..filled + bytes].copy_from_slice(part);
            self.from += bytes;
            filled += bytes;
        }
        target.freeze()
    }

    fn skip_ended(&mut self) {
        while self.from == self.current.len() {
            self.current = self.rest.next().expect("the parts fill the extent");
            self.from = 0;
        }
    }
}
