//! Starts the arrays of the configuration: looks at each device once, then starts all arrays side
//! by side.
//!
//! What must stay true: each array gets only the devices that may be its own. So the time for many
//! arrays with one pattern grows with the devices, not with their square. A device that does not
//! answer delays no other array. The daemon says which devices it waits for. Not here: the
//! judgement of a start (`ashlar_engine`), which reads its devices once more, exclusively.

use crate::arrays::Arrays;
use crate::aside::aside;
use crate::config::{ArrayConfig, Config, expand};
use crate::look::{self, Label};
use crate::waits::Waits;
use ashlar_api::v1::Done;
use ashlar_api::v1::array::Assemble;
use ashlar_device::exclusion_of;
use ashlar_engine::ArrayTuning;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a device may take to say what it is.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// After this time an opening counts as waiting.
const WAITING: Duration = Duration::from_millis(300);
/// How often to look what is waited for.
const WAITING_POLL: Duration = Duration::from_millis(200);
/// One line names at most this many devices.
const NAMED_MAX: usize = 8;

/// What is looked at: by the first of its names, what it is. `None`: it does not answer.
type Labels = BTreeMap<String, Option<Label>>;

/// Start all arrays of the configuration. `waits` knows what is waited for meanwhile.
pub async fn begin(arrays: &Arrays, config: &Config, waits: &Waits, say: &impl Fn(&str)) {
    // A pattern that makes no sense was refused before.
    let patterns = config.array.iter().map(|array| expand(&array.devices).unwrap_or_default());
    let devices: Vec<Vec<String>> = patterns.collect();
    let (labels, names) = look_at(devices.iter().flatten().cloned().collect()).await;
    for path in labels.iter().filter(|(_, label)| label.is_none()).map(|(path, _)| path) {
        let time = LOOK_MAX.as_secs();
        say(&format!("{path} did not answer within {time} s; it is left out"));
    }
    let mut given = Given { labels: &labels, spares: BTreeSet::new(), begun: BTreeSet::new() };
    let mut calls = Vec::new();
    // Entries that say which array they mean come first: what is said there holds for it.
    let mut entries: Vec<_> = config.array.iter().zip(&devices).collect();
    entries.sort_by_key(|(array, _)| array.name.is_none() && array.uuid.is_none());
    for (array, devices) in entries {
        let own: BTreeSet<&String> = devices.iter().filter_map(|path| names.get(path)).collect();
        let tuning = array.tuning.over(config.tuning.over(ArrayTuning::default()));
        match given.calls_of(array, &own) {
            Ok(calls_of) => {
                arrays.configured.found(array, &calls_of);
                calls.extend(calls_of.into_iter().map(|call| (call, tuning)));
            }
            Err(line) => {
                arrays.configured.not_found(array, &line);
                say(&line);
            }
        }
    }
    start_all(arrays, calls, waits, say).await;
}

/// What the paths lead to, all at once, each device by the first of its names; and that name of
/// each path.
async fn look_at(paths: BTreeSet<String>) -> (Labels, BTreeMap<String, String>) {
    let mut looks = JoinSet::new();
    for path in paths {
        looks.spawn(async move {
            let asked = path.clone();
            let look = aside(move || (exclusion_of(&asked), look::label(&asked)));
            let told = tokio::time::timeout(LOOK_MAX, look).await.ok();
            (path, told)
        });
    }
    let mut found: Vec<_> = looks.join_all().await;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let (mut labels, mut names) = (Labels::new(), BTreeMap::new());
    let mut known: BTreeMap<[u64; 2], String> = BTreeMap::new();
    for (path, told) in found {
        let exclusion = told.as_ref().and_then(|(exclusion, _)| *exclusion);
        let first = exclusion.map(|it| known.entry(it).or_insert_with(|| path.clone()).clone());
        let first = first.unwrap_or_else(|| path.clone());
        labels.entry(first.clone()).or_insert_with(|| told.map(|(_, label)| label));
        names.insert(path, first);
    }
    (labels, names)
}

/// What was given to starts so far: a device is given to one array.
struct Given<'l> {
    labels: &'l Labels,
    spares: BTreeSet<String>,
    /// UUIDs of arrays.
    begun: BTreeSet<String>,
}

impl Given<'_> {
    fn label(&self, path: &String) -> Option<&Label> {
        self.labels.get(path).and_then(Option::as_ref)
    }

    /// The starts that an entry of the configuration means. One that names no array means all that
    /// its devices hold.
    ///
    /// # Errors
    /// A line: none of its array is there.
    fn calls_of(
        &mut self,
        entry: &ArrayConfig,
        devices: &BTreeSet<&String>,
    ) -> Result<Vec<Assemble>, String> {
        let mut found: BTreeMap<&String, &String> = BTreeMap::new();
        for path in devices {
            match self.label(path) {
                Some(Label::Member { array, name }) if is_meant(entry, array, name) => {
                    found.insert(array, name);
                }
                _ => {}
            }
        }
        if found.is_empty() {
            // An unreadable device may belong to it: the start says why it does not.
            let is_open = |path: &&&String| {
                matches!(
                    self.label(path),
                    Some(Label::Unknown | Label::Unread(_) | Label::Newer { .. })
                )
            };
            let open: Vec<String> =
                devices.iter().filter(is_open).map(|it| (*it).clone()).collect();
            return match open.is_empty() {
                true => Err(not_found(entry, devices.len())),
                false => Ok(vec![Assemble { devices: open, ..as_said(entry) }]),
            };
        }
        let (names, uuids): (BTreeSet<_>, Vec<_>) = (
            found.values().map(|name| (*name).clone()).collect(),
            found.into_keys().cloned().collect(),
        );
        let uuids: Vec<String> = uuids.into_iter().filter(|it| !self.begun.contains(it)).collect();
        self.begun.extend(uuids.iter().cloned());
        // The start tells several arrays of one name apart, with all of their devices.
        let is_one = entry.name.is_some() && names.len() == 1;
        let together: Vec<Vec<String>> = match is_one {
            true => Some(uuids).filter(|uuids| !uuids.is_empty()).into_iter().collect(),
            false => uuids.into_iter().map(|uuid| vec![uuid]).collect(),
        };
        Ok(together.iter().map(|uuids| self.call(entry, devices, uuids)).collect())
    }

    fn call(
        &mut self,
        entry: &ArrayConfig,
        devices: &BTreeSet<&String>,
        uuids: &[String],
    ) -> Assemble {
        let mut own = Vec::new();
        for path in devices {
            let is_its = match self.labels.get(*path).and_then(Option::as_ref) {
                Some(Label::Member { array, .. } | Label::Newer { array }) => uuids.contains(array),
                // It waits for all in its pool, whichever array it comes with.
                Some(Label::Spare) => self.spares.insert((*path).clone()),
                Some(Label::Unknown | Label::Unread(_)) => true,
                Some(Label::Nothing) | None => false,
            };
            if is_its {
                own.push((*path).clone());
            }
        }
        let uuid = match uuids {
            [one] => Some(one.clone()),
            _ => entry.uuid.clone(),
        };
        Assemble { uuid, devices: own, ..as_said(entry) }
    }
}

fn as_said(entry: &ArrayConfig) -> Assemble {
    Assemble {
        name: entry.name.clone(),
        uuid: entry.uuid.clone(),
        read_only: entry.read_only,
        // The configuration says it again.
        not_remembered: true,
        spare_pools: entry.spare_pools.clone(),
        ..Assemble::default()
    }
}

fn is_meant(entry: &ArrayConfig, array: &str, name: &str) -> bool {
    entry.uuid.as_ref().is_none_or(|uuid| uuid.eq_ignore_ascii_case(array))
        && entry.name.as_ref().is_none_or(|wanted| wanted == name)
}

fn not_found(entry: &ArrayConfig, count: usize) -> String {
    let wanted = match entry.name.as_ref().or(entry.uuid.as_ref()) {
        Some(name) => format!("array {name}"),
        None => "an array".to_owned(),
    };
    format!(
        "no member of {wanted} was found on the {count} devices of {}; nothing was written; \
         look at each with `ashlar examine`",
        entry.devices.join(" ")
    )
}

/// Start them side by side, and say of each how it ended; and what is waited for meanwhile.
async fn start_all(
    arrays: &Arrays,
    calls: Vec<(Assemble, ArrayTuning)>,
    waits: &Waits,
    say: &impl Fn(&str),
) {
    let mut starts = JoinSet::new();
    for (call, tuning) in calls {
        let arrays = arrays.clone();
        starts.spawn(async move {
            let started = arrays.start(call.clone(), Some(tuning)).await;
            let refusal = started.as_ref().err().map(ToString::to_string);
            arrays.configured.started(&call, refusal.as_deref());
            started
        });
    }
    let mut told = BTreeSet::new();
    while !starts.is_empty() {
        match tokio::time::timeout(WAITING_POLL, starts.join_next()).await {
            Ok(Some(Ok(Ok(Done { message, .. })))) => say(&message),
            Ok(Some(Ok(Err(refusal)))) => say(&refusal.to_string()),
            // The others start all the same.
            Ok(Some(Err(bug))) => say(&format!("a start met a bug of ashlar: {bug}")),
            Ok(None) => return,
            Err(_) => {
                let waited_for = waits.longer_than(WAITING).into_iter();
                let new: Vec<String> =
                    waited_for.filter(|path| told.insert(path.clone())).collect();
                if !new.is_empty() {
                    say(&waiting(&new));
                }
            }
        }
    }
}

/// A refusal names the holders. Finding them takes longer than most waits.
fn waiting(devices: &[String]) -> String {
    let named = devices.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match devices.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("waiting for devices that other programs hold: {named}{more}")
}
