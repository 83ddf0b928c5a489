//! Capacity, rebuild time and exposure of a declustered array, and of a flat RAID 60 of the same
//! drives: arithmetic of a model, for people who choose a layout.
//!
//! The model: a rebuild runs as fast as the drives allow, clients take a fixed share of each
//! drive's time, and every client read of a lost strip costs k reads elsewhere. A declustered
//! rebuild also seeks, since it reads short runs; `efficiency` says what is left of the rate.
//!
//! Not here: evenness (`balance`), which is counted. Nothing here decides anything.

use ashlar_units::to_u64;

use super::slice::Declustered;

/// Drives, all alike, and what else they do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DriveModel {
    /// Bytes of a drive.
    pub bytes: u64,
    /// Bytes that it reads in a second.
    pub reads_per_second: u64,
    /// Bytes that it writes in a second.
    pub writes_per_second: u64,
    /// What a declustered rebuild gets of these rates, 0 to 1: seeks and unevenness.
    pub efficiency: f64,
    /// Share of each drive that clients use in a healthy array, 0 to 1.
    pub busy: f64,
}

/// What is left of the rate of rotating drives with cells of 16 MiB: 93 % beside seeks of 6 ms at
/// 200 MB/s, and a little for unevenness.
pub const EFFICIENCY_ROTATING: f64 = 0.90;

/// What an array of these drives offers. Times are in seconds; `None`: it never ends, since clients
/// leave no time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Bytes of the volume, before the metadata of members.
    pub data_bytes: u64,
    /// Bytes of spare space: spare columns, or spare drives.
    pub spare_bytes: u64,
    /// From the loss of a drive until all its strips are somewhere again.
    pub rebuild_seconds: Option<f64>,
    /// From the last loss that parity replaces until no stripe is without redundancy.
    pub critical_seconds: Option<f64>,
    /// Share of the strips of the drive lost last that are then without redundancy.
    pub critical_share: f64,
}

/// A flat array: groups of as many drives as a stripe has strips, and the rest as spares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlatCounts {
    /// Groups of drives.
    pub groups: u64,
    /// Drives that wait.
    pub spares: u64,
}

/// The flat array of the drives of a declustered one.
pub fn flat_counts(map: &Declustered) -> FlatCounts {
    let (members, width) = (to_u64(map.parts().members), to_u64(map.parts().width()));
    FlatCounts { groups: members / width, spares: members % width }
}

/// Of a declustered array. Without spare columns the strips of a lost member go to a new drive,
/// which takes them no faster than it writes.
pub fn forecast(map: &Declustered, drive: &DriveModel) -> Forecast {
    let parts = map.parts();
    let (k, m) = (parts.data_strips as f64, parts.parity_strips as f64);
    let columns = map.domains() as f64;
    // Members of other domains: they share stripes with a lost one.
    let others = (parts.members - parts.domain_members) as f64;
    let data_share = (columns - parts.spare_columns as f64) / columns;
    let lost = data_share * drive.bytes as f64;
    let rebuild = Work { reads: lost * k / others, writes: lost / others };
    // Of the strips of one lost member, those whose stripes lost m strips.
    let shares =
        (1..parts.parity_strips).map(|lost| (k + m - lost as f64) / (columns - lost as f64));
    let critical_share: f64 = shares.product();
    let survivors = (others - m + 1.0).max(1.0);
    let critical = lost * critical_share / survivors;
    let critical = Work { reads: critical * k, writes: critical * m };
    let spare_columns = to_u64(parts.spare_columns * parts.domain_members);
    let seconds = |work: Work, lost_bytes: f64, share: f64| match spare_columns {
        0 => {
            let reads = Work { writes: 0.0, ..work }.seconds(drive, share)?;
            Some(reads.max(lost_bytes / drive.writes_per_second as f64))
        }
        _ => work.seconds(drive, share),
    };
    let left = |lost: f64| 1.0 - drive.busy * (1.0 + lost * k / others);
    Forecast {
        data_bytes: map.volume_bytes(),
        spare_bytes: spare_columns * drive.bytes,
        rebuild_seconds: seconds(rebuild, lost, left(1.0) * drive.efficiency),
        critical_seconds: seconds(critical, lost * critical_share, left(m) * drive.efficiency),
        critical_share,
    }
}

/// Of a flat array of the same drives. The last loss hits the group of the first ones.
pub fn flat_forecast(map: &Declustered, drive: &DriveModel) -> Forecast {
    let parts = map.parts();
    let counts = flat_counts(map);
    let (k, m) = (parts.data_strips as f64, parts.parity_strips as f64);
    let width = k + m;
    let bytes = drive.bytes as f64;
    let target = bytes / drive.writes_per_second as f64;
    // Of `lost` drives: reads spread over the survivors of the group, writes go to a new drive.
    let seconds = |lost: f64| {
        let reads = Work { reads: bytes * k / (width - lost), writes: 0.0 };
        let left = 1.0 - drive.busy * (1.0 + lost * k / (width - lost));
        reads.seconds(drive, left).map(|reads| reads.max(target))
    };
    Forecast {
        data_bytes: counts.groups * to_u64(parts.data_strips) * drive.bytes,
        spare_bytes: counts.spares * drive.bytes,
        rebuild_seconds: seconds(1.0),
        critical_seconds: seconds(m),
        critical_share: 1.0,
    }
}

/// Bytes that one drive moves.
struct Work {
    reads: f64,
    writes: f64,
}

impl Work {
    /// Seconds with this share of the drive's rates; `None` if nothing is left of them.
    fn seconds(&self, drive: &DriveModel, share: f64) -> Option<f64> {
        let idle = self.reads / drive.reads_per_second as f64
            + self.writes / drive.writes_per_second as f64;
        (share > 0.0).then(|| idle / share)
    }
}
