//! Domains of an array beside the places of its drives.

use super::Plugged;
use ashlar_api::v1::domain::{DomainKind, Domains};
use ashlar_api::v1::growth::Grow;
use ashlar_device::Bay;
use ashlar_layout::{DeclusteredShape, Geometry, Level, Shape};
use ashlar_ondisk::{EnclosureKind, EnclosureRecord};
use ashlar_units::MemberIdx;

/// 2+2 over eight members: four enclosures of two, or two of four.
fn geometry(domain_members: usize) -> Geometry {
    let declustered = DeclusteredShape {
        domain_members,
        stripe_width: 4,
        spare_columns: 0,
        cell_bytes: Some(4096),
    };
    let shape = Shape {
        level: Level::Raid6,
        members: 8,
        parity: None,
        group_members: None,
        strip_bytes: 4096,
        declustered: Some(declustered),
    };
    Geometry::new(&shape, 100).expect("a layout")
}

fn bays(names: &str) -> Vec<Bay> {
    let of =
        |name: char| Bay { enclosure: (name != '?').then(|| name.to_string()), ..Bay::default() };
    names.chars().map(of).collect()
}

/// Enclosures of `domains` failure domains of two members each.
fn plugged(names: &str, domains: u8) -> Plugged {
    let record = EnclosureRecord { kind: EnclosureKind::Enclosure, domains };
    let bays = bays(names);
    Plugged::new(record, &geometry(2), &bays.iter().collect::<Vec<_>>())
}

#[test]
fn a_domain_has_the_name_of_most_of_its_drives_and_the_others_are_elsewhere() {
    let status = plugged("aaabccd?", 2).status();
    let names: Vec<Option<&str>> = status.domains.iter().map(|it| it.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("c")]);
    assert_eq!(status.domains[0].slots, [0, 1, 2, 3]);
    assert_eq!(status.domains[0].elsewhere, [(3, "b".to_owned())]);
    assert_eq!(status.domains[1].elsewhere, [(6, "d".to_owned())]);
    assert_eq!((status.strips_lost, status.parity_strips), (2, 2));
}

/// What is lost is counted where the drives are, not where they should be.
#[test]
fn a_drive_elsewhere_makes_the_loss_of_that_place_cost_more() {
    for (names, domains, strips) in [
        ("aabbccdd", 1, 1),
        ("aabbccda", 1, 2),
        ("aabaccda", 1, 3),
        ("aaaabbbb", 2, 2),
        ("aaaabbba", 2, 3),
        ("????????", 2, 2),
    ] {
        assert_eq!(plugged(names, domains).status().strips_lost, strips, "{names}");
    }
}

#[test]
fn a_replacement_is_told_of_its_place_and_refused_where_a_lost_domain_could_lose_data() {
    let judged = |names: &str, domains, is_wanted| {
        plugged(names, domains).judged(MemberIdx(7), Some("d".to_owned()), is_wanted)
    };
    assert_eq!(judged("aabbccdd", 1, false), Ok(String::new()), "at home");
    let told = judged("aabbccda", 1, false).expect("one strip more can be borne");
    let says = "; it is in enclosure a, not in that of slots 6 to 7: a lost enclosure costs at \
                most 2 strips of a stripe: all data stays readable, but no further drive may fail";
    assert_eq!(told, says);
    let told = judged("aabbccdx", 1, false).expect("of a place of its own");
    assert!(told.contains("at most 1 strip of a stripe"), "{told}");
    let told = judged("aabbccd?", 1, false).expect("unknown");
    assert_eq!(told, "; see that it is in the enclosure of slots 6 to 7");
    let refused = judged("aaaaddda", 2, false).expect_err("three strips");
    assert_eq!(refused.code, "member.other_domain");
    assert!(refused.hint.contains("--other-domain"), "{refused:?}");
    assert!(judged("aaaaddda", 2, true).is_ok());
    assert_eq!(plugged("aabbcc?d", 1).judged(MemberIdx(7), None, false), Ok(String::new()));
}

#[test]
fn of_listed_domains_no_drive_tells_its_place() {
    let record = EnclosureRecord { kind: EnclosureKind::Listed, domains: 1 };
    let bays = bays("aabbccdd");
    let plugged = Plugged::new(record, &geometry(2), &bays.iter().collect::<Vec<_>>());
    let told = plugged.judged(MemberIdx(0), None, false).expect("nothing is known");
    assert_eq!(told, "; see that it is in the domain of slots 0 to 1");
    assert!(plugged.status().domains.iter().all(|domain| domain.name.is_none()));
}

/// Two drives more than eight in domains of two.
#[test]
fn new_members_come_in_whole_domains_of_places_of_their_own() {
    let grow = |devices: usize, kind, count| Grow {
        devices: vec!["/dev/sdx".to_owned(); devices],
        domains: Some(Domains { kind, count }),
        ..Grow::default()
    };
    let checked = |names: &str, call: &Grow| plugged(names, 1).check_new(call);
    let sound = grow(2, DomainKind::Enclosure, 1);
    let told = checked("aabbccddee", &sound).expect("a domain of its own");
    assert!(told.contains("at most 1 strip of a stripe"), "{told}");
    assert_eq!(checked("aabbccddee", &grow(2, DomainKind::List, 1)), Ok(told));
    let wanted = Grow { other_domain: true, ..sound.clone() };
    let told = checked("aabbaaddaa", &wanted).expect("the operator wants it");
    assert!(told.contains("lose data"), "{told}");
    for (names, call, says) in [
        ("aabbaaddaa", &sound, "would have drives of several domains in one place"),
        ("aabbccddee", &Grow { domains: None, ..sound.clone() }, "say which of the new drives"),
        ("aabbccddee", &grow(2, DomainKind::Hba, 1), "has failure domains of 2 drives (enclosure)"),
        ("aabbccdde", &grow(1, DomainKind::List, 1), "1 new drives in 1 domains do not fit"),
        ("aabbccddee", &grow(2, DomainKind::List, 2), "2 new drives in 2 domains do not fit"),
    ] {
        let unfit = checked(names, call).expect_err("it does not fit");
        assert!(unfit.what.contains(says), "{unfit:?}");
    }
}
