//! Authentication: secrets, proofs by a second computation, and every way in which an exchange can
//! go wrong.

use super::host;
use ashlar_nvme_protocol::auth::{
    Authentication, Challenge, Failure, Group, Hash, Message, Negotiate, NotASecret, Parties,
    Proof, Random, Reply, Role, Secret, decode, encode, prove,
};
use ashlar_nvme_protocol::nqn::Nqn;

/// Rising bytes; made with `base64` and `crc32` of Python's library.
pub const PLAIN: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub const OTHER: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

const RANDOM: Random = Random { challenge: [0xc1; 64], sequence: 0x0102_0304, exponent: [1; 64] };

pub fn subsystem() -> Nqn {
    "nqn.2024-01.example:array".parse().expect("a name")
}

pub fn secret(text: &str) -> Secret {
    text.parse().expect("a secret")
}

pub fn parties(both: bool) -> Parties {
    Parties {
        host: host(1).nqn,
        subsystem: subsystem(),
        host_secret: secret(PLAIN),
        controller_secret: both.then(|| secret(OTHER)),
        least_group: Group::Null,
    }
}

pub fn authentication(both: bool) -> Authentication {
    Authentication::new(parties(both))
}

pub fn negotiate(hashes: &[u8], groups: &[u8]) -> Message {
    Message::Negotiate(Negotiate {
        transaction: 9,
        secure_channel: 0,
        hashes: hashes.to_vec(),
        groups: groups.to_vec(),
    })
}

/// What the controller says next.
pub fn fetch(it: &mut Authentication) -> Message {
    decode(&it.receive().expect("a message is due")).expect("well formed")
}

fn challenged(it: &mut Authentication) -> Challenge {
    it.send(&encode(&negotiate(&[2, 1], &[0])), &RANDOM);
    match fetch(it) {
        Message::Challenge(challenge) => challenge,
        other => panic!("{other:?}"),
    }
}

/// The host's answer, with the key of this secret.
fn reply(challenge: &Challenge, text: &str, own: Option<Vec<u8>>) -> Reply {
    let (prover, verifier) = (host(1).nqn, subsystem());
    let proof = Proof {
        role: Role::Host,
        hash: challenge.hash,
        challenge: &challenge.value,
        sequence: challenge.sequence,
        transaction: challenge.transaction,
        prover: &prover,
        verifier: &verifier,
    };
    let response = prove(&proof, &secret(text).key_of(&prover));
    let (transaction, dh_value) = (challenge.transaction, Vec::new());
    Reply { transaction, sequence: 77, response, challenge: own, dh_value }
}

pub fn explanation(it: &mut Authentication) -> u8 {
    assert!(it.has_failed() && !it.is_done());
    match fetch(it) {
        Message::Failure1(Failure { explanation, .. }) => explanation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hmacs_are_those_of_rfc_4231() {
    let key = [0x0b; 20];
    let begin = |hash: Hash| hash.hmac(&key, &[b"Hi ", b"There"])[..4].to_vec();
    assert_eq!(begin(Hash::Sha256), [0xb0, 0x34, 0x4c, 0x61]);
    assert_eq!(begin(Hash::Sha384), [0xaf, 0xd0, 0x39, 0x44]);
    assert_eq!(begin(Hash::Sha512), [0x87, 0xaa, 0x7c, 0xde]);
    let whole = Hash::Sha256.hmac(&key, &[b"Hi There"]);
    assert!(Hash::Sha256.is_hmac(&key, &[b"Hi There"], &whole));
    assert!(!Hash::Sha256.is_hmac(&key, &[b"Hi There"], &whole[..16]));
}

#[test]
fn secrets_are_read_and_never_shown() {
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(secret(PLAIN).key_of(&host(1).nqn), rising);
    // Transformed by HMAC: as long as the hash, and another for every name.
    let keys = [secret(OTHER).key_of(&host(1).nqn), secret(OTHER).key_of(&host(2).nqn)];
    assert!(keys[0].len() == 48 && keys[0] != keys[1]);
    assert_eq!(format!("{:?}", secret(PLAIN)), "Secret(..)");
}

#[test]
fn what_is_no_secret_is_refused_with_its_reason() {
    let cases = [
        ("", NotASecret::Shape),
        ("DHHC-2:00:AAAA:", NotASecret::Shape),
        ("DHHC-1:00:AAAA", NotASecret::Shape),
        ("DHHC-1:04:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", NotASecret::Hash),
        ("DHHC-1:00:AAECAw==:", NotASecret::Length),
        ("DHHC-1:00:AA==:", NotASecret::Length),
        ("DHHC-1:00:AAEC*wQF:", NotASecret::Shape),
        ("DHHC-1:00:AAECAwQ:", NotASecret::Shape),
        // 32 bytes where SHA-384 wants 48.
        ("DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", NotASecret::Length),
        // One letter is another.
        ("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHx+KfiaR:", NotASecret::Checksum),
    ];
    for (text, reason) in cases {
        assert_eq!(text.parse::<Secret>(), Err(reason), "{text}");
    }
}

#[test]
fn messages_come_back_as_they_were() {
    let failure = Failure { transaction: 3, explanation: 6 };
    let challenge = |group: Group| Challenge {
        transaction: 3,
        hash: Hash::Sha384,
        sequence: 0xdead_beef,
        value: vec![5; 48],
        group,
        dh_value: vec![8; group.bytes()],
    };
    let reply = |challenge, dh_value| {
        let response = vec![6; 32];
        Message::Reply(Reply { transaction: 3, sequence: 4, response, challenge, dh_value })
    };
    let all = [
        negotiate(&[3, 2, 1], &[0]),
        Message::Challenge(challenge(Group::Null)),
        Message::Challenge(challenge(Group::Ffdhe3072)),
        reply(None, vec![]),
        reply(None, vec![9; 384]),
        reply(Some(vec![7; 32]), vec![]),
        reply(Some(vec![7; 32]), vec![9; 1024]),
        Message::Success2 { transaction: 3 },
        Message::Failure1(failure),
        Message::Failure2(failure),
    ];
    for message in all {
        let bytes = encode(&message);
        assert_eq!(decode(&bytes).as_ref(), Ok(&message));
        for length in 0..bytes.len() {
            // Shorter is another message or none; it never panics.
            drop(decode(&bytes[..length]));
        }
    }
    // By hand: a negotiation of SHA-256 and the NULL group.
    let bytes = encode(&negotiate(&[1], &[0]));
    assert_eq!(bytes.len(), 72);
    assert_eq!(bytes[..13], [0, 0, 0, 0, 9, 0, 0, 1, 1, 0, 1, 1, 1]);
}

#[test]
fn a_host_that_knows_the_secret_is_let_in() {
    let mut it = authentication(false);
    let challenge = challenged(&mut it);
    assert_eq!((challenge.hash, challenge.sequence), (Hash::Sha384, RANDOM.sequence), "its first");
    it.send(&encode(&Message::Reply(reply(&challenge, PLAIN, None))), &RANDOM);
    assert!(!it.is_done(), "it has not heard so yet");
    assert!(matches!(fetch(&mut it), Message::Success1(success) if success.response.is_none()));
    assert!(it.is_done());
    assert_eq!(it.receive(), None);
}

#[test]
fn a_controller_proves_itself_if_asked() {
    let mut it = authentication(true);
    let challenge = challenged(&mut it);
    let own = vec![0x77; 48];
    it.send(&encode(&Message::Reply(reply(&challenge, PLAIN, Some(own.clone())))), &RANDOM);
    let Message::Success1(success) = fetch(&mut it) else { panic!("not believed") };
    let (prover, verifier) = (subsystem(), host(1).nqn);
    let proof = Proof {
        role: Role::Controller,
        hash: Hash::Sha384,
        challenge: &own,
        sequence: 77,
        transaction: 9,
        prover: &prover,
        verifier: &verifier,
    };
    let response = success.response.expect("a proof");
    assert!(proof.is_given_by(&secret(OTHER).key_of(&prover), &response));
    assert!(!it.is_done(), "the host has not said that it believes");
    it.send(&encode(&Message::Success2 { transaction: 9 }), &RANDOM);
    assert!(it.is_done());
}

/// The proof, put together from nothing but the hash: label, numbers and names in this order.
#[test]
fn a_proof_covers_what_the_specification_says() {
    let mut it = authentication(false);
    let challenge = challenged(&mut it);
    let mut message = challenge.value.clone();
    message.extend([0x04, 0x03, 0x02, 0x01, 9, 0, 0]);
    message.extend(b"HostHost");
    message.extend(host(1).nqn.as_str().bytes());
    message.push(0);
    message.extend(subsystem().as_str().bytes());
    let rising: Vec<u8> = (0..32).collect();
    let by_hand = Hash::Sha384.hmac(&rising, &[&message]);
    assert_eq!(reply(&challenge, PLAIN, None).response, by_hand);
}

#[test]
fn a_host_that_does_not_know_the_secret_stays_out() {
    let mut it = authentication(false);
    let challenge = challenged(&mut it);
    it.send(&encode(&Message::Reply(reply(&challenge, OTHER, None))), &RANDOM);
    assert_eq!(explanation(&mut it), 1);
    // A proof for another exchange is of no use, nor is one of another length.
    for change in 0..3 {
        let mut it = authentication(false);
        let challenge = challenged(&mut it);
        let mut wrong = reply(&challenge, PLAIN, None);
        match change {
            0 => wrong.transaction ^= 1,
            1 => wrong.response.truncate(32),
            _ => {
                let other = Challenge { sequence: 1, ..challenge };
                wrong = reply(&other, PLAIN, None);
            }
        }
        it.send(&encode(&Message::Reply(wrong)), &RANDOM);
        assert!(it.has_failed(), "change {change}");
    }
}

#[test]
fn a_challenge_sent_back_is_no_way_to_have_the_controller_prove_for_the_host() {
    let mut it = authentication(true);
    let challenge = challenged(&mut it);
    let own = Some(challenge.value.clone());
    it.send(&encode(&Message::Reply(reply(&challenge, PLAIN, own))), &RANDOM);
    assert_eq!(explanation(&mut it), 1);
}

#[test]
fn without_a_secret_of_its_own_a_controller_proves_nothing() {
    let mut it = authentication(false);
    let challenge = challenged(&mut it);
    it.send(&encode(&Message::Reply(reply(&challenge, PLAIN, Some(vec![1; 48])))), &RANDOM);
    assert_eq!(explanation(&mut it), 1);
}

#[test]
fn nothing_in_common_is_told_by_name() {
    let secure = Message::Negotiate(Negotiate {
        transaction: 9,
        secure_channel: 1,
        hashes: vec![1],
        groups: vec![0],
    });
    let cases = [
        (encode(&negotiate(&[], &[0])), 4),
        (encode(&negotiate(&[9], &[0])), 4),
        (encode(&negotiate(&[1], &[6, 7])), 5),
        (encode(&secure), 3),
        (vec![0, 0, 0, 0, 9, 0, 0, 0], 2),
        (vec![0, 0, 0, 0, 9, 0, 0, 1], 6),
        (vec![0, 0], 6),
        (vec![], 6),
        (vec![5, 5, 0, 0, 9, 0], 7),
    ];
    for (bytes, wanted) in cases {
        let mut it = authentication(false);
        it.send(&bytes, &RANDOM);
        assert_eq!(explanation(&mut it), wanted, "{bytes:?}");
    }
}

#[test]
fn messages_out_of_turn_end_the_exchange() {
    let success = encode(&Message::Success2 { transaction: 9 });
    let mut it = authentication(false);
    it.send(&success, &RANDOM);
    assert_eq!(explanation(&mut it), 7, "success before anything");
    let mut it = authentication(true);
    let challenge = challenged(&mut it);
    it.send(&success, &RANDOM);
    assert_eq!(explanation(&mut it), 7, "success instead of a proof");
    it.send(&encode(&Message::Reply(reply(&challenge, PLAIN, None))), &RANDOM);
    assert!(it.has_failed(), "a good proof after that comes too late");
    // The challenge was made and not fetched.
    let mut it = authentication(false);
    it.send(&encode(&negotiate(&[1], &[0])), &RANDOM);
    it.send(&encode(&negotiate(&[1], &[0])), &RANDOM);
    assert_eq!(explanation(&mut it), 7);
    // The host gives up.
    let mut it = authentication(false);
    challenged(&mut it);
    it.send(&encode(&Message::Failure2(Failure { transaction: 9, explanation: 1 })), &RANDOM);
    assert!(it.has_failed());
}
