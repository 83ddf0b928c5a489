//! The picture of an array: its slots, group by group, and the spares that wait.
//!
//! What must stay true: every state has a word, a sign and a frame of its own, so that nobody needs
//! colour to tell them apart. What a device says of itself is text and nothing else; the template
//! escapes it.

use ashlar_api::v1::array::{ArrayState, ArrayStatus, Exposure};
use ashlar_api::v1::event::one_line;
use ashlar_api::v1::job::JobStatus;
use ashlar_api::v1::member::{LastDevice, MemberState, MemberStatus};
use ashlar_api::v1::spare::SparePool;
use ashlar_api::words::{grouped, span};
use ashlar_units::ByteSize;

/// A device that has not answered for so long is told of.
const SILENT_MS: u64 = 2000;

/// How something is: its class in the style, its sign, and its word.
#[derive(Clone, Debug)]
pub struct Badge {
    /// Names the frame and the sign.
    pub class: &'static str,
    /// What stands beside the sign.
    pub word: String,
}

/// One array.
#[derive(Clone, Debug)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// Names it in links.
    pub anchor: String,
    /// How it is.
    pub look: Badge,
    /// Level, sizes, what may be lost.
    pub facts: Vec<String>,
    /// What is to be known before anything is done to it.
    pub warnings: Vec<String>,
    /// Its slots.
    pub groups: Vec<Group>,
}

/// Slots that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its heading; empty where there is one group.
    pub name: String,
    /// Its slots.
    pub slots: Vec<Slot>,
}

/// One place for a drive.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its number; empty for a spare.
    pub number: String,
    /// How it is.
    pub look: Badge,
    /// The path of its device.
    pub device: String,
    /// Serial and model of the device.
    pub identity: Vec<String>,
    /// Where the device is plugged in.
    pub place: Option<String>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// How far it is filled.
    pub percent: Option<u64>,
}

/// How an array is.
pub fn look_of(array: &ArrayStatus) -> Badge {
    let class = match array.state {
        _ if array.taken_over_by.is_some() => "failed",
        ArrayState::Clean => "clean",
        ArrayState::Resyncing => "resyncing",
        ArrayState::Degraded => "degraded",
        ArrayState::ReadOnly => "read-only",
        ArrayState::Failed => "failed",
    };
    let is_elsewhere = array.taken_over_by.is_some();
    let word = if is_elsewhere { "TAKEN OVER".to_owned() } else { array.state.to_string() };
    Badge { class, word }
}

/// An array as a picture.
pub fn array(array: &ArrayStatus) -> Array {
    let is_grouped = array.groups > 1;
    let group = |(number, members): (usize, &[MemberStatus])| Group {
        name: if is_grouped { format!("Group {number}") } else { String::new() },
        slots: members.iter().map(|member| slot(member, array)).collect(),
    };
    Array {
        name: one_line(&array.name),
        anchor: format!("array-{}", one_line(&array.uuid)),
        look: look_of(array),
        facts: facts(array),
        warnings: warnings(array),
        groups: array.by_group().enumerate().map(group).collect(),
    }
}

fn facts(array: &ArrayStatus) -> Vec<String> {
    let tolerates = match array.tolerates {
        0 => "no further loss tolerated".to_owned(),
        1 => "1 more loss tolerated".to_owned(),
        more => format!("{more} more losses tolerated"),
    };
    let mut facts = vec![
        format!("{} {}", array.level, array.shape()),
        ByteSize(array.volume_bytes).to_string(),
        format!("strip {}", ByteSize(array.strip_bytes)),
        format!("policy {}", one_line(&array.policy)),
        tolerates,
    ];
    if !matches!(&*array.checksums, "" | "none") {
        facts.push(format!("checksums {}", one_line(&array.checksums)));
    }
    if array.intent.count > 0 {
        facts.push(format!("{} dirty regions", grouped(array.intent.count)));
    }
    if let Some(scrub) = array.last_scrub {
        let found = grouped(scrub.mismatches);
        facts.push(format!("scrubbed {} ago, {found} mismatches", span(scrub.age_seconds)));
    }
    facts.extend(array.risk().filter(|_| !is_exposed(array)));
    facts
}

/// Whether stripes lack strips.
fn is_exposed(array: &ArrayStatus) -> bool {
    array.exposure.as_ref().is_some_and(Exposure::is_exposed)
}

fn warnings(array: &ArrayStatus) -> Vec<String> {
    let taken = array.taken_over_by.as_ref().map(|by| format!("Another process runs it: {by}."));
    let read_only = array.read_only.as_ref().filter(|_| taken.is_none());
    let read_only = read_only.map(|why| format!("Read-only: {}; {}.", why.because, why.next));
    let failed = array.after_failure().map(|next| format!("Failed: {next}."));
    let paused = array.pause.as_ref().map(|pause| format!("Writes wait: {pause}."));
    let at_risk = array.risk().filter(|_| is_exposed(array));
    let is_in_memory = array.members.iter().any(|it| it.path.starts_with("memory:"));
    let lost = "Members are memory of the daemon. All data is lost when the daemon ends.";
    let all = [taken, read_only, failed, paused, at_risk, is_in_memory.then(|| lost.to_owned())];
    all.into_iter().flatten().map(|text| one_line(&text)).collect()
}

fn slot(member: &MemberStatus, array: &ArrayStatus) -> Slot {
    let is_own = |job: &&JobStatus| job.is_rebuild() && job.slot == Some(member.slot);
    let job = array.jobs.iter().find(is_own);
    let class = match member.state {
        MemberState::InSync => "in-sync",
        MemberState::Rebuilding => "rebuilding",
        MemberState::Replacing => "replacing",
        MemberState::Failing => "failing",
        MemberState::Out => "out",
    };
    let percent = job.map(JobStatus::percent);
    let is_empty = member.path.is_empty();
    let last = member.last_device.as_ref().filter(|_| is_empty);
    let known = |own: &Option<String>, last: Option<&Option<String>>| {
        own.clone().or_else(|| last.cloned().flatten())
    };
    let serial = known(&member.serial, last.map(|last| &last.serial));
    let model = known(&member.model, last.map(|last| &last.model));
    let path = last.map_or(&member.path, |last| &last.path);
    Slot {
        number: member.slot.to_string(),
        look: Badge { class, word: member.state.to_string() },
        device: if path.is_empty() { "no device".to_owned() } else { one_line(path) },
        identity: serial.into_iter().chain(model).map(|text| one_line(&text)).collect(),
        place: last.map_or(&member.bay, |last| &last.bay).words(),
        notes: notes(member, last, job.is_some_and(|job| job.paused)),
        percent,
    }
}

fn notes(member: &MemberStatus, last: Option<&LastDevice>, is_paused: bool) -> Vec<String> {
    let errors = member.faults();
    let mut notes = Vec::new();
    if let Some(last) = last {
        let host = last.host.as_ref().map(|host| format!(", on host {}", one_line(host)));
        notes.push(format!("was here last{}", host.unwrap_or_default()));
    }
    if let Some(path) = &member.replacement {
        notes.push(format!("filling {}", one_line(path)));
    }
    if is_paused {
        notes.push("paused".to_owned());
    }
    if member.silent_ms >= SILENT_MS {
        notes.push(format!("SILENT for {} s", member.silent_ms / 1000));
    }
    if let Some(slow) = member.slow {
        let (own, peers) = (grouped(slow.own_us), grouped(slow.peers_us));
        notes.push(format!("SLOW: {} take {own} µs, peers' {peers} µs", slow.commands));
    }
    match errors {
        0 => {}
        1 => notes.push("1 error".to_owned()),
        errors => notes.push(format!("{} errors", grouped(errors))),
    }
    notes
}

/// The spares of a pool, as slots.
pub fn spares(pool: &SparePool) -> Group {
    let spare = |spare: &ashlar_api::v1::spare::Spare| Slot {
        number: String::new(),
        look: Badge { class: "spare", word: "spare".to_owned() },
        device: one_line(&spare.path),
        identity: spare.serial.iter().map(|serial| one_line(serial)).collect(),
        place: spare.bay.words(),
        notes: vec![ByteSize(spare.device_bytes).to_string()],
        percent: None,
    };
    Group { name: one_line(&pool.name), slots: pool.spares.iter().map(spare).collect() }
}
