//! Brings arrays together as their devices appear, without being told which.
//!
//! - `block_devices` which devices of this machine are looked at
//! - `forced`        what was accepted so that an array starts
//! - `found`         arrays that are there and not started
//! - `judge`         what becomes of an array some of whose members are there
//! - `members`       who has joined an array since
//! - `read`          what lies on devices
//! - `remembered`    what is known of arrays from before: created, attached, members away
//! - `returning`     members that come back while their array runs
//! - `state_file`    the thread that writes what is remembered
//! - `unread`        devices that are there and tell nothing
//!
//! What must stay true: devices are only read here; the start itself judges again. An array that
//! ran last on another host is not started unless somebody names it, or it is remembered or
//! configured here. One that was stopped by hand stays stopped until it is assembled by hand. Each
//! line is told once.

mod block_devices;
mod forced;
mod found;
mod judge;
mod members;
mod read;
pub mod remembered;
mod returning;
mod state_file;
mod unread;

use crate::arrays::Arrays;
use crate::aside::aside;
use crate::backend::Serves;
use crate::config::{self, ArrayConfig, Config, StartConfig};
use crate::{partition, repeats};
use ashlar_api::ApiError;
use ashlar_api::codes;
use ashlar_api::v1::Done;
use ashlar_api::v1::array::{Appeared, Assemble, Scan};
use ashlar_api::v1::status::AbsentArray;
use ashlar_device::exclusion_of;
use ashlar_engine::ArrayStatus;
use ashlar_ondisk::assembly::MemberReading;
use ashlar_units::MemberIdx;
use found::{FoundArrays, LOOK_AGAIN, NotNow};
use judge::Step;
use read::{Looked, read_all};
use remembered::{Remembered, RememberedArrays};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

/// Devices of one enclosure appear one after the other: they are looked at together.
const SETTLE: Duration = Duration::from_millis(300);
/// A host name of this length may have been cut.
const HOST_CUT_FROM: usize = 20;

/// Names of the events.
mod names {
    /// The wait is over and the array was started without members. Fields: `missing`.
    pub(super) const ARRAY_STARTED_DEGRADED: &str = "array.started_degraded";
}

/// What is known of arrays that are to start by themselves.
pub struct Gather {
    setting: StartConfig,
    own_host: String,
    configured: Vec<ArrayConfig>,
    /// What is remembered.
    pub remembered: RememberedArrays,
    /// Whoever looks holds this.
    looking: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
    wake: Notify,
    is_ending: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// When an array was first seen incomplete.
    since: BTreeMap<Uuid, Instant>,
    /// What was told of each: without figures, and as it was said.
    told: BTreeMap<Uuid, (String, String)>,
    /// Arrays that were found and are not started.
    found: FoundArrays,
    /// Those of them whose start was refused: it is not tried again by the clock.
    refused: BTreeSet<Uuid>,
    /// A look at all devices has ended.
    has_looked: bool,
    /// Stopped by hand.
    stopped: BTreeSet<Uuid>,
    /// Slots that were put out by hand.
    failed: BTreeSet<(Uuid, u16)>,
    /// How often a slot was taken back.
    returned: BTreeMap<(Uuid, u16), u32>,
    /// Devices that have appeared and were not looked at yet.
    appeared: BTreeSet<String>,
    /// Devices that have not answered yet.
    unanswered: BTreeSet<String>,
    /// Devices that are there and told nothing at the last look, and why.
    unread: BTreeMap<String, String>,
}

/// What to look at, and what may be done.
#[derive(Default)]
struct Ask {
    /// Empty: all that the setting says.
    devices: Vec<String>,
    name: Option<String>,
    uuid: Option<String>,
    is_by_hand: bool,
    may_degrade: bool,
    is_dry_run: bool,
    /// Devices that have just appeared.
    appeared: BTreeSet<String>,
}

/// What is said of one array.
struct Said {
    line: String,
    /// It was not started.
    is_refusal: bool,
}

impl Said {
    fn well(line: String) -> Said {
        Said { line, is_refusal: false }
    }
}

/// What was seen of an array that does not run.
#[derive(Default)]
struct Seen {
    name: String,
    readings: Vec<MemberReading>,
    hosts: BTreeSet<String>,
    /// Devices that cannot be read: they may be of any array.
    unread: Vec<MemberReading>,
}

impl Gather {
    /// As the configuration says, with what is remembered in the folder `state`.
    pub fn new(config: &Config, state: &Path, own_host: String, say: impl Fn(&str)) -> Gather {
        let folder = config.start.remember.then_some(state);
        let (remembered, told) = RememberedArrays::read(folder);
        told.iter().for_each(|line| say(line));
        Gather {
            setting: config.start.clone(),
            own_host,
            configured: config.array.clone(),
            remembered,
            looking: Default::default(),
            known: Default::default(),
            wake: Notify::new(),
            is_ending: AtomicBool::new(false),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process ends: nothing is started any more.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// An array was stopped by hand.
    pub fn stopped(&self, array: Uuid) {
        self.known().stopped.insert(array);
    }

    /// An array has started: whatever was said of its absence is over.
    pub fn started(&self, array: Uuid) {
        let mut known = self.known();
        known.stopped.remove(&array);
        known.since.remove(&array);
        known.told.remove(&array);
        known.found.remove(&array);
        known.refused.remove(&array);
    }

    /// A slot was put out by hand: its device stays out until it is taken back by hand.
    pub fn failed(&self, array: Uuid, slot: MemberIdx) {
        self.known().failed.insert((array, slot.0));
    }

    /// A slot was filled or taken back by hand.
    pub fn filled(&self, array: Uuid, slot: MemberIdx) {
        self.known().failed.remove(&(array, slot.0));
        // A slot that is filled is not away: if this is not written down, the worst is a refusal.
        self.remembered.note(array, |own| own.absent.retain(|it| *it != slot.0));
    }

    /// Whether the configuration says to attach this array.
    pub fn is_attached_by_configuration(&self, name: &str, array: Uuid) -> bool {
        self.configured.iter().any(|it| it.attach && means(it, name, array))
    }

    /// Arrays that are remembered and do not run, but for those that the configuration names
    /// (`listed`) or that were stopped by hand.
    pub fn absent(&self, running: &[ArrayStatus], listed: &[AbsentArray]) -> Vec<AbsentArray> {
        let is_looking = self.looking.try_lock().is_err();
        let known = self.known();
        let is_unseen = is_looking || !known.has_looked;
        let is_absent = |(uuid, own): &(Uuid, Remembered)| {
            (own.start || own.attach.is_some())
                && !known.stopped.contains(uuid)
                && !running.iter().any(|array| array.uuid == *uuid)
                && !listed.iter().any(|it| it.name == own.name || it.name == uuid.to_string())
        };
        let absent = self.remembered.all().into_iter().filter(is_absent);
        let absent = absent.map(|(uuid, own)| {
            let told = known.told.get(&uuid).map(|(_, line)| line.clone());
            let starting = told.is_none() && is_unseen;
            let unseen = match starting {
                true => "its devices are being looked at".to_owned(),
                false => {
                    format!("no member of it was found{}", unanswered(&known.unanswered))
                }
            };
            let unread = unread::words(&known.unread, |path| own.devices.contains(path));
            let unseen = match (starting, unread.is_empty()) {
                (false, false) => format!("{unread}; {unseen} elsewhere"),
                _ => unseen,
            };
            AbsentArray {
                name: own.name,
                devices: own.devices,
                reason: told.unwrap_or(unseen),
                starting,
            }
        });
        absent.collect()
    }

    /// Start what is complete, now and whenever something appears, for ever.
    pub async fn keep_looking(&self, arrays: &Arrays, say: &(dyn Fn(&str) + Send + Sync)) {
        loop {
            let next = self.next_deadline();
            tokio::select! {
                () = self.wake.notified() => tokio::time::sleep(SETTLE).await,
                () = sleep_until(next) => {}
            }
            self.look_and_say(arrays, say).await;
        }
    }

    /// Look once.
    pub async fn look_and_say(&self, arrays: &Arrays, say: &(dyn Fn(&str) + Send + Sync)) {
        let appeared = std::mem::take(&mut self.known().appeared);
        for said in self.look(arrays, Ask { appeared, ..Ask::default() }).await {
            say(&said.line);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let known = self.known();
        let now = Instant::now();
        let next = known.since.values().map(|since| *since + self.setting.grace());
        let is_waiting = known.found.keys().any(|it| !known.refused.contains(it));
        let again = is_waiting.then_some(now + LOOK_AGAIN);
        next.filter(|at| *at > now).chain(again).min()
    }

    /// Look at devices, start what may start, and take members back. A line for each array.
    async fn look(&self, arrays: &Arrays, ask: Ask) -> Vec<Said> {
        let _looking = self.looking.lock().await;
        let running = arrays.running().await;
        let paths = self.paths(&ask);
        let all = running.clone();
        let idle = aside(move || without_running(paths, &all)).await;
        let Looked { found, spares, unread, why } = read_all(&arrays.gather, idle.clone()).await;
        self.note_unread(idle, why).await;
        let (mut seen, mut back) = (BTreeMap::<Uuid, Seen>::new(), Vec::new());
        for (reading, host) in found {
            let Some(superblock) = reading.superblock() else { continue };
            let uuid = superblock.array_uuid;
            if let Some(array) = running.iter().find(|array| array.uuid == uuid) {
                back.push((array.name.clone(), uuid, reading));
                continue;
            }
            let own = seen.entry(uuid).or_default();
            own.name = superblock.array_name.to_string();
            own.hosts.extend(host);
            own.readings.push(reading);
        }
        seen.values_mut().for_each(|own| own.unread.clone_from(&unread));
        if ask.sees_all() {
            // Of others nothing is there any more: what was said of them is over.
            let runs = |uuid: &Uuid| running.iter().any(|array| array.uuid == *uuid);
            self.known().told.retain(|uuid, _| seen.contains_key(uuid) || runs(uuid));
        }
        let taken_back = self.take_back(arrays, back, &ask).await.into_iter();
        let mut said: Vec<Said> = taken_back.map(Said::well).collect();
        self.forget_what_is_gone(&seen.keys().copied().collect(), &ask).await;
        let mut starts = JoinSet::new();
        for (uuid, seen) in seen {
            match self.step(uuid, &seen, &ask) {
                Ok(absent) => {
                    let (arrays, spares) = (arrays.clone(), spares.clone());
                    starts.spawn(async move {
                        let started = start(arrays, uuid, &seen, absent, spares).await;
                        (uuid, seen, started)
                    });
                }
                Err(None) => {}
                Err(Some(not_now)) => {
                    said.extend(self.not_started(arrays, (uuid, &seen), &ask, not_now));
                }
            }
        }
        for (uuid, seen, started) in starts.join_all().await {
            match started {
                Ok(line) => said.push(Said::well(line)),
                Err(line) => {
                    let refused = NotNow { is_refused: true, ..NotNow::new(line) };
                    said.extend(self.not_started(arrays, (uuid, &seen), &ask, refused));
                }
            }
        }
        if !ask.is_dry_run {
            said.extend(self.take_in(arrays, &spares).await.into_iter().map(Said::well));
        }
        self.known().has_looked |= ask.sees_all();
        said
    }

    /// An array was seen and is not started: the status says why, and so does the log, once.
    fn not_started(
        &self,
        arrays: &Arrays,
        (uuid, seen): (Uuid, &Seen),
        ask: &Ask,
        not_now: NotNow,
    ) -> Option<Said> {
        self.note_found(uuid, seen, ask, (&not_now, arrays.engine.events()));
        // Whoever names an array wants that one started.
        let is_refusal = not_now.is_refused || ask.is_named() && !not_now.is_well;
        let line = self.once(uuid, ask, not_now.line)?;
        Some(Said { line, is_refusal })
    }

    /// All devices that a look by itself looks at.
    pub fn known_paths(&self) -> BTreeSet<String> {
        self.paths(&Ask::default())
    }

    fn paths(&self, ask: &Ask) -> BTreeSet<String> {
        if !ask.devices.is_empty() {
            return ask.devices.iter().cloned().collect();
        }
        let remembered = self.remembered.all().into_iter();
        let mut paths: BTreeSet<String> = remembered.flat_map(|(_, own)| own.devices).collect();
        paths.extend(self.remembered.spares());
        paths.extend(ask.appeared.iter().cloned());
        if self.setting.scan || ask.is_by_hand {
            paths.extend(scanned(&self.setting));
        }
        paths
    }

    /// Whether the array is to start now, and without which slots; else what to say of it.
    fn step(&self, uuid: Uuid, seen: &Seen, ask: &Ask) -> Result<Vec<u16>, Option<NotNow>> {
        let name = &seen.name;
        if !ask.means(name, uuid) || self.is_ending.load(Ordering::Acquire) {
            return Err(None);
        }
        if let Some(why_not) = self.why_not(uuid, seen, ask) {
            return Err(Some(why_not));
        }
        let (step, since) = (judge::step(&seen.all(), uuid), self.since(uuid, ask));
        let left = self.setting.grace().saturating_sub(since.elapsed());
        let would = |how: &str| {
            let line = format!("array '{name}' would start {how}; nothing was written");
            Err(Some(NotNow { is_well: true, ..NotNow::new(line) }))
        };
        let is_passing = !left.is_zero() && matches!(step, Step::Wait(_) | Step::Lacks(_));
        let is_well = matches!(step, Step::Wait(_));
        let line = match step {
            Step::Start if ask.is_dry_run => return would("now"),
            Step::Start => return Ok(Vec::new()),
            Step::Wait(missing) if left.is_zero() || ask.may_degrade => {
                let how = format!("degraded, without slot {}", judge::slots(&missing));
                return if ask.is_dry_run { would(&how) } else { Ok(missing) };
            }
            Step::Wait(missing) => format!(
                "array '{name}' lacks slot {}{}; it starts degraded in {} s unless the member \
                 comes; to start it now: ashlar assemble --scan --degraded --name {name}",
                judge::slots(&missing),
                unread::in_brackets(&seen.unread),
                left.as_secs().max(1),
            ),
            Step::Lacks(why) => {
                let unanswered = unanswered(&self.known().unanswered);
                format!("array '{name}' waits for its members: {why}{unanswered}")
            }
            Step::Refuse(why) => format!("array '{name}' is not started: {why}"),
        };
        Err(Some(NotNow { is_passing, is_well, ..NotNow::new(line) }))
    }

    /// Why this array does not start by itself.
    fn why_not(&self, uuid: Uuid, seen: &Seen, ask: &Ask) -> Option<NotNow> {
        let unasked = |line| Some(NotNow { should_run: false, ..NotNow::new(line) });
        let name = &seen.name;
        let is_named = ask.is_named();
        let is_remembered = self.remembered.of(uuid).is_some_and(|own| own.start);
        let is_configured = self.configured.iter().any(|it| means(it, name, uuid));
        let is_asked = is_named || is_remembered || is_configured;
        if self.known().stopped.contains(&uuid) && !ask.is_by_hand {
            return unasked(format!("array '{name}' was stopped by hand, so it is not started"));
        }
        if !is_asked && !self.setting.scan && !ask.is_by_hand {
            return unasked(format!(
                "array '{name}' is there; to start it: ashlar assemble --scan --name {name}"
            ));
        }
        let is_own = |host: &String| {
            let is_cut = host.len() >= HOST_CUT_FROM && self.own_host.starts_with(host.as_str());
            *host == self.own_host || is_cut
        };
        if is_asked || seen.hosts.is_empty() || seen.hosts.iter().any(is_own) {
            return None;
        }
        let hosts = seen.hosts.iter().cloned().collect::<Vec<_>>().join("', '");
        unasked(format!(
            "array '{name}' ran last on host '{hosts}', so it is not started by itself; if no \
             other host uses its drives: ashlar assemble --scan --name {name}"
        ))
    }

    fn since(&self, uuid: Uuid, ask: &Ask) -> Instant {
        let mut known = self.known();
        match ask.is_dry_run {
            true => known.since.get(&uuid).copied().unwrap_or_else(Instant::now),
            false => {
                self.wake_if_new(&known, uuid);
                *known.since.entry(uuid).or_insert_with(Instant::now)
            }
        }
    }

    /// Whoever waits for the next deadline waits for this one, too.
    fn wake_if_new(&self, known: &Known, uuid: Uuid) {
        if !known.since.contains_key(&uuid) {
            self.wake.notify_one();
        }
    }

    /// The line, unless it was the last one that was told of this array. Whoever asks by hand hears
    /// it again.
    fn once(&self, uuid: Uuid, ask: &Ask, line: String) -> Option<String> {
        if ask.is_by_hand {
            if ask.sees_all() {
                // The log has not said it: it does so the next time.
                self.known().told.insert(uuid, (String::new(), line.clone()));
            }
            return Some(line);
        }
        // The seconds that are left change from line to line.
        let gist: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
        let now = (gist.clone(), line.clone());
        let before = self.known().told.insert(uuid, now);
        before.is_none_or(|(before, _)| before != gist).then_some(line)
    }
}

/// The devices that have not answered yet, for people; nothing if all have.
fn unanswered(devices: &BTreeSet<String>) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = devices.iter().map(String::as_str).collect();
    format!("; no answer yet from {}", names.join(", "))
}

/// Where arrays may be that start by themselves: for a look before anything runs.
pub fn devices(config: &Config, state: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    if config.start.remember {
        paths.extend(remembered::devices(state));
    }
    if config.start.scan {
        paths.extend(scanned(&config.start));
    }
    paths
}

/// What a scan looks at.
fn scanned(setting: &StartConfig) -> Vec<String> {
    match setting.devices.is_empty() {
        true => block_devices::candidates(Path::new(block_devices::BLOCK)),
        // The patterns were checked at the start.
        false => config::expand(&setting.devices).unwrap_or_default(),
    }
}

/// Whether an entry of the configuration names this array.
fn means(entry: &ArrayConfig, name: &str, array: Uuid) -> bool {
    let is_uuid = |uuid: &String| uuid.eq_ignore_ascii_case(&array.to_string());
    (entry.name.is_some() || entry.uuid.is_some())
        && entry.name.as_ref().is_none_or(|own| own == name)
        && entry.uuid.as_ref().is_none_or(is_uuid)
}

impl Ask {
    fn is_named(&self) -> bool {
        self.name.is_some() || self.uuid.is_some()
    }

    /// Whether it is a look at all devices that are known.
    fn sees_all(&self) -> bool {
        self.devices.is_empty() && !self.is_dry_run
    }

    fn means(&self, name: &str, array: Uuid) -> bool {
        self.name.as_ref().is_none_or(|own| own == name)
            && self.uuid.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(&array.to_string()))
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Each device once, without those that running arrays use. A drive stands for its partition.
fn without_running(paths: BTreeSet<String>, running: &[ArrayStatus]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let paths = paths.into_iter().map(|path| partition::inside(&path).unwrap_or(path));
    let is_new = |path: &String| exclusion_of(path).is_some_and(|it| known.insert(it));
    let devices: Vec<String> = paths.filter(is_new).collect();
    let is_used = |path: &String| {
        running.iter().any(|array| repeats::slot_of(&array.members, path).is_some())
    };
    devices.into_iter().filter(|path| !is_used(path)).collect()
}

/// Start an array with the members that were seen. What is said of it.
///
/// # Errors
/// The refusal.
async fn start(
    arrays: Arrays,
    uuid: Uuid,
    seen: &Seen,
    absent: Vec<u16>,
    spares: Vec<String>,
) -> Result<String, String> {
    let gather = &arrays.gather;
    let own = gather.remembered.of(uuid).unwrap_or_default();
    let unread = seen.unread.iter().filter(|reading| own.devices.contains(&reading.path));
    let readings = seen.readings.iter().chain(unread);
    let devices = readings.map(|reading| reading.path.clone()).chain(spares);
    let call = Assemble {
        uuid: Some(uuid.to_string()),
        devices: devices.collect(),
        read_only: own.read_only,
        spare_pools: own.spare_pools,
        not_remembered: true,
        ..Assemble::default()
    };
    match arrays.start(call, None).await {
        Ok(done) => {
            if !absent.is_empty() {
                let fields = vec![("missing", judge::slots(&absent))];
                let events = arrays.engine.events();
                events.record(names::ARRAY_STARTED_DEGRADED, &seen.name, fields);
            }
            let note = |it: &mut Remembered| {
                it.name.clone_from(&seen.name);
                it.absent.extend(&absent);
            };
            Ok(match gather.remembered.change(uuid, note).await {
                Ok(()) => done.message,
                Err(error) => format!("{}; this cannot be remembered: {error}", done.message),
            })
        }
        Err(refusal) => Err(refusal.to_string()),
    }
}

impl Serves<Scan> for Arrays {
    async fn serve(&self, call: Scan) -> Result<Done, ApiError> {
        let devices = config::expand(&call.devices).map_err(|what| {
            ApiError::new(codes::REQUEST_MALFORMED, what, "correct the pattern; nothing was done")
        })?;
        let before = self.running().await.len();
        let ask = Ask {
            devices,
            name: call.name.clone(),
            uuid: call.uuid.clone(),
            is_by_hand: true,
            may_degrade: call.degraded,
            is_dry_run: call.dry_run,
            appeared: BTreeSet::new(),
        };
        let said = self.gather.look(self, ask).await;
        let running = self.running().await;
        if !said.is_empty() {
            let message = said.iter().map(|it| it.line.as_str()).collect::<Vec<_>>().join("\n");
            let changed = running.len() != before;
            if !changed && said.iter().all(|it| it.is_refusal) {
                return Err(ApiError::new("array.not_started", message, ""));
            }
            return Ok(Done { changed, ..Done::unchanged(message) });
        }
        match call.name.or(call.uuid) {
            Some(wanted) if !running.iter().any(|it| is_called(it, &wanted)) => {
                let unread = unread::words(&self.gather.known().unread, |_| true);
                let cause = if unread.is_empty() { unread } else { format!("{unread}; ") };
                let message =
                    format!("{cause}no member of array {wanted} was found; nothing was changed");
                let hint =
                    "name devices that are not looked at by themselves (files, loop devices)";
                Err(ApiError::new("array.unknown", message, hint))
            }
            _ => Ok(Done::unchanged(
                "no array was found that does not run already; nothing was changed",
            )),
        }
    }
}

fn is_called(array: &ArrayStatus, wanted: &str) -> bool {
    array.name == wanted || array.uuid.to_string().eq_ignore_ascii_case(wanted)
}

impl Serves<Appeared> for Arrays {
    async fn serve(&self, call: Appeared) -> Result<Done, ApiError> {
        self.gather.known().appeared.insert(call.device.clone());
        self.gather.wake.notify_one();
        Ok(Done::unchanged(format!("{} will be looked at", call.device)))
    }
}
