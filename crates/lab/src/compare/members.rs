//! The devices, made from files if need be, and what the raw ones can do.
//!
//! What must stay true: the loop devices that were made here are let go at the end, whatever happens.

use super::turns::{Bench, Case};
use super::workloads::{self, Extent};
use crate::adapter::commands::Commands;
use crate::adapter::word;
use crate::metrics::baseline::{self, Code};
use crate::metrics::slow_member::{self, Member};
use crate::record::{ArrayCondition, BaselinePoint, Check, EngineIdentity, Record, Workload};
use crate::refusal::Refusal;
use crate::validity::Outcome;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Block devices for the members, and which of them are loop devices of ours.
pub struct Devices<'a> {
    /// One for each member, in order.
    pub paths: Vec<PathBuf>,
    ours: Vec<PathBuf>,
    commands: &'a dyn Commands,
}

impl<'a> Devices<'a> {
    /// Block devices as they are; files get loop devices with direct I/O.
    ///
    /// # Errors
    /// If a loop device cannot be had.
    pub fn of(commands: &'a dyn Commands, members: &[PathBuf]) -> Result<Devices<'a>, Refusal> {
        let mut devices = Devices { paths: Vec::new(), ours: Vec::new(), commands };
        for member in members {
            let is_block =
                std::fs::metadata(member).is_ok_and(|facts| facts.file_type().is_block_device());
            if is_block {
                devices.paths.push(member.clone());
                continue;
            }
            let argv = ["losetup", "--find", "--show", "--direct-io=on", word(member)?];
            let made = commands.succeed(&argv, "a block device over the file")?.stdout;
            let path = PathBuf::from(made.trim());
            devices.ours.push(path.clone());
            devices.paths.push(path);
        }
        Ok(devices)
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        for device in &self.ours {
            if let Ok(device) = word(device) {
                let _kept_in_the_log =
                    self.commands.run(&["losetup", "--detach", device], "let the loop device go");
            }
        }
    }
}

/// Measure the raw devices all at once and write down the BASELINE of each of `cases`.
///
/// # Errors
/// If fio fails or a record cannot be written.
pub fn baselines(
    bench: &Bench<'_>,
    devices: &[PathBuf],
    code: Code,
    losses: u32,
) -> Result<(), Refusal> {
    let share = bench.extent.span_bytes / u64::from(code.data);
    let extent = Extent { span_bytes: share, ..bench.extent };
    let fill = workloads::raw(
        devices,
        "write",
        (1 << 20, 4),
        Extent { seconds: bench.extent.seconds.max(2), ..extent },
    );
    bench.fio(fill, "write the part of every device that is read later")?;
    for workload in &bench.workloads {
        let (mix, block) = match workload.mix.as_str() {
            "randwrite" => ("randrw", 4096),
            mix if mix.starts_with("rand") => (mix, workload.block_bytes),
            mix => (mix, bench.strip_bytes),
        };
        let depth = member_depth(workload, code);
        let jobs = workloads::raw(devices, mix, (block, depth), extent);
        let raw = Workload {
            mix: mix.to_owned(),
            block_bytes: block,
            jobs: code.members(),
            depth,
            ..workload.clone()
        };
        let case = Case {
            engine: engine(),
            condition: ArrayCondition::Raw,
            round: 0,
            stage: "raw.all",
            target: "all devices at once",
        };
        let (rates, _) = bench.measure(jobs, &case, &raw)?;
        if mix == "read" {
            bench.keep(&Record::Check(evenness(devices, &rates)))?;
        }
        for point in points(workload, code, losses, &rates) {
            bench.keep(&Record::Baseline(point))?;
        }
    }
    Ok(())
}

/// I/Os in flight on each device, as the load on the array puts them there.
fn member_depth(workload: &Workload, code: Code) -> u32 {
    let in_flight = workload.jobs * workload.depth;
    let member_ios = match workload.mix.as_str() {
        "randread" => 1,
        "randwrite" => code.write_penalty() / 2,
        _ => code.members(),
    };
    (in_flight * member_ios / code.members()).clamp(1, 64)
}

fn engine() -> EngineIdentity {
    EngineIdentity { name: "raw".to_owned(), ..EngineIdentity::default() }
}

/// BASELINE of a workload, healthy and with `losses` members out, from each device's rate.
fn points(workload: &Workload, code: Code, losses: u32, rates: &[f64]) -> Vec<BaselinePoint> {
    let left = usize::try_from(code.members() - losses).unwrap_or(0).min(rates.len());
    let point = |condition, baseline: baseline::Baseline| BaselinePoint {
        workload: workload.name.clone(),
        condition,
        value: baseline.value,
        derivation: baseline.derivation,
    };
    let out = ArrayCondition::Degraded(losses);
    match workload.mix.as_str() {
        "randread" => vec![
            point(ArrayCondition::Healthy, baseline::random_read(rates)),
            point(out, baseline::degraded_random_read(code, losses, rates[..left].iter().sum())),
        ],
        "randwrite" => {
            vec![point(ArrayCondition::Healthy, baseline::random_write(code, rates.iter().sum()))]
        }
        "write" => {
            vec![point(ArrayCondition::Healthy, baseline::sequential_write(code, rates, &[]))]
        }
        _ => vec![point(ArrayCondition::Healthy, baseline::random_read(rates))],
    }
}

/// Whether all devices run at the same speed when all run at once.
fn evenness(devices: &[PathBuf], rates: &[f64]) -> Check {
    let members: Vec<Member> = devices
        .iter()
        .zip(rates)
        .map(|(device, rate)| Member {
            name: device.display().to_string(),
            rate: *rate,
            hangs_on: Vec::new(),
        })
        .collect();
    let finding = slow_member::find(&members);
    let (outcome, found) = match finding.sentence() {
        Some(sentence) => (Outcome::Fail, sentence),
        None => (Outcome::Pass, format!("all {} devices within the limits at once", members.len())),
    };
    let next = (outcome == Outcome::Fail)
        .then(|| "a stripe waits for its slowest member: look at that device first".to_owned());
    Check {
        name: "members.even".to_owned(),
        target: "all devices at once".to_owned(),
        outcome,
        found,
        next,
    }
}
