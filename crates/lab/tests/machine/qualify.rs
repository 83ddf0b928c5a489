//! The whole cycle on four files: inspected, written whole, measured, degraded, rebuilt, judged.

use crate::program::{lab, said, word};
use crate::{Place, alone, listed, measured, stage};
use std::collections::BTreeSet;
use std::path::PathBuf;

#[test]
fn a_server_goes_through_the_whole_cycle_and_no_part_is_left_out() {
    let _machine = alone();
    needs_root!("fio", "losetup", "mkfs.btrfs");
    let (place, stages) = (Place::new(), ["raw.all", "array.sweep", "degraded", "rebuild"]);
    let drives: Vec<PathBuf> = (0..4).map(|at| place.path(&format!("d{at}"))).collect();
    for path in &drives {
        std::fs::File::create(path).and_then(|it| it.set_len(512 << 20)).expect("sized");
    }
    let (drives, run) = (listed(&drives), place.run());
    let text = format!(
        "question = \"q\"\nruntime_s = 1\nramp_s = 0\ndrive_span = \"32m\"\ndrives = {drives}\n\
         [[arrays]]\nengine = \"btrfs\"\nlevel = \"raid5\"\nspan = \"24m\"\nmembers = {drives}\n\
         [[stages]]\nkind = \"precondition\"\n{}",
        stages.map(|kind| stage(kind, "rr-4k").replace("[1]", "[4]")).concat()
    );
    let plan = place.file("plan.toml", text);
    let words = ["qualify", word(&plan), "--to", word(&run), "--strangers", "100"];
    let output = lab(&words);
    let text = said(&output);
    // What a virtual machine does not tell stays open, and what it lacks must be changed.
    assert!(matches!(output.status.code(), Some(1 | 2)), "{text}");
    assert!(text.contains("NOT QUALIFIED: ") || text.contains("CANNOT SAY: "), "{text}");
    assert!(!text.contains("not measured: "), "{text}");
    let all = measured(&run);
    let found: BTreeSet<&str> = all.iter().map(|it| it.stage.as_str()).collect();
    assert_eq!(found, stages.into_iter().chain(["precondition"]).collect(), "{text}");
    // The same line once more goes on with the run, of which nothing is left to do; one round of
    // each case decides nothing against an older run.
    let again = lab(&[&words[..], &["--baseline", word(&run)]].concat());
    let text = said(&again);
    assert_eq!(measured(&run).len(), all.len(), "{text}");
    assert!(text.contains("too few rounds: six decide"), "{text}");
}
