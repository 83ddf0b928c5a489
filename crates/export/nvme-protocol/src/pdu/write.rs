//! A PDU header to send: its fields, its digest, and the padding up to where data begins.
//!
//! What must stay true: what is written here opens again (`open`) under the same terms.

use super::body::Body;
use super::head::{COMMON_BYTES, CommonHeader, HEADER_BYTES_MAX, PduFlags, Terms};
use crate::digest::{DIGEST_BYTES, digest};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;

/// An encoded header with its padding: what goes before the data.
#[derive(Clone, Copy)]
pub struct Header {
    buffer: [u8; HEADER_BYTES_MAX],
    bytes: usize,
    /// A digest of the data must follow the data.
    pub has_data_digest: bool,
}

impl Header {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

/// Encode the header of a PDU that `data_bytes` of data follow.
///
/// # Panics
/// If `data_bytes` is 2 GiB or more, or not 0 for a kind that has no data.
pub fn encode(body: &Body, data_bytes: u32, terms: &Terms) -> Header {
    assert!(data_bytes < 1 << 31, "{data_bytes} bytes of data");
    let kind = body.kind();
    assert!(data_bytes == 0 || kind.may_have_data(), "{kind:?} has no data");
    let fields_end = usize::from(kind.header_bytes());
    let digest_bytes = terms.header_digest_bytes(kind);
    let header_end = fields_end + digest_bytes;
    let has_data = data_bytes > 0;
    let alignment = terms.data_alignment(kind.sender());
    let data_at = if has_data { header_end.next_multiple_of(alignment) } else { header_end };
    let has_data_digest = has_data && terms.data_digest;
    let tail = data_bytes + if has_data_digest { 4 } else { 0 };
    let mut buffer = [0; HEADER_BYTES_MAX];
    let common = CommonHeader {
        kind: kind.code(),
        flags: flags_of(body, digest_bytes > 0, has_data_digest).0,
        header_bytes: kind.header_bytes(),
        data_offset: if has_data { u8::try_from(data_at).expect("at most 128") } else { 0 },
        bytes: U32::new(u32::try_from(data_at).expect("at most 128") + tail),
    };
    buffer[..COMMON_BYTES].copy_from_slice(common.as_bytes());
    body.with_bytes(|bytes| buffer[COMMON_BYTES..fields_end].copy_from_slice(bytes));
    if digest_bytes > 0 {
        let sum = digest(&buffer[..fields_end]);
        buffer[fields_end..fields_end + DIGEST_BYTES].copy_from_slice(&sum);
    }
    Header { buffer, bytes: data_at, has_data_digest }
}

fn flags_of(body: &Body, header_digest: bool, data_digest: bool) -> PduFlags {
    let (is_last, is_success) = match body {
        Body::H2cData(data) => (data.is_last, false),
        Body::C2hData(data) => (data.is_last, data.is_success),
        _ => (false, false),
    };
    PduFlags::default()
        .with_if(PduFlags::HEADER_DIGEST, header_digest)
        .with_if(PduFlags::DATA_DIGEST, data_digest)
        .with_if(PduFlags::LAST, is_last)
        .with_if(PduFlags::SUCCESS, is_success)
}
