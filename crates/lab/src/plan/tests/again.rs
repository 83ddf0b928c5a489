//! A figure above what the raw drives gave: they are measured again, and only what is above that,
//! too, is INVALID.
//!
//! What must stay true: the slow raw run that these tests begin with is planted as records, so
//! nothing here depends on how fast this machine is, as long as a file gives more than 8 MB/s.

use super::{Place, place};
use crate::evidence::Interrupt;
use crate::fio::Setting;
use crate::fio::tests::needs_fio;
use crate::plan::file::{Array, Kind};
use crate::record::{Measurement, Record};
use crate::store::RunDir;
use crate::validity::{Mark, Severity};

/// An array that is asked for 8 MB/s by two jobs, and raw drives that are asked for `raw`; two
/// stages.
fn staged(raw: &str, mix: &str) -> Place {
    let place = place(&format!(
        "strip = \"64k\"\ndata_members = 2\n[[stages]]\nkind = \"raw.all\"\n\
         profiles = [\"seq-{mix}-1m\"]\ndepths = [1]\n\
         [[stages]]\nkind = \"array.sweep\"\nprofiles = [\"seq-{mix}-1m\"]\ndepths = [1]\n\
         jobs = [2]\n"
    ));
    let mut place = place;
    for group in &mut place.plan.groups {
        for point in &mut group.points {
            let rate = if point.kind == Kind::RawAll { raw } else { "4m" };
            if !rate.is_empty() {
                let jobs = point.jobs.sections.iter_mut().filter(|it| it.name != "global");
                jobs.for_each(|job| job.settings.push(Setting::new("rate", rate)));
            }
        }
    }
    place
}

/// Raw drives that were measured in a bad moment: 100 kB/s each.
fn plant_a_bad_moment(place: &Place) {
    let dir = RunDir::open(&place.dir.path().join("run")).unwrap();
    let point = place.plan.points().find(|point| point.kind == Kind::RawAll).unwrap();
    for target in &point.targets {
        let mut slow = super::blank(&point.id(target), &point.workload);
        slow.target = target.path.display().to_string();
        let is_read = point.workload.mix == "read";
        let side = if is_read { &mut slow.read } else { &mut slow.write };
        (side.bytes_per_s, side.iops) = (100e3, 0.1);
        dir.append(&Record::Measurement(Box::new(slow))).unwrap();
    }
}

fn of_array(all: &[Measurement]) -> &Measurement {
    all.iter().find(|measured| measured.stage == "array.sweep").unwrap()
}

#[test]
fn a_figure_above_raw_drives_that_had_a_bad_moment_is_valid_once_they_were_measured_again() {
    needs_fio!();
    let place = staged("", "read");
    plant_a_bad_moment(&place);
    let summary = place.run(Interrupt::default()).unwrap();
    let all = place.measured();
    let raw: Vec<u32> =
        all.iter().filter(|it| it.stage == "raw.all").map(|measured| measured.round).collect();
    assert_eq!(raw, [0, 0, 0, 1, 1, 1], "both raw runs are kept");
    let figure = of_array(&all);
    assert_eq!(Mark::of(&figure.findings), Mark::ValidWithNotes, "{:?}", figure.findings);
    let note = figure.findings.iter().find(|finding| finding.rule == "F14").unwrap();
    assert!(note.reason.contains("300 kB/s") && note.reason.contains("drifted"), "{note:?}");
    assert!(!figure.findings.iter().any(|it| it.rule == "L29" && it.severity == Severity::Error));
    assert_eq!((summary.invalid, summary.measured), (0, 4));
    let baseline = place.records().into_iter().find_map(|record| match record {
        Record::Baseline(point) => Some(point),
        _ => None,
    });
    let baseline = baseline.unwrap();
    assert!(baseline.value > 1e6, "of the better round: {baseline:?}");
    assert!(baseline.derivation.contains("the best of 2 rounds"), "{baseline:?}");
}

/// Raw drives are measured again if they are read; under an array they are never written again.
#[test]
fn a_figure_that_stays_above_raw_drives_is_invalid() {
    needs_fio!();
    for (raw, mix, runs, why) in
        [("1m", "read", 6, "stays above"), ("", "write", 3, "would have overwritten the array")]
    {
        let place = staged(raw, mix);
        plant_a_bad_moment(&place);
        let summary = place.run(Interrupt::default()).unwrap();
        let all = place.measured();
        assert_eq!(all.iter().filter(|it| it.stage == "raw.all").count(), runs);
        let figure = of_array(&all);
        assert_eq!(Mark::of(&figure.findings), Mark::Invalid, "{:?}", figure.findings);
        let note = figure.findings.iter().find(|finding| finding.rule == "F14").unwrap();
        assert!(note.reason.contains(why), "{note:?}");
        assert_eq!(summary.invalid, 1);
    }
}

/// The drives may be those of either array: neither has a BASELINE.
#[test]
fn of_several_arrays_nobody_says_which_drives_are_whose() {
    needs_fio!();
    let count = |place: &Place| {
        place.run(Interrupt::default()).unwrap();
        place.records().iter().filter(|it| matches!(it, Record::Baseline(_))).count()
    };
    let mut place = staged("", "read");
    let twin = Array { path: place.dir.path().join("twin"), ..place.plan.arrays[0].clone() };
    place.plan.arrays.push(twin);
    assert_eq!((count(&place), count(&staged("", "read"))), (0, 1));
}
