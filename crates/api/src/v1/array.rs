//! Arrays: make one, put one together from its members, stop one; and how one is doing.

use super::domain::{Domains, FailureDomains};
use super::job::{JobEnd, JobStatus};
use super::member::MemberStatus;
use super::tuning::Tuning;
use super::{Done, latency::Latency};
use crate::Call;
use ashlar_layout::Level;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use super::policy::{NotASwitch, Policy, Switch, UnknownPolicy};

/// Create an array. This erases the devices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// The array's name, and the name of its volume in every export.
    pub name: String,
    /// The level: `raid0`, `raid1`, `raid5`, `raid6`, `raid7.3`, `raid10`, `raid50`, `raid60`,
    /// `raid70` or `n+m`.
    #[schemars(with = "String")]
    pub level: Level,
    /// Paths of the members, in slot order.
    pub devices: Vec<String>,
    /// Paths of devices that wait as spares in the default pool.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Parity strips in a stripe; needed for N+M, implied by the other levels.
    #[serde(default)]
    pub parity: Option<u8>,
    /// Members in each group, for the levels with groups; for RAID 10 the number of copies.
    #[serde(default)]
    pub group_members: Option<u16>,
    /// Strip size in bytes: a power of two from 4 KiB to 1 MiB. Default 64 KiB.
    #[serde(default)]
    pub strip_bytes: Option<u64>,
    /// Spread narrow stripes over all members; levels 5, 6, 7.3 and n+m. Default: every stripe uses
    /// all members of its group.
    #[serde(default)]
    pub declustered: Option<Declustering>,
    /// Bytes to use of each member; default as much as the smallest holds.
    #[serde(default)]
    pub member_bytes: Option<u64>,
    /// Logical block of the volume in bytes, 512 or 4096. Default 4096.
    #[serde(default)]
    pub logical_block_bytes: Option<u32>,
    /// How the array survives a crash. Default `log` for levels with parity, `bitmap` for
    /// mirrors, `none` for RAID 0.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Keep a checksum of each block; only with the policy log. Default off.
    #[serde(default)]
    pub checksums: Option<Switch>,
    /// Bytes that each device writes whole or not at all, at multiples of them, even when power
    /// fails: a power of two of at least 4 KiB. Ashlar trusts this; only with the policy log.
    /// Default: nothing is stated.
    #[serde(default)]
    pub atomic_write_bytes: Option<u32>,
    /// Devices whose foreign signatures may be overwritten, by path.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Use a whole drive as it is. Default: a drive gets a partition first, so that other programs
    /// see that it is taken; a drive that has nothing but such a partition stands for it.
    #[serde(default)]
    pub whole: bool,
    /// Check everything and write nothing; the answer says what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Do not start it again when the daemon starts the next time.
    #[serde(default)]
    pub not_remembered: bool,
}

/// How a declustered array spreads its stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declustering {
    /// Strips of a stripe, data and parity together.
    pub stripe_width: u16,
    /// Failed members that the array's own spare space replaces.
    #[serde(default)]
    pub distributed_spares: u16,
    /// Bytes of a cell: what a stripe's neighbours share a member for. Default 16 MiB on rotating
    /// drives and 1 MiB on others, less on small ones.
    #[serde(default)]
    pub cell_bytes: Option<u64>,
    /// Failure domains: a stripe has as few strips in one as can be. Default: none.
    #[serde(default)]
    pub domains: Option<Domains>,
}

impl Call for Create {
    const PATH: &'static str = "/v1/arrays/create";
    type Answer = Created;
}

/// What was created, or with `dry_run` would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// False after a dry run.
    pub changed: bool,
    /// One sentence for people.
    pub message: String,
    /// The array's UUID; empty after a dry run.
    pub uuid: String,
    /// Usable size in bytes.
    pub volume_bytes: u64,
    /// Strip size in bytes.
    pub strip_bytes: u64,
    /// Things worth knowing: unequal sizes, no power-loss protection.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Start an array from its members.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assemble {
    /// Only the array of this name; default whichever the devices hold.
    #[serde(default)]
    pub name: Option<String>,
    /// Only the array of this UUID.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Paths to look at.
    pub devices: Vec<String>,
    /// Start it read-only: refuse writes and change nothing on the members.
    #[serde(default)]
    pub read_only: bool,
    /// Start read-write although the array was not stopped cleanly and members are missing. Blocks
    /// that were being written may be wrong.
    #[serde(default)]
    pub accept_dirty_degraded: bool,
    /// Start although no member that is there knows whether some stripes were ever written. These
    /// stripes count as written: if they were not, reads return whatever is on the members.
    #[serde(default)]
    pub accept_lost_map: bool,
    /// If too few members are there that have all writes: take others although they may lack
    /// writes, the freshest first, as few as possible. Their blocks may be old, flushed ones, too.
    #[serde(default)]
    pub accept_older_members: bool,
    /// Accept members whose device has another serial than recorded: an image, or a new enclosure.
    #[serde(default)]
    pub accept_serials: bool,
    /// Accept members that carry a signature of somebody else, which is overwritten. What was
    /// written to them since they were members is lost, and may be wrong where it was.
    #[serde(default)]
    pub accept_signatures: bool,
    /// After a split brain, the incarnation to trust, as `examine` prints it.
    #[serde(default)]
    pub trust: Option<String>,
    /// Pools that the array takes spares from, in this order; none means the default pool. The
    /// members do not record this.
    #[serde(default)]
    pub spare_pools: Vec<String>,
    /// Check everything and write nothing; the answer says what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Do not start it again when the daemon starts the next time.
    #[serde(default)]
    pub not_remembered: bool,
}

impl Call for Assemble {
    const PATH: &'static str = "/v1/arrays/assemble";
    type Answer = Done;
}

/// Look for members, group them by array, and start each array that is complete. Others wait for
/// their members, for as long as the configuration says, and start degraded then.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// Paths to look at; none: every block device of this machine.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Only the array of this name, also if it ran last on another host.
    #[serde(default)]
    pub name: Option<String>,
    /// Only the array of this UUID, also if it ran last on another host.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Start degraded arrays at once.
    #[serde(default)]
    pub degraded: bool,
    /// Write nothing, tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for Scan {
    const PATH: &'static str = "/v1/arrays/scan";
    type Answer = Done;
}

/// Tell the daemon that a device has appeared. It may be the last that an array waits for, or a
/// member that was away.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Appeared {
    /// Its path.
    pub device: String,
}

impl Call for Appeared {
    const PATH: &'static str = "/v1/devices/appeared";
    type Answer = Done;
}

/// Stop an array: finish the requests under way, mark the array clean and close its devices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The array's name.
    pub array: String,
    /// Also while clients are connected; they lose their connection.
    #[serde(default)]
    pub force: bool,
}

impl Call for Stop {
    const PATH: &'static str = "/v1/arrays/stop";
    type Answer = Done;
}

/// Rename a running array that nobody uses. It is stopped, and starts again under the new name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The array's name.
    pub array: String,
    /// Its new name.
    pub name: String,
}

impl Call for Rename {
    const PATH: &'static str = "/v1/arrays/rename";
    type Answer = Done;
}

/// Destroy a running array: stop it and erase the RAID metadata of its devices. Its data is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destroy {
    /// The array's name.
    pub array: String,
    /// The array's name once more. Without it the call is refused and says what would be lost.
    #[serde(default)]
    pub confirm: Option<String>,
    /// Write nothing; the answer says what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for Destroy {
    const PATH: &'static str = "/v1/arrays/destroy";
    type Answer = Done;
}

/// What an array can promise now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayState {
    /// All members in, parity matches.
    Clean,
    /// All members in; parity is being made to match after an unclean stop.
    Resyncing,
    /// Members are out; all data can still be read and written.
    Degraded,
    /// Changes are refused.
    ReadOnly,
    /// More members are out, or fail what they are asked, than parity can replace.
    Failed,
}

impl fmt::Display for ArrayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ArrayState::Clean => "clean",
            ArrayState::Resyncing => "resyncing",
            ArrayState::Degraded => "DEGRADED",
            ArrayState::ReadOnly => "READ-ONLY",
            ArrayState::Failed => "FAILED",
        })
    }
}

/// One array at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArrayStatus {
    /// Name of the array and of its volume.
    pub name: String,
    /// Identity that stays the same over restarts and renames.
    pub uuid: String,
    /// The level.
    #[schemars(with = "String")]
    pub level: Level,
    /// Data strips in a stripe.
    pub data_strips: u16,
    /// Parity strips in a stripe (copies beyond the first, for mirrors).
    pub parity_strips: u16,
    /// Groups that stripes are dealt out to; 1 for the plain levels.
    pub groups: u16,
    /// Whether its stripes are narrower than it is and lie on changing members.
    #[serde(default)]
    pub is_declustered: bool,
    /// Its failure domains, if it was created with some.
    #[serde(default)]
    pub domains: Option<FailureDomains>,
    /// Strip size in bytes.
    pub strip_bytes: u64,
    /// Usable size in bytes.
    pub volume_bytes: u64,
    /// What it can promise now.
    pub state: ArrayState,
    /// Where it runs now, if another process took it over: `in process 7 on host 'a'`. Nothing is
    /// read or written here then.
    #[serde(default)]
    pub taken_over_by: Option<String>,
    /// Why changes are refused, and what ends that, if they are.
    #[serde(default)]
    pub read_only: Option<WhyReadOnly>,
    /// How many more members may be lost, at the worst place, without losing data.
    pub tolerates: u16,
    /// Writes wait: more members have no space for them than the array can do without.
    #[serde(default)]
    pub pause: Option<Pause>,
    /// How parity is made right after an unclean stop.
    pub policy: String,
    /// Checksums of its blocks: none or crc32c.
    #[serde(default)]
    pub checksums: String,
    /// What the last start made of the stripe intent log, if it had to look at it.
    #[serde(default)]
    pub replayed: Option<Replayed>,
    /// What was accepted at a start so that the array starts, since it was last stopped cleanly:
    /// half a sentence for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
    /// The parity kernel in use.
    pub kernel: String,
    /// Its tunables.
    #[serde(default)]
    pub tuning: Tuning,
    /// Pools it takes spares from, in this order.
    #[serde(default)]
    pub spare_pools: Vec<String>,
    /// Generation of the superblocks.
    pub generation: u64,
    /// Regions of the write-intent bitmap that may be inconsistent, and how many there are.
    pub intent: Share,
    /// Stripes that were ever written, and how many there are.
    pub written_stripes: Share,
    /// In slot order.
    pub members: Vec<MemberStatus>,
    /// Lost members of an array with distributed spares, until all their cells are in their places.
    #[serde(default)]
    pub lost_members: Vec<LostMember>,
    /// Stripes of an array with distributed spares, by the losses that they survive. None while
    /// they are being counted, and if an array that was started read-only lacks members.
    #[serde(default)]
    pub exposure: Option<Exposure>,
    /// What goes on in the background.
    pub jobs: Vec<JobStatus>,
    /// How the last jobs ended since assembly, oldest first; at most 32.
    #[serde(default)]
    pub ended_jobs: Vec<JobEnd>,
    /// How the last scrub ended, if one ever did since assembly.
    #[serde(default)]
    pub last_scrub: Option<ScrubResult>,
    /// What was done since assembly.
    pub counters: ArrayCounters,
    /// Client reads, since assembly.
    pub read_latency: Latency,
    /// Client writes, since assembly.
    pub write_latency: Latency,
    /// Client flushes, since assembly.
    #[serde(default)]
    pub flush_latency: Latency,
    /// Stages of stripe writes, in order, of a sample of them.
    #[serde(default)]
    pub write_stages: Vec<StageLatency>,
}

impl ArrayStatus {
    /// Data and parity of a stripe, or copies, of each group: `2 x 4+2`, `3 copies`,
    /// `8+2 over 42`.
    pub fn shape(&self) -> String {
        if self.is_declustered {
            let members = self.members.len();
            return format!("{}+{} over {members}", self.data_strips, self.parity_strips);
        }
        let one = match self.level {
            Level::Raid1 | Level::Raid10 => format!("{} copies", self.parity_strips + 1),
            _ => format!("{}+{}", self.data_strips, self.parity_strips),
        };
        if self.groups > 1 { format!("{} x {one}", self.groups) } else { one }
    }

    /// What an operator can do about an array that has failed, if nothing else says so: its members
    /// may be all there again, and it does not ask them.
    pub fn after_failure(&self) -> Option<String> {
        let is_said = self.read_only.is_some() || self.taken_over_by.is_some();
        let name = &self.name;
        (self.state == ArrayState::Failed && !is_said).then(|| {
            format!(
                "more members failed than it can do without; when they answer again, run: ashlar \
                 stop {name}; ashlar assemble --name {name} DEVICE..."
            )
        })
    }

    /// Whether each strip is a copy: a scrub compares copies, and no parity.
    pub fn is_mirrored(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }

    /// What a scrub calls wrong of blocks, after their number.
    pub fn mismatch(&self) -> &'static str {
        match self.is_mirrored() {
            true => "have copies that differ",
            false => "have parity that does not match",
        }
    }

    /// Its members, group by group.
    pub fn by_group(&self) -> impl Iterator<Item = &[MemberStatus]> {
        self.members.chunks((self.members.len() / usize::from(self.groups).max(1)).max(1))
    }
}

/// Why an array refuses changes, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WhyReadOnly {
    /// What follows "because".
    pub because: String,
    /// What to do, with the command.
    pub next: String,
}

/// A lost member of an array with distributed spares: where its cells are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LostMember {
    /// Its slot.
    pub slot: u16,
    /// Its spare column; none, if all were taken when it was lost.
    pub spare_column: Option<u16>,
    /// Cells that are to be rebuilt. Its own spare cells that hold nothing count as well until a
    /// device is there.
    pub missing_cells: u64,
    /// Cells on distributed spares.
    pub spare_cells: u64,
    /// Cells on the device that replaces it.
    pub in_place_cells: u64,
}

/// Stripes of an array with distributed spares, written or not, by the losses that they survive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Exposure {
    /// Stripes by the number of further losses that they survive: first those that survive none,
    /// last those that lack nothing.
    pub surviving: Vec<u64>,
    /// Stripes that lack more strips than parity replaces.
    pub beyond_parity: u64,
    /// The stripes that survive the fewest losses, if some lack anything and can be read.
    pub critical: Option<CriticalStripes>,
}

/// The stripes that survive the fewest losses. They are rebuilt first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CriticalStripes {
    /// Further losses that they survive.
    pub survive: u16,
    /// How many they are.
    pub stripes: u64,
    /// Those of them that wait: no spare is free for what they lack.
    pub waiting: u64,
    /// Seconds until all of them are rebuilt, at the rate of the last minute. None if that is
    /// unknown: nothing is rebuilt, none of them was yet, or some of them wait.
    pub left_seconds: Option<u64>,
}

/// An array whose writes wait for space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// Slots of the members that have none.
    pub slots: Vec<u16>,
    /// Writes to members that wait.
    pub waiting: u64,
}

impl std::fmt::Display for Pause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slots: Vec<String> = self.slots.iter().map(u16::to_string).collect();
        write!(f, "no space under slots {}; {} writes wait", slots.join(", "), self.waiting)
    }
}

/// How long one stage of a stripe write took.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StageLatency {
    /// `lock`, `intent`, `gather`, `parity`, `log` or `store`.
    pub stage: String,
    /// Of the writes that were timed.
    pub latency: Latency,
}

/// So many of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// How many.
    pub count: u64,
    /// Out of how many.
    pub of: u64,
}

/// What a start made of the stripe intent log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Replayed {
    /// Updates rolled forward.
    pub rolled_forward: u64,
    /// Updates dropped, of which nothing was in place.
    pub dropped: u64,
    /// Rows whose parity was generated anew.
    pub rows_in_doubt: u64,
    /// Those of them that were left as they are: more of their blocks cannot be read than the
    /// parity replaces.
    #[serde(default)]
    pub rows_left: u64,
    /// Blocks of rows in doubt that their checksums proved wrong, and that were put back as the
    /// rest of their row says.
    #[serde(default)]
    pub put_back: u64,
    /// Bytes written in place from the logs.
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub duration_us: u64,
}

/// How a scrub ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScrubResult {
    /// Blocks found wrong: their parity did not match, or they were not what was written.
    pub mismatches: u64,
    /// Of these, blocks that stay as they are.
    #[serde(default)]
    pub left: u64,
    /// Blocks put right, those that could not be read included.
    #[serde(default)]
    pub repaired: u64,
    /// Blocks that are lost: too much of their row cannot be read.
    #[serde(default)]
    pub unrepairable: u64,
    /// It was cancelled; the other numbers are about the stripes that were done until then.
    #[serde(default)]
    pub cancelled: bool,
    /// Stripes that it visited.
    #[serde(default)]
    pub done_stripes: u64,
    /// Stripes that it had to visit.
    #[serde(default)]
    pub total_stripes: u64,
    /// Seconds since it ended.
    pub age_seconds: u64,
}

/// Counters since assembly. They only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArrayCounters {
    /// Client reads.
    pub reads: u64,
    /// Bytes of client reads.
    pub read_bytes: u64,
    /// Client writes.
    pub writes: u64,
    /// Bytes of client writes.
    pub write_bytes: u64,
    /// Client flushes.
    pub flushes: u64,
    /// Client discards and zero writes.
    pub discards: u64,
    /// Bytes of members that were given back because clients did so.
    pub discarded_bytes: u64,
    /// Client requests that were answered with an error.
    pub errors: u64,
    /// Stripe writes without a read.
    pub full_stripe_writes: u64,
    /// Stripe writes that read the old data and old parity.
    pub rmw_writes: u64,
    /// Stripe writes that read the data that stays.
    pub rcw_writes: u64,
    /// Stripe writes that reconstructed missing data.
    pub decode_writes: u64,
    /// First writes of a stripe.
    pub first_writes: u64,
    /// Client writes that were joined with one before them.
    pub merged_writes: u64,
    /// Reads that had to reconstruct.
    pub degraded_reads: u64,
    /// Blocks that could not be read, were reconstructed and written back.
    pub repaired_blocks: u64,
    /// Blocks that could not be returned.
    pub lost_blocks: u64,
    /// Reads of data sent to members for clients: for their reads and for their writes.
    pub member_reads: u64,
    /// Of these, those that writes needed.
    pub write_member_reads: u64,
    /// Writes of data sent to members for clients.
    pub member_writes: u64,
    /// Reads of data sent to members by background jobs.
    pub job_member_reads: u64,
    /// Writes of data sent to members by background jobs.
    pub job_member_writes: u64,
    /// Flushes sent to members.
    pub member_flushes: u64,
    /// Pages of the write-intent bitmap written.
    pub intent_page_writes: u64,
    /// Pages of the map of written stripes written.
    pub written_page_writes: u64,
    /// Updates recorded in the stripe intent log.
    pub log_records: u64,
    /// Of these, parity-only ones: of single blocks whose devices write them whole.
    #[serde(default)]
    pub parity_only_records: u64,
    /// Batches written to the stripe intent log, on all members.
    pub log_batches: u64,
    /// Bytes of those batches.
    pub log_bytes: u64,
    /// Times that the log was made to settle, to have space again.
    pub log_settles: u64,
    /// Updates that waited for space in the log.
    pub log_space_waits: u64,
    /// Client reads and writes that waited because of a limit of the volume.
    #[serde(default)]
    pub limit_waits: u64,
    /// How long they waited in all, microseconds.
    #[serde(default)]
    pub limit_wait_us: u64,
    /// Pieces of requests handed to another worker.
    pub handed_over: u64,
}

impl ArrayCounters {
    /// Writes of members for each client write, in hundredths: the cost of parity. `None` before
    /// the first.
    pub fn member_writes_per_write_percent(&self) -> Option<u64> {
        self.member_writes.saturating_mul(100).checked_div(self.writes)
    }
}
