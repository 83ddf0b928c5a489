//! `ashlar lab qualify`: the whole cycle, ending with QUALIFIED or with what must be changed.
//!
//! It is made of what there is: `inspect` of the server, a plan with raw drives, arrays, members
//! out and a rebuild, and a comparison with a baseline if one is named.
//!
//! - reference: what a server of a class offers in good order
//!
//! What must stay true: a part that was not done never qualifies; everything that speaks against
//! the server is told with its next step. Not here: any rule (`rules`).

pub mod reference;

use self::reference::{Reference, SYNTHETIC};
use crate::compare::stored;
use crate::inspect::models::Library;
use crate::inspect::topology::Given;
use crate::inspect::{Inspection, captured, look};
use crate::plan::cli::{Common, Order, carry_out};
use crate::record::{ArrayCondition, Check, Record};
use crate::refusal::{AtPath, Refusal};
use crate::rules;
use crate::validity::{Mark, Outcome, Severity};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Qualify a server: inspect and burn in the server, and measure drives, arrays, degraded arrays
/// and a rebuild.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  ashlar lab qualify --example > server.toml\n  \
                  ashlar lab qualify server.toml --to runs/rack7 --destroy S5XYNA0R\n\n\
                  Exit code: 0 qualified, 1 something must be changed, \
                  2 a part could not be done.")]
pub struct Args {
    /// Plan of the measurements: a TOML file as for `lab run`.
    #[arg(value_name = "PLAN", required_unless_present = "example")]
    plan: Option<PathBuf>,
    /// Print an example of a plan with all steps, and do nothing.
    #[arg(long, conflicts_with_all = ["plan", "to"])]
    example: bool,
    /// Directory for the results. If the directory holds an interrupted qualification, the command
    /// continues the qualification: unlike `lab run`, `lab qualify` has no --resume.
    #[arg(long, value_name = "DIR", required_unless_present = "example")]
    to: Option<PathBuf>,
    /// Compare this server with a faultless server: DIR is a capture of this server, or of a
    /// similar server, from a time without faults. Instead of DIR, you can name a synthetic
    /// reference of the lab: synthetic:sas-60-dual-socket or synthetic:nvme-24-dual-socket.
    #[arg(long, value_name = "DIR")]
    reference: Option<String>,
    /// Compare the figures with this older run of the same plan.
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// A figure fails if this server reaches less than this share of the same figure in --baseline
    /// or --reference.
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    worse_below: f64,
    #[command(flatten)]
    common: Common,
}

const EXAMPLE: &str = include_str!("../profiles/qualify.toml");
/// How long one program that tells of the server may take.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
struct Verdict {
    /// What must be changed, each with its next step.
    change: Vec<String>,
    open: Vec<String>,
    notes: Vec<String>,
}

/// Do it.
///
/// # Errors
/// If the plan is refused or fails; what was measured by then is kept.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let (Some(plan), Some(to)) = (&args.plan, &args.to) else {
        crate::say_part!("{EXAMPLE}");
        return Ok(ExitCode::SUCCESS);
    };
    let text = std::fs::read_to_string(plan).at(plan, "lab qualify --example prints one")?;
    let given = || Given { models: Library::default(), ..Given::default() };
    let name = args.reference.as_deref().unwrap_or_default();
    let is_capture = !name.is_empty() && !name.starts_with(SYNTHETIC);
    let before = is_capture.then(|| captured(Path::new(name))).transpose()?;
    let reference = match &before {
        Some(server) => Reference::of(name, &Inspection::of(server.clone(), None, given())),
        None if name.is_empty() => Reference::default(),
        None => Reference::named(name)?,
    };
    let inspection = Inspection::of(look(LOOK_LIMIT), before.as_ref(), given());
    let order = Order {
        text: &text,
        folder: plan.parent().unwrap_or(Path::new("")),
        to: Some(to),
        resumes: to.join("run.json").is_file(),
        dry_run: false,
        no_stacks: false,
        models: &[],
        common: &args.common,
    };
    let Some((dir, _)) = carry_out(&order, json)? else { return Ok(ExitCode::SUCCESS) };
    let mut verdict = judged(&inspection.checks, &dir.read()?.records);
    reference.judge(&Reference::of("", &inspection), args.worse_below, &mut verdict);
    if let Some(old) = &args.baseline {
        let compared = stored::compare(dir.path(), old, args.worse_below)?;
        let worse = compared.pairs.iter().filter(|pair| pair.is_worse);
        verdict.change.extend(worse.map(|it| format!("{}: {}", it.case, it.sentence)));
        let open = compared.pairs.iter().filter(|pair| !pair.is_decided);
        verdict.open.extend(open.map(|it| format!("{}: {}", it.case, it.sentence)));
        verdict.open.extend(compared.left_out);
    }
    match json {
        true => crate::say!("{}", serde_json::json!({"verdict": verdict, "run": dir.path()})),
        false => crate::say!("{}\nreport: ashlar lab report {}", verdict.told(), to.display()),
    }
    Ok(ExitCode::from(verdict.code()))
}

/// What checks of the server and records of the cycle amount to.
fn judged(server: &[Check], records: &[Record]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut done = BTreeSet::new();
    server.iter().for_each(|check| verdict.check(check));
    // The run has looked at the server, too.
    let is_known = |check: &Check| server.iter().any(|it| it.name == check.name);
    for record in records {
        match record {
            Record::Check(check) if is_known(check) => {}
            Record::Check(check) => verdict.check(check),
            Record::Measurement(it) => {
                let worst = it.findings.iter().find(|it| it.severity == Severity::Error);
                match worst.filter(|_| Mark::of(&it.findings) == Mark::Invalid) {
                    Some(worst) => {
                        let next = worst.correction.as_deref().unwrap_or("measure again");
                        let said =
                            format!("{} ({}): {} -> {next}", it.id, worst.rule, worst.reason);
                        verdict.change.push(said);
                    }
                    None => drop(done.insert(match it.condition {
                        ArrayCondition::Raw => it.stage.as_str(),
                        ArrayCondition::Degraded(_) => "degraded",
                        ArrayCondition::Rebuilding => "rebuild",
                        ArrayCondition::Healthy | ArrayCondition::FileSystem => "array",
                    })),
                }
            }
            _ => {}
        }
    }
    for (part, stage) in [
        ("burn-in: drives written whole", "precondition"),
        ("all drives at once", "raw.all"),
        ("a healthy array", "array"),
        ("an array with members out", "degraded"),
        ("a rebuild", "rebuild"),
    ] {
        if !done.contains(stage) {
            verdict.open.push(format!("not measured: {part}"));
        }
    }
    verdict
}

impl Verdict {
    fn check(&mut self, check: &Check) {
        let decides = rules::of(&check.name).weight == Severity::Error;
        let said = format!("{}: {}: {}", check.name, check.target, check.found);
        match (check.outcome, decides) {
            (Outcome::Fail, true) => {
                let next = check.next.as_deref().unwrap_or("look at it");
                self.change.push(format!("{said} -> {next}"));
            }
            (Outcome::Fail, false) => self.notes.push(said),
            (Outcome::CannotTell, true) => self.open.push(said),
            _ => {}
        }
    }

    fn code(&self) -> u8 {
        match (self.change.is_empty(), self.open.is_empty()) {
            (true, true) => 0,
            (false, _) => 1,
            (true, false) => 2,
        }
    }

    fn told(&self) -> String {
        let head = match self.code() {
            0 => "QUALIFIED".to_owned(),
            1 => format!("NOT QUALIFIED: {} must be changed", self.change.len()),
            _ => format!("CANNOT SAY: nothing fails, and {} are open", self.open.len()),
        };
        let mut lines = vec![head];
        for (word, all) in [("change", &self.change), ("open", &self.open), ("note", &self.notes)] {
            lines.extend(all.iter().map(|said| format!("  {word:<6}  {said}")));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::reference::Reference;
    use super::{EXAMPLE, Verdict, judged};
    use crate::plan::file::Plan;
    use crate::record::{ArrayCondition, Record};
    use crate::rules;
    use crate::validity::Outcome;

    fn cycle() -> Vec<Record> {
        let parts = [
            ("precondition", ArrayCondition::Raw),
            ("raw.all", ArrayCondition::Raw),
            ("array.sweep", ArrayCondition::Healthy),
            ("degraded", ArrayCondition::Degraded(1)),
            ("rebuild", ArrayCondition::Rebuilding),
        ];
        let one = |(stage, condition): (&str, ArrayCondition)| {
            let mut it = crate::record::sample();
            (it.stage, it.condition) = (stage.to_owned(), condition);
            it.findings.clear();
            Record::Measurement(Box::new(it))
        };
        parts.map(one).into()
    }

    fn code(records: &[Record]) -> (u8, Verdict) {
        let verdict = judged(&[], records);
        (verdict.code(), verdict)
    }

    #[test]
    fn a_whole_cycle_without_a_fault_qualifies_and_one_with_a_part_missing_does_not() {
        assert_eq!(code(&cycle()).1.told(), "QUALIFIED");
        for part in 0..5 {
            let mut records = cycle();
            records.remove(part);
            let (code, verdict) = code(&records);
            assert_eq!((code, verdict.open.len()), (2, 1), "{}", verdict.told());
        }
    }

    #[test]
    fn what_must_be_changed_is_told_with_its_next_step_and_a_note_changes_nothing() {
        let with = |id: &str, outcome| {
            let check = rules::of(id).check("sda", outcome, "it is so");
            [cycle(), vec![Record::Check(check)]].concat()
        };
        let (fails, verdict) = code(&with("drives.slow_member", Outcome::Fail));
        let said = verdict.told();
        assert!(fails == 1 && said.contains("-> measure it alone, in another slot"), "{said}");
        assert_eq!(code(&with("drives.slow_member", Outcome::CannotTell)).0, 2);
        assert_eq!(code(&with("drive.cliff", Outcome::Fail)).0, 0, "a note");
        let mut records = cycle();
        let Record::Measurement(it) = &mut records[2] else { panic!("{records:?}") };
        it.findings.push(rules::of("L29").finding("above"));
        let (invalid, verdict) = code(&records);
        assert!(invalid == 1 && verdict.told().contains("(L29): above"), "{}", verdict.told());
    }

    #[test]
    fn less_than_the_reference_must_be_changed_and_what_is_not_told_is_open() {
        let good = Reference::named("synthetic:sas-60-dual-socket").expect("it ships");
        let judged = |own: &Reference| {
            let mut verdict = Verdict::default();
            good.judge(own, 0.95, &mut verdict);
            (verdict.change.join("\n"), verdict.open.join("\n"))
        };
        let read = good.read_bytes_per_s;
        let alike = Reference { read_bytes_per_s: read / 100 * 96, ..good.clone() };
        assert_eq!(judged(&alike), (String::new(), String::new()));
        let poor = Reference { read_bytes_per_s: read / 100 * 94, drives: 59, ..good.clone() };
        let said = "drives: 59 of 60 in synthetic:sas-60-dual-socket\nall drives at once: 14.9 \
                    GB/s of 15.9 GB/s in synthetic:sas-60-dual-socket";
        assert_eq!(judged(&poor), (said.to_owned(), String::new()));
        let (_, open) = judged(&Reference { memory_bytes_per_s: 0, ..good.clone() });
        assert!(open.starts_with("bandwidth of memory: not known; 68.3 GB/s in"), "{open}");
        assert_eq!(Reference::named("synthetic:x").expect_err("none").code, "reference.unknown");
    }

    #[test]
    fn the_example_has_every_part_of_the_cycle() {
        let plan = Plan::parse(EXAMPLE).expect("a plan");
        let names: Vec<&str> = plan.stages.iter().map(|stage| stage.kind.name()).collect();
        let parts = ["precondition", "raw.all", "array.sweep", "degraded", "rebuild"];
        assert!(parts.iter().all(|part| names.contains(part)), "{names:?}");
    }
}
