//! Whole drives that a call takes in get a partition first, so that other programs see that they
//! are taken. A drive that has one already stands for it.
//!
//! What must stay true: what can be refused is refused by a dry run on the drives as they are,
//! before the first is written. If the call fails later, the drives are blank again, but for those
//! that hold a member by then. One call at a time makes partitions. Not here: the partitions
//! themselves (`partition`).

use crate::aside::aside;
use crate::partition::make::{self, DriveToPartition, Made};
use crate::partition::{self, drive};
use ashlar_api::ApiError;
use ashlar_units::ByteSize;
use tokio::sync::{Mutex, MutexGuard};

/// Held while drives are between blank and in use.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The paths, with the partition in the place of each drive that has nothing but one of ours.
pub(super) async fn inside(paths: Vec<String>) -> Vec<String> {
    let look = |path: String| partition::inside(&path).unwrap_or(path);
    aside(move || paths.into_iter().map(look).collect()).await
}

/// [`inside`] for one.
pub(super) async fn inside_of(path: String) -> String {
    inside(vec![path]).await.pop().unwrap_or_default()
}

/// Those of the devices that get a partition.
pub(super) async fn drives_among(devices: Vec<String>) -> Vec<String> {
    let is_drive = |path: &String| drive::is_drive(path);
    aside(move || devices.into_iter().filter(is_drive).collect()).await
}

/// The size of the drive, and of the partition on it.
pub(super) async fn sizes(drive: &str) -> (u64, u64) {
    let drive = drive.to_owned();
    let whole = aside(move || drive::bytes(&drive).unwrap_or(0)).await;
    (whole, partition::partition_bytes(whole))
}

/// That the drives may get a partition each.
pub(super) async fn check(wanted: &[DriveToPartition]) -> Result<(), ApiError> {
    let wanted = wanted.to_vec();
    aside(move || make::check_all(&wanted)).await
}

/// What is said of a drive whose partition would be smaller than what is wanted of it.
pub(super) fn too_small(drive: &str, has: u64, wanted: u64) -> ApiError {
    let message = format!(
        "a partition on {drive} has {}, and {} of each device were to be used; nothing was written",
        ByteSize(has),
        ByteSize(wanted)
    );
    ApiError::new("member.too_small", message, "use less of each, or whole drives: --whole")
}

/// The size of the smallest device of an array, once those that are wanted have a partition.
pub(super) async fn smallest(devices: &[String], wanted: &[DriveToPartition]) -> Option<u64> {
    let (devices, wanted) = (devices.to_vec(), wanted.to_vec());
    let bytes = move |path: &String| {
        let file = || std::fs::metadata(path).ok().filter(|it| it.is_file()).map(|it| it.len());
        let whole = drive::bytes(path).or_else(file)?;
        let is_wanted = wanted.iter().any(|it| it.drive == *path);
        Some(if is_wanted { partition::partition_bytes(whole) } else { whole })
    };
    aside(move || devices.iter().filter_map(bytes).min()).await
}

/// What is said of partitions, with their paths or those of their drives.
fn words(verb: &str, paths: &[&str]) -> String {
    let (what, whose) = match paths.len() {
        1 => ("a partition", "the drive is"),
        _ => ("partitions", "the drives are"),
    };
    let paths = paths.join(", ");
    format!("{what} {verb}, so that other programs see that {whose} taken: {paths}")
}

/// What a dry run says of the drives.
pub(super) fn would(wanted: &[DriveToPartition]) -> String {
    let drives: Vec<&str> = wanted.iter().map(|it| it.drive.as_str()).collect();
    words("would be made", &drives)
}

/// Partitions that were made for a call under way.
pub(super) struct MadePartitions {
    made: Vec<Made>,
    _alone: MutexGuard<'static, ()>,
}

impl MadePartitions {
    /// Make them.
    ///
    /// # Errors
    /// Why not, and what became of the drives.
    pub(super) async fn on(wanted: Vec<DriveToPartition>) -> Result<MadePartitions, ApiError> {
        let alone = ALONE.lock().await;
        let made = aside(move || {
            make::check_all(&wanted)?;
            make::make_all(&wanted)
        });
        Ok(MadePartitions { made: made.await?, _alone: alone })
    }

    /// The partition that a drive has got; the path itself if it has got none.
    pub(super) fn swapped(&self, path: &str) -> String {
        let found = self.made.iter().find(|it| it.drive == path);
        found.map_or(path, |it| it.partition.as_str()).to_owned()
    }

    /// Their paths. What they held before may go: it lay on drives that were given away.
    pub(super) fn paths(&self) -> Vec<String> {
        self.made.iter().map(|it| it.partition.clone()).collect()
    }

    /// What is said of them.
    pub(super) fn told(&self) -> String {
        let paths: Vec<&str> = self.made.iter().map(|it| it.partition.as_str()).collect();
        words(if paths.len() == 1 { "was made" } else { "were made" }, &paths)
    }

    /// The call has ended so. If it was refused, they are taken away again.
    ///
    /// # Errors
    /// The refusal, with what became of the drives.
    pub(super) async fn end<T>(self, outcome: Result<T, ApiError>) -> Result<T, ApiError> {
        let Err(refusal) = outcome else { return outcome };
        let made = self.made;
        let told = aside(move || make::undone(made.iter().map(|it| it.drive.as_str()))).await;
        Err(ApiError { message: format!("{}; {told}", refusal.message), ..refusal })
    }
}

/// Take away the tables of drives whose partition of ours held what was erased. What is said of it,
/// if there are any.
pub(super) async fn taken_away(partitions: Vec<String>) -> Result<String, String> {
    aside(move || {
        let drives: Vec<String> =
            partitions.iter().filter_map(|it| partition::behind(it)).collect();
        let failed: Vec<String> = drives
            .iter()
            .filter_map(|it| make::take_away(it).err().map(|error| format!("{it} ({error})")))
            .collect();
        match (drives.is_empty(), failed.is_empty()) {
            (true, _) => Ok(String::new()),
            (_, true) => Ok(format!("; blank, without a partition: {}", drives.join(", "))),
            _ => Err(format!("the partition on {}", failed.join(", "))),
        }
    })
    .await
}
