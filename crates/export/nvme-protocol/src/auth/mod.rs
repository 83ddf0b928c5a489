//! In-band authentication by DH-HMAC-CHAP: who knows a secret, and lets the other side see that it
//! does.
//!
//! Spoken: SHA-256, SHA-384 and SHA-512; one or both directions; the NULL group and the groups of
//! RFC 7919. Without Diffie-Hellman somebody who listens can try secrets at leisure, so secrets
//! must be random, as `nvme gen-dhchap-key` makes them.
//! - `secret`: secrets as text, and the keys made from them
//! - `message`: the messages
//! - `exchange`: the controller's side, from the first message to the last
//! - `response`: what proves knowledge of a key
//! - `group`: Diffie-Hellman
//!
//! Base 2.0, 8.13 "NVMe over Fabrics Secure Channel and In-band Authentication".

mod exchange;
mod group;
mod message;
mod response;
mod secret;

pub use exchange::{AUTH_MESSAGE_BYTES_MAX, Authentication, Parties, Random, augmented};
pub use group::{EXPONENT_BYTES_MAX, Exponent, Group};
pub use message::{
    Challenge, Failure, Message, Negotiate, Reason, Reply, Success1, decode, encode,
};
pub use response::{Proof, Role, prove};
pub use secret::{Hash, NotASecret, Secret};
