//! The handshake as pure code: one option in, replies and a decision out.
//!
//! What must stay true: every option other than EXPORT_NAME gets exactly one final reply. No input
//! causes a panic or allocates more than its replies need. A session is entered only with a volume
//! that [`Exports::open`] gave for the client's name. Not here: reading and writing the socket, and
//! the limits on time, count and length (`session`); the bytes of options and replies (`options`).

use crate::Exports;
use crate::options::{
    ALLOCATION_CONTEXT, FIXED_NEWSTYLE, NO_ZEROES, Replies, decode_contexts, decode_info, info,
    name, option, reply,
};
use crate::reply::ALLOCATION_CONTEXT_ID;
use crate::wire::Dialect;
use ashlar_volume::{Volume, VolumeFacts};

/// Longest read or write that the server takes, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// What was agreed on when the transmission phase begins.
#[derive(Debug)]
pub struct Agreement<V> {
    /// The volume asked for.
    pub volume: V,
    /// Its facts as announced; a later resize is seen by later sessions.
    pub facts: VolumeFacts,
    /// Which headers follow.
    pub dialect: Dialect,
    /// Whether the client may ask for the allocation map.
    pub has_allocation_context: bool,
}

/// What to do after the replies to an option were sent.
#[derive(Debug)]
pub enum Step<V> {
    /// Read the next option.
    Continue,
    /// The client wanted to leave.
    Leave,
    /// Drop the connection: the protocol has no reply for this.
    Drop(&'static str),
    /// The TLS handshake follows. What was negotiated before it is void.
    StartTls,
    /// The transmission phase begins.
    Transmit(Box<Agreement<V>>),
}

/// What protects the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing, and nothing is offered.
    None,
    /// Nothing yet: nothing but TLS can be asked for.
    TlsDemanded,
    /// TLS.
    Tls,
}

/// What the client has chosen so far.
#[derive(Debug)]
pub struct Negotiation {
    protection: Protection,
    no_zeroes: bool,
    dialect: Dialect,
    /// The name under which `base:allocation` was selected.
    allocation_name: Option<String>,
}

impl Negotiation {
    /// Begin with the client's flags; `None` if they ask for what this server does not know.
    pub fn new(client_flags: u32) -> Option<Negotiation> {
        let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
        (client_flags & !known == 0).then_some(Negotiation {
            protection: Protection::None,
            no_zeroes: client_flags & u32::from(NO_ZEROES) != 0,
            dialect: Dialect::Simple,
            allocation_name: None,
        })
    }

    /// The same on a connection that is, or must be, protected.
    pub fn under(self, protection: Protection) -> Negotiation {
        Negotiation { protection, ..self }
    }

    /// Answer one option: append the replies to `out` and decide how to go on.
    pub fn answer<E: Exports>(
        &mut self,
        exports: &E,
        number: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<E::Volume> {
        let mut replies = Replies { number, out };
        if self.protection == Protection::TlsDemanded {
            return before_tls(data, &mut replies);
        }
        match number {
            option::EXPORT_NAME => return self.export_name(exports, data, replies.out),
            option::ABORT => {
                replies.put(reply::ACK, &[]);
                return Step::Leave;
            }
            option::INFO | option::GO => return self.info(exports, data, &mut replies),
            option::LIST_META_CONTEXT => self.list_contexts(exports, data, &mut replies),
            option::SET_META_CONTEXT => self.set_contexts(exports, data, &mut replies),
            option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY
            | option::EXTENDED_HEADERS
                if !data.is_empty() =>
            {
                replies.put(reply::INVALID, b"this option takes no data");
            }
            option::LIST => list(exports, &mut replies),
            option::STARTTLS if self.protection == Protection::Tls => {
                replies.put(reply::INVALID, b"this is TLS already");
            }
            option::STARTTLS => replies.put(reply::POLICY, b"TLS is not offered here"),
            option::STRUCTURED_REPLY if self.dialect == Dialect::Extended => {
                replies.put(reply::EXTENDED_REQUIRED, b"extended headers are in use");
            }
            option::STRUCTURED_REPLY => {
                self.dialect = Dialect::Structured;
                replies.put(reply::ACK, &[]);
            }
            option::EXTENDED_HEADERS => {
                self.dialect = Dialect::Extended;
                replies.put(reply::ACK, &[]);
            }
            _ => replies.put(reply::UNSUPPORTED, b"unknown option"),
        }
        Step::Continue
    }

    fn export_name<E: Exports>(
        &self,
        exports: &E,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<E::Volume> {
        if self.dialect == Dialect::Extended {
            return Step::Drop("EXPORT_NAME after extended headers");
        }
        let Some(name) = name(data) else { return Step::Drop("not a name") };
        let Some(volume) = exports.open(name) else { return Step::Drop("no such volume") };
        let facts = volume.facts();
        out.extend(facts.size_bytes.to_be_bytes());
        out.extend(transmission_flags(&facts, self.dialect).to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        self.transmit(name, volume, facts)
    }

    fn info<E: Exports>(
        &self,
        exports: &E,
        data: &[u8],
        replies: &mut Replies<'_>,
    ) -> Step<E::Volume> {
        let Some((name, wanted)) = decode_info(data) else {
            replies.put(reply::INVALID, b"malformed name or list");
            return Step::Continue;
        };
        let Some(volume) = exports.open(name) else {
            replies.put(reply::UNKNOWN, b"no such volume");
            return Step::Continue;
        };
        let facts = volume.facts();
        let mut export = facts.size_bytes.to_be_bytes().to_vec();
        export.extend(transmission_flags(&facts, self.dialect).to_be_bytes());
        replies.info(info::EXPORT, &export);
        if wanted.contains(&info::NAME) {
            replies.info(info::NAME, facts.name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) {
            replies.info(info::DESCRIPTION, description(&facts).as_bytes());
        }
        if wanted.contains(&info::BLOCK_SIZE) {
            let sizes = block_sizes(&facts).map(u32::to_be_bytes);
            replies.info(info::BLOCK_SIZE, sizes.as_flattened());
        }
        replies.put(reply::ACK, &[]);
        match replies.number {
            option::GO => self.transmit(name, volume, facts),
            _ => Step::Continue,
        }
    }

    fn transmit<V>(&self, name: &str, volume: V, facts: VolumeFacts) -> Step<V> {
        Step::Transmit(Box::new(Agreement {
            volume,
            facts,
            dialect: self.dialect,
            has_allocation_context: self.allocation_name.as_deref() == Some(name),
        }))
    }

    fn list_contexts<E: Exports>(&self, exports: &E, data: &[u8], replies: &mut Replies<'_>) {
        let Some((name, queries)) = self.contexts(data, replies) else { return };
        if exports.open(name).is_none() {
            return replies.put(reply::UNKNOWN, b"no such volume");
        }
        let matches = |query: &&str| ["base:", ALLOCATION_CONTEXT].contains(query);
        if queries.is_empty() || queries.iter().any(matches) {
            replies.context(0);
        }
        replies.put(reply::ACK, &[]);
    }

    fn set_contexts<E: Exports>(&mut self, exports: &E, data: &[u8], replies: &mut Replies<'_>) {
        self.allocation_name = None;
        let Some((name, queries)) = self.contexts(data, replies) else { return };
        if exports.open(name).is_none() {
            return replies.put(reply::UNKNOWN, b"no such volume");
        }
        if queries.contains(&ALLOCATION_CONTEXT) {
            self.allocation_name = Some(name.to_owned());
            replies.context(ALLOCATION_CONTEXT_ID);
        }
        replies.put(reply::ACK, &[]);
    }

    /// The name and the queries of a metadata option, or an error reply.
    fn contexts<'a>(
        &self,
        data: &'a [u8],
        replies: &mut Replies<'_>,
    ) -> Option<(&'a str, Vec<&'a str>)> {
        if !self.dialect.has_parts() {
            replies.put(reply::INVALID, b"structured replies come first");
            return None;
        }
        let decoded = decode_contexts(data);
        if decoded.is_none() {
            replies.put(reply::INVALID, b"malformed name or queries");
        }
        decoded
    }
}

/// Answer an option of a client that must start TLS first: it learns nothing but that.
fn before_tls<V>(data: &[u8], replies: &mut Replies<'_>) -> Step<V> {
    match replies.number {
        option::STARTTLS if data.is_empty() => {
            replies.put(reply::ACK, &[]);
            return Step::StartTls;
        }
        option::STARTTLS => replies.put(reply::INVALID, b"this option takes no data"),
        option::ABORT => {
            replies.put(reply::ACK, &[]);
            return Step::Leave;
        }
        option::EXPORT_NAME => {
            return Step::Drop("EXPORT_NAME in clear text where TLS is demanded");
        }
        _ => replies.put(reply::TLS_REQUIRED, b"TLS comes first"),
    }
    Step::Continue
}

fn list<E: Exports>(exports: &E, replies: &mut Replies<'_>) {
    for name in exports.names() {
        replies.server(&name);
    }
    replies.put(reply::ACK, &[]);
}

/// The transmission flags of a volume.
fn transmission_flags(facts: &VolumeFacts, dialect: Dialect) -> u16 {
    const HAS_FLAGS: u16 = 1 << 0;
    const READ_ONLY: u16 = 1 << 1;
    const SEND_FLUSH: u16 = 1 << 2;
    const SEND_FUA: u16 = 1 << 3;
    const SEND_TRIM: u16 = 1 << 5;
    const SEND_WRITE_ZEROES: u16 = 1 << 6;
    const SEND_DF: u16 = 1 << 7;
    const CAN_MULTI_CONN: u16 = 1 << 8;
    const SEND_CACHE: u16 = 1 << 10;
    const SEND_FAST_ZERO: u16 = 1 << 11;
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
    flags |=
        if facts.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
    if dialect.has_parts() {
        flags |= SEND_DF;
    }
    flags
}

/// Smallest, preferred and largest request, in bytes. The preferred one is a full stripe where the
/// protocol can say so: it wants a power of two.
fn block_sizes(facts: &VolumeFacts) -> [u32; 3] {
    let smallest = facts.logical_block_bytes;
    let floor = smallest.max(facts.physical_block_bytes).max(512);
    let is_usable = facts.optimal_bytes.is_power_of_two()
        && (floor..=PAYLOAD_BYTES_MAX).contains(&facts.optimal_bytes);
    [smallest, if is_usable { facts.optimal_bytes } else { floor }, PAYLOAD_BYTES_MAX]
}

fn description(facts: &VolumeFacts) -> String {
    let uuid: String = facts.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("Ashlar volume of array {uuid}, {} MiB", facts.size_bytes >> 20)
}
