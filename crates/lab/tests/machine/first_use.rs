//! The real binary as somebody uses it for the first time: what is missing is named before anything
//! starts, a dry run says every command, a reader may go away, and a run goes on without its plan.
//!
//! What must stay true: a test that cannot run says why and is counted by name.

use crate::program::{LAB, said, word};
use crate::{Place, beside, lab, listed, stage};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_reader_that_goes_away_ends_the_lab_quietly() {
    let _machine = beside();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(LAB);
    let output = command.args(["lint", "--explain", "all"]).stdout(writer).output().expect("run");
    assert_eq!(output.status.code(), Some(141), "as a shell shows it: {}", said(&output));
    assert_eq!(said(&output), "");
}

#[test]
fn a_comparison_says_what_it_would_do_and_names_all_that_is_missing() {
    let _machine = beside();
    let place = Place::new();
    let members: Vec<_> = (0..4).map(|at| place.file(&format!("m{at}"), [0; 512])).collect();
    let named = members.iter().flat_map(|path| ["--member", word(path)]);
    let words: Vec<&str> = ["compare", "btrfs", "mdadm", "--level", "raid5", "--dry-run"]
        .into_iter()
        .chain(named)
        .collect();
    // Nothing is found in an empty PATH.
    let output =
        Command::new(LAB).args(&words).env("PATH", place.0.path()).output().expect("started");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for line in ["$ mkfs.btrfs", "$ mdadm --create /dev/md/lab", "$ mdadm --stop /dev/md/lab"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    for name in ["program fio", "program lsblk", "program mdadm", "program mkfs.btrfs"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    assert!(text.contains("nothing was started"), "{text}");
}

#[test]
fn a_plan_says_what_its_engines_would_be_told() {
    let _machine = beside();
    let place = Place::new();
    let members: Vec<PathBuf> = (0..5).map(|at| place.path(&format!("m{at}"))).collect();
    let array = format!("[[arrays]]\nengine = \"mdadm\"\nmembers = {}\n", listed(&members));
    let plan = place.plan(&(array + &stage("degraded", "rr-4k")));
    let text = said(&lab(&["run", word(&plan), "--dry-run"]));
    assert!(text.contains("\n$ mdadm --create"), "{text}");
    assert!(text.contains("\n$ fio --output-format=json+ 1.fio"), "{text}");
}

#[test]
fn a_run_goes_on_without_the_plan_and_the_profiles_that_it_began_with() {
    let _machine = beside();
    needs!("fio");
    let place = Place::new();
    let target = place.file("target", vec![7; 1 << 20]);
    let profile = place.file("jobs/mine.fio", "[mine]\nrw=randread\nbs=4k\n");
    let text = format!("drives = [{target:?}]\n[profiles]\nmine = \"jobs/mine.fio\"\n");
    let plan = place.plan(&(text + &stage("raw.each", "mine")));
    let begun = place.ran(&[]);
    assert!(said(&begun).contains("1 measurements"), "{}", said(&begun));
    [plan, profile].iter().for_each(|path| std::fs::remove_file(path).expect("gone"));
    let again = lab(&["run", "--resume", word(&place.run())]);
    assert!(said(&again).contains("0 measurements"), "{}", said(&again));
    assert!(said(&again).contains("1 there before"), "{}", said(&again));
}

#[test]
fn lint_asks_fio_and_takes_what_a_talk_printed() {
    let _machine = beside();
    needs!("fio");
    let place = Place::new();
    let job = |text: &str| {
        let path = place.file("job.fio", text);
        let output = lab(&["lint", word(&path)]);
        (output.status.code(), said(&output))
    };
    for (text, why) in [
        ("[a]\nioengine=io_urng\nrw=read\nsize=1m\nfilename=f\n", "L30"),
        ("[a]\niodpeth=3\nrw=read\nsize=1m\nfilename=f\n", "iodpeth"),
        ("[a]\nrw=write/read\nsize=1m\nfilename=f\n", "rw=write/read is nothing"),
        ("[a]\nioengine=null\nsize=1m\n", "L31"),
        ("[global]\nbs=4k\n", "has no job"),
    ] {
        let (code, said) = job(text);
        assert_eq!(code, Some(1), "{text}: {said}");
        assert!(said.contains(why), "{text}: {said}");
    }
    let sound = job("[a]\nrw=read\ntime_based\nruntime=60\ndirect=1\nsize=1m\nfilename=f\n").1;
    assert!(!sound.contains("L30"), "{sound}");
}
