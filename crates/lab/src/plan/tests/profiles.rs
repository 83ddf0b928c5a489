//! What profiles and arrays of a plan may be, and what is made of them.

use super::super::cli::{refuse_empty, refuse_not_understood};
use super::super::file::Plan;
use super::super::points::{Expanded, expand};
use super::expanded;
use crate::Refusal;
use crate::fio::tests::needs_fio;

/// One job file for one drive, filled in.
pub(super) fn filled(job: &str, lines: &str) -> Result<Expanded, Refusal> {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("own.fio"), job).unwrap();
    let text = format!(
        "question = \"q\"\nramp_s = 0\ndrives = [\"/dev/a\"]\n[profiles]\nown = \"own.fio\"\n\
         [[stages]]\nkind = \"raw.all\"\nprofiles = [\"own\"]\n{lines}"
    );
    expand(&Plan::parse(&text).unwrap(), place.path(), &|_| 1 << 40)
}

/// A profile that named a target of its own overwrote it: fio writes to every `filename`.
#[test]
fn a_profile_that_names_a_target_is_refused_before_anything_is_done() {
    let own = "[global]\nrw=write\nbs=64k\n[job]\nfilename=/srv/victim\n";
    let refusal = filled(own, "").unwrap_err();
    assert_eq!(refusal.code, "plan.profile_refused", "{refusal}");
    let engine = "question = \"q\"\nioengine = \"filedelete\"\n[[stages]]\nkind = \"raw.all\"\n";
    assert_eq!(Plan::parse(engine).unwrap_err().code, "plan.engine_refused");
}

/// Random jobs go anywhere, wherever their file says that they are random.
#[test]
fn only_sequential_jobs_are_kept_apart_also_if_global_says_so() {
    let increment = |job: &str| {
        let all = filled(job, "jobs = [2]\n").unwrap();
        let jobs = all.points().next().unwrap().jobs.jobs();
        jobs[0].get("offset_increment").map(str::to_owned)
    };
    assert_eq!(increment("[global]\nrw=randread\n[a]\nbs=4k\n"), None);
    assert_eq!(increment("[a]\nrw=randread\nbs=4k\n"), None);
    assert_eq!(increment("[global]\nrw=read\n[a]\nbs=4k\n").as_deref(), Some("50%"));
    let own = "[global]\nrw=write\noffset_increment=10%\n[a]\nbs=128k\n";
    assert_eq!(increment(own).as_deref(), Some("10%"), "its own wins");
}

#[test]
fn what_a_mixed_load_reads_is_known_however_the_profile_says_it() {
    let reads = |line: &str| {
        let all = filled(&format!("[a]\nrw=randrw\nbs=4k\n{line}\n"), "").unwrap();
        all.points().next().unwrap().workload.read_percent
    };
    let found = ["", "rwmixread=70", "rwmixwrite=70"].map(reads);
    assert_eq!(found, [Some(50), Some(70), Some(30)]);
}

const TWO: &str = r#"
question = "two of a kind?"
[[arrays]]
engine = "mdadm"
members = ["a", "b", "c", "d"]
[[arrays]]
engine = "mdadm"
members = ["e", "f", "g", "h"]
[[stages]]
kind = "array.sweep"
profiles = ["seq-write-1m"]
jobs = [1, 4]
"#;

/// The second one was taken for the first, and counted as measured.
#[test]
fn two_arrays_of_one_engine_and_level_need_names() {
    let said = Plan::parse(TWO).unwrap_err().to_string();
    assert!(said.contains("two arrays would both be called made/mdadm/raid6"), "{said}");
    let all = expanded(&TWO.replacen("engine", "name = \"one\"\nengine", 1)).unwrap();
    let points: Vec<_> = all.points().collect();
    let ids: std::collections::BTreeSet<String> =
        points.iter().map(|point| point.id(&point.targets[0])).collect();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert!(ids.contains("array.sweep/made/one/seq-write-1m-j1-q32#0"), "{ids:?}");
    assert_eq!(all.written().len(), 8, "members of both");
    let odd = TWO.replacen("engine", "name = \"a/b\"\nengine", 1);
    assert!(Plan::parse(&odd).unwrap_err().to_string().contains("letters, digits"));
}

#[test]
fn what_is_measured_of_a_made_array_is_what_was_written() {
    let named = TWO.replacen("engine", "name = \"one\"\nspan = \"4g\"\nengine", 1);
    let all = expanded(&named).unwrap();
    let jobs: Vec<_> = all.points().map(|point| point.jobs.jobs().remove(0)).collect();
    assert_eq!(jobs[0].bytes("size"), Some(4 << 30), "the whole span");
    let four = (jobs[1].bytes("size"), jobs[1].bytes("offset_increment"));
    assert_eq!(four, (Some(1 << 30), Some(1 << 30)), "four jobs beside each other");
    assert_eq!(jobs[2].bytes("size"), Some(1 << 30), "1 GiB if the plan says nothing");
    let beyond = named.replace("array.sweep", "working-set") + "sizes = [\"2g\"]\n";
    let said = expanded(&beyond).unwrap_err().to_string();
    assert!(said.contains("2g is more than the span of made/mdadm/raid6"), "{said}");
}

/// The dry run had called it one point, and the target would have been overwritten.
#[test]
fn a_load_that_fio_does_not_understand_and_an_empty_plan_are_refused_first() {
    let empty = expanded("question = \"q\"\n[[stages]]\nkind = \"file-system\"\n").unwrap();
    assert_eq!(refuse_empty(&empty).unwrap_err().code, "plan.empty");
    needs_fio!();
    let said = |job: &str| {
        let refused = refuse_not_understood(&filled(job, "").unwrap());
        refused.map_or_else(|refusal| refusal.to_string(), |()| "understood".to_owned())
    };
    let bad = said("[a]\nrw=write/read\n");
    assert!(bad.contains("own-j1-q32: fio says:") && bad.contains("nothing was done"), "{bad}");
    assert!(said("[a]\nrw=write\nno_such_option=1\n").contains("no_such_option"));
    assert_eq!(said("[a]\nrw=write\nbs=4k\n"), "understood");
}
