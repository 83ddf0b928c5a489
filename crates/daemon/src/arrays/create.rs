//! Creating an array, on devices as they are or on partitions that are made for it.
//!
//! What must stay true: everything that can be checked without touching a device is checked first.
//! Not here: how partitions are made (`partitions`).

use super::partitions::{self, MadePartitions};
use super::{Arrays, no_pools};
use crate::aside::aside;
use crate::backend::Serves;
use crate::partition::make::DriveToPartition;
use crate::{convert, domains, look, memory_devices, reclaim, repeats};
use ashlar_api::ApiError;
use ashlar_api::v1::array::{Create, Created};
use ashlar_engine::{AssembleSpec, CreateReport, CreateSpec};
use ashlar_layout::{Geometry, Level};
use ashlar_ondisk::DEFAULT_POOL;
use ashlar_ondisk::assembly::{ArrayChoice, AssemblyRequest};
use ashlar_units::ByteSize;

/// Logical block of a volume when none is asked for, in bytes.
const LOGICAL_BLOCK_BYTES: u32 = 4096;

impl Serves<Create> for Arrays {
    async fn serve(&self, mut call: Create) -> Result<Created, ApiError> {
        if call.whole {
            return self.create(call).await;
        }
        for devices in [&mut call.devices, &mut call.spares, &mut call.destroy] {
            *devices = partitions::inside(std::mem::take(devices)).await;
        }
        let devices = call.devices.iter().chain(&call.spares).cloned().collect();
        let drives = partitions::drives_among(devices).await;
        if drives.is_empty() {
            return self.create(call).await;
        }
        let wanted = wanted(&call, drives);
        check_sizes(&call, &wanted).await?;
        let smallest = partitions::smallest(&call.devices, &wanted).await;
        let member_bytes = call.member_bytes.or(smallest);
        let mut would = self.create(Create { dry_run: true, member_bytes, ..call.clone() }).await?;
        partitions::check(&wanted).await?;
        if call.dry_run {
            would.notes.push(partitions::would(&wanted));
            return Ok(would);
        }
        let made = MadePartitions::on(wanted).await?;
        let created = self.create_on(&made, call).await;
        made.end(created).await
    }
}

/// The drives that get a partition.
fn wanted(call: &Create, drives: Vec<String>) -> Vec<DriveToPartition> {
    let wanted =
        |drive: String| DriveToPartition { may_destroy: call.destroy.contains(&drive), drive };
    drives.into_iter().map(wanted).collect()
}

/// That as much as is asked for can be used of each partition.
async fn check_sizes(call: &Create, wanted: &[DriveToPartition]) -> Result<(), ApiError> {
    let Some(asked) = call.member_bytes else { return Ok(()) };
    for it in wanted.iter().filter(|it| call.devices.contains(&it.drive)) {
        let (_, has) = partitions::sizes(&it.drive).await;
        if has < asked {
            return Err(partitions::too_small(&it.drive, has, asked));
        }
    }
    Ok(())
}

impl Arrays {
    /// Create it on the partitions that were made on its drives.
    async fn create_on(
        &self,
        made: &MadePartitions,
        mut call: Create,
    ) -> Result<Created, ApiError> {
        for devices in [&mut call.devices, &mut call.spares, &mut call.destroy] {
            devices.iter_mut().for_each(|path| *path = made.swapped(path));
        }
        call.destroy.extend(made.paths());
        let mut created = self.create(call).await?;
        created.notes.push(made.told());
        Ok(created)
    }

    async fn create(&self, mut call: Create) -> Result<Created, ApiError> {
        if self.engine.array(&call.name).is_ok() {
            let message =
                format!("an array called '{}' runs already; nothing was written", call.name);
            return Err(ApiError::new("array.running", message, "choose another name"));
        }
        let is_in_memory = memory_devices::check_kinds(&call.devices, &call.spares)?;
        let new_memory = self.memory.make(&mut call.devices)?;
        let named = call.clone();
        aside(move || repeats::check_named(&named)).await?;
        for device in call.devices.iter().chain(&call.spares) {
            self.refuse_if_in_use(device).await?;
        }
        let (domain_members, enclosures) = domains::planned(&call)?;
        let spec = CreateSpec {
            shape: convert::shape(&call, domain_members),
            enclosures,
            policy: convert::policy(call.policy, call.level),
            checksums: convert::checksums(call.checksums),
            atomic_write_bytes: call.atomic_write_bytes.unwrap_or(0),
            logical_block_bytes: call.logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES),
            region_bytes: None,
            member_bytes: call.member_bytes,
            destroy: call.destroy,
            is_dry_run: call.dry_run,
            devices: call.devices.clone(),
            name: call.name,
        };
        let is_remembered = !call.not_remembered && !is_in_memory;
        let mut unremembered = None;
        for spare in call.spares.clone() {
            let may_destroy = spec.destroy.contains(&spare);
            aside(move || look::may_take(&spare, may_destroy)).await?;
        }
        let destroy = spec.destroy.clone();
        let report = self.engine.create(spec).await.map_err(convert::refusal)?;
        if !call.dry_run {
            let array = ArrayChoice::Uuid(report.uuid);
            let request = AssemblyRequest { array, ..AssemblyRequest::default() };
            let spare_pools = if is_in_memory { no_pools() } else { Vec::new() };
            let spec = AssembleSpec {
                devices: call.devices.clone(),
                request,
                spare_pools,
                ..AssembleSpec::default()
            };
            let name = self.engine.assemble(spec).await.map_err(convert::refusal)?;
            // Where it is served is in the list of volumes.
            let _told = self.exports.volume_started(&name).await;
            reclaim::grow_heaps(&self.engine);
            for spare in &call.spares {
                let added =
                    self.engine.add_spare(DEFAULT_POOL, spare, destroy.contains(spare)).await;
                added.map_err(convert::refusal)?;
            }
            new_memory.keep();
            if is_remembered {
                let devices = call.devices.into_iter().chain(call.spares).collect();
                unremembered = self.remember_made(report.uuid, &name, devices).await;
            }
        }
        let mut created = created(&report, is_in_memory);
        created.notes.extend(enclosures.map(|own| domains::cost(own, &report.geometry)));
        created.notes.extend(unremembered);
        Ok(created)
    }
}

fn created(report: &CreateReport, is_in_memory: bool) -> Created {
    let geometry = &report.geometry;
    let verb = if report.is_dry_run {
        "would be created; nothing was written"
    } else {
        "created and running"
    };
    let unused = report.unused.iter().map(|(path, bytes)| {
        format!("{path}: {} stay unused; the smallest member counts", ByteSize(*bytes))
    });
    let in_vain = report.stated_in_vain.iter().map(|path| {
        format!("{path}: it has a volatile cache, so its blocks are logged in full all the same")
    });
    Created {
        changed: !report.is_dry_run,
        message: format!(
            "array '{}', {}, strip {}, volume {}: {verb}",
            report.name,
            code(geometry),
            ByteSize(geometry.strip_bytes()),
            ByteSize(report.volume_bytes)
        ),
        uuid: if report.is_dry_run { String::new() } else { report.uuid.to_string() },
        volume_bytes: report.volume_bytes,
        strip_bytes: geometry.strip_bytes(),
        notes: unused.chain(in_vain).chain(is_in_memory.then(in_memory_note)).collect(),
    }
}

fn in_memory_note() -> String {
    "its members are memory of the daemon: all that is written to it is lost when the daemon ends"
        .to_owned()
}

/// Level and stripe as `ashlar status` has them: of mirrors people count the copies.
fn code(geometry: &Geometry) -> String {
    let copies = geometry.parity_strips() + 1;
    match geometry.level() {
        level @ Level::Raid1 => format!("{level} {copies} copies"),
        level @ Level::Raid10 => format!("{level} {} x {copies} copies", geometry.groups()),
        _ => geometry.code_name(),
    }
}
