//! Drives that are handed over: nothing is done to them unasked.

use crate::devices::Loop;
use crate::program::{LAB, said, word};
use crate::{Place, alone, beside, lab, measured, stage};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

#[test]
fn a_device_that_was_handed_over_is_not_overwritten_unless_it_is_named() {
    let _machine = beside();
    needs!("fio", "btrfs", "mkfs.btrfs", "mkswap");
    let place = Place::new();
    let files = ["m0", "m1", "m2", "taken"].map(|name| place.file(name, vec![0; 8 << 20]));
    let taken = &files[3];
    let made = Command::new("mkswap").arg(taken).output().expect("started");
    assert!(made.status.success(), "{}", said(&made));
    let device = format!("device:{}", word(taken));
    let members: Vec<&str> = files[..3].iter().flat_map(|file| ["--member", word(file)]).collect();
    for engines in [["btrfs", &device], [&device, "btrfs"]] {
        let words =
            [&["compare"], &engines[..], &["--level", "raid5", "--dry-run"], &members].concat();
        let output = lab(&words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let text = said(&output);
        assert!(text.contains("swap") && text.contains("--destroy"), "{text}");
        let named = lab(&[&words[..], &["--destroy", word(taken)]].concat());
        assert!(named.status.success(), "{}", said(&named));
        // In earnest, too: nothing is begun, and what was on it is still there.
        let before = std::fs::read(taken).expect("readable");
        let run = place.run();
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

/// The setting of each turn is made before it and taken back after it, and the report tells the
/// two apart.
#[test]
fn a_device_is_compared_with_itself_under_two_settings_in_turns() {
    let _machine = beside();
    needs!("fio");
    let place = Place::new();
    let (file, log, run) = (place.file("file", vec![7; 8 << 20]), place.path("log"), place.run());
    let device = format!("device:{}", word(&file));
    let note = |what: &str| format!("echo {what} >> {}", log.display());
    let [set_a, unset_a, set_b] = ["a", "no-a", "b"].map(note);
    let words = ["compare", &device, &device, "--set-a", &set_a, "--unset-a", &unset_a];
    let more = ["--set-b", &set_b, "--to", word(&run), "--rounds", "2", "--seconds", "1"];
    let last = ["--span", "8", "--load", "randread", "--no-stacks", "--destroy", word(&file)];
    let output = lab(&[&words[..], &more, &last].concat());
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    assert_eq!(told, "a\nno-a\nb\nb\na\nno-a\n", "{}", said(&output));
    let labels: std::collections::BTreeSet<String> =
        measured(&run).iter().map(|it| it.engine.label()).collect();
    assert!(
        labels.len() == 2 && labels.iter().any(|it| it.contains("set by echo b")),
        "{labels:?}"
    );
}

#[test]
fn a_blank_drive_needs_no_permission_and_one_with_data_does() {
    let _machine = beside();
    let place = Place::new();
    needs!("fio");
    let Some(device) = Loop::over(&place.path("drive")) else { return };
    let text = format!("drives = [\"{}\"]\n{}", device.0, stage("raw.each", "seq-write-1m"));
    let plan = place.plan(&text);
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

/// A node on a file system that allows none cannot be opened, not even by root.
#[test]
fn a_mounted_device_that_cannot_be_opened_is_said_to_be_mounted() {
    let _machine = alone();
    needs_root!("mkfs.ext4", "mknod");
    let place = Place::new();
    let Some(device) = Loop::of(&place.path("file"), 16 << 20) else { return };
    let [used, closed] = ["used", "closed"].map(|name| place.path(name));
    [&used, &closed].iter().for_each(|folder| std::fs::create_dir(folder).expect("made"));
    let ran = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().expect("started");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    };
    ran(&["mkfs.ext4", "-q", "-F", &device.0]);
    let number = std::fs::metadata(&device.0).expect("there").rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let node = closed.join("drive");
    ran(&["mount", "-t", "tmpfs", "-o", "nodev", "none", word(&closed)]);
    ran(&["mknod", word(&node), "b", &major.to_string(), &minor.to_string()]);
    ran(&["mount", &device.0, word(&used)]);
    let text = format!("[a]\nrw=write\nbs=1m\nsize=1m\nfilename={}\n", word(&node));
    let job = place.file("job.fio", text);
    let can_be_opened = std::fs::File::open(&node).is_ok();
    let output = lab(&["lint", word(&job)]);
    ran(&["umount", word(&used)]);
    ran(&["umount", word(&closed)]);
    assert!(!can_be_opened, "nothing is shown by this");
    let mounted = format!("is mounted on {}", word(&used));
    assert!(said(&output).contains(&mounted), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_drive_that_another_lab_measures_is_refused_and_named_by_lint() {
    let _machine = beside();
    needs!("fio");
    let place = Place::new();
    let Some(device) = Loop::over(&place.path("drive")) else { return };
    let text = format!(
        "question = \"q\"\nruntime_s = 3600\nramp_s = 0\ndrives = [\"{}\"]\n{}",
        device.0,
        stage("raw.each", "rr-4k")
    );
    let plan = place.file("plan.toml", text);
    let job = place.file("job.fio", format!("[a]\nrw=write\nfilename={}\n", device.0));
    let mut first = Command::new(LAB)
        .args(["run", word(&plan), "--to", word(&place.run()), "--no-stacks"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let second = || lab(&["run", word(&plan), "--dry-run"]);
    // Its load runs once a second of it was kept.
    let seconds = place.path("run/seconds.jsonl");
    while !seconds.exists() && first.try_wait().expect("asked").is_none() {
        std::thread::yield_now();
    }
    let (refused, linted) = (second(), lab(&["lint", word(&job)]));
    let pid = i32::try_from(first.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::INT).expect("told");
    first.wait().expect("ended");
    assert!(said(&refused).contains("another lab measures it"), "{}", said(&refused));
    assert!(said(&linted).contains("measured by another lab"), "{}", said(&linted));
    assert!(second().status.success(), "{}", said(&second()));
}
