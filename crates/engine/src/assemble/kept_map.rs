//! What a start makes of the kept map of the run before, and the kept map of its own run.
//!
//! What must stay true: the superblock of a running array names the boot in which it has a kept
//! map. A start in the same boot needs that map, because answered writes may be nowhere else. It
//! believes only the map of the incarnation that the superblock names, and only if every page of it
//! is whole. If there is none, the start is refused. In another boot it is a start after a power
//! cut, and no kept map counts.
//!
//! Nor does it count if the members lack the flush mark that it names: they were rolled back while
//! the machine ran on, and never had what the map says. The start is refused then, too.
//!
//! The map of the own run is complete before the superblock names its incarnation. The map before
//! it goes only after that. So every superblock that a crash may leave has its map.

use super::AssembleSpec;
use super::plan::Plan;
use crate::array::Array;
use crate::aside;
use crate::canary::{Canary, sings};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::local_array::LocalArray;
use crate::worker::Worker;
use crate::written::kept::{KeptMap, KeptMemory, KeptPages, place_name};
use ashlar_ondisk::ForcedActions;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// Take over what kept memory says of the written map; the pages that it speaks of.
///
/// # Errors
/// The map should be there, and is not.
pub(super) async fn load(
    worker: &Worker,
    engine_state: &EngineState,
    array: &Array,
    plan: &mut Plan,
    spec: &AssembleSpec,
) -> Result<Vec<usize>, Refusal> {
    let config = &engine_state.config;
    let Some(boot) = plan.found.kept_map_boot else { return Ok(Vec::new()) };
    if plan.is_as_after_power_cut {
        return Ok(Vec::new());
    }
    let of_memory = config.kept_memory.as_ref().map(|memory| memory.boot());
    let here = of_memory.or(config.runner.as_ref().map(|runner| runner.boot_id));
    // Where the boot is not known it may be the same.
    if here.is_some_and(|here| here != [0; 16] && Uuid::from_bytes(here) != boot) {
        return Ok(Vec::new());
    }
    let (pages, has_other) = match config.kept_memory.clone() {
        Some(memory) => {
            let (uuid, incarnation) = (plan.found.array_uuid, plan.found.incarnation);
            let page_count = array.written.page_count();
            let read = move || {
                let pages = KeptMap::read(&*memory, uuid, incarnation, page_count);
                let own = place_name(uuid, incarnation);
                let is_other = |name: &String| name.starts_with(&prefix(uuid)) && *name != own;
                (pages, memory.names().iter().any(is_other))
            };
            aside::run(&worker.handle, &config.aside, read).await
        }
        None => (None, false),
    };
    let Some(KeptPages { pages, mark }) = pages else {
        accept_missing(plan, spec, has_other)?;
        return Ok(Vec::new());
    };
    if mark > plan.mark_in_sync && !sings(Canary::KeptNewerBelieved) {
        accept_newer(plan, spec, mark)?;
        return Ok(Vec::new());
    }
    for (page, bits) in &pages {
        array.written.load_kept(*page, bits);
    }
    // What was written before lies in caches that this process knows nothing of.
    array.slots.iter().for_each(|slot| slot.set_unflushed());
    Ok(pages.into_iter().map(|(page, _)| page).collect())
}

/// `has_other`: there is the map of another start.
fn accept_missing(plan: &mut Plan, spec: &AssembleSpec, has_other: bool) -> Result<(), Refusal> {
    if spec.request.accept_lost_map {
        do_without(plan, "missing");
        return Ok(());
    }
    let name = plan.superblock.array_name.as_str();
    let way_out = way_out(spec);
    let (line, next) = match has_other {
        true => (
            format!(
                "the members of array '{name}' are of an earlier start than its kept map of \
                 written stripes: they were rolled back to a copy that was made while the array \
                 ran"
            ),
            format!(
                "attach the members as they were; or start the array from this copy, as after a \
                 power cut when it was made: {way_out}; nothing was written"
            ),
        ),
        false => (
            format!(
                "array '{name}' was not stopped, and its kept map of written stripes is missing or \
                 damaged; flushed writes are safe, but later first writes may read as zeros"
            ),
            format!(
                "if the daemon had another control socket then, start it with that one (ashlar \
                 --socket PATH serve); if not, the map is lost: start the array without it, as \
                 after a power cut: {way_out}; nothing was written"
            ),
        ),
    };
    Err(Refusal::new("array.kept_map_missing", line, next))
}

/// As many devices as a command names.
const NAMED_MAX: usize = 16;

/// The command that starts the array without its kept map.
fn way_out(spec: &AssembleSpec) -> String {
    let devices = match spec.devices.len() {
        1..=NAMED_MAX => spec.devices.join(" "),
        _ => "DEVICE...".to_owned(),
    };
    format!("ashlar assemble --accept-lost-map {devices}")
}

fn accept_newer(plan: &mut Plan, spec: &AssembleSpec, mark: u64) -> Result<(), Refusal> {
    if !spec.request.accept_lost_map {
        let (name, own) = (plan.superblock.array_name.as_str(), plan.mark_in_sync);
        return Err(Refusal::new(
            "array.kept_map_newer",
            format!(
                "the members of array '{name}' are older than its kept map of written stripes: \
                 they have flush mark {own}, it was kept at mark {mark}; they were rolled back to \
                 a copy that was made while the array ran"
            ),
            format!(
                "attach the members as they were; or start the array from this copy, as after a \
                 power cut when it was made: {}; nothing was written",
                way_out(spec)
            ),
        ));
    }
    do_without(plan, "newer than the members");
    Ok(())
}

fn do_without(plan: &mut Plan, why: &'static str) {
    plan.lacks_kept_map = Some(why);
    plan.force(ForcedActions::LOST_MAP);
}

/// Have a kept map for the start `incarnation`, with what the members do not say yet. The boot that
/// it is of; `None`: there is no memory for one, or the array keeps checksums.
pub(super) async fn begin(
    local: &Rc<LocalArray>,
    memory: Option<&Arc<dyn KeptMemory>>,
    incarnation: Uuid,
) -> Option<Uuid> {
    let array = &local.array;
    let memory = memory.filter(|_| array.checksums.is_none())?;
    let boot = Uuid::from_bytes(memory.boot());
    if boot.is_nil() {
        return None;
    }
    let uuid = Uuid::from_bytes(array.identity.uuid);
    let (memory, page_count) = (Arc::clone(memory), array.written.page_count());
    let make = move || KeptMap::make(&*memory, uuid, incarnation, page_count).ok();
    let kept = aside::run(&local.worker.handle, &array.aside, make).await?;
    array.written.keep_in(kept);
    array.written.is_kept().then_some(boot)
}

fn prefix(array: Uuid) -> String {
    format!("{array}.")
}

/// Maps of earlier starts of the array are of no use any more.
pub(super) fn forget_others(memory: &dyn KeptMemory, array: [u8; 16], incarnation: Uuid) {
    let array = Uuid::from_bytes(array);
    let (prefix, own) = (prefix(array), place_name(array, incarnation));
    for name in memory.names() {
        if name.starts_with(&prefix) && !name.starts_with(&own) {
            memory.forget(&name);
        }
    }
}
