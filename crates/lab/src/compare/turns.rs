//! A, B, B, A: make the array, measure it healthy, take members out, measure again, take it away.
//!
//! What must stay true: an array is taken away whatever happened; a turn that fails is said and
//! ends the comparison, with everything measured before it kept.

use super::members::{self, Devices};
use super::workloads::{self, Extent};
use crate::adapter::commands::{Commands, Live};
use crate::adapter::{Engine, Wanted, by_name, keep_configuration};
use crate::evidence::Evidence;
use crate::evidence::log::unix_whole_s;
use crate::fio::job::JobFile;
use crate::fio::measure::figures;
use crate::fio::run::{FioOrder, FioRan};
use crate::metrics::baseline::Code;
use crate::metrics::latency::to_f64;
use crate::metrics::plausible::{Ceiling, ceiling_finding, little_finding};
use crate::plan::progress::Progress;
use crate::record::{
    ArrayCondition, Check, Direction, EngineIdentity, Measurement, RateUnit, Record, Workload,
};
use crate::refusal::Refusal;
use crate::store::RunDir;
use crate::units;
use crate::validity::{Finding, Mark, Outcome, Severity};
use crate::watch::Watch;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

/// What a comparison is made of.
pub struct Bench<'a> {
    /// Where outputs go.
    pub evidence: &'a Evidence,
    /// Where records go.
    pub dir: &'a RunDir,
    /// What is watched meanwhile.
    pub watch: &'a Watch,
    /// What both engines are asked to do.
    pub workloads: Vec<Workload>,
    /// How long and how far.
    pub extent: Extent,
    /// Strip size, bytes.
    pub strip_bytes: u64,
    /// How far it is.
    pub progress: RefCell<Progress>,
    /// What no engine can be above, by the name of the load; empty until the raw devices have been
    /// measured.
    pub limits: RefCell<BTreeMap<String, Limit>>,
    /// Devices below the engines, once there are any.
    pub devices: RefCell<Vec<PathBuf>>,
    /// How often raw devices were measured once more.
    pub again: Cell<u32>,
    /// What is measured only finds out which settings are best: it is no figure of the comparison.
    pub is_tuning: Cell<bool>,
}

/// What no engine can be above at one load, and how to find that out once more while an array
/// stands on the devices.
#[derive(Clone, Debug)]
pub struct Limit {
    /// What the raw devices carried.
    pub ceiling: Ceiling,
    /// The raw load, if it only reads.
    pub again: Option<(JobFile, Workload)>,
}

/// What a measurement is of.
pub struct Case<'a> {
    /// By whom it is served.
    pub engine: EngineIdentity,
    /// In which state.
    pub condition: ArrayCondition,
    /// Which round.
    pub round: u32,
    /// Stage of the plan.
    pub stage: &'a str,
    /// What was measured.
    pub target: &'a str,
}

/// Looks at background work before a turn is given up, and the time between.
const LOOKS_MAX: u32 = 6000;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Below this, a figure is for demonstration only (lint rule L03).
const RUNTIME_FLOOR_S: u64 = 60;

impl Bench<'_> {
    /// Run fio.
    ///
    /// # Errors
    /// If it fails.
    pub fn fio(&self, jobs: JobFile, why: &str) -> Result<FioRan, Refusal> {
        let seconds = Duration::from_secs(self.extent.seconds).as_secs_f64();
        let order = FioOrder {
            jobs,
            why: why.to_owned(),
            expected_s: seconds,
            log_bandwidth: seconds >= 5.0,
            hosts: Vec::new(),
        };
        crate::fio::run::run(self.evidence, &order)
    }

    /// Write a record down.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, record: &Record) -> Result<(), Refusal> {
        let is_figure = matches!(record, Record::Measurement(_) | Record::Cpu(_));
        if is_figure && self.is_tuning.get() { Ok(()) } else { self.dir.append(record) }
    }

    /// Measure one load and write it down; the rate of each fio job, and of all.
    ///
    /// # Errors
    /// If fio fails or the record cannot be written.
    pub fn measure(
        &self,
        jobs: JobFile,
        case: &Case<'_>,
        workload: &Workload,
    ) -> Result<(Vec<f64>, f64), Refusal> {
        let whose = match case.condition {
            ArrayCondition::Raw => "raw devices".to_owned(),
            condition => format!("{}, {condition}", case.engine.label()),
        };
        let why = format!("{whose}, {}", workload.describe());
        self.progress.borrow().begin(&why);
        let blank = self.blank(case, workload);
        let is_first = case.round == 0 && !self.is_tuning.get();
        let stacks = is_first && case.condition != ArrayCondition::Raw;
        let opened = jobs.jobs();
        let opened = opened.iter().flat_map(crate::fio::job::Job::filenames).map(PathBuf::from);
        let devices = opened.chain(self.devices.borrow().iter().cloned()).collect();
        let watching = self.watch.begin(self.dir, &blank.id, stacks, devices);
        let ran = match self.fio(jobs, &why) {
            Ok(ran) => ran,
            Err(refusal)
                if refusal.code == "fio.failed" && case.condition != ArrayCondition::Raw =>
            {
                self.end(&format!("failed: {refusal}"));
                return self.keep_failure(case, workload, &refusal).map(|()| (Vec::new(), 0.0));
            }
            Err(refusal) => return Err(refusal),
        };
        let all = figures(&ran.result, |_| true).with_series(ran.series.clone());
        let watched = self.watch.end(watching, &all)?;
        let mut measurement = Measurement {
            findings: self.judged(workload, &all.read, &all.write),
            read: all.read,
            write: all.write,
            argv: ran.ran.entry.argv.clone(),
            evidence: Some(ran.ran.entry.n),
            ..blank
        };
        if case.condition != ArrayCondition::Raw {
            measurement.findings.extend(self.above_limit(&measurement)?);
        }
        measurement.findings.extend(watched.findings.clone());
        watched.keep(&mut measurement, self.dir)?;
        let rates = ran
            .result
            .jobs
            .iter()
            .map(|job| match workload.unit() {
                RateUnit::Iops => job.read.iops + job.write.iops,
                RateUnit::BytesPerS => job.read.bytes_per_s + job.write.bytes_per_s,
            })
            .collect();
        let rate = measurement.rate();
        let mark = Mark::told(&measurement.findings);
        self.end(&format!("{} {mark}", units::rate(rate, workload.unit())));
        self.keep(&Record::Measurement(Box::new(measurement)))?;
        Ok((rates, rate))
    }

    /// What a figure above its ceiling gets (F14). The raw devices may have been measured in a
    /// worse moment than the array, so where they can be, they are measured once more right after
    /// it, and the higher figure counts.
    fn above_limit(&self, measured: &Measurement) -> Result<Option<Finding>, Refusal> {
        let name = &measured.workload.name;
        let Some(limit) = self.limits.borrow().get(name).cloned() else { return Ok(None) };
        let figure = measured.bytes_per_s();
        let broken = |ceiling: &Ceiling| ceiling_finding(figure, std::slice::from_ref(ceiling));
        let mut ceiling = limit.ceiling.clone();
        if let (Some(_), Some((jobs, raw))) = (broken(&ceiling), &limit.again) {
            self.end("above what the raw devices carried: they are measured again");
            let case = Case { round: self.again.get() + 1, ..members::raw_case() };
            self.again.set(case.round);
            let (_, rate) = self.measure(jobs.clone(), &case, raw)?;
            let bytes_per_s = match raw.unit() {
                RateUnit::Iops => rate * to_f64(raw.block_bytes),
                RateUnit::BytesPerS => rate,
            };
            if bytes_per_s > ceiling.value {
                ceiling.value = bytes_per_s;
                let limit = Limit { ceiling: ceiling.clone(), ..limit.clone() };
                self.limits.borrow_mut().insert(name.clone(), limit);
            }
        }
        // The rule that explains it to whoever asks (`lab lint --explain L29`).
        Ok(broken(&ceiling).map(|finding| Finding { rule: "L29".to_owned(), ..finding }))
    }

    /// A measurement is done, and what it said.
    fn end(&self, said: &str) {
        let expected_s = Duration::from_secs(self.extent.seconds + 1).as_secs_f64();
        self.progress.borrow_mut().end(expected_s, Some(said));
    }

    /// An engine that answers with errors is a result, too: an invalid figure that says so.
    fn keep_failure(
        &self,
        case: &Case<'_>,
        workload: &Workload,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let finding = Finding {
            rule: "L28".to_owned(),
            severity: Severity::Error,
            reason: format!("the load ended with an error: {}", refusal.message),
            correction: None,
        };
        let measurement = Measurement { findings: vec![finding], ..self.blank(case, workload) };
        self.keep(&Record::Measurement(Box::new(measurement)))
    }

    fn blank(&self, case: &Case<'_>, workload: &Workload) -> Measurement {
        Measurement {
            id: format!(
                "{}/{}/{}/{}#{}",
                case.stage, case.engine.name, case.condition, workload.name, case.round
            ),
            stage: case.stage.to_owned(),
            round: case.round,
            target: case.target.to_owned(),
            engine: case.engine.clone(),
            condition: case.condition,
            workload: workload.clone(),
            read: Direction::default(),
            write: Direction::default(),
            cpu: None,
            path: None,
            hosts: Vec::new(),
            findings: Vec::new(),
            argv: Vec::new(),
            evidence: None,
            began_unix_s: unix_whole_s(),
        }
    }

    /// What rules say of a figure: too short, or the depth was not kept.
    fn judged(
        &self,
        workload: &Workload,
        read: &crate::record::Direction,
        write: &crate::record::Direction,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.extent.seconds < RUNTIME_FLOOR_S {
            findings.push(Finding {
                rule: "L03".to_owned(),
                severity: Severity::Warning,
                reason: format!(
                    "{} s is below the floor of {RUNTIME_FLOOR_S} s: good for a first look",
                    self.extent.seconds
                ),
                correction: Some(format!("--seconds {RUNTIME_FLOOR_S} or more")),
            });
        }
        let iops = read.iops + write.iops;
        let mean = (read.iops * read.latency_mean_ns + write.iops * write.latency_mean_ns) / iops;
        findings.extend(little_finding(workload.jobs, workload.depth, iops, mean));
        findings
    }
}

/// What is done in turns.
pub struct Plan {
    /// What each array is to be.
    pub wanted: Wanted,
    /// Its redundancy.
    pub code: Code,
    /// Turns of each engine.
    pub rounds: u32,
    /// Members that are taken out in the second half of each turn.
    pub losses: u32,
}

/// Measure the raw devices, then the engines in turns. Of an engine with several settings the best
/// are found first, and only they are compared.
///
/// # Errors
/// The first thing that failed; what was measured before is kept.
pub fn run(bench: &Bench<'_>, engines: &[Vec<String>], plan: &Plan) -> Result<(), Refusal> {
    let commands = Live::new(bench.evidence);
    let done = in_turns(bench, engines, plan, &commands);
    commands.all_gone(done)
}

fn in_turns<'a>(
    bench: &Bench<'_>,
    names: &[Vec<String>],
    plan: &Plan,
    commands: &'a Live<'a>,
) -> Result<(), Refusal> {
    let devices = Devices::of(commands, &plan.wanted.members)?;
    bench.devices.replace(devices.paths.clone());
    let limits = members::baselines(bench, &devices.paths, plan.code, plan.losses)?;
    bench.limits.replace(limits);
    let best = names.iter().map(|variants| tuned(bench, variants, (plan, &devices), commands));
    let mut engines = best.collect::<Result<Vec<_>, _>>()?;
    let coin = RandomState::new();
    for round in 0..plan.rounds {
        if begins_with_second(&coin, round) != begins_with_second(&coin, round.wrapping_sub(1)) {
            engines.reverse();
        }
        for engine in engines.iter_mut() {
            let wanted = Wanted {
                members: devices.paths.clone(),
                place: plan.wanted.place.join(format!("{}-{round}", engine.name())),
                ..plan.wanted.clone()
            };
            std::fs::create_dir_all(&wanted.place)
                .map_err(|error| Refusal::file(&wanted.place, &error, ""))?;
            let measured = turn(bench, engine.as_mut(), (commands, &wanted), (round, plan.losses));
            let gone = commands.taking_away(|| engine.destroy(commands));
            measured.and(gone)?;
        }
    }
    Ok(())
}

/// The engine with the best of several settings: each is made once and measured healthy. The best
/// one has the highest geometric mean of its rates.
fn tuned<'a>(
    bench: &Bench<'_>,
    variants: &[String],
    (plan, devices): (&Plan, &Devices<'_>),
    commands: &'a Live<'a>,
) -> Result<Box<dyn Engine>, Refusal> {
    let [first, others @ ..] = variants else { return by_name("") };
    if others.is_empty() {
        return by_name(first);
    }
    bench.is_tuning.set(true);
    let mut tried: Vec<(f64, &String)> = Vec::new();
    for (at, name) in variants.iter().enumerate() {
        let mut engine = by_name(name)?;
        let wanted = Wanted {
            members: devices.paths.clone(),
            place: plan.wanted.place.join(format!("{}-try{at}", engine.name())),
            ..plan.wanted.clone()
        };
        std::fs::create_dir_all(&wanted.place)
            .map_err(|error| Refusal::file(&wanted.place, &error, ""))?;
        let rates = turn(bench, engine.as_mut(), (commands, &wanted), (0, 0));
        let gone = commands.taking_away(|| engine.destroy(commands));
        let rates = rates.and_then(|rates| gone.map(|()| rates))?;
        tried.push((geometric_mean(&rates), name));
    }
    bench.is_tuning.set(false);
    tried.sort_by(|one, other| other.0.total_cmp(&one.0));
    bench.keep(&Record::Check(tuning(&tried)))?;
    by_name(tried[0].1)
}

/// 0 if one of the loads failed.
fn geometric_mean(rates: &[f64]) -> f64 {
    let count = to_f64(u64::try_from(rates.len()).unwrap_or(1)).max(1.0);
    (rates.iter().map(|rate| rate.max(0.0).ln()).sum::<f64>() / count).exp()
}

/// Which settings were tried, the best first.
fn tuning(tried: &[(f64, &String)]) -> Check {
    let best = tried.first().map_or(0.0, |it| it.0);
    let told: Vec<String> = tried
        .iter()
        .map(|(mean, name)| {
            format!("{name} {}", units::percent(if best > 0.0 { mean / best } else { 0.0 }))
        })
        .collect();
    Check {
        name: "engine.tuned".to_owned(),
        target: tried.first().map_or_else(String::new, |it| it.1.clone()),
        outcome: if best > 0.0 { Outcome::Pass } else { Outcome::Fail },
        found: format!("best of {} settings, each tried once: {}", tried.len(), told.join(", ")),
        next: None,
    }
}

/// Blocks of two rounds, A B B A or B A A B by the toss of a coin: a steady drift falls on both
/// engines alike, and noise of any kind favours neither. The first block is A B B A: a report holds
/// the engine that was measured first against the others. The round before it begins with A, too.
fn begins_with_second(coin: &RandomState, round: u32) -> bool {
    let is_second_of_block = round % 2 == 1;
    let is_turned = round > 1 && coin.hash_one(round / 2) % 2 == 1;
    round != u32::MAX && is_turned != is_second_of_block
}

fn turn(
    bench: &Bench<'_>,
    engine: &mut dyn Engine,
    (commands, wanted): (&dyn Commands, &Wanted),
    (round, losses): (u32, u32),
) -> Result<Vec<f64>, Refusal> {
    let mut rates = Vec::new();
    let served = engine.create(commands, wanted)?;
    let identity = engine.identity(commands)?;
    keep_configuration(engine, commands)?;
    let target = served.way.clone();
    let stripe =
        bench.workloads.iter().map(|workload| workload.block_bytes).max().unwrap_or(1 << 20);
    bench.fio(
        workloads::fill(&served.path, stripe, bench.extent.span_bytes),
        "fill what is measured",
    )?;
    for condition in [ArrayCondition::Healthy, ArrayCondition::Degraded(losses)] {
        if condition == ArrayCondition::Degraded(losses) {
            if losses == 0 {
                break;
            }
            let out: Vec<usize> =
                (0..usize::try_from(losses).unwrap_or(0)).map(|at| at * 3).collect();
            engine.take_out(commands, &out)?;
        }
        await_idle(engine, commands)?;
        for workload in &bench.workloads {
            let case = Case {
                engine: identity.clone(),
                condition,
                round,
                stage: "compare",
                target: &target,
            };
            let jobs = workloads::jobs(workload, &served.path, bench.extent);
            rates.push(bench.measure(jobs, &case, workload)?.1);
        }
    }
    Ok(rates)
}

/// Wait until the engine does nothing in the background.
fn await_idle(engine: &dyn Engine, commands: &dyn Commands) -> Result<(), Refusal> {
    for _ in 0..LOOKS_MAX {
        if !engine.is_busy(commands)? {
            return Ok(());
        }
        commands.pause(LOOK_EVERY);
    }
    let said = format!(
        "{} still works in the background after 20 minutes; it was not measured",
        engine.name()
    );
    Err(Refusal::cannot_run("engine.busy", said, "measure with smaller members, or wait longer"))
}

#[cfg(test)]
mod tests {
    use super::{begins_with_second, geometric_mean, tuning};
    use crate::validity::Outcome;
    use std::hash::RandomState;

    /// The first seed's engine did three times as much with 64 threads.
    #[test]
    fn the_settings_with_the_best_rates_come_first_and_all_are_told() {
        assert!((geometric_mean(&[100.0, 400.0]) - 200.0).abs() < 1e-9);
        assert!(geometric_mean(&[100.0, 0.0]).abs() < 1e-9, "a load that failed");
        let (many, few) = ("mdadm:n=64".to_owned(), "mdadm:n=8".to_owned());
        let check = tuning(&[(300.0, &many), (100.0, &few)]);
        assert_eq!((check.target.as_str(), check.outcome), ("mdadm:n=64", Outcome::Pass));
        assert!(check.found.ends_with("mdadm:n=64 100 %, mdadm:n=8 33.3 %"), "{}", check.found);
        assert_eq!(tuning(&[(0.0, &few)]).outcome, Outcome::Fail);
    }

    #[test]
    fn of_two_rounds_each_engine_begins_one_and_a_coin_decides_which() {
        let coin = RandomState::new();
        let begins = |round| begins_with_second(&coin, round);
        assert_eq!((begins(0), begins(1)), (false, true), "a report begins with A");
        assert!(!begins(0_u32.wrapping_sub(1)));
        assert!((0..400).step_by(2).all(|round| begins(round) != begins(round + 1)));
        let count = (0..400).step_by(2).filter(|round| begins(*round)).count();
        assert!((50..150).contains(&count), "{count} of 200 blocks");
    }
}
