//! What a request is answered with, before it becomes bytes for the kernel; and the first answer of
//! all.
//!
//! What must stay true: an answer of fixed form needs no memory of its own.

use crate::server::Agreed;
use crate::wire::{InMessage, InitIn, InitInWide, InitOut, MAJOR, MINOR, init};
use ashlar_iobuf::Buf;
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

/// Largest read or write of the kernel, in bytes: 256 pages, the kernel's own limit.
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have in the background; the kernel's default of 12 starves a loop
/// device.
const BACKGROUND_MAX: u16 = 256;

/// Replies of fixed form are no longer than this, in bytes.
pub const SMALL_BYTES_MAX: usize = 128;

/// What is sent back.
pub enum Answer {
    /// Nothing: the kernel does not wait for one.
    None,
    /// A fixed form, or nothing but success.
    Small([u8; SMALL_BYTES_MAX], usize),
    /// Bytes of the file.
    Data(Buf),
}

impl Answer {
    pub fn done() -> Answer {
        Answer::Small([0; SMALL_BYTES_MAX], 0)
    }

    pub fn of(value: &(impl IntoBytes + Immutable)) -> Answer {
        let mut bytes = [0; SMALL_BYTES_MAX];
        let value = value.as_bytes();
        bytes[..value.len()].copy_from_slice(value);
        Answer::Small(bytes, value.len())
    }
}

/// Agree with the kernel on sizes and abilities; requests come over io_uring if `wants_ring` and
/// the kernel offers it.
pub fn init_reply(message: &InMessage<'_>, wants_ring: bool) -> Result<(Answer, Agreed), Errno> {
    const PAGE_BYTES: u32 = 4096;
    let asked: InitIn = message.body().ok_or(Errno::INVAL)?;
    if asked.major < MAJOR {
        return Err(Errno::PROTO);
    }
    let wanted_2 = init::AGAIN_2 | if wants_ring { init::OVER_RING_2 } else { 0 };
    let wide = message.body::<InitInWide>().filter(|_| asked.flags & init::EXTENDED != 0);
    let flags2 = wide.map_or(0, |wide| wide.flags2 & wanted_2);
    let wanted = init::ASYNC_READ
        | init::BIG_WRITES
        | init::ASYNC_DIO
        | init::MAX_PAGES
        | if flags2 == 0 { 0 } else { init::EXTENDED };
    let reply = InitOut {
        major: MAJOR,
        minor: MINOR,
        readahead_bytes_max: asked.readahead_bytes_max,
        flags: asked.flags & wanted,
        background_max: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        write_bytes_max: PAYLOAD_BYTES_MAX,
        time_granularity: 1,
        pages_max: u16::try_from(PAYLOAD_BYTES_MAX / PAGE_BYTES).expect("256"),
        map_alignment: 0,
        flags2,
        unused: [0; 7],
    };
    let agreed = Agreed {
        sends_again: flags2 & init::AGAIN_2 != 0,
        over_ring: flags2 & init::OVER_RING_2 != 0,
    };
    Ok((Answer::of(&reply), agreed))
}
