//! Attaching a volume the best way there is: by ublk, else by a loop device over a file.
//!
//! What must stay true: a volume that is attached stays attached the same way. What was attached by
//! hand is remembered, and forgotten when it is detached by hand.

use super::{ExportStatus, links, loops};
use crate::arrays::Arrays;
use crate::arrays::start::attachment;
use crate::aside::aside;
use crate::backend::Serves;
use crate::gather::remembered::RememberedAttach;
use crate::{convert, reclaim};
use ashlar_api::v1::export::{
    Attach, Attached, FuseAttach, FuseAttached, UblkAttach, UblkAttached, Via,
};
use ashlar_api::{ApiError, codes};
use ashlar_engine::ArrayVolume;
use ashlar_volume::Volume;

/// The reason of whoever named a way.
const AS_ASKED: &str = "as asked for";

impl Serves<Attach> for Arrays {
    async fn serve(&self, call: Attach) -> Result<Attached, ApiError> {
        let mut attached = match call.via {
            None => self.by_the_best(&call).await?,
            Some(Via::Ublk) => self.by_ublk(&call, AS_ASKED).await?,
            Some(Via::Loop) => self.by_loop(&call, AS_ASKED.to_owned()).await?,
            Some(Via::File) => self.as_file(&call, "a file was asked for".to_owned()).await?,
        };
        self.services.there(&attachment(&call.array));
        reclaim::grow_heaps(&self.engine);
        if let Some(device) = attached.device.clone().filter(|_| self.exports.gives_links()) {
            let name = call.array.clone();
            attached.link = aside(move || links::give(&device, &name)).await.ok();
        }
        if !call.not_remembered
            && let Some(uuid) = self.uuid_of(&call.array).await
        {
            let how = RememberedAttach { via: attached.via, sector_bytes: call.sector_bytes };
            let name = call.array.clone();
            let kept = self.gather.remembered.change(uuid, |own| {
                (own.name, own.attach) = (name, Some(how));
            });
            kept.await.map_err(|error| {
                let message =
                    format!("'{}' is attached, and this cannot be remembered: {error}", call.array);
                ApiError::new(
                    codes::SYSTEM_FAULT,
                    message,
                    "see that the state directory can be written",
                )
            })?;
        }
        Ok(attached)
    }
}

impl Arrays {
    /// As it is attached already, else by ublk, else by a loop device.
    async fn by_the_best(&self, call: &Attach) -> Result<Attached, ApiError> {
        let is_file = |it: &ExportStatus| {
            it.protocol == "fuse" && it.array.as_deref() == Some(call.array.as_str())
        };
        if self.exports.status().iter().any(is_file) {
            return self.by_loop(call, "the volume is shown as a file already".to_owned()).await;
        }
        match self.by_ublk(call, "the kernel has the driver").await {
            Err(refusal) if refusal.code == codes::EXPORT_IMPOSSIBLE => {
                self.by_loop(call, refusal.message).await
            }
            answer => answer,
        }
    }

    /// The blocks that clients of the array see by every other way.
    async fn logical_block_bytes(&self, array: &str) -> Result<u32, ApiError> {
        let bytes = async |volume: ArrayVolume| volume.facts().logical_block_bytes;
        self.engine.with_volume(0, array, bytes).await.map_err(convert::refusal)
    }

    async fn by_ublk(&self, call: &Attach, reason: &str) -> Result<Attached, ApiError> {
        let made: UblkAttached = self.serve(UblkAttach { array: call.array.clone() }).await?;
        Ok(Attached {
            changed: made.changed,
            via: Via::Ublk,
            reason: reason.to_owned(),
            file: None,
            device: Some(made.device),
            link: None,
            survives: true,
            lacks: None,
            over_ring: false,
            not_over_ring: None,
        })
    }

    async fn as_file(&self, call: &Attach, reason: String) -> Result<Attached, ApiError> {
        let shown: FuseAttached = self.serve(FuseAttach { array: call.array.clone() }).await?;
        Ok(Attached {
            changed: shown.changed,
            via: Via::File,
            reason,
            file: Some(shown.file),
            device: None,
            link: None,
            survives: shown.survives,
            lacks: shown.lacks,
            over_ring: shown.over_ring,
            not_over_ring: shown.not_over_ring,
        })
    }

    async fn by_loop(&self, call: &Attach, reason: String) -> Result<Attached, ApiError> {
        let mut attached = self.as_file(call, reason).await?;
        attached.via = Via::Loop;
        let file = attached.file.clone().unwrap_or_default();
        let sector_bytes = match call.sector_bytes {
            Some(bytes) => bytes,
            None => self.logical_block_bytes(&call.array).await?,
        };
        let over = file.clone();
        if let Some(device) = aside(move || loops::over(&over).pop()).await {
            attached.device = Some(device);
            return Ok(attached);
        }
        let made = aside(move || loops::set_up(&file, sector_bytes)).await;
        attached.device = Some(made.map_err(|error| {
            let hint = "the volume is served as a file; see 'ashlar volumes', or use NBD";
            ApiError::new(codes::SYSTEM_FAULT, error.to_string(), hint)
        })?);
        attached.changed = true;
        Ok(attached)
    }

    /// Somebody has detached a volume by hand: its next start does not attach it.
    pub(super) async fn forget_attachment(&self, array: &str) -> Result<(), ApiError> {
        self.services.forget(&attachment(array));
        let Some(uuid) = self.uuid_of(array).await else { return Ok(()) };
        let forgotten = self.gather.remembered.change(uuid, |own| own.attach = None);
        forgotten.await.map_err(|error| {
            let message = format!("'{array}' is detached, and this cannot be remembered: {error}");
            ApiError::new(
                codes::SYSTEM_FAULT,
                message,
                "see that the state directory can be written",
            )
        })
    }
}
