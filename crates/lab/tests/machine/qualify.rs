//! The whole cycle on four files: inspected, written whole, measured, degraded, rebuilt, judged.

use crate::program::{lab, said, word};
use crate::{alone, measured};
use std::collections::BTreeSet;
use std::path::Path;

fn plan(place: &Path) -> String {
    let drives: Vec<String> = (0..4)
        .map(|at| {
            let path = place.join(format!("d{at}"));
            let file = std::fs::File::create(&path).expect("made");
            file.set_len(512 << 20).expect("sized");
            format!("{path:?}")
        })
        .collect();
    let drives = drives.join(", ");
    let stages: Vec<String> = ["raw.all", "array.sweep", "degraded", "rebuild"]
        .map(|kind| {
            format!("[[stages]]\nkind = \"{kind}\"\nprofiles = [\"rr-4k\"]\ndepths = [4]\n")
        })
        .into();
    format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\ndrive_span = \"32m\"\ndrives = [{drives}]\n\
         [[arrays]]\nengine = \"btrfs\"\nlevel = \"raid5\"\nspan = \"24m\"\nmembers = [{drives}]\n\
         [[stages]]\nkind = \"precondition\"\n{}",
        stages.concat()
    )
}

#[test]
fn a_server_goes_through_the_whole_cycle_and_no_part_is_left_out() {
    let _machine = alone();
    needs_root!("fio", "losetup", "mkfs.btrfs");
    let place = tempfile::tempdir().expect("a directory");
    let (plan_file, run) = (place.path().join("plan.toml"), place.path().join("run"));
    std::fs::write(&plan_file, plan(place.path())).expect("written");
    let words = ["qualify", word(&plan_file), "--to", word(&run), "--strangers", "100"];
    let output = lab(&words);
    let text = said(&output);
    // What a virtual machine does not tell stays open, and what it lacks must be changed.
    assert!(matches!(output.status.code(), Some(1 | 2)), "{text}");
    assert!(text.contains("NOT QUALIFIED: ") || text.contains("CANNOT SAY: "), "{text}");
    assert!(!text.contains("not measured: "), "{text}");
    let all = measured(&run);
    let stages: BTreeSet<&str> = all.iter().map(|it| it.stage.as_str()).collect();
    let wanted = ["array.sweep", "degraded", "precondition", "raw.all", "rebuild"];
    assert_eq!(stages, wanted.into(), "{text}");
    // The same line once more goes on with the run, of which nothing is left to do; one round of
    // each case decides nothing against an older run.
    let again = lab(&[&words[..], &["--baseline", word(&run)]].concat());
    let text = said(&again);
    assert_eq!(measured(&run).len(), all.len(), "{text}");
    assert!(text.contains("too few rounds: six decide"), "{text}");
}
