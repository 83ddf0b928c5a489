//! The receiving half of a connection: bytes, then PDUs.
//!
//! What must stay true: a PDU's data is taken or skipped before the next PDU is looked for.
//! Not here: what a PDU means.

use ashlar_iobuf::BufMut;
use ashlar_nvme_protocol::connection::{Connection, Step};
use ashlar_nvme_protocol::digest::{DIGEST_BYTES, digest};
use ashlar_nvme_protocol::pdu::{COMMON_BYTES, Fatal, HEADER_BYTES_MAX, Pdu, PduHead, Side};
use ashlar_session::{Inbound, PlainSocket};
use ashlar_units::to_u64;
use std::io;
use std::rc::Rc;

/// Why no further PDU can be received.
#[derive(Debug)]
pub enum ReceiveError {
    /// The socket failed, or ended within a PDU.
    Socket(io::Error),
    /// The host broke a rule of the transport: it gets an error, and the connection ends.
    Fatal(Fatal),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> ReceiveError {
        ReceiveError::Socket(error)
    }
}

impl From<Fatal> for ReceiveError {
    fn from(fatal: Fatal) -> ReceiveError {
        ReceiveError::Fatal(fatal)
    }
}

/// A PDU whose header was received: what to do, and what data follows.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    pub step: Step,
    /// Data that follows, in bytes.
    pub data_bytes: u32,
    pad_bytes: usize,
    has_digest: bool,
}

/// A host's PDUs.
pub struct PduInbound {
    bytes: Inbound<PlainSocket>,
    connection: Connection,
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
}

impl PduInbound {
    pub fn new(socket: Rc<PlainSocket>, connection: Connection) -> PduInbound {
        let bytes = Inbound::new(socket);
        PduInbound { bytes, connection, header: [0; HEADER_BYTES_MAX], header_bytes: 0 }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The header of the PDU that came last, as far as it was received.
    pub fn last_header(&self) -> &[u8] {
        &self.header[..self.header_bytes]
    }

    /// Commands are to come: receive many at a time from here on.
    pub fn widen(&mut self) {
        self.bytes.widen();
    }

    /// Receive the next PDU's header. `None` if the host ended the stream before its first byte.
    pub async fn next(&mut self) -> Result<Option<Incoming>, ReceiveError> {
        let mut header = [0; HEADER_BYTES_MAX];
        self.header_bytes = 0;
        if !self.bytes.take(&mut header[..COMMON_BYTES]).await? {
            return Ok(None);
        }
        let common = <[u8; COMMON_BYTES]>::try_from(&header[..COMMON_BYTES]).expect("as long");
        self.keep_header(&header, COMMON_BYTES);
        let head = PduHead::decode(common, Side::Host)?;
        let terms = self.connection.terms();
        let bytes = head.header_bytes(&terms);
        self.bytes.take_rest(&mut header[COMMON_BYTES..bytes]).await?;
        self.keep_header(&header, bytes);
        let pdu = Pdu::open(&head, &header[..bytes], &terms)?;
        let step = self.connection.receive(&pdu.body)?;
        let (data_bytes, has_digest) = (pdu.data_bytes, pdu.has_data_digest);
        if data_bytes == 0 {
            self.bytes.no_data_follows();
        }
        Ok(Some(Incoming { step, data_bytes, pad_bytes: pdu.pad_bytes, has_digest }))
    }

    fn keep_header(&mut self, header: &[u8; HEADER_BYTES_MAX], bytes: usize) {
        self.header = *header;
        self.header_bytes = bytes;
    }

    /// Receive all data of a PDU into `window`, which is as long. Whether its digest fits.
    pub async fn data(
        &mut self,
        incoming: &Incoming,
        mut window: BufMut,
    ) -> io::Result<(BufMut, bool)> {
        self.bytes.skip(to_u64(incoming.pad_bytes)).await?;
        let filled = self.bytes.fill_from_held(&mut window);
        if filled < window.len() {
            window = self.bytes.fill(window, filled).await?;
        }
        if !incoming.has_digest {
            return Ok((window, true));
        }
        let mut received = [0; DIGEST_BYTES];
        self.bytes.take_rest(&mut received).await?;
        let is_right = received == digest(&window);
        Ok((window, is_right))
    }

    /// Receive and forget all data of a PDU.
    pub async fn skip_data(&mut self, incoming: &Incoming) -> io::Result<()> {
        let digest = if incoming.has_digest { DIGEST_BYTES } else { 0 };
        let bytes = to_u64(incoming.pad_bytes + digest) + u64::from(incoming.data_bytes);
        self.bytes.skip(bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::PduInbound;
    use ashlar_iobuf::BufMut;
    use ashlar_nvme_protocol::Submission;
    use ashlar_nvme_protocol::connection::{Connection, Offer};
    use ashlar_nvme_protocol::pdu::{Body, H2cData, IcReq, Terms, encode};
    use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
    use ashlar_session::PlainSocket;
    use ashlar_units::to_usize;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    const COMMANDS: usize = 100;
    const DATA_BYTES: u32 = 64 << 10;

    fn offer() -> Offer {
        Offer { h2c_bytes_max: DATA_BYTES, in_capsule_bytes_max: 8192 }
    }

    /// A greeting, long data, and many commands without any.
    fn sent() -> Vec<u8> {
        let greeting = Body::IcReq(IcReq {
            format: 0,
            hpda: 0,
            header_digest: false,
            data_digest: false,
            r2t_max_less_one: 0,
        });
        let open = Terms { h2c_bytes_max: DATA_BYTES, in_capsule_bytes_max: 8192, ..Terms::NONE };
        let data = H2cData { command: 1, transfer: 1, offset: 0, bytes: DATA_BYTES, is_last: true };
        let command = encode(&Body::CapsuleCmd(Submission::default()), 0, &open);
        [
            encode(&greeting, 0, &Terms::NONE).as_bytes(),
            encode(&Body::H2cData(data), DATA_BYTES, &open).as_bytes(),
            &vec![7; to_usize(u64::from(DATA_BYTES))],
            &command.as_bytes().repeat(COMMANDS),
        ]
        .concat()
    }

    /// A host that once wrote much had each of its later commands received by system calls of its
    /// own.
    #[test]
    fn commands_after_long_data_are_received_many_at_a_time() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(&sent()).expect("room");
        let ring = Ring::new(RingConfig::of(8)).expect("these tests need io_uring");
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let connection = Connection::new(offer());
        let socket = PlainSocket::new(ring.clone(), ours.into()).expect("a socket");
        let mut inbound = PduInbound::new(Rc::new(socket), connection);
        inbound.widen();
        let operations = executor.block_on(async {
            inbound.next().await.expect("a greeting").expect("more");
            let long = inbound.next().await.expect("data").expect("more");
            let window = BufMut::zeroed(to_usize(u64::from(DATA_BYTES)));
            let (window, _) = inbound.data(&long, window).await.expect("all of it");
            assert!(window.iter().all(|byte| *byte == 7));
            let before = ring.load().calls.operations;
            for _ in 0..COMMANDS {
                let incoming = inbound.next().await.expect("a command").expect("more");
                assert_eq!(incoming.data_bytes, 0);
            }
            ring.load().calls.operations - before
        });
        assert!(operations <= 4, "{operations} for {COMMANDS} commands");
    }
}
