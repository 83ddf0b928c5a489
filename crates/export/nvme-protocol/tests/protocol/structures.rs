//! The structures of Identify, byte by byte where hosts look.

use super::{facts, namespace};
use ashlar_nvme_protocol::identify::{
    ControllerKind, IdentifyController, IdentifyNamespace, active_list, command_set_list,
    controller_list, descriptors, identify_independent_namespace, identify_nvm_controller,
};
use zerocopy::IntoBytes;

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[test]
fn a_controller_says_what_linux_asks_of_it() {
    let structure = IdentifyController::new(&facts(ControllerKind::Io));
    let bytes = structure.as_bytes();
    assert_eq!(&bytes[4..24], b"serial              ");
    assert_eq!(&bytes[24..32], b"a model ");
    assert_eq!(&bytes[64..72], b"1.0     ");
    assert_eq!(bytes[76], 0b1010, "CMIC");
    assert_eq!(bytes[77], 8, "MDTS: 1 MiB");
    assert_eq!(number(bytes, 78, 2), 7, "CNTLID");
    assert_eq!(number(bytes, 80, 4), 0x0002_0000, "VER");
    assert_eq!(number(bytes, 92, 4), 1 << 8 | 1 << 11, "OAES");
    assert_eq!(number(bytes, 96, 4), 0x41, "CTRATT");
    assert_eq!(bytes[111], 1, "CNTRLTYPE");
    assert_eq!((bytes[258], bytes[259]), (3, 1), "ACL and AERL, less one");
    assert_eq!(number(bytes, 320, 2), 1, "KAS");
    assert_eq!((bytes[342], bytes[343]), (10, 0x41), "ANATT and ANACAP");
    assert_eq!((number(bytes, 344, 4), number(bytes, 348, 4)), (1, 1), "ANA groups");
    assert_eq!((bytes[512], bytes[513]), (0x66, 0x44), "sizes of entries");
    assert_eq!(number(bytes, 514, 2), 128, "MAXCMD");
    assert_eq!(number(bytes, 516, 4), 32, "NN");
    assert_eq!(number(bytes, 520, 2), 0b11_1101, "ONCS");
    assert_eq!(bytes[525], 0b111, "VWC");
    assert_eq!(number(bytes, 536, 4), 0x0030_0001, "SGLS");
    assert!(bytes[768..].starts_with(b"nqn.2024-01.example:array\0"));
    assert_eq!(number(bytes, 1792, 4), 516, "IOCCSZ: 64 bytes and 8 KiB");
    assert_eq!(number(bytes, 1796, 4), 1, "IORCSZ");
    assert_eq!(number(bytes, 1800, 2), 0, "ICDOFF");
    assert_eq!(structure.transfer_bytes_max(), Some(1 << 20));
}

#[test]
fn a_discovery_controller_serves_no_namespaces() {
    let structure = IdentifyController::new(&facts(ControllerKind::Discovery));
    let bytes = structure.as_bytes();
    assert_eq!(bytes[111], 2, "CNTRLTYPE");
    assert_eq!(number(bytes, 92, 4), 1 << 31, "OAES");
    assert_eq!(number(bytes, 516, 4), 0, "NN");
    assert_eq!(number(bytes, 520, 2), 0, "ONCS");
    assert_eq!(bytes[76], 0, "CMIC");
}

#[test]
fn strings_of_the_world_fit_their_fields() {
    let mut facts = facts(ControllerKind::Io);
    facts.serial = "much longer than twenty characters".to_owned();
    facts.model = "na\u{ef}ve\u{7}".to_owned();
    let structure = IdentifyController::new(&facts);
    let bytes = structure.as_bytes();
    assert_eq!(&bytes[4..24], b"much longer than twe");
    assert!(bytes[24..64].iter().all(|byte| (0x20..0x7f).contains(byte)));
}

#[test]
fn a_namespace_says_its_size_and_how_it_is_best_used() {
    let structure = IdentifyNamespace::new(&namespace(1));
    let bytes = structure.as_bytes();
    for at in [0, 8, 16] {
        assert_eq!(number(bytes, at, 8), 1 << 20);
    }
    assert_eq!(bytes[24], 0x10, "NSFEAT");
    assert_eq!(bytes[30], 1, "NMIC");
    assert_eq!(bytes[31], 0xff, "RESCAP");
    assert_eq!(bytes[33], 0b1001, "DLFEAT");
    assert_eq!(number(bytes, 48, 8), 512 << 20, "NVMCAP");
    // Less one, in blocks: writes of 4 KiB, deallocation and optimal writes of 256 KiB.
    assert_eq!([64, 66, 68, 70, 72].map(|at| number(bytes, at, 2)), [7, 7, 511, 511, 511]);
    assert_eq!(number(bytes, 92, 4), 1, "ANAGRPID");
    assert_eq!(bytes[99], 0, "NSATTR");
    assert_eq!(bytes[104..120], [0xa0; 16], "NGUID");
    assert_eq!(number(bytes, 128, 4), 9 << 16, "LBAF0");
    assert_eq!((structure.blocks(), structure.block_bytes()), (1 << 20, Some(512)));
    let mut read_only = namespace(1);
    read_only.read_only = true;
    assert_eq!(IdentifyNamespace::new(&read_only).as_bytes()[99], 1);
    assert_eq!(identify_independent_namespace(&read_only)[8], 1);
    assert_eq!(identify_independent_namespace(&read_only)[14], 1, "ready");
}

#[test]
fn a_namespace_is_told_by_three_descriptors() {
    let list = descriptors(&namespace(1));
    assert_eq!(list[..4], [2, 16, 0, 0]);
    assert_eq!(list[4..20], [0xa0; 16]);
    assert_eq!(list[20..24], [3, 16, 0, 0]);
    assert_eq!(list[24..40], [0xb0; 16]);
    assert_eq!(list[40..46], [4, 1, 0, 0, 0, 0]);
}

#[test]
fn lists_go_on_behind_their_last_entry() {
    let whole = active_list(1..3000, 0);
    assert_eq!((number(&whole, 0, 4), number(&whole, 4092, 4)), (1, 1024));
    let rest = active_list(1..3000, 2048);
    assert_eq!((number(&rest, 0, 4), number(&rest, 4 * 950, 4)), (2049, 2999));
    assert_eq!(number(&rest, 4 * 951, 4), 0);
    let controllers = controller_list(1..5000, 3000);
    assert_eq!([0, 2, 4].map(|at| number(&controllers, at, 2)), [2000, 3000, 3001]);
    let most = controller_list(0..5000, 0);
    assert_eq!((number(&most, 0, 2), number(&most, 4094, 2)), (2047, 2046));
    assert_eq!(number(&command_set_list(), 0, 8), 1);
    assert_eq!(identify_nvm_controller(0, 200)[..4], [0, 0, 0, 200]);
}
