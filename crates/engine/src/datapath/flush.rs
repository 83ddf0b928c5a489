//! FLUSH and FUA: everything that was answered before is on stable media, with the metadata that
//! finds it.
//!
//! What must stay true: a round flushes the members' caches, writes the changed written-map pages,
//! and flushes the caches again. So a stripe is never called written before its strips are durable.
//! Flushes that wait for a running round share the next one. A member that fails a flush is out.
//! The failure is never retried into success.
//!
//! On an array with a stripe intent log, a logged write is durable when it is answered and needs no
//! flush. Other writes (first writes, trims, whole stripes on a healthy array) are counted in
//! `caches.rs`. If a round has covered all that was counted, there is nothing to do.

use crate::canary::panic_if_planted;
use crate::coordinator;
use crate::coordinator::messages::on_coordinator;
use crate::coordinator::{map_writer, proof};
use crate::local_array::LocalArray;
use ashlar_volume::VolumeErrorKind;
use std::rc::Rc;

/// Make every write that was answered before now durable.
///
/// # Errors
/// `Io` if so many members failed that the promise cannot be kept; `Stopped` while the array stops.
pub(crate) async fn flush(local: &Rc<LocalArray>) -> Result<(), VolumeErrorKind> {
    panic_if_planted("flush", local.array.name());
    if local.array.log.is_some() && !local.array.caches.hold_unlogged() {
        proof::ask_for(local);
        return Ok(());
    }
    let flushed =
        on_coordinator(local, async |local: Rc<LocalArray>| map_writer::flush(&local).await).await;
    flushed.unwrap_or(Err(VolumeErrorKind::Stopped))?;
    if local.array.has_failing_slots() {
        // It was not flushed: no start may find it in service.
        coordinator::all_recorded(local).await.map_err(|_| VolumeErrorKind::Io)?;
    }
    proof::ask_for(local);
    Ok(())
}
