//! Another name for an array.
//!
//! What must stay true: the members have the new name before the array is stopped under the old
//! one. Whatever fails after that, the array starts under the new name.

use super::{Arrays, erase};
use crate::backend::Serves;
use crate::convert;
use ashlar_api::v1::Done;
use ashlar_api::v1::array::{Assemble, Rename};
use ashlar_api::{ApiError, codes};
use ashlar_ondisk::ArrayName;

impl Serves<Rename> for Arrays {
    async fn serve(&self, call: Rename) -> Result<Done, ApiError> {
        let Rename { array: old, name } = &call;
        let new = ArrayName::for_new(name).map_err(|fault| {
            let message = format!("{fault}; nothing was changed");
            ApiError::new(codes::REQUEST_MALFORMED, message, "choose another name")
        })?;
        let arrays = self.status_of_all().await?;
        let array = arrays.iter().find(|it| it.name == *old);
        let array = array.ok_or_else(|| ApiError::no_array(old))?;
        if old == name {
            return Ok(Done::unchanged(format!("the array is called '{name}' already")));
        }
        if arrays.iter().any(|it| it.name == *name) {
            let message = format!("an array called '{name}' runs already; nothing was changed");
            return Err(ApiError::new("array.running", message, "choose another name"));
        }
        self.refuse_if_paused(old)?;
        self.exports.refuse_if_used(old)?;
        let tuning = self.engine.tuning(old).map_err(convert::refusal)?;
        self.engine.rename(old, new).await.map_err(convert::refusal)?;
        let remembered = self.gather.remembered.of(array.uuid);
        if remembered.is_some() {
            // The name there is for people: the UUID decides.
            self.gather.remembered.note(array.uuid, |own| own.name.clone_from(name));
        }
        self.stop(old).await?;
        let again = Assemble {
            uuid: Some(array.uuid.to_string()),
            devices: erase::devices_of(array),
            spare_pools: remembered.map(|it| it.spare_pools).unwrap_or_default(),
            not_remembered: true,
            ..Assemble::default()
        };
        let started = self.start(again, Some(tuning)).await.map_err(|refusal| ApiError {
            message: format!("'{old}' is stopped and called '{name}' now: {}", refusal.message),
            ..refusal
        })?;
        Ok(Done::changed(format!("'{old}' is called '{name}' now; {}", started.message)))
    }
}
