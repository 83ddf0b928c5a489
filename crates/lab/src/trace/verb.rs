//! `lab trace`: its flags, and what is done with them.

use super::account::{DeviceAccount, Geometry, TraceAccount};
use super::event::{Event, lost};
use super::instance::Instance;
use super::text;
use crate::cpu::load::Load;
use crate::fio::value;
use crate::{AtPath, Refusal};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  ashlar lab trace /dev/md0 --strip 64K --stripe-data 512K --seconds 10
  ashlar lab trace /dev/md0 --member /dev/sda --member /dev/sdb -- fio seqwrite.fio")]
pub struct Args {
    /// Device to trace: a whole block device.
    pub device: PathBuf,
    /// How long to trace, in seconds.
    #[arg(long, value_name = "T", default_value_t = 10.0, conflicts_with = "command")]
    pub seconds: f64,
    /// Strip size of the array, for instance 64K.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub strip: Option<u64>,
    /// Data of a full stripe: strip size times data members, for instance 512K.
    #[arg(long = "stripe-data", alias = "stripe", value_name = "SIZE", value_parser = size)]
    pub stripe: Option<u64>,
    /// A member of the array. The trace then also says how many member I/Os each write causes.
    /// Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub member: Vec<PathBuf>,
    /// Event buffer of each core, in MiB.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=1024)
    )]
    pub buffer_mib: u64,
    /// Trace while this command runs.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `64K`, `1M`, `4096`: bytes, a multiple of a sector.
fn size(text: &str) -> Result<u64, String> {
    let bytes = value::bytes(text).filter(|it| *it > 0 && it.is_multiple_of(512));
    bytes.ok_or_else(|| "not a size that is a multiple of 512 bytes: say 64K".to_owned())
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let account = trace(args)?;
    match json {
        true => crate::say!("{}", serde_json::to_string(&account).unwrap_or_default()),
        false => crate::say_part!("{}", text::text(&account)),
    }
    Ok(ExitCode::SUCCESS)
}

fn trace(args: &Args) -> Result<TraceAccount, Refusal> {
    if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds < 1e6) {
        return Err(Refusal::cannot_run("trace.window_empty", "--seconds must be above 0")
            .hint("give for example --seconds 10"));
    }
    let load = match args.command.is_empty() {
        true => Load::Wait(args.seconds),
        false => Load::Command(args.command.clone()),
    };
    let geometry = Geometry { strip_bytes: args.strip, stripe_data_bytes: args.stripe };
    let paths = std::iter::once(&args.device).chain(&args.member);
    let numbers: Vec<(u32, u32)> = paths.clone().map(|it| number(it)).collect::<Result<_, _>>()?;
    let mut devices: Vec<DeviceAccount> = paths
        .zip(&numbers)
        .map(|(path, it)| DeviceAccount::new(&path.display().to_string(), *it, geometry))
        .collect();
    let instance = Instance::start(&numbers, args.buffer_mib << 10)?;
    let (is_over, mut lost_seen) = (AtomicBool::new(false), 0u64);
    let mut line = |line: &str| {
        lost_seen = lost_seen.saturating_add(lost(line).unwrap_or(0));
        if let Some(event) = Event::parse(line) {
            devices.iter_mut().for_each(|device| device.add(&event));
        }
    };
    let (ran, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| instance.read(&is_over, &mut line));
        let ran = load.run(Path::new("."));
        instance.stop();
        is_over.store(true, Ordering::Release);
        (ran, reader.join())
    });
    read.unwrap_or_else(|_| Err(std::io::Error::other("the reader ended early")))
        .at(Path::new("trace_pipe"), "nothing can be said")?;
    ran?;
    devices.iter_mut().zip(numbers).for_each(|(device, number)| device.limits = limits(number));
    Ok(TraceAccount::of(load.name(), geometry, devices, instance.lost().max(lost_seen)))
}

/// Major and minor number of a whole block device.
fn number(path: &Path) -> Result<(u32, u32), Refusal> {
    let facts = std::fs::metadata(path).at(path, "name a block device")?;
    if !facts.file_type().is_block_device() {
        let what =
            format!("{}: not a block device; only block devices can be traced", path.display());
        return Err(
            Refusal::cannot_run("trace.not_a_device", what).hint("name the device below it")
        );
    }
    let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    if Path::new(&format!("/sys/dev/block/{major}:{minor}/partition")).exists() {
        let what =
            format!("{}: a partition; requests are issued to the whole device", path.display());
        return Err(Refusal::cannot_run("trace.partition", what).hint("name the whole device"));
    }
    Ok((major, minor))
}

/// Files of sysfs that tell what limits the size of an I/O.
const LIMITS: &str = "\
    max_sectors_kb max_hw_sectors_kb max_segments max_segment_size optimal_io_size \
    minimum_io_size chunk_sectors logical_block_size physical_block_size nomerges nr_requests";

fn limits((major, minor): (u32, u32)) -> BTreeMap<String, String> {
    let read = |name: &str| {
        let text =
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/{name}")).ok()?;
        Some((name.to_owned(), text.trim().to_owned()))
    };
    LIMITS.split(' ').filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{number, size};
    use std::path::Path;

    #[test]
    fn sizes_take_units_and_must_be_whole_sectors() {
        assert_eq!((size("64K"), size("1MiB"), size("4096")), (Ok(65_536), Ok(1 << 20), Ok(4096)));
        for wrong in ["", "K", "0", "100", "x", "99999999999999999999G", "18446744073709551615G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_refused() {
        for path in ["/dev/null", "/", "/nonexistent/sdx"] {
            assert_eq!(number(Path::new(path)).expect_err("refused").exit_code(), 2, "{path}");
        }
    }
}
