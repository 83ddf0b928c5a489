//! Diffie-Hellman: primes, powers and keys by a second computation, and exchanges with every group.

use super::authentication::{
    OTHER, PLAIN, authentication, explanation, fetch, negotiate, parties, secret, subsystem,
};
use super::host;
use ashlar_nvme_protocol::auth::{
    Authentication, Challenge, Exponent, Group, Hash, Message, Parties, Proof, Random, Reply, Role,
    augmented, encode, prove,
};

const RANDOM: Random = Random { challenge: [0xc1; 64], sequence: 4, exponent: [0x5a; 64] };
const VECTORS: &str = include_str!("vectors.txt");
/// Of the host.
const OWN: [u8; 64] = [0xa3; 64];

fn bytes(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn group(code: u8) -> Group {
    Group::from_code(code).expect("a group")
}

/// `vectors.py` made them with integers of Python. The third has a shared value that begins with a
/// zero byte.
#[test]
fn powers_and_keys_are_those_of_another_computation() {
    let mut lines = 0;
    for line in VECTORS.lines().skip(1) {
        let mut fields = line.split(' ');
        let group = Group::from_name(fields.next().expect("a name")).expect("a group");
        let [x, y, public, key] = [(); 4].map(|()| bytes(fields.next().expect("a field")));
        let mut random = [0; 64];
        random[..x.len()].copy_from_slice(&x);
        let exponent = Exponent::new(group, &random).expect("not the NULL group");
        assert_eq!(Hash::Sha256.of(&exponent.public()), public, "{group:?}");
        assert_eq!(exponent.session_key(Hash::Sha256, &y), Some(key), "{group:?}");
        assert_eq!(format!("{exponent:?}"), format!("Exponent({group:?}, ..)"));
        lines += 1;
    }
    assert_eq!(lines, 11);
}

#[test]
fn values_that_give_the_key_away_are_refused() {
    let exponent = Exponent::new(Group::Ffdhe2048, &OWN).expect("a group");
    let key = |value: &[u8]| exponent.session_key(Hash::Sha256, value);
    let prime = VECTORS.lines().next().and_then(|line| line.strip_prefix("prime "));
    let prime = bytes(prime.expect("its first line"));
    let small = |last: u8| [vec![0; 255], vec![last]].concat();
    // It ends with ones.
    let near = |less: u8| [&prime[..255], &[0xff - less]].concat();
    for value in [small(0), small(1), near(1), near(0), vec![0xff; 256], vec![2; 255], vec![2; 257]]
    {
        assert_eq!(key(&value), None, "{value:?}");
    }
    for value in [small(2), near(2)] {
        assert!(key(&value).is_some(), "{value:?}");
    }
}

fn challenged(it: &mut Authentication, groups: &[u8]) -> Challenge {
    it.send(&encode(&negotiate(&[2], groups)), &RANDOM);
    match fetch(it) {
        Message::Challenge(challenge) => challenge,
        other => panic!("{other:?}"),
    }
}

/// The host's answer by a group, and its key; it challenges the controller with `own`.
fn reply(challenge: &Challenge, own: Option<Vec<u8>>) -> (Reply, Vec<u8>) {
    let exponent = Exponent::new(challenge.group, &OWN).expect("a group");
    let key = exponent.session_key(challenge.hash, &challenge.dh_value).expect("a good value");
    let (prover, verifier) = (host(1).nqn, subsystem());
    let proof = Proof {
        role: Role::Host,
        hash: challenge.hash,
        challenge: &augmented(challenge.hash, &key, &challenge.value),
        sequence: challenge.sequence,
        transaction: challenge.transaction,
        prover: &prover,
        verifier: &verifier,
    };
    let response = prove(&proof, &secret(PLAIN).key_of(&prover));
    let transaction = challenge.transaction;
    let dh_value = exponent.public();
    (Reply { transaction, sequence: 77, response, challenge: own, dh_value }, key)
}

#[test]
fn both_sides_prove_themselves_by_every_group() {
    for code in 1..=5 {
        let mut it = authentication(true);
        let challenge = challenged(&mut it, &[0, code]);
        assert_eq!((challenge.group, challenge.dh_value.len()), (group(code), group(code).bytes()));
        let own = vec![0x77; 48];
        let (reply, key) = reply(&challenge, Some(own.clone()));
        it.send(&encode(&Message::Reply(reply)), &RANDOM);
        let Message::Success1(success) = fetch(&mut it) else { panic!("group {code}") };
        let (prover, verifier) = (subsystem(), host(1).nqn);
        let proof = Proof {
            role: Role::Controller,
            hash: Hash::Sha384,
            challenge: &augmented(Hash::Sha384, &key, &own),
            sequence: 77,
            transaction: 9,
            prover: &prover,
            verifier: &verifier,
        };
        let response = success.response.expect("a proof");
        assert!(proof.is_given_by(&secret(OTHER).key_of(&prover), &response), "group {code}");
        it.send(&encode(&Message::Success2 { transaction: 9 }), &RANDOM);
        assert!(it.is_done());
    }
}

/// What is proved is HMAC(H(key), challenge), put together from nothing but hashes.
#[test]
fn the_answered_challenge_depends_on_the_shared_value() {
    let shared = Hash::Sha384.of(b"shared");
    let by_hand = Hash::Sha384.hmac(&shared, &[&[9; 48]]);
    assert_eq!(augmented(Hash::Sha384, &shared, &[9; 48]), by_hand);
    assert_eq!(augmented(Hash::Sha384, &[], &[9; 48]), [9; 48]);
}

#[test]
fn a_proof_with_another_shared_value_is_none() {
    let mut it = authentication(false);
    let challenge = challenged(&mut it, &[1]);
    let (mut wrong, _) = reply(&challenge, None);
    wrong.dh_value = Exponent::new(Group::Ffdhe2048, &[1; 64]).expect("a group").public();
    it.send(&encode(&Message::Reply(wrong)), &RANDOM);
    assert_eq!(explanation(&mut it), 1);
    // A value that is none, one where none belongs, and one that is missing.
    for (groups, value, wanted) in [(1, vec![0; 256], 6), (0, vec![2; 256], 6), (1, vec![], 6)] {
        let mut it = authentication(false);
        let told = challenged(&mut it, &[groups]);
        let (good, _) = reply(&challenge, None);
        let transaction = told.transaction;
        let wrong = Reply { transaction, dh_value: value, ..good };
        it.send(&encode(&Message::Reply(wrong)), &RANDOM);
        assert_eq!(explanation(&mut it), wanted, "{groups}");
    }
}

#[test]
fn the_weakest_group_that_is_allowed_is_taken() {
    let all = [0, 1, 2, 3, 4, 5];
    for (offered, least, chosen) in [
        (&all[..], Group::Null, Some(Group::Ffdhe2048)),
        (&[5, 3, 0], Group::Null, Some(Group::Ffdhe4096)),
        (&[0, 99], Group::Null, Some(Group::Null)),
        (&all, Group::Ffdhe3072, Some(Group::Ffdhe3072)),
        (&[0, 1], Group::Ffdhe3072, None),
        (&[99], Group::Null, None),
        (&[], Group::Null, None),
    ] {
        let mut it = Authentication::new(Parties { least_group: least, ..parties(false) });
        it.send(&encode(&negotiate(&[2], offered)), &RANDOM);
        match chosen {
            None => assert_eq!(explanation(&mut it), 5, "{offered:?}"),
            Some(group) => assert!(
                matches!(fetch(&mut it), Message::Challenge(it) if it.group == group),
                "{offered:?}"
            ),
        }
    }
}
