//! The controller's side of an authentication, on one queue.
//!
//! What must stay true: a queue counts as authenticated only after the host's proof was right, and,
//! if the host asked for the controller's proof, after the host said that it was right; one wrong
//! step ends the exchange, and only a new negotiation begins another. Challenges and exponents are
//! random values that come from outside, new ones for each exchange. With a group of
//! Diffie-Hellman, [`Authentication::send`] may take milliseconds. Base 2.0, 8.13.5 "DH-HMAC-CHAP
//! Protocol".

use super::group::{EXPONENT_BYTES_MAX, Exponent, Group};
use super::message::{
    Challenge, Failure, Message, Negotiate, Reason, Reply, Success1, decode, encode,
};
use super::response::{Proof, Role, prove};
use super::secret::{Hash, Secret};
use crate::nqn::Nqn;

/// Longest message that a host may send or fetch, in bytes. Those of this protocol are shorter, but
/// hosts fetch this much.
pub const AUTH_MESSAGE_BYTES_MAX: u32 = 4096;

/// Who authenticates to whom, and by what.
#[derive(Clone, Debug)]
pub struct Parties {
    /// HOSTNQN.
    pub host: Nqn,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// What the host proves.
    pub host_secret: Secret,
    /// What the controller proves, if the host asks for it.
    pub controller_secret: Option<Secret>,
    /// The weakest group that is spoken.
    pub least_group: Group,
}

/// Random values for one exchange.
#[derive(Clone)]
pub struct Random {
    /// The challenge; as much of it is used as the hash has bytes.
    pub challenge: [u8; 64],
    /// The first sequence number.
    pub sequence: u32,
    /// For Diffie-Hellman; as much of it is used as the group needs.
    pub exponent: [u8; EXPONENT_BYTES_MAX],
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing is agreed on.
    Idle,
    /// A challenge is to be fetched, or was.
    Challenged { challenge: Challenge, exponent: Option<Exponent>, is_fetched: bool },
    /// The host is authenticated; the next message that it fetches says so.
    Believed { success: Success1 },
    /// The controller's proof was fetched; the host must say that it is right.
    AwaitsHost { transaction: u16 },
    /// Both are satisfied.
    Done,
    /// Given up; the host may fetch why.
    Failed(Failure),
}

/// One exchange after the other on one queue.
#[derive(Clone, Debug)]
pub struct Authentication {
    parties: Parties,
    state: State,
}

impl Authentication {
    /// Nothing was said yet.
    pub fn new(parties: Parties) -> Authentication {
        Authentication { parties, state: State::Idle }
    }

    /// Whether the host may go on.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the last exchange failed: once the host has fetched why, the connection should end.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// The host sent a message. The next message that it fetches names an error in it.
    pub fn send(&mut self, bytes: &[u8], random: &Random) {
        // T_ID stands at the same place in every message.
        let told = bytes.get(4..6).map(|id| u16::from_le_bytes([id[0], id[1]]));
        let transaction = told.unwrap_or(0);
        let next = match decode(bytes) {
            Ok(message) => self.next(message, random),
            Err(reason) => Err(reason),
        };
        self.state = next.unwrap_or_else(|reason| {
            State::Failed(Failure { transaction, explanation: reason.code() })
        });
    }

    fn next(&self, message: Message, random: &Random) -> Result<State, Reason> {
        match (&self.state, message) {
            (State::Idle | State::Failed(_), Message::Negotiate(negotiate)) => {
                self.challenge(&negotiate, random)
            }
            (State::Challenged { challenge, exponent, is_fetched: true }, Message::Reply(it)) => {
                let session_key = match exponent {
                    Some(own) => own.session_key(challenge.hash, &it.dh_value),
                    None => it.dh_value.is_empty().then(Vec::new),
                };
                self.judge(challenge, &session_key.ok_or(Reason::Payload)?, it)
            }
            (State::AwaitsHost { transaction }, Message::Success2 { transaction: told })
                if *transaction == told =>
            {
                Ok(State::Done)
            }
            (_, Message::Failure2(failure)) => Ok(State::Failed(failure)),
            _ => Err(Reason::Message),
        }
    }

    fn challenge(&self, negotiate: &Negotiate, random: &Random) -> Result<State, Reason> {
        if negotiate.secure_channel != 0 {
            return Err(Reason::SecureChannel);
        }
        let known = |code: &u8| Hash::from_code(*code);
        let hash = negotiate.hashes.iter().find_map(known).ok_or(Reason::Hash)?;
        let group = choose(&negotiate.groups, self.parties.least_group).ok_or(Reason::Group)?;
        let exponent = Exponent::new(group, &random.exponent);
        let challenge = Challenge {
            transaction: negotiate.transaction,
            hash,
            sequence: random.sequence,
            value: random.challenge[..hash.bytes()].to_vec(),
            group,
            dh_value: exponent.as_ref().map(Exponent::public).unwrap_or_default(),
        };
        Ok(State::Challenged { challenge, exponent, is_fetched: false })
    }

    /// Whether the host proved itself. Without Diffie-Hellman the session key is empty.
    fn judge(
        &self,
        challenge: &Challenge,
        session_key: &[u8],
        reply: Reply,
    ) -> Result<State, Reason> {
        let parties = &self.parties;
        let (hash, transaction) = (challenge.hash, challenge.transaction);
        if reply.transaction != transaction || reply.response.len() != hash.bytes() {
            return Err(Reason::Payload);
        }
        let proof = Proof {
            role: Role::Host,
            hash,
            challenge: &augmented(hash, session_key, &challenge.value),
            sequence: challenge.sequence,
            transaction,
            prover: &parties.host,
            verifier: &parties.subsystem,
        };
        if !proof.is_given_by(&parties.host_secret.key_of(&parties.host), &reply.response) {
            return Err(Reason::Failed);
        }
        let response = match &reply.challenge {
            None => None,
            Some(value) if *value == challenge.value => return Err(Reason::Failed),
            Some(value) => {
                Some(self.own_proof(hash, &augmented(hash, session_key, value), &reply)?)
            }
        };
        Ok(State::Believed { success: Success1 { transaction, hash, response } })
    }

    fn own_proof(&self, hash: Hash, challenge: &[u8], reply: &Reply) -> Result<Vec<u8>, Reason> {
        let parties = &self.parties;
        let secret = parties.controller_secret.as_ref().ok_or(Reason::Failed)?;
        let proof = Proof {
            role: Role::Controller,
            hash,
            challenge,
            sequence: reply.sequence,
            transaction: reply.transaction,
            prover: &parties.subsystem,
            verifier: &parties.host,
        };
        Ok(prove(&proof, &secret.key_of(&parties.subsystem)))
    }

    /// The host fetches a message; `None` if none is due.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let (message, next) = match &self.state {
            State::Challenged { challenge, exponent, is_fetched: false } => {
                let (challenge, exponent) = (challenge.clone(), exponent.clone());
                let said = Message::Challenge(challenge.clone());
                (said, State::Challenged { challenge, exponent, is_fetched: true })
            }
            State::Believed { success } => {
                let next = match success.response {
                    None => State::Done,
                    Some(_) => State::AwaitsHost { transaction: success.transaction },
                };
                (Message::Success1(success.clone()), next)
            }
            State::Failed(failure) => (Message::Failure1(*failure), State::Failed(*failure)),
            State::Idle | State::Challenged { .. } | State::AwaitsHost { .. } | State::Done => {
                return None;
            }
        };
        self.state = next;
        Some(encode(&message))
    }
}

/// The weakest group with Diffie-Hellman that both sides speak, because stronger ones take long;
/// else the NULL group.
fn choose(offered: &[u8], least: Group) -> Option<Group> {
    let mut both = Group::ALL.into_iter().filter(|it| *it >= least && offered.contains(&it.code()));
    let first = both.next();
    match first {
        Some(Group::Null) => both.next().or(first),
        _ => first,
    }
}

/// The challenge that is answered: with Diffie-Hellman it depends on the session key, so nobody
/// else can try secrets against the answer.
pub fn augmented(hash: Hash, session_key: &[u8], challenge: &[u8]) -> Vec<u8> {
    match session_key {
        [] => challenge.to_vec(),
        key => hash.hmac(key, &[challenge]),
    }
}
