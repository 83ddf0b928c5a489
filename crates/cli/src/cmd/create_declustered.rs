//! `ashlar create --declustered`: what is asked of a declustered array, and with `--dry-run` what
//! it would offer beside a flat RAID 60.
//!
//! A dry run needs no daemon and opens devices only to see their size. Nothing is written here.

use super::create_domains::{DomainChoice, Grouped};
use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::{self, table::aligned};
use ashlar_api::codes;
use ashlar_api::v1::array::Declustering;
use ashlar_api::v1::domain::FailureDomains;
use ashlar_device::open_to_look;
use ashlar_layout::Level;
use ashlar_layout::declustered::{
    CELL_BYTES_FLASH, CELL_BYTES_ROTATING, DECLUSTERED_SEED, Declustered, DeclusteredParts,
    DomainPlan, DomainWish, DraidSpelling, DriveModel, EFFICIENCY_ROTATING, FlatCounts, Forecast,
    GROWTHS_MAX, RebuildLoad, flat_counts, flat_forecast, forecast, losses_apart, plan_domains,
};
use ashlar_units::{ByteSize, to_u64};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Sets of lost members whose rebuild is counted.
const SETS: usize = 8;

/// What a user can say of a declustered array.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct DeclusteredArgs {
    /// Make a declustered array: each stripe covers only some of the drives, so that all drives
    /// take part in a rebuild. Declustered arrays have level 5, 6, 7.3 or n+m.
    #[arg(long)]
    pub declustered: bool,

    /// For declustered arrays: strips of a stripe, data and parity together [default: 10].
    #[arg(long, value_name = "COUNT")]
    stripe_width: Option<usize>,

    /// For declustered arrays: reserve as much spare space as this many drives hold. A rebuild
    /// writes the data of failed drives to this space, which is spread over all drives. With
    /// --domain, reserve that many times the space of all drives of a domain, or of one of the
    /// parts that a domain has if there are fewer domains than strips. When you replace a failed
    /// drive, Ashlar copies the data of the failed drive to the new drive [default: 0].
    #[arg(long, value_name = "COUNT")]
    distributed_spares: Option<usize>,

    /// For declustered arrays: spread each stripe over failure domains, so that the loss of a
    /// domain loses no data. The command is refused if that is impossible. The kernel tells which
    /// drives share an `enclosure`, a host bus adapter (`hba`) or a port (`path`). To choose the
    /// drives of each domain yourself, repeat --domain NAME=DEVICE,DEVICE... All domains need the
    /// same number of drives [default: no domains].
    #[arg(long = "domain", value_name = "WORD|LIST", conflicts_with = "drives")]
    domains: Vec<DomainChoice>,

    /// The drives by domains.
    #[arg(skip)]
    grouped: Option<Grouped>,

    /// For the estimates of --declustered --dry-run: number of drives, instead of DEVICE.
    #[arg(long, value_name = "COUNT", conflicts_with = "devices", requires = "drive_size")]
    pub drives: Option<usize>,

    /// For the estimates of --declustered --dry-run: size of each of the --drives.
    #[arg(long, value_name = "SIZE", requires = "drives")]
    drive_size: Option<ByteSize>,

    /// For the estimates of --declustered --dry-run: bytes that a drive reads or writes in a
    /// second.
    #[arg(long, value_name = "SIZE", default_value = "200MB")]
    drive_rate: ByteSize,

    /// For the estimates of --declustered --dry-run: percentage of each drive's time that clients
    /// use.
    #[arg(long, value_name = "PERCENT", default_value = "30",
        value_parser = clap::value_parser!(u8).range(0..=99))]
    load: u8,

    /// For the estimates of --declustered --dry-run: kind of the drives [default: what the devices
    /// say, else rotating].
    #[arg(long, value_enum)]
    media: Option<Media>,
}

impl DeclusteredArgs {
    /// Groups the drives by failure domains, if there are to be some. Says their order then.
    ///
    /// # Errors
    /// If it is not known where a drive belongs, or if domains are of unequal size.
    pub fn group(&mut self, devices: &[PathBuf]) -> Result<Option<Vec<PathBuf>>, Fault> {
        if self.domains.is_empty() {
            return Ok(None);
        }
        let grouped = self.grouped.insert(Grouped::of(&self.domains, devices)?);
        Ok(Some(grouped.devices()))
    }

    /// # Errors
    /// If one is given for an array that is not declustered.
    pub fn refuse_if_any(&self) -> Result<(), Fault> {
        let given = [
            ("--drives", self.drives.is_some()),
            ("--domain", !self.domains.is_empty()),
            ("--stripe-width", self.stripe_width.is_some()),
            ("--distributed-spares", self.distributed_spares.is_some()),
        ];
        let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        let message = format!("{name} is for declustered arrays; nothing was written");
        Err(Fault::usage(message, "add --declustered, or leave it out"))
    }
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Media {
    Rotating,
    Flash,
}

/// A level, or a declustered layout as ZFS writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelChoice {
    /// One of ours.
    Level(Level),
    /// draid2:8d:42c:2s.
    Draid(DraidSpelling),
}

impl FromStr for LevelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<LevelChoice, String> {
        if DraidSpelling::is_meant(text) {
            let draid = text.parse::<DraidSpelling>();
            return draid.map(LevelChoice::Draid).map_err(|error| error.to_string());
        }
        let level = text.parse::<Level>();
        level.map(LevelChoice::Level).map_err(|error| error.to_string())
    }
}

/// What `create` knows besides.
pub struct Wish<'a> {
    pub level: LevelChoice,
    pub parity: Option<u8>,
    pub strip_bytes: u64,
    pub devices: &'a [PathBuf],
}

/// What an array has that is to be made.
///
/// # Errors
/// If drives are not there; if no such layout exists.
pub fn asked(args: &DeclusteredArgs, wish: &Wish) -> Result<Asked, Fault> {
    if args.drives.is_some() {
        let message = "--drives is for drives that are not there; nothing was written";
        return Err(Fault::usage(message, "add --dry-run, or name the devices"));
    }
    let Code { data_strips, parity_strips, spares } = code(args, wish, wish.devices.len())?;
    let level = match (wish.level, parity_strips) {
        (LevelChoice::Level(level), _) => level,
        (LevelChoice::Draid(_), 1) => Level::Raid5,
        (LevelChoice::Draid(_), 2) => Level::Raid6,
        (LevelChoice::Draid(_), _) => Level::Raid7,
    };
    let stripe_width = u16::try_from(data_strips.saturating_add(parity_strips)).unwrap_or(u16::MAX);
    let domains = args.grouped.as_ref().map(Grouped::asked);
    let distributed_spares = u16::try_from(spares).unwrap_or(u16::MAX);
    let declustering =
        Declustering { stripe_width, distributed_spares, domains, ..Declustering::default() };
    Ok(Asked { level, declustering })
}

/// A declustered array that is to be made.
pub struct Asked {
    pub level: Level,
    pub declustering: Declustering,
}

/// Says what there would be, or that there cannot be one.
///
/// # Errors
/// If no such layout exists; if a device cannot be looked at.
pub fn preview(args: &DeclusteredArgs, wish: &Wish, reach: &Reach) -> Result<(), Fault> {
    let drives = Drives::of(args, wish)?;
    let map = layout(args, wish, &drives)?;
    let preview = Preview::of(args, &map, &drives);
    reach.print(&preview, Preview::text)
}

/// Drives that are there, or are thought of.
struct Drives {
    count: usize,
    bytes: u64,
    media: Media,
}

impl Drives {
    fn of(args: &DeclusteredArgs, wish: &Wish) -> Result<Drives, Fault> {
        if let (Some(count), Some(size)) = (args.drives, args.drive_size) {
            return Ok(Drives {
                count,
                bytes: size.0,
                media: args.media.unwrap_or(Media::Rotating),
            });
        }
        let sizes: Result<Vec<u64>, Fault> = wish.devices.iter().map(|it| size_of(it)).collect();
        let all_flash = wish.devices.iter().all(|it| is_flash(it));
        let found = if all_flash { Media::Flash } else { Media::Rotating };
        Ok(Drives {
            count: wish.devices.len(),
            bytes: sizes?.into_iter().min().unwrap_or(0),
            media: args.media.unwrap_or(found),
        })
    }

    fn cell_bytes(&self) -> u64 {
        match self.media {
            Media::Rotating => CELL_BYTES_ROTATING,
            Media::Flash => CELL_BYTES_FLASH,
        }
    }
}

fn size_of(path: &Path) -> Result<u64, Fault> {
    let size = open_to_look(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    size.map_err(|error| Fault::file(path, &error, "nothing was written; name drives or files"))
}

/// Whether the kernel says that a block device does not rotate. Files do not count.
fn is_flash(path: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition's queue is its disk's.
    let queues = ["queue/rotational", "../queue/rotational"];
    let text = queues.iter().find_map(|queue| std::fs::read_to_string(own.join(queue)).ok());
    text.is_some_and(|text| text.trim() == "0")
}

/// What a stripe is made of, and how many drives' worth of spares there are.
#[derive(Clone, Copy)]
struct Code {
    data_strips: usize,
    parity_strips: usize,
    spares: usize,
}

fn code(args: &DeclusteredArgs, wish: &Wish, drives: usize) -> Result<Code, Fault> {
    match wish.level {
        LevelChoice::Draid(draid) => {
            if draid.members.is_some_and(|members| members != drives) {
                let said = draid.members.unwrap_or(0);
                let message = format!("the level says {said} drives and {drives} are given");
                return Err(Fault::usage(message, "make both the same; nothing was written"));
            }
            if args.stripe_width.is_some() || args.distributed_spares.is_some() {
                let message = "a dRAID layout says its stripe width and its spares itself";
                return Err(Fault::usage(
                    message,
                    "leave out --stripe-width and --distributed-spares",
                ));
            }
            let data_strips = draid.data_strips_on(drives);
            Ok(Code { data_strips, parity_strips: draid.parity_strips, spares: draid.spares })
        }
        LevelChoice::Level(level) => {
            let parity_strips = match level {
                Level::Raid5 => 1,
                Level::Raid6 => 2,
                Level::Raid7 => 3,
                Level::NPlusM => usize::from(wish.parity.unwrap_or(0)),
                _ => {
                    let message = format!("{level} cannot be declustered; nothing was written");
                    return Err(Fault::usage(message, "take level 5, 6, 7.3 or n+m"));
                }
            };
            let width = args.stripe_width.unwrap_or(10);
            let data_strips = width.saturating_sub(parity_strips);
            let spares = args.distributed_spares.unwrap_or(0);
            Ok(Code { data_strips, parity_strips, spares })
        }
    }
}

fn layout(args: &DeclusteredArgs, wish: &Wish, drives: &Drives) -> Result<Declustered, Fault> {
    let code = code(args, wish, drives.count)?;
    let plan = domain_plan(args, code)?;
    let Code { data_strips, parity_strips, spares: spare_columns } = code;
    let parts = DeclusteredParts {
        data_strips,
        parity_strips,
        members: drives.count,
        domain_members: plan.map_or(1, |plan| plan.domain_members),
        spare_columns,
        cell_rows: (drives.cell_bytes() / wish.strip_bytes).max(1),
        strip_bytes: wish.strip_bytes,
        rows: drives.bytes / wish.strip_bytes,
        seed: DECLUSTERED_SEED,
        growths: [None; GROWTHS_MAX],
    };
    Declustered::new(parts).map_err(|error| {
        Fault::new(codes::REQUEST_MALFORMED, format!("{error}; nothing was written"), "")
    })
}

/// How the layout holds the failure domains.
fn domain_plan(args: &DeclusteredArgs, code: Code) -> Result<Option<DomainPlan>, Fault> {
    let Code { data_strips, parity_strips, spares } = code;
    let Some(grouped) = &args.grouped else { return Ok(None) };
    let wish = DomainWish {
        enclosures: grouped.domains.len(),
        drives_each: grouped.domains.first().map_or(0, |(_, devices)| devices.len()),
        width: data_strips.saturating_add(parity_strips),
        parity_strips,
        spares,
    };
    plan_domains(&wish).map(Some).map_err(|error| {
        Fault::new(codes::REQUEST_MALFORMED, format!("{error}; nothing was written"), "")
    })
}

/// The answer: two arrays of the same drives.
#[derive(serde::Serialize, Debug)]
struct Preview {
    members: usize,
    drive_bytes: u64,
    data_strips: usize,
    parity_strips: usize,
    distributed_spares: usize,
    cell_bytes: u64,
    domains: Option<FailureDomains>,
    drive_bytes_per_second: u64,
    load_percent: u8,
    balance: Balance,
    declustered: Side,
    flat_groups: u64,
    flat_spares: u64,
    flat: Side,
}

/// Largest load of a member over the mean, in the worst of the sets that were counted.
#[derive(serde::Serialize, Debug, Default)]
struct Balance {
    slices: u64,
    sets: usize,
    one_lost: f64,
    two_lost: f64,
    /// Of stripes that lost all that parity replaces.
    critical: f64,
}

#[derive(serde::Serialize, Debug)]
struct Side {
    data_bytes: u64,
    spare_bytes: u64,
    rebuild_idle_seconds: Option<f64>,
    rebuild_loaded_seconds: Option<f64>,
    critical_idle_seconds: Option<f64>,
    critical_loaded_seconds: Option<f64>,
    critical_share: f64,
}

impl Side {
    fn of(idle: Forecast, loaded: Forecast) -> Side {
        Side {
            data_bytes: idle.data_bytes,
            spare_bytes: idle.spare_bytes,
            rebuild_idle_seconds: idle.rebuild_seconds,
            rebuild_loaded_seconds: loaded.rebuild_seconds,
            critical_idle_seconds: idle.critical_seconds,
            critical_loaded_seconds: loaded.critical_seconds,
            critical_share: idle.critical_share,
        }
    }
}

impl Balance {
    /// Of losses that follow each other in slot order, spread over the array.
    fn of(map: &Declustered) -> Balance {
        let members = map.parts().members;
        let slices = map.slices().min(1000 * to_u64(members));
        let mut balance = Balance { slices, sets: SETS.min(members), ..Balance::default() };
        for set in 0..balance.sets {
            let first = set * members / balance.sets;
            // Neighbours, then pairs further and further apart.
            let count = |losses: usize| {
                let lost = losses_apart(members, first, 1 + set, losses);
                RebuildLoad::count(map, &lost, 0..slices)
            };
            balance.one_lost = balance.one_lost.max(count(1).max_over_mean());
            balance.two_lost = balance.two_lost.max(count(2).max_over_mean());
            let most = count(map.parts().parity_strips);
            balance.critical = balance.critical.max(most.critical_max_over_mean());
        }
        balance
    }
}

impl Preview {
    fn of(args: &DeclusteredArgs, map: &Declustered, drives: &Drives) -> Preview {
        let parts = map.parts();
        let efficiency = if drives.media == Media::Rotating { EFFICIENCY_ROTATING } else { 1.0 };
        let model = |load: u8| DriveModel {
            bytes: drives.bytes,
            reads_per_second: args.drive_rate.0.max(1),
            writes_per_second: args.drive_rate.0.max(1),
            efficiency,
            busy: f64::from(load) / 100.0,
        };
        let (idle, loaded) = (model(0), model(args.load));
        let FlatCounts { groups, spares } = flat_counts(map);
        Preview {
            members: parts.members,
            drive_bytes: drives.bytes,
            data_strips: parts.data_strips,
            parity_strips: parts.parity_strips,
            distributed_spares: parts.spare_columns,
            cell_bytes: parts.cell_rows * parts.strip_bytes,
            domains: args.grouped.as_ref().map(|own| own.status(map)),
            drive_bytes_per_second: args.drive_rate.0,
            load_percent: args.load,
            balance: Balance::of(map),
            declustered: Side::of(forecast(map, &idle), forecast(map, &loaded)),
            flat_groups: groups,
            flat_spares: spares,
            flat: Side::of(flat_forecast(map, &idle), flat_forecast(map, &loaded)),
        }
    }

    fn text(&self) -> String {
        let (k, m) = (self.data_strips, self.parity_strips);
        let mut text = format!(
            "A declustered {k}+{m} array of {} drives of {}, {} distributed spares, cells of {}. \
             Nothing was written.\n\n",
            self.members,
            ByteSize(self.drive_bytes),
            self.distributed_spares,
            ByteSize(self.cell_bytes)
        );
        for line in self.domains.iter().flat_map(render::domains::lines) {
            text.push_str(&format!("{line}\n"));
        }
        text.push_str(&aligned(&self.rows()));
        let balance = &self.balance;
        text.push_str(&format!(
            "\nBusiest drive of a rebuild over the mean: {:.3} after one loss, {:.3} after two, \
             {:.3} for critical stripes (worst of {} sets of losses, {} slices).\n",
            balance.one_lost, balance.two_lost, balance.critical, balance.sets, balance.slices
        ));
        text.push_str(&format!(
            "Rebuild times are a model of drives that move {}/s. \
             Critical stripes are those that no further loss may hit.\n",
            ByteSize(self.drive_bytes_per_second)
        ));
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let (k, m) = (self.data_strips, self.parity_strips);
        let (pool, flat) = (&self.declustered, &self.flat);
        let size = |bytes| ByteSize(bytes).to_string();
        let share = |share: f64| format!("{:.0} %", share * 100.0);
        let nth = if m == 1 { "after the loss".to_owned() } else { format!("after loss {m}") };
        let load = self.load_percent;
        let row = |what: String, pool: String, flat: String| vec![what, pool, flat];
        vec![
            row(String::new(), "declustered".into(), self.flat_name(k, m)),
            row("capacity".into(), size(pool.data_bytes), size(flat.data_bytes)),
            row("spare space".into(), size(pool.spare_bytes), size(flat.spare_bytes)),
            row(
                "rebuild of a drive, idle".into(),
                time(pool.rebuild_idle_seconds),
                time(flat.rebuild_idle_seconds),
            ),
            row(
                format!("rebuild, {load} % client load"),
                time(pool.rebuild_loaded_seconds),
                time(flat.rebuild_loaded_seconds),
            ),
            row(
                format!("critical stripes {nth}"),
                share(pool.critical_share),
                format!("{} of the group", share(flat.critical_share)),
            ),
            row(
                "critical for, idle".into(),
                time(pool.critical_idle_seconds),
                time(flat.critical_idle_seconds),
            ),
            row(
                format!("critical for, {load} % load"),
                time(pool.critical_loaded_seconds),
                time(flat.critical_loaded_seconds),
            ),
        ]
    }

    fn flat_name(&self, k: usize, m: usize) -> String {
        format!("flat, {} x ({k}+{m}), {} spare drives", self.flat_groups, self.flat_spares)
    }
}

/// A time as people say it.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "never".to_owned(),
        Some(seconds) if seconds < 600.0 => format!("{seconds:.0} s"),
        Some(seconds) if seconds < 2.0 * 3600.0 => format!("{:.0} min", seconds / 60.0),
        Some(seconds) if seconds < 96.0 * 3600.0 => format!("{:.1} h", seconds / 3600.0),
        Some(seconds) => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{DeclusteredArgs, Drives, LevelChoice, Preview, Wish, layout};
    use clap::Parser;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        declustered: DeclusteredArgs,
        /// What --drives is instead of.
        devices: Vec<std::path::PathBuf>,
    }

    /// The whole answer for drives that have two slices, as `--dry-run` makes it.
    fn preview(level: &str, drives: usize, parity: usize, width: usize, spares: usize) -> Preview {
        let drive_bytes = 2 * to_bytes(width);
        let words = format!(
            "create --declustered --drives {drives} --drive-size {drive_bytes} \
             --stripe-width {width} --distributed-spares {spares}"
        );
        let args = Given::parse_from(words.split(' ').filter(|it| !it.is_empty())).declustered;
        let level: LevelChoice = level.parse().expect("a level");
        let parity = u8::try_from(parity).ok();
        let wish = Wish { level, parity, strip_bytes: 1 << 20, devices: &[] };
        let drives = Drives::of(&args, &wish).expect("they are thought of");
        let map = layout(&args, &wish, &drives).expect("a layout");
        Preview::of(&args, &map, &drives)
    }

    fn to_bytes(width: usize) -> u64 {
        ashlar_units::to_u64(width) * super::CELL_BYTES_ROTATING
    }

    /// Every number of drives at every level: all widths to 16 drives, and from there in turns the
    /// narrowest, one between that moves with the drives, and the widest. So does the parity of
    /// n+m. That no set of losses names a member twice is tested exhaustively in `ashlar_layout`.
    #[test]
    fn every_size_is_previewed_and_its_busiest_drive_is_counted() {
        for drives in 4..=256_usize {
            for (level, parity) in [("5", 1), ("6", 2), ("7.3", 3), ("n+m", 1 + drives * 5 % 32)] {
                let widest = drives.min(64);
                let parity = parity.min(widest - 1);
                let narrowest = parity + 1;
                let mut widths: Vec<usize> = (narrowest..=widest).collect();
                if drives > 16 {
                    let between = narrowest + drives * 7 % widths.len();
                    widths = vec![[narrowest, between, widest][drives % 3]];
                }
                for width in widths {
                    let spares = (drives - width).min(drives % 3);
                    let preview = preview(level, drives, parity, width, spares);
                    let text = preview.text();
                    assert!(text.contains("Busiest drive of a rebuild"), "{text}");
                    assert!(preview.balance.one_lost >= 1.0, "{level}, {drives}: {text}");
                    let critical = preview.balance.critical;
                    assert!(critical == 0.0 || critical >= 1.0, "{level}, {drives}: {text}");
                }
            }
        }
    }

    #[test]
    fn counts_beyond_all_numbers_are_refused() {
        let given =
            Given::parse_from(["create", "--declustered", "--drives", "9", "--drive-size=1T"]);
        let args = given.declustered;
        for level in ["draid2:18446744073709551615d", "draid2:18446744073709551615s"] {
            let level: LevelChoice = level.parse().expect("a level");
            let wish = Wish { level, parity: None, strip_bytes: 1 << 16, devices: &[] };
            let drives = Drives::of(&args, &wish).expect("they are thought of");
            assert!(layout(&args, &wish, &drives).is_err());
        }
    }
}
