//! Two hosts make the load: two `fio --server` on loopback ports, driven by `lab run`.
//!
//! What must stay true: nothing here asserts how fast anything was; a test that cannot run says why
//! and is counted by name.
#![forbid(unsafe_code)]

use ashlar_lab::record::{Check, Measurement, Record};
use ashlar_lab::store::RunDir;
use ashlar_lab::validity::Outcome;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_ashlar-lab");
/// Looks at a port before a server is given up.
const LOOKS_MAX: u32 = 10_000_000;

/// A `fio --server`, ended with its test.
struct Server {
    port: u16,
    process: Child,
}

impl Server {
    /// On a free port; `None`, said, if there is no fio.
    fn begin(test: &str) -> Option<Server> {
        let port = free_port();
        let begun = Command::new("fio")
            .arg(format!("--server=ip:127.0.0.1,{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = begun else {
            let said = format!("skipped: {test}: no fio\n");
            let _unseen_at_worst = std::io::stderr().write_all(said.as_bytes());
            return None;
        };
        let server = Server { port, process };
        let listens = |_: &u32| {
            std::thread::yield_now();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        };
        assert!((0..LOOKS_MAX).any(|at| listens(&at)), "the server listens");
        Some(server)
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("known").port()
}

/// A plan that does `profile` on one file, by these hosts.
fn plan(place: &Path, hosts: &[String], profile: &str) -> PathBuf {
    let file = place.join("array");
    std::fs::write(&file, vec![0x5a; 8 << 20]).expect("written");
    let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
    let text = format!(
        "question = \"what do two clients see?\"\nruntime_s = 2\nramp_s = 0\nioengine = \"psync\"\n\
         hosts = [{}]\n\
         [[arrays]]\npath = \"{}\"\n[[stages]]\nkind = \"array.sweep\"\n\
         profiles = [\"{profile}\"]\ndepths = [1]\n",
        hosts.join(", "),
        file.display()
    );
    let path = place.join("plan.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn run(place: &Path, plan: &Path, more: &[&str]) -> (Output, PathBuf) {
    let to = place.join("run");
    let mut command = Command::new(LAB);
    let output = command
        .arg("run")
        .arg(plan)
        .arg("--to")
        .arg(&to)
        .args(["--no-stacks", "--strangers", "100"])
        .args(more);
    (output.output().expect("started"), to)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn records(run: &Path) -> Vec<Record> {
    RunDir::open(run).expect("a run").read().expect("readable").records
}

fn measured(run: &Path) -> Measurement {
    let only = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
    records(run).into_iter().find_map(only).expect("a measurement")
}

fn check(run: &Path, name: &str) -> Check {
    let only = |record| match record {
        Record::Check(check) if check.name == name => Some(check),
        _ => None,
    };
    records(run).into_iter().find_map(only).expect("the check is there")
}

#[test]
fn two_hosts_are_one_figure_with_each_ones_part_and_their_versions_and_clocks_are_compared() {
    let test =
        "two_hosts_are_one_figure_with_each_ones_part_and_their_versions_and_clocks_are_compared";
    let (Some(one), Some(other)) = (Server::begin(test), Server::begin(test)) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let plan = plan(place.path(), &[one.host(), other.host()], "rr-4k");
    let (output, to) = run(place.path(), &plan, &[]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
    let figure = measured(&to);
    let mut hosts: Vec<&str> = figure.hosts.iter().map(|host| host.host.as_str()).collect();
    hosts.sort_unstable();
    let mut asked = [one.host(), other.host()];
    asked.sort();
    assert_eq!(hosts, asked);
    let ios: u64 = figure.hosts.iter().map(|host| host.ios).sum();
    assert_eq!((ios, figure.read.ios > 0), (figure.read.ios, true));
    assert!(figure.hosts.iter().all(|host| host.ios > 0 && host.p99_ns.is_some()), "{figure:?}");
    let bins: u64 = figure.read.latency_bins.values().sum();
    assert_eq!(bins, figure.read.ios, "both hosts' histograms are in it");
    assert!(!figure.findings.iter().any(|it| it.rule == "H01"), "{:?}", figure.findings);
    assert!(!figure.read.series.is_empty(), "{figure:?}");
    let clients = figure.argv.iter().filter(|word| word.starts_with("--client=")).count();
    assert_eq!(clients, 2, "{:?}", figure.argv);
    for name in ["hosts.versions", "hosts.clocks"] {
        let check = check(&to, name);
        assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        assert!(asked.iter().all(|host| check.found.contains(host.as_str())), "{check:?}");
    }
}

#[test]
fn a_host_that_does_not_answer_is_one_line_and_nothing_is_measured() {
    let test = "a_host_that_does_not_answer_is_one_line_and_nothing_is_measured";
    let Some(one) = Server::begin(test) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let silent = format!("127.0.0.1:{}", free_port());
    let plan = plan(place.path(), &[one.host(), silent.clone()], "rr-4k");
    let (output, to) = run(place.path(), &plan, &[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&silent) && said.contains("does not answer"), "{said}");
    assert!(!records(&to).iter().any(|it| matches!(it, Record::Measurement(_))));
}

#[test]
fn what_hosts_would_overwrite_is_refused_until_it_is_named_with_each_host() {
    let place = tempfile::tempdir().expect("a directory");
    let plan = plan(place.path(), &["127.0.0.1:1".to_owned()], "rw-4k");
    let before = std::fs::read(place.path().join("array")).expect("there");
    let (output, _) = run(place.path(), &plan, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("--destroy 127.0.0.1:1:"), "{}", said(&output));
    let shown = Command::new(LAB).arg("run").arg(&plan).arg("--dry-run").output().expect("started");
    let printed = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        printed.contains("fio --output-format=json+ --client=ip:127.0.0.1,1 1.fio"),
        "{printed}"
    );
    assert_eq!(std::fs::read(place.path().join("array")).expect("there"), before);
}
