//! Calls about background work: scrubs, and pausing, resuming or ending jobs.
//!
//! What must stay true: only a job that no redundancy depends on can be cancelled.

use super::Arrays;
use crate::backend::Serves;
use crate::convert;
use ashlar_api::ApiError;
use ashlar_api::v1::Done;
use ashlar_api::v1::job::{JobAction, JobControl, JobKind, ScrubStart};
use ashlar_engine::Refusal;

impl Serves<ScrubStart> for Arrays {
    async fn serve(&self, call: ScrubStart) -> Result<Done, ApiError> {
        self.engine.scrub(&call.array, call.repair).await.map_err(convert::refusal)?;
        let keeps_checksums = self.engine.array(&call.array).is_ok_and(|it| it.keeps_checksums());
        let what = match (call.repair, keeps_checksums) {
            (true, _) => "it stores anew what does not match, and what cannot be read",
            (_, true) => "it stores anew what is not what was written, and what cannot be read",
            _ => "it reports what does not match, and stores anew only what cannot be read",
        };
        Ok(Done::changed(format!("scrub of '{}' has begun: {what}", call.array)))
    }
}

impl Serves<JobControl> for Arrays {
    async fn serve(&self, call: JobControl) -> Result<Done, ApiError> {
        let array = &call.array;
        let (done, word) = match call.action {
            JobAction::Pause => (self.set_paused(&call, true).await, "paused"),
            JobAction::Resume => (self.set_paused(&call, false).await, "going on"),
            JobAction::Cancel if call.kind == JobKind::Scrub => {
                (self.engine.cancel_scrub(array, call.id).await, "cancelled")
            }
            JobAction::Cancel => return Err(not_cancelled(array, call.kind)),
        };
        done.map_err(convert::refusal)?;
        Ok(Done::changed(format!("{} of '{array}': {word}", call.kind)))
    }
}

impl Arrays {
    async fn set_paused(&self, call: &JobControl, is_on: bool) -> Result<(), Refusal> {
        let (array, kind) = (&call.array, convert::job_kind(call.kind));
        match (call.id, is_on) {
            (Some(id), _) => self.engine.set_job_paused(array, id, is_on).await,
            (None, true) => self.engine.pause(array, kind).await,
            (None, false) => self.engine.unpause(array, kind).await,
        }
    }
}

fn not_cancelled(array: &str, kind: JobKind) -> ApiError {
    let message = format!("a {kind} of '{array}' cannot be cancelled; nothing was changed");
    ApiError::new(
        "job.needed",
        message,
        "it can be paused; a member can be put out with 'ashlar fail'",
    )
}
