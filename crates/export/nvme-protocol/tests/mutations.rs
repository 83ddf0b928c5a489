//! What hosts send, from a seed: honest connections with some of their bytes changed, PDUs left
//! out, doubled and swapped.
//!
//! What must stay true: many come as far as commands, and of these some are admitted and some
//! refused; all are counted. How many: `MUTATIONS`, or some seconds' worth. `fuzz/` hands the same
//! function to libFuzzer.

use ashlar_nvme_protocol::auth::{self, Message, Negotiate};
use ashlar_nvme_protocol::command::{
    AuthTransfer, Connect, ConnectData, DYNAMIC_CONTROLLER, FabricsCommand, admin_opcode, io_opcode,
};
use ashlar_nvme_protocol::hostile::{Heard, hear};
use ashlar_nvme_protocol::nqn::{Host, HostId};
use ashlar_nvme_protocol::pdu::{Body, H2cData, IcReq, Terms, encode};
use ashlar_nvme_protocol::{Sgl, Submission};
use fastrand::Rng;

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

const TERMS: Terms = Terms {
    header_digest: false,
    data_digest: false,
    cpda: 0,
    hpda: 0,
    in_capsule_bytes_max: 8192,
    h2c_bytes_max: 131_072,
};

fn mutations() -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(30_000)
}

fn pdu(body: &Body, data: &[u8], terms: &Terms) -> Vec<u8> {
    let bytes = u32::try_from(data.len()).expect("short");
    let header = encode(body, bytes, terms);
    let mut whole = [header.as_bytes(), data].concat();
    if header.has_data_digest {
        whole.extend([0; 4]);
    }
    whole
}

fn begin(header_digest: bool) -> (Vec<u8>, Terms) {
    let request = IcReq {
        format: 0,
        hpda: 0,
        header_digest,
        data_digest: header_digest,
        r2t_max_less_one: 0,
    };
    let terms = Terms { header_digest, data_digest: header_digest, ..TERMS };
    (pdu(&Body::IcReq(request), &[], &Terms::NONE), terms)
}

/// A command with its data in the capsule, or with a transport SGL for `bytes`.
fn command(entry: Submission, id: u16, data: &[u8], bytes: u32, terms: &Terms) -> Vec<u8> {
    let in_capsule = u32::try_from(data.len()).expect("short");
    let sgl = match in_capsule {
        0 => Sgl::Transport { bytes },
        bytes => Sgl::InCapsule { offset: 0, bytes },
    };
    let entry = Submission { command: id.into(), flags: 0x40, sgl: sgl.encode(), ..entry };
    pdu(&Body::CapsuleCmd(entry), data, terms)
}

fn connect(queue: u16, terms: &Terms) -> Vec<u8> {
    let entry = FabricsCommand::Connect(Connect {
        format: 0,
        queue,
        entries_less_one: 31,
        is_without_flow_control: false,
        keep_alive_ms: 5000,
    });
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:11".parse().expect("a name");
    let data = ConnectData {
        host: Host { id: HostId([7; 16]), nqn },
        controller: DYNAMIC_CONTROLLER,
        subsystem: "nqn.2024-01.example:disk".parse().expect("a name"),
    };
    command(entry.encode(), 0, &data.encode(), 0, terms)
}

fn of(opcode: u8) -> Submission {
    Submission { opcode, namespace: 1.into(), ..Submission::default() }
}

/// The PDUs of an honest admin connection.
fn admin(header_digest: bool) -> Vec<Vec<u8>> {
    let (ic, terms) = begin(header_digest);
    let get = FabricsCommand::PropertyGet { offset: 0, is_wide: true };
    let enable = FabricsCommand::PropertySet { offset: 0x14, is_wide: false, value: 0x0046_0001 };
    let identify = |structure| of(admin_opcode::IDENTIFY).with_dword(10, structure);
    let log = |page, dwords: u32| {
        of(admin_opcode::GET_LOG_PAGE).with_dword(10, page | (dwords - 1) << 16)
    };
    let host_id = of(admin_opcode::GET_FEATURES).with_dword(10, 0x81).with_dword(11, 1);
    let queues = of(admin_opcode::SET_FEATURES).with_dword(10, 7).with_dword(11, 0x0003_0003);
    let abort = of(admin_opcode::ABORT).with_dword(10, 0x0007_0000);
    let negotiate =
        Negotiate { transaction: 1, secure_channel: 0, hashes: vec![1, 2, 3], groups: vec![0] };
    let negotiate = auth::encode(&Message::Negotiate(negotiate));
    let length = u32::try_from(negotiate.len()).expect("short");
    let send = FabricsCommand::AuthSend(AuthTransfer::of_messages(length));
    let receive = FabricsCommand::AuthReceive(AuthTransfer::of_messages(128));
    vec![
        ic,
        connect(0, &terms),
        command(send.encode(), 14, &negotiate, 0, &terms),
        command(receive.encode(), 15, &[], 128, &terms),
        command(get.encode(), 1, &[], 0, &terms),
        command(enable.encode(), 2, &[], 0, &terms),
        command(identify(0), 3, &[], 4096, &terms),
        command(identify(1), 4, &[], 4096, &terms),
        command(identify(3), 5, &[], 4096, &terms),
        command(of(admin_opcode::ASYNC_EVENT_REQUEST), 7, &[], 0, &terms),
        command(log(0x02, 128), 8, &[], 512, &terms),
        command(log(0x0c, 32), 9, &[], 128, &terms),
        command(host_id, 10, &[], 16, &terms),
        command(queues, 11, &[], 0, &terms),
        command(abort, 12, &[], 0, &terms),
        command(of(admin_opcode::KEEP_ALIVE), 13, &[], 0, &terms),
    ]
}

/// The PDUs of an honest I/O connection.
fn io(header_digest: bool) -> Vec<Vec<u8>> {
    let (ic, terms) = begin(header_digest);
    let blocks =
        |opcode, first, count: u32| of(opcode).with_dword(10, first).with_dword(12, count - 1);
    let data = |transfer, offset, bytes: u32, is_last| {
        let body = Body::H2cData(H2cData { command: 4, transfer, offset, bytes, is_last });
        pdu(&body, &vec![0x5a; usize::try_from(bytes).expect("short")], &terms)
    };
    let ranges = [[0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]; 2].concat();
    let keys = [[1; 8], [2; 8]].concat();
    vec![
        ic,
        connect(1, &terms),
        command(blocks(io_opcode::READ, 8, 16), 2, &[], 8192, &terms),
        command(blocks(io_opcode::WRITE, 0, 1), 3, &[0x33; 512], 0, &terms),
        command(blocks(io_opcode::WRITE, 64, 32), 4, &[], 16_384, &terms),
        data(0, 0, 8192, false),
        data(0, 8192, 8192, true),
        command(blocks(io_opcode::COMPARE, 1, 1), 5, &[0x33; 512], 0, &terms),
        command(of(io_opcode::FLUSH), 6, &[], 0, &terms),
        command(blocks(io_opcode::WRITE_ZEROES, 0, 2048), 7, &[], 0, &terms),
        command(of(io_opcode::DATASET_MANAGEMENT).with_dword(10, 1), 8, &ranges, 0, &terms),
        command(of(io_opcode::RESERVATION_REGISTER), 9, &keys, 0, &terms),
        command(of(io_opcode::RESERVATION_ACQUIRE).with_dword(10, 0x100), 10, &keys, 0, &terms),
        command(of(io_opcode::RESERVATION_REPORT).with_dword(11, 1), 11, &[], 4, &terms),
        command(blocks(io_opcode::READ, 2048, 1), 12, &[], 512, &terms),
    ]
}

fn changed(mut parts: Vec<Vec<u8>>, chance: &mut Rng) -> Vec<u8> {
    match chance.usize(..6) {
        0 => drop(parts.remove(chance.usize(..parts.len()))),
        1 => {
            let (one, other) = (chance.usize(..parts.len()), chance.usize(..parts.len()));
            parts.swap(one, other);
        }
        2 => parts.insert(chance.usize(..parts.len()), parts[chance.usize(..parts.len())].clone()),
        _ => {}
    }
    // Most bytes are data and reserved fields: aim at headers.
    for _ in 0..chance.usize(..4) {
        let part = chance.usize(..parts.len());
        let bytes = &mut parts[part];
        let at = chance.usize(..bytes.len().min(88));
        match chance.usize(..3) {
            0 => bytes[at] ^= 1 << chance.usize(..8),
            1 => bytes[at] = chance.u8(..),
            _ => {
                let to = bytes.len().min(at + (1 << chance.usize(..4)));
                bytes[at..to].fill(if chance.usize(..2) == 0 { 0 } else { 0xFF });
            }
        }
    }
    let mut bytes = parts.concat();
    if chance.usize(..10) == 0 {
        bytes.truncate(chance.usize(..=bytes.len()));
    }
    bytes
}

#[test]
fn hostile_hosts_are_heard_without_harm() {
    let sessions = [admin(false), io(false), admin(true), io(true)];
    for parts in &sessions {
        let heard = hear(&parts.concat());
        assert!(heard.connects && !heard.is_fatal, "{heard:?}");
        assert_eq!(usize::try_from(heard.pdus), Ok(parts.len()), "{heard:?}");
        assert!(heard.admitted >= 9, "{heard:?}");
    }
    let (mut connecting, mut fatal, mut sum) = (0, 0, Heard::default());
    for number in 0..mutations() {
        let mut chance = Rng::with_seed(number);
        let bytes = changed(sessions[chance.usize(..sessions.len())].clone(), &mut chance);
        corpus::keep("nvme_connection", (0, number), &bytes);
        let heard = std::panic::catch_unwind(|| hear(&bytes));
        let heard = heard.unwrap_or_else(|_| panic!("input {number}"));
        connecting += u64::from(heard.connects);
        fatal += u64::from(heard.is_fatal);
        sum.admitted += heard.admitted;
        sum.refused += heard.refused;
        sum.pieces += heard.pieces;
    }
    let of = mutations();
    assert!(connecting > of / 2 && connecting < of, "{connecting} of {of}");
    assert!(fatal > of / 10, "{fatal} of {of}");
    assert!(sum.refused > 1000 && sum.admitted > sum.refused && sum.pieces > 1000, "{sum:?}");
}
