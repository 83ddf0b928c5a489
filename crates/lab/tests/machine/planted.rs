//! The real binary against planted things: results above what the drives can do.

use crate::devices::{Loop, Loops, Throttle};
use crate::program::{LAB, said, word};
use crate::{BESIDE, Place, beside, lab, listed, measured, skipped, stage};
use ashlar_lab::record::ArrayCondition;
use ashlar_lab::validity::Mark;
use std::process::Command;

/// Three drives that can do 4 MiB a second each, because the plan's raw profile asks for no more,
/// and an "array" that is a file in the page cache: its buffered `mix` cannot be true of such
/// drives.
fn above_its_drives(place: &Place, mix: &str) {
    let content: Vec<u8> =
        (0..2_u32 << 20).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let [drives @ .., array] = ["a", "b", "c", "array"].map(|name| place.file(name, &content));
    place.file("raw.fio", format!("[raw]\nrw={mix}\nbs=1m\nrate=4m\n"));
    place.file("cached.fio", format!("[cached]\nrw={mix}\nbs=1m\ndirect=0\n"));
    place.plan(&format!(
        "drives = {}\n[profiles]\nraw = \"raw.fio\"\ncached = \"cached.fio\"\n\
         [[arrays]]\npath = {array:?}\nstrip = \"64k\"\ndata_members = 2\n{}{}",
        listed(&drives),
        stage("raw.all", "raw"),
        stage("array.sweep", "cached")
    ));
}

#[test]
fn a_result_above_what_the_drives_can_do_is_invalid_in_the_run_and_in_its_report() {
    let _machine = beside();
    needs!("fio");
    for mix in ["read", "write"] {
        let place = Place::new();
        above_its_drives(&place, mix);
        let (output, run) = (place.ran(&[]), place.run());
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let all = measured(&run);
        let of = |condition| all.iter().filter(move |it| it.condition == condition);
        let figure = of(ArrayCondition::Healthy).next().expect("the array was measured");
        let rule = figure.findings.iter().find(|finding| finding.rule == "L29");
        let reason = &rule.expect("the rule of ceilings").reason;
        assert!(reason.contains("3 raw drives at once"), "{reason}");
        assert_eq!(Mark::of(&figure.findings), Mark::Invalid);
        assert!(of(ArrayCondition::Raw).all(|raw| !raw.findings.iter().any(|it| it.rule == "L29")));
        let html = place.path("report.html");
        let report = lab(&["report", word(&run), "--html", word(&html)]);
        assert!(report.status.success(), "{}", said(&report));
        let page = std::fs::read_to_string(&html).expect("there");
        assert!(page.contains("INVALID") && page.contains("L29"), "{mix}");
    }
}

/// Two devices whose reads the page cache answers, against members whose reads are throttled: what
/// `compare` then says of both.
#[test]
fn a_comparison_calls_what_is_above_the_raw_devices_invalid() {
    let _machine = beside();
    needs_root!("fio");
    let place = Place::new();
    let files = ["m0", "m1", "m2"].map(|name| place.file(name, vec![0xa5; 16 << 20]));
    let Some(members) = Loops::over(&files) else { return skipped("no loop devices") };
    let cached: Vec<Option<Loop>> =
        ["a", "b"].iter().map(|name| Loop::over(&place.path(name))).collect();
    let [Some(one), Some(other)] = &cached[..] else { return };
    let Ok(throttle) = Throttle::reads(&members.0, 409_600) else {
        return skipped("no control group for I/O");
    };
    let run = place.run();
    let shell = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";
    let mut words = vec!["-c", shell, "sh", word(&throttle.group), LAB, "compare"];
    let (a, b) = (format!("device:{}", one.0), format!("device:{}", other.0));
    words.extend([a.as_str(), b.as_str(), "--to", word(&run)]);
    // A throttled device keeps no depth, and its figure would be invalid.
    let more = "--level raid5 --losses 0 --rounds 1 --seconds 1 --span 8 --load randread --jobs 1 \
                --depth 1 --no-stacks";
    words.extend(more.split(' '));
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
