//! Dry runs: says in words how a start would end, and whether a device may be taken.
//!
//! What must stay true: devices are only read. Not here: the judgement, which is that of the real
//! start (`ashlar_engine::Engine::would_assemble`).

use crate::{config, memory_devices, nested};
use ashlar_api::ApiError;
use ashlar_device::{Access, FileDevice, OpenRefusal, Opened, open_to_look};
use ashlar_engine::{Ends, ForeignSignature, MayBeOld, WouldStart};
use ashlar_ondisk::assembly::{
    Extra, ExtraReason, MemberReading, ReadLabel, ReadOnlyReason, SlotState, SlotVerdict, Start,
    Verdict,
};
use ashlar_ondisk::examine::{DeviceEnds, heartbeat_in};
use ashlar_ondisk::{Choice, RunnerName, Superblock};
use ashlar_units::{ByteSize, Extent, to_usize};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// What a start would come to, for people: the start in one line, then a line for each slot with
/// the device and serial that would fill it, then the devices that would be left alone.
pub fn told(would: &WouldStart) -> String {
    let WouldStart { verdict, readings, problems, .. } = would;
    let start = match &verdict.start {
        Start::ReadOnly(reason) if would.is_read_only => {
            format!("read-only, {}", why_read_only(*reason))
        }
        _ if would.is_read_only => "read-only, as asked".to_owned(),
        // What a crash left is settled by a resync: no data of missing members is in doubt.
        Start::Degraded | Start::ReadOnly(_) => {
            format!("degraded, without {}", missing(verdict))
        }
        _ => "with all its members".to_owned(),
    };
    let name = verdict.newest.as_ref().map_or(String::new(), |it| it.array_name.to_string());
    let mut lines = vec![format!("array '{name}' would start {start}; nothing was written")];
    lines.extend(verdict.slots.iter().map(|slot| slot_line(slot, readings, &name)));
    lines.extend(verdict.extras.iter().map(|extra| extra_line(extra, readings)));
    lines.extend(would.may_be_old.iter().flat_map(old_lines));
    lines.extend(would.were_away.iter().map(|path| {
        format!("may lack what was not flushed, as after a power cut: {path} (it was away)")
    }));
    lines.extend(problems.iter().map(|problem| format!("could not look at: {problem}")));
    lines.join("\n")
}

fn extra_line(extra: &Extra, readings: &[MemberReading]) -> String {
    let reading = &readings[extra.reading];
    match reading.cannot_be_read() {
        Some(line) => line,
        None => format!("left alone: {} ({})", reading.path, left_alone(extra.reason)),
    }
}

fn slot_line(slot: &SlotVerdict, readings: &[MemberReading], array: &str) -> String {
    let known = slot.holder.map(|holder| holder.serial.to_string()).unwrap_or_default();
    let serial = |serial: &str| match serial {
        "" => "no serial".to_owned(),
        serial => format!("serial {serial}"),
    };
    let device = |reading: usize| {
        let reading = &readings[reading];
        format!("{}  {}", reading.path, serial(&reading.serial.to_string()))
    };
    let joining_device =
        slot.joining_device.as_ref().and_then(|joining_device| joining_device.reading);
    let holds = match (slot.reading, slot.state) {
        (Some(reading), SlotState::Current) => device(reading),
        (Some(reading), SlotState::Stale { out_since }) if joining_device.is_none() => format!(
            "{}  out since generation {out_since}, stays out; once the array runs: ashlar re-add \
             {array} {}",
            device(reading),
            readings[reading].path
        ),
        (Some(reading), _) => format!("{}  out, stays out", device(reading)),
        (None, _) => format!("missing  {}", serial(&known)),
    };
    let joining_device = joining_device.map(|at| format!("  being filled: {}", device(at)));
    format!("slot {}  {holds}{}", slot.slot, joining_device.unwrap_or_default())
}

/// Parts of the volume that are listed for a member that may lack writes.
const OLD_SHOWN_MAX: usize = 20;

/// What may be old of a member that is taken although it may lack writes.
fn old_lines(old: &MayBeOld) -> Vec<String> {
    let (slot, path) = (old.slot, &old.path);
    let Some(ranges) = &old.within else {
        return vec![format!(
            "may be old: any block on slot {slot} ({path}): nothing tells what it lacks"
        )];
    };
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut lines = vec![format!(
        "may be old: blocks on slot {slot} ({path}) in {} of the volume{}",
        ByteSize(bytes),
        if ranges.is_empty() { "" } else { ", at" }
    )];
    let shown = ranges.iter().take(OLD_SHOWN_MAX);
    lines.extend(
        shown.map(|range| format!("  {} bytes at {}", range.end - range.start, range.start)),
    );
    if ranges.len() > OLD_SHOWN_MAX {
        lines.push(format!("  and {} more ranges", ranges.len() - OLD_SHOWN_MAX));
    }
    lines
}

fn why_read_only(reason: ReadOnlyReason) -> String {
    match reason {
        ReadOnlyReason::DirtyDegraded => {
            "because it stopped uncleanly and lacks members: what was being written then may be \
             wrong (--accept-dirty-degraded starts it read-write)"
                .to_owned()
        }
        ReadOnlyReason::UnknownFeatures { unknown } => {
            format!("because a newer program uses features {unknown:#x} on it")
        }
    }
}

fn left_alone(reason: ExtraReason) -> &'static str {
    match reason {
        ExtraReason::OtherArray { .. } => "a member of another array",
        ExtraReason::Spare => "a spare",
        ExtraReason::Damaged => "no copy of its superblock is intact",
        ExtraReason::Unsupported { .. } => "written by a newer program",
        ExtraReason::Foreign => "somebody else's",
        ExtraReason::Blank => "nothing is on it",
        ExtraReason::Unread => "it cannot be read",
        ExtraReason::Removed => "it was removed from this array",
        ExtraReason::NotListed => "the array does not list it",
        ExtraReason::TooSmall { .. } => "smaller than its superblock says",
        ExtraReason::CutShort => "it was cut short and made longer again, so data on it is lost",
        ExtraReason::Reused => {
            "it carries somebody else's signature, put there since it is a member; \
             --accept-signatures overwrites that"
        }
        ExtraReason::Reappeared => {
            "it was away since the array ran, and may have lost what its cache held; \
             re-add it to the running array"
        }
        ExtraReason::SerialDiffers => {
            "another serial than recorded, perhaps a clone; --accept-serials takes it"
        }
        ExtraReason::Incoherent { .. } => "it missed updates that nobody recorded",
        ExtraReason::Older { .. } => {
            "an older copy of that member: it lacks writes that the others know to be flushed"
        }
        ExtraReason::LivedOn => "it is of the half that is not trusted",
    }
}

/// That this device may be written: it is there, and nobody's, unless the operator said it may be
/// destroyed.
///
/// # Errors
/// The refusal that taking it would end in.
pub fn may_take(path: &str, may_destroy: bool) -> Result<(), ApiError> {
    let refuse =
        |code: &str, message: String, hint: String| Err(ApiError::new(code, message, hint));
    // Taken for a moment and let go: what somebody has would be refused then, too.
    let opened = nested::check(path)
        .and_then(|()| FileDevice::open(path, Access::Exclusive, Duration::ZERO));
    if let Err(refusal) = opened {
        return refuse("device.not_opened", refusal.to_string(), "nothing was written".to_owned());
    }
    if may_destroy {
        return Ok(());
    }
    let consent = format!("if its content may go, say so by name: --destroy {path}");
    if let Some(signature) = config::foreign_signatures()(path, Ends::Unknown).first() {
        let message = format!("{path} carries {}; nothing was written", signature.words);
        return refuse("device.has_signature", message, consent);
    }
    match reading(path, &BTreeSet::new()).map(|(reading, _)| reading.label) {
        Ok(
            ReadLabel::Member(_)
            | ReadLabel::Spare(_)
            | ReadLabel::Damaged
            | ReadLabel::Unsupported { .. },
        ) => {
            let message = format!("{path} is a member or spare already; nothing was written");
            refuse("device.has_signature", message, consent)
        }
        _ => Ok(()),
    }
}

fn missing(verdict: &Verdict) -> String {
    let slots: Vec<String> = verdict.missing().map(|slot| format!("slot {}", slot.slot)).collect();
    slots.join(", ")
}

/// What a device is, to tell which start it is for.
pub enum Label {
    /// A member.
    Member {
        /// UUID of its array.
        array: String,
        /// The array's name.
        name: String,
    },
    /// Written by a newer program.
    Newer {
        /// UUID of its array.
        array: String,
    },
    /// A spare.
    Spare,
    /// It was ours and is damaged, or it cannot be opened.
    Unknown,
    /// Reads of it end in this.
    Unread(String),
    /// Blank, or somebody else's.
    Nothing,
}

/// What the device at `path` is now. It is only looked at, so it may be in use.
pub fn label(path: &str) -> Label {
    // Memory is opened once.
    if memory_devices::is_memory(path) || path.starts_with("mem:") || path.starts_with("null:") {
        return Label::Unknown;
    }
    let reading = contents(path, &BTreeSet::new())
        .map(|it| MemberReading::new(path, 0, "", it.choice).after_fault(it.fault));
    match reading.map(|reading| reading.unread.map_or(Ok(reading.label), Err)) {
        Ok(Err(fault)) => Label::Unread(fault),
        Ok(Ok(label)) => of_label(label),
        Err(_) => Label::Unknown,
    }
}

fn of_label(label: ReadLabel) -> Label {
    match label {
        ReadLabel::Member(superblock) => Label::Member {
            array: superblock.array_uuid.to_string(),
            name: superblock.array_name.to_string(),
        },
        ReadLabel::Unsupported { array, .. } => Label::Newer { array: array.to_string() },
        ReadLabel::Spare(_) => Label::Spare,
        ReadLabel::Foreign | ReadLabel::Blank => Label::Nothing,
        ReadLabel::Damaged => Label::Unknown,
    }
}

/// What somebody else has put on a device of ours since.
pub fn given_away(path: &str) -> Option<String> {
    let Contents { device_bytes, choice, .. } = contents(path, &BTreeSet::new()).ok()?;
    foreign(&MemberReading::new(path, device_bytes, "", choice))
}

/// The superblock of the device, if it is a member of an array. It is only looked at.
pub fn member(path: &str) -> Option<Superblock> {
    if memory_devices::is_memory(path) {
        return None;
    }
    let Contents { choice, .. } = contents(path, &BTreeSet::new()).ok()?;
    MemberReading::new(path, 0, "", choice).superblock().cloned()
}

/// A device as it is, and the host that ran its array last, if it is a member that ever ran. It is
/// only looked at, so it may be in use. `sizes`: what members of arrays that were found had, if the
/// device itself tells nothing and perhaps grew. Not yet: what others put on it ([`with_foreign`]).
///
/// # Errors
/// Why it cannot be looked at.
pub fn found(
    path: &str,
    sizes: &BTreeSet<u64>,
) -> Result<(MemberReading, Option<String>), OpenRefusal> {
    let (reading, head) = reading(path, sizes)?;
    let array = reading.superblock().map(|superblock| superblock.array_uuid);
    let heartbeat = array.and_then(|array| heartbeat_in(head.as_deref(), array));
    let host = heartbeat.map(|beat| RunnerName::of(&beat.host_id).host);
    Ok((reading, host))
}

/// The same, with what others put on it: programs are asked, which takes its time.
pub fn with_foreign(mut reading: MemberReading) -> MemberReading {
    reading.foreign = foreign(&reading);
    reading
}

/// The device as it is now, and its first bytes. It is only looked at, so it may be in use.
fn reading(
    path: &str,
    sizes: &BTreeSet<u64>,
) -> Result<(MemberReading, Option<Vec<u8>>), OpenRefusal> {
    let Contents { device_bytes, head, choice, fault } = contents(path, sizes)?;
    let opened = FileDevice::open(path, Access::ReadOnly, Duration::ZERO);
    // What cannot be opened for I/O has no facts; what it holds was read all the same.
    let serial = opened.ok().and_then(|opened| opened.facts().serial.clone()).unwrap_or_default();
    let reading = MemberReading::new(path, device_bytes, &serial, choice);
    let reading = reading.after_fault(fault);
    Ok((reading.with_mark_in(head.as_deref()), head))
}

/// What somebody else put on a member or spare, as the start judges it.
fn foreign(reading: &MemberReading) -> Option<String> {
    if !matches!(reading.label, ReadLabel::Member(_) | ReadLabel::Spare(_)) {
        return None;
    }
    let found = config::foreign_signatures()(&reading.path, Ends::Unknown);
    let guarded = |it: &ForeignSignature| it.offset.is_some_and(|at| reading.guards(at));
    found.into_iter().find(guarded).map(|it| it.words)
}

/// What is at the ends of a device.
struct Contents {
    device_bytes: u64,
    head: Option<Vec<u8>>,
    choice: Choice,
    /// What a read ended in, if one failed.
    fault: Option<std::io::Error>,
}

fn contents(path: &str, sizes: &BTreeSet<u64>) -> Result<Contents, OpenRefusal> {
    let refuse = |error: std::io::Error| OpenRefusal::new(path, error.to_string());
    let mut file = open_to_look(Path::new(path)).map_err(refuse)?;
    let device_bytes = file.seek(SeekFrom::End(0)).map_err(refuse)?;
    let fault = Cell::new(None);
    let read = |range| read(&file, range).map_err(|error| fault.set(Some(error))).ok();
    let DeviceEnds { head, choice, .. } =
        DeviceEnds::read(device_bytes, read).or_before(device_bytes, sizes, read);
    Ok(Contents { device_bytes, head, choice, fault: fault.take() })
}

fn read(file: &File, range: Extent) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(range.bytes)];
    file.read_exact_at(&mut bytes, range.offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{reading, told};
    use ashlar_device::PathOpener;
    use ashlar_engine::{CreateSpec, Engine, EngineConfig, WouldStart};
    use ashlar_layout::{Level, Shape};
    use ashlar_ondisk::assembly::{AssemblyRequest, MemberReading, ReadLabel, assemble};
    use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy, Text};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// A stopped RAID 5 on three files.
    fn members() -> (tempfile::TempDir, Vec<MemberReading>) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let devices: Vec<String> = ["a", "b", "c"]
            .map(|name| {
                let path = folder.path().join(name);
                let file = std::fs::File::create(&path).expect("made");
                file.set_len(64 << 20).expect("sized");
                path.to_str().expect("text").to_owned()
            })
            .to_vec();
        let mut config = EngineConfig::new(Arc::new(PathOpener::new()));
        config.worker_count = 1;
        let engine = Engine::start(config).expect("started");
        let spec = CreateSpec {
            enclosures: None,
            name: "tank".to_owned(),
            devices: devices.clone(),
            shape: Shape {
                level: Level::Raid5,
                members: 3,
                parity: None,
                group_members: None,
                strip_bytes: 65_536,
                declustered: None,
            },
            policy: ConsistencyPolicy::default(),
            checksums: ChecksumKind::None,
            atomic_write_bytes: 0,
            logical_block_bytes: 4096,
            region_bytes: None,
            member_bytes: None,
            destroy: Vec::new(),
            is_dry_run: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a loop");
        runtime.block_on(engine.create(spec)).expect("created");
        engine.shut_down();
        let read = |path: &String| reading(path, &BTreeSet::new()).expect("readable").0;
        let read = devices.iter().map(read).collect();
        (folder, read)
    }

    #[test]
    fn a_dry_run_shows_each_slot_with_its_serial_and_a_clone_as_left_alone() {
        let (_folder, mut readings) = members();
        for (at, reading) in readings.iter_mut().enumerate() {
            reading.path = format!("dev{at}");
            reading.serial = Text::cut(&format!("S{at}"));
            let ReadLabel::Member(superblock) = &mut reading.label else { panic!("no member") };
            for (slot, member) in superblock.members.iter_mut().enumerate() {
                member.serial = Text::cut(&format!("S{slot}"));
            }
        }
        let would = |readings: &[MemberReading]| {
            let verdict = assemble(readings, &AssemblyRequest::default());
            let (readings, problems) = (readings.to_vec(), Vec::new());
            told(&WouldStart {
                verdict,
                readings,
                problems,
                is_read_only: false,
                may_be_old: Vec::new(),
                were_away: Vec::new(),
            })
        };
        let told = would(&readings);
        let lines: Vec<&str> = told.lines().collect();
        let wanted = [
            "array 'tank' would start with all its members; nothing was written",
            "slot 0  dev0  serial S0",
            "slot 1  dev1  serial S1",
            "slot 2  dev2  serial S2",
        ];
        assert_eq!(lines, wanted);
        readings[1].serial = Text::cut("X");
        let told = would(&readings);
        assert!(told.contains("would start degraded, without slot 1"), "{told}");
        assert!(told.contains("\nslot 1  missing  serial S1\n"), "{told}");
        assert!(told.contains("left alone: dev1 (another serial than recorded"), "{told}");
    }
}
