//! The real binary against planted things: results above what the drives can do.

use crate::devices::{Loop, Loops, Throttle};
use crate::program::{LAB, said, word};
use crate::{BESIDE, beside, cannot, measured, skipped};
use ashlar_lab::record::ArrayCondition;
use ashlar_lab::validity::Mark;
use std::path::PathBuf;
use std::process::Command;

/// Two devices whose reads the page cache answers, against members whose reads are throttled: what
/// `compare` then says of both.
#[test]
fn a_comparison_calls_what_is_above_the_raw_devices_invalid() {
    let _machine = beside();
    let test = "a_comparison_calls_what_is_above_the_raw_devices_invalid";
    if cannot(test, true, &["fio"]) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> = (0..3).map(|at| place.path().join(format!("m{at}"))).collect();
    files.iter().for_each(|file| std::fs::write(file, vec![0xa5; 16 << 20]).expect("written"));
    let Some(members) = Loops::over(&files) else { return skipped(test, "no loop devices") };
    let cached: Vec<Option<Loop>> =
        ["a", "b"].iter().map(|name| Loop::over(test, &place.path().join(name))).collect();
    let [Some(one), Some(other)] = &cached[..] else { return };
    let Ok(throttle) = Throttle::reads(&members.0, 409_600) else {
        return skipped(test, "no control group for I/O");
    };
    let run = place.path().join("run");
    let shell = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";
    let mut words = vec!["-c", shell, "sh", word(&throttle.group), LAB, "compare"];
    let (a, b) = (format!("device:{}", one.0), format!("device:{}", other.0));
    words.extend([a.as_str(), b.as_str(), "--to", word(&run), "--level", "raid5", "--losses", "0"]);
    words.extend([
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--span",
        "8",
        "--load",
        "randread",
        // A throttled device keeps no depth, and its figure would be invalid.
        "--jobs",
        "1",
        "--depth",
        "1",
        "--no-stacks",
    ]);
    words.extend(BESIDE);
    members.0.iter().for_each(|member| words.extend(["--member", member, "--destroy", member]));
    words.extend(["--destroy", &one.0, "--destroy", &other.0]);
    let output = Command::new("sh").args(&words).output().expect("started");
    assert_eq!(output.status.code(), Some(1), "as a run with invalid figures: {}", said(&output));
    assert!(said(&output).contains("figures INVALID"), "{}", said(&output));
    let all = measured(&run);
    let (raw, engines): (Vec<_>, Vec<_>) =
        all.iter().partition(|it| it.condition == ArrayCondition::Raw);
    assert_eq!(engines.len(), 2);
    for figure in engines {
        let rule = figure.findings.iter().find(|finding| finding.rule == "L29");
        let reason = &rule.expect("the rule of ceilings").reason;
        assert!(reason.contains("3 raw drives at once"), "{reason}");
        assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
    }
    let again = raw.iter().filter(|it| it.round > 0).count();
    assert_eq!(again, 2 * 3, "each was held against three raw devices measured once more");
    assert!(said(&output).contains("too few usable rounds"), "{}", said(&output));
}
