//! Roles and what may happen to them.

use std::fmt::Write;

use ashlar_ondisk::{MemberEntry, MemberEvent, Role, Update};
use ashlar_units::MemberIdx;
use uuid::Uuid;

use crate::samples::{incarnation, member_uuid};

/// Every state a member can be in: its role, and the generation since which it misses writes (zero:
/// none).
const STATES: [(&str, Role, u64); 6] = [
    ("active", Role::Active, 0),
    ("rebuilding", Role::Rebuilding, 0),
    ("rebuilding (re-added)", Role::Rebuilding, 4),
    ("replacement", Role::Replacement, 0),
    ("out", Role::Out, 4),
    ("removed", Role::Removed, 4),
];

fn member(role: Role, out_since: u64) -> MemberEntry {
    let out_incarnations =
        if out_since == 0 { [Uuid::nil(); 2] } else { [incarnation(1), incarnation(0)] };
    MemberEntry {
        out_since,
        out_incarnations,
        ..MemberEntry::new(member_uuid(0), MemberIdx(0), role)
    }
}

/// The whole table of state and event, as the format document shows it.
pub fn role_table() -> String {
    let mut table = String::from("| role |");
    for event in MemberEvent::ALL {
        write!(table, " {event:?} |").expect("a string");
    }
    table.push_str("\n|---|---|---|---|---|---|---|\n");
    let update = Update { generation: 9, incarnations: [incarnation(2), incarnation(1)] };
    for (name, role, missed) in STATES {
        write!(table, "| {name} |").expect("a string");
        for event in MemberEvent::ALL {
            let next = member(role, missed).next(event, update).map_or("-".to_owned(), cell);
            write!(table, " {next} |").expect("a string");
        }
        table.push('\n');
    }
    table
}

fn cell(next: MemberEntry) -> String {
    let since = match next.out_since {
        0 => "",
        9 => ", since now",
        _ => ", since then",
    };
    format!("{}{since}", next.role.name())
}

#[test]
fn codes_of_roles_are_fixed() {
    let codes: Vec<u8> = Role::ALL.iter().map(|role| role.code()).collect();
    assert_eq!(codes, [1, 2, 3, 4, 5]);
    for code in 0..=u8::MAX {
        assert_eq!(Role::from_code(code).map(Role::code), (1..=5).contains(&code).then_some(code));
    }
}

#[test]
fn a_removed_member_stays_removed() {
    let update = Update { generation: 9, incarnations: [incarnation(2), incarnation(1)] };
    for event in MemberEvent::ALL {
        let refused = member(Role::Removed, 4).next(event, update).expect_err("removed is final");
        assert_eq!((refused.role, refused.event), (Role::Removed, event));
    }
}
