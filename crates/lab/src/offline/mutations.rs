//! Parsers of what other programs print, under seeded mutations: no panic, no endless loop, and
//! every refusal is one line.
//!
//! What must stay true: the seed of a failing input is in the message, and the same seed gives the
//! same input. `MUTATIONS` in the environment sets how many inputs of each kind are tried.

use super::Chance;
use crate::Refusal;
use crate::adapter::recorded::Recorded;
use crate::cpu::files::{How, count, read_script};
use crate::cpu::groups::Groups;
use crate::fio::args::CommandLine;
use crate::fio::series::Series;
use crate::fio::{FioResult, JobFile};
use crate::inspect::diagram::Measured;
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, captured, page};
use crate::plan::file::Plan;
use crate::record::Record;
use crate::trace::event::{Event, lost};
use regex::Regex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Inputs of each kind; captures and large results are dearer, so fewer.
fn mutations(of: u64) -> u64 {
    let wanted = std::env::var("MUTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(of)
}

/// What breaks parsers: the largest numbers, signs, brackets, bytes that are no text.
const TOKENS: [&[u8]; 16] = [
    b"18446744073709551616",
    b"-1",
    b"1e999",
    b"NaN",
    b"{",
    b"}",
    b"[",
    b"\"",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff\xfe",
    b"%",
    b";;;",
    b"=",
    b"\xe2\x80\xa6",
];

/// `seed`'s mutation of `whole`: some bytes changed, cut out, doubled, or replaced by a token; now
/// and then cut off.
fn mutated(whole: &[u8], seed: u64) -> Vec<u8> {
    let mut chance = Chance::of(seed);
    let mut bytes = whole.to_vec();
    for _ in 0..=chance.below(8) {
        let at = chance.below(bytes.len() + 1).min(bytes.len());
        let end = (at + chance.below(40)).min(bytes.len());
        match chance.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => drop(bytes.splice(at..end, chance.pick(&TOKENS).iter().copied())),
            4 if chance.below(4) == 0 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, chance.pick(&TOKENS).iter().copied())),
        }
    }
    bytes
}

/// `read` each mutation of each of `inputs`.
fn survives(kind: &str, inputs: &[&[u8]], times: u64, read: impl Fn(&[u8]) -> Result<(), Refusal>) {
    for (at, whole) in inputs.iter().enumerate() {
        for seed in 0..times {
            let input = mutated(whole, seed);
            let said = catch_unwind(AssertUnwindSafe(|| read(&input)));
            let Ok(answer) = said else {
                panic!("{kind}, input {at}, seed {seed}: {}", String::from_utf8_lossy(&input));
            };
            if let Err(refusal) = answer {
                let line = refusal.to_string();
                assert!(!line.contains('\n') && !line.is_empty(), "{kind}, seed {seed}: {line}");
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn results_of_fio_and_what_is_linted_in_them() {
    let inputs: [&[u8]; 6] = [
        include_bytes!("../../tests/fio/two_jobs.json"),
        include_bytes!("../../tests/fio/global_section.json"),
        include_bytes!("../../tests/fio/status_interval.json"),
        include_bytes!("../../tests/fio/lat_percentiles.json"),
        include_bytes!("../../tests/fio/error_before.json"),
        include_bytes!("../../tests/fio/failed.json"),
    ];
    survives("fio result", &inputs, mutations(200), |bytes| {
        let result = FioResult::parse(bytes)?;
        let _figures = crate::fio::measure::figures(&result, |_| true);
        let _jobs = result.as_jobs();
        Ok(())
    });
}

#[test]
fn job_files_command_lines_and_logs_of_fio() {
    let job: &[u8] = b"[global]\nioengine=io_uring\ndirect=1\nbs=4k,8k\n[a]\nfilename=/dev/a\\:b\n\
                       rw=randrw\nsize=10%\nruntime=1m\n";
    survives("job file", &[job], mutations(3000), |bytes| {
        for job in JobFile::parse(&text(bytes))?.jobs() {
            let _read =
                (job.block_bytes(), job.filenames(), job.seconds("runtime"), job.bytes("size"));
        }
        Ok(())
    });
    let line: &[u8] = b"--name=a --rw=randread --bs=4k --iodepth 32 --filename=/dev/x job.fio \
                        --name=b --numjobs=4";
    survives("command line", &[line], mutations(3000), |bytes| {
        let words: Vec<String> = text(bytes).split(' ').map(str::to_owned).collect();
        CommandLine::parse(&words).map(|_| ())
    });
    let log: &[u8] = b"1000, 200, 0, 0, 0\n1001, 7, 1, 0, 0\n2000, 18446744073709551615, 0, 0, 0\n";
    survives("bandwidth log", &[log], mutations(3000), |bytes| {
        let mut series = Series::default();
        series.add(1, &text(bytes), 1000);
        series.add_latency(&text(bytes), 1000);
        let _means = series.latency();
        Ok(())
    });
}

#[test]
fn folded_stacks_and_what_perf_prints() {
    let groups = Groups::shipped().expect("sound");
    let client = Regex::new("^fio").expect("sound");
    let how = How { groups: &groups, client: &client, keep_stacks: true };
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("stacks");
    let folded: [&[u8]; 2] = [
        include_bytes!("../../tests/golden/mdraid.folded"),
        include_bytes!("../../tests/golden/ashlar.folded"),
    ];
    survives("folded", &folded, mutations(300), |bytes| {
        std::fs::write(&path, bytes).expect("written");
        count(std::slice::from_ref(&path), how).map(|_| ())
    });
    let script: &[u8] = b"fio 100/101 [002]  12.345678:   10101010 cpu-clock:pppH: \n\
        \tffffffff81000000 raid5_make_request+0x10 ([raid456])\n\
        \tffffffff81000001 submit_bio ([kernel.kallsyms])\n\n\
        swapper     0/0     [000]  12.345679: cpu-clock: \n\
        \tffffffff81000002 do_idle ([kernel.kallsyms])\n\n";
    survives("perf script", &[script], mutations(2000), |bytes| {
        let read = read_script(bytes, how);
        assert!(read.is_ok(), "memory can always be read");
        Ok(())
    });
}

#[test]
fn plans_records_traces_and_tables() {
    let plan: &[u8] = b"question = \"q\"\nruntime_s = 5\ndrives = [\"/dev/a\"]\n[[arrays]]\n\
        path = \"/dev/md0\"\nstrip = \"64k\"\n\
        data_members = 4\n[[stages]]\nkind = \"raw.all\"\nprofiles = [\"rr-4k\"]\n\
        depths = [1, 32]\nsizes = [\"1g\"]\n";
    survives("plan", &[plan], mutations(3000), |bytes| {
        let plan = Plan::parse(&text(bytes))?;
        crate::plan::points::expand(&plan, Path::new("."), &|_| 1 << 30).map(|_| ())
    });
    let records = include_str!("../../tests/data/two-engines/records.jsonl");
    let lines: Vec<&[u8]> = records.lines().take(3).map(str::as_bytes).collect();
    survives("record", &lines, mutations(300), |bytes| {
        let _read = serde_json::from_slice::<Record>(bytes);
        Ok(())
    });
    let event: &[u8] =
        b" fio-123  [001] d..1. 12.345: block_rq_issue: 7,0 WS 65536 () 8 + 128 none,0,0 [fio]";
    survives("event", &[event], mutations(3000), |bytes| {
        let line = text(bytes);
        if let Some(event) = Event::parse(&line) {
            let _sizes = (event.start(), event.bytes());
        }
        let _lost = lost(&line);
        Ok(())
    });
    survives("transcript", &[b"$ a b\nout\n? 1\n$ c\n"], mutations(1000), |bytes| {
        let _left = Recorded::parse(&text(bytes)).left();
        Ok(())
    });
}

/// Every file of a capture in turn is mutated, and the whole server judged.
#[test]
fn captures_of_servers() {
    let place = tempfile::tempdir().expect("a directory");
    for fixture in ["desktop", "story-after-repair"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
        let copy = place.path().join(fixture);
        std::fs::create_dir_all(copy.join("commands")).expect("made");
        let mut names = vec!["files.txt".to_owned(), "manifest.json".to_owned()];
        for entry in std::fs::read_dir(from.join("commands")).expect("there") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            // Many drives say the same.
            if fixture == "desktop" || !name.starts_with("smartctl") {
                names.push(format!("commands/{name}"));
            }
        }
        names.sort();
        names.iter().for_each(|it| drop(std::fs::copy(from.join(it), copy.join(it))));
        for name in &names {
            let whole = std::fs::read(from.join(name)).expect("there");
            survives(name, &[&whole], mutations(30), |bytes| {
                std::fs::write(copy.join(name), bytes).expect("written");
                let inspection = Inspection::of(captured(&copy)?, None, Given::default());
                assert!(inspection.rebuild.carried <= inspection.rebuild.demand);
                assert!(page::text(&inspection, true).len() > 500);
                assert!(inspection.svg(&Measured::new()).ends_with("</svg>\n"));
                Ok(())
            });
            std::fs::write(copy.join(name), &whole).expect("as it was");
        }
    }
}
