//! The handshake: honest clients, every truncation of what they send, floods and wrong orders.

use crate::negotiate::{Negotiation, Protection, Step};
use crate::options::{decode_option_header, greeting};
use crate::wire::Dialect;
use crate::{Exports, OneExport};
use ashlar_volume::{MemVolume, Volume};
use proptest::prelude::{any, prop_assert, proptest};

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const CONTEXT: u32 = 4;
const UNSUPPORTED: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const TLS_REQUIRED: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const EXTENDED_REQUIRED: u32 = 0x8000_000a;

#[derive(Clone)]
struct Two(MemVolume, MemVolume);

impl Exports for Two {
    type Volume = MemVolume;

    fn names(&self) -> Vec<String> {
        vec!["alpha".into(), "beta".into()]
    }

    fn open(&self, name: &str) -> Option<MemVolume> {
        match name {
            "alpha" => Some(self.0.clone()),
            "beta" => Some(self.1.clone()),
            _ => None,
        }
    }
}

fn two() -> Two {
    Two(MemVolume::new("alpha", 1 << 20), MemVolume::new("beta", 2 << 20))
}

fn string(text: &str) -> Vec<u8> {
    let mut out = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut out = string(name);
    out.extend(u16::try_from(wanted.len()).unwrap().to_be_bytes());
    out.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    out
}

fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut out = string(name);
    out.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    out.extend(queries.iter().flat_map(|query| string(query)));
    out
}

/// Replies as kind and data.
type Replies = Vec<(u32, Vec<u8>)>;

/// A client: sends options and takes the replies apart.
struct Client<E> {
    exports: E,
    negotiation: Negotiation,
}

impl<E: Exports> Client<E> {
    fn new(exports: E) -> Client<E> {
        Client { exports, negotiation: Negotiation::new(3).unwrap() }
    }

    fn send(&mut self, option: u32, data: &[u8]) -> (Replies, Step<E::Volume>) {
        let mut out = Vec::new();
        let step = self.negotiation.answer(&self.exports, option, data, &mut out);
        let mut replies = Vec::new();
        let mut rest = &out[..];
        while !rest.is_empty() && option != 1 {
            assert_eq!(rest[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            assert_eq!(rest[8..12], option.to_be_bytes());
            let kind = u32::from_be_bytes(rest[12..16].try_into().unwrap());
            let bytes = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
            replies.push((kind, rest[20..20 + bytes].to_vec()));
            rest = &rest[20 + bytes..];
        }
        if option == 1 {
            replies.push((0, out));
        }
        (replies, step)
    }

    fn kinds(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.send(option, data).0.into_iter().map(|(kind, _)| kind).collect()
    }
}

#[test]
fn the_greeting_offers_fixed_newstyle_without_zeroes() {
    assert_eq!(greeting(), b"NBDMAGICIHAVEOPT\0\x03");
    assert!(Negotiation::new(0).is_some());
    assert!(Negotiation::new(4).is_none(), "a flag that was not offered");
}

#[test]
fn go_enters_transmission_with_the_volume_that_was_named() {
    let mut client = Client::new(two());
    let (replies, step) = client.send(7, &info_data("beta", &[1, 2, 3, 99]));
    let kinds: Vec<_> = replies.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [INFO, INFO, INFO, INFO, ACK]);
    assert_eq!(replies[0].1[..10], [&[0, 0][..], &(2u64 << 20).to_be_bytes()].concat());
    assert_eq!(replies[1].1, b"\0\x01beta");
    let sizes: Vec<u8> =
        [512u32, 65_536, 32 << 20].into_iter().flat_map(u32::to_be_bytes).collect();
    assert_eq!(replies[3].1, [&[0, 3][..], &sizes].concat());
    let Step::Transmit(agreed) = step else { panic!("GO was acknowledged") };
    assert_eq!(agreed.volume.facts().name, "beta");
    assert_eq!(agreed.dialect, Dialect::Simple);
    assert!(!agreed.has_allocation_context);
}

#[test]
fn info_tells_the_same_and_stays_in_the_handshake() {
    let mut client = Client::new(two());
    let (replies, step) = client.send(6, &info_data("alpha", &[3]));
    assert!(matches!(step, Step::Continue));
    let (again, _) = client.send(7, &info_data("alpha", &[3]));
    assert_eq!(replies, again);
}

#[test]
fn unknown_names_are_told_or_end_the_connection() {
    let mut client = Client::new(two());
    assert_eq!(client.kinds(7, &info_data("gamma", &[])), [UNKNOWN]);
    assert_eq!(client.kinds(7, &info_data("", &[])), [UNKNOWN], "two volumes have no default");
    assert!(matches!(client.send(1, b"gamma").1, Step::Drop(_)));
    let mut client = Client::new(OneExport(MemVolume::new("only", 4096)));
    assert!(matches!(client.send(7, &info_data("", &[])).1, Step::Transmit(_)));
}

#[test]
fn export_name_has_a_bare_reply() {
    let mut client = Client::new(two());
    let (replies, step) = client.send(1, b"alpha");
    assert_eq!(replies[0].1.len(), 10);
    assert!(matches!(step, Step::Transmit(_)));
    let mut client = Client { exports: two(), negotiation: Negotiation::new(1).unwrap() };
    assert_eq!(client.send(1, b"alpha").0[0].1.len(), 10 + 124);
}

#[test]
fn list_names_every_volume() {
    let (replies, _) = Client::new(two()).send(3, &[]);
    assert_eq!(replies, [(SERVER, string("alpha")), (SERVER, string("beta")), (ACK, vec![])]);
}

#[test]
fn where_tls_is_demanded_nothing_else_can_be_asked_for_before_it() {
    let negotiation = Negotiation::new(3).unwrap().under(Protection::TlsDemanded);
    let mut client = Client { exports: two(), negotiation };
    for option in (3..=11).filter(|&option| option != 5).chain([0, 1000, u32::MAX]) {
        for data in [&[][..], b"x", &info_data("alpha", &[3])] {
            let (replies, step) = client.send(option, data);
            let [(kind, text)] = &replies[..] else { panic!("one reply to option {option}") };
            assert_eq!(*kind, TLS_REQUIRED, "option {option}");
            assert!(!text.windows(5).any(|it| it == b"alpha"), "no name leaves");
            assert!(matches!(step, Step::Continue));
        }
    }
    assert!(matches!(client.send(1, b"alpha").1, Step::Drop(_)));
    assert_eq!(client.kinds(5, b"x"), [INVALID]);
    let (replies, step) = client.send(5, &[]);
    assert_eq!(replies, [(ACK, vec![])]);
    assert!(matches!(step, Step::StartTls));
    let (replies, step) = client.send(2, &[]);
    assert_eq!(replies, [(ACK, vec![])]);
    assert!(matches!(step, Step::Leave));
}

#[test]
fn under_tls_everything_is_as_without_and_tls_does_not_start_twice() {
    let negotiation = Negotiation::new(3).unwrap().under(Protection::Tls);
    let mut client = Client { exports: two(), negotiation };
    assert_eq!(client.kinds(5, &[]), [INVALID]);
    assert_eq!(client.kinds(3, &[]), [SERVER, SERVER, ACK]);
    assert!(matches!(client.send(7, &info_data("beta", &[])).1, Step::Transmit(_)));
}

#[test]
fn refusals_are_replies_and_the_handshake_goes_on() {
    let mut client = Client::new(two());
    assert_eq!(client.kinds(5, &[]), [POLICY]);
    for option in [3, 5, 8, 11] {
        assert_eq!(client.kinds(option, b"x"), [INVALID], "option {option} takes no data");
    }
    for option in [0, 4, 12, 1000, u32::MAX] {
        assert_eq!(client.kinds(option, b"any"), [UNSUPPORTED], "option {option}");
    }
    let (replies, step) = client.send(2, b"ignored");
    assert_eq!(replies, [(ACK, vec![])]);
    assert!(matches!(step, Step::Leave));
}

#[test]
fn contexts_need_structured_replies_first() {
    let mut client = Client::new(two());
    let data = context_data("alpha", &["base:allocation"]);
    assert_eq!(client.kinds(9, &data), [INVALID]);
    assert_eq!(client.kinds(10, &data), [INVALID]);
    assert_eq!(client.kinds(8, &[]), [ACK]);
    assert_eq!(client.kinds(9, &data), [CONTEXT, ACK]);
    assert_eq!(client.kinds(10, &data), [CONTEXT, ACK]);
    let Step::Transmit(agreed) = client.send(7, &info_data("alpha", &[])).1 else { panic!() };
    assert!(agreed.has_allocation_context);
    assert_eq!(agreed.dialect, Dialect::Structured);
}

#[test]
fn a_context_holds_only_for_its_volume_and_until_the_next_set() {
    for (set, go) in [
        (vec![("alpha", vec!["base:allocation"])], "beta"),
        (vec![("alpha", vec!["base:allocation"]), ("alpha", vec![])], "alpha"),
        (vec![("alpha", vec!["base:allocation"]), ("gamma", vec!["base:allocation"])], "alpha"),
        (vec![("alpha", vec!["base:", "base:depth", "qemu:dirty"])], "alpha"),
    ] {
        let mut client = Client::new(two());
        client.send(8, &[]);
        for (name, queries) in &set {
            client.send(10, &context_data(name, queries));
        }
        let Step::Transmit(agreed) = client.send(7, &info_data(go, &[])).1 else { panic!() };
        assert!(!agreed.has_allocation_context, "{set:?} then {go}");
    }
}

#[test]
fn listing_contexts_knows_the_wildcard_and_no_query() {
    let mut client = Client::new(two());
    client.send(8, &[]);
    for (queries, found) in
        [(vec![], true), (vec!["base:"], true), (vec!["other:x"], false), (vec!["base:x"], false)]
    {
        let kinds = client.kinds(9, &context_data("alpha", &queries));
        assert_eq!(kinds.contains(&CONTEXT), found, "{queries:?}");
        assert_eq!(kinds.last(), Some(&ACK));
    }
}

#[test]
fn extended_headers_exclude_what_the_protocol_excludes() {
    let mut client = Client::new(two());
    assert_eq!(client.kinds(11, &[]), [ACK]);
    assert_eq!(client.kinds(8, &[]), [EXTENDED_REQUIRED]);
    assert!(matches!(client.send(1, b"alpha").1, Step::Drop(_)));
    let Step::Transmit(agreed) = client.send(7, &info_data("alpha", &[])).1 else { panic!() };
    assert_eq!(agreed.dialect, Dialect::Extended);
}

#[test]
fn read_only_volumes_do_not_offer_changes() {
    let volume = MemVolume::new("alpha", 4096);
    volume.set_read_only();
    let (replies, _) = Client::new(OneExport(volume)).send(6, &info_data("alpha", &[]));
    let flags = u16::from_be_bytes(replies[0].1[10..12].try_into().unwrap());
    assert_eq!(flags & 0b10, 0b10);
    assert_eq!(flags & (1 << 5 | 1 << 6 | 1 << 11), 0);
}

#[test]
fn every_truncation_and_every_excess_of_structured_data_is_invalid() {
    let info = info_data("alpha", &[3, 1]);
    let context = context_data("alpha", &["base:allocation", "base:"]);
    for (option, good) in [(6, &info), (7, &info), (9, &context), (10, &context)] {
        for end in 0..good.len() {
            let mut client = Client::new(two());
            client.send(8, &[]);
            assert_eq!(client.kinds(option, &good[..end]), [INVALID], "option {option} at {end}");
        }
        let mut client = Client::new(two());
        client.send(8, &[]);
        let long = [&good[..], b"\0"].concat();
        assert_eq!(client.kinds(option, &long), [INVALID], "option {option} with excess");
    }
}

#[test]
fn names_that_are_not_text_are_refused() {
    let mut client = Client::new(two());
    for name in [&b"\xff\xfe"[..], b"al\0ha", &[b'a'; 4097]] {
        let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
        data.extend(name);
        data.extend([0, 0]);
        assert_eq!(client.kinds(7, &data), [INVALID]);
        assert!(matches!(client.send(1, name).1, Step::Drop(_)));
    }
}

#[test]
fn lengths_and_counts_beyond_the_data_do_not_allocate() {
    let mut client = Client::new(two());
    client.send(8, &[]);
    let mut counts = string("alpha");
    counts.extend(u32::MAX.to_be_bytes());
    assert_eq!(client.kinds(10, &counts), [INVALID]);
    assert_eq!(client.kinds(7, &u32::MAX.to_be_bytes()), [INVALID]);
}

#[test]
fn option_headers_need_their_magic() {
    let mut header = *b"IHAVEOPT\0\0\0\x07\0\0\x10\0";
    assert_eq!(decode_option_header(header), Some((7, 4096)));
    for at in 0..8 {
        header[at] ^= 0x20;
        assert_eq!(decode_option_header(header), None, "byte {at}");
        header[at] ^= 0x20;
    }
}

proptest! {
    #[test]
    fn no_option_data_makes_it_panic_or_reply_twice(
        options in proptest::collection::vec(
            (0u32..13, proptest::collection::vec(any::<u8>(), 0..80)),
            1..8,
        )
    ) {
        let mut client = Client::new(two());
        for (option, data) in options {
            let (replies, step) = client.send(option, &data);
            if option != 1 && matches!(step, Step::Continue) {
                let is_final = |kind: u32| kind == ACK || kind >= 1 << 31;
                prop_assert!(replies.iter().filter(|(kind, _)| is_final(*kind)).count() == 1);
                prop_assert!(is_final(replies.last().unwrap().0));
            }
        }
    }
}
