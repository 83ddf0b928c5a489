//! Drives alone and together, with planted rates.

use super::{Facts, checks, stated_sum};
use crate::inspect::models::Library;
use crate::meter::{LinkLoad, PathLoad};
use crate::record::{ArrayCondition, Check, CpuCost, Direction, Measurement, Workload};
use crate::validity::Outcome;

fn measured(stage: &str, drive: usize, rate: f64, full: Option<f64>) -> Measurement {
    let link = |share: f64| {
        let (id, name) = ("x".to_owned(), "SAS3008".to_owned());
        LinkLoad { id, name, bytes_per_s: share * 6e9, carries: Some(6e9) }
    };
    let (name, mix) = ("seq-read".to_owned(), "read".to_owned());
    let workload =
        Workload { name, mix, block_bytes: 1 << 20, jobs: 1, depth: 8, ..<_>::default() };
    Measurement {
        id: format!("{stage}/{drive}"),
        stage: stage.to_owned(),
        target: format!("/dev/sd{drive}"),
        condition: ArrayCondition::Raw,
        workload,
        read: Direction { bytes_per_s: rate, ..Direction::default() },
        path: full.map(|share| PathLoad { drives: Vec::new(), links: vec![link(share)] }),
        ..Measurement::default()
    }
}

/// Six drives: alone at 200 MB/s, together at `together` MB/s, with a link that was so full.
fn six(together: [f64; 6], full: Option<f64>) -> Vec<Measurement> {
    let alone = (0..6).map(|drive| measured("raw.each", drive, 200e6, None));
    let all = together.into_iter().enumerate();
    alone.chain(all.map(|(drive, rate)| measured("raw.all", drive, rate * 1e6, full))).collect()
}

fn spinning(_: &str) -> Facts {
    let model = ("TOSHIBA MG07SCA14TA".to_owned(), 14_000_519_643_136);
    Facts { is_spinning: Some(true), model: Some(model) }
}

fn flash(model: &str, bytes: u64) -> Facts {
    Facts { is_spinning: Some(false), model: Some((model.to_owned(), bytes)) }
}

fn judge(known: &[Measurement], facts: fn(&str) -> Facts, name: &str) -> Vec<Check> {
    let all = checks(known.iter(), facts, &Library::default());
    all.into_iter().filter(|it| it.name == name).collect()
}

fn vibration(together: [f64; 6], full: Option<f64>) -> (Outcome, String) {
    let found = judge(&six(together, full), spinning, "drives.vibration");
    let [check] = &found[..] else { panic!("{found:?}") };
    (check.outcome, check.found.clone())
}

#[test]
fn drives_that_slow_down_beside_their_neighbours_while_links_have_room_vibrate() {
    let (outcome, found) = vibration([198.0, 197.0, 140.0, 199.0, 150.0, 196.0], Some(0.2));
    assert_eq!(outcome, Outcome::Fail);
    assert!(
        found.contains("was 20.0 % full, so they disturb each other: /dev/sd2, /dev/sd4"),
        "{found}"
    );
    assert!(found.starts_with("6 drives together do 70.0 % to 99.5 %"), "{found}");
    assert_eq!(vibration([198.0; 6], Some(0.2)).0, Outcome::Pass);
}

#[test]
fn what_a_full_link_or_the_client_explains_is_no_vibration() {
    let slow = [198.0, 197.0, 140.0, 199.0, 150.0, 196.0];
    for (together, full, why) in [
        (slow, Some(0.95), "SAS3008 was 95.0 % full, which explains it"),
        (slow, None, "how full the links were is not known"),
        ([140.0, 141.0, 140.5, 140.0, 142.0, 141.0], Some(0.2), "alike, which vibration is not"),
    ] {
        let (outcome, found) = vibration(together, full);
        assert_eq!(outcome, Outcome::CannotTell, "{found}");
        assert!(found.contains(why), "{found}");
    }
    // Flash does not vibrate; of unknown drives nothing is said.
    let flash = |_: &str| Facts { is_spinning: Some(false), model: None };
    assert!(judge(&six(slow, Some(0.2)), flash, "drives.vibration").is_empty());
    assert!(judge(&six(slow, Some(0.2)), |_| Facts::default(), "drives.vibration").is_empty());
}

#[test]
fn drives_are_held_against_what_their_maker_states_for_exactly_them() {
    let drive = |rate: f64| vec![measured("raw.each", 0, rate, None)];
    let of = |rate: f64, facts: fn(&str) -> Facts| {
        let check = judge(&drive(rate), facts, "drive.as_stated").remove(0);
        (check.outcome, check.found)
    };
    // A spinning drive is anywhere between its edges: 265 and 145 MB/s.
    let (outcome, found) = of(150e6, spinning);
    assert_eq!(outcome, Outcome::Pass);
    assert!(
        found.starts_with("seq-read: 150 MB/s of 265 MB/s stated, 56.6 %; Toshiba MG07SCA"),
        "{found}"
    );
    assert_eq!(of(120e6, spinning).0, Outcome::Fail);
    let flash = |_: &str| flash("KXG60ZNV1T02", 1_024_209_543_168);
    assert_eq!(of(3_000e6, flash).0, Outcome::Pass);
    assert_eq!(of(2_000e6, flash).0, Outcome::Fail);
    let unknown = |_: &str| self::flash("NOBODY KNOWS ME", 1_000_000_000_000);
    let (outcome, found) = of(1e9, unknown);
    assert_eq!(outcome, Outcome::CannotTell);
    assert!(found.contains("not in the library of drive models"), "{found}");
    let (outcome, found) = of(1e9, |_| Facts::default());
    assert_eq!((outcome, found.contains("have no model")), (Outcome::CannotTell, true));
}

#[test]
fn the_datasheet_of_a_run_is_the_sum_of_what_all_makers_state_or_nothing() {
    let run = six([150.0; 6], None);
    let run: Vec<&Measurement> = run.iter().filter(|it| it.stage == "raw.each").collect();
    let library = Library::default();
    assert_eq!(stated_sum(&run, spinning, &library), Some(6.0 * 265e6));
    let one_of_files = |target: &str| match target == run[2].target {
        true => Facts::default(),
        false => spinning(target),
    };
    assert_eq!(stated_sum(&run, one_of_files, &library), None);
    assert_eq!(stated_sum(&[], spinning, &library), None);
}

#[test]
fn a_library_of_ones_own_says_what_a_drive_should_do() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("own.toml");
    let text = "format = 1\nname = \"own\"\nversion = 1\n[[family]]\nname = \"Ours\"\n\
        model = 'NOBODY KNOWS ME'\nmedium = \"flash\"\nsource = \"our own sheet\"\n\
        [[family.capacity]]\ngigabytes = 1000\nsequential_read = 4000\n";
    std::fs::write(&path, text).expect("written");
    let library = Library::with(&[path]).expect("understood");
    let facts = |_: &str| flash("NOBODY KNOWS ME", 1_000_000_000_000);
    let known = [measured("raw.each", 0, 1e9, None)];
    let told = checks(known.iter(), facts, &library);
    let check = told.iter().find(|it| it.name == "drive.as_stated").expect("judged");
    assert_eq!(check.outcome, Outcome::Fail, "a quarter of 4000 MB/s: {check:?}");
    assert!(check.found.contains("our own sheet"), "{check:?}");
}

/// Seed 004 stresses all arrays at once: "make sure that no mutual influence of RAID instances".
#[test]
fn arrays_at_once_are_held_against_each_alone_and_what_they_shared_is_named() {
    let all = |together: [f64; 3], full: Option<f64>, busy_s: f64| {
        let alone = (0..3).map(|it| measured("array.sweep", it, 20e9, None));
        let at_once = together.into_iter().enumerate().map(|(it, rate)| {
            let cpu = CpuCost { cores: 4, wall_s: 10.0, busy_s, ..CpuCost::default() };
            Measurement { cpu: Some(cpu), ..measured("arrays.all", it, rate * 1e9, full) }
        });
        alone.chain(at_once).collect::<Vec<_>>()
    };
    let one = |known: &[Measurement]| {
        let found = judge(known, |_| Facts::default(), "arrays.apart");
        let [check] = &found[..] else { panic!("{found:?}") };
        (check.outcome, check.found.clone())
    };
    let even = one(&all([19.8, 19.0, 20.0], None, 20.0));
    let said = "3 arrays at once, each of what it does alone: \
                /dev/sd1 95.0 %, /dev/sd0 99.0 %, /dev/sd2 100 %: no mutual influence";
    assert_eq!(even, (Outcome::Pass, said.to_owned()));
    for (full, busy_s, cause) in [
        (Some(0.97), 39.0, "SAS3008 was 97.0 % full"),
        (Some(0.3), 38.0, "all cores were 95.0 % busy"),
        (None, 20.0, "they disturb each other, and neither cores nor a link were full"),
    ] {
        let (outcome, found) = one(&all([12.0, 19.0, 20.0], full, busy_s));
        assert!(outcome == Outcome::Fail && found.ends_with(cause), "{found}");
    }
    let mut without = all([19.8, 19.0, 20.0], None, 20.0);
    without.remove(1);
    let (outcome, found) = one(&without);
    assert!(outcome == Outcome::CannotTell && found.ends_with("alone: /dev/sd1"), "{found}");
    assert!(judge(&without[..2], |_| Facts::default(), "arrays.apart").is_empty());
}
