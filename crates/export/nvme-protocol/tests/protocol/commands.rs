//! Commands: what is decoded, what is refused, and where their data may be.

use ashlar_nvme_protocol::command::{
    AdminCommand, AuthTransfer, Blocks, CONNECT_DATA_BYTES, Connect, ConnectData,
    DYNAMIC_CONTROLLER, FABRICS_OPCODE, FabricsCommand, InvalidParameter, IoCommand, admin_opcode,
    connect_result, decode_ranges, io_opcode,
};
use ashlar_nvme_protocol::{Completion, Data, Sgl, Status, Submission, Transfer, place};

fn of(opcode: u8) -> Submission {
    Submission { opcode, flags: 0x40, namespace: 1.into(), ..Submission::default() }
}

#[test]
fn statuses_come_back_from_their_fields() {
    for field in (0..=u16::MAX).step_by(2) {
        let status = Status::from_field(field);
        // M and CRD are never set here.
        assert_eq!(status.field(), field & 0x8ffe, "{field:#x}");
    }
    assert_eq!(Status::COMPARE_FAILURE.field(), 0x8000 | 0x285 << 1);
    assert_eq!(Status::AUTHENTICATION_REQUIRED.field(), 0x8000 | 0x191 << 1);
    assert!(Status::SUCCESS.is_success() && Status::SUCCESS.field() == 0);
    let completion = Completion::new(9, Status::UNRECOVERED_READ, 5);
    assert_eq!((completion.status(), completion.result.get()), (Status::UNRECOVERED_READ, 5));
}

#[test]
fn exactly_the_known_opcodes_are_decoded() {
    for opcode in 0..=255 {
        let admin = AdminCommand::decode(&of(opcode).with_dword(10, 1));
        let is_known = admin_opcode::ALL.contains(&opcode);
        assert_eq!(admin != Err(Status::INVALID_OPCODE), is_known, "{opcode:#x}");
        let io = IoCommand::decode(&of(opcode));
        let is_known = io_opcode::ALL.contains(&opcode);
        assert_eq!(io != Err(Status::INVALID_OPCODE), is_known, "{opcode:#x}");
        let mut fabrics = of(FABRICS_OPCODE);
        fabrics.namespace = u32::from(opcode).into();
        let is_known = matches!(opcode, 0 | 1 | 4 | 5 | 6 | 8);
        assert_eq!(FabricsCommand::decode(&fabrics).is_ok(), is_known, "{opcode:#x}");
    }
}

#[test]
fn fused_commands_are_refused() {
    for fuse in 1..4 {
        let read = Submission { flags: 0x40 | fuse, ..of(io_opcode::READ) };
        assert_eq!(IoCommand::decode(&read), Err(Status::INVALID_FIELD));
        let keep_alive = Submission { flags: 0x40 | fuse, ..of(admin_opcode::KEEP_ALIVE) };
        assert_eq!(AdminCommand::decode(&keep_alive), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn reads_and_writes_count_from_one() {
    let entry = of(io_opcode::WRITE)
        .with_dword(10, 0x89ab_cdef)
        .with_dword(11, 0x0123_4567)
        .with_dword(12, 1 << 30 | 0xffff);
    let blocks = Blocks { first: 0x0123_4567_89ab_cdef, count: 65_536 };
    assert_eq!(IoCommand::decode(&entry), Ok(IoCommand::Write { blocks, fua: true }));
    assert_eq!(
        IoCommand::decode(&entry).map(|it| it.transfer(4096)),
        Ok(Transfer::to_controller(1 << 28))
    );
    let zeroes = of(io_opcode::WRITE_ZEROES).with_dword(12, 1 << 25);
    let blocks = Blocks { first: 0, count: 1 };
    assert_eq!(
        IoCommand::decode(&zeroes),
        Ok(IoCommand::WriteZeroes { blocks, fua: false, may_unmap: true })
    );
}

#[test]
fn blocks_exist_or_they_do_not() {
    let blocks = |first, count| Blocks { first, count }.within(100);
    assert_eq!([blocks(0, 100), blocks(99, 1), blocks(100, 0)], [Ok(()); 3]);
    let beyond = Err(Status::LBA_OUT_OF_RANGE);
    assert_eq!([blocks(0, 101), blocks(100, 1), blocks(u64::MAX, 1)], [beyond; 3]);
}

#[test]
fn ranges_are_as_many_as_were_told() {
    let one = [0, 0, 0, 0, 8, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    let data = [one, one, one].concat();
    let ranges = decode_ranges(&data, 2).expect("two of three");
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges[1].blocks(), Blocks { first: 512, count: 8 });
    assert_eq!(decode_ranges(&data[..47], 3), Err(Status::SGL_LENGTH_INVALID));
    // A host sends 4 KiB, however many ranges count.
    let dsm = IoCommand::decode(&of(io_opcode::DATASET_MANAGEMENT).with_dword(10, 2));
    let transfer = dsm.map(|it| it.transfer(512));
    assert_eq!(transfer, Ok(Transfer::ToController { least: 48, most: 4096 }));
}

#[test]
fn log_pages_have_lengths_in_dwords_and_aligned_offsets() {
    let entry = of(admin_opcode::GET_LOG_PAGE)
        .with_dword(10, 0x03ff_8070)
        .with_dword(11, 1)
        .with_dword(12, 4096);
    let Ok(AdminCommand::GetLogPage(get)) = AdminCommand::decode(&entry) else {
        panic!("not decoded");
    };
    assert_eq!((get.page, get.keeps_events, get.offset), (0x70, true, 4096));
    assert_eq!(get.bytes, (0x1_03ff + 1) * 4);
    let unaligned = entry.with_dword(12, 4098);
    assert_eq!(AdminCommand::decode(&unaligned), Err(Status::INVALID_FIELD));
    let by_index = entry.with_dword(14, 1 << 23);
    assert_eq!(AdminCommand::decode(&by_index), Err(Status::INVALID_FIELD));
}

#[test]
fn what_cannot_be_set_is_refused_at_once() {
    let set = |dword| AdminCommand::decode(&of(admin_opcode::SET_FEATURES).with_dword(10, dword));
    assert_eq!(set(0x81), Err(Status::SEQUENCE_ERROR), "the host identifier came by Connect");
    assert_eq!(set(0x16), Err(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(set(1 << 31 | 0x0b), Err(Status::FEATURE_NOT_SAVEABLE));
    assert_eq!(set(0x7f), Err(Status::INVALID_FIELD));
    assert!(set(0x0b).is_ok());
}

#[test]
fn fabrics_commands_come_back_as_they_were() {
    let connect = Connect {
        format: 0,
        queue: 3,
        entries_less_one: 127,
        is_without_flow_control: true,
        keep_alive_ms: 15_000,
    };
    let all = [
        FabricsCommand::Connect(connect),
        FabricsCommand::PropertyGet { offset: 8, is_wide: false },
        FabricsCommand::PropertyGet { offset: 0, is_wide: true },
        FabricsCommand::PropertySet { offset: 0x14, is_wide: false, value: 0x0046_0001 },
        FabricsCommand::PropertySet { offset: 0x14, is_wide: true, value: u64::MAX - 1 },
        FabricsCommand::AuthSend(AuthTransfer::of_messages(72)),
        FabricsCommand::AuthReceive(AuthTransfer::of_messages(4096)),
        FabricsCommand::Disconnect,
    ];
    for command in all {
        assert_eq!(FabricsCommand::decode(&command.encode()), Ok(command));
    }
    // By hand: a Connect stands in these bytes.
    let entry = FabricsCommand::Connect(connect).encode();
    assert_eq!(entry.namespace.get(), 1);
    let dwords = [0x0003_0000, 0x0004_007f, 15_000];
    assert_eq!([10, 11, 12].map(|number| entry.dword(number)), dwords);
}

#[test]
fn a_connect_says_which_of_its_names_is_none() {
    let data = ConnectData {
        host: super::host(4),
        controller: DYNAMIC_CONTROLLER,
        subsystem: "nqn.2024-01.example:array".parse().expect("a name"),
    };
    let good = data.encode();
    assert_eq!(good.len(), CONNECT_DATA_BYTES);
    assert_eq!(ConnectData::decode(&good), Ok(data));
    for (at, parameter) in [(256, InvalidParameter::SUBSYSTEM), (512, InvalidParameter::HOST_NQN)] {
        let mut bad = good;
        bad[at] = b'x';
        assert_eq!(ConnectData::decode(&bad), Err(parameter));
        assert_eq!(parameter.result(), 1 << 16 | u64::try_from(at).expect("short"));
    }
    assert_eq!(InvalidParameter::ENTRIES.result(), 44);
    assert_eq!([connect_result(9, false), connect_result(9, true)], [9, 0x2_0009]);
}

#[test]
fn a_queue_has_two_entries_at_least_and_no_more_than_offered() {
    let connect = |format, entries_less_one| Connect {
        format,
        queue: 1,
        entries_less_one,
        is_without_flow_control: false,
        keep_alive_ms: 0,
    };
    assert_eq!(connect(0, 1).check(127), Ok(()));
    assert_eq!(connect(0, 127).check(127), Ok(()));
    let wrong = Err((Status::CONNECT_INVALID_PARAMETERS, 44));
    assert_eq!(connect(0, 0).check(127), wrong);
    assert_eq!(connect(0, 128).check(127), wrong);
    assert_eq!(connect(1, 31).check(127), Err((Status::CONNECT_INCOMPATIBLE_FORMAT, 0)));
}

fn with_sgl(sgl: Sgl) -> Submission {
    Submission { sgl: sgl.encode(), ..of(io_opcode::WRITE) }
}

#[test]
fn data_is_where_its_descriptor_says_and_as_long_as_it_must_be() {
    let in_capsule = |bytes, offset| with_sgl(Sgl::InCapsule { offset, bytes });
    let transport = |bytes| with_sgl(Sgl::Transport { bytes });
    let to = Transfer::to_controller(512);
    assert_eq!(place(&in_capsule(512, 0), to, 512), Ok(Data::InCapsule(512)));
    assert_eq!(place(&transport(512), to, 0), Ok(Data::Ask(512)));
    assert_eq!(place(&transport(512), Transfer::ToHost(512), 0), Ok(Data::Send(512)));
    assert_eq!(place(&transport(0), Transfer::None, 0), Ok(Data::None));
    let length = Err(Status::SGL_LENGTH_INVALID);
    assert_eq!(place(&in_capsule(512, 0), to, 256), length, "less in the capsule than told");
    assert_eq!(place(&in_capsule(512, 0), to, 516), length, "more in the capsule than told");
    assert_eq!(place(&in_capsule(256, 0), to, 256), length, "less than needed");
    assert_eq!(place(&transport(508), to, 0), length);
    assert_eq!(place(&transport(516), to, 0), length);
    assert_eq!(place(&transport(512), to, 512), length, "both ways at once");
    assert_eq!(place(&transport(0), Transfer::None, 4), length, "data of a command that has none");
    assert_eq!(place(&in_capsule(512, 4), to, 512), Err(Status::SGL_OFFSET_INVALID));
    let wrong_way = place(&in_capsule(512, 0), Transfer::ToHost(512), 512);
    assert_eq!(wrong_way, Err(Status::SGL_TYPE_INVALID));
}

#[test]
fn no_other_descriptors_and_no_prps() {
    for kind in (0..=255).filter(|kind| !matches!(kind, 0x01 | 0x5a)) {
        let mut raw = Sgl::Transport { bytes: 512 }.encode();
        raw[15] = kind;
        assert_eq!(Sgl::decode(raw), Err(Status::SGL_TYPE_INVALID), "{kind:#x}");
    }
    for flags in [0x00, 0xc0] {
        let entry = Submission { flags, ..with_sgl(Sgl::Transport { bytes: 512 }) };
        assert_eq!(place(&entry, Transfer::ToHost(512), 0), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn other_security_protocols_are_refused() {
    let good = AuthTransfer::of_messages(100);
    assert_eq!(good.check(100), Ok(()));
    let bad = [
        AuthTransfer { protocol: 0x01, ..good },
        AuthTransfer { specific: [1, 0], ..good },
        AuthTransfer { specific: [0, 1], ..good },
        AuthTransfer { bytes: 0, ..good },
        AuthTransfer { bytes: 101, ..good },
    ];
    assert!(bad.iter().all(|it| it.check(100) == Err(Status::INVALID_FIELD)));
}
