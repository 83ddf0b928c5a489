//! The bytes of the handshake: the greeting, options as a client sends them, and the replies to
//! them.
//!
//! What must stay true: pure; what a client sent is taken apart without trusting any length in it,
//! and nothing is allocated for what is not there. Not here: what is answered (`negotiate`).

const NBD_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Flag of the greeting, and of the answer to it: options are negotiated.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Flag of both: nothing is sent after the answer to EXPORT_NAME.
pub const NO_ZEROES: u16 = 2;

/// Longest name, in bytes; the protocol's limit for any string.
const NAME_BYTES_MAX: usize = 4096;

/// Length of an option's header in bytes.
pub const OPTION_HEADER_BYTES: usize = 16;

/// The one metadata context that there is: which blocks were ever written.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// Numbers of options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of replies to options; errors have the highest bit.
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub const POLICY: u32 = 1 << 31 | 2;
    pub const INVALID: u32 = 1 << 31 | 3;
    pub const TLS_REQUIRED: u32 = 1 << 31 | 5;
    pub const UNKNOWN: u32 = 1 << 31 | 6;
    pub const EXTENDED_REQUIRED: u32 = 1 << 31 | 10;
}

/// Kinds of what INFO and GO tell.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// What the server says first.
pub fn greeting() -> Vec<u8> {
    let mut out = Vec::with_capacity(18);
    out.extend(NBD_MAGIC.to_be_bytes());
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    out
}

/// Decode an option's header into its number and the length of its data in bytes.
/// `None` if it does not begin with the magic.
pub fn decode_option_header(bytes: [u8; OPTION_HEADER_BYTES]) -> Option<(u32, u32)> {
    let mut reader = Reader { rest: &bytes };
    let magic = u64::from_be_bytes(reader.take(8)?.try_into().ok()?);
    (magic == OPTION_MAGIC).then_some(())?;
    Some((reader.u32()?, reader.u32()?))
}

/// Collects option replies.
pub struct Replies<'a> {
    /// The option that they are for.
    pub number: u32,
    /// Where they are appended.
    pub out: &'a mut Vec<u8>,
}

impl Replies<'_> {
    /// A reply of this kind.
    pub fn put(&mut self, kind: u32, data: &[u8]) {
        self.out.extend(REPLY_MAGIC.to_be_bytes());
        self.out.extend(self.number.to_be_bytes());
        self.out.extend(kind.to_be_bytes());
        self.out.extend(length(data.len()).to_be_bytes());
        self.out.extend(data);
    }

    /// A piece of what INFO and GO tell.
    pub fn info(&mut self, kind: u16, data: &[u8]) {
        let mut all = kind.to_be_bytes().to_vec();
        all.extend(data);
        self.put(reply::INFO, &all);
    }

    /// The name of a volume.
    pub fn server(&mut self, name: &str) {
        let mut data = length(name.len()).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        self.put(reply::SERVER, &data);
    }

    /// The allocation context, under this number.
    pub fn context(&mut self, id: u32) {
        let mut data = id.to_be_bytes().to_vec();
        data.extend(ALLOCATION_CONTEXT.as_bytes());
        self.put(reply::META_CONTEXT, &data);
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("replies are short")
}

/// The name and the kinds of information that INFO and GO ask for.
pub fn decode_info(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut reader = Reader { rest: data };
    let name = reader.string()?;
    let count = reader.u16()?;
    (reader.rest.len() == usize::from(count) * 2).then_some(())?;
    let wanted = std::iter::from_fn(|| reader.u16()).collect();
    Some((name, wanted))
}

/// The name and the queries of a metadata option.
pub fn decode_contexts(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut reader = Reader { rest: data };
    let name = reader.string()?;
    let count = reader.u32()?;
    let mut queries = Vec::new();
    // Each query takes four bytes at least: a large count ends with the data, not with the memory.
    for _ in 0..count {
        queries.push(reader.string()?);
    }
    reader.rest.is_empty().then_some((name, queries))
}

/// A name, if it is text of a length that the protocol allows.
pub fn name(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    (bytes.len() <= NAME_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// Takes fields off the front of an option's data.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(front)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A 32-bit length and that many bytes of text.
    fn string(&mut self) -> Option<&'a str> {
        let bytes = self.u32()?;
        name(self.take(ashlar_units::to_usize(u64::from(bytes)))?)
    }
}
