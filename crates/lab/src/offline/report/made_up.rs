//! A made-up run of two engines, and the same run with everything that a record may hold.

use crate::cpu::account::{CpuAccount, Taken};
use crate::cpu::files::{How, count};
use crate::cpu::groups::Groups;
use crate::inspect::resources::Row;
use crate::metrics::share::Window;
use crate::record::{
    ArrayCondition, BaselinePoint, Check, CpuCost, Direction, EngineIdentity, Measurement, RawSum,
    Record, ResourceTable, Workload,
};
use crate::rules;
use crate::store::{Run, RunFacts};
use crate::validity::Outcome;
use std::path::Path;

pub fn workload(name: &str, mix: &str, block_bytes: u64) -> Workload {
    let (name, mix) = (name.into(), mix.into());
    Workload { name, mix, block_bytes, jobs: 4, depth: 16, ..Workload::default() }
}

/// One round of `engine` at `rate` (bytes or I/Os a second, as the workload counts).
pub fn round(
    engine: &str,
    workload: &Workload,
    condition: ArrayCondition,
    (round, rate): (u32, f64),
) -> Record {
    let bytes_per_s = if workload.block_bytes < 65_536 { rate * 4096.0 } else { rate };
    let iops = bytes_per_s / f64::from(u32::try_from(workload.block_bytes).expect("small"));
    let direction = Direction {
        bytes: 1 << 30,
        ios: 20_000,
        bytes_per_s,
        iops,
        latency_mean_ns: 64.0 / iops * 1e9,
        latency_bins: [(200_000, 19_900), (1_500_000, 80), (9_000_000, 20)].into(),
        ..Direction::default()
    };
    let is_read = workload.mix.contains("read");
    let none = Direction::default();
    Record::Measurement(Box::new(Measurement {
        id: format!("{engine}/{}/{condition}#{round}", workload.name),
        stage: "compare".into(),
        round,
        target: format!("/dev/{engine}"),
        engine: EngineIdentity { name: engine.into(), version: "1.0".into(), ..Default::default() },
        condition,
        workload: workload.clone(),
        read: if is_read { direction.clone() } else { none.clone() },
        write: if is_read { none } else { direction },
        cpu: Some(CpuCost {
            cores: 2,
            wall_s: 2.0,
            busy_s: 1.8,
            per_core: vec![0.99, 0.2],
            client_s: 0.3,
            ..CpuCost::default()
        }),
        argv: vec!["fio".into(), "--name=<x>".into()],
        evidence: Some(7),
        ..Measurement::default()
    }))
}

/// What `drives` drives, two of them for parity, leave of a raw run to a healthy array.
pub fn baseline(target: &str, load: &str, value: f64, raw: (&str, f64, u32)) -> Record {
    let (workload, sum, drives) = (raw.0.into(), raw.1, raw.2);
    let raw = RawSum { workload, value: sum, drives, data_drives: drives - 2, stated: None };
    Record::Baseline(BaselinePoint {
        target: target.into(),
        workload: load.into(),
        condition: ArrayCondition::Healthy,
        value,
        derivation: format!("sum of {drives} drives"),
        raw: Some(raw),
    })
}

pub fn two_engines() -> Run {
    let (reads, writes) =
        (workload("rr-4k-j4-q16", "randread", 4096), workload("sw-1m-j4-q16", "write", 1 << 20));
    let (question, lab) = ("Which one?".into(), "0.1.0".into());
    let facts = RunFacts { question, lab, ..RunFacts::default() };
    let mut run = Run { facts, ..Run::default() };
    for at in 0..6 {
        let noise = 1.0 + f64::from(at % 3) * 0.01;
        for (engine, speed) in [("ashlar", 2.0), ("btrfs", 1.0)] {
            for condition in [ArrayCondition::Healthy, ArrayCondition::Degraded(2)] {
                run.records.push(round(engine, &reads, condition, (at, 50e3 * speed * noise)));
            }
            let same = if engine == "ashlar" { 1e9 * noise } else { 1e9 * (2.02 - noise) };
            run.records.push(round(engine, &writes, ArrayCondition::Healthy, (at, same)));
        }
    }
    run.records.push(baseline("", &reads.name, 200e3, ("rr-4k-j1-q7", 250e3, 10)));
    run.records.push(Record::Check(Check {
        name: "memory.channels_populated".into(),
        target: "socket 0".into(),
        outcome: Outcome::CannotTell,
        found: "no DMI tables".into(),
        next: None,
    }));
    run
}

/// A CPU account of a recorded profile.
fn accounted() -> Record {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mdraid.folded");
    let groups = Groups::shipped().expect("they ship");
    let client = regex::Regex::new("^fio").expect("sound");
    let how = How { groups: &groups, client: &client, keep_stacks: false };
    let read = count(&[golden], how).expect("folded stacks");
    let taken = Taken {
        of: "mdraid.folded",
        source: "unknown",
        window: Window { cores: 16, hz: 99.0, seconds: 10.0 },
        unit: read.unit,
        spike_points: 10.0,
    };
    Record::Cpu(Box::new(CpuAccount::of(&read.counts, &groups, &taken).expect("an account")))
}

/// A resource whose cells are empty but perhaps the first.
pub fn resource(name: &str, utilisation: Option<&str>) -> Row {
    let (resource, utilisation) = (name.into(), utilisation.map(str::to_owned));
    Row { resource, utilisation, saturation: None, errors: None }
}

/// The run with everything that stands beside figures: a CPU account and resources.
pub fn with_everything() -> Run {
    let mut run = two_engines();
    let rows = vec![resource("memory, bandwidth", None)];
    run.records.extend([accounted(), Record::Resources(ResourceTable { rows })]);
    run
}

/// Every figure of `engine` was read from an area that was never written.
pub fn invalidate(run: &mut Run, engine: &str) {
    let finding = rules::of("L08").finding("the area was never written");
    let own = measurements(&mut run.records).filter(|it| it.engine.name == engine);
    own.for_each(|it| it.findings.push(finding.clone()));
}

/// The measurements among `records`, to be changed.
pub fn measurements(records: &mut [Record]) -> impl Iterator<Item = &mut Measurement> {
    records.iter_mut().filter_map(|record| match record {
        Record::Measurement(measured) => Some(&mut **measured),
        _ => None,
    })
}
