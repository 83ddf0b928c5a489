//! Handles bytes from a client without a socket: for tests that make such bytes from a seed, and
//! for libFuzzer.
//!
//! What must stay true: the order of steps is that of `session`: flags, options until one begins
//! the transmission, then requests. No input causes a panic here, replies stay short, and admitted
//! requests lie within the volume.

use crate::admit::{NbdRequest, Terms};
use crate::negotiate::{Agreement, Negotiation, PAYLOAD_BYTES_MAX, Step};
use crate::options::{OPTION_HEADER_BYTES, decode_option_header};
use crate::wire::decode_request;
use crate::{Limits, OneExport};
use ashlar_units::to_usize;
use ashlar_volume::MemVolume;

/// What came of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// Options that were answered.
    pub options: u32,
    /// Whether the transmission phase began.
    pub transmits: bool,
    /// Requests that would be carried out.
    pub admitted: u32,
    /// Requests that would be answered with an error.
    pub refused: u32,
}

/// Longest answer to one option, in bytes: names, descriptions and contexts of one volume.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// The front of `rest`, which is then without it.
fn take<'i>(rest: &mut &'i [u8], bytes: usize) -> Option<&'i [u8]> {
    let (front, back) = rest.split_at_checked(bytes)?;
    *rest = back;
    Some(front)
}

/// Hear all of `input`.
///
/// # Panics
/// If something that must stay true does not.
pub fn hear(input: &[u8]) -> Heard {
    let mut heard = Heard::default();
    let mut rest = input;
    if let Some(agreement) = handshake(&mut rest, &mut heard) {
        heard.transmits = true;
        while request(&mut rest, &agreement, &mut heard).is_some() {}
    }
    heard
}

fn handshake(rest: &mut &[u8], heard: &mut Heard) -> Option<Box<Agreement<MemVolume>>> {
    let limits = Limits::default();
    let exports = OneExport(MemVolume::new("disk", 1 << 20));
    let flags = take(rest, 4)?.try_into().ok()?;
    let mut negotiation = Negotiation::new(u32::from_be_bytes(flags))?;
    for _ in 0..limits.option_count_max {
        let header = take(rest, OPTION_HEADER_BYTES)?.try_into().ok()?;
        let (number, bytes) = decode_option_header(header)?;
        let bytes = to_usize(u64::from(bytes));
        if bytes > limits.option_bytes_max {
            return None;
        }
        let data = take(rest, bytes)?;
        let mut replies = Vec::new();
        let step = negotiation.answer(&exports, number, data, &mut replies);
        assert!(replies.len() < REPLY_BYTES_MAX, "{} bytes of replies", replies.len());
        heard.options += 1;
        match step {
            Step::Transmit(agreement) => return Some(agreement),
            // Without certificates TLS is not offered; what follows it is not heard here.
            Step::Leave | Step::Drop(_) | Step::StartTls => return None,
            Step::Continue => {}
        }
    }
    None
}

/// One request; `None` if the session ends.
fn request(rest: &mut &[u8], agreement: &Agreement<MemVolume>, heard: &mut Heard) -> Option<()> {
    let (facts, dialect) = (&agreement.facts, agreement.dialect);
    let has_allocation_context = agreement.has_allocation_context;
    let terms = Terms { facts, dialect, has_allocation_context };
    let header = take(rest, dialect.request_bytes())?;
    let head = decode_request(dialect, header).ok()?;
    if head.payload_bytes > u64::from(PAYLOAD_BYTES_MAX) {
        return None;
    }
    let request = terms.admit(&head);
    match &request {
        Ok(NbdRequest::Disconnect) => return None,
        Ok(request) => {
            heard.admitted += 1;
            if let Some(extent) = request.extent() {
                let end = extent.checked_end().expect("within the volume");
                assert!(extent.bytes > 0 && end <= facts.size_bytes, "{extent}");
                assert!(extent.is_aligned_to(u64::from(facts.logical_block_bytes)), "{extent}");
            }
        }
        Err(_) => heard.refused += 1,
    }
    // What follows the header is its payload, whatever came of it.
    take(rest, to_usize(head.payload_bytes)).map(drop)
}
