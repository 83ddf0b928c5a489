//! A declustered array grows over more devices.
//!
//! What must stay true: what can be told from names is refused before the engine is asked. The
//! devices of the new members are remembered with the others, so that the next start finds them. A
//! whole drive gets a partition first, if that is large enough for a member.

use super::Arrays;
use super::partitions::{self, MadePartitions};
use crate::aside::aside;
use crate::backend::Serves;
use crate::partition::make::DriveToPartition;
use crate::{convert, domains, memory_devices};
use ashlar_api::v1::growth::{Grow, Grown};
use ashlar_api::{ApiError, codes};
use ashlar_device::Bay;
use ashlar_engine::{GrowReport, GrowSpec};
use ashlar_units::ByteSize;
use std::path::PathBuf;

impl Serves<Grow> for Arrays {
    async fn serve(&self, mut call: Grow) -> Result<Grown, ApiError> {
        if call.whole {
            return self.grow(call).await;
        }
        for devices in [&mut call.devices, &mut call.destroy] {
            *devices = partitions::inside(std::mem::take(devices)).await;
        }
        let drives = partitions::drives_among(call.devices.clone()).await;
        if drives.is_empty() {
            return self.grow(call).await;
        }
        let mut would = self.grow(Grow { dry_run: true, ..call.clone() }).await?;
        let needed = self.engine.bytes_needed(&call.array).await.map_err(convert::refusal)?;
        let (wanted, small) = by_size(&call, drives, needed).await;
        partitions::check(&wanted).await?;
        if call.dry_run {
            would.notes.extend(notes(partitions::would(&wanted), &wanted, &small));
            return Ok(would);
        }
        let made = MadePartitions::on(wanted.clone()).await?;
        for devices in [&mut call.devices, &mut call.destroy] {
            devices.iter_mut().for_each(|path| *path = made.swapped(path));
        }
        call.destroy.extend(made.paths());
        let told = notes(made.told(), &wanted, &small);
        let mut grown = made.end(self.grow(call).await).await?;
        grown.notes.extend(told);
        Ok(grown)
    }
}

/// The drives that get a partition, and those whose partition would be smaller than a member.
async fn by_size(
    call: &Grow,
    drives: Vec<String>,
    needed: u64,
) -> (Vec<DriveToPartition>, Vec<String>) {
    let (mut wanted, mut small) = (Vec::new(), Vec::new());
    for drive in drives {
        match partitions::sizes(&drive).await.1 < needed {
            true => small.push(drive),
            false => {
                let may_destroy = call.destroy.contains(&drive);
                wanted.push(DriveToPartition { drive, may_destroy });
            }
        }
    }
    (wanted, small)
}

/// What is said of partitions that were made, and of drives that are used whole.
fn notes(told: String, wanted: &[DriveToPartition], small: &[String]) -> Vec<String> {
    let small_told =
        format!("used whole, because a partition on it would be too small: {}", small.join(", "));
    let partitions = (!wanted.is_empty()).then_some(told);
    partitions.into_iter().chain((!small.is_empty()).then_some(small_told)).collect()
}

impl Arrays {
    async fn grow(&self, mut call: Grow) -> Result<Grown, ApiError> {
        if call.devices.is_empty() {
            let message = "no device is named; nothing was changed";
            return Err(ApiError::new(codes::REQUEST_MALFORMED, message, "name the new drives"));
        }
        let members = self.members(&call.array).await?;
        let paths: Vec<&str> = members.iter().map(|member| member.path.as_str()).collect();
        for device in &call.devices {
            memory_devices::check_newcomer(&paths, device)?;
        }
        let new_memory = self.memory.make(&mut call.devices)?;
        for device in &call.devices {
            self.refuse_if_in_use(device).await?;
        }
        let cost = self.check_domains(&call).await?;
        let spec = GrowSpec {
            array: call.array.clone(),
            devices: call.devices,
            destroy: call.destroy,
            is_dry_run: call.dry_run,
        };
        let report = self.engine.grow(spec).await.map_err(convert::refusal)?;
        if !call.dry_run {
            new_memory.keep();
            self.has_grown(&call.array).await;
        }
        let mut grown = grown(&call.array, call.dry_run, &report);
        grown.notes.extend((!cost.is_empty()).then_some(cost));
        Ok(grown)
    }

    /// What a lost failure domain costs then; empty if the array has none.
    async fn check_domains(&self, call: &Grow) -> Result<String, ApiError> {
        let running = self.running().await;
        let Some(array) = running.iter().find(|it| it.name == call.array) else {
            return Ok(String::new());
        };
        let paths: Vec<PathBuf> = call.devices.iter().map(PathBuf::from).collect();
        let bays = aside(move || paths.iter().map(|path| Bay::at(path)).collect::<Vec<_>>()).await;
        domains::check_growth(array, call, &bays)
    }

    /// Its next start is to look for the new members, too.
    async fn has_grown(&self, array: &str) {
        if let Some(own) = self.running().await.iter().find(|it| it.name == array) {
            self.gather.note_members(own);
        }
    }
}

fn grown(array: &str, is_dry_run: bool, report: &GrowReport) -> Grown {
    let verb = if is_dry_run { "would grow; nothing was written" } else { "grows" };
    let [before, after] = [report.volume_bytes_before, report.volume_bytes].map(ByteSize);
    let added = report.members - report.members_before;
    let count = |members: usize| u16::try_from(members).unwrap_or(u16::MAX);
    let note = format!(
        "if the configuration names the devices of '{array}', add the new ones; clients of NBD see \
         the new size when they connect again"
    );
    Grown {
        changed: !is_dry_run,
        message: format!("array '{array}' {verb}: {added} more members, {before} -> {after}"),
        members_before: count(report.members_before),
        members: count(report.members),
        moved_cells: report.moved_cells,
        cells: report.cells,
        cell_bytes: report.cell_bytes,
        volume_bytes_before: report.volume_bytes_before,
        volume_bytes: report.volume_bytes,
        bytes_to_each_new: report.bytes_to_each_new(),
        notes: vec![note],
    }
}
