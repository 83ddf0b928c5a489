//! Request and reply headers: round trips, every truncation, and the exact bytes of each reply.

use crate::reply::{REPLY_HEAD_BYTES_MAX, ReplyBody, ReplyHead, encode_status, status_bytes};
use crate::wire::{
    Dialect, NbdError, RequestFlags, RequestHead, RequestType, decode_request, encode_request,
};
use ashlar_volume::AllocationRun;
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

const DIALECTS: [Dialect; 3] = [Dialect::Simple, Dialect::Structured, Dialect::Extended];

fn head(type_code: u16, bytes: u64) -> RequestHead {
    RequestHead {
        flags: RequestFlags(0),
        type_code,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1112_1314_1516_1718,
        bytes,
        payload_bytes: 0,
    }
}

fn encoded(dialect: Dialect, body: ReplyBody) -> Vec<u8> {
    let mut out = [0xee; REPLY_HEAD_BYTES_MAX];
    let head = ReplyHead { cookie: 7, request_offset: 0x2000, body };
    let bytes = head.encode(dialect, &mut out);
    out[..bytes].to_vec()
}

proptest! {
    #[test]
    fn a_request_survives_the_wire(
        dialect in prop_oneof![
            Just(Dialect::Simple), Just(Dialect::Structured), Just(Dialect::Extended),
        ],
        flags in any::<u16>(), type_code in any::<u16>(), cookie in any::<u64>(),
        offset in any::<u64>(), bytes in any::<u32>(),
    ) {
        let sent = RequestHead {
            flags: RequestFlags(flags), type_code, cookie, offset,
            bytes: u64::from(bytes), payload_bytes: 0,
        };
        let received = decode_request(dialect, &encode_request(dialect, &sent)).unwrap();
        prop_assert_eq!(RequestHead { payload_bytes: 0, ..received }, sent);
        let has_payload = match dialect {
            Dialect::Extended => flags & 32 != 0,
            Dialect::Simple | Dialect::Structured => type_code == 1,
        };
        prop_assert_eq!(received.payload_bytes, if has_payload { u64::from(bytes) } else { 0 });
    }

    #[test]
    fn no_bytes_make_the_request_decoder_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        for dialect in DIALECTS {
            // Random bytes have the right magic once in four thousand million.
            prop_assert!(decode_request(dialect, &bytes).is_err());
        }
    }
}

#[test]
fn every_truncation_and_every_wrong_magic_is_refused() {
    for dialect in DIALECTS {
        let good = encode_request(dialect, &head(0, 4096));
        assert_eq!(good.len(), dialect.request_bytes());
        for end in 0..good.len() {
            assert!(decode_request(dialect, &good[..end]).is_err(), "{dialect:?} cut at {end}");
        }
        for bit in 0..32 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_request(dialect, &bad).is_err(), "{dialect:?} magic bit {bit}");
        }
    }
}

#[test]
fn dialects_do_not_take_each_others_requests() {
    let compact = encode_request(Dialect::Structured, &head(0, 4096));
    let extended = encode_request(Dialect::Extended, &head(0, 4096));
    assert!(decode_request(Dialect::Extended, &[compact, vec![0; 4]].concat()).is_err());
    assert!(decode_request(Dialect::Structured, &extended[..28]).is_err());
}

#[test]
fn a_request_has_the_documented_bytes() {
    let mut write = head(1, 0x2122_2324);
    write.flags = RequestFlags::FUA;
    let bytes = encode_request(Dialect::Simple, &write);
    assert_eq!(bytes[..8], [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1]);
    assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[24..], [0x21, 0x22, 0x23, 0x24]);
    assert_eq!(decode_request(Dialect::Simple, &bytes).unwrap().kind(), Some(RequestType::Write));
}

#[test]
fn unknown_types_have_no_kind() {
    for type_code in 0..=u16::MAX {
        assert_eq!(head(type_code, 0).kind().is_some(), type_code < 8, "type {type_code}");
    }
}

#[test]
fn simple_replies_carry_only_a_code() {
    assert_eq!(
        encoded(Dialect::Simple, ReplyBody::Done),
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]
    );
    let body = ReplyBody::Error {
        error: NbdError::NoSpace,
        message: "not sent",
        offset: Some(1),
        is_last: true,
    };
    assert_eq!(encoded(Dialect::Simple, body)[4..8], [0, 0, 0, 28]);
    assert_eq!(encoded(Dialect::Simple, body).len(), 16);
}

#[test]
fn a_data_part_tells_its_length_with_the_offset_field() {
    let body = ReplyBody::Data { offset: 0x3000, bytes: 512, is_last: true };
    let bytes = encoded(Dialect::Structured, body);
    assert_eq!(bytes[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
    assert_eq!(bytes[16..20], 520u32.to_be_bytes());
    assert_eq!(bytes[20..], 0x3000u64.to_be_bytes());
    let bytes = encoded(Dialect::Extended, body);
    assert_eq!(bytes[..8], [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 1]);
    assert_eq!(bytes[16..24], 0x2000u64.to_be_bytes(), "the request's offset");
    assert_eq!(bytes[24..32], 520u64.to_be_bytes());
    assert_eq!(bytes[32..], 0x3000u64.to_be_bytes());
}

#[test]
fn only_the_last_part_says_so() {
    for (is_last, flags) in [(false, 0), (true, 1)] {
        let data = encoded(Dialect::Structured, ReplyBody::Data { offset: 0, bytes: 1, is_last });
        assert_eq!(data[4..6], [0, flags]);
    }
}

#[test]
fn an_error_part_holds_code_text_and_offset_within_its_length() {
    for message in ["", "short", &"x".repeat(64), &"ä".repeat(100)] {
        for offset in [None, Some(0x4000)] {
            let body = ReplyBody::Error {
                error: NbdError::Io,
                message: Box::leak(message.to_owned().into_boxed_str()),
                offset,
                is_last: true,
            };
            let bytes = encoded(Dialect::Structured, body);
            let text_bytes = message.len().min(64);
            let fixed = if offset.is_some() { 14 } else { 6 };
            assert_eq!(bytes.len(), 20 + fixed + text_bytes);
            assert_eq!(bytes[6..8], [0x80, if offset.is_some() { 2 } else { 1 }]);
            assert_eq!(bytes[16..20], u32::try_from(fixed + text_bytes).unwrap().to_be_bytes());
            assert_eq!(bytes[20..24], [0, 0, 0, 5]);
            assert_eq!(usize::from(bytes[25]), text_bytes);
        }
    }
}

#[test]
fn allocation_runs_become_descriptors() {
    let runs = [
        AllocationRun { bytes: 4096, is_written: true },
        AllocationRun { bytes: 8192, is_written: false },
    ];
    let mut out = vec![0; status_bytes(Dialect::Structured, 2)];
    encode_status(Dialect::Structured, &runs, &mut out);
    assert_eq!(out, [0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 3]);
    let mut out = vec![0; status_bytes(Dialect::Extended, 2)];
    encode_status(Dialect::Extended, &runs, &mut out);
    assert_eq!(out[..8], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(out[32..40], 3u64.to_be_bytes());
}
