//! `ashlar create`: a new array out of devices.

use super::create_declustered::{self, DeclusteredArgs, LevelChoice, Wish};
use crate::fault::Fault;
use crate::reach::{Reach, devices};
use crate::sizes::sizes;
use ashlar_api::codes;
use ashlar_api::v1::array::{Create, Created, Declustering, Policy, Switch};
use ashlar_layout::Level;
use ashlar_units::ByteSize;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Create an array. The devices are erased.
///
/// The array is ready at once, without an initial sync: Ashlar records which stripes were written,
/// and all other stripes read as zeros.
///
/// On a whole drive, Ashlar creates a partition of its own type and uses this partition as the
/// member. Other programs then see that the drive is taken.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(
    sizes!(),
    "\n\nExamples:
  ashlar create tank0 --level 6 --spare /dev/sdl /dev/sd[b-k]
  ashlar create pool0 --level 6 --declustered --domain enclosure /dev/sd[b-z]
  ashlar create big --level n+m --parity 4 /dev/sd[b-m]
  ashlar create try --level 6 memory:1G memory:1G memory:1G memory:1G"
))]
pub struct Args {
    /// Name of the array and of its volume.
    name: String,

    /// Drives, partitions or files, in the order of their slots. For trials, name memory devices
    /// instead: memory:SIZE or memory:NAME:SIZE. Memory devices lose their data when the daemon
    /// ends.
    #[arg(required_unless_present_any = ["drives", "domains"], value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// RAID level: 0, 1, 5, 6, 7.3 (triple parity), 10, 50, 60, 70 or n+m (for four and more parity
    /// strips: write the letters `n+m` and add --parity). LEVEL may also be a declustered layout in
    /// ZFS's notation, such as draid2:8d:42c:0s. The notation stands for --declustered,
    /// --stripe-width and --distributed-spares, too.
    #[arg(short, long)]
    level: LevelChoice,

    /// Expected number of devices, without spares. The command refuses any other number, for
    /// instance if a shell pattern matches too many drives [default: no check].
    #[arg(short = 'n', long, value_name = "COUNT")]
    raid_devices: Option<usize>,

    /// Strip size: a power of two from 4K to 1M.
    #[arg(long, alias = "chunk", value_name = "SIZE", default_value = "64K")]
    strip_size: ByteSize,

    /// For level n+m: how many parity strips a stripe has, at most 32. Level n+m needs this option.
    #[arg(long, alias = "synd-cnt", value_name = "COUNT")]
    parity: Option<u8>,

    /// For levels 50, 60 and 70: members of each group. These levels need this option. For level
    /// 10: copies of each block [default: 2].
    #[arg(long, value_name = "COUNT")]
    group_size: Option<u16>,

    /// Logical block size of the volume: 512 or 4096 bytes.
    #[arg(long, value_name = "SIZE", default_value = "4096")]
    block_size: ByteSize,

    /// What happens after a crash. `log` completes logged updates and closes the write hole.
    /// `bitmap` resyncs the regions that were being written at the crash. `none` resyncs all
    /// stripes that hold data. With parity, `bitmap` and `none` leave the write hole open [default:
    /// log with parity, bitmap for mirrors, none for RAID 0].
    #[arg(long)]
    policy: Option<Policy>,

    /// Keep a checksum of every block, so that Ashlar detects and repairs silent corruption.
    /// Checksums need policy `log` [default: off].
    #[arg(long, value_name = "ON|OFF")]
    checksums: Option<Switch>,

    /// Say that every device writes blocks of this size (4K or more) atomically, even when power
    /// fails. The intent log then writes less. If a device does not do so, a power cut together
    /// with a lost drive can corrupt data.
    #[arg(long, value_name = "SIZE")]
    atomic_write: Option<ByteSize>,

    /// Use only this much of each device [default: as much as the smallest device has].
    #[arg(short = 'z', long, value_name = "SIZE")]
    size: Option<ByteSize>,

    /// Add this device as a spare to the pool `spares`. Repeatable.
    #[arg(long = "spare", value_name = "DEVICE")]
    spares: Vec<PathBuf>,

    /// Erase this device even if it holds a file system, a partition table or other RAID. Name the
    /// device among the arguments or with --spare, too. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,

    /// Use whole drives as they are, without a partition. Other programs then see the drives as
    /// blank.
    #[arg(long)]
    whole: bool,

    /// Do not remember the array. At later starts of the daemon, the array then starts only if the
    /// configuration names the array or a scan finds the array.
    #[arg(long)]
    not_remembered: bool,

    /// Check everything and say what would happen, but write nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    declustered: DeclusteredArgs,
}

impl Args {
    /// The request, after the checks that need no daemon.
    ///
    /// # Errors
    /// If the numbers contradict each other.
    pub fn request(self) -> Result<Create, Fault> {
        self.check_count()?;
        check_strip(self.strip_size)?;
        let (level, declustered) = self.level_and_layout()?;
        if level == Level::NPlusM && self.parity.is_none() {
            let hint = "add --parity with a number from 1 to 32";
            return Err(Fault::usage("level n+m needs the number of parity strips", hint));
        }
        if self.group_size.is_some() && !level.is_grouped() {
            let message = format!("{level} has no groups");
            return Err(Fault::usage(
                message,
                "leave out --group-size, or take level 10, 50, 60 or 70",
            ));
        }
        Ok(Create {
            name: self.name,
            level,
            devices: devices(&self.devices)?,
            spares: devices(&self.spares)?,
            parity: self.parity,
            group_members: self.group_size,
            strip_bytes: Some(self.strip_size.0),
            declustered,
            member_bytes: self.size.map(|size| size.0),
            logical_block_bytes: Some(logical_block(self.block_size)?),
            policy: self.policy,
            checksums: self.checksums,
            atomic_write_bytes: self.atomic_write.map(super::atomic_write).transpose()?,
            destroy: devices(&self.destroy)?,
            whole: self.whole,
            dry_run: self.dry_run,
            not_remembered: self.not_remembered,
        })
    }
}

impl Args {
    fn check_count(&self) -> Result<(), Fault> {
        if let Some(wanted) = self.raid_devices
            && wanted != self.declustered.drives.unwrap_or(self.devices.len())
        {
            let given = self.devices.len();
            let message = format!(
                "{given} devices given and --raid-devices says {wanted}; nothing was written"
            );
            return Err(Fault::usage(message, "name every member once, spares with --spare"));
        }
        Ok(())
    }

    fn is_declustered(&self) -> bool {
        self.declustered.declustered || matches!(self.level, LevelChoice::Draid(_))
    }

    /// The level, and how it spreads its stripes if it does.
    fn level_and_layout(&self) -> Result<(Level, Option<Declustering>), Fault> {
        match self.level {
            LevelChoice::Level(level) if !self.is_declustered() => {
                self.declustered.refuse_if_any().map(|()| (level, None))
            }
            _ => {
                let asked = create_declustered::asked(&self.declustered, &self.wish())?;
                Ok((asked.level, Some(asked.declustering)))
            }
        }
    }

    fn wish(&self) -> Wish<'_> {
        Wish {
            level: self.level,
            parity: self.parity,
            strip_bytes: self.strip_size.0,
            devices: &self.devices,
        }
    }
}

fn logical_block(size: ByteSize) -> Result<u32, Fault> {
    u32::try_from(size.0).ok().filter(|bytes| matches!(bytes, 512 | 4096)).ok_or_else(|| {
        let message = format!("a logical block of {size} is not possible; nothing was done");
        Fault::usage(message, "take 512 or 4096")
    })
}

fn check_strip(strip: ByteSize) -> Result<(), Fault> {
    if strip.0.is_power_of_two() && (4096..=1 << 20).contains(&strip.0) {
        return Ok(());
    }
    // mdadm counts bare numbers in KiB, and whoever types 64 means that.
    let kib = ByteSize(strip.0.saturating_mul(1024));
    let hint = match kib.0.is_power_of_two() && (4096..=1 << 20).contains(&kib.0) {
        true => format!("for {kib} write --strip-size {}K", strip.0),
        false => "take a power of two from 4K to 1M; 64K suits most".to_owned(),
    };
    Err(Fault::usage(format!("a strip of {strip} is not possible"), hint))
}

/// Whoever names devices only has given the first of them as the name: the array would have that
/// name, and a member less.
fn check_name(args: &Args) -> Result<(), Fault> {
    let name = &args.name;
    let is_device =
        std::fs::metadata(name).is_ok_and(|it| it.is_file() || it.file_type().is_block_device());
    if !name.contains('/') && (!is_device || args.raid_devices.is_some()) {
        return Ok(());
    }
    let hint = format!("the name comes first, as in 'ashlar create tank0 {name} ...'");
    if name.contains('/') {
        let message = format!("'{name}' is a path and no name for an array; nothing was written");
        return Err(Fault::new(codes::REQUEST_MALFORMED, message, hint));
    }
    let count = args.devices.len();
    let message = format!(
        "'{name}' is given as the name of the array, and there is a device or file called so; \
         nothing was written"
    );
    let meant = format!("{hint}; if it is to be called '{name}', say --raid-devices {count}, too");
    Err(Fault::new(codes::REQUEST_MALFORMED, message, meant))
}

pub fn run(mut args: Args, reach: &Reach) -> Result<(), Fault> {
    check_name(&args)?;
    if let Some(devices) = args.declustered.group(&args.devices)? {
        args.devices = devices;
    }
    if args.is_declustered() {
        args.check_count()?;
        check_strip(args.strip_size)?;
        if args.dry_run {
            return create_declustered::preview(&args.declustered, &args.wish(), reach);
        }
    }
    reach.print(&reach.call(&args.request()?)?, text)
}

fn text(created: &Created) -> String {
    let mut text = format!("{}\n", created.message);
    for note in &created.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::check_strip;
    use ashlar_units::ByteSize;

    #[test]
    fn a_strip_in_kib_without_the_unit_is_explained() {
        let refused = check_strip(ByteSize(64)).expect_err("64 bytes").to_string();
        assert!(refused.contains("--strip-size 64K"), "{refused}");
        for bytes in [0, 100_000, 2048, 2 << 20, u64::MAX] {
            let refused = check_strip(ByteSize(bytes)).expect_err("out of range").to_string();
            assert!(
                refused.contains("--strip-size") || refused.contains("power of two"),
                "{refused}"
            );
        }
        for bytes in [4096, 65_536, 1 << 20] {
            assert!(check_strip(ByteSize(bytes)).is_ok());
        }
    }
}
