//! Requests as the kernel lays them out, whole and cut short.

use crate::wire::{HEAD_BYTES, IN_HEADER_BYTES, InHeader, InMessage, WriteIn};
use proptest::prelude::{any, prop_assert, proptest};
use zerocopy::IntoBytes;

fn request(body: &[u8]) -> (Vec<u8>, Vec<u8>, usize) {
    let bytes = IN_HEADER_BYTES + body.len();
    let header = InHeader {
        bytes: u32::try_from(bytes).unwrap(),
        opcode: 16,
        unique: 9,
        node: 2,
        uid: 0,
        gid: 0,
        pid: 0,
        extra: 0,
    };
    let mut head = [header.as_bytes(), body].concat();
    let rest = head.split_off(HEAD_BYTES.min(head.len()));
    head.resize(HEAD_BYTES, 0xee);
    (head, rest, bytes)
}

#[test]
fn a_write_ends_its_head_where_its_payload_begins() {
    let write = WriteIn {
        handle: 0,
        offset: 4096,
        bytes: 3,
        io_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    };
    let (head, rest, received) = request(&[write.as_bytes(), b"abc"].concat());
    assert_eq!(rest, b"abc");
    let message = InMessage::decode(&head, &rest, received).unwrap();
    assert_eq!(message.body::<WriteIn>().unwrap().offset, 4096);
    assert_eq!(message.payload_bytes(), 3);
}

#[test]
fn a_request_must_be_as_long_as_it_says() {
    let (head, rest, received) = request(&[7; 100]);
    assert!(InMessage::decode(&head, &rest, received).is_some());
    for wrong in (0..received).chain([received + 1, usize::MAX]) {
        assert!(InMessage::decode(&head, &rest, wrong).is_none(), "{wrong} bytes");
    }
}

#[test]
fn a_body_that_was_cut_short_is_not_read_from_what_follows() {
    for bytes in 0..40 {
        let (head, rest, received) = request(&vec![0; bytes]);
        let message = InMessage::decode(&head, &rest, received).unwrap();
        assert!(message.body::<WriteIn>().is_none(), "{bytes} of 40 bytes");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(
        head in proptest::collection::vec(any::<u8>(), HEAD_BYTES),
        rest in proptest::collection::vec(any::<u8>(), 0..64),
        received in 0usize..200,
    ) {
        if let Some(message) = InMessage::decode(&head, &rest, received) {
            prop_assert!(message.payload_bytes() <= rest.len());
        }
    }
}
