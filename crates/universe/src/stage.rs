//! What everybody in a universe shares: the ledger, the story so far, how much is left to do, and
//! the verdict.
//!
//! What must stay true: the first thing that goes wrong ends the universe; nothing here depends on
//! real time.

use crate::config::Config;
use crate::drive_slot::DriveSlots;
use crate::ledger::{Crash, Ledger};
use crate::marks::Marks;
use crate::remnants::Prober;
use crate::replay::Export;
use crate::rollback::Copy;
use ashlar_engine::{Array, Engine, SlotState, event_names};
use ashlar_ondisk::ConsistencyPolicy;
use ashlar_ring::Handle;
use ashlar_sim::{SimMemory, Stop};
use ashlar_units::{Extent, StripIdx, StripeNo};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Client requests that a story shows.
const REQUESTS_KEPT: usize = 400;

/// Shared by the director, the clients and the driver of one universe.
#[derive(Clone)]
pub(crate) struct Stage(Arc<Parts>);

struct Parts {
    config: Config,
    ledger: Mutex<Ledger>,
    story: Mutex<Story>,
    marks: Mutex<Marks>,
    requests_left: AtomicUsize,
    acts_left: AtomicUsize,
    clients: AtomicUsize,
    /// Growths that operators have begun.
    growths: AtomicUsize,
    /// While the command for one runs: slots before it.
    growing_from: Mutex<Option<usize>>,
    /// Errors are answers that clients must live with: the array may be read-only, or has lost too
    /// much.
    errors_are_allowed: AtomicBool,
    /// The engine that runs, and how many of its events are in the story.
    followed: Mutex<Option<(Engine, u64)>>,
    /// The array that runs.
    array: Mutex<Option<Arc<Array>>>,
    /// Devices that have lied about a write, were told to, or had blocks that rotted.
    liars: Mutex<BTreeSet<String>>,
    /// Devices that were silent for good at some time.
    silent: Mutex<BTreeSet<String>>,
    /// Whoever tells the time while a host runs.
    operations: Mutex<Option<ashlar_sim::SimSwitch>>,
    /// Memory that outlives a killed program.
    memory: Mutex<Option<SimMemory>>,
    /// Who knows what other programs left on devices.
    prober: Mutex<Option<Prober>>,
    export: Mutex<Export>,
    /// All devices at one moment of the last life.
    copy: Mutex<Option<Copy>>,
}

#[derive(Default)]
struct Story {
    lines: Vec<String>,
    requests: VecDeque<String>,
    is_told: bool,
}

/// Why a universe ended badly: thrown as a panic without a message, caught by its driver.
pub(crate) struct Stopper(pub(crate) String);

impl Stage {
    pub(crate) fn new(config: Config, limits: (usize, usize), is_told: bool) -> Stage {
        let units = config.window.1 * config.stripe_bytes() / config.unit_bytes;
        let ledger = Ledger::new(units, config.unit_bytes, config.payload, config.relaxed());
        Stage(Arc::new(Parts {
            ledger: Mutex::new(ledger),
            story: Mutex::new(Story { is_told, ..Story::default() }),
            marks: Mutex::default(),
            requests_left: AtomicUsize::new(config.requests.min(limits.0)),
            acts_left: AtomicUsize::new(limits.1),
            clients: AtomicUsize::new(0),
            growths: AtomicUsize::new(0),
            growing_from: Mutex::default(),
            errors_are_allowed: AtomicBool::new(false),
            followed: Mutex::default(),
            array: Mutex::default(),
            liars: Mutex::default(),
            silent: Mutex::default(),
            operations: Mutex::default(),
            memory: Mutex::default(),
            prober: Mutex::default(),
            export: Mutex::default(),
            copy: Mutex::default(),
            config,
        }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.0.ledger)
    }

    /// What the clients' export remembers.
    pub(crate) fn export(&self) -> MutexGuard<'_, Export> {
        lock(&self.0.export)
    }

    /// Count that `name` was reached.
    pub(crate) fn mark(&self, name: &str) {
        lock(&self.0.marks).add(name, 1);
    }

    pub(crate) fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.0.marks)
    }

    /// From now on this device may be blamed for what only checksums can notice.
    pub(crate) fn note_liar(&self, name: &str) {
        lock(&self.0.liars).insert(name.to_owned());
    }

    pub(crate) fn is_liar(&self, name: &str) -> bool {
        lock(&self.0.liars).contains(name)
    }

    /// From now on this device may be put out because it does not answer.
    pub(crate) fn note_silent(&self, name: &str) {
        lock(&self.0.silent).insert(name.to_owned());
    }

    pub(crate) fn was_silent(&self, name: &str) -> bool {
        lock(&self.0.silent).contains(name)
    }

    /// From now on the events of this engine are in the story, if that is wanted.
    pub(crate) fn follow(&self, engine: Option<&Engine>) {
        self.note_events();
        *lock(&self.0.followed) = engine.map(|engine| (engine.clone(), 0));
    }

    /// This is the array that runs from now on.
    pub(crate) fn set_array(&self, array: Option<&Arc<Array>>) {
        *lock(&self.0.array) = array.cloned();
    }

    /// The array that runs, or ran last.
    pub(crate) fn array(&self) -> Option<Arc<Array>> {
        lock(&self.0.array).clone()
    }

    /// Whether the engine knows of writes that met no space, and may lie half written.
    pub(crate) fn knows_of_half_written(&self) -> bool {
        lock(&self.0.array).as_ref().is_some_and(|array| array.has_half_written())
    }

    /// Growths that operators have begun.
    pub(crate) fn growths(&self) -> usize {
        self.0.growths.load(Ordering::Relaxed)
    }

    /// One more.
    pub(crate) fn count_growth(&self) {
        self.0.growths.fetch_add(1, Ordering::Relaxed);
    }

    /// The command for a growth begins, with so many slots; or none runs any more. What was before.
    pub(crate) fn growth_begins(&self, slots: Option<usize>) -> Option<usize> {
        std::mem::replace(&mut lock(&self.0.growing_from), slots)
    }

    /// Whether, in each group that this piece of the window lies in, a member is missing now.
    pub(crate) fn lacks(&self, extent: Extent) -> bool {
        let array = lock(&self.0.array);
        let Some(array) = array.as_ref() else { return false };
        let (geometry, states) = (array.geometry(), array.slot_states());
        let place = self.place(extent);
        let stripes =
            place.offset / geometry.stripe_bytes()..place.end().div_ceil(geometry.stripe_bytes());
        let lacks = |stripe: u64| {
            let first = geometry.place(geometry.stripe(StripeNo(stripe)), StripIdx(0)).member;
            let mut set = geometry.failure_sets().find(|set| set.contains(&first.at()));
            set.iter_mut().flatten().any(|slot| states[slot] != SlotState::InSync)
        };
        stripes.into_iter().all(lacks)
    }

    /// Whether a slot has come into sync since the array was started.
    pub(crate) fn was_rebuilt(&self) -> bool {
        let followed = lock(&self.0.followed);
        let Some((engine, _)) = followed.as_ref() else { return false };
        let is_rebuild = |field: &(&str, String)| field.0 == "job" && field.1 == "rebuild";
        engine.events().since(0).iter().any(|event| {
            event.name == event_names::JOB_FINISHED && event.fields.iter().any(is_rebuild)
        })
    }

    /// The power went or the program died. `went_unseen`: so had the power of a device, before the
    /// program could see it. A start recognises it by memory that outlives the program, and can do
    /// without it if the array has a log. Else that is a power cut, as promised.
    pub(crate) fn crashed(&self, stop: Stop, went_unseen: bool) {
        let was_rebuilt = self.was_rebuilt();
        let config = self.config();
        let is_recognised = self.memory().is_some()
            && config.policy == ConsistencyPolicy::Log
            && config.shape.declustered.is_none();
        if went_unseen {
            self.mark(match is_recognised {
                true => "crash.device_went_unseen",
                false => "crash.device_went_unseen_and_unknown",
            });
        }
        let crash = match stop {
            Stop::Kill if went_unseen && !is_recognised => Crash::Power,
            // Where the map is kept a discard is known that was not flushed.
            Stop::Kill => Crash::Kill { discards_stay: self.keeps_map() },
            Stop::PowerCut | Stop::Freeze => Crash::Power,
        };
        self.ledger().crashed(crash, was_rebuilt);
        if went_unseen {
            self.ledger().remember();
        }
        self.export().ended(stop);
    }

    /// A start has recorded with which devices it runs, if it is not read-only.
    pub(crate) fn forget_unseen(&self, drive_slots: &mut DriveSlots, is_read_only: bool) {
        self.ledger().begins(is_read_only);
        if !is_read_only {
            drive_slots.forget_unseen();
        }
    }

    /// Whether the array has a kept map while it runs.
    pub(crate) fn keeps_map(&self) -> bool {
        let is_there = lock(&self.0.memory).is_some();
        is_there && self.config().keeps_map && !self.config().has_checksums
    }

    /// The memory that engines are to use, if there is one in this universe.
    pub(crate) fn memory(&self) -> Option<SimMemory> {
        lock(&self.0.memory).clone().filter(|_| self.config().keeps_map)
    }

    pub(crate) fn set_memory(&self, memory: SimMemory) {
        *lock(&self.0.memory) = Some(memory);
    }

    /// Who knows what other programs left on devices, if they did in this universe.
    pub(crate) fn prober(&self) -> Option<Prober> {
        lock(&self.0.prober).clone().filter(|_| self.config().has_remnants)
    }

    pub(crate) fn set_prober(&self, prober: Prober) {
        *lock(&self.0.prober) = Some(prober);
    }

    /// This is the copy that was made of the devices in this life.
    pub(crate) fn set_copy(&self, copy: Option<Copy>) {
        *lock(&self.0.copy) = copy;
    }

    /// The copy that was made of the devices in the last life.
    pub(crate) fn take_copy(&self) -> Option<Copy> {
        lock(&self.0.copy).take()
    }

    /// What the engine has said since it was last asked.
    fn note_events(&self) {
        if !lock(&self.0.story).is_told {
            return;
        }
        let mut followed = lock(&self.0.followed);
        let Some((engine, seen)) = followed.as_mut() else { return };
        let mut story = lock(&self.0.story);
        for event in engine.events().since(*seen) {
            *seen = event.sequence;
            let fields: Vec<String> =
                event.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            story.lines.push(format!("            {}: {}", event.name, fields.join(", ")));
        }
    }

    /// Something happened that a person wants to know of.
    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        self.note_events();
        let mut story = lock(&self.0.story);
        let line = format!("{:>9} {}", self.operations(), line());
        story.lines.push(line);
    }

    pub(crate) fn set_switch(&self, switch: ashlar_sim::SimSwitch) {
        *lock(&self.0.operations) = Some(switch);
    }

    /// The host stops so many device operations from now.
    pub(crate) fn cut_after(&self, operations: u64, stop: Stop) {
        lock(&self.0.operations).iter().for_each(|switch| switch.stop_after(operations, stop));
    }

    fn operations(&self) -> u64 {
        lock(&self.0.operations).as_ref().map_or(0, ashlar_sim::SimSwitch::operations)
    }

    /// A client did something; kept only if the story is wanted.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let mut story = lock(&self.0.story);
        if story.is_told {
            if story.requests.len() == REQUESTS_KEPT {
                story.requests.pop_front();
            }
            let line = format!("{:>9} {}", self.operations(), line());
            story.requests.push_back(line);
        }
    }

    /// The universe is wrong.
    pub(crate) fn fail(&self, why: impl Into<String>) -> ! {
        resume_unwind(Box::new(Stopper(why.into())))
    }

    /// Nobody wants to know what was said so far.
    pub(crate) fn forget_story(&self) {
        lock(&self.0.story).lines.clear();
    }

    /// The story so far.
    pub(crate) fn story(&self) -> String {
        self.follow(None);
        let story = lock(&self.0.story);
        let mut text = String::new();
        for line in &story.lines {
            let _infallible = writeln!(text, "  {line}");
        }
        if !story.requests.is_empty() {
            let _infallible = writeln!(text, "the last {} client requests:", story.requests.len());
            for line in &story.requests {
                let _infallible = writeln!(text, "  {line}");
            }
        }
        text
    }

    /// Take leave to make one more request.
    pub(crate) fn take_request(&self, floor: usize) -> bool {
        let take = |left: usize| (left > floor).then(|| left - 1);
        self.0.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn requests_left(&self) -> usize {
        self.0.requests_left.load(Ordering::Relaxed)
    }

    /// Take leave to make one more act.
    pub(crate) fn take_act(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.0.acts_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn errors_are_allowed(&self) -> bool {
        self.0.errors_are_allowed.load(Ordering::Relaxed)
    }

    pub(crate) fn allow_errors(&self, are_allowed: bool) {
        self.0.errors_are_allowed.store(are_allowed, Ordering::Relaxed);
    }

    pub(crate) fn clients(&self) -> usize {
        self.0.clients.load(Ordering::Relaxed)
    }

    /// The host stopped: its clients are gone.
    pub(crate) fn forget_clients(&self) {
        self.0.clients.store(0, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self) -> ClientGuard {
        self.0.clients.fetch_add(1, Ordering::Relaxed);
        ClientGuard(self.clone())
    }

    /// Where a piece of the window lies in the volume.
    pub(crate) fn place(&self, extent: Extent) -> Extent {
        let start = self.config().window.0 * self.config().stripe_bytes();
        Extent::new(start + extent.offset, extent.bytes)
    }
}

/// A client that runs.
pub(crate) struct ClientGuard(Stage);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        let less = |count: usize| Some(count.saturating_sub(1));
        let _always = self.0.0.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic the universe is over; its story is still wanted.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds of virtual time, for a story.
pub(crate) fn seconds(handle: &Handle) -> String {
    let ns = handle.now().0;
    format!("{}.{:06} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// No life lasts for so long: a command of the operator waits that nothing ends.
const LIFE_MAX: Duration = Duration::from_secs(4 * 3600);

/// The life that this array is in comes to an end.
pub(crate) async fn judge_time(handle: Handle, stage: Stage, array: Arc<Array>) {
    handle.sleep(LIFE_MAX).await;
    let (states, jobs) = (array.slot_states(), array.running_jobs());
    stage.fail(format!("a life does not end: {states:?}, {:?}, {jobs:?}", array.pause()));
}
