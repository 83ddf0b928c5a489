//! Stop an array: refuse requests, let those under way end, flush everything, and mark the members
//! clean.
//!
//! What must stay true: the members are marked clean only if every region's parity is trusted, the
//! flush went well, and no needed member failed. Otherwise the next start resyncs, or rolls the log
//! forward.

use crate::array::Array;
use crate::assemble::remove;
use crate::canary::{Canary, sings};
use crate::coordinator::{map_writer, proof, record};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::slot::Slot;
use crate::{coordinator, ownership, room};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks whether requests have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Looks at members that are about to be recorded as out.
const RECORD_LOOKS: usize = 1000;

/// How long a stop waits for silent members that the array cannot do without. Then their requests
/// are answered with errors.
const SILENT_PATIENCE: Duration = Duration::from_secs(30);

/// How an array was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// Its members say so.
    Clean,
    /// It was read-only: its members say what they said before.
    ReadOnly,
    /// Its members say that parity of some regions is not trusted: the next start resyncs them, or
    /// rolls the log forward.
    Unclean,
    /// More members failed than the parity replaces, perhaps for a while only: its members say that
    /// it was not stopped, so that the next start puts right what ended half way.
    Failed,
    /// Another process runs it: nothing was written.
    TakenOver,
}

/// Runs on the coordinator.
pub(crate) async fn stop(
    local: &Rc<LocalArray>,
    engine_state: &Arc<EngineState>,
) -> Result<Stopped, Refusal> {
    let array = &local.array;
    array.set_stopping();
    give_up_later(local);
    crate::background::stopped(local.coordinator()).await;
    let id = array.identity.id;
    loop {
        let busy = engine_state.on_every_worker(move |worker| {
            worker.local(id).map_or(0, |local| local.under_way.get())
        });
        if busy.await?.iter().sum::<usize>() == 0 {
            break;
        }
        local.worker.handle.sleep(LOOK_EVERY).await;
    }
    let recorded = match array.is_read_only() {
        true if array.taken_over_by().is_some() => Some(Stopped::TakenOver),
        // The reason: the resync flag could not be recorded.
        true if array.room.is_given_up() => None,
        true if array.waits_no_longer() && has_failed(array) => Some(Stopped::Failed),
        true => Some(Stopped::ReadOnly),
        false => record_stop(local, engine_state).await,
    };
    if let (Some(runner), false) = (&engine_state.config.runner, array.is_read_only()) {
        ownership::last_beat(local, runner, array.incarnation()).await;
    }
    if array.room.is_given_up() {
        // A write that waits for its next attempt keeps its device until then.
        local.worker.handle.sleep(room::patience::RETRY_EVERY).await;
    }
    until_recorded(local).await;
    remove(engine_state, array).await?;
    let is_clean = match recorded {
        Some(Stopped::ReadOnly) => !local.coordinator().superblock().unclean,
        other => other == Some(Stopped::Clean),
    };
    array.record(names::ARRAY_STOPPED, vec![("clean", is_clean.to_string())]);
    recorded.ok_or_else(|| {
        Refusal::new(
            "array.stopped_unclean",
            format!("array '{}' is stopped but its members could not be told", array.name()),
            "its next start resyncs what was being written; \
             check the members with `ashlar examine`",
        )
    })
}

/// Members that failed are recorded as out before the devices are let go. One that cannot be
/// recorded is not waited for: the array has failed then, and says so.
async fn until_recorded(local: &Rc<LocalArray>) {
    for _ in 0..RECORD_LOOKS {
        if !local.array.has_failing_slots() || coordinator::all_recorded(local).await.is_err() {
            return;
        }
        local.worker.handle.sleep(LOOK_EVERY).await;
    }
}

/// The stop waits for silent members for a while, and then no longer, even if the array needs them.
fn give_up_later(local: &Rc<LocalArray>) {
    let (local, handle) = (Rc::downgrade(local), local.worker.handle.clone());
    let own = handle.clone();
    handle.spawn(async move {
        own.sleep(SILENT_PATIENCE).await;
        if let Some(local) = local.upgrade() {
            local.array.set_waits_no_longer();
        }
    });
}

/// Whether a member failed that nobody could stand in for, if only reads: the next start rolls its
/// log forward and resyncs.
fn has_failed(array: &Array) -> bool {
    array.slots.iter().any(Slot::has_failed)
}

/// How the members say it was stopped; `None` if they could not be told.
async fn record_stop(local: &Rc<LocalArray>, engine_state: &EngineState) -> Option<Stopped> {
    if map_writer::flush(local).await.is_err() || map_writer::store_twice(local).await.is_err() {
        return None;
    }
    until_recorded(local).await;
    if has_failed(&local.array) && !sings(Canary::FailedCalledClean) {
        return Some(Stopped::Failed);
    }
    map_writer::clear_all(local).await;
    proof::prove(local).await;
    // A region whose parity is not trusted must be resynced at the next start.
    let is_unclean = local.array.intent.unsynced_count() != 0;
    let now = (engine_state.config.wall_clock_s)();
    record::locked_update(local, |superblock| {
        superblock.unclean = is_unclean;
        superblock.resync_dirty_regions &= is_unclean;
        // Everything was flushed, the map too.
        superblock.set_kept_map(None);
        superblock.updated_at_s = now;
    })
    .await
    .ok()?;
    local.array.written.forget_kept();
    local.coordinator().appearances.forget();
    Some(if is_unclean { Stopped::Unclean } else { Stopped::Clean })
}
