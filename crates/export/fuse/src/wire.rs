//! The bytes between the kernel's FUSE client and this server, protocol 7.31.
//!
//! What must stay true: everything here is pure and total; integers are in the machine's own order,
//! as both sides run on it. A request is decoded from the 80 bytes that always come first (40 of
//! header, and the first 40 of its body) and the rest that follows them. Not here: what a request
//! means (`server`, `files`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The minor version this server speaks: the first with `max_pages`-sized requests in all their
/// uses here.
pub const MINOR: u32 = 31;
/// Node of what is mounted: the file.
pub const ROOT_NODE: u64 = 1;

/// Length of a request's header in bytes.
pub const IN_HEADER_BYTES: usize = size_of::<InHeader>();
/// Length of a write's own header: with the request's header in front, payload begins behind it.
pub const WRITE_HEADER_BYTES: usize = size_of::<WriteIn>();
/// What is read apart from the payload: a write's payload then lands at the start of its own
/// buffer.
pub const HEAD_BYTES: usize = IN_HEADER_BYTES + WRITE_HEADER_BYTES;
/// Length of a reply's header in bytes.
pub const OUT_HEADER_BYTES: usize = size_of::<OutHeader>();

const _: () = assert!(HEAD_BYTES == 80);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<StatfsOut>() == 80);

/// Operation codes that this server answers, or must not answer.
pub mod opcode {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const LSEEK: u32 = 46;
}

/// Header of every request.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct InHeader {
    /// Length of the whole request in bytes.
    pub bytes: u32,
    /// See [`opcode`].
    pub opcode: u32,
    /// Given back in the reply.
    pub unique: u64,
    /// Which file.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// Who asks.
    pub gid: u32,
    /// Who asks.
    pub pid: u32,
    /// Length of extensions, and padding.
    pub extra: u32,
}

/// What a header without a request tells the kernel, in place of an error: put every request that
/// was read and not answered in front of the others, to be read again.
pub const NOTIFY_AGAIN: i32 = 7;

/// Header of every reply.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct OutHeader {
    /// Length of the whole reply in bytes.
    pub bytes: u32,
    /// 0, or a negative errno.
    pub error: i32,
    /// The request's.
    pub unique: u64,
}

/// Body of INIT.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct InitIn {
    /// The kernel's version.
    pub major: u32,
    /// The kernel's version.
    pub minor: u32,
    /// Largest readahead, in bytes.
    pub readahead_bytes_max: u32,
    /// What the kernel can do.
    pub flags: u32,
}

/// Body of INIT as kernels from 5.17 on send it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct InitInWide {
    /// What all kernels send.
    pub first: InitIn,
    /// Flags 32 to 63, if [`init::EXTENDED`].
    pub flags2: u32,
}

/// Reply to INIT.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct InitOut {
    /// Our version.
    pub major: u32,
    /// Our version.
    pub minor: u32,
    /// As asked.
    pub readahead_bytes_max: u32,
    /// What of the kernel's abilities we want.
    pub flags: u32,
    /// Requests in the background at most.
    pub background_max: u16,
    /// Where the kernel begins to hold back.
    pub congestion_threshold: u16,
    /// Largest write, in bytes.
    pub write_bytes_max: u32,
    /// Granularity of times, in nanoseconds.
    pub time_granularity: u32,
    /// Largest request, in pages.
    pub pages_max: u16,
    /// For DAX.
    pub map_alignment: u16,
    /// Flags 32 to 63.
    pub flags2: u32,
    /// Zero.
    pub unused: [u32; 7],
}

/// Flags of INIT.
pub mod init {
    /// Several reads of one file at once.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// Writes longer than a page.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// Direct I/O is submitted without waiting.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// `pages_max` counts.
    pub const MAX_PAGES: u32 = 1 << 22;
    /// There is a second word of flags.
    pub const EXTENDED: u32 = 1 << 30;
    /// In the second word: requests that were read and not answered can be asked for again, and are
    /// marked then.
    pub const AGAIN_2: u32 = 1 << (39 - 32);
    /// In the second word: requests come over io_uring, once all queues are registered (6.14).
    pub const OVER_RING_2: u32 = 1 << (41 - 32);
}

/// Attributes of a file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Attr {
    /// Inode number as stat(2) shows it.
    pub ino: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Length in sectors of 512 bytes.
    pub sectors: u64,
    /// Access, modification and change times, in seconds.
    pub times: [u64; 3],
    /// Their nanoseconds.
    pub times_nanos: [u32; 3],
    /// Type and permissions.
    pub mode: u32,
    /// Number of links.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Owner.
    pub gid: u32,
    /// For device files.
    pub rdev: u32,
    /// Preferred size of I/O, in bytes.
    pub block_bytes: u32,
    /// Zero.
    pub flags: u32,
}

/// Reply to GETATTR and SETATTR.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct AttrOut {
    /// How long they may be cached, in seconds.
    pub attr_seconds: u64,
    /// Nanoseconds of it, and padding.
    pub nanos: [u32; 2],
    /// The attributes.
    pub attr: Attr,
}

/// Front of SETATTR's body, as much as matters here.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct SetattrIn {
    /// Which of the fields count.
    pub valid: u32,
    /// Zero.
    pub padding: u32,
    /// The open file.
    pub handle: u64,
    /// The new length in bytes.
    pub size_bytes: u64,
}

/// Reply to OPEN.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOut {
    /// Given back with each request on the open file.
    pub handle: u64,
    /// See [`open`].
    pub flags: u32,
    /// Zero.
    pub padding: u32,
}

/// Flags of the reply to OPEN.
pub mod open {
    /// No page cache: every read and write comes here.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Closing asks for nothing: whoever closes the file, by execve(2) too, does not wait for a
    /// server.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Direct writes to one file at the same time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Body of READ and, with payload behind it, WRITE.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct WriteIn {
    /// The open file.
    pub handle: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Whether it comes from a cache.
    pub io_flags: u32,
    /// The holder of a lock.
    pub lock_owner: u64,
    /// The open file's flags, as of open(2).
    pub flags: u32,
    /// Zero.
    pub padding: u32,
}

/// READ looks exactly like WRITE without payload.
pub type ReadIn = WriteIn;

/// Reply to WRITE.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct WriteOut {
    /// Length written, in bytes.
    pub bytes: u32,
    /// Zero.
    pub padding: u32,
}

/// Body of FALLOCATE.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct FallocateIn {
    /// The open file.
    pub handle: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// As of fallocate(2).
    pub mode: u32,
    /// Zero.
    pub padding: u32,
}

/// Body of LSEEK; the reply is the new position, a `u64`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct LseekIn {
    /// The open file.
    pub handle: u64,
    /// From where.
    pub offset: u64,
    /// As of lseek(2).
    pub whence: u32,
    /// Zero.
    pub padding: u32,
}

/// Reply to STATFS.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct StatfsOut {
    /// Blocks: all, free, available.
    pub blocks: [u64; 3],
    /// Files: all, free.
    pub files: [u64; 2],
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Size of a fragment in bytes.
    pub fragment_bytes: u32,
    /// Zero.
    pub spare: [u32; 7],
}

/// One request as it was read: the fixed part, and what followed.
#[derive(Clone, Copy, Debug)]
pub struct InMessage<'a> {
    /// The header.
    pub header: InHeader,
    head: &'a [u8],
    rest: &'a [u8],
}

impl<'a> InMessage<'a> {
    /// Take apart `received` bytes that were read into `head` (of [`HEAD_BYTES`]) and then `rest`.
    /// `None` if that is less than a header, or not what the header says.
    pub fn decode(head: &'a [u8], rest: &'a [u8], received: usize) -> Option<InMessage<'a>> {
        let (header, _) = InHeader::read_from_prefix(head).ok()?;
        let is_whole = received >= IN_HEADER_BYTES && usize::try_from(header.bytes) == Ok(received);
        is_whole.then_some(())?;
        let in_head = received.min(HEAD_BYTES);
        let head = head.get(IN_HEADER_BYTES..in_head)?;
        let rest = rest.get(..received - in_head)?;
        Some(InMessage { header, head, rest })
    }

    /// The same of a request over io_uring: its header, its body and so many bytes of payload.
    /// `None` if the parts are shorter than such parts are.
    pub fn of_parts(header: &[u8], body: &'a [u8], rest: &'a [u8]) -> Option<InMessage<'a>> {
        let (header, _) = InHeader::read_from_prefix(header).ok()?;
        let head = body.get(..WRITE_HEADER_BYTES)?;
        Some(InMessage { header, head, rest })
    }

    /// The front of the body as a `T`. `T` must fit in the fixed part; all bodies of this protocol
    /// do.
    pub fn body<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.head).ok().map(|(body, _)| body)
    }

    /// Bytes behind the fixed part: a write's payload.
    pub fn payload_bytes(&self) -> usize {
        self.rest.len()
    }
}
