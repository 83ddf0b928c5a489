//! A received PDU header: its digest, then its flags, then where its data lies and how long it is.
//!
//! What must stay true: nothing but the kind is believed before the digest fits; padding, data and
//! digest of an opened PDU add up to PLEN exactly; data is never longer than announced, and never
//! there where it may not be. TCP Transport, "NVMe/TCP PDU Structure", "PDU Data Offset" and
//! "Digest Requirements".

use super::body::{Body, decode};
use super::fatal::{Fatal, FatalStatus};
use super::head::{COMMON_BYTES, PduFlags, PduHead, PduKind, Terms};
use crate::digest::{DIGEST_BYTES, digest};

/// A PDU whose header was received and checked. What follows on the connection: `pad_bytes` to
/// skip, `data_bytes` of data, and a digest of them if `has_data_digest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pdu {
    /// Its fields.
    pub body: Body,
    /// Padding before the data, in bytes.
    pub pad_bytes: usize,
    /// Data, in bytes.
    pub data_bytes: u32,
    /// Four bytes of digest follow the data.
    pub has_data_digest: bool,
}

/// Longest termination PDU: its header, and 128 bytes of the header that it is about.
const TERM_BYTES_MAX: u32 = 152;

impl Pdu {
    /// Open the PDU that begins with `head`. `header` is the whole header from its first byte on,
    /// with the digest: as long as [`PduHead::header_bytes`] says.
    ///
    /// # Errors
    /// A [`Fatal`] to tell the sender before the connection ends.
    pub fn open(head: &PduHead, header: &[u8], terms: &Terms) -> Result<Pdu, Fatal> {
        let fields_end = usize::from(head.kind.header_bytes());
        if header.len() != head.header_bytes(terms) {
            return Err(Fatal::field(2));
        }
        check_digest(header, fields_end)?;
        let is_last = head.flags.has(PduFlags::LAST);
        let is_success = head.flags.has(PduFlags::SUCCESS);
        let body = decode(head.kind, is_last, is_success, &header[COMMON_BYTES..fields_end]);
        let body = body.ok_or(Fatal::field(2))?;
        let layout = Layout::of(head, terms)?;
        check_lengths(&body, layout.data_bytes, terms)?;
        Ok(Pdu {
            body,
            pad_bytes: layout.pad_bytes,
            data_bytes: layout.data_bytes,
            has_data_digest: layout.has_data_digest,
        })
    }
}

fn check_digest(header: &[u8], fields_end: usize) -> Result<(), Fatal> {
    let (fields, received) = header.split_at(fields_end);
    if received.is_empty() || digest(fields) == received {
        return Ok(());
    }
    let received = <[u8; DIGEST_BYTES]>::try_from(received).map_err(|_| Fatal::field(2))?;
    Err(Fatal { status: FatalStatus::HeaderDigest, info: u32::from_le_bytes(received) })
}

struct Layout {
    pad_bytes: usize,
    data_bytes: u32,
    has_data_digest: bool,
}

impl Layout {
    fn of(head: &PduHead, terms: &Terms) -> Result<Layout, Fatal> {
        let (kind, header_bytes) = (head.kind, head.header_bytes(terms));
        let header_end = u32::try_from(header_bytes).map_err(|_| Fatal::field(2))?;
        if matches!(kind, PduKind::H2cTermReq | PduKind::C2hTermReq) {
            return Layout::of_term(head, header_end);
        }
        let has_data = head.bytes != header_end;
        let has_data_digest = has_data && terms.data_digest_bytes(kind) > 0;
        // Kinds without digests have these flags reserved.
        let is_right = |flag, is_there| !kind.has_digests() || head.flags.has(flag) == is_there;
        if !is_right(PduFlags::HEADER_DIGEST, terms.header_digest)
            || !is_right(PduFlags::DATA_DIGEST, has_data_digest)
        {
            return Err(Fatal::field(1));
        }
        if !has_data {
            return Ok(Layout { pad_bytes: 0, data_bytes: 0, has_data_digest });
        }
        if !kind.may_have_data() {
            return Err(Fatal::field(4));
        }
        let alignment = terms.data_alignment(kind.sender());
        let offset = usize::from(head.data_offset);
        let pad_bytes = offset.checked_sub(header_bytes).ok_or(Fatal::field(3))?;
        if !offset.is_multiple_of(alignment) {
            return Err(Fatal::field(3));
        }
        let digest_bytes = if has_data_digest { 4 } else { 0 };
        let before = u32::from(head.data_offset) + digest_bytes;
        let data_bytes = head.bytes.checked_sub(before).filter(|bytes| *bytes > 0);
        let data_bytes = data_bytes.ok_or(Fatal::field(4))?;
        Ok(Layout { pad_bytes, data_bytes, has_data_digest })
    }

    /// A termination PDU carries the offending header as its data, right behind its own.
    fn of_term(head: &PduHead, header_end: u32) -> Result<Layout, Fatal> {
        let data_bytes = head.bytes.checked_sub(header_end).ok_or(Fatal::field(4))?;
        if head.bytes > TERM_BYTES_MAX {
            return Err(Fatal::field(4));
        }
        Ok(Layout { pad_bytes: 0, data_bytes, has_data_digest: false })
    }
}

fn check_lengths(body: &Body, data_bytes: u32, terms: &Terms) -> Result<(), Fatal> {
    match body {
        Body::CapsuleCmd(_) if data_bytes > terms.in_capsule_bytes_max => {
            Err(Fatal::of(FatalStatus::LimitExceeded))
        }
        Body::H2cData(data) if data_bytes > terms.h2c_bytes_max => {
            let is_honest = data.bytes == data_bytes;
            Err(if is_honest { Fatal::of(FatalStatus::LimitExceeded) } else { Fatal::field(16) })
        }
        Body::H2cData(data) if data.bytes != data_bytes || data_bytes == 0 => Err(Fatal::field(16)),
        Body::C2hData(data) if data.bytes != data_bytes || data_bytes == 0 => Err(Fatal::field(16)),
        _ => Ok(()),
    }
}
