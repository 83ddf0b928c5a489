//! Drives that come into service one by one: as the new device of a slot, or as a spare. A whole
//! drive gets a partition first.
//!
//! What must stay true: a drive whose partition would be too small for an array that the whole
//! drive is large enough for is used whole, and that is told. Not here: what is done with the
//! device then (`members`).

use super::Arrays;
use super::members::{is_among, slot_of};
use super::partitions::{self, MadePartitions};
use crate::backend::Serves;
use crate::convert;
use crate::partition::make::DriveToPartition;
use ashlar_api::ApiError;
use ashlar_api::v1::Done;
use ashlar_api::v1::member::Replace;
use ashlar_api::v1::spare::SpareAdd;

impl Serves<Replace> for Arrays {
    async fn serve(&self, mut call: Replace) -> Result<Done, ApiError> {
        if call.whole {
            return self.replace(call).await;
        }
        call.device = partitions::inside_of(call.device).await;
        // A spare is in use as it is.
        let is_as_it_is = is_among(self.engine.spares(), &call.device).await
            || partitions::drives_among(vec![call.device.clone()]).await.is_empty();
        if is_as_it_is {
            return self.replace(call).await;
        }
        let would = self.replace(Replace { dry_run: true, ..call.clone() }).await?;
        let members = self.members(&call.array).await?;
        if slot_of(&members, &call.device).await.is_some() {
            return Ok(would);
        }
        let needed = self.engine.bytes_needed(&call.array).await.map_err(convert::refusal)?;
        if partitions::sizes(&call.device).await.1 < needed {
            return Ok(used_whole(self.replace(call).await?));
        }
        let wanted =
            vec![DriveToPartition { drive: call.device.clone(), may_destroy: call.destroy }];
        partitions::check(&wanted).await?;
        if call.dry_run {
            return Ok(with_note(would, &partitions::would(&wanted)));
        }
        let made = MadePartitions::on(wanted).await?;
        let (device, told) = (made.swapped(&call.device), made.told());
        let call = Replace { device: device.clone(), destroy: true, ..call };
        let done = made.end(self.replace(call).await).await?;
        Ok(Done { device: Some(device), ..with_note(done, &told) })
    }
}

impl Serves<SpareAdd> for Arrays {
    async fn serve(&self, mut call: SpareAdd) -> Result<Done, ApiError> {
        if call.whole {
            return self.add_spare(call).await;
        }
        call.device = partitions::inside_of(call.device).await;
        if partitions::drives_among(vec![call.device.clone()]).await.is_empty() {
            return self.add_spare(call).await;
        }
        let would = self.add_spare(SpareAdd { dry_run: true, ..call.clone() }).await?;
        if is_among(self.engine.spares(), &call.device).await {
            return Ok(would);
        }
        let needed = self.needed_of_spares(&call.pool).await?;
        if is_needed_whole(&call.device, &needed).await {
            return Ok(used_whole(self.add_spare(call).await?));
        }
        let may_destroy = call.destroy || self.is_dismissed(&call.device).await;
        let wanted = vec![DriveToPartition { drive: call.device.clone(), may_destroy }];
        partitions::check(&wanted).await?;
        if call.dry_run {
            return Ok(with_note(would, &partitions::would(&wanted)));
        }
        let made = MadePartitions::on(wanted).await?;
        let (device, told) = (made.swapped(&call.device), made.told());
        let call = SpareAdd { device: device.clone(), destroy: true, ..call };
        let done = made.end(self.add_spare(call).await).await?;
        Ok(Done { device: Some(device), ..with_note(done, &told) })
    }
}

impl Arrays {
    /// Bytes that arrays with this pool need of a device.
    async fn needed_of_spares(&self, pool: &str) -> Result<Vec<u64>, ApiError> {
        let mut needed = Vec::new();
        for array in self.status_of_all().await? {
            if array.spare_pools.iter().any(|own| own == pool) {
                needed.extend(self.engine.bytes_needed(&array.name).await.ok());
            }
        }
        Ok(needed)
    }
}

/// Whether the drive is large enough for one of these needs, and a partition on it is not.
async fn is_needed_whole(drive: &str, needed: &[u64]) -> bool {
    let (whole, partition) = partitions::sizes(drive).await;
    needed.iter().any(|needed| (partition + 1..=whole).contains(needed))
}

fn used_whole(done: Done) -> Done {
    with_note(done, "used whole, because a partition on it would be too small for this array")
}

fn with_note(done: Done, note: &str) -> Done {
    Done { message: format!("{}\nnote: {note}", done.message), ..done }
}
