//! The receiving half of a connection: bytes, then requests.
//!
//! Not here: what a request asks for, and where its payload goes.

use crate::session::SessionError;
use crate::socket::Socket;
use crate::wire::{Dialect, REQUEST_BYTES_MAX, RequestHead, decode_request};

/// A client's bytes.
pub type Inbound = ashlar_session::Inbound<Socket>;

/// Receive the next request's header. `None` if the client ended the stream before its first byte.
/// Its payload is taken or skipped before the next header.
pub async fn receive_head(
    inbound: &mut Inbound,
    dialect: Dialect,
) -> Result<Option<RequestHead>, SessionError> {
    let mut header = [0; REQUEST_BYTES_MAX];
    let header = &mut header[..dialect.request_bytes()];
    if !inbound.take(header).await? {
        return Ok(None);
    }
    let head = decode_request(dialect, header)?;
    if head.payload_bytes == 0 {
        inbound.no_data_follows();
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::{Inbound, receive_head};
    use crate::socket::Socket;
    use crate::wire::{Dialect, RequestFlags, RequestHead, encode_request};
    use ashlar_iobuf::BufMut;
    use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
    use ashlar_units::to_u64;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const HEADS: usize = 100;
    const READ: u16 = 0;
    const WRITE: u16 = 1;

    fn header(type_code: u16, bytes: usize) -> Vec<u8> {
        let (flags, bytes) = (RequestFlags(0), to_u64(bytes));
        let head = RequestHead { flags, type_code, cookie: 0, offset: 0, bytes, payload_bytes: 0 };
        encode_request(Dialect::Simple, &head)
    }

    /// Operations of the kernel for taking all reads that follow a write of so many bytes.
    fn operations_after_payload_of(payload_bytes: usize) -> u64 {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let mut inbound = Inbound::new(Socket::new(ring.clone(), ours.into()).expect("a socket"));
        inbound.widen();
        theirs.write_all(&header(WRITE, payload_bytes)).expect("room");
        theirs.write_all(&vec![1; payload_bytes]).expect("room");
        theirs.write_all(&header(READ, 4096).repeat(HEADS)).expect("room");
        executor.block_on(async {
            let write = receive_head(&mut inbound, Dialect::Simple).await.expect("a header");
            assert_eq!(write.expect("a write").payload_bytes, to_u64(payload_bytes));
            let mut payload = BufMut::zeroed(payload_bytes);
            let filled = inbound.fill_from_held(&mut payload);
            if filled < payload_bytes {
                payload = inbound.fill(payload, filled).await.expect("all of it");
            }
            assert!(payload.iter().all(|byte| *byte == 1));
            let before = ring.load().calls.operations;
            for _ in 0..HEADS {
                let read = receive_head(&mut inbound, Dialect::Simple).await.expect("a header");
                assert_eq!(read.map(|head| head.bytes), Some(4096));
            }
            ring.load().calls.operations - before
        })
    }

    /// A client that once wrote much had each of its later reads received by a system call of its
    /// own.
    #[test]
    fn small_requests_after_a_long_payload_are_received_many_at_a_time() {
        assert!(operations_after_payload_of(64 << 10) <= 2);
        assert!(operations_after_payload_of(4096) <= 1);
        assert!(operations_after_payload_of((64 << 10) + 1) <= 2);
    }
}
