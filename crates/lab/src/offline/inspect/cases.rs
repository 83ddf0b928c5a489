//! Each check with a capture on which it passes, one on which it fails, and one on which it cannot
//! tell: `tests/data/checks.toml`.

use super::captures::{AFTER, Edits, capture, check, edited, inspection, server};
use crate::inspect::Inspection;
use crate::inspect::topology::Given;
use crate::validity::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    pass: Edits,
    fail: Edits,
    cannot_tell: Edits,
}

fn cases() -> BTreeMap<String, Case> {
    toml::from_str(include_str!("../../../tests/data/checks.toml")).expect("a table of cases")
}

#[test]
fn every_check_passes_fails_and_cannot_tell_where_it_must() {
    for (name, case) in cases() {
        for (edits, wanted) in [
            (&case.pass, Outcome::Pass),
            (&case.fail, Outcome::Fail),
            (&case.cannot_tell, Outcome::CannotTell),
        ] {
            // The capture before the load is the unedited one.
            let before = server(capture(&edits.of));
            let now = Inspection::of(server(edited(edits)), Some(&before), Given::default());
            let (outcome, found) = check(&now, &name);
            assert_eq!(outcome, wanted, "{name} on {edits:?}: {found}");
            assert!(!found.is_empty(), "{name} on {edits:?}");
        }
    }
}

#[test]
fn no_check_is_without_its_three_captures() {
    let mut told: Vec<String> = inspection(AFTER).checks.into_iter().map(|it| it.name).collect();
    told.sort();
    assert_eq!(told, cases().into_keys().collect::<Vec<_>>());
}
