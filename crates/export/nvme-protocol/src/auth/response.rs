//! What proves that a side knows its key: an HMAC over the other side's challenge and everything
//! that was agreed.
//!
//! What must stay true: both sides compute this from their own knowledge; the role is part of it,
//! so that one side's answer is of no use as the other's. Base 2.0, 8.13.5.4 and 8.13.5.5 (the
//! values of responses).

use super::secret::Hash;
use crate::nqn::Nqn;

/// Who proves itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The host, to the controller.
    Host,
    /// The controller, to the host.
    Controller,
}

/// What a proof is about.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// Who proves itself.
    pub role: Role,
    /// The hash that was agreed on.
    pub hash: Hash,
    /// The challenge of the other side.
    pub challenge: &'a [u8],
    /// The sequence number that came with it.
    pub sequence: u32,
    /// T_ID.
    pub transaction: u16,
    /// Who proves itself.
    pub prover: &'a Nqn,
    /// To whom.
    pub verifier: &'a Nqn,
}

impl Proof<'_> {
    fn with_parts<T>(&self, then: impl FnOnce(&[&[u8]]) -> T) -> T {
        let label: &[u8] = match self.role {
            Role::Host => b"HostHost",
            Role::Controller => b"Controller",
        };
        then(&[
            self.challenge,
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            // SC_C: no secure channel.
            &[0],
            label,
            self.prover.as_str().as_bytes(),
            &[0],
            self.verifier.as_str().as_bytes(),
        ])
    }

    /// Whether `value` proves knowledge of `key`.
    pub fn is_given_by(&self, key: &[u8], value: &[u8]) -> bool {
        self.with_parts(|parts| self.hash.is_hmac(key, parts, value))
    }
}

/// The value that proves knowledge of `key`.
pub fn prove(proof: &Proof, key: &[u8]) -> Vec<u8> {
    proof.with_parts(|parts| proof.hash.hmac(key, parts))
}
