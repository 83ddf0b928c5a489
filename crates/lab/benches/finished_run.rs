//! Parsing and analysing a finished run of 1,000 fio results with 10 M folded stack samples, and
//! what sampling costs.
//!
//! Prints lines of `name value unit`; exit code 1 if a limit of the specification is missed: 10 s,
//! 1 GiB, and 1 % of a core for each busy core. The input is made up by a second process, so that
//! making it is not in the memory that is measured. `cargo bench -p ashlar-lab --bench
//! finished_run`; results are kept in docs/results/lab.md. Started without `--bench`, as `cargo
//! test` does, it takes a small input and judges neither time nor memory: a debugging build on a
//! busy machine says nothing about them. What must stay true: every sample of the input is a line
//! of its own, which is the hardest form of it.
#![forbid(unsafe_code)]

use ashlar_lab::cpu::account::{CpuAccount, Taken};
use ashlar_lab::cpu::files::{How, count};
use ashlar_lab::cpu::groups::Groups;
use ashlar_lab::evidence::process::monotonic;
use ashlar_lab::fio::FioResult;
use ashlar_lab::fio::measure::figures;
use ashlar_lab::metrics::share::{Unit, Window};
use ashlar_lab::record::{ArrayCondition, EngineIdentity, Measurement, Record, Workload};
use ashlar_lab::report::{findings, page, points, text};
use ashlar_lab::store::Run;
use regex::Regex;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// How large the input is.
#[derive(Clone, Copy)]
struct Size {
    results: u32,
    samples: u64,
}

const WHOLE: Size = Size { results: 1000, samples: 10_000_000 };
const SMALL: Size = Size { results: 20, samples: 20_000 };
const SECONDS_MAX: f64 = 10.0;
const BYTES_MAX: u64 = 1 << 30;
const SAMPLER_PERCENT_MAX: f64 = 1.0;
const MAKE: &str = "--make";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, place, results, samples] = words.as_slice()
        && flag == MAKE
    {
        let results = results.parse().expect("a number");
        make(Path::new(place), Size { results, samples: samples.parse().expect("a number") });
        return ExitCode::SUCCESS;
    }
    let is_judged = words.iter().any(|word| word == "--bench");
    let size = if is_judged { WHOLE } else { SMALL };
    let place = std::env::temp_dir().join(format!("ashlar-lab-bench-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let own = std::env::current_exe().expect("known");
    let mut maker = Command::new(own);
    maker.arg(MAKE).arg(&place).args([size.results.to_string(), size.samples.to_string()]);
    assert!(maker.status().expect("started").success(), "the input could not be made");
    let is_within = analyse(&place, size) & (!is_judged || sampler());
    std::fs::remove_dir_all(&place).expect("gone");
    ExitCode::from(u8::from(is_judged && !is_within))
}

/// Results in fio's own format, each with two jobs and full histograms, and lines of folded stacks.
fn make(place: &Path, size: Size) {
    let whole = include_str!("../tests/fio/two_jobs.json");
    let bins: String = (0..1200).fold(String::new(), |mut bins, at| {
        let _ = write!(bins, "\"{}\" : {}, ", 1000 + at * 512, 1 + at % 97);
        bins
    });
    let (before, after) = whole.split_once("\"bins\" : {").expect("json+ has bins");
    let result = format!("{before}\"bins\" : {{ {bins}{after}");
    for at in 0..size.results {
        std::fs::write(place.join(format!("{at}.json")), &result).expect("written");
    }
    let file = std::fs::File::create(place.join("stacks.folded")).expect("made");
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..size.samples {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (thread, leaf) = (state % 16, state / 16 % 4096);
        let head = if thread < 8 {
            "fio;entry_SYSCALL_64_[k];do_syscall_64_[k];io_submit_one_[k]"
        } else {
            "md0_raid6;kthread_[k];md_thread [md_mod]_[k];raid5d [raid456]_[k]"
        };
        writeln!(out, "{head};handle_stripe [raid456]_[k];frame_{leaf}_[k] 1").expect("written");
    }
    out.flush().expect("written");
}

fn measurement(at: u32, result: &FioResult) -> Measurement {
    let all = figures(result, |_| true);
    let depth = 1 << (at % 6);
    let workload = Workload {
        name: format!("rr-4k-j2-q{depth}"),
        mix: "randread".into(),
        read_percent: None,
        block_bytes: 4096,
        jobs: 2,
        depth,
    };
    let name = ["ashlar", "mdadm", "zfs"][usize::try_from(at % 3).expect("small")];
    Measurement {
        id: format!("array.sweep/{at}"),
        stage: "array.sweep".into(),
        round: at / 18,
        target: format!("/dev/{name}"),
        engine: EngineIdentity { name: name.into(), ..EngineIdentity::default() },
        condition: ArrayCondition::Healthy,
        workload,
        read: all.read,
        write: all.write,
        cpu: None,
        path: None,
        hosts: Vec::new(),
        findings: Vec::new(),
        argv: vec!["fio".into(), format!("{at}.fio")],
        evidence: Some(u64::from(at)),
        began_unix_s: 0,
    }
}

fn analyse(place: &Path, size: Size) -> bool {
    let began = monotonic();
    let mut run = Run::default();
    for at in 0..size.results {
        let bytes = std::fs::read(place.join(format!("{at}.json"))).expect("there");
        let result = FioResult::parse(&bytes).expect("a result");
        run.records.push(Record::Measurement(Box::new(measurement(at, &result))));
    }
    let parsed_s = (monotonic() - began).as_secs_f64();
    let none: [&Path; 0] = [];
    let groups = Groups::load(&none).expect("sound");
    let client = Regex::new("^fio").expect("sound");
    let how = How { groups: &groups, client: &client, keep_stacks: true, threads: 2 };
    let counted = count(&[place.join("stacks.folded")], how).expect("counted");
    assert_eq!(counted.counts.total, size.samples, "every sample counts");
    let taken = Taken {
        of: "benchmark",
        source: "made up",
        window: Window { cores: 128, hz: 99.0, seconds: 1000.0 },
        unit: Some(Unit::Samples),
        spike_points: 10.0,
    };
    let account = CpuAccount::of(&counted.counts, &groups, &taken).expect("accounted");
    run.records.push(Record::Cpu(Box::new(account)));
    let counted_s = (monotonic() - began).as_secs_f64() - parsed_s;
    let points = points::of(&run.records);
    let rounds: usize = points.iter().map(|point| point.rounds.len()).sum();
    assert_eq!(
        rounds,
        usize::try_from(size.results).expect("small"),
        "every result is a round of a point"
    );
    let html = page::html(&run, &points, &PathBuf::from("nowhere")).expect("a page");
    let told = findings::headline(&points, &[]).sentence.len() + text::csv(&points).len();
    let seconds = (monotonic() - began).as_secs_f64();
    let bytes = highest_memory();
    println!("results parsed {parsed_s:.2} s");
    println!("samples counted {counted_s:.2} s");
    println!("report written {:.2} s, {} bytes", seconds - parsed_s - counted_s, html.len() + told);
    println!("all together {seconds:.2} s (at most {SECONDS_MAX})");
    println!("memory {} MiB (at most {})", bytes >> 20, BYTES_MAX >> 20);
    seconds < SECONDS_MAX && bytes < BYTES_MAX
}

/// The most memory that this process ever had, bytes.
fn highest_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number") << 10
}

/// What sampling at 99 Hz takes of a core for each busy core: a core is kept busy, and perf's own
/// time is read from its schedstat.
fn sampler() -> bool {
    let command = [env!("CARGO_BIN_EXE_ashlar-lab"), "--json", "cpu", "--", "sh", "-c"];
    let busy = "end=$(($(date +%s) + 10)); while [ $(date +%s) -lt $end ]; do i=0; \
                while [ $i -lt 20000 ]; do i=$((i + 1)); done; done";
    let output = Command::new(command[0]).args(&command[1..]).arg(busy).output().expect("started");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        eprintln!("skipped: the cost of the sampler: {why}");
        return true;
    }
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let cores = number(&record["sampling"]["window"]["cores"]);
    let busy_cores = number(&record["busy"]["share"]) * cores;
    let own_cores = number(&record["profiler"]["own_share"]) * cores;
    let percent = own_cores / busy_cores * 100.0;
    let own_ms = number(&record["profiler"]["own_cpu_s"]) * 1e3;
    println!(
        "sampler at 99 Hz {percent:.4} % of a core for each busy core (at most \
         {SAMPLER_PERCENT_MAX}): {own_ms:.2} ms of perf's own CPU time; \
         {busy_cores:.2} cores were busy"
    );
    percent < SAMPLER_PERCENT_MAX
}
