//! SPDK's bdevperf: what it is told to open, its command line, and what it prints: a table with one
//! line for each job and a total.
//!
//! What must stay true: it gives means, a smallest and a largest latency and no histogram, so no
//! percentile is made of it; a load that it cannot make is refused, never made into another one.
//! Not here: starting it (plan::execute::spdk).

use crate::fio::Job;
use crate::record::{Direction, Workload};
use crate::refusal::Refusal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The program, as SPDK's sources build it.
pub const PROGRAM: &str = "bdevperf";
/// What is loaded, as SPDK calls it.
const LOADED: &str = "lab";
/// Settings of fio's jobs that say the same to bdevperf, or that it needs not be told: it never
/// goes through a page cache, never repeats offsets on purpose, and ends when its time is over.
const UNDERSTOOD: [&str; 17] = [
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "rwmixread",
    "filename",
    "runtime",
    "direct",
    "ioengine",
    "randrepeat",
    "norandommap",
    "refill_buffers",
    "group_reporting",
    "new_group",
    "time_based",
    "ramp_time",
    "name",
];

/// What bdevperf opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A block device or a file of the kernel, which fio sees as well.
    Kernel(PathBuf),
    /// An array of SPDK's own RAID, made in bdevperf's own process: no other program sees it.
    Own {
        /// Its members, in order.
        members: Vec<PathBuf>,
        /// `raid5f`, as SPDK calls it.
        level: &'static str,
        /// Strip size, KiB.
        strip_kib: u64,
    },
}

impl Seen {
    /// The configuration that makes it, as SPDK reads it (`-c`). Blocks of 4 KiB, unless the load's
    /// are no multiple of that.
    pub fn config(&self, load: &Workload) -> Value {
        let block = if load.block_bytes.is_multiple_of(4096) { 4096 } else { 512 };
        let file = |name: &str, path: &Path| {
            let parameters = json!({"name": name, "filename": path, "block_size": block});
            json!({"method": "bdev_aio_create", "params": parameters})
        };
        let mut steps = Vec::new();
        match self {
            Seen::Kernel(path) => steps.push(file(LOADED, path)),
            Seen::Own { members, level, strip_kib } => {
                let names: Vec<String> = (0..members.len()).map(|at| format!("m{at}")).collect();
                steps.extend(names.iter().zip(members).map(|(name, path)| file(name, path)));
                let parameters = json!({
                    "name": LOADED,
                    "strip_size_kb": strip_kib,
                    "raid_level": level,
                    "base_bdevs": names,
                });
                steps.push(json!({"method": "bdev_raid_create", "params": parameters}));
            }
        }
        steps.push(json!({"method": "bdev_wait_for_examine"}));
        json!({"subsystems": [{"subsystem": "bdev", "config": steps}]})
    }
}

/// That bdevperf can make the load of the profile `name`.
///
/// # Errors
/// If it asks for something that bdevperf has no word for, or for several sequential streams, which
/// it would send over the same blocks.
pub fn can(name: &str, jobs: &[Job]) -> Result<(), Refusal> {
    let refused = |what: String| {
        let said = format!("bdevperf cannot make the load {name}: {what}");
        Err(Refusal::cannot_run(
            "bdevperf.cannot",
            said,
            "leave it to fio, or take another profile",
        ))
    };
    let [job] = jobs else {
        return refused(format!("it has {} kinds of jobs and bdevperf makes one", jobs.len()));
    };
    if job.count("numjobs", 1) > 1 && job.is_sequential() {
        return refused("several sequential jobs would all go over the same blocks".to_owned());
    }
    if job.get("direct").is_some() && !job.is_direct() {
        return refused("it never goes through a page cache".to_owned());
    }
    if job.block_bytes().len() > 1 {
        return refused("it has blocks of several sizes".to_owned());
    }
    match job.keys().find(|key| !UNDERSTOOD.contains(key)) {
        Some(key) => refused(format!("it has no word for fio's {key}")),
        None => Ok(()),
    }
}

/// The command line for `load`, `seconds` long, without the configuration's path, which comes last.
/// One polling core for each job.
pub fn command(load: &Workload, seconds: u64) -> Vec<String> {
    let mix = if load.mix == "readwrite" { "rw" } else { load.mix.as_str() };
    let mut words = vec![
        PROGRAM.to_owned(),
        "-m".to_owned(),
        cores(load.jobs),
        "-q".to_owned(),
        load.depth.to_string(),
        "-o".to_owned(),
        load.block_bytes.to_string(),
        "-w".to_owned(),
        mix.to_owned(),
    ];
    if let Some(percent) = load.read_percent {
        words.extend(["-M".to_owned(), percent.to_string()]);
    }
    if load.jobs > 1 {
        // Every core loads the one device, not each a device of its own.
        words.push("-C".to_owned());
    }
    words.extend(["-t", &seconds.to_string(), "-T", LOADED, "-c"].map(str::to_owned));
    words
}

/// `[0]`, `[0-3]`: the list form, which has no end at 64 cores.
fn cores(jobs: u32) -> String {
    match jobs {
        0 | 1 => "[0]".to_owned(),
        jobs => format!("[0-{}]", jobs - 1),
    }
}

/// What bdevperf measured, over all jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Perf {
    /// I/Os a second.
    pub iops: f64,
    /// MiB a second, as it is printed.
    pub mib_per_s: f64,
    /// I/Os that failed, a second.
    pub failed_per_s: f64,
    /// Mean latency, nanoseconds.
    pub latency_mean_ns: f64,
}

impl Perf {
    /// The total of what bdevperf printed. Columns are found by their names: they differ by
    /// version.
    ///
    /// # Errors
    /// There is no total in it, or no head.
    pub fn parse(text: &str) -> Result<Perf, Refusal> {
        let unreadable = |what: &str| {
            let said = format!("bdevperf: {what}; its output is kept");
            Refusal::cannot_run("bdevperf.unreadable", said, "see whether it ran to its end")
        };
        let heads = text.lines().find(|line| line.contains("IOPS") && line.contains("Average"));
        let heads: Vec<&str> =
            heads.ok_or_else(|| unreadable("no table"))?.split_whitespace().collect();
        let total = text.lines().rfind(|line| {
            line.split_once("Total")
                .is_some_and(|(before, _)| before.trim_matches([' ', '\r']).is_empty())
        });
        let total = total.ok_or_else(|| unreadable("no total"))?;
        let numbers: Vec<f64> = total
            .split([':', ' ', '\t'])
            .filter_map(|part| part.parse().ok())
            .filter(|number: &f64| number.is_finite())
            .collect();
        // The head names the columns of the device and of its run time first; the total has only
        // those from IOPS on.
        let first = heads.iter().position(|head| *head == "IOPS").unwrap_or(0);
        let column = |name: &str| {
            let at = heads.iter().skip(first).position(|head| *head == name)?;
            numbers.get(at).copied()
        };
        Ok(Perf {
            iops: column("IOPS").ok_or_else(|| unreadable("no IOPS"))?,
            mib_per_s: column("MiB/s").ok_or_else(|| unreadable("no MiB/s"))?,
            failed_per_s: column("Fail/s").unwrap_or(0.0),
            latency_mean_ns: column("Average").unwrap_or(0.0) * 1e3,
        })
    }

    /// As one direction of a measurement of `seconds`.
    pub fn direction(&self, seconds: f64) -> Direction {
        let bytes_per_s = self.mib_per_s * f64::from(1 << 20);
        let whole = |value: f64| format!("{:.0}", value.max(0.0)).parse().unwrap_or(0);
        Direction {
            bytes: whole(bytes_per_s * seconds),
            ios: whole(self.iops * seconds),
            bytes_per_s,
            iops: self.iops,
            latency_mean_ns: self.latency_mean_ns,
            ..Direction::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Perf, Seen, can, command};
    use crate::fio::JobFile;
    use crate::record::{Generator, Workload};
    use std::path::PathBuf;

    fn load(mix: &str, block_bytes: u64, jobs: u32) -> Workload {
        Workload {
            name: String::new(),
            mix: mix.to_owned(),
            read_percent: (mix == "randrw").then_some(70),
            block_bytes,
            jobs,
            depth: 32,
            generator: Generator::Bdevperf,
        }
    }

    #[test]
    fn the_command_line_says_what_fio_would_be_told() {
        let words = |load: &Workload| command(load, 60).join(" ");
        assert_eq!(
            words(&load("randread", 4096, 1)),
            "bdevperf -m [0] -q 32 -o 4096 -w randread -t 60 -T lab -c"
        );
        assert_eq!(
            words(&load("randrw", 4096, 4)),
            "bdevperf -m [0-3] -q 32 -o 4096 -w randrw -M 70 -C -t 60 -T lab -c"
        );
    }

    #[test]
    fn a_kernel_device_and_an_array_of_spdk_are_described_as_its_rpcs_name_them() {
        let config = Seen::Kernel(PathBuf::from("/dev/sda")).config(&load("read", 2560, 1));
        let steps = &config["subsystems"][0]["config"];
        assert_eq!(config["subsystems"][0]["subsystem"], "bdev");
        assert_eq!(
            (&steps[0]["method"], &steps[0]["params"]["filename"]),
            (&"bdev_aio_create".into(), &"/dev/sda".into())
        );
        assert_eq!(steps[0]["params"]["block_size"], 512, "blocks of 2560 are no multiple of 4096");
        let members = ["/dev/sda", "/dev/sdb", "/dev/sdc"].map(PathBuf::from).to_vec();
        let own = Seen::Own { members, level: "raid5f", strip_kib: 64 };
        let config = own.config(&load("write", 128 << 10, 1));
        let steps = config["subsystems"][0]["config"].as_array().expect("steps");
        assert_eq!(steps.len(), 5, "three members, the array, the wait");
        let array = &steps[3]["params"];
        assert_eq!(
            (array["name"].as_str(), array["strip_size_kb"].as_u64()),
            (Some("lab"), Some(64))
        );
        assert_eq!(array["base_bdevs"], serde_json::json!(["m0", "m1", "m2"]));
        assert_eq!(steps[4]["method"], "bdev_wait_for_examine");
    }

    #[test]
    fn what_bdevperf_has_no_word_for_is_refused() {
        let refused = |text: &str| {
            let jobs = JobFile::parse(text).expect("a job file").jobs();
            can("x", &jobs).err().map(|refusal| refusal.message)
        };
        assert_eq!(refused("[a]\nrw=randread\nbs=4k\niodepth=4\nnumjobs=8\n"), None);
        for (text, why) in [
            ("[a]\nrw=randwrite\nbs=4k\nfsync=1\n", "fsync"),
            ("[a]\nrw=write\nbs=1m\noffset=4k\n", "offset"),
            ("[a]\nrw=write\nbs=1m\nnumjobs=2\n", "same blocks"),
            ("[a]\nrw=read\ndirect=0\n", "never goes through a page cache"),
            ("[a]\nrw=read\n[b]\nrw=write\n", "2 kinds"),
            ("[a]\nrw=randrw\nbs=4k,8k\n", "several sizes"),
        ] {
            assert!(refused(text).is_some_and(|said| said.contains(why)), "{text}");
        }
    }

    /// In the format of its documentation; the numbers are made up.
    const TABLE: &str = include_str!("../../tests/data/bdevperf.txt");

    #[test]
    fn the_total_is_read_by_the_names_of_its_columns() {
        let perf = Perf::parse(TABLE).expect("a table");
        assert_eq!((perf.iops, perf.mib_per_s, perf.failed_per_s), (81_920.0, 320.0, 0.0));
        let direction = perf.direction(5.0);
        assert_eq!((direction.ios, direction.bytes), (409_600, (5 * 320) << 20));
        assert!((direction.latency_mean_ns - 390_250.0).abs() < 1e-6);
        assert!(direction.latency_bins.is_empty(), "no histogram, no percentile");
    }

    #[test]
    fn what_has_no_table_or_no_total_is_refused() {
        assert!(Perf::parse("").is_err());
        let cut = TABLE.split(" ====").next().expect("a part");
        assert_eq!(Perf::parse(cut).expect_err("cut off").exit_code(), 2);
    }
}
