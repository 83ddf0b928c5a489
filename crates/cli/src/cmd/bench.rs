//! `ashlar bench`: how fast the engine itself is here. Needs no daemon.

use crate::fault::Fault;
use crate::reach::{Reach, devices};
use crate::sizes::sizes;
use ashlar_api::codes;
use ashlar_api::v1::array::{Policy, Switch};
use ashlar_api::words::grouped;
use ashlar_daemon::bench::via::{self, Figures, Via, ViaResult, ViaSpec};
use ashlar_daemon::bench::{
    self, AnswerTimes, BenchJob, BenchResult, BenchSpec, JobResult, Load, Members,
};
use ashlar_layout::Level;
use ashlar_units::ByteSize;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Measure the speed of the engine or of an export.
///
/// Without --via, the engine runs in this process, without any export.
///
/// The members are memory, null devices or the devices that you name. The benchmark erases the
/// devices that you name.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(
    sizes!(),
    "\n\nExamples:
  ashlar bench -n 6 --write --random --bytes 4K --depth 32 --workers 1
  ashlar bench -n 6 --write --random --bytes 4K --workers 1 --policy bitmap
  ashlar bench -n 6 --job rebuild --span 4G --workers 1
  ashlar bench -n 6 --member-rate 500M --beside scrub --random --span 16G
  ashlar bench --via nbd --random --depth 1 --turns 5"
))]
pub struct Args {
    /// Devices to measure on. The benchmark erases these devices [default: as many memory devices
    /// as --raid-devices says; a memory device takes memory only where data is written].
    #[arg(value_name = "DEVICE", conflicts_with_all = ["null", "raid_devices"])]
    devices: Vec<PathBuf>,

    /// Use null members, which drop all data, to measure the engine alone.
    #[arg(long)]
    null: bool,

    /// Let memory devices answer as late as drives: after so many microseconds to a read, and to
    /// any other command.
    #[arg(long, value_name = "READ:WRITE", value_parser = answer_times)]
    #[arg(conflicts_with_all = ["devices", "via"])]
    latency_us: Option<AnswerTimes>,

    /// Let memory or null devices read at most so many bytes a second, and write as many.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["devices", "via"])]
    member_rate: Option<ByteSize>,

    /// How many members to make: memory devices or, with --null, null members.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    raid_devices: usize,

    /// RAID level: 0, 1, 5, 6, 7.3 (triple parity), 10, 50, 60, 70 or n+m (for four and more parity
    /// strips: write the letters `n+m` and add --parity).
    #[arg(short, long, default_value = "6")]
    level: Level,

    /// For level n+m: how many parity strips a stripe has, at most 32. Level n+m needs this option.
    #[arg(long, value_name = "COUNT")]
    parity: Option<u8>,

    /// For levels 50, 60 and 70: members of each group. These levels need this option. For level
    /// 10: copies of each block [default: 2].
    #[arg(long, value_name = "COUNT")]
    group_size: Option<u16>,

    /// Make the array declustered, with stripes of this many strips.
    #[arg(long, value_name = "COUNT")]
    stripe_width: Option<u16>,

    /// Strip size: a power of two from 4K to 1M.
    #[arg(long, alias = "chunk", value_name = "SIZE", default_value = "64K")]
    strip_size: ByteSize,

    /// How the array is kept consistent: log, bitmap or none, as in `create` [default: as
    /// `create`].
    #[arg(long)]
    policy: Option<Policy>,

    /// Keep a checksum of every block [default: off].
    #[arg(long, value_name = "ON|OFF")]
    checksums: Option<Switch>,

    /// State that the members write 4K blocks atomically, as `create --atomic-write 4K` does.
    #[arg(long)]
    atomic_write: bool,

    /// Measure writes [default: reads].
    #[arg(long)]
    write: bool,

    /// With --write: percent of the requests that read.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    reads: u8,

    /// Make every write durable before the write completes (FUA).
    #[arg(long)]
    fua: bool,

    /// Use random offsets [default: sequential].
    #[arg(long)]
    random: bool,

    /// Number of sequential streams on each worker, between which --depth is divided. A mixed load
    /// has as many streams of reads besides. Ignored with --random.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    streams: u16,

    /// Offset of the first request: a multiple of 4K. Use it for requests that do not begin where a
    /// stripe begins.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    start: ByteSize,

    /// Maximum time in microseconds that a piece of a sequential stream waits for the rest of its
    /// stripe; 0 turns merging off [default: 500].
    #[arg(long, value_name = "MICROSECONDS")]
    merge_wait_us: Option<u64>,

    /// Size of each request, at most 1M.
    #[arg(short, long, value_name = "SIZE", default_value = "4K")]
    bytes: ByteSize,

    /// Queue depth of each worker; with --via, queue depth of the client.
    #[arg(short, long, value_name = "COUNT", default_value_t = 32)]
    depth: usize,

    /// Measure degraded: take this many members out of service first.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    lost: u16,

    /// Measure a background job instead of requests. A rebuild is of one member, or of as many as
    /// --lost says. A resync follows a crash; its default policy is none.
    #[arg(long, value_enum, value_name = "JOB")]
    #[arg(conflicts_with_all = ["write", "reads", "fua", "random", "via", "seconds"])]
    job: Option<JobName>,

    /// Measure requests alone and then beside this background job, which must last longer.
    #[arg(long, value_enum, value_name = "JOB", conflicts_with_all = ["job", "via"])]
    beside: Option<JobName>,

    /// Size of the part of the volume to use. This part is written once before the measurement.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    span: ByteSize,

    /// Length of the measurement, in seconds.
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seconds: u64,

    /// Start a private daemon on memory devices and measure this export. Each turn measures the
    /// engine alone, then the export, then installed programs for the same purpose: nbdkit and
    /// qemu-nbd for nbd, qemu-storage-daemon for vhost-user. For ublk, fuse and loop, each turn
    /// also measures a loop device on tmpfs.
    #[arg(long, value_enum, value_name = "EXPORT")]
    #[arg(conflicts_with_all = ["devices", "null", "lost", "reads", "fua", "destroy"])]
    via: Option<ViaName>,

    /// With --via: number of turns. Each figure is the median of its turns.
    #[arg(long, value_name = "COUNT", default_value_t = 3, requires = "via")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    turns: u16,

    /// With --via: maximum time in microseconds that an idle worker polls for work before the
    /// worker sleeps; 0 turns polling off. A worker whose last polls found no work sleeps at once
    /// [default: 50].
    #[arg(long, value_name = "MICROSECONDS", requires = "via")]
    spin_us: Option<u16>,

    /// Number of workers [default: one for each core].
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    workers: usize,

    /// Erase this device even if it holds a file system, a partition table or other RAID. Name the
    /// device among the arguments, too. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,
}

/// The exports, as they are typed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ViaName {
    /// NBD on a Unix socket.
    Nbd,
    /// The file of an attached volume.
    Fuse,
    /// A loop device over the file of an attached volume.
    Loop,
    /// A block device by ublk.
    Ublk,
    /// vhost-user-blk.
    VhostUser,
    /// NVMe/TCP on this machine.
    NvmeTcp,
}

impl ViaName {
    fn via(self) -> Via {
        match self {
            ViaName::Nbd => Via::Nbd,
            ViaName::Fuse => Via::Fuse,
            ViaName::Loop => Via::Loop,
            ViaName::Ublk => Via::Ublk,
            ViaName::VhostUser => Via::VhostUser,
            ViaName::NvmeTcp => Via::NvmeTcp,
        }
    }
}

/// The background jobs, as they are typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum JobName {
    /// Lost members are rebuilt.
    Rebuild,
    /// Parity is computed anew after a crash.
    Resync,
    /// Everything is read and compared.
    Scrub,
}

impl JobName {
    fn job(self) -> BenchJob {
        match self {
            JobName::Rebuild => BenchJob::Rebuild,
            JobName::Resync => BenchJob::Resync,
            JobName::Scrub => BenchJob::Scrub,
        }
    }
}

fn answer_times(written: &str) -> Result<AnswerTimes, String> {
    let parsed = written.split_once(':').and_then(|(read, write)| {
        let us = |count: &str| count.parse().ok().map(Duration::from_micros);
        Some(AnswerTimes { read: us(read)?, write: us(write)?, bytes_per_second: None })
    });
    parsed.ok_or_else(|| "write two whole numbers, for example 80:15".to_owned())
}

impl Args {
    fn members(&self) -> Result<Members, Fault> {
        if self.null {
            return Ok(Members::Null);
        }
        if !self.devices.is_empty() {
            return Ok(Members::Devices(devices(&self.devices)?));
        }
        Ok(Members::Memory)
    }

    fn times(&self) -> Option<AnswerTimes> {
        let rate = self.member_rate.and_then(|rate| NonZeroU64::new(rate.0));
        let is_late = rate.is_some() || self.latency_us.is_some();
        let times = self.latency_us.unwrap_or_default();
        is_late.then_some(AnswerTimes { bytes_per_second: rate, ..times })
    }

    fn measured_job(&self) -> Option<JobName> {
        self.job.or(self.beside)
    }

    fn spec(&self) -> Result<BenchSpec, Fault> {
        let is_whole = self.bytes.0 > 0
            && self.bytes.0.is_multiple_of(4096)
            && self.bytes.0 <= 1 << 20
            && self.start.0.is_multiple_of(4096);
        if !is_whole || self.depth == 0 {
            let message = format!("{} at depth {} cannot be asked for", self.bytes, self.depth);
            return Err(Fault::usage(
                message,
                "take multiples of 4K, up to 1M a request, and a depth of at least 1",
            ));
        }
        Ok(BenchSpec {
            members: self.members()?,
            times: self.times(),
            member_count: self.raid_devices,
            level: self.level,
            parity: self.parity,
            group_members: self.group_size,
            stripe_width: self.stripe_width,
            strip_bytes: self.strip_size.0,
            policy: self.policy,
            checksums: self.checksums,
            writes_whole: self.atomic_write,
            lost: self.lost.max((self.measured_job() == Some(JobName::Rebuild)).into()),
            load: Load {
                is_write: self.write,
                reads_percent: self.reads,
                is_fua: self.fua,
                is_random: self.random,
                streams: self.streams.into(),
                start_bytes: self.start.0,
                bytes: self.bytes.0,
                depth: self.depth,
            },
            merge_wait: self.merge_wait_us.map(Duration::from_micros),
            clients_on: 0,
            member_bytes: None,
            span_bytes: self.span.0,
            run_time: Duration::from_secs(self.seconds),
            workers: self.workers,
            destroy: devices(&self.destroy)?,
        })
    }
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let spec = args.spec()?;
    if let Some(job) = args.measured_job() {
        let result = bench::run_job(&spec, job.job(), args.beside.is_some())?;
        return reach.print(&result, job_text);
    }
    let Some(name) = args.via else {
        return reach.print(&bench::run(&spec)?, text);
    };
    let program = std::env::current_exe().map_err(|error| {
        let message = format!("this program does not know where it is: {error}");
        Fault::new(codes::SYSTEM_FAULT, message, "call it by its full path")
    })?;
    let spec = ViaSpec {
        via: name.via(),
        bench: spec,
        turns: usize::from(args.turns),
        spin_us: args.spin_us,
        program,
    };
    reach.print(&via::measure(&spec)?, via_text)
}

fn job_text(result: &JobResult) -> String {
    let mut text = format!(
        "{:.2} GB/s {} each of {} members, {:.2} GB/s over all, {:.2} s for {} MiB, {} workers, \
         kernel {}\n\
         members {} reads, {} writes\n\
         CPU     {:.2} cores busy, {:.2} ns a byte",
        result.member_bytes_per_second / 1e9,
        if result.job == "rebuild" { "into" } else { "of" },
        result.members,
        result.moved_bytes_per_second / 1e9,
        result.seconds,
        grouped(result.member_bytes >> 20),
        result.workers,
        result.kernel,
        grouped(result.member_reads),
        grouped(result.member_writes),
        result.cpu_seconds / result.seconds,
        result.cpu_seconds * 1e9 / (result.member_bytes * u64::from(result.members)).max(1) as f64,
    );
    if let Some(clients) = &result.clients {
        text += &format!(
            "\nclients {:.0} requests/s, p95 {:.0} us; alone {:.0} requests/s, p95 {:.0} us",
            clients.requests_per_second,
            clients.us_p95,
            clients.requests_per_second_alone,
            clients.us_p95_alone,
        );
    }
    text
}

/// An export beside the engine and its peers.
fn via_text(result: &ViaResult) -> String {
    let line = |name: &str, figures: &Figures| {
        format!(
            "{name:<14} {:>9.0} requests/s, p50 {:>7.1} us, p99 {:>7.1} us",
            figures.requests_per_second, figures.us_p50, figures.us_p99
        )
    };
    let (engine, export) = (&result.engine, &result.export);
    let mut lines = vec![line("engine alone", &engine.figures), line(result.via, &export.figures)];
    for peer in &result.peers {
        let times = peer.export_over_peer;
        lines.push(format!(
            "{}   {} is {times:.2} of it",
            line(peer.name, &peer.figures),
            result.via
        ));
    }
    lines.push(format!(
        "CPU            {:.0} ns a request in the daemon: {:.0} of the engine, {:.0} beyond it",
        export.cpu_ns_per_request, engine.cpu_ns_per_request, export.beyond_engine_ns_per_request
    ));
    lines.push(format!(
        "a request      {:.2} system calls, {:.2} sleeps, {:.2} wake-ups, {:.2} hops between \
         workers, {:.2} operations\n\
         looks          {:.2} a request before a sleep, {:.2} of use, {:.0} ns of CPU",
        export.system_calls_per_request,
        export.sleeps_per_request,
        export.wake_ups_per_request,
        export.hops_per_request,
        export.operations_per_request,
        export.looks_per_request,
        export.looks_of_use_per_request,
        export.look_ns_per_request,
    ));
    lines.push(format!("medians of {} turns", result.turns));
    lines.join("\n")
}

/// A time as it is printed: a read of memory takes less than a microsecond.
fn microseconds(us: f64) -> String {
    format!("{us:.1} us")
}

fn text(result: &BenchResult) -> String {
    let latency = result.latency;
    let mut text = format!(
        "{:.0} requests/s, {:.2} GB/s, {} workers, kernel {}\n\
         latency p50 {}, p99 {}, p99.9 {}\n\
         members {:.2} reads, {:.2} writes a request; {:.2} bytes read, {:.2} written a byte\n\
         stripes {:.1} % written whole, {} bands read first, {} pieces merged\n\
         log     {:.2} batches, {:.0} bytes a request, settled {} times\n\
         CPU     {:.2} cores busy, {:.0} ns a request",
        result.requests_per_second,
        result.bytes_per_second / 1e9,
        result.workers,
        result.kernel,
        microseconds(latency.us_p50),
        microseconds(latency.us_p99),
        microseconds(latency.us_p999),
        result.member_reads_per_request,
        result.member_writes_per_request,
        result.member_bytes_read_per_byte,
        result.member_bytes_written_per_byte,
        result.stripe_writes.full_percent(),
        grouped(result.stripe_writes.read_modify + result.stripe_writes.reconstruct),
        grouped(result.stripe_writes.merged),
        result.log_batches_per_request,
        result.log_bytes_per_request,
        result.log_settles,
        result.cpu_seconds / result.seconds,
        result.cpu_seconds * 1e9 / result.requests.max(1) as f64,
    );
    for (worker, share) in result.shares.iter().enumerate() {
        text += &format!(
            "\nworker {worker}: {} requests, {} pieces of stripe work, {:.3} s CPU",
            grouped(share.requests),
            grouped(share.pieces),
            share.cpu_seconds,
        );
    }
    let spread = result.busiest_over_mean;
    text + &format!(
        "\nbusiest worker over the mean: {:.2} requests, {:.2} pieces, {:.2} CPU",
        spread.requests, spread.pieces, spread.cpu,
    )
}
