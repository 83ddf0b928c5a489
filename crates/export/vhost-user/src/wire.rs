//! The bytes between a virtual machine's program (the frontend) and us (the backend).
//!
//! What must stay true: everything here is pure and total; integers are in the machine's own order,
//! as both sides run on it. Numbers and layouts are those of the vhost-user protocol as QEMU's
//! documents describe it. Messages that are not here are not spoken.

use ashlar_units::{to_u64, to_usize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a message's header.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// Longest content of a message: room for what newer frontends may add to those known.
pub const CONTENT_BYTES_MAX: usize = 1024;
/// Descriptors beside one message at most: one for each region of memory.
pub const REGIONS_MAX: usize = 8;

/// What begins every message.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// See [`ask`].
    pub request: u32,
    /// Version in the two lowest bits, then those of [`flag`].
    pub flags: u32,
    /// How many bytes follow.
    pub bytes: u32,
}

/// Flags of a header.
pub mod flag {
    /// The only version.
    pub const VERSION: u32 = 1;
    /// The bits of the version.
    pub const VERSION_MASK: u32 = 0b11;
    /// A reply.
    pub const REPLY: u32 = 1 << 2;
    /// The sender waits until the message was obeyed.
    pub const NEEDS_REPLY: u32 = 1 << 3;
}

/// What a frontend asks.
pub mod ask {
    /// What the device can do.
    pub const GET_FEATURES: u32 = 1;
    /// What the driver uses of it.
    pub const SET_FEATURES: u32 = 2;
    /// The frontend begins.
    pub const SET_OWNER: u32 = 3;
    /// The frontend ends (no longer used).
    pub const RESET_OWNER: u32 = 4;
    /// The guest's memory.
    pub const SET_MEMORY: u32 = 5;
    /// How many entries a ring has.
    pub const SET_RING_ENTRIES: u32 = 8;
    /// Where a ring is.
    pub const SET_RING_ADDRESSES: u32 = 9;
    /// Where in a ring to begin.
    pub const SET_RING_BASE: u32 = 10;
    /// Stop a ring; where it stopped.
    pub const GET_RING_BASE: u32 = 11;
    /// The eventfd that says that a ring has requests.
    pub const SET_RING_KICK: u32 = 12;
    /// The eventfd that says that a ring has answers.
    pub const SET_RING_CALL: u32 = 13;
    /// The eventfd that says that a ring is broken.
    pub const SET_RING_ERROR: u32 = 14;
    /// Which parts of the protocol we speak.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// Which of them the frontend speaks.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// How many rings there may be.
    pub const GET_QUEUE_COUNT: u32 = 17;
    /// Serve a ring, or do not.
    pub const SET_RING_ENABLED: u32 = 18;
    /// The socket at which the frontend hears notices.
    pub const SET_BACKEND_CHANNEL: u32 = 21;
    /// What the device says of itself.
    pub const GET_CONFIG: u32 = 24;
    /// What the driver says to it.
    pub const SET_CONFIG: u32 = 25;
    /// Memory for what is under way.
    pub const GET_IN_FLIGHT: u32 = 31;
    /// The same, brought back.
    pub const SET_IN_FLIGHT: u32 = 32;
}

/// What we tell a frontend unasked.
pub mod notice {
    /// The configuration is another one.
    pub const CONFIG_CHANGED: u32 = 2;
}

/// Parts of the protocol.
pub mod protocol {
    /// Several rings.
    pub const MULTI_QUEUE: u64 = 1 << 0;
    /// A frontend may wait until a message was obeyed.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// We may tell the frontend something: see [`notice`](super::notice).
    pub const NOTICES: u64 = 1 << 5;
    /// Configuration is read and written by messages.
    pub const CONFIG: u64 = 1 << 9;
    /// The frontend keeps what is under way.
    pub const IN_FLIGHT: u64 = 1 << 12;

    /// What is spoken here.
    pub const SPOKEN: u64 = MULTI_QUEUE | REPLY_ACK | NOTICES | CONFIG | IN_FLIGHT;
}

/// A number about a ring.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RingNumber {
    /// Which ring.
    pub ring: u32,
    /// The number.
    pub number: u32,
}

/// Where a ring is, as addresses of the frontend's process.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RingAddresses {
    /// Which ring.
    pub ring: u32,
    /// Logging, which is not spoken here.
    pub flags: u32,
    /// The table of descriptors.
    pub descriptors: u64,
    /// Answers.
    pub used: u64,
    /// Requests.
    pub available: u64,
    /// Not used.
    pub log: u64,
}

/// A ring's number beside a descriptor: number in the low byte.
pub const RING_MASK: u64 = 0xff;
/// There is no descriptor.
pub const NO_DESCRIPTOR: u64 = 1 << 8;

/// One region of the guest's memory.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// Where the guest has it.
    pub guest: u64,
    /// How long it is.
    pub bytes: u64,
    /// Where the frontend has it.
    pub user: u64,
    /// Where it begins in the file that comes with it.
    pub offset: u64,
}

/// The head of a message about configuration; the bytes follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConfigHead {
    /// From which byte on.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Zero, or that this is a migration.
    pub flags: u32,
}

/// Memory for what is under way.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct InFlightPlace {
    /// How long it is.
    pub bytes: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// For how many rings.
    pub queues: u16,
    /// Entries of the longest ring.
    pub entries: u16,
    /// Some frontends send it, and some do not.
    pub padding: [u8; 4],
}

/// Length of [`InFlightPlace`] without padding.
const IN_FLIGHT_BYTES_LEAST: usize = 20;

const _: () = assert!(HEADER_BYTES == 12);
const _: () = assert!(size_of::<RingAddresses>() == 40);
const _: () = assert!(size_of::<Region>() == 32);
const _: () = assert!(size_of::<ConfigHead>() == 12);
const _: () = assert!(size_of::<InFlightPlace>() == 24);

/// How many bytes of content follow this header; `None` if no message of ours begins so.
pub fn content_bytes(header: &Header) -> Option<usize> {
    let is_ours = header.flags & flag::VERSION_MASK == flag::VERSION;
    let is_asked = header.flags & flag::REPLY == 0;
    let bytes = to_usize(u64::from(header.bytes));
    (is_ours && is_asked && bytes <= CONTENT_BYTES_MAX).then_some(bytes)
}

/// The content as a `T`; `None` if it has another length.
pub fn content<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}

/// The regions of a [`ask::SET_MEMORY`]; `None` if that is not what it is.
pub fn regions(bytes: &[u8]) -> Option<Vec<Region>> {
    let (count, rest) = u32::read_from_prefix(bytes).ok()?;
    let (_padding, rest) = u32::read_from_prefix(rest).ok()?;
    let count = usize::try_from(count).ok().filter(|count| *count <= REGIONS_MAX)?;
    let (parts, left) = rest.as_chunks::<{ size_of::<Region>() }>();
    let is_whole = left.is_empty() && parts.len() >= count;
    is_whole.then(|| parts[..count].iter().filter_map(|part| content(part)).collect())
}

/// The place of a [`ask::GET_IN_FLIGHT`] or [`ask::SET_IN_FLIGHT`].
pub fn in_flight_place(bytes: &[u8]) -> Option<InFlightPlace> {
    let mut whole = [0; size_of::<InFlightPlace>()];
    if bytes.len() < IN_FLIGHT_BYTES_LEAST || bytes.len() > whole.len() {
        return None;
    }
    whole[..bytes.len()].copy_from_slice(bytes);
    content(&whole)
}

/// A configuration message: its head, and the bytes that came with it.
pub fn config(bytes: &[u8]) -> Option<(ConfigHead, &[u8])> {
    let (head, rest) = ConfigHead::read_from_prefix(bytes).ok()?;
    (to_u64(rest.len()) == u64::from(head.bytes)).then_some((head, rest))
}

/// A reply to `request`.
///
/// # Panics
/// If the content is longer than [`CONTENT_BYTES_MAX`].
pub fn reply(request: u32, content: &[u8]) -> Vec<u8> {
    assert!(content.len() <= CONTENT_BYTES_MAX, "a reply of {} bytes", content.len());
    let bytes = u32::try_from(content.len()).expect("short");
    let header = Header { request, flags: flag::VERSION | flag::REPLY, bytes };
    [header.as_bytes(), content].concat()
}

/// A message without content to the frontend, which does not answer it: see [`mod@notice`].
pub fn notice(request: u32) -> Vec<u8> {
    Header { request, flags: flag::VERSION, bytes: 0 }.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{Region, config, in_flight_place, regions, reply};
    use zerocopy::IntoBytes;

    #[test]
    fn a_table_of_regions_is_whole_or_nothing() {
        let region = Region { guest: 1, bytes: 2, user: 3, offset: 4 };
        let table = |count: u32, regions: usize, more: usize| {
            let mut bytes = [count.to_ne_bytes(), [0; 4]].concat();
            (0..regions).for_each(|_| bytes.extend(region.as_bytes()));
            bytes.resize(bytes.len() + more, 0);
            bytes
        };
        assert_eq!(regions(&table(2, 2, 0)), Some(vec![region; 2]));
        assert_eq!(regions(&table(1, 8, 0)), Some(vec![region]), "of a fixed length");
        assert_eq!(regions(&table(0, 0, 0)), Some(Vec::new()));
        for (count, there, more) in [(2, 1, 0), (1, 1, 1), (9, 9, 0), (u32::MAX, 8, 0)] {
            assert_eq!(regions(&table(count, there, more)), None, "{count} {there} {more}");
        }
        assert_eq!(regions(&[1, 0, 0]), None);
    }

    #[test]
    fn configuration_and_places_have_their_lengths() {
        let head = |bytes: u32| [0, bytes, 0].map(u32::to_ne_bytes).concat();
        assert!(config(&[head(2), vec![1, 2]].concat()).is_some_and(|(_, rest)| rest == [1, 2]));
        assert!(config(&[head(3), vec![1, 2]].concat()).is_none());
        assert!(config(&head(u32::MAX)).is_none() && config(&[0; 11]).is_none());
        let (short, long) = (in_flight_place(&[1; 20]), in_flight_place(&[1; 24]));
        assert_eq!(short.map(|it| it.queues), Some(0x0101));
        assert_eq!(long.map(|it| it.queues), Some(0x0101));
        assert!(in_flight_place(&[1; 19]).is_none() && in_flight_place(&[1; 25]).is_none());
        assert_eq!(reply(1, &[9]), [1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 9]);
    }
}
