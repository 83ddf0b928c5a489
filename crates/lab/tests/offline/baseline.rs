//! Two stored runs, and what a script gets from their comparison: 0 no case is worse, 1 a case is,
//! 2 they could not be compared.

use crate::program::{lab, said as printed, word};
use std::path::{Path, PathBuf};

/// The made-up run, on a machine with `cpu` and `kernel`, with the rates of one of its engines
/// times `factor`.
fn a_run(place: &Path, name: &str, (cpu, kernel): (&str, &str), factor: f64) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/two-engines");
    let read = |file: &str| std::fs::read_to_string(source.join(file)).expect("there");
    let mut facts: serde_json::Value = serde_json::from_str(&read("run.json")).expect("JSON");
    for (fact, value) in [
        ("cpu", cpu),
        ("kernel", kernel),
        ("cores", "0-1"),
        ("memory", "24000000 kB"),
        ("devices", "6 x file, 1.07 GB"),
    ] {
        facts["environment"][fact] = value.into();
    }
    let mut records = String::new();
    for line in read("records.jsonl").lines() {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if record["engine"]["name"] == "one" {
            for side in ["read", "write"] {
                for rate in ["bytes_per_s", "iops"] {
                    let slower = record[side][rate].as_f64().expect("a rate") * factor;
                    record[side][rate] = slower.into();
                }
            }
        }
        records += &format!("{record}\n");
    }
    let run = place.join(name);
    std::fs::create_dir_all(&run).expect("made");
    std::fs::write(run.join("run.json"), facts.to_string()).expect("written");
    std::fs::write(run.join("records.jsonl"), records).expect("written");
    run
}

const SAME: (&str, &str) = ("A", "6.1");

#[test]
fn a_worse_case_is_exit_code_1_and_another_machine_is_not_compared_unless_that_is_said() {
    let place = tempfile::tempdir().expect("a directory");
    let old = a_run(place.path(), "old", SAME, 1.0);
    let against =
        |run: &Path, more: &[&str]| lab(&[&["compare", word(run), word(&old)], more].concat());
    let same = against(&old, &[]);
    assert_eq!(same.status.code(), Some(0), "{}", printed(&same));
    let slower = a_run(place.path(), "slower", ("A", "6.18"), 0.5);
    let worse = against(&slower, &[]);
    let said = printed(&worse);
    assert_eq!(worse.status.code(), Some(1), "{said}");
    assert!(said.contains("WORSE one") && said.contains("0.500 times"), "{said}");
    assert!(said.contains("ok    two"), "the other engine is as it was: {said}");
    assert!(said.contains("note: kernel: 6.1 -> 6.18"), "{said}");
    assert_eq!(against(&slower, &["--worse-below", "0.4"]).status.code(), Some(0));
    let elsewhere = a_run(place.path(), "elsewhere", ("B", "6.1"), 1.0);
    let refused = against(&elsewhere, &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(printed(&refused).contains("cpu: A -> B"), "{}", printed(&refused));
    let marked = against(&elsewhere, &["--other-machine"]);
    assert_eq!(marked.status.code(), Some(0), "{}", printed(&marked));
    assert!(printed(&marked).contains("NOT THE SAME MACHINE: cpu: A -> B"));
    let json = against(&slower, &["--json"]);
    let told: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(told["worse"].as_u64().is_some_and(|worse| worse > 0), "{told}");
}
