//! Attempts to fool the lab with other programs: one that burns CPU time while a figure is taken,
//! and one that reads the device that is measured.

use crate::devices::Loop;
use crate::program::{said, word};
use crate::{Place, alone, measured, stage};
use ashlar_lab::record::Record;
use ashlar_lab::validity::{Finding, Severity};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A program that does harm until it is dropped.
struct Stranger(Child);

impl Stranger {
    fn begin(program: &str, words: &[&str]) -> Stranger {
        let mut command = Command::new(program);
        let quiet = command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        Stranger(quiet.spawn().expect("started"))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn burn_all_cores() -> Vec<Stranger> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let burn = ["-c", "while :; do :; done"];
    (0..cores).map(|_| Stranger::begin("sh", &burn)).collect()
}

/// One point of two seconds at 4 MB/s on `target`; `more` are further words for the lab.
fn run(place: &Place, target: &Path, more: &[&str]) -> Output {
    place.file("slow.fio", "[slow]\nrw=randread\nbs=4k\nrate=4m\n");
    let text = format!("drives = [{target:?}]\n[profiles]\nslow = \"slow.fio\"\n");
    let plan = place.plan(&(text + &stage("raw.each", "slow")));
    let slower = std::fs::read_to_string(&plan).expect("there").replace("_s = 1", "_s = 2");
    std::fs::write(&plan, slower).expect("written");
    let to = place.run();
    let words = ["run", word(&plan), "--to", word(&to), "--no-stacks"];
    crate::program::lab(&[&words[..], more].concat())
}

/// The errors among a figure's findings, by their rules.
fn errors(place: &Place) -> Vec<(String, String)> {
    let figure = measured(&place.run()).pop().expect("measured");
    let errors = figure.findings.into_iter().filter(|it| it.severity == Severity::Error);
    errors.map(|it| (it.rule, it.reason)).collect()
}

#[test]
fn a_figure_taken_beside_a_program_that_burns_the_cores_is_invalid() {
    let _machine = alone();
    needs!("fio");
    let place = Place::new();
    let target = place.file("target", vec![7; 1 << 20]);
    let _hogs = burn_all_cores();
    let output = run(&place, &target, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    // Whose name stands first depends on what else runs here.
    let found = errors(&place);
    assert!(found.iter().any(|(rule, _)| rule == "A15"), "{found:?}");
}

#[test]
fn an_account_taken_beside_a_program_that_burns_the_cores_says_so() {
    let _machine = alone();
    needs_root!("fio", "perf");
    let place = Place::new();
    let target = place.file("target", vec![7; 1 << 20]);
    let text = format!(
        "[slow]\nrw=randread\nbs=4k\nrate=4m\nruntime=2\ntime_based\nfilename={}\n",
        word(&target)
    );
    let job = place.file("slow.fio", text);
    let hogs = burn_all_cores();
    let output = crate::program::lab(&["--json", "cpu", "--fio", word(&job)]);
    drop(hogs);
    let is_noticed = |it: &Finding| it.rule == "A15" && it.severity == Severity::Error;
    let Ok(Record::Cpu(account)) = serde_json::from_slice(&output.stdout) else {
        panic!("no account: {}", said(&output));
    };
    assert!(account.findings.iter().any(is_noticed), "{}", said(&output));
}

#[test]
fn a_figure_of_a_device_that_somebody_else_reads_is_invalid() {
    let _machine = alone();
    needs!("fio");
    let place = Place::new();
    let Some(device) = Loop::over(&place.path("drive")) else { return };
    let read = format!("while :; do dd if={} of=/dev/null bs=64k iflag=direct; done", device.0);
    let stranger = Stranger::begin("sh", &["-c", &read]);
    let output = run(&place, Path::new(&device.0), &["--strangers", "100"]);
    drop(stranger);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let found = errors(&place);
    let is_it = |(rule, why): &(String, String)| rule == "A16" && why.contains("somebody else");
    assert!(found.iter().any(is_it), "{found:?}");
}
