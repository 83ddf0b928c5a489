//! The devices, made from files if need be, and what the raw ones can do.
//!
//! What must stay true: the loop devices that were made here are let go at the end, whatever
//! happens.

use super::turns::{Bench, Case, Limit};
use super::workloads::{self, Extent};
use crate::adapter::commands::{Commands, Live};
use crate::adapter::word;
use crate::fio::job::JobFile;
use crate::metrics::baseline::{self, Code};
use crate::metrics::latency::to_f64;
use crate::metrics::plausible::Ceiling;
use crate::metrics::slow_member::{self, Member};
use crate::record::{
    ArrayCondition, BaselinePoint, Check, EngineIdentity, RawSum, Record, Workload,
};
use crate::refusal::Refusal;
use crate::validity::Outcome;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Block devices for the members, and which of them are loop devices of ours.
pub struct Devices<'a> {
    /// One for each member, in order.
    pub paths: Vec<PathBuf>,
    ours: Vec<PathBuf>,
    commands: &'a Live<'a>,
}

impl<'a> Devices<'a> {
    /// Block devices as they are; files get loop devices with direct I/O.
    ///
    /// # Errors
    /// If a loop device cannot be had.
    pub fn of(commands: &'a Live<'a>, members: &[PathBuf]) -> Result<Devices<'a>, Refusal> {
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
        let let_go = |device: &PathBuf| {
            let device = word(device)?;
            self.commands.run(&["losetup", "--detach", device], "let the loop device go")
        };
        self.commands.taking_away(|| {
            for device in &self.ours {
                let _kept_in_the_log = let_go(device);
            }
        });
    }
}

/// Block size and depth on each device at which it is found out what all of them can carry at once.
const STREAM: (u64, u32) = (1 << 20, 4);

/// Measure the raw devices all at once and write down the BASELINE of each load; the limit of each,
/// by its name.
///
/// # Errors
/// If fio fails or a record cannot be written.
pub fn baselines(
    bench: &Bench<'_>,
    devices: &[PathBuf],
    code: Code,
    losses: u32,
) -> Result<BTreeMap<String, Limit>, Refusal> {
    let share = bench.extent.span_bytes / u64::from(code.data);
    let extent = Extent { span_bytes: share, ..bench.extent };
    // It writes the part of every device that is read later, too.
    let (written, _) = stream(bench, devices, (code, extent), "write")?;
    let is_read = |workload: &Workload| workload.mix == "read";
    let read = match bench.workloads.iter().any(is_read) {
        true => Some(stream(bench, devices, (code, extent), "read")?),
        false => None,
    };
    let mut limits = BTreeMap::new();
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
        let (rates, _) = bench.measure(jobs.clone(), &raw_case(), &raw)?;
        if mix == "read" {
            bench.keep(&Record::Check(evenness(devices, &rates)))?;
        }
        let alike = points(workload, code, losses, &rates).into_iter();
        for point in alike.filter(|_| is_alike(workload, code)) {
            bench.keep(&Record::Baseline(point))?;
        }
        let (streamed, again) = match (workload.mix.as_str(), &read) {
            ("write" | "randwrite", _) => (written, None),
            ("read", Some((rate, again))) => (*rate, Some(again.clone())),
            _ => (0.0, Some((jobs, raw))),
        };
        let ceiling = ceiling(workload, code, rates.iter().sum(), streamed);
        limits.insert(workload.name.clone(), Limit { ceiling, again });
    }
    Ok(limits)
}

/// What all devices carry at once in large blocks, bytes a second, and the load that showed it.
fn stream(
    bench: &Bench<'_>,
    devices: &[PathBuf],
    (code, extent): (Code, Extent),
    mix: &str,
) -> Result<(f64, (JobFile, Workload)), Refusal> {
    let extent = Extent { seconds: extent.seconds.max(2), ..extent };
    let jobs = workloads::raw(devices, mix, STREAM, extent);
    let of_one = workloads::workload(mix, STREAM.0, STREAM.1);
    let name = format!("{}-all-devices", of_one.name);
    let workload = Workload { name, jobs: code.members(), ..of_one };
    let (_, rate) = bench.measure(jobs.clone(), &raw_case(), &workload)?;
    Ok((rate, (jobs, workload)))
}

/// What no engine can be above at `workload`, bytes a second: random reads what the raw devices
/// gave for the same blocks, everything else the most that they carried, writes less the part that
/// parity takes. An engine may well make large writes of small ones.
fn ceiling(workload: &Workload, code: Code, raw: f64, streamed: f64) -> Ceiling {
    let of_data = f64::from(code.data) / f64::from(code.members());
    let (value, what) = match workload.mix.as_str() {
        "randread" => (raw * to_f64(workload.block_bytes), "random reads of the same size"),
        "randwrite" => (streamed * of_data, "streaming writes, less the part of parity"),
        "write" => (raw.max(streamed) * of_data, "streaming writes, less the part of parity"),
        _ => (raw.max(streamed), "streaming reads"),
    };
    Ceiling { name: format!("{} raw devices at once, {what}", code.members()), value }
}

/// A measurement of all raw devices.
pub(super) fn raw_case() -> Case<'static> {
    Case {
        engine: engine(),
        condition: ArrayCondition::Raw,
        round: 0,
        stage: "raw.all",
        target: "all devices at once",
    }
}

/// I/Os in flight on each device, as the load on the array puts them there.
fn member_depth(workload: &Workload, code: Code) -> u32 {
    // Rounded up: a ceiling comes from at least as many I/Os in flight.
    on_members(workload, code).div_ceil(code.members()).clamp(1, DEPTH_MAX)
}

/// Deepest load on a raw device.
const DEPTH_MAX: u32 = 256;

/// I/Os that the load on the array puts on all members.
fn on_members(workload: &Workload, code: Code) -> u32 {
    let member_ios = match workload.mix.as_str() {
        "randread" => 1,
        "randwrite" => code.write_penalty() / 2,
        _ => code.members(),
    };
    workload.jobs * workload.depth * member_ios
}

/// Whether the raw devices have as much in flight as the load puts there, within a factor of two: a
/// baseline is no single number.
fn is_alike(workload: &Workload, code: Code) -> bool {
    let raw = member_depth(workload, code) * code.members();
    let asked = on_members(workload, code);
    raw <= asked * 2 && asked <= raw * 2
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
        raw: Some(RawSum {
            workload: workload.name.clone(),
            value: rates.iter().sum(),
            drives: code.members(),
            data_drives: code.data,
        }),
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

#[cfg(test)]
mod tests {
    use super::{ceiling, is_alike, member_depth};
    use crate::compare::workloads;
    use crate::metrics::baseline::Code;
    use crate::metrics::plausible::ceiling_finding;

    const CODE: Code = Code { data: 4, parity: 2 };

    #[test]
    fn a_ceiling_is_what_the_raw_devices_carried_less_the_part_of_parity_in_writes() {
        let of = |at: usize, raw: f64, streamed: f64| {
            ceiling(&workloads::all(256 << 10)[at], CODE, raw, streamed).value
        };
        assert_eq!(of(0, 600e6, 900e6), 600e6, "writes: 4 of 6 parts are data");
        assert_eq!(of(1, 1e9, 900e6), 1e9, "reads");
        assert_eq!(of(2, 100e3, 0.0), 409.6e6, "random reads of 4 KiB");
        assert_eq!(of(3, 100e3, 900e6), 600e6, "random writes may become large ones");
    }

    #[test]
    fn a_load_that_puts_less_on_the_members_than_one_io_each_has_no_baseline() {
        let at = |mix: usize, jobs, depth| {
            let load = &workloads::all(256 << 10)[mix];
            is_alike(&crate::record::Workload { jobs, depth, ..load.clone() }, CODE)
        };
        assert!((0..4).all(|mix| at(mix, 2, 16)), "the loads that ship");
        assert!(!at(2, 1, 1) && !at(2, 1, 2) && at(2, 1, 3), "one random read, six members");
        assert!(at(0, 1, 1), "a stripe is on all of them");
        assert!(!at(0, 8, 128), "deeper than a raw device is asked for");
    }

    #[test]
    fn what_is_above_it_is_invalid_and_what_is_below_is_not() {
        let reads = ceiling(&workloads::all(256 << 10)[1], CODE, 1e9, 0.9e9);
        assert_eq!(ceiling_finding(1.0e9, std::slice::from_ref(&reads)), None);
        let finding = ceiling_finding(1.5e9, &[reads]).expect("above");
        assert!(finding.reason.contains("6 raw devices at once"), "{finding:?}");
    }

    #[test]
    fn the_raw_devices_have_at_least_as_many_random_reads_in_flight_as_the_array() {
        for at in 0..4 {
            let load = &workloads::all(256 << 10)[at];
            let depth = member_depth(load, CODE);
            assert!(depth * CODE.members() >= load.jobs * load.depth, "{load:?}");
        }
    }
}
