//! The real binary as somebody uses it for the first time: what is missing is named before anything
//! starts, a dry run says every command, a reader may go away, and a run goes on without its plan.
//!
//! What must stay true: a test that cannot run says why and is counted by name.

use crate::program::{LAB, said, word};
use crate::{beside, lab};
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
    let place = tempfile::tempdir().expect("a directory");
    let members: Vec<_> = (0..4).map(|at| place.path().join(format!("m{at}"))).collect();
    members.iter().for_each(|path| std::fs::write(path, [0; 512]).expect("written"));
    let named = members.iter().flat_map(|path| ["--member", word(path)]);
    let words: Vec<&str> = ["compare", "btrfs", "mdadm", "--level", "raid5", "--dry-run"]
        .into_iter()
        .chain(named)
        .collect();
    // Nothing is found in an empty PATH.
    let output =
        Command::new(LAB).args(&words).env("PATH", place.path()).output().expect("started");
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
    let place = tempfile::tempdir().expect("a directory");
    let members: Vec<String> =
        (0..5).map(|at| format!("\"{}\"", place.path().join(format!("m{at}")).display())).collect();
    let text = format!(
        "question = \"q\"\nruntime_s = 1\n[[arrays]]\nengine = \"mdadm\"\nmembers = [{}]\n\
         [[stages]]\nkind = \"degraded\"\nprofiles = [\"rr-4k\"]\n",
        members.join(", ")
    );
    let plan = place.path().join("plan.toml");
    std::fs::write(&plan, text).expect("written");
    let text = said(&lab(&["run", word(&plan), "--dry-run"]));
    assert!(text.contains("\n$ mdadm --create"), "{text}");
    assert!(text.contains("\n$ fio --output-format=json+ 1.fio"), "{text}");
}

#[test]
fn a_run_goes_on_without_the_plan_and_the_profiles_that_it_began_with() {
    let _machine = beside();
    needs!("fio");
    let place = tempfile::tempdir().expect("a directory");
    let folder = place.path().join("plans");
    std::fs::create_dir_all(folder.join("jobs")).expect("made");
    let target = place.path().join("target");
    std::fs::write(&target, vec![7; 1 << 20]).expect("written");
    std::fs::write(folder.join("jobs/mine.fio"), "[mine]\nrw=randread\nbs=4k\n").expect("written");
    let text = format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\ndrives = [\"{}\"]\n\
         [profiles]\nmine = \"jobs/mine.fio\"\n[[stages]]\nkind = \"raw.each\"\n\
         profiles = [\"mine\"]\ndepths = [1]\n",
        target.display()
    );
    let plan = folder.join("plan.toml");
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let begun = lab(&["run", word(&plan), "--to", word(&run), "--strangers", "100"]);
    assert!(said(&begun).contains("1 measurements"), "{}", said(&begun));
    std::fs::remove_dir_all(&folder).expect("gone");
    let again = lab(&["run", "--resume", word(&run)]);
    assert!(said(&again).contains("0 measurements"), "{}", said(&again));
    assert!(said(&again).contains("1 there before"), "{}", said(&again));
}

#[test]
fn lint_asks_fio_and_takes_what_a_talk_printed() {
    let _machine = beside();
    needs!("fio");
    let place = tempfile::tempdir().expect("a directory");
    let job = |text: &str| {
        let path = place.path().join("job.fio");
        std::fs::write(&path, text).expect("written");
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
