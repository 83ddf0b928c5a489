//! Each kind of PDU as bytes that were put together by hand from the specification's figures.

use ashlar_nvme_protocol::digest::{RunningDigest, digest};
use ashlar_nvme_protocol::pdu::{
    Body, C2hData, COMMON_BYTES, Fatal, FatalStatus, H2cData, IcReq, IcResp, Pdu, PduHead, R2t,
    TermReq, Terms, encode, encode_term_req,
};
use ashlar_nvme_protocol::{Completion, Sgl, Status, Submission};

fn terms(header_digest: bool, data_digest: bool) -> Terms {
    Terms {
        header_digest,
        data_digest,
        cpda: 0,
        hpda: 0,
        in_capsule_bytes_max: 8192,
        h2c_bytes_max: 131_072,
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ascii");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.chunks_exact(2).map(pair).collect()
}

/// What is encoded are these bytes, and what is decoded from them is the same again.
fn check(body: Body, data_bytes: u32, terms: &Terms, hex: &str) {
    let golden = bytes(hex);
    let header = encode(&body, data_bytes, terms);
    assert_eq!(header.as_bytes(), golden, "{body:?}");
    let common = golden[..COMMON_BYTES].try_into().expect("eight");
    let head = PduHead::decode(common, body.kind().sender()).expect("a header");
    let length = head.header_bytes(terms);
    let pdu = Pdu::open(&head, &golden[..length], terms).expect("a PDU");
    assert_eq!((pdu.body, pdu.data_bytes), (body, data_bytes));
    assert_eq!(length + pdu.pad_bytes, golden.len());
}

#[test]
fn crc_32c_is_that_of_the_published_vectors() {
    // RFC 3720, B.4: 32 bytes of zeros, of ones, rising, falling.
    assert_eq!(digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(digest(&rising), [0x4e, 0x79, 0xdd, 0x46]);
    let falling: Vec<u8> = (0..32).rev().collect();
    assert_eq!(digest(&falling), [0x5c, 0xdb, 0x3f, 0x11]);
    let mut running = RunningDigest::default();
    running.add(&rising[..5]);
    running.add(&rising[5..]);
    assert_eq!(running.finish(), digest(&rising));
}

#[test]
fn initialize_connection_request() {
    let body = Body::IcReq(IcReq {
        format: 0,
        hpda: 3,
        header_digest: true,
        data_digest: true,
        r2t_max_less_one: 15,
    });
    let hex = "00 00 80 00 80000000 0000 03 03 0f000000".to_owned() + &"00".repeat(112);
    check(body, 0, &Terms::NONE, &hex);
}

#[test]
fn initialize_connection_response() {
    let body = Body::IcResp(IcResp {
        format: 0,
        cpda: 0,
        header_digest: true,
        data_digest: false,
        h2c_bytes_max: 0x20000,
    });
    let hex = "01 00 80 00 80000000 0000 00 01 00000200".to_owned() + &"00".repeat(112);
    check(body, 0, &Terms::NONE, &hex);
}

#[test]
fn termination_requests() {
    let fatal = Fatal { status: FatalStatus::HeaderDigest, info: 0x1234_5678 };
    let sent = encode_term_req(ashlar_nvme_protocol::pdu::Side::Controller, fatal, &[0xee; 200]);
    // 24 bytes, and the first 128 of the header in question.
    let hex =
        "03 00 18 00 98000000 0300 78563412".to_owned() + &"00".repeat(10) + &"ee".repeat(128);
    assert_eq!(sent, bytes(&hex));
    let body = Body::H2cTermReq(TermReq { status: Some(FatalStatus::DataOutOfRange), info: 0 });
    let hex = "02 00 18 00 18000000 0400 00000000".to_owned() + &"00".repeat(10);
    check(body, 0, &terms(true, true), &hex);
}

/// A read of 8 blocks from block 0x1122 of namespace 1.
fn read() -> Submission {
    let mut entry = Submission {
        opcode: 2,
        flags: 0x40,
        command: 0x0011.into(),
        namespace: 1.into(),
        sgl: Sgl::Transport { bytes: 4096 }.encode(),
        ..Submission::default()
    };
    entry = entry.with_dword(10, 0x1122).with_dword(12, 7);
    entry
}

const READ: &str = "02 40 1100 01000000 00000000 00000000 0000000000000000
    0000000000000000 00100000 000000 5a
    22110000 00000000 07000000 00000000 00000000 00000000";

#[test]
fn command_capsule_without_data() {
    let hex = "04 00 48 00 48000000".to_owned() + READ;
    check(Body::CapsuleCmd(read()), 0, &terms(false, false), &hex);
}

#[test]
fn command_capsule_with_header_digest() {
    let header = bytes(&("04 01 48 00 4c000000".to_owned() + READ));
    let sum = crc_fast::crc32_iscsi(&header).to_le_bytes();
    let hex: String = header.iter().chain(&sum).map(|byte| format!("{byte:02x}")).collect();
    check(Body::CapsuleCmd(read()), 0, &terms(true, false), &hex);
}

#[test]
fn command_capsule_with_data_and_its_digest() {
    let mut write = read();
    write.opcode = 1;
    write.sgl = Sgl::InCapsule { offset: 0, bytes: 512 }.encode();
    write = write.with_dword(12, 0);
    // PDO is 72 bytes: no digest, no padding. PLEN is 72 + 512 + 4.
    let hex = "04 02 48 48 4c020000 01 40 1100 01000000 00000000 00000000 0000000000000000
        0000000000000000 00020000 000000 01
        22110000 00000000 00000000 00000000 00000000 00000000";
    check(Body::CapsuleCmd(write), 512, &terms(false, true), hex);
}

#[test]
fn response_capsule() {
    let mut completion = Completion::new(0x0011, Status::LBA_OUT_OF_RANGE, 0);
    completion.queue_head = 5.into();
    // DNR, SCT 0, SC 80h: 8100h.
    let hex = "05 00 18 00 18000000 0000000000000000 0500 0000 1100 0081";
    check(Body::CapsuleResp(completion), 0, &terms(false, false), hex);
}

#[test]
fn data_to_the_controller() {
    let body = Body::H2cData(H2cData {
        command: 0x11,
        transfer: 3,
        offset: 0x2000,
        bytes: 0x1000,
        is_last: true,
    });
    let hex = "06 04 18 18 18100000 1100 0300 00200000 00100000 00000000";
    check(body, 0x1000, &terms(false, false), hex);
}

#[test]
fn data_to_the_host_is_aligned_as_it_asked() {
    let body = Body::C2hData(C2hData {
        command: 0x11,
        offset: 0,
        bytes: 0x1000,
        is_last: true,
        is_success: true,
    });
    // HPDA 15: 64 bytes. The header ends at 24, so 40 bytes of padding follow.
    let aligned = Terms { hpda: 15, ..terms(false, false) };
    let hex =
        "07 0c 18 40 40100000 1100 0000 00000000 00100000 00000000".to_owned() + &"00".repeat(40);
    check(body, 0x1000, &aligned, &hex);
}

#[test]
fn ready_to_transfer() {
    let body = Body::R2t(R2t { command: 0x11, transfer: 3, offset: 0, bytes: 0x10000 });
    let hex = "09 00 18 00 18000000 1100 0300 00000000 00000100 00000000";
    check(body, 0, &terms(false, false), hex);
}
