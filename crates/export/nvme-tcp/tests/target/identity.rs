//! Who may connect: the list of hosts, and proofs.

use crate::host::{admin, io};
use crate::queue::{Queue, Wishes, host, of};
use crate::server::{NQN, Setup, TestTarget};
use ashlar_nvme_protocol::auth::{
    self, Challenge, Exponent, Group, Message, Negotiate, Proof, Reply, Role, Secret, augmented,
    prove,
};
use ashlar_nvme_protocol::command::{
    AuthTransfer, DYNAMIC_CONTROLLER, FabricsCommand, admin_opcode,
};
use ashlar_nvme_protocol::log::{page, parse_discovery_page};
use ashlar_nvme_protocol::nqn::{Admitted, Nqn};
use ashlar_nvme_protocol::{Status, Submission};
use ashlar_nvme_tcp::HostTerms;

const RIGHT: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const WRONG: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

fn only(terms: HostTerms) -> Setup {
    Setup { hosts: Admitted::Only(vec![(host(1).nqn, terms)]), ..Setup::default() }
}

fn with_secret() -> Setup {
    let host_secret = Some(RIGHT.parse().expect("a secret"));
    only(HostTerms { host_secret, ..HostTerms::default() })
}

#[test]
fn a_host_that_is_not_on_the_list_is_refused_and_told_of_nothing() {
    let target = TestTarget::with(only(HostTerms::default()));
    let (listed, _) = admin(&target, &Wishes::default());
    let stranger = Wishes { host: host(2), ..Wishes::default() };
    let mut queue = Queue::greeted(target.connect(0), &stranger);
    let refused = queue.connect(&stranger, 0, DYNAMIC_CONTROLLER);
    assert_eq!(refused.status(), Status::CONNECT_INVALID_HOST);
    assert_eq!(target.count(|counters| &counters.hosts_refused), 1);
    let curious = Wishes { subsystem: Nqn::discovery(), ..stranger };
    let (mut discovery, _) = admin(&target, &curious);
    assert!(parse_discovery_page(&discovery.log(page::DISCOVERY, 2048)).is_empty());
    let known = Wishes { subsystem: Nqn::discovery(), ..Wishes::default() };
    let (mut discovery_too, _) = admin(&target, &known);
    assert_eq!(parse_discovery_page(&discovery_too.log(page::DISCOVERY, 2048)).len(), 1);
    drop((listed, queue, discovery, discovery_too));
    target.stop();
}

fn send(queue: &mut Queue, message: &Message) -> Status {
    let bytes = auth::encode(message);
    let length = u32::try_from(bytes.len()).expect("short");
    queue.status(FabricsCommand::AuthSend(AuthTransfer::of_messages(length)).encode(), &bytes, 0)
}

fn fetch(queue: &mut Queue) -> Message {
    let receive = FabricsCommand::AuthReceive(AuthTransfer::of_messages(4096)).encode();
    let bytes = queue.good(receive, &[], 4096);
    assert_eq!(bytes.len(), 4096);
    auth::decode(&bytes).expect("a message")
}

fn challenged(queue: &mut Queue) -> Challenge {
    challenged_by(queue, vec![0, 2])
}

fn challenged_by(queue: &mut Queue, groups: Vec<u8>) -> Challenge {
    let negotiate = Negotiate { transaction: 5, secure_channel: 0, hashes: vec![1], groups };
    assert_eq!(send(queue, &Message::Negotiate(negotiate)), Status::SUCCESS);
    match fetch(queue) {
        Message::Challenge(challenge) => challenge,
        other => panic!("{other:?}"),
    }
}

fn proof(challenge: &Challenge, text: &str) -> Message {
    let (prover, verifier) = (host(1).nqn, NQN.parse().expect("a name"));
    let own = Exponent::new(challenge.group, &[0x77; 64]);
    let key = own.as_ref().and_then(|own| own.session_key(challenge.hash, &challenge.dh_value));
    let about = Proof {
        role: Role::Host,
        hash: challenge.hash,
        challenge: &augmented(challenge.hash, &key.unwrap_or_default(), &challenge.value),
        sequence: challenge.sequence,
        transaction: challenge.transaction,
        prover: &prover,
        verifier: &verifier,
    };
    let dh_value = own.as_ref().map(Exponent::public).unwrap_or_default();
    let secret: Secret = text.parse().expect("a secret");
    let response = prove(&about, &secret.key_of(&prover));
    let transaction = challenge.transaction;
    Message::Reply(Reply { transaction, sequence: 0, response, challenge: None, dh_value })
}

/// A connection whose Connect says that it must authenticate.
fn begun(target: &TestTarget, number: u16, controller: u16) -> (Queue, u16) {
    let mut queue = Queue::greeted(target.connect(0), &Wishes::default());
    let completion = queue.connect(&Wishes::default(), number, controller);
    assert_eq!(completion.status(), Status::SUCCESS);
    assert_eq!(completion.result.get() >> 16, 2, "ATR");
    (queue, u16::try_from(completion.result.get() & 0xffff).expect("16 bits"))
}

fn proven(target: &TestTarget, number: u16, controller: u16) -> (Queue, u16) {
    let (mut queue, id) = begun(target, number, controller);
    let challenge = challenged(&mut queue);
    assert_eq!(send(&mut queue, &proof(&challenge, RIGHT)), Status::SUCCESS);
    assert!(matches!(fetch(&mut queue), Message::Success1(_)));
    (queue, id)
}

#[test]
fn a_host_proves_itself_on_every_queue() {
    let target = TestTarget::with(with_secret());
    let (mut admin, id) = proven(&target, 0, DYNAMIC_CONTROLLER);
    assert_eq!(admin.set_property(0x14, 0x0046_0001), Status::SUCCESS);
    let (mut queue, _) = proven(&target, 1, id);
    queue.write(0, &[7; 512]);
    assert_eq!(queue.read(0, 1), vec![7; 512]);
    drop((admin, queue));
    target.stop();
}

#[test]
fn a_host_proves_itself_without_diffie_hellman_if_it_may() {
    let target = TestTarget::with(with_secret());
    let (mut queue, _) = begun(&target, 0, DYNAMIC_CONTROLLER);
    let challenge = challenged_by(&mut queue, vec![0]);
    assert_eq!(challenge.group, Group::Null);
    assert_eq!(send(&mut queue, &proof(&challenge, RIGHT)), Status::SUCCESS);
    assert!(matches!(fetch(&mut queue), Message::Success1(_)));
    drop(queue);
    target.stop();
}

#[test]
fn nothing_is_answered_before_the_proof() {
    let target = TestTarget::with(with_secret());
    let (mut queue, _) = begun(&target, 0, DYNAMIC_CONTROLLER);
    let required = Status::AUTHENTICATION_REQUIRED;
    assert_eq!(queue.set_property(0x14, 0x0046_0001), required);
    let identify = of(admin_opcode::IDENTIFY, 0).with_dword(10, 1);
    assert!(!queue.status(identify, &[], 4096).is_success());
    challenged(&mut queue);
    assert_eq!(queue.set_property(0x14, 0x0046_0001), required);
    let other_protocol =
        FabricsCommand::AuthReceive(AuthTransfer { protocol: 1, ..AuthTransfer::of_messages(64) });
    assert_eq!(queue.status(other_protocol.encode(), &[], 64), Status::INVALID_FIELD);
    drop(queue);
    target.stop();
}

#[test]
fn a_wrong_proof_ends_the_connection() {
    let target = TestTarget::with(with_secret());
    let (mut queue, _) = begun(&target, 0, DYNAMIC_CONTROLLER);
    let challenge = challenged(&mut queue);
    assert_eq!(send(&mut queue, &proof(&challenge, WRONG)), Status::SUCCESS);
    assert!(matches!(fetch(&mut queue), Message::Failure1(_)));
    assert_eq!(queue.expect_end(), None);
    assert_eq!(target.count(|counters| &counters.hosts_refused), 1);
    target.until(|it| it.ends.lock().unwrap().iter().any(|end| end.contains("could not prove")));
    target.stop();
}

#[test]
fn a_proof_of_yesterday_is_of_no_use() {
    let target = TestTarget::with(with_secret());
    let (mut first, _) = begun(&target, 0, DYNAMIC_CONTROLLER);
    let old = proof(&challenged(&mut first), RIGHT);
    let (mut second, _) = begun(&target, 0, DYNAMIC_CONTROLLER);
    let fresh = challenged(&mut second);
    assert_ne!(proof(&fresh, RIGHT), old, "every challenge is another");
    assert_eq!(send(&mut second, &old), Status::SUCCESS);
    assert!(matches!(fetch(&mut second), Message::Failure1(_)));
    drop((first, second));
    target.stop();
}

#[test]
fn an_io_queue_of_a_proven_host_is_not_proven_by_that() {
    let target = TestTarget::with(with_secret());
    let (mut admin, id) = proven(&target, 0, DYNAMIC_CONTROLLER);
    assert_eq!(admin.set_property(0x14, 0x0046_0001), Status::SUCCESS);
    let (mut queue, _) = begun(&target, 1, id);
    let read = Submission { namespace: 1.into(), ..of(2, 1) };
    assert!(!queue.status(read, &[], 512).is_success());
    drop((admin, queue));
    target.stop();
}

#[test]
fn hosts_without_a_secret_connect_as_before() {
    let target = TestTarget::with(only(HostTerms::default()));
    let (admin, id) = admin(&target, &Wishes::default());
    let mut queue = io(&target, &Wishes::default(), (1, id), 1);
    queue.read(0, 1);
    drop((admin, queue));
    target.stop();
}
