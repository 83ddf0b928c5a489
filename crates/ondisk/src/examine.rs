//! Everything that one device says about itself, healthy or damaged, as a plain struct and as text.
//!
//! What must stay true: examining never fails, whatever the bytes. It names what is damaged and
//! shows what is intact. The caller reads [`examine_ranges`] and hands the bytes in; nothing else
//! of the device is needed.

use std::collections::BTreeSet;
use std::fmt;

use ashlar_units::{ByteSize, Extent, to_usize};
use uuid::Uuid;
use zerocopy::FromBytes;

use crate::copies::{Choice, CopyState, Label, SuperblockCopies};
use crate::drives::DrivePage;
use crate::flush_mark::FlushMark;
use crate::format::{
    FIRST_AREA_OFFSET, HEAD_COPIES_BYTES, HEARTBEAT_SLOTS, RawPreamble, SUPERBLOCK_COPIES,
    TAIL_COPIES_BYTES, copy_slots, heartbeat_slots,
};
use crate::heartbeat::Heartbeat;
use crate::member::Role;
use crate::runner::RunnerName;
use crate::seal::is_zero;
use crate::superblock::Superblock;

/// What the caller must read: the first 256 KiB (superblock copies 0 and 1, heartbeat) and the last
/// 128 KiB (copies 2 and 3), at offsets and lengths that are multiples of 4 KiB. `None` if the
/// device is too small for a member. If the device grew, copies 2 and 3 lie elsewhere:
/// [`recorded_tail`].
pub fn examine_ranges(device_bytes: u64) -> Option<[Extent; 2]> {
    let tail = tail_of(device_bytes)?;
    Some([Extent::new(0, FIRST_AREA_OFFSET), tail])
}

/// Where copies 2 and 3 of a member of `member_bytes` bytes lie.
fn tail_of(member_bytes: u64) -> Option<Extent> {
    let slots = copy_slots(member_bytes)?;
    Some(Extent::new(slots[2].offset, TAIL_COPIES_BYTES))
}

/// Where copies 2 and 3 lie if the device is larger than its superblock says: they stay where the
/// device ended before it grew. `None` if they are at its end, or nothing tells where they are.
/// What is read there takes the place of the range at the end.
pub fn recorded_tail(choice: &Choice, device_bytes: u64) -> Option<Extent> {
    let recorded = choice.newest.as_ref()?.member_bytes();
    grown_from(recorded, device_bytes)
}

/// The same for a device that was made a member when it had `recorded` bytes.
pub fn grown_from(recorded: u64, device_bytes: u64) -> Option<Extent> {
    let has_grown = recorded < crate::format::member_bytes(device_bytes);
    if has_grown { tail_of(recorded) } else { None }
}

/// Both ends of a device, as far as they could be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceEnds {
    /// Its first 256 KiB.
    pub head: Option<Vec<u8>>,
    /// Copies 2 and 3 of its superblock.
    pub tail: Option<Vec<u8>>,
    /// What the copies add up to.
    pub choice: Choice,
}

impl DeviceEnds {
    /// Reads the ends of a device of `device_bytes` bytes, each range by `read`. A range that
    /// cannot be read is `None`.
    pub fn read(device_bytes: u64, read: impl Fn(Extent) -> Option<Vec<u8>>) -> DeviceEnds {
        let ranges = examine_ranges(device_bytes);
        let [head, mut tail] = ranges.map_or([None, None], |ranges| ranges.map(&read));
        let choose = |tail: &Option<Vec<u8>>| {
            SuperblockCopies::choose(&split_copies(head.as_deref(), tail.as_deref()))
        };
        let mut choice = choose(&tail);
        if let Some(recorded) = recorded_tail(&choice, device_bytes) {
            tail = read(recorded);
            choice = choose(&tail);
        }
        DeviceEnds { head, tail, choice }
    }

    /// The same of a device whose ends tell nothing: perhaps its head is damaged, and it grew from
    /// one of these `sizes`. If it was a member before it grew, and again since, what it was then
    /// lies at the smaller size: the largest that tells something counts.
    #[must_use]
    pub fn or_before(
        mut self,
        device_bytes: u64,
        sizes: &BTreeSet<u64>,
        read: impl Fn(Extent) -> Option<Vec<u8>>,
    ) -> DeviceEnds {
        for recorded in sizes.iter().rev() {
            if self.choice.newest.is_some() || self.choice.unsupported().is_some() {
                break;
            }
            let Some(extent) = grown_from(*recorded, device_bytes) else { continue };
            let tail = read(extent);
            let copies = split_copies(self.head.as_deref(), tail.as_deref());
            let choice = SuperblockCopies::choose(&copies);
            if choice.newest.as_ref().is_some_and(|label| label.member_bytes() == *recorded) {
                (self.tail, self.choice) = (tail, choice);
            }
        }
        self
    }
}

/// The four superblock slots within the two ranges, as [`SuperblockCopies::choose`] takes them. A
/// range that could not be read is `None`; one that is shorter than asked for counts as far as it
/// goes.
pub fn split_copies<'a>(
    head: Option<&'a [u8]>,
    tail: Option<&'a [u8]>,
) -> [Option<&'a [u8]>; SUPERBLOCK_COPIES] {
    let half = to_usize(HEAD_COPIES_BYTES / 2);
    let first = |range: Option<&'a [u8]>| range.map(|bytes| &bytes[..half.min(bytes.len())]);
    let second = |range: Option<&'a [u8]>| {
        range.and_then(|bytes| bytes.get(half..)).map(|bytes| &bytes[..half.min(bytes.len())])
    };
    [first(head), second(head), first(tail), second(tail)]
}

/// Whether the two ranges of a device hold only what Ashlar writes there, and zeros. Then nobody
/// else has written there since the device joined: it got zeros first.
pub fn has_only_ours(head: Option<&[u8]>, tail: Option<&[u8]>) -> bool {
    let copies = split_copies(head, tail);
    let has_only_it = |copy: &Option<&[u8]>| {
        let length = copy.and_then(|copy| RawPreamble::ref_from_prefix(copy).ok());
        let length = length.map_or(0, |(preamble, _)| preamble.length.get());
        copy.and_then(|copy| copy.get(to_usize(length.into())..)).is_some_and(is_zero)
    };
    let between = to_usize(HEAD_COPIES_BYTES)..to_usize(FIRST_AREA_OFFSET);
    let mut blocks = head.and_then(|head| head.get(between)).unwrap_or(&[1]).chunks(4096);
    let is_ours = |block: &[u8]| {
        is_zero(block)
            || Heartbeat::decode(block).is_some()
            || FlushMark::decode(block).is_some()
            || DrivePage::decode(block).is_some()
    };
    SuperblockCopies::choose(&copies).is_whole()
        && copies.iter().all(has_only_it)
        && blocks.all(is_ours)
}

/// One superblock copy, examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyExamination {
    /// Where its slot begins, in bytes from the start of the device.
    pub offset: u64,
    /// The state of the copy.
    pub state: CopyState,
}

/// Everything one device says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examination {
    /// Size of the device, in bytes.
    pub device_bytes: u64,
    /// The four copies; empty if the device is too small for a member.
    pub copies: Vec<CopyExamination>,
    /// The newest intact superblock.
    pub label: Option<Label>,
    /// The newest heartbeat of the array.
    pub heartbeat: Option<Heartbeat>,
    /// Where the device is smaller or larger than its superblock says: the size it says.
    pub recorded_bytes: Option<u64>,
}

impl Examination {
    /// Examines a device of `device_bytes` bytes from its ends.
    pub fn of(device_bytes: u64, ends: &DeviceEnds) -> Self {
        Examination::new(device_bytes, ends.head.as_deref(), ends.tail.as_deref())
    }

    /// Examines a device of `device_bytes` bytes from the two ranges [`examine_ranges`] names, the
    /// second one where [`recorded_tail`] says; a range that could not be read is `None`.
    pub fn new(device_bytes: u64, head: Option<&[u8]>, tail: Option<&[u8]>) -> Self {
        let Some(mut slots) = copy_slots(device_bytes) else {
            return Examination {
                device_bytes,
                copies: Vec::new(),
                label: None,
                heartbeat: None,
                recorded_bytes: None,
            };
        };
        let choice = SuperblockCopies::choose(&split_copies(head, tail));
        let heartbeat =
            choice.superblock().and_then(|superblock| heartbeat_in(head, superblock.array_uuid));
        let recorded = choice.newest.as_ref().map(Label::member_bytes);
        if let Some(tail) = recorded_tail(&choice, device_bytes) {
            slots[2].offset = tail.offset;
            slots[3].offset = tail.offset + slots[2].bytes;
        }
        let differs = |bytes: &u64| *bytes != crate::format::member_bytes(device_bytes);
        Examination {
            device_bytes,
            copies: copies_of(&choice, &slots),
            heartbeat,
            recorded_bytes: recorded.filter(differs),
            label: choice.newest,
        }
    }

    /// The superblock, if the device is a member.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.label {
            Some(Label::Member(superblock)) => Some(superblock),
            _ => None,
        }
    }

    /// Whether all four copies are intact and equal and the device has room for what is recorded.
    pub fn is_healthy(&self) -> bool {
        !self.copies.is_empty()
            && self.copies.iter().all(|copy| copy.state == CopyState::Ok)
            && self.recorded_bytes.is_none_or(|bytes| bytes <= self.device_bytes)
    }
}

fn copies_of(choice: &Choice, slots: &[Extent; SUPERBLOCK_COPIES]) -> Vec<CopyExamination> {
    choice
        .copies
        .iter()
        .zip(slots)
        .map(|(state, slot)| CopyExamination { offset: slot.offset, state: *state })
        .collect()
}

/// The newest heartbeat of `array` in the head range.
pub fn heartbeat_in(head: Option<&[u8]>, array: Uuid) -> Option<Heartbeat> {
    let head = head?;
    let block = |slot: Extent| head.get(to_usize(slot.offset)..to_usize(slot.end()));
    let blocks: [Option<&[u8]>; HEARTBEAT_SLOTS] = heartbeat_slots().map(block);
    Heartbeat::newest(blocks, array)
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyState::Ok => write!(f, "ok"),
            CopyState::Stale { generation } => write!(f, "stale (generation {generation})"),
            CopyState::Conflicting => write!(f, "conflicts with the newest of the same generation"),
            CopyState::Other { array } if array.is_nil() => write!(f, "a spare's superblock"),
            CopyState::Other { array } => write!(f, "of another member or array ({array})"),
            CopyState::Torn { generation } => {
                write!(f, "torn (writing generation {generation} was interrupted)")
            }
            CopyState::Damaged { field: Some(field) } => {
                write!(f, "damaged (first wrong field: {field})")
            }
            CopyState::Damaged { field: None } => write!(f, "damaged (checksum does not match)"),
            CopyState::Unsupported { fault, .. } => write!(f, "not understood: {fault}"),
            CopyState::Absent => write!(f, "absent (zeros)"),
            CopyState::Foreign => write!(f, "not ours"),
            CopyState::Unreadable => write!(f, "unreadable"),
        }
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(
            f,
            "device size",
            format_args!("{} ({} bytes)", ByteSize(self.device_bytes), self.device_bytes),
        )?;
        if self.copies.is_empty() {
            return line(f, "verdict", format_args!("too small for a member"));
        }
        if let Some(recorded) = self.recorded_bytes {
            let told = match recorded <= self.device_bytes {
                true => format!("the device grew; {recorded} bytes of it are used, as before"),
                false => format!("the superblock says {recorded} bytes"),
            };
            line(f, "size differs", format_args!("{told}"))?;
        }
        match &self.label {
            Some(Label::Member(superblock)) => member_lines(f, superblock)?,
            Some(Label::Spare(spare)) => {
                line(f, "spare in pool", format_args!("{}", spare.pool_name))?;
                line(f, "member uuid", format_args!("{}", spare.member_uuid))?;
                let whole = stated(spare.stated_atomic_bytes);
                let serial = spare.serial.to_string();
                let serial = if serial.is_empty() { "none" } else { serial.as_str() };
                line(f, "serial", format_args!("{serial}{whole}"))?;
            }
            None => line(f, "superblock", format_args!("no intact copy"))?,
        }
        if let Some(heartbeat) = &self.heartbeat {
            let state = if heartbeat.is_running() { "running" } else { "stopped cleanly" };
            line(
                f,
                "heartbeat",
                format_args!(
                    "{} {state} {}",
                    heartbeat.sequence,
                    RunnerName::of(&heartbeat.host_id)
                ),
            )?;
        }
        for (number, copy) in self.copies.iter().enumerate() {
            line(f, &format!("copy {number}"), format_args!("at {}: {}", copy.offset, copy.state))?;
        }
        Ok(())
    }
}

/// What is stated of a device, to follow what is said of it.
fn stated(atomic_bytes: u32) -> String {
    match atomic_bytes {
        0 => String::new(),
        bytes => format!(", {} stated to be written whole", ByteSize(bytes.into())),
    }
}

fn member_lines(f: &mut fmt::Formatter<'_>, superblock: &Superblock) -> fmt::Result {
    let geometry = &superblock.geometry;
    line(f, "array", format_args!("{} ({})", superblock.array_name, superblock.array_uuid))?;
    line(
        f,
        "level",
        format_args!(
            "{} {}+{}{}, strip {}, volume {}",
            geometry.level_name(),
            geometry.data_strips,
            geometry.parity_strips,
            match (geometry.spread, geometry.groups) {
                (Some(spread), _) => format!(" declustered over {}", spread.members),
                (None, 1) => String::new(),
                (None, groups) => format!(" x {groups} groups"),
            },
            ByteSize(u64::from(geometry.strip_bytes)),
            ByteSize(geometry.volume_bytes()),
        ),
    )?;
    if let Some(enclosures) = superblock.enclosures {
        let (slots, kind) = (enclosures.slots(geometry), enclosures.kind.name());
        let (count, strips) = (usize::from(geometry.slots()) / slots, enclosures.domains);
        line(
            f,
            "domains",
            format_args!("{count} of {slots} slots by {kind}, at most {strips} strips of a stripe"),
        )?;
    }
    growth_lines(f, superblock)?;
    line(f, "generation", format_args!("{}", superblock.generation))?;
    line(f, "incarnation", format_args!("{}", superblock.incarnation))?;
    // An array is marked so from its start to its stop. The device's holder tells whether it runs.
    let state =
        if superblock.unclean { "unclean: running, or ended without a stop" } else { "clean" };
    line(f, "state", format_args!("{state}"))?;
    line(
        f,
        "consistency",
        format_args!(
            "{}, checksums {}, region {}",
            superblock.policy.name(),
            superblock.checksums.name(),
            ByteSize(superblock.region_bytes)
        ),
    )?;
    let forced = superblock.forced.names();
    if !forced.is_empty() {
        let at = superblock.forced.generation;
        line(f, "forced", format_args!("{} (last at generation {at})", forced.join(" ")))?;
    }
    if let Some(scrub) = superblock.last_scrub {
        line(f, "last scrub", format_args!("{} mismatches", scrub.mismatches))?;
    }
    line(f, "this member", format_args!("slot {} ({})", superblock.slot, superblock.member_uuid))?;
    slot_lines(f, superblock)?;
    for job in &superblock.jobs {
        let paused = if job.paused { ", paused" } else { "" };
        let done = format_args!("at stripe {} of {}{paused}", job.checkpoint, geometry.stripes());
        line(f, job.kind.name(), done)?;
    }
    for (name, area) in superblock.areas.named() {
        line(f, name, format_args!("{} at {}", ByteSize(area.bytes), area.offset))?;
    }
    Ok(())
}

fn growth_lines(f: &mut fmt::Formatter<'_>, superblock: &Superblock) -> fmt::Result {
    let layout = superblock.geometry.to_layout();
    let under_way = layout.as_ref().and_then(|it| it.declustered()?.growth());
    for growth in superblock.geometry.growths() {
        let from = usize::from(growth.members_before);
        match under_way.filter(|it| it.members_before == from) {
            Some(at) => line(
                f,
                "growth",
                format_args!(
                    "from {from} members, {} of {} cells of each member have moved",
                    at.moved_cells, at.end_cells
                ),
            )?,
            None => line(f, "growth", format_args!("from {from} members, complete"))?,
        }
    }
    Ok(())
}

fn slot_lines(f: &mut fmt::Formatter<'_>, superblock: &Superblock) -> fmt::Result {
    for entry in &superblock.members {
        let since = match entry.role {
            Role::Out => format!(" since generation {}", entry.out_since),
            _ => String::new(),
        };
        let label = format!("slot {}", entry.slot);
        let role = entry.role.name();
        let whole = stated(entry.stated_atomic_bytes);
        let serial = match entry.serial.to_string() {
            serial if serial.is_empty() => serial,
            serial => format!(" serial {serial}"),
        };
        line(f, &label, format_args!("{role}{since} {}{serial}{whole}", entry.uuid))?;
    }
    Ok(())
}

fn line(f: &mut fmt::Formatter<'_>, label: &str, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{label:<14} {text}")
}
