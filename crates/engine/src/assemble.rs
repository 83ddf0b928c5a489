//! Start an array: find its members among devices, judge them, load the maps, put a share on every
//! worker, and record the start.
//!
//! What must stay true: the start writes nothing before the judgement allows it, and nothing at all
//! when the array starts read-only. Every start has a generation and an incarnation of its own.
//! Every member records them before the first request is admitted: to let clients in is the last
//! step of a start, and none of a dry run.
//!
//! - here     the steps of a start, in their order
//! - `plan`   what the judgement makes of the devices: which fills which slot
//! - `doubt`  which stripes a crash left in doubt, if any
//! - `foreign`   signatures of somebody else on devices of ours
//! - `devices`   opening the devices, and what they say
//! - `kept_map`   what memory that survived a kill says of the written map
//! - `older`   what it may cost to take members that may lack writes
//! - `refusals`   why a start came to nothing after all
//! - `reappeared`   members that may lack what was answered
//! - `new_members`   members that the array grows by, from this start on

mod devices;
mod doubt;
mod foreign;
mod kept_map;
mod new_members;
mod older;
mod plan;
mod reappeared;
mod refusals;

use crate::array::{Array, ArrayId, ArrayIdentity, ArrayParts};
use crate::background;
use crate::background::begin_copies_anew;
use crate::canary::{Canary, panic_if_planted, sings};
use crate::checksums::table::Checksums;
use crate::config::{ArrayTuning, Runner};
use crate::coordinator::marks::Marks;
use crate::coordinator::messages::ArrayLost;
use crate::coordinator::state::{Coordinator, HowStarted};
use crate::coordinator::{drives, map_writer, proof, record, spare_states};
use crate::devices::{SlotDevice, SlotDevices};
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::event::names;
use crate::intent::IntentMap;
use crate::layouts::{Layout, Layouts};
use crate::local_array::LocalArray;
use crate::log::replay;
use crate::log::shape::LogShape;
use crate::map_pages::MapDevices;
use crate::member::SlotState;
use crate::ownership::Seen;
use crate::read_only::WhyReadOnly;
use crate::spare_cells::{SpareCells, losses_of};
use crate::watch;
use crate::worker::Worker;
use crate::written::WrittenMap;
use crate::written::kept::KeptMemory;
use crate::{map_pages, ownership, spare_pages, stated};
use ashlar_layout::Geometry;
use ashlar_layout::declustered::{CellState, SpareTable};
use ashlar_ondisk::assembly::{
    self, AssemblyRequest, MemberReading, ReadOnlyReason, RefusalKind, Start, Verdict,
};
use ashlar_ondisk::format::{BITS_PER_PAGE, SUPERBLOCK_COPIES};
use ashlar_ondisk::{ConsistencyPolicy, Drives, ForcedActions, Superblock};
use ashlar_parity::Code;
use ashlar_units::{MemberIdx, to_u64, to_usize};
use devices::{FoundDevice, read_devices};
pub(crate) use new_members::{Anew, NewMember, cannot_grow, grown};
pub use older::MayBeOld;
use plan::{Filler, Plan, SlotPlan, keep_spares, plan};
use refusals::{no_room, not_recorded};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct AssembleSpec {
    /// Devices to look at; those that belong to the array are taken, others are let go.
    pub devices: Vec<String>,
    /// Which array, and what the operator forces.
    pub request: AssemblyRequest,
    /// Start read-only.
    pub is_read_only: bool,
    /// Tunables; `None` takes the engine's.
    pub tuning: Option<ArrayTuning>,
    /// Pools that it takes spares from, in this order; none means the default pool.
    pub spare_pools: Vec<String>,
}

/// What a start would come to.
#[derive(Clone, Debug)]
pub struct WouldStart {
    /// What the devices add up to.
    pub verdict: Verdict,
    /// What was read from each device that could be opened.
    pub readings: Vec<MemberReading>,
    /// The others, and why not.
    pub problems: Vec<String>,
    /// It would start read-only.
    pub is_read_only: bool,
    /// Members that it would take although they may lack writes.
    pub may_be_old: Vec<MayBeOld>,
    /// Devices that were away since the array ran, and that it would take as after a power cut.
    pub were_away: Vec<String>,
}

pub(crate) async fn assemble(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    spec: AssembleSpec,
    anew: Anew,
) -> Result<String, Refusal> {
    let looked = look(worker, engine_state, &spec).await?;
    let mut plan = plan(&spec, &looked, worker)?;
    if !anew.new_members.is_empty() {
        plan.grow_by(anew.new_members)?;
    }
    let (_reserved, id) = engine_state.number_of(&plan.superblock, anew.id)?;
    let seen = watch(worker, engine_state, &plan).await?;
    let array = Arc::new(make_array(engine_state, &spec, &plan, id)?);
    recall_drives(&array, &plan.superblock, &looked.found);
    let lost_pages = load_maps(worker, engine_state, &array, &mut plan, &spec).await?;
    let may_be_old = older::may_be_old(&array, &looked.verdict, &looked.readings);
    let local = match install(engine_state, &array, &plan).await {
        Ok(()) => coordinator(engine_state, &array, &plan, worker, seen).await,
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = local {
        remove(engine_state, &array).await?;
        return Err(refusal);
    }
    engine_state.let_clients_in(id).await?;
    engine_state.arrays()[id.0] = Some(Arc::clone(&array));
    let Looked { found, readings, verdict, problems, reappeared } = looked;
    let name = array.name().to_owned();
    keep_spares(engine_state, &readings, &found);
    foreign::tell(&array, &readings, &verdict);
    reappeared::name_older_copies(&array, &readings, &verdict);
    reappeared::tell(&array, &readings, &verdict, &reappeared);
    name_damaged_copies(&array, &readings, &plan);
    older::tell(&array, &may_be_old);
    if array.missing_slots() > 0 {
        let unread = readings.iter().filter_map(MemberReading::cannot_be_read);
        for problem in problems.into_iter().chain(unread) {
            array.record(names::DEVICE_NOT_OPENED, vec![("reason", problem)]);
        }
    }
    if let Some(why) = plan.lacks_kept_map {
        array.record(names::ARRAY_MAP_LOST, vec![("kept_map", why.to_owned())]);
    }
    if let Some(first) = lost_pages.first() {
        let first_stripe = to_u64(*first) * BITS_PER_PAGE;
        let fields = vec![
            ("pages", lost_pages.len().to_string()),
            ("first_stripe", first_stripe.to_string()),
        ];
        array.record(names::ARRAY_MAP_LOST, fields);
    }
    if plan.forced != 0 {
        let accepted = ForcedActions::default().with(plan.forced, 0).names().join(" ");
        array.record(names::ARRAY_FORCED, vec![("accepted", accepted)]);
    }
    array.record(names::ARRAY_ASSEMBLED, vec![("missing", array.missing_slots().to_string())]);
    Ok(name)
}

/// What a start with this `spec` would come to: all that it does before it writes, and then
/// nothing.
///
/// # Errors
/// The refusal that the start would end in.
pub(crate) async fn would_assemble(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    spec: AssembleSpec,
) -> Result<WouldStart, Refusal> {
    let looked = look(worker, engine_state, &spec).await?;
    let mut plan = plan(&spec, &looked, worker)?;
    let reserved = engine_state.reserve(&plan.superblock)?;
    watch(worker, engine_state, &plan).await?;
    let array = Arc::new(make_array(engine_state, &spec, &plan, reserved.id)?);
    load_maps(worker, engine_state, &array, &mut plan, &spec).await?;
    let may_be_old = older::may_be_old(&array, &looked.verdict, &looked.readings);
    let would = match install(engine_state, &array, &plan).await {
        Ok(()) => look_at_logs(engine_state, &array, &plan).await,
        Err(refusal) => Err(refusal),
    };
    remove(engine_state, &array).await?;
    would?;
    let Looked { readings, verdict, problems, reappeared, .. } = looked;
    let is_read_only = plan.read_only.is_some();
    let were_away = reappeared.iter().map(|at| readings[*at].path.clone()).collect();
    Ok(WouldStart { verdict, readings, problems, is_read_only, may_be_old, were_away })
}

/// Devices that were opened and read, and what they add up to.
struct Looked {
    found: Vec<FoundDevice>,
    readings: Vec<MemberReading>,
    problems: Vec<String>,
    verdict: Verdict,
    /// Members that may lack what was not flushed, and that the array cannot do without: the
    /// readings of them.
    reappeared: Vec<usize>,
}

async fn look(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    spec: &AssembleSpec,
) -> Result<Looked, Refusal> {
    let devices = (spec.devices.as_slice(), spec.is_read_only);
    let (found, mut readings, problems) = read_devices(worker, engine_state, devices).await?;
    let may_be_read = problems.iter().any(|problem| problem.is_write_protected);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    foreign::look(worker, engine_state, &found, &mut readings).await;
    if sings(Canary::CutShortTrusted) {
        readings.iter_mut().for_each(|reading| reading.is_cut_short = false);
    }
    if sings(Canary::OlderCopyTrusted) {
        readings.iter_mut().for_each(|reading| reading.mark = None);
    }
    let verdict = assembly::assemble(&readings, &spec.request);
    if let Start::Refused(refusal) = &verdict.start {
        let is_cause = refusal.kind == RefusalKind::NoArray && !problems.is_empty();
        let (line, mut next) = match is_cause {
            true => (cause_first(&refusal.line, &problems, readings.len()), String::new()),
            false => (refusal.line.clone(), next_after(refusal.kind, &problems)),
        };
        if may_be_read {
            let gap = if next.is_empty() { "" } else { "; " };
            next.push_str(&format!(
                "{gap}to read it as it is: ashlar assemble --read-only DEVICE..."
            ));
        }
        return Err(Refusal::new("array.not_started", line, next));
    }
    let looked = Looked { found, readings, problems, verdict, reappeared: Vec::new() };
    Ok(without_reappeared(worker, engine_state, spec, looked).await)
}

/// Judges anew without the members that went and came while nobody ran the array, if there are any.
async fn without_reappeared(
    worker: &Worker,
    engine_state: &EngineState,
    spec: &AssembleSpec,
    mut looked: Looked,
) -> Looked {
    let Some(newest) = &looked.verdict.newest else { return looked };
    let all = (looked.found.as_slice(), looked.readings.as_slice());
    let which = reappeared::which(worker, &engine_state.config, newest, all).await;
    if which.is_empty() {
        return looked;
    }
    let mut readings = looked.readings.clone();
    which.iter().for_each(|at| readings[*at].has_reappeared = true);
    let without = assembly::assemble(&readings, &spec.request);
    match reappeared::can_start(&without, newest) {
        true => (looked.readings, looked.verdict) = (readings, without),
        false => looked.reappeared = which,
    }
    looked
}

/// Nobody else runs the array. Of one that is only read, too: what another process writes meanwhile
/// would be read half done.
async fn watch(
    worker: &Rc<Worker>,
    engine_state: &Arc<EngineState>,
    plan: &Plan,
) -> Result<Seen, Refusal> {
    ownership::watch(worker, engine_state, &plan.superblock, &plan.devices(worker)).await
}

/// Of slots without a device, the members know which drive was there last.
fn recall_drives(array: &Array, superblock: &Superblock, found: &[FoundDevice]) {
    let pages = found.iter().flat_map(|found| &found.drive_pages);
    drives::recall(array, superblock, &Drives::newest(pages, superblock.array_uuid));
}

/// Somebody wrote over copies of a member's superblock: the start wrote them anew, and says so.
fn name_damaged_copies(array: &Array, readings: &[MemberReading], plan: &Plan) {
    let done = match plan.read_only {
        Some(_) => "nothing",
        None => "written anew from an intact copy",
    };
    for reading in readings.iter().filter(|reading| reading.damaged_copies > 0) {
        let own = reading.superblock().filter(|it| it.array_uuid == plan.superblock.array_uuid);
        let Some(superblock) = own else { continue };
        let fields = vec![
            ("slot", superblock.slot.to_string()),
            ("path", reading.path.clone()),
            ("copies", format!("{} of {SUPERBLOCK_COPIES}", reading.damaged_copies)),
            ("done", done.to_owned()),
        ];
        array.record(names::MEMBER_SUPERBLOCK_DAMAGED, fields);
    }
}

/// How to go on after a refusal to start; `problems` are the devices that could not be looked at,
/// and why.
pub fn next_after(kind: RefusalKind, problems: &[String]) -> String {
    let mut next = match kind {
        RefusalKind::SplitBrain | RefusalKind::NoSuchSide => {
            "`ashlar assemble --incarnation UUID` chooses".to_owned()
        }
        RefusalKind::SeveralArrays => "`ashlar assemble --uuid UUID` chooses".to_owned(),
        // The line itself says how to go on.
        _ => String::new(),
    };
    if !problems.is_empty() {
        let gap = if next.is_empty() { "" } else { "; " };
        next.push_str(&format!("{gap}could not look at: {}", problems.join(", ")));
    }
    next
}

/// Nothing was found because devices could not be opened: that is what somebody has to mend.
fn cause_first(line: &str, problems: &[String], read: usize) -> String {
    let problems = problems.join("; ");
    match read {
        0 => format!(
            "no device could be opened: {problems}; nothing was written; put that right and \
             assemble again"
        ),
        _ => format!("devices could not be opened: {problems}; {line}"),
    }
}

fn make_array(
    engine_state: &Arc<EngineState>,
    spec: &AssembleSpec,
    plan: &Plan,
    id: ArrayId,
) -> Result<Array, Refusal> {
    // The maps have room for what a growth opens, and the geometry for its stripes.
    let (superblock, geometry) = (&plan.superblock, &plan.geometry.fully_grown());
    let kernel = engine_state.config.parity_kernel()?;
    let code = Code::new(geometry.data_strips(), geometry.parity_strips(), kernel)
        .expect("geometries are valid codes");
    let tuning = spec.tuning.unwrap_or(engine_state.config.tuning);
    let stripes_per_region = (superblock.region_bytes / geometry.stripe_bytes()).max(1);
    let array = Array::new(ArrayParts {
        identity: ArrayIdentity {
            id,
            name: superblock.array_name.as_str().to_owned(),
            uuid: superblock.array_uuid.into_bytes(),
            logical_block_bytes: superblock.logical_block_bytes,
        },
        layouts: Layouts::new(Layout { geometry: *geometry, code }),
        spare_cells: spare_cells(superblock, geometry, &plan.geometry),
        open_stripes: plan.geometry.stripe_count(),
        tuning,
        data_offset: superblock.areas.data.offset,
        slot_states: plan.slots.iter().map(|slot| slot.state.expect("planned")).collect(),
        written: WrittenMap::new(geometry, BITS_PER_PAGE),
        intent: IntentMap::new(geometry, stripes_per_region, BITS_PER_PAGE),
        log: log_shape(superblock, geometry, engine_state.loads.len())?,
        checksums: Checksums::new(superblock, tuning.checksum_cache_bytes),
        events: Arc::clone(&engine_state.events),
        spares: Arc::clone(&engine_state.spares),
        wall_clock_s: engine_state.config.wall_clock_s,
        aside: Arc::clone(&engine_state.config.aside),
        spare_pools: spec.spare_pools.clone(),
        host: engine_state.config.runner.as_ref().map_or(String::new(), |it| it.host_id.clone()),
        worker_count: engine_state.loads.len(),
    });
    for (at, slot) in plan.slots.iter().enumerate() {
        let below = array.layouts.cursor(slot.rebuilt_below);
        array.slot(MemberIdx::from_at(at)).set_rebuilt_below(below);
    }
    array.read_only.set(plan.read_only);
    Ok(array)
}

/// The spare table, before the states of its cells are read.
fn spare_cells(
    superblock: &Superblock,
    geometry: &Geometry,
    now: &Geometry,
) -> Option<Box<SpareCells>> {
    let asked = geometry.declustered().filter(|_| superblock.has_spare_table())?;
    let map = now.declustered()?;
    let table = SpareTable::of_losses(map, losses_of(superblock));
    Some(Box::new(SpareCells::new(*asked, *map, table)))
}

/// Take over the states of cells. Of members without a device no cell is in place, whatever the
/// pages of an earlier device say.
///
/// # Errors
/// If some stripe lacks more strips than parity replaces.
fn load_cells(array: &Array, states: &[(MemberIdx, Vec<CellState>)]) -> Result<(), Refusal> {
    let Some(cells) = &array.spare_cells else { return Ok(()) };
    let mut table = cells.table().clone();
    for (member, states) in states {
        let Some(at) = table.entry_of(*member) else { continue };
        let has_device = array.slot(*member).state() == SlotState::Rebuilding;
        if has_device {
            table.replace(*member).expect("it has none yet");
        }
        for (number, state) in states.iter().enumerate().take(to_usize(cells.map().cells())) {
            let is_gone = *state == CellState::InPlace && !has_device;
            table.load(at, number, if is_gone { CellState::Missing } else { *state });
        }
    }
    cells.set(table);
    let is_missing = |member| array.slot(member).state() != SlotState::InSync;
    if array.tolerates(is_missing).is_some() {
        return Ok(());
    }
    let name = array.name();
    Err(Refusal::new(
        "array.not_started",
        format!(
            "array '{name}' lacks more members than parity and the cells on its distributed \
             spares can replace; nothing was written"
        ),
        "attach the members that are missing",
    ))
}

/// Fill the maps from the members and from kept memory; the pages of the written map that nobody
/// has.
async fn load_maps(
    worker: &Rc<Worker>,
    engine_state: &EngineState,
    array: &Array,
    plan: &mut Plan,
    spec: &AssembleSpec,
) -> Result<Vec<usize>, Refusal> {
    let (sources, followers) = (plan.sources(worker), plan.followers(worker));
    let devices = MapDevices { sources: &sources, followers: &followers };
    let found = spare_pages::load(worker, &plan.superblock, &sources).await;
    load_cells(array, &found.states)?;
    plan.newest_places = found.newest_places;
    let mut lost = map_pages::load(worker, array, &plan.superblock, plan.is_unclean, devices).await;
    let kept = kept_map::load(worker, engine_state, array, plan, spec).await?;
    lost.retain(|page| !kept.contains(page));
    accept_lost_map(plan, spec, &lost)?;
    settle_doubt(worker, array, plan, spec).await;
    Ok(lost)
}

/// The maps say whether the array is read-only for a doubt, and what is believed where the operator
/// accepts it.
async fn settle_doubt(worker: &Worker, array: &Array, plan: &mut Plan, spec: &AssembleSpec) {
    let policy = plan.superblock.policy;
    let is_judged = plan.read_only == Some(WhyReadOnly::Judged(ReadOnlyReason::DirtyDegraded));
    if is_judged && !doubt::is_any(worker, array, policy).await {
        plan.read_only = spec.is_read_only.then_some(WhyReadOnly::Asked);
        array.read_only.set(plan.read_only);
    }
    if plan.accepts_doubt {
        doubt::accept(worker, array, policy).await;
    }
}

/// Where nobody knows which stripes were written, those that were not would read as what lies on
/// the members, and those that were as zeros, whichever of the two were assumed: the operator must
/// say so.
fn accept_lost_map(plan: &mut Plan, spec: &AssembleSpec, lost: &[usize]) -> Result<(), Refusal> {
    if lost.is_empty() {
        return Ok(());
    }
    if !spec.request.accept_lost_map {
        let (name, count) = (plan.superblock.array_name.as_str(), lost.len());
        return Err(Refusal::new(
            "array.map_lost",
            format!(
                "which stripes of array '{name}' were ever written is not known: \
                 {count} pages of the written map, the first of them page {}, \
                 are damaged on every member that is there",
                lost[0]
            ),
            "bring back a member that is missing, or copy the data out with `ashlar salvage`; \
             --accept-lost-map starts it all the same: what was written is there, \
             what never was reads as anything; nothing was written",
        ));
    }
    plan.force(ForcedActions::LOST_MAP);
    Ok(())
}

/// Log rings for the workers, if the array keeps a log.
fn log_shape(
    superblock: &Superblock,
    geometry: &Geometry,
    workers: usize,
) -> Result<Option<LogShape>, Refusal> {
    if superblock.policy != ConsistencyPolicy::Log {
        return Ok(None);
    }
    let shape = LogShape::plan(superblock.areas.intent_log, geometry, workers);
    shape.map(Some).ok_or_else(|| {
        Refusal::new(
            "array.not_started",
            "the members have too little room for the stripe intent log",
            "look at them with `ashlar examine`; nothing was written",
        )
    })
}

/// Put a share of the array on every worker.
async fn install(
    engine_state: &Arc<EngineState>,
    array: &Arc<Array>,
    plan: &Plan,
) -> Result<(), Refusal> {
    let slots: Vec<SlotPlan> = plan.slots.clone();
    let share = Arc::clone(array);
    let put_in = move |worker: &Rc<Worker>| {
        let attach = |filler: &Option<Filler>| {
            let Filler { opened, tags } = filler.as_ref()?;
            let device = opened.attach(&worker.handle);
            Some(SlotDevice { device, tags: *tags })
        };
        let devices = slots.iter().map(|slot| SlotDevices {
            current: attach(&slot.current),
            replacement: attach(&slot.replacement),
        });
        let local = LocalArray::new(worker, &share, devices.collect())?;
        watch::watch_over(&local);
        worker.set_local(share.identity.id, local);
        if sings(Canary::ClientsLetInEarly) {
            worker.let_clients_in(share.identity.id);
        }
        Ok::<(), std::io::Error>(())
    };
    for worker in 0..engine_state.loads.len() {
        let (put_in, array) = (put_in.clone(), Arc::clone(array));
        let no_memory = move |error| {
            let what =
                format!("stripe buffers for array '{}' cannot be had: {error}", array.name());
            let next = "free memory or lower the pool sizes; nothing was written";
            Refusal::new("engine.no_memory", what, next)
        };
        let install = async move |worker: Rc<Worker>| put_in(&worker).map_err(no_memory);
        engine_state.try_on_worker(worker, install).await?;
    }
    Ok(())
}

/// Make the share of the array's first worker its coordinator, and do what the start does without
/// writing: read the logs, and see that there is a way to go on.
async fn look_at_logs(
    engine_state: &Arc<EngineState>,
    array: &Arc<Array>,
    plan: &Plan,
) -> Result<(), Refusal> {
    let (id, plan) = (array.identity.id, plan.clone());
    let look = async move |worker: Rc<Worker>| {
        let local = worker.local(id).expect("just installed");
        make_coordinator(&local, &plan).await.map(drop)
    };
    engine_state.try_on_worker(array.coordinator, look).await
}

async fn make_coordinator(
    local: &Rc<LocalArray>,
    plan: &Plan,
) -> Result<Option<replay::Logs>, Refusal> {
    let page_sequence = plan.found.generation << 32;
    let marks = Marks::after(plan.marks.0, plan.marks.1);
    local.set_coordinator(Coordinator::new(
        plan.found.clone(),
        page_sequence,
        marks,
        background::listener(local),
    ));
    if !plan.has_log {
        return Ok(None);
    }
    replay::look(local, &plan.superblock, (plan.read_only, &plan.may_lack)).await.map(Some)
}

/// Make the share of the array's first worker its coordinator: roll the logs forward, record the
/// start, begin the sweep and the jobs.
async fn coordinator(
    engine_state: &Arc<EngineState>,
    array: &Arc<Array>,
    plan: &Plan,
    worker: &Rc<Worker>,
    seen: Seen,
) -> Result<(), Refusal> {
    let (id, plan) = (array.identity.id, plan.clone());
    let beginning = Beginning {
        incarnation: match sings(Canary::IncarnationKept) {
            true => plan.superblock.incarnation,
            false => worker.draw_uuid(),
        },
        now_s: (engine_state.config.wall_clock_s)(),
        runner: engine_state.config.runner.clone(),
        kept_memory: engine_state.config.kept_memory.clone(),
        seen,
        plan,
    };
    let start = async move |worker: Rc<Worker>| {
        let local = worker.local(id).expect("just installed");
        beginning.begin(&local).await
    };
    let started = engine_state.try_on_worker(array.coordinator, start).await;
    started.map_err(|refusal| no_room(array).unwrap_or(refusal))
}

/// How an array begins to run, on its coordinator.
struct Beginning {
    plan: Plan,
    incarnation: Uuid,
    now_s: u64,
    runner: Option<Runner>,
    kept_memory: Option<Arc<dyn KeptMemory>>,
    /// Nobody ran it then.
    seen: Seen,
}

impl Beginning {
    async fn begin(self, local: &Rc<LocalArray>) -> Result<(), Refusal> {
        let logs = make_coordinator(local, &self.plan).await?;
        let (forced, was_unclean) = (self.plan.forced, self.plan.found.unclean);
        local.coordinator().beginning.set(HowStarted { forced, was_unclean });
        let runner = self.runner.as_ref();
        if self.plan.read_only.is_some() {
            if let Some(runner) = runner {
                let stand_by = ownership::stand_by(Rc::clone(local), runner.clone(), self.seen);
                local.worker.handle.spawn(stand_by);
            }
            return self.begin_reading(local, logs).await;
        }
        if let Some(runner) = runner {
            ownership::claim(local, runner, self.incarnation, self.seen).await?;
            let beat = ownership::beat(Rc::clone(local), runner.clone(), self.incarnation);
            local.worker.handle.spawn(beat);
        }
        let recorded = self.record(local, logs).await;
        if let (Err(_), Some(runner)) = (&recorded, runner) {
            local.array.set_stopping();
            ownership::last_beat(local, runner, self.incarnation).await;
        }
        recorded?;
        local.array.room.begin();
        local.worker.handle.spawn(map_writer::sweep(Rc::clone(local)));
        local.worker.handle.spawn(crate::watch::slow::watch(Rc::clone(local)));
        crate::background::resume(local);
        Ok(())
    }

    async fn begin_reading(
        &self,
        local: &Rc<LocalArray>,
        logs: Option<replay::Logs>,
    ) -> Result<(), Refusal> {
        local.coordinator().set_superblock(self.plan.superblock.clone());
        if let Some(logs) = logs {
            local.coordinator().replayed.set(Some(replay::replay(local, logs).await?));
        }
        Ok(())
    }

    /// Have a kept map from now on, if there is memory for one: the boot that it is of. If there is
    /// none, what an earlier start kept goes to the members first.
    async fn begin_kept_map(&self, local: &Rc<LocalArray>) -> Result<Option<Uuid>, ArrayLost> {
        let memory = self.kept_memory.as_ref();
        reappeared::begin(local, memory, self.incarnation).await;
        let boot = kept_map::begin(local, memory, self.incarnation).await;
        let is_owed = self.plan.found.kept_map_boot.is_some();
        if boot.is_none() && is_owed && local.array.written.has_dirty_pages() {
            map_writer::flush(local).await.map_err(|_| ArrayLost)?;
        }
        Ok(boot)
    }

    /// Everything that the start itself writes.
    async fn record(
        &self,
        local: &Rc<LocalArray>,
        logs: Option<replay::Logs>,
    ) -> Result<(), Refusal> {
        let not_recorded = |lost: ArrayLost| not_recorded(&local.array, lost);
        foreign::overwrite(local, &self.plan).await?;
        let mut next = self.plan.superblock.clone();
        catch_up(local, self.plan.found.clone(), &mut next).await.map_err(not_recorded)?;
        local.array.follow_spares(&next, false);
        let grows = !self.plan.new_members.is_empty();
        if !grows {
            local.coordinator().set_superblock(next.clone());
        }
        if let Some(logs) = logs {
            local.coordinator().replayed.set(Some(replay::replay(local, logs).await?));
        }
        panic_if_planted("start", local.array.name());
        ownership::check(&local.array)?;
        let newest_places = &self.plan.newest_places;
        spare_states::store_all_at_start(local, newest_places).await.map_err(not_recorded)?;
        let kept_boot = self.begin_kept_map(local).await.map_err(not_recorded)?;
        if !grows {
            next = local.coordinator().superblock();
        }
        next.begin_start(self.incarnation);
        next.set_kept_map(kept_boot);
        begin_copies_anew(local, &mut next);
        local.array.set_incarnation(self.incarnation);
        next.updated_at_s = self.now_s;
        stated::allow_parity_only(local, &mut next);
        proof::begin(local, &mut next).await;
        if let Some(runner) = &self.runner {
            ownership::confirm(local, runner, self.incarnation).await?;
        }
        match self.plan.new_members.as_slice() {
            [] => record::write(local, next).await.map_err(not_recorded)?,
            new_members => new_members::record(local, next, new_members).await?,
        }
        if let Some(memory) = &self.kept_memory {
            kept_map::forget_others(&**memory, local.array.identity.uuid, self.incarnation);
        }
        map_writer::complete_intent(local).await.map_err(not_recorded)?;
        if local.array.written.has_dirty_pages() && !sings(Canary::MapNotSettled) {
            // Pages of the written map that not all members have: settled before anything is read.
            map_writer::flush(local).await.map_err(|_| not_recorded(ArrayLost))?;
        }
        ownership::check(&local.array)
    }
}

/// Bring every member to the newest generation. The last crash may have cut an update off, and the
/// next one may cut off the following update. Members two generations apart would not count as
/// current.
async fn catch_up(
    local: &Rc<LocalArray>,
    found: Superblock,
    next: &mut Superblock,
) -> Result<(), ArrayLost> {
    if !sings(Canary::CatchUpSkipped) {
        record::write_again(local, found).await?;
    }
    // A member that could not take it is out by a generation of its own.
    let taken = local.coordinator().superblock();
    next.generation = taken.generation;
    for (at, slot) in local.array.slots.iter().enumerate() {
        let member = MemberIdx::from_at(at);
        // Nor could the device on its way there: it is none any more, and must not keep the slot.
        if next.joining_device(member).is_some() && taken.joining_device(member).is_none() {
            record::drop_joining_device(next, member);
        }
        if slot.state() == SlotState::Failing {
            record::hand_over(next, member);
        }
    }
    Ok(())
}

/// Take every worker's share away again.
pub(crate) async fn remove(
    engine_state: &Arc<EngineState>,
    array: &Arc<Array>,
) -> Result<(), Refusal> {
    let id = array.identity.id;
    array.set_stopping();
    let remove = move |worker: &Rc<Worker>| {
        if let Some(local) = worker.local(id) {
            local.give_up_all();
        }
        worker.take_local(id);
    };
    engine_state.on_every_worker(remove).await?;
    if !engine_state.is_restarting(id) {
        engine_state.arrays()[id.0] = None;
    }
    Ok(())
}
