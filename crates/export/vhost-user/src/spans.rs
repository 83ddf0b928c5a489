//! The bytes of a request, wherever its driver put them.
//!
//! What must stay true: head, payload and status may begin and end anywhere in the spans; what is
//! loaded is loaded once.

use crate::chain::{Chain, Fault, GuestBytes, Span};
use crate::memory::GuestMemory;
use crate::request::{Asked, HEAD_BYTES, RANGE_BYTES};
use ashlar_units::{to_u64, to_usize};

const GONE: Fault = Fault("a request outside the guest's memory");

/// A request's parts.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// What it asks.
    pub asked: Asked,
    /// Where the status goes.
    pub status_at: u64,
}

/// Take a chain apart.
///
/// # Errors
/// It has no head or no room for a status.
pub fn take_apart(memory: &impl GuestBytes, chain: &Chain) -> Result<Parts, Fault> {
    let head_bytes = to_u64(HEAD_BYTES);
    let readable_bytes = chain.readable_bytes().checked_sub(head_bytes);
    let readable_bytes = readable_bytes.ok_or(Fault("a request without a head"))?;
    let last = chain.writable.last().ok_or(Fault("a request without room for a status"))?;
    let mut head = [0; HEAD_BYTES];
    load(memory, &chain.readable, 0, &mut head)?;
    let mut range = None;
    if readable_bytes == to_u64(RANGE_BYTES) {
        let mut bytes = [0; RANGE_BYTES];
        load(memory, &chain.readable, head_bytes, &mut bytes)?;
        range = Some(bytes);
    }
    let writable_bytes = chain.writable_bytes() - 1;
    let asked = Asked { head, readable_bytes, writable_bytes, range };
    Ok(Parts { asked, status_at: last.at + (last.bytes - 1) })
}

/// Fill `into` from the spans, from byte `skip` of them on.
///
/// # Errors
/// The spans end before.
pub fn load(
    memory: &impl GuestBytes,
    spans: &[Span],
    skip: u64,
    into: &mut [u8],
) -> Result<(), Fault> {
    let mut done = 0;
    for part in runs(spans, skip) {
        let bytes = to_usize(part.bytes.min(to_u64(into.len() - done)));
        memory.load(part.at, &mut into[done..done + bytes]).ok_or(GONE)?;
        done += bytes;
        if done == into.len() {
            return Ok(());
        }
    }
    if into.is_empty() { Ok(()) } else { Err(GONE) }
}

/// Write `from` into the spans, from byte `skip` of them on.
///
/// # Errors
/// The spans end before.
pub fn store(memory: &GuestMemory, spans: &[Span], skip: u64, from: &[u8]) -> Result<(), Fault> {
    let mut done = 0;
    for part in runs(spans, skip) {
        let bytes = to_usize(part.bytes.min(to_u64(from.len() - done)));
        memory.store(part.at, &from[done..done + bytes]).ok_or(GONE)?;
        done += bytes;
        if done == from.len() {
            return Ok(());
        }
    }
    if from.is_empty() { Ok(()) } else { Err(GONE) }
}

/// The spans without their first `skip` bytes.
fn runs(spans: &[Span], skip: u64) -> impl Iterator<Item = Span> {
    let mut skip = skip;
    spans.iter().filter_map(move |span| {
        let over = skip.min(span.bytes);
        skip -= over;
        let rest = Span { at: span.at + over, bytes: span.bytes - over };
        (rest.bytes > 0).then_some(rest)
    })
}
