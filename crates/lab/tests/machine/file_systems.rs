//! A file system on an array: made, filled, measured with fio, and gone afterwards.

use crate::devices::Loop;
use crate::program::{said, word};
use crate::{Place, alone, checks, lab, listed, measured, skipped, stage};
use ashlar_lab::record::ArrayCondition;
use ashlar_lab::validity::Outcome;
use std::process::Command;

#[test]
fn a_file_system_on_an_array_is_filled_and_measured_and_gone_afterwards() {
    let _machine = alone();
    let place = Place::new();
    let Some(array) = Loop::of(&place.path("array"), 64 << 20) else { return };
    if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        return skipped("no mkfs.ext4");
    }
    let drives = ["a", "b", "c"].map(|name| place.file(name, vec![0x5a; 8 << 20]));
    // So slow that everything on the array is above them: they are measured again while the file
    // system is mounted.
    place.file("slow.fio", "[raw]\nrw=randread\nbs=4k\nrate_iops=10\n");
    place.plan(&format!(
        "drives = {}\n[profiles]\nslow = \"slow.fio\"\n\
         [[arrays]]\npath = \"{}\"\nstrip = \"64k\"\ndata_members = 2\nfile_system = \"ext4\"\n\
         span = \"8m\"\n{}{}{}",
        listed(&drives),
        array.0,
        stage("raw.all", "slow"),
        stage("array.sweep", "rr-4k"),
        stage("file-system", "rr-4k\", \"buffered-1m")
    ));
    let refused = place.ran(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("say --destroy"), "it only reads, but a file system is made");
    let (output, run) = (place.ran(&["--destroy", &array.0]), place.run());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
    let all = measured(&run);
    let figure = all.iter().find(|it| it.condition == ArrayCondition::FileSystem);
    let figure = figure.expect("it was measured through a file system");
    assert!(figure.read.ios > 0 && figure.workload.name == "rr-4k-j1-q1", "{}", figure.id);
    assert!(figure.argv.iter().any(|word| word == "fio"), "{:?}", figure.argv);
    let buffered = all.iter().find(|it| it.workload.name == "buffered-1m-j1-q1").expect("measured");
    let told = buffered.findings.iter().find(|it| it.rule == "L01").expect("that it is buffered");
    assert!(told.reason.contains("memory answers first"), "{told:?}");
    assert!(!buffered.findings.iter().any(|it| it.rule == "L28"), "{:?}", buffered.findings);
    let raw: Vec<_> = all.iter().filter(|it| it.stage == "raw.all").collect();
    assert_eq!(raw.len(), 9, "once before, once after the array, once after the file system");
    for measured in raw {
        let jobs = measured.argv.last().expect("a job file");
        let jobs = std::fs::read_to_string(jobs).expect("kept");
        assert!(jobs.contains(&format!("filename={}\n", measured.target)), "{jobs}");
        assert!(!jobs.contains("measured"), "raw drives, not the file: {jobs}");
    }
    let filled = checks(&run, "file_system.filled");
    assert_eq!((filled.len(), filled[0].outcome), (1, Outcome::Pass), "{filled:?}");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("readable");
    assert!(!mounts.contains(word(place.0.path())), "unmounted");
    let blank = Command::new("wipefs").args(["--noheadings", &array.0]).output().expect("started");
    assert!(blank.stdout.is_empty(), "no signature is left: {}", said(&blank));
    let report = lab(&["report", word(&run), "--markdown", word(&place.path("r.md"))]);
    assert!(report.status.success(), "{}", said(&report));
}
