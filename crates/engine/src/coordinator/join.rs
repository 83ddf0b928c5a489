//! A device takes a slot: a new member to rebuild, a replacement to copy to, or a returning member.
//!
//! What must stay true, so that no write is missed:
//! 1. Every worker has the device before the slot takes writes for it. So a write that is planned
//!    for the device reaches it on any worker.
//! 2. The job begins only after every worker has answered once more. A write that was planned
//!    without the device has then entered its region, and holds its row lock until it has ended.
//! 3. A step of the job takes the stripe's row lock, so it reads after such a write has ended. It
//!    also visits the stripes of entered regions that look unwritten (`background/course.rs`).
//!
//! The slot takes writes a moment before the members record the joining device. That does no harm:
//! nothing is read from the device before the job has reached the stripe. After a crash in between,
//! the device does not belong to the array.

use super::{map_writer, proof, record, spare_states};
use crate::array::Array;
use crate::background::table;
use crate::blank::Blanking;
use crate::canary::{Canary, sings};
use crate::config::ForeignSignature;
use crate::coordinator::messages::everywhere;
use crate::devices::{SlotDevice, SlotDevices, Tags};
use crate::ends::ReadEnds;
use crate::error::Refusal;
use crate::event::names;
use crate::local_array::LocalArray;
use crate::member::{SlotEvent, SlotState};
use crate::read_only::takes_changes;
use crate::{background, control_io, map_pages};
use ashlar_device::{Command, Device, DeviceFacts, Opened};
use ashlar_ondisk::assembly::{has_only_missed, recorded_sizes};
use ashlar_ondisk::format::{
    FLUSH_MARKS, MEMBER_BYTES_MIN, MEMBER_ENTRIES_MAX, TAIL_COPIES_BYTES, member_bytes,
};
use ashlar_ondisk::{
    Choice, ConsistencyPolicy, Features, FlushMark, JobKind, JobRecord, MemberEntry, MemberEvent,
    Role, Superblock, Text,
};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_u64};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// Code of the refusal when the slot is not free for the device.
pub(crate) const SLOT_TAKEN: &str = "slot.taken";

/// Cells of lost members are on distributed spares, or on their way there: no member that serves
/// is copied to another device meanwhile.
pub(crate) const MEMBERS_LOST: &str = "array.members_lost";

/// A new device, and how many bytes it is stated to write whole or not at all; 0: nothing is.
pub(crate) struct Stated {
    pub(crate) opened: Arc<dyn Opened>,
    pub(crate) atomic_write_bytes: u32,
    /// What comes before the first write. A spare is blank but for its superblock, which stays
    /// until the array has it.
    pub(crate) blanking: Option<Blanking>,
}

/// What is stated matters to a log; a spare may come into an array that keeps none.
fn of_use(array: &Array, atomic_write_bytes: u32) -> u32 {
    if array.log.is_some() { atomic_write_bytes } else { 0 }
}

/// Whether a device with these facts may take the slot now, as it is rebuilt or copied to.
///
/// # Errors
/// The refusal that [`as_rebuilding`] or [`as_replacement`] would end in.
pub(crate) fn may_take(
    local: &LocalArray,
    member: MemberIdx,
    facts: &DeviceFacts,
) -> Result<(), Refusal> {
    check(local, facts)?;
    if local.array.slot(member).state() == SlotState::Out {
        return expect_state(local, member, SlotState::Out);
    }
    expect_no_losses(local)?;
    expect_state(local, member, SlotState::InSync)
}

/// A new device takes a slot that is out, and is rebuilt.
///
/// # Errors
/// If the slot is not out, the device is too small or fails, or the members cannot record it.
pub(crate) async fn as_rebuilding(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    joining_device: Stated,
) -> Result<(), Refusal> {
    let uuid = local.worker.draw_uuid();
    with_uuid(local, member, joining_device, uuid).await
}

/// The same for a device that has an identity already: a spare.
///
/// # Errors
/// As [`as_rebuilding`].
pub(crate) async fn with_uuid(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    joining_device: Stated,
    uuid: Uuid,
) -> Result<(), Refusal> {
    let (entry, prepared) = made_ready(local, member, SlotState::Out, joining_device, uuid).await?;
    fill(local, member, prepared, move |superblock| enlist(superblock, entry)).await
}

/// A device is made ready for a slot in this state, and the table is to list it like that.
///
/// # Errors
/// As [`as_rebuilding`].
async fn made_ready(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    state: SlotState,
    Stated { opened, atomic_write_bytes, blanking }: Stated,
    uuid: Uuid,
) -> Result<(MemberEntry, Prepared), Refusal> {
    let facts = opened.facts().clone();
    check(local, &facts)?;
    expect_state(local, member, state)?;
    if let Some(blanking) = blanking {
        blanking.run(&local.worker, opened.attach(&local.worker.handle).as_ref()).await?;
    }
    prepare(local, &opened, uuid).await?;
    let role = if state == SlotState::InSync { Role::Replacement } else { Role::Rebuilding };
    let entry = MemberEntry::new(uuid, member, role)
        .on_device(member_bytes(facts.size_bytes), serial_of(&facts));
    let log_tag = local.worker.draw_log_tag();
    let stated_atomic_bytes = of_use(&local.array, atomic_write_bytes);
    let entry = MemberEntry { log_tag, stated_atomic_bytes, ..entry };
    Ok((entry, Prepared { opened, uuid, log_tag }))
}

/// A member that was put out of its slot comes back to it with what it held; only stripes of dirty
/// regions are rebuilt.
///
/// # Errors
/// If the device is not that member, or has been used otherwise meanwhile, as one of the
/// `signatures` on it tells; else as
/// [`as_rebuilding`].
pub(crate) async fn returned(
    local: &Rc<LocalArray>,
    opened: Arc<dyn Opened>,
    signatures: &[ForeignSignature],
) -> Result<(), Refusal> {
    check(local, opened.facts())?;
    let (member, uuid) = recognise(local, &opened, signatures).await?;
    expect_state(local, member, SlotState::Out)?;
    prepare(local, &opened, uuid).await?;
    let log_tag = local.worker.draw_log_tag();
    let serial = serial_of(opened.facts());
    let enlist = move |superblock: &mut Superblock| {
        superblock.record(uuid, MemberEvent::Readded).expect("it is listed as out");
        let entry = superblock.members.iter_mut().find(|entry| entry.uuid == uuid);
        let entry = entry.expect("it is listed");
        entry.log_tag = log_tag;
        // It may hang on another adapter, which shows another serial.
        if !serial.is_empty() {
            entry.serial = serial;
        }
        enter_job(superblock, JobKind::Rebuild, member, uuid);
    };
    fill(local, member, Prepared { opened, uuid, log_tag }, enlist).await
}

/// A new device is filled while the slot's own still serves, then takes its place.
///
/// # Errors
/// If the slot is not in sync or is being replaced already; else as [`as_rebuilding`].
pub(crate) async fn as_replacement(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    joining_device: Stated,
) -> Result<(), Refusal> {
    let uuid = local.worker.draw_uuid();
    replacement_with_uuid(local, member, joining_device, uuid).await
}

/// The same for a device that has an identity already: a spare.
///
/// # Errors
/// As [`as_replacement`].
pub(crate) async fn replacement_with_uuid(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    joining_device: Stated,
    uuid: Uuid,
) -> Result<(), Refusal> {
    expect_no_losses(local)?;
    let (entry, Prepared { opened, .. }) =
        made_ready(local, member, SlotState::InSync, joining_device, uuid).await?;
    let facts = opened.facts().clone();
    let gate = local.coordinator().gate().await;
    expect_state(local, member, SlotState::InSync)?;
    expect_no_losses(local)?;
    let slot = local.array.slot(member);
    let device_epoch = slot.draw_device_epoch();
    slot.set_nothing_rebuilt();
    slot.set_replacement_device_epoch(device_epoch);
    let tags = Tags::of(&local.coordinator().superblock(), &entry);
    // Under the gate, so nothing that moved counts before this or after it.
    if let Some(cells) = &local.array.spare_cells {
        cells.call_off_moving();
    }
    everywhere(local, move |local| {
        let device = opened.attach(&local.worker.handle);
        let replacement = Some(SlotDevice { device, tags });
        local.set_devices(member, SlotDevices { replacement, ..local.slot_devices(member) });
        local.set_device_epochs(member, (local.device_epochs(member).0, device_epoch));
    })
    .await;
    greet(local, local.replacement(member)).await;
    let recorded = record::update(local, |superblock| enlist(superblock, entry)).await;
    let is_listed = local.coordinator().superblock().joining_device(member).is_some();
    drop(gate);
    if recorded.is_err() || !is_listed {
        super::detach_replacement(local, member);
        return Err(did_not_take(&facts));
    }
    begin(local, member, &facts, "replacement").await;
    background::start_copy(local, entry);
    Ok(())
}

/// The members list a device only when it has a flush mark.
async fn greet(local: &Rc<LocalArray>, joined: Option<Rc<dyn Device>>) {
    if let Some(device) = joined {
        proof::greet(local, device.as_ref()).await;
    }
}

/// Bytes that a device needs to be a member.
pub(crate) fn bytes_needed(superblock: &Superblock) -> u64 {
    (superblock.areas.data.end() + TAIL_COPIES_BYTES).max(MEMBER_BYTES_MIN)
}

fn check(local: &LocalArray, facts: &DeviceFacts) -> Result<(), Refusal> {
    takes_changes(&local.array)?;
    let needed = bytes_needed(&local.coordinator().superblock());
    if member_bytes(facts.size_bytes) < needed {
        let (path, has) = (&facts.path, facts.size_bytes);
        return Err(Refusal::new(
            "member.too_small",
            format!("{path} has {has} bytes, too few for a member; nothing was written"),
            format!("use a device of at least {needed} bytes"),
        ));
    }
    if u64::from(facts.logical_block_bytes) > BLOCK_BYTES {
        let (path, has) = (&facts.path, facts.logical_block_bytes);
        return Err(Refusal::new(
            "member.large_blocks",
            format!("{path} has blocks of {has} bytes; nothing was written"),
            format!("use a device with blocks of at most {BLOCK_BYTES} bytes"),
        ));
    }
    Ok(())
}

/// The slot is in this state and nobody is on the way into it.
fn expect_state(local: &LocalArray, member: MemberIdx, wanted: SlotState) -> Result<(), Refusal> {
    let state = local.array.slot(member).state();
    let is_free = local.coordinator().superblock().joining_device(member).is_none()
        && local.replacement(member).is_none();
    if state == wanted && is_free {
        return Ok(());
    }
    let name = local.array.name();
    let what = if is_free {
        format!("slot {member} of array '{name}' is {state}, not {wanted}; nothing was changed")
    } else {
        format!("a device is on its way into slot {member} of array '{name}'; nothing was changed")
    };
    Err(Refusal::new(SLOT_TAKEN, what, "see `ashlar status` for what each slot does"))
}

/// A copy of a member carries its own strips alone, not the cells that are on its spare space.
fn expect_no_losses(local: &LocalArray) -> Result<(), Refusal> {
    let cells = local.array.spare_cells.as_ref();
    if cells.is_none_or(|cells| !cells.has_losses()) {
        return Ok(());
    }
    let name = local.array.name();
    Err(Refusal::new(
        MEMBERS_LOST,
        format!(
            "array '{name}' has lost members on its distributed spares, and a copy of a member in \
             service would leave these cells behind; nothing was changed"
        ),
        "replace the lost members first; to replace this one all the same, fail it first",
    ))
}

fn serial_of(facts: &DeviceFacts) -> Text<{ ashlar_ondisk::format::SERIAL_BYTES }> {
    Text::cut(facts.serial.as_deref().unwrap_or(""))
}

/// Maps of an earlier life go; pages with bits are written once the device takes part.
async fn prepare(
    local: &Rc<LocalArray>,
    opened: &Arc<dyn Opened>,
    uuid: Uuid,
) -> Result<(), Refusal> {
    let device = opened.attach(&local.worker.handle);
    let (worker, path) = (&local.worker, &opened.facts().path);
    let superblock = local.coordinator().superblock();
    // What it says of an earlier life must not be taken for marks of this one; a member that comes
    // back has its own.
    let is_back = superblock.member(uuid).is_some_and(|entry| entry.role == Role::Out);
    let marks = if is_back { Extent::default() } else { FLUSH_MARKS };
    // Nor may a heartbeat of somebody who ran it elsewhere.
    let areas = superblock.areas;
    for area in [areas.heartbeat, areas.write_intent, areas.written_map, areas.grown_map, marks] {
        let zeroed = control_io::zero(worker, device.as_ref(), area).await;
        zeroed.map_err(|fault| control_io::refused(path, "clearing its maps", fault))?;
    }
    let made = map_pages::make(worker, device.as_ref(), &superblock, uuid).await;
    made.map_err(|fault| control_io::refused(path, "making its written map", fault))?;
    let flushed = control_io::run(worker, device.as_ref(), 0, Command::Flush).await.result;
    flushed.map_err(|fault| control_io::refused(path, "a flush", fault))
}

/// A device that is about to take a slot, and its names.
struct Prepared {
    opened: Arc<dyn Opened>,
    uuid: Uuid,
    log_tag: u64,
}

/// The device takes the slot, which is out, and its rebuild begins. `enlist` says so in the
/// superblock.
async fn fill(
    local: &Rc<LocalArray>,
    member: MemberIdx,
    Prepared { opened, uuid, log_tag }: Prepared,
    enlist: impl FnOnce(&mut Superblock),
) -> Result<(), Refusal> {
    let facts = opened.facts().clone();
    let spare_turn = local.coordinator().spare_gate.acquire().await;
    // No page may say that a cell is in place on a device that was here before.
    spare_states::store_all(local).await.map_err(|_| did_not_take(&facts))?;
    let gate = local.coordinator().gate().await;
    expect_state(local, member, SlotState::Out)?;
    let tags = Tags { log: log_tag, pages: local.coordinator().superblock().page_tag(uuid) };
    let (array, slot) = (&local.array, local.array.slot(member));
    let device_epoch = slot.draw_device_epoch();
    slot.set_nothing_rebuilt();
    array.set_device_epoch(member, device_epoch);
    // A copy to a device that was to replace the one before may still end, and must not speak of
    // this one.
    if !sings(Canary::CopySpeaksOn) {
        slot.set_replacement_device_epoch(device_epoch);
    }
    everywhere(local, move |local| {
        let device = opened.attach(&local.worker.handle);
        let current = Some(SlotDevice { device, tags });
        local.set_devices(member, SlotDevices { current, replacement: None });
        local.set_device_epochs(member, (device_epoch, device_epoch));
    })
    .await;
    let joined = SlotState::Out.next(SlotEvent::DeviceJoined).expect("the slot is out");
    array.set_slot_state(member, joined);
    greet(local, local.device(member)).await;
    let recorded = record::update(local, enlist).await;
    let entry = local.coordinator().superblock().member(uuid).copied();
    if recorded.is_err() {
        // The members could not be told; to them the slot is out as before.
        array.set_slot_state(member, SlotState::Out);
        super::on_every_local(local, move |local| {
            local.set_devices(member, SlotDevices::default());
        });
    }
    drop(gate);
    let has_joined = slot.device_epoch() == device_epoch && slot.state() == SlotState::Rebuilding;
    let Some(entry) = entry.filter(|entry| has_joined && entry.role == Role::Rebuilding) else {
        return Err(did_not_take(&facts));
    };
    drop(spare_turn);
    begin(local, member, &facts, "rebuilding").await;
    let policy = local.coordinator().superblock().policy;
    let is_readded = entry.out_since != 0 && policy != ConsistencyPolicy::None;
    if local.array.spare_cells.is_some() {
        background::device_joined(local, member, is_readded).await;
    } else {
        background::start_rebuild(local, entry, is_readded);
    }
    Ok(())
}

/// The joining device is recorded: it gets the maps, and every worker is heard from once more.
async fn begin(local: &Rc<LocalArray>, member: MemberIdx, facts: &DeviceFacts, role: &'static str) {
    let fields =
        vec![("slot", member.to_string()), ("path", facts.path.clone()), ("role", role.to_owned())];
    local.array.record(names::MEMBER_JOINED, fields);
    // A device that cannot take the maps goes out by itself, and its job with it.
    let _kept = map_writer::write_all_pages(local).await;
    everywhere(local, |_| {}).await;
}

fn did_not_take(facts: &DeviceFacts) -> Refusal {
    Refusal::new(
        "member.not_joined",
        format!("{} could not be made a member: its superblock could not be written", facts.path),
        "check the device (dmesg, smartctl) and the state of the array (`ashlar status`)",
    )
}

/// List a new member and the job that fills it; a holder that is out is dismissed.
fn enlist(superblock: &mut Superblock, joining_device: MemberEntry) {
    let slot = joining_device.slot;
    // A device that was here before, and was dismissed, starts a new life.
    superblock.members.retain(|entry| entry.uuid != joining_device.uuid);
    let out = superblock.holder(slot).filter(|holder| holder.role == Role::Out).copied();
    if let Some(holder) = out {
        superblock.record(holder.uuid, MemberEvent::Dismissed).expect("it is out");
    }
    if to_u64(superblock.members.len()) == MEMBER_ENTRIES_MAX {
        let oldest = superblock.members.iter().position(|entry| entry.role == Role::Removed);
        superblock.members.remove(oldest.expect("slots are fewer than entries"));
    }
    superblock.members.push(joining_device);
    // Who does not know of the statement must not drop it.
    if joining_device.stated_atomic_bytes != 0 {
        superblock.features.incompatible |= Features::PARITY_ONLY_RECORDS;
    }
    let kind =
        if joining_device.role == Role::Rebuilding { JobKind::Rebuild } else { JobKind::Replace };
    enter_job(superblock, kind, slot, joining_device.uuid);
}

fn enter_job(superblock: &mut Superblock, kind: JobKind, slot: MemberIdx, uuid: Uuid) {
    let job = JobRecord { member: Some(uuid), slot: Some(slot), ..JobRecord::new(kind) };
    // In a full table there is no room: then the job begins anew after a restart.
    table::put(superblock, job);
}

/// The member on the device and its slot, if it was put out of that and nobody started it since.
async fn recognise(
    local: &Rc<LocalArray>,
    opened: &Arc<dyn Opened>,
    signatures: &[ForeignSignature],
) -> Result<(MemberIdx, Uuid), Refusal> {
    if local.array.slots_out().is_empty() {
        let what = format!("no slot of array '{}' is out; nothing was changed", local.array.name());
        return Err(Refusal::new("member.none_out", what, "see `ashlar status`"));
    }
    let path = &opened.facts().path;
    let device = opened.attach(&local.worker.handle);
    let (choice, mark) = read_superblock(local, device.as_ref()).await;
    let listed = local.coordinator().superblock();
    let stranger = |why: &str| {
        Refusal::new(
            "member.not_returned",
            format!("{path} {why}; nothing was written"),
            "let it take the slot as a new device (`ashlar replace`), which rebuilds all of it",
        )
    };
    let own = choice.superblock();
    let own = own.ok_or_else(|| stranger("carries no superblock that can be read"))?;
    let entry = listed
        .member(own.member_uuid)
        .filter(|entry| entry.role == Role::Out)
        .filter(|_| listed.array_uuid == own.array_uuid);
    let entry = entry.ok_or_else(|| stranger("is not a member of this array that is out"))?;
    if entry.bytes > member_bytes(opened.facts().size_bytes) {
        return Err(stranger("is smaller than the member was"));
    }
    let stale = |why: &str| {
        let (name, slot) = (local.array.name(), entry.slot);
        Refusal::new(
            "member.not_returned",
            format!("{path} {why}; nothing was written"),
            format!("rebuild all of it: ashlar replace {name} {slot} {path} --destroy {path}"),
        )
    };
    let is_guarded = |it: &&ForeignSignature| it.offset.is_some_and(|at| own.guards(at));
    if let Some(foreign) = signatures.iter().find(is_guarded) {
        let words = &foreign.words;
        return Err(stale(&format!(
            "carries {words}, so it was given to somebody else since, who may have written anywhere"
        )));
    }
    if choice.is_cut_short() {
        return Err(stale("was cut short and made longer again, so data on it is lost"));
    }
    if !has_only_missed(own, &listed, local.coordinator().found_generation) {
        return Err(stale(why_not(own)));
    }
    if mark.map_or(0, |mark| mark.sequence) < entry.out_flushed && !sings(Canary::OlderCopyTrusted)
    {
        return Err(stale(
            "is an older copy of that member: it lacks writes that the others know to be flushed \
             on it",
        ));
    }
    Ok((entry.slot, entry.uuid))
}

/// Why a member that is out may not come back with what it holds.
fn why_not(own: &Superblock) -> &'static str {
    match own.member(own.member_uuid).map(|entry| entry.role) {
        Some(Role::Rebuilding) => {
            "was being rebuilt when it was lost, and it is unknown which writes it has"
        }
        _ => "was started without the others meanwhile",
    }
}

async fn read_superblock(
    local: &Rc<LocalArray>,
    device: &dyn Device,
) -> (Choice, Option<FlushMark>) {
    let mut ends = ReadEnds::read(&local.worker, device).await;
    let sizes = recorded_sizes(std::iter::once(&local.coordinator().superblock()));
    ends.look_before(&local.worker, device, &sizes).await;
    let ReadEnds { head, choice, .. } = ends;
    let mark =
        choice.superblock().and_then(|own| FlushMark::newest_in(head.as_deref(), own.array_uuid));
    (choice, mark)
}
