//! Drives that are purged, handed over, or have a switch: what is done to them, and that nothing is
//! done unasked.

use crate::{Loop, alone_with_mounts, checks, has_fio, lab, measured, said, skipped, word};
use ashlar_lab::validity::Outcome;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_drive_is_purged_only_if_it_is_named_and_the_purge_is_a_record() {
    let test = "a_drive_is_purged_only_if_it_is_named_and_the_purge_is_a_record";
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("drive");
    let Some(device) = Loop::over(test, &file) else { return };
    let content = || std::fs::read(&device.0).expect("readable");
    let run = place.path().join("run");
    let purge = |more: &[&str]| lab(&[&["purge", &device.0], more].concat());
    let refused = purge(&["--to", word(&run)]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("say --destroy"), "{}", said(&refused));
    let dry = purge(&["--dry-run", "--destroy", &device.0]);
    assert!(dry.status.success() && said(&dry).contains("blkdiscard --force"), "{}", said(&dry));
    let none = purge(&["--method", "sanitize", "--to", word(&run), "--destroy", &device.0]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("methods it has: discard"), "{}", said(&none));
    assert!(content().iter().all(|byte| *byte == 0xa5), "nothing was changed so far");
    let done = purge(&["--to", word(&run), "--destroy", &device.0]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(content().iter().all(|byte| *byte == 0), "discarded");
    let record = checks(&run, "drive.purged");
    assert_eq!((record.len(), record[0].outcome), (1, Outcome::Pass));
    assert!(record[0].found.contains("read as zeros"), "{record:?}");
}

#[test]
fn a_purged_drive_is_not_a_preconditioned_one_and_is_not_purged_again_on_resumption() {
    let test = "a_purged_drive_is_not_a_preconditioned_one_and_is_not_purged_again_on_resumption";
    let place = tempfile::tempdir().expect("a directory");
    let Some(device) = Loop::over(test, &place.path().join("drive")) else { return };
    if !has_fio(test) {
        return;
    }
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"what did it know?\"\nruntime_s = 1\nramp_s = 0\nioengine = \"psync\"\n\
         drives = [\"{}\"]\n\
         [[stages]]\nkind = \"precondition\"\n[[stages]]\nkind = \"purge\"\n\
         [[stages]]\nkind = \"raw.each\"\nprofiles = [\"rr-4k\"]\ndepths = [1]\n",
        device.0
    );
    std::fs::write(&plan, text).expect("written");
    let run = place.path().join("run");
    let refused = lab(&["run", word(&plan), "--to", word(&run)]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let more = ["--strangers", "100", "--destroy", &device.0];
    let output = lab(&[&["run", word(&plan), "--to", word(&run)][..], &more].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let figure = measured(&run).pop().expect("measured");
    assert!(figure.findings.iter().any(|finding| finding.rule == "L08"), "{:?}", figure.findings);
    let again = lab(&[&["run", word(&plan), "--resume", word(&run)][..], &more].concat());
    assert!(said(&again).contains("0 measurements"), "{}", said(&again));
    assert_eq!(checks(&run, "drive.purged").len(), 1);
}

#[test]
fn a_drive_without_a_switch_is_measured_with_the_cache_that_it_has() {
    let test = "a_drive_without_a_switch_is_measured_with_the_cache_that_it_has";
    let _alone = alone_with_mounts();
    let place = tempfile::tempdir().expect("a directory");
    let Some(device) = Loop::over(test, &place.path().join("drive")) else { return };
    let plan = place.path().join("plan.toml");
    let text = format!(
        "question = \"what does a flush cost?\"\nruntime_s = 1\ndrives = [\"{}\"]\n[[stages]]\n\
         kind = \"write-cache\"\n",
        device.0
    );
    std::fs::write(&plan, text).expect("written");
    let output = lab(&["run", word(&plan), "--dry-run", "--destroy", &device.0]);
    let shown = said(&output);
    assert!(output.status.success(), "{shown}");
    // Three guarantees, two sizes, two orders, three depths.
    assert_eq!(shown.matches("/cache-as-it-is-").count(), 36, "{shown}");
    assert_eq!(
        (shown.matches("\n    sync=1").count(), shown.matches("\n    fsync=1").count()),
        (12, 12)
    );
    assert!(!shown.contains("restored at the end"), "{shown}");
}

#[test]
fn a_device_that_was_handed_over_is_not_overwritten_unless_it_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> =
        ["m0", "m1", "m2", "taken"].map(|name| place.path().join(name)).into();
    files.iter().for_each(|file| std::fs::write(file, vec![0; 8 << 20]).expect("written"));
    let taken = &files[3];
    let made = Command::new("mkswap").arg(taken).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return skipped(
            "a_device_that_was_handed_over_is_not_overwritten_unless_it_is_named",
            "no mkswap",
        );
    }
    let device = format!("device:{}", word(taken));
    let members: Vec<&str> = files[..3].iter().flat_map(|file| ["--member", word(file)]).collect();
    for engines in [["btrfs", &device], [&device, "btrfs"]] {
        let words =
            [&["compare"], &engines[..], &["--level", "raid5", "--dry-run"], &members].concat();
        let output = lab(&words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(
            said(&output).contains("swap") && said(&output).contains("--destroy"),
            "{}",
            said(&output)
        );
        let named = lab(&[&words[..], &["--destroy", word(taken)]].concat());
        assert!(named.status.success(), "{}", said(&named));
        // In earnest, too: nothing is begun, and what was on it is still there.
        let before = std::fs::read(taken).expect("readable");
        let run = place.path().join("run");
        let earnest: Vec<&str> =
            words.iter().copied().filter(|word| *word != "--dry-run").collect();
        let begun = lab(&[&earnest[..], &["--to", word(&run), "--no-stacks"]].concat());
        assert_eq!(begun.status.code(), Some(1), "{}", said(&begun));
        assert!(said(&begun).contains("carries swap; nothing was written"), "{}", said(&begun));
        assert!(std::fs::read(taken).expect("readable") == before, "untouched");
        assert!(!run.join("run.json").exists(), "no run was begun");
        let _the_log_of_what_was_looked_at = std::fs::remove_dir_all(&run);
    }
}

#[test]
fn a_blank_drive_needs_no_permission_and_one_with_data_does() {
    let test = "a_blank_drive_needs_no_permission_and_one_with_data_does";
    let place = tempfile::tempdir().expect("a directory");
    if !has_fio(test) {
        return;
    }
    let file = place.path().join("drive");
    let Some(device) = Loop::over(test, &file) else { return };
    let text = format!(
        "question = \"q\"\nruntime_s = 1\ndrives = [\"{}\"]\n[[stages]]\nkind = \"raw.each\"\n\
         profiles = [\"seq-write-1m\"]\n",
        device.0
    );
    let plan = place.path().join("plan.toml");
    std::fs::write(&plan, text).expect("written");
    let asked = || lab(&["run", word(&plan), "--dry-run"]);
    let refused = asked();
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("would be overwritten"), "{}", said(&refused));
    let blank = vec![0; 8 << 20];
    std::fs::write(&device.0, &blank).expect("written through the device");
    assert!(asked().status.success(), "{}", said(&asked()));
    // One block of data at the end of it.
    let mut one = blank;
    one[(8 << 20) - 4096] = 1;
    std::fs::write(&device.0, &one).expect("written through the device");
    assert_eq!(asked().status.code(), Some(1), "{}", said(&asked()));
}
