//! The messages of DH-HMAC-CHAP, as Authentication Send and Receive carry them.
//!
//! What must stay true: decoding is total; a message that is shorter than its lengths say is none.
//! Base 2.0, 8.13.5.1 to 8.13.5.6.

use super::group::Group;
use super::secret::Hash;

/// AUTH_Negotiate: what the host can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiate {
    /// T_ID: the host's number for this exchange.
    pub transaction: u16,
    /// SC_C: what is to become of the key; 0 is nothing.
    pub secure_channel: u8,
    /// Codes of hashes, in the host's order.
    pub hashes: Vec<u8>,
    /// Codes of groups, in the host's order; 0 is the NULL group.
    pub groups: Vec<u8>,
}

/// DH-HMAC-CHAP_Challenge: what the host must prove itself with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// T_ID.
    pub transaction: u16,
    /// The hash that the controller chose.
    pub hash: Hash,
    /// SEQNUM.
    pub sequence: u32,
    /// CVAL, as long as the hash's values.
    pub value: Vec<u8>,
    /// The group that the controller chose.
    pub group: Group,
    /// DHV, as long as the group's values.
    pub dh_value: Vec<u8>,
}

/// DH-HMAC-CHAP_Reply: the host's proof, and perhaps a challenge of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// T_ID.
    pub transaction: u16,
    /// SEQNUM of the host's challenge.
    pub sequence: u32,
    /// RVAL: the proof.
    pub response: Vec<u8>,
    /// CVAL: the controller must prove itself too.
    pub challenge: Option<Vec<u8>>,
    /// DHV; empty with the NULL group.
    pub dh_value: Vec<u8>,
}

/// DH-HMAC-CHAP_Success1: the host is authenticated. May carry the controller's proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Success1 {
    /// T_ID.
    pub transaction: u16,
    /// The hash that was chosen.
    pub hash: Hash,
    /// RVAL.
    pub response: Option<Vec<u8>>,
}

/// Why an exchange failed: the explanation of reason 1, "authentication failure".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The proof is none.
    Failed,
    /// No protocol in common.
    Protocol,
    /// A secure channel was asked for.
    SecureChannel,
    /// No hash in common.
    Hash,
    /// No group in common.
    Group,
    /// The message makes no sense.
    Payload,
    /// Another message was due.
    Message,
}

impl Reason {
    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            Reason::Failed => 1,
            Reason::Protocol => 2,
            Reason::SecureChannel => 3,
            Reason::Hash => 4,
            Reason::Group => 5,
            Reason::Payload => 6,
            Reason::Message => 7,
        }
    }
}

/// AUTH_Failure1 and AUTH_Failure2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// T_ID.
    pub transaction: u16,
    /// The explanation's code.
    pub explanation: u8,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The host begins.
    Negotiate(Negotiate),
    /// The controller challenges.
    Challenge(Challenge),
    /// The host proves itself.
    Reply(Reply),
    /// The controller accepts the host's proof.
    Success1(Success1),
    /// The host accepts the controller's proof.
    Success2 {
        /// T_ID.
        transaction: u16,
    },
    /// The controller gives up.
    Failure1(Failure),
    /// The host gives up.
    Failure2(Failure),
}

const COMMON: u8 = 0;
const DH_HMAC_CHAP: u8 = 1;
/// AUTHID of DH-HMAC-CHAP in a negotiation.
const PROTOCOL: u8 = 1;
/// Length of one protocol's descriptor, and where the lists of groups begin in it.
const DESCRIPTOR_BYTES: usize = 64;
const LISTS_AT: usize = 4;
const LIST_BYTES: usize = 30;

/// Decode a message; why not, if it is none.
///
/// # Errors
/// The [`Reason`] to give up with.
pub fn decode(bytes: &[u8]) -> Result<Message, Reason> {
    let (head, rest) = bytes.split_at_checked(6).ok_or(Reason::Payload)?;
    let transaction = u16::from_le_bytes([head[4], head[5]]);
    match (head[0], head[1]) {
        (COMMON, 0x00) => negotiate(transaction, rest).map(Message::Negotiate),
        (DH_HMAC_CHAP, 0x01) => challenge(transaction, rest).map(Message::Challenge),
        (DH_HMAC_CHAP, 0x02) => reply(transaction, rest).map(Message::Reply),
        (DH_HMAC_CHAP, 0x03) => success1(transaction, rest).map(Message::Success1),
        (DH_HMAC_CHAP, 0x04) => Ok(Message::Success2 { transaction }),
        (COMMON | DH_HMAC_CHAP, 0xf0) => failure(transaction, rest).map(Message::Failure2),
        (COMMON | DH_HMAC_CHAP, 0xf1) => failure(transaction, rest).map(Message::Failure1),
        _ => Err(Reason::Message),
    }
}

fn negotiate(transaction: u16, rest: &[u8]) -> Result<Negotiate, Reason> {
    let [secure_channel, count, rest @ ..] = rest else { return Err(Reason::Payload) };
    let bytes = usize::from(*count) * DESCRIPTOR_BYTES;
    let descriptors = rest.get(..bytes).ok_or(Reason::Payload)?;
    let ours = descriptors.chunks_exact(DESCRIPTOR_BYTES).find(|entry| entry[0] == PROTOCOL);
    let ours = ours.ok_or(Reason::Protocol)?;
    let (hashes, groups) = (usize::from(ours[2]), usize::from(ours[3]));
    if hashes > LIST_BYTES || groups > LIST_BYTES {
        return Err(Reason::Payload);
    }
    let groups_at = LISTS_AT + LIST_BYTES;
    Ok(Negotiate {
        transaction,
        secure_channel: *secure_channel,
        hashes: ours[LISTS_AT..LISTS_AT + hashes].to_vec(),
        groups: ours[groups_at..groups_at + groups].to_vec(),
    })
}

fn challenge(transaction: u16, rest: &[u8]) -> Result<Challenge, Reason> {
    let (fields, rest) = rest.split_at_checked(10).ok_or(Reason::Payload)?;
    let hash = Hash::from_code(fields[2]).ok_or(Reason::Hash)?;
    let group = Group::from_code(fields[3]).ok_or(Reason::Group)?;
    let dh_bytes = usize::from(u16::from_le_bytes([fields[4], fields[5]]));
    if usize::from(fields[0]) != hash.bytes() || dh_bytes != group.bytes() {
        return Err(Reason::Payload);
    }
    let (value, rest) = rest.split_at_checked(hash.bytes()).ok_or(Reason::Payload)?;
    let dh_value = rest.get(..dh_bytes).ok_or(Reason::Payload)?.to_vec();
    let sequence = u32::from_le_bytes([fields[6], fields[7], fields[8], fields[9]]);
    Ok(Challenge { transaction, hash, sequence, value: value.to_vec(), group, dh_value })
}

fn reply(transaction: u16, rest: &[u8]) -> Result<Reply, Reason> {
    let (fields, rest) = rest.split_at_checked(10).ok_or(Reason::Payload)?;
    let bytes = usize::from(fields[0]);
    let dh_bytes = usize::from(u16::from_le_bytes([fields[4], fields[5]]));
    let sequence = u32::from_le_bytes([fields[6], fields[7], fields[8], fields[9]]);
    let (response, rest) = rest.split_at_checked(bytes).ok_or(Reason::Payload)?;
    let challenge = match fields[2] {
        0 => None,
        1 => Some(rest.get(..bytes).ok_or(Reason::Payload)?.to_vec()),
        _ => return Err(Reason::Payload),
    };
    // Room for CVAL is there without a challenge too.
    let dh_value = match dh_bytes {
        0 => &[],
        _ => rest.get(bytes..bytes + dh_bytes).ok_or(Reason::Payload)?,
    };
    let (response, dh_value) = (response.to_vec(), dh_value.to_vec());
    Ok(Reply { transaction, sequence, response, challenge, dh_value })
}

fn success1(transaction: u16, rest: &[u8]) -> Result<Success1, Reason> {
    let (fields, rest) = rest.split_at_checked(10).ok_or(Reason::Payload)?;
    let bytes = usize::from(fields[0]);
    let hash = Hash::ALL.into_iter().find(|hash| hash.bytes() == bytes).ok_or(Reason::Payload)?;
    let response = match fields[2] {
        0 => None,
        _ => Some(rest.get(..bytes).ok_or(Reason::Payload)?.to_vec()),
    };
    Ok(Success1 { transaction, hash, response })
}

fn failure(transaction: u16, rest: &[u8]) -> Result<Failure, Reason> {
    let [_, explanation, ..] = rest else { return Err(Reason::Payload) };
    Ok(Failure { transaction, explanation: *explanation })
}

fn head(kind: u8, id: u8, transaction: u16) -> Vec<u8> {
    let [low, high] = transaction.to_le_bytes();
    vec![kind, id, 0, 0, low, high]
}

/// The bytes of a message.
///
/// # Panics
/// If lists or values are longer than their fields can say: those of our own never are.
pub fn encode(message: &Message) -> Vec<u8> {
    match message {
        Message::Negotiate(negotiate) => encode_negotiate(negotiate),
        Message::Challenge(challenge) => encode_challenge(challenge),
        Message::Reply(reply) => encode_reply(reply),
        Message::Success1(success) => {
            let mut bytes = head(DH_HMAC_CHAP, 0x03, success.transaction);
            let hash_bytes = u8::try_from(success.hash.bytes()).expect("64 at most");
            bytes.extend([hash_bytes, 0, u8::from(success.response.is_some())]);
            bytes.extend([0; 7]);
            bytes.extend(success.response.iter().flatten());
            bytes
        }
        Message::Success2 { transaction } => {
            let mut bytes = head(DH_HMAC_CHAP, 0x04, *transaction);
            bytes.extend([0; 10]);
            bytes
        }
        Message::Failure1(failure) => encode_failure(0xf1, failure),
        Message::Failure2(failure) => encode_failure(0xf0, failure),
    }
}

fn length(value: &[u8]) -> u8 {
    u8::try_from(value.len()).expect("64 at most")
}

fn dh_length(value: &[u8]) -> [u8; 2] {
    u16::try_from(value.len()).expect("1024 at most").to_le_bytes()
}

fn encode_challenge(challenge: &Challenge) -> Vec<u8> {
    let mut bytes = head(DH_HMAC_CHAP, 0x01, challenge.transaction);
    let group = challenge.group.code();
    bytes.extend([length(&challenge.value), 0, challenge.hash.code(), group]);
    bytes.extend(dh_length(&challenge.dh_value));
    bytes.extend(challenge.sequence.to_le_bytes());
    bytes.extend(&challenge.value);
    bytes.extend(&challenge.dh_value);
    bytes
}

fn encode_reply(reply: &Reply) -> Vec<u8> {
    let mut bytes = head(DH_HMAC_CHAP, 0x02, reply.transaction);
    bytes.extend([length(&reply.response), 0, u8::from(reply.challenge.is_some()), 0]);
    bytes.extend(dh_length(&reply.dh_value));
    bytes.extend(reply.sequence.to_le_bytes());
    bytes.extend(&reply.response);
    let no_challenge = || vec![0; reply.response.len()];
    bytes.extend(reply.challenge.clone().unwrap_or_else(no_challenge));
    bytes.extend(&reply.dh_value);
    bytes
}

fn encode_failure(id: u8, failure: &Failure) -> Vec<u8> {
    let mut bytes = head(COMMON, id, failure.transaction);
    bytes.extend([1, failure.explanation]);
    bytes
}

fn encode_negotiate(negotiate: &Negotiate) -> Vec<u8> {
    let mut bytes = head(COMMON, 0x00, negotiate.transaction);
    bytes.extend([negotiate.secure_channel, 1]);
    let mut descriptor = [0; DESCRIPTOR_BYTES];
    descriptor[0] = PROTOCOL;
    descriptor[2] = length(&negotiate.hashes);
    descriptor[3] = length(&negotiate.groups);
    descriptor[LISTS_AT..LISTS_AT + negotiate.hashes.len()].copy_from_slice(&negotiate.hashes);
    let groups_at = LISTS_AT + LIST_BYTES;
    descriptor[groups_at..groups_at + negotiate.groups.len()].copy_from_slice(&negotiate.groups);
    bytes.extend(descriptor);
    bytes
}
