//! Log pages.

use ashlar_nvme_protocol::command::{admin_opcode, io_opcode};
use ashlar_nvme_protocol::identify::ControllerKind;
use ashlar_nvme_protocol::log::{
    AnaState, ChangedNamespaces, DiscoveryEntry, Health, Portal, ReservationNotice,
    ReservationNoticeKind, ReservationNotices, Security, ana_page, cut, discovery_page,
    effects_page, error_page, firmware_page, health_page, page, parse_discovery_page,
    supported_pages,
};

#[test]
fn a_page_can_be_read_in_parts() {
    let whole: Vec<u8> = (0..100).collect();
    assert_eq!(cut(&whole, 0, 4), Some(vec![0, 1, 2, 3]));
    assert_eq!(cut(&whole, 96, 8), Some(vec![96, 97, 98, 99, 0, 0, 0, 0]));
    assert_eq!(cut(&whole, 100, 4), Some(vec![0; 4]));
    assert_eq!(cut(&whole, 104, 4), None);
    assert_eq!(cut(&whole, u64::MAX, 4), None);
}

#[test]
fn exactly_the_decoded_commands_are_called_supported() {
    let page = effects_page(ControllerKind::Io);
    for opcode in 0..=255_u8 {
        let at = usize::from(opcode) * 4;
        let is_admin = admin_opcode::ALL.contains(&opcode);
        assert_eq!(page[at] & 1 == 1, is_admin, "{opcode:#x}");
        let is_io = io_opcode::ALL.contains(&opcode);
        assert_eq!(page[1024 + at] & 1 == 1, is_io, "{opcode:#x}");
    }
    assert!(effects_page(ControllerKind::Discovery)[1024..].iter().all(|byte| *byte == 0));
    let supported = supported_pages(&page::OF_IO);
    assert_eq!((supported.len(), supported[0x0c * 4], supported[0x70 * 4]), (1024, 1, 0));
}

#[test]
fn health_counts_in_thousands_of_sectors() {
    let health = Health {
        is_read_only: true,
        is_degraded: true,
        read_bytes: 512_001,
        written_bytes: 512_000,
        reads: 5,
        writes: 6,
        media_errors: 7,
    };
    let page = health_page(&health);
    assert_eq!(page.len(), 512);
    assert_eq!(page[0], 0b1100);
    let counts = [32, 48, 64, 80, 160].map(|at| page[at]);
    assert_eq!(counts, [2, 1, 5, 6, 7]);
    assert_eq!(health_page(&Health::default())[0], 0);
    assert_eq!((error_page().len(), firmware_page("1.0").len()), (64, 512));
    assert_eq!(&firmware_page("1.0")[8..16], b"1.0     ");
}

#[test]
fn all_namespaces_are_in_the_one_ana_group() {
    let page = ana_page(AnaState::Optimized, 3, &[1, 5], false);
    assert_eq!(page.len(), 56);
    assert_eq!((page[0], page[8]), (3, 1), "changes and groups");
    assert_eq!((page[16], page[20], page[24], page[32]), (1, 2, 3, 1), "the group");
    assert_eq!((page[48], page[52]), (1, 5));
    let groups = ana_page(AnaState::Change, 0, &[1, 5], true);
    assert_eq!((groups.len(), groups[20], groups[32]), (48, 0, 0x0f));
}

#[test]
fn discovery_entries_come_back_as_they_were() {
    let entry = |address: &str, security, is_discovery| DiscoveryEntry {
        portal: Portal { id: 1, address: address.parse().expect("an address"), security },
        subsystem: "nqn.2024-01.example:array".parse().expect("a name"),
        is_discovery,
        admin_entries: 32,
    };
    let entries = [
        entry("192.0.2.7:4420", Security::None, false),
        entry("[2001:db8::1]:8009", Security::Tls13, true),
    ];
    let page = discovery_page(9, &entries);
    assert_eq!((page.len(), page[0], page[8]), (3072, 9, 2));
    // TCP, IPv4, NVM subsystem, flow control optional, dynamic controllers.
    assert_eq!(page[1024..1032], [3, 1, 2, 4, 1, 0, 0xff, 0xff]);
    assert!(
        page[1024 + 32..].starts_with(b"4420\0") && page[1024 + 512..].starts_with(b"192.0.2.7\0")
    );
    assert_eq!(page[2048..2052], [3, 2, 3, 5]);
    assert_eq!(parse_discovery_page(&page), entries);
    assert_eq!(parse_discovery_page(&page[..3071]).len(), 1, "cut off");
    assert!(parse_discovery_page(&page[..1000]).is_empty());
}

#[test]
fn changed_namespaces_are_listed_once_until_read() {
    let mut changed = ChangedNamespaces::default();
    for id in [5, 2, 5] {
        changed.add(id);
    }
    assert_eq!(changed.page()[..12], [2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    changed.clear();
    assert!(changed.is_empty() && changed.page().iter().all(|byte| *byte == 0));
    (1..=1024).for_each(|id| changed.add(id));
    assert_eq!(changed.page()[4092..], [0, 4, 0, 0]);
    changed.add(1025);
    assert_eq!(changed.page()[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], "too many to list");
}

#[test]
fn notices_are_read_one_page_at_a_time_oldest_first() {
    let mut notices = ReservationNotices::default();
    let notice = |namespace, kind| ReservationNotice { namespace, kind };
    notices.add(notice(3, ReservationNoticeKind::ReservationReleased));
    notices.add(notice(4, ReservationNoticeKind::ReservationPreempted));
    let page = notices.page();
    assert_eq!((page.len(), page[0], page[8], page[9], page[12]), (64, 1, 2, 1, 3));
    notices.pop();
    let page = notices.page();
    assert_eq!((page[0], page[8], page[9], page[12]), (2, 3, 0, 4));
    notices.pop();
    assert_eq!(notices.page(), vec![0; 64]);
    (0..300).for_each(|id| notices.add(notice(id, ReservationNoticeKind::RegistrationPreempted)));
    // The oldest were pushed out, and the count shows that.
    assert_eq!((notices.page()[0], notices.page()[9], notices.page()[12]), (48, 254, 45));
}

#[test]
fn a_mask_silences_its_kind_only() {
    use ReservationNoticeKind as Kind;
    let kinds =
        [Kind::RegistrationPreempted, Kind::ReservationReleased, Kind::ReservationPreempted];
    for masked in kinds {
        let mask = 1 << masked.code();
        assert!(kinds.iter().all(|kind| kind.is_masked(mask) == (*kind == masked)));
    }
}
