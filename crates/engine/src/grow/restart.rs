//! An array stops and starts again while its clients wait, with new members.
//!
//! What must stay true: no request is inside when the array begins to stop, so none ends in an
//! error for that. The clients' ways in open again whatever happens: to the array with its new
//! members, or to the array as it was. If it cannot be started at all, requests end in errors, as
//! after any stop.

use crate::array::{Array, ArrayId};
use crate::assemble::{Anew, AssembleSpec, NewMember, assemble};
use crate::engine_state::{EngineState, Restarting};
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::stop::{Stopped, stop};
use crate::worker::Worker;
use ashlar_ondisk::assembly::{ArrayChoice, AssemblyRequest};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long requests that are under way may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The members of the array that is to start.
pub(super) struct Members {
    /// Paths of those that it has.
    pub(super) before: Vec<String>,
    /// Those that it grows by.
    pub(super) new_members: Vec<NewMember>,
}

/// Stop the array, and start it again with these members.
///
/// # Errors
/// Why it does not grow. It runs as before, unless the refusal says that it is stopped.
pub(super) async fn with(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    array: &Arc<Array>,
    members: Members,
) -> Result<(), Refusal> {
    let id = array.identity.id;
    let restarting = EngineState::begin_restart(engine_state, id).ok_or_else(|| busy(array))?;
    engine_state.on_every_worker(move |worker| shut(worker, id)).await?;
    if !has_emptied(worker, engine_state, id).await? {
        engine_state.let_clients_in(id).await?;
        return Err(busy(array));
    }
    let paths = members.new_members.iter().map(|it| it.opened.facts().path.clone());
    let all = members.before.iter().cloned().chain(paths).collect();
    let (spec, again) = (spec_of(array, members.before), spec_of(array, all));
    let anew = Anew { id: Some(id), new_members: members.new_members };
    let grown = match stopped(engine_state, array).await {
        Ok(Stopped::Clean) => assemble(worker, engine_state, spec, anew).await.map(drop),
        Ok(_) => Err(not_clean(array)),
        Err(refusal) => Err(refusal),
    };
    let ended = match grown {
        Ok(()) => Ok(()),
        Err(refusal) => Err(as_before(worker, engine_state, (again, id), refusal).await),
    };
    end(engine_state, restarting).await?;
    ended
}

fn shut(worker: &Rc<Worker>, id: ArrayId) {
    if let Some(entrance) = worker.entrance(id) {
        entrance.shut();
    }
}

/// Whether all requests end in time.
async fn has_emptied(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    id: ArrayId,
) -> Result<bool, Refusal> {
    let end = worker.handle.now().after(PATIENCE);
    loop {
        let inside = engine_state
            .on_every_worker(move |worker| worker.entrance(id).map_or(0, |it| it.requests()));
        if inside.await?.iter().sum::<usize>() == 0 {
            return Ok(true);
        }
        if worker.handle.now() >= end {
            return Ok(false);
        }
        worker.handle.sleep(LOOK_EVERY).await;
    }
}

async fn stopped(engine_state: &Arc<EngineState>, array: &Array) -> Result<Stopped, Refusal> {
    let own = Arc::clone(engine_state);
    let stop = async move |local: Rc<LocalArray>| stop(&local, &own).await;
    engine_state.on_coordinator_of(array, stop).await?
}

/// The array as it runs, without what is to come.
fn spec_of(array: &Array, devices: Vec<String>) -> AssembleSpec {
    let uuid = ArrayChoice::Uuid(Uuid::from_bytes(array.identity.uuid));
    let spare_pools = match array.spare_pools.is_empty() {
        // What cannot be the name of a pool says that it takes no spares.
        true => vec!["/".to_owned()],
        false => array.spare_pools.clone(),
    };
    AssembleSpec {
        devices,
        // They served it a moment ago.
        request: AssemblyRequest {
            array: uuid,
            accept_serials: true,
            accept_signatures: true,
            ..Default::default()
        },
        is_read_only: false,
        tuning: Some(array.tuning.get()),
        spare_pools,
    }
}

/// The growth came to nothing: the array starts without it.
async fn as_before(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    (spec, id): (AssembleSpec, ArrayId),
    why: Refusal,
) -> Refusal {
    if runs(engine_state, id).await {
        return why;
    }
    let anew = Anew { id: Some(id), new_members: Vec::new() };
    match assemble(worker, engine_state, spec, anew).await {
        Ok(_) => why,
        Err(refusal) => {
            let fields = vec![("reason", refusal.to_string())];
            engine_state.arrays()[id.0]
                .iter()
                .for_each(|it| it.record(names::ARRAY_FAILED, fields.clone()));
            Refusal::new(
                "array.stopped",
                format!("{why}; and the array is stopped, as it could not be started: {refusal}"),
                "look at its members with `ashlar examine`, and assemble it",
            )
        }
    }
}

/// Whoever waits goes on: with the array that runs, or with an error if none does.
async fn end(engine_state: &Arc<EngineState>, restarting: Restarting) -> Result<(), Refusal> {
    let id = restarting.id;
    let is_running = runs(engine_state, id).await;
    engine_state.let_clients_in(id).await?;
    drop(restarting);
    if !is_running {
        engine_state.on_every_worker(move |worker| worker.set_entrance(id, None)).await?;
        engine_state.arrays()[id.0] = None;
    }
    Ok(())
}

/// Whether the array has a share on the workers: of one start or another.
async fn runs(engine_state: &Arc<EngineState>, id: ArrayId) -> bool {
    let look = async move |worker: Rc<Worker>| worker.local(id).is_some();
    engine_state.on_worker(0, look).await.unwrap_or(false)
}

fn busy(array: &Array) -> Refusal {
    let name = array.name();
    Refusal::new(
        "array.busy",
        format!("array '{name}' cannot grow now: requests to it do not end; nothing was changed"),
        "run the command again when it is less busy",
    )
}

fn not_clean(array: &Array) -> Refusal {
    let name = array.name();
    Refusal::new(
        "array.cannot_grow",
        format!("array '{name}' cannot grow: it could not be stopped clean; it runs as before"),
        format!("see `ashlar status {name}` and the events for why"),
    )
}
