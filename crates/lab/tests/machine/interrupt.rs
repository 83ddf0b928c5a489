//! Interrupted while an array of the lab's own stands: it is taken away to its end all the same;
//! who interrupts once more is told what is left, and the commands that were kept take it away.
//!
//! What must stay true: nothing here waits for a time to pass; what a test leaves behind is its own
//! and is taken away.

use crate::program::{LAB, word};
use crate::{Place, beside, listed, skipped, stage};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A place with member files, and a plan of an array of `engine` over them whose first load would
/// take an hour.
struct Bench {
    place: Place,
    members: Vec<PathBuf>,
}

impl Bench {
    fn new(engine: &str) -> Bench {
        let place = Place::new();
        let members: Vec<PathBuf> = (0..4).map(|at| place.path(&format!("m{at}"))).collect();
        for member in &members {
            std::fs::File::create(member).and_then(|it| it.set_len(512 << 20)).expect("sized");
        }
        let text = format!(
            "question = \"q\"\nruntime_s = 3600\nramp_s = 0\n[[arrays]]\nengine = \"{engine}\"\n\
             members = {}\nspan = \"8m\"\n{}",
            listed(&members),
            stage("array.sweep", "rr-4k")
        );
        place.file("plan.toml", text);
        Bench { place, members }
    }

    fn run(&self) -> PathBuf {
        self.place.run()
    }

    /// `lab run` with programs of `before` found first.
    fn start(&self, before: Option<&Path>) -> Child {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = before.map_or(path.clone(), |before| format!("{}:{path}", before.display()));
        let mut words = vec!["run", "--no-stacks", "--strangers", "100", "--to"];
        let (run, plan) = (self.run(), self.place.path("plan.toml"));
        words.extend([word(&run), word(&plan)]);
        self.members.iter().for_each(|member| words.extend(["--destroy", word(member)]));
        let beside = Path::new(LAB).with_file_name("ashlar");
        let ashlar = std::env::var_os("ASHLAR").unwrap_or_else(|| beside.into_os_string());
        Command::new(LAB)
            .args(words)
            .env("PATH", path)
            .env("ASHLAR", ashlar)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started")
    }

    /// Wait until the load runs: its job file is there, and fio has been told of it.
    fn await_load(&self, lab: &mut Child) {
        let evidence = self.run().join("evidence");
        loop {
            let files = std::fs::read_dir(&evidence).into_iter().flatten().flatten();
            let is_load = |path: PathBuf| {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                path.extension().is_some_and(|it| it == "begun")
                    && (text.contains("array.sweep ") || text.contains("degraded "))
                    && text.contains("\"pid\":")
                    && !text.contains("\"pid\":null")
            };
            if files.map(|file| file.path()).any(is_load) {
                return;
            }
            if let Some(status) = lab.try_wait().expect("asked") {
                let said = std::io::read_to_string(lab.stderr.take().expect("piped"));
                panic!("it ended before the load began, {status}: {said:?}");
            }
            std::thread::yield_now();
        }
    }

    /// What is still there of the array: mounts and loop devices of this place.
    fn left(&self) -> Vec<String> {
        let place = word(self.place.0.path());
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("readable");
        let loops = Command::new("losetup")
            .args(["--list", "--noheadings", "-O", "NAME,BACK-FILE"])
            .output();
        let loops = String::from_utf8_lossy(&loops.expect("listed").stdout).into_owned();
        let own = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains(place)).map(str::to_owned).collect()
        };
        [own(&mounts), own(&loops)].concat()
    }

    fn signatures(&self) -> String {
        let look = |member: &PathBuf| {
            let output = Command::new("wipefs").args(["--noheadings", word(member)]).output();
            String::from_utf8_lossy(&output.expect("looked").stdout).into_owned()
        };
        self.members.iter().map(look).collect()
    }
}

fn interrupt(lab: &Child) {
    let pid = i32::try_from(lab.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::INT).expect("told");
}

fn ended(lab: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = lab.wait_with_output().expect("ended");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn an_interrupted_run_leaves_nothing(engine: &str) {
    let bench = Bench::new(engine);
    let mut lab = bench.start(None);
    bench.await_load(&mut lab);
    assert_ne!(bench.left(), Vec::<String>::new(), "the array stands while it is measured");
    interrupt(&lab);
    let (code, said) = ended(lab);
    assert_eq!(bench.left(), Vec::<String>::new(), "{said}");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("taking away what was made").count(), 1, "{said}");
    assert!(said.contains("--resume"), "{said}");
}

#[test]
fn an_interrupted_run_takes_its_btrfs_away_to_the_end() {
    let _machine = beside();
    needs_root!("fio", "losetup", "mkfs.btrfs");
    an_interrupted_run_leaves_nothing("btrfs");
}

/// The lab has no crate of ours below it, so the engine's program is there or it is not.
#[test]
fn an_interrupted_run_takes_its_ashlar_away_to_the_end() {
    let _machine = beside();
    let beside = Path::new(LAB).with_file_name("ashlar");
    let told = std::env::var("ASHLAR").ok();
    if told.is_none() && !beside.exists() {
        return skipped("no ashlar beside the lab");
    }
    needs_root!("fio", "losetup", "mkfs.xfs");
    an_interrupted_run_leaves_nothing("ashlar");
}

#[test]
fn who_interrupts_twice_is_told_what_is_left_and_how_it_goes_away() {
    let _machine = beside();
    needs_root!("fio", "losetup", "mkfs.btrfs", "mkfifo");
    let bench = Bench::new("btrfs");
    // An umount that says that it was asked and then never ends.
    let tools = bench.place.path("tools");
    let asked = bench.place.path("asked");
    assert!(Command::new("mkfifo").arg(&asked).status().expect("started").success());
    let text = format!("#!/bin/sh\necho asked > {}\nexec sleep 1000000\n", asked.display());
    let slow = bench.place.file("tools/umount", text);
    std::fs::set_permissions(&slow, PermissionsExt::from_mode(0o755)).expect("executable");
    let mut lab = bench.start(Some(&tools));
    bench.await_load(&mut lab);
    interrupt(&lab);
    assert_eq!(std::fs::read_to_string(&asked).expect("asked"), "asked\n");
    interrupt(&lab);
    let (code, said) = ended(lab);
    assert_eq!(code, Some(2), "{said}");
    let script = bench.run().join("left-behind.sh");
    assert!(said.contains("left behind") && said.contains(word(&script)), "{said}");
    let left = std::fs::read_to_string(&script).expect("kept");
    assert!(left.contains("umount ") && left.contains("losetup --detach"), "{left}");
    assert_ne!(bench.left(), Vec::<String>::new());
    let cleaned = Command::new("sh").arg(&script).output().expect("started");
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!((bench.left(), bench.signatures()), (Vec::new(), String::new()), "{left}");
}

/// An array that is not the lab's, as a file; its owner's commands say that they were run.
#[test]
fn members_that_the_plan_took_out_come_back_although_the_run_was_interrupted() {
    let _machine = beside();
    needs_root!("fio");
    let bench = Bench::new("btrfs");
    let place = &bench.place;
    let hooks = place.path("hooks");
    let array = place.file("array", vec![0xa5; 8 << 20]);
    let hook = |word: &str| format!("[[\"sh\", \"-c\", \"echo {word} >> {}\"]]", hooks.display());
    let text = format!(
        "question = \"q\"\nruntime_s = 3600\nramp_s = 0\n[[arrays]]\npath = {array:?}\n\
         take_out = {}\nrestore = {}\n{}",
        hook("out"),
        hook("back"),
        stage("degraded", "rr-4k")
    );
    place.file("plan.toml", text);
    let mut lab = bench.start(None);
    bench.await_load(&mut lab);
    interrupt(&lab);
    let (code, said) = ended(lab);
    let told = std::fs::read_to_string(&hooks).expect("there");
    assert_eq!((code, told.as_str()), (Some(1), "out\nback\n"), "{said}");
}
