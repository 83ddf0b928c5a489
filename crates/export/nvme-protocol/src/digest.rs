//! Digests of PDU headers and data: CRC-32C, sent least significant byte first.
//!
//! What must stay true: a digest covers the bytes of a header or of the data and nothing else, no
//! padding and not itself (TCP Transport, "Digest Requirements"). Not here: which PDUs carry one
//! (`pdu::head`).

/// Length of a digest on the wire, in bytes.
pub const DIGEST_BYTES: usize = 4;

/// The digest of one run of bytes, as it stands on the wire.
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

/// A digest over several runs of bytes, one after the other: data that arrives or leaves in parts.
pub struct RunningDigest(crc_fast::Digest);

impl Default for RunningDigest {
    fn default() -> RunningDigest {
        RunningDigest(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl RunningDigest {
    /// Cover `bytes` too.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added, as it stands on the wire.
    pub fn finish(&self) -> [u8; DIGEST_BYTES] {
        // CRC-32C has 32 bits; the crate returns every kind of CRC in 64.
        let sum = self.0.finalize().to_le_bytes();
        [sum[0], sum[1], sum[2], sum[3]]
    }
}
