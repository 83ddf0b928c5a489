//! Received headers: what is accepted, and which field a refusal names.

use ashlar_nvme_protocol::connection::{Connection, Offer, Step, agreed_by_host};
use ashlar_nvme_protocol::pdu::{
    Body, C2hData, COMMON_BYTES, Fatal, FatalStatus, H2cData, IcReq, Pdu, PduHead, PduKind, R2t,
    Side, TermReq, Terms, encode,
};
use ashlar_nvme_protocol::{Completion, Submission};

const OFFER: Offer = Offer { h2c_bytes_max: 65_536, in_capsule_bytes_max: 8192 };

fn terms() -> Terms {
    Terms {
        header_digest: false,
        data_digest: false,
        cpda: 0,
        hpda: 0,
        in_capsule_bytes_max: 8192,
        h2c_bytes_max: 65_536,
    }
}

fn open(bytes: &[u8], sender: Side, terms: &Terms) -> Result<Pdu, Fatal> {
    let head = PduHead::decode(bytes[..COMMON_BYTES].try_into().expect("eight"), sender)?;
    let length = head.header_bytes(terms).min(bytes.len());
    Pdu::open(&head, &bytes[..length], terms)
}

fn data(bytes: u32) -> Body {
    Body::H2cData(H2cData { command: 1, transfer: 0, offset: 0, bytes, is_last: true })
}

fn bodies() -> Vec<(Body, u32)> {
    let ic =
        IcReq { format: 0, hpda: 1, header_digest: false, data_digest: true, r2t_max_less_one: 0 };
    let c2h = C2hData { command: 3, offset: 8, bytes: 512, is_last: false, is_success: false };
    vec![
        (Body::IcReq(ic), 0),
        (Body::H2cTermReq(TermReq { status: None, info: 9 }), 0),
        (Body::C2hTermReq(TermReq { status: Some(FatalStatus::SequenceError), info: 0 }), 0),
        (Body::CapsuleCmd(Submission { opcode: 9, ..Submission::default() }), 0),
        (Body::CapsuleCmd(Submission::default()), 4096),
        (Body::CapsuleResp(Completion::default()), 0),
        (data(4096), 4096),
        (Body::C2hData(c2h), 512),
        (Body::R2t(R2t { command: 2, transfer: 1, offset: 0, bytes: 4 }), 0),
    ]
}

#[test]
fn what_is_written_opens_again_under_all_terms() {
    for bits in 0..4 {
        for alignment in [0, 1, 7, 31] {
            let digests = (bits & 1 != 0, bits & 2 != 0);
            let terms = Terms { header_digest: digests.0, data_digest: digests.1, ..terms() };
            let terms = Terms { cpda: alignment, hpda: alignment, ..terms };
            for (body, data_bytes) in bodies() {
                let header = encode(&body, data_bytes, &terms);
                let sender = body.kind().sender();
                let pdu = open(header.as_bytes(), sender, &terms).expect("it opens");
                assert_eq!((pdu.body, pdu.data_bytes), (body, data_bytes), "{terms:?}");
                assert_eq!(pdu.has_data_digest, header.has_data_digest);
                let begins = header.as_bytes().len();
                assert!(data_bytes == 0 || begins.is_multiple_of(terms.data_alignment(sender)));
            }
        }
    }
}

#[test]
fn every_bit_of_a_header_is_under_its_digest() {
    let terms = Terms { header_digest: true, ..terms() };
    let good = encode(&data(4096), 4096, &terms).as_bytes().to_vec();
    for bit in 0..28 * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let result = open(&bad, Side::Host, &terms);
        let fatal = result.expect_err("one bit is another");
        // Kind and HLEN are needed to find the digest at all.
        let is_early = matches!(bit / 8, 0 | 2);
        assert_eq!(fatal.status == FatalStatus::HeaderDigest, !is_early, "bit {bit}: {fatal:?}");
    }
}

#[test]
fn each_side_sends_its_own_kinds_only() {
    for code in 0..=255 {
        let header =
            [code, 0, PduKind::from_code(code).map_or(24, PduKind::header_bytes), 0, 0, 0, 0, 0];
        let from_host = PduHead::decode(header, Side::Host).is_ok();
        let from_controller = PduHead::decode(header, Side::Controller).is_ok();
        assert_eq!(from_host, matches!(code, 0 | 2 | 4 | 6), "{code:#x}");
        assert_eq!(from_controller, matches!(code, 1 | 3 | 5 | 7 | 9), "{code:#x}");
    }
}

#[test]
fn a_header_length_that_is_not_its_kinds_names_hlen() {
    for length in (0..=255).filter(|length| *length != 72) {
        let fatal = PduHead::decode([4, 0, length, 0, 72, 0, 0, 0], Side::Host);
        assert_eq!(fatal.expect_err("wrong"), Fatal::field(2));
    }
}

/// A change of the common header of a capsule with 512 bytes of data, and the field that is named.
fn refused(at: usize, value: u8, terms: &Terms) -> Fatal {
    let body = Body::CapsuleCmd(Submission::default());
    let mut bytes = encode(&body, 512, terms).as_bytes().to_vec();
    bytes[at] = value;
    open(&bytes, Side::Host, terms).expect_err("refused")
}

#[test]
fn digest_flags_that_were_not_agreed_name_flags() {
    assert_eq!(refused(1, 1, &terms()), Fatal::field(1));
    assert_eq!(refused(1, 2, &terms()), Fatal::field(1));
    let with_digest = Terms { data_digest: true, ..terms() };
    assert_eq!(refused(1, 0, &with_digest), Fatal::field(1));
}

#[test]
fn data_that_begins_within_the_header_or_unaligned_names_pdo() {
    assert_eq!(refused(3, 71, &terms()), Fatal::field(3));
    assert_eq!(refused(3, 0, &terms()), Fatal::field(3));
    assert_eq!(refused(3, 74, &terms()), Fatal::field(3));
    let aligned = Terms { cpda: 7, ..terms() };
    assert_eq!(refused(3, 76, &aligned), Fatal::field(3));
}

#[test]
fn lengths_that_leave_no_data_name_plen() {
    // PLEN below the header, and PLEN that ends where data begins.
    let body = Body::CapsuleCmd(Submission::default());
    for plen in [0_u32, 8, 71, 76] {
        let mut bytes = encode(&body, 512, &terms()).as_bytes().to_vec();
        bytes[3] = 76;
        bytes[4..8].copy_from_slice(&plen.to_le_bytes());
        let fatal = open(&bytes, Side::Host, &terms()).expect_err("refused");
        assert_eq!(fatal, Fatal::field(4), "{plen}");
    }
    let mut response = encode(&Body::CapsuleResp(Completion::default()), 0, &terms());
    let mut bytes = response.as_bytes().to_vec();
    bytes[4] = 28;
    assert_eq!(open(&bytes, Side::Controller, &terms()), Err(Fatal::field(4)));
    response = encode(&Body::H2cTermReq(TermReq { status: None, info: 0 }), 0, &terms());
    let mut bytes = response.as_bytes().to_vec();
    bytes[4] = 153;
    assert_eq!(open(&bytes, Side::Host, &terms()), Err(Fatal::field(4)));
}

#[test]
fn more_data_than_announced_is_refused_before_it_is_received() {
    let limit = Fatal::of(FatalStatus::LimitExceeded);
    let capsule = Body::CapsuleCmd(Submission::default());
    let good = encode(&capsule, 8192, &terms());
    assert!(open(good.as_bytes(), Side::Host, &terms()).is_ok());
    let bad = encode(&capsule, 8196, &terms());
    assert_eq!(open(bad.as_bytes(), Side::Host, &terms()), Err(limit));
    let bad = encode(&data(65_540), 65_540, &terms());
    assert_eq!(open(bad.as_bytes(), Side::Host, &terms()), Err(limit));
}

#[test]
fn a_data_length_that_is_not_the_pdus_names_datal() {
    for told in [0, 4092, 4100, u32::MAX] {
        let bad = encode(&data(told), 4096, &terms());
        assert_eq!(open(bad.as_bytes(), Side::Host, &terms()), Err(Fatal::field(16)), "{told}");
    }
    // A data PDU without data.
    let bad = encode(&data(0), 0, &terms());
    assert_eq!(open(bad.as_bytes(), Side::Host, &terms()), Err(Fatal::field(16)));
}

fn ic_req() -> IcReq {
    IcReq { format: 0, hpda: 0, header_digest: true, data_digest: false, r2t_max_less_one: 0 }
}

#[test]
fn a_connection_begins_with_icreq_and_with_nothing_else() {
    let sequence = Err(Fatal::of(FatalStatus::SequenceError));
    for (body, _) in bodies().into_iter().filter(|(body, _)| body.kind().sender() == Side::Host) {
        let mut connection = Connection::new(OFFER);
        let result = connection.receive(&body);
        match body {
            Body::IcReq(_) => assert!(matches!(result, Ok(Step::Greet(_)))),
            Body::H2cTermReq(_) => assert!(matches!(result, Ok(Step::End(_)))),
            _ => assert_eq!(result, sequence, "{body:?}"),
        }
    }
}

#[test]
fn a_connection_begins_once_and_ends_once() {
    let sequence = Err(Fatal::of(FatalStatus::SequenceError));
    let mut connection = Connection::new(OFFER);
    assert!(connection.receive(&Body::IcReq(ic_req())).is_ok());
    assert_eq!(connection.receive(&Body::IcReq(ic_req())), sequence);
    assert!(matches!(connection.receive(&data(4)), Ok(Step::Data(_))));
    let end = Body::H2cTermReq(TermReq { status: None, info: 0 });
    assert!(matches!(connection.receive(&end), Ok(Step::End(_))));
    assert_eq!(connection.receive(&data(4)), sequence);
}

#[test]
fn digests_are_used_exactly_if_the_host_asked() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let request = IcReq { header_digest, data_digest, ..ic_req() };
        let mut connection = Connection::new(OFFER);
        let Ok(Step::Greet(response)) = connection.receive(&Body::IcReq(request)) else {
            panic!("not greeted");
        };
        let ours = connection.terms();
        let theirs = agreed_by_host(&request, &response).expect("a response to it");
        assert_eq!((ours.header_digest, ours.data_digest), (header_digest, data_digest));
        assert_eq!(ours, Terms { in_capsule_bytes_max: 8192, ..theirs });
    }
}

#[test]
fn unknown_formats_and_alignments_are_refused() {
    let mut connection = Connection::new(OFFER);
    let request = IcReq { format: 1, ..ic_req() };
    let fatal = connection.receive(&Body::IcReq(request)).expect_err("unknown format");
    assert_eq!(fatal, Fatal { status: FatalStatus::UnsupportedParameter, info: 8 });
    let request = IcReq { hpda: 32, ..ic_req() };
    assert_eq!(connection.receive(&Body::IcReq(request)), Err(Fatal::field(10)));
    // Refused, it is as it was.
    assert_eq!(connection, Connection::new(OFFER));
}

#[test]
fn a_host_refuses_a_response_to_something_else() {
    let request = ic_req();
    let mut connection = Connection::new(OFFER);
    let Ok(Step::Greet(good)) = connection.receive(&Body::IcReq(request)) else {
        panic!("not greeted");
    };
    let mut bad = [good; 5];
    bad[0].format = 1;
    bad[1].cpda = 32;
    bad[2].header_digest = false;
    bad[3].h2c_bytes_max = 4092;
    bad[4].h2c_bytes_max = 4098;
    for response in bad {
        assert!(agreed_by_host(&request, &response).is_err(), "{response:?}");
    }
}
