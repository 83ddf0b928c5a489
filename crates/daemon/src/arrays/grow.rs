//! A declustered array grows over more devices.
//!
//! What must stay true: what can be told from names is refused before the engine is asked. The
//! devices of the new members are remembered with the others, so that the next start finds them.

use super::Arrays;
use crate::backend::Serves;
use crate::{convert, memory_devices};
use ashlar_api::v1::growth::{Grow, Grown};
use ashlar_api::{ApiError, codes};
use ashlar_engine::{GrowReport, GrowSpec};
use ashlar_units::ByteSize;

impl Serves<Grow> for Arrays {
    async fn serve(&self, mut call: Grow) -> Result<Grown, ApiError> {
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
        Ok(grown(&call.array, call.dry_run, &report))
    }
}

impl Arrays {
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
