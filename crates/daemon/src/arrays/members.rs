//! Calls about the members of a running array, and about spares.
//!
//! What must stay true: a member is named by its slot, path or serial. A repeated command says that
//! it was carried out already, and changes nothing. A dry run looks at the device and at the
//! statement about it, and writes nothing.

use super::start::not_remembered;
use super::{Arrays, partitions};
use crate::aside::aside;
use crate::backend::Serves;
use crate::drives::light::Wanted;
use crate::partition::drive;
use crate::{convert, domains, look, memory_devices, repeats};
use ashlar_api::ApiError;
use ashlar_api::v1::Done;
use ashlar_api::v1::member::{Fail, Locate, ReAdd, Replace};
use ashlar_api::v1::spare::{SpareAdd, SpareRemove};
use ashlar_device::{Bay, Physical};
use ashlar_engine::{MemberStatus, NewDevice, SlotState, SpareStatus};
use ashlar_units::{ByteSize, MemberIdx};
use std::path::PathBuf;

impl Serves<Fail> for Arrays {
    async fn serve(&self, call: Fail) -> Result<Done, ApiError> {
        let members = self.members(&call.array).await?;
        let slot = Arrays::slot(&call.array, &members, &call.member)?;
        if members.get(slot.at()).is_some_and(|member| member.state == SlotState::Out) {
            let message =
                format!("slot {slot} of '{}' is out already; nothing was changed", call.array);
            return Ok(Done::unchanged(message));
        }
        self.engine.fail(&call.array, slot).await.map_err(convert::refusal)?;
        let uuid = self.uuid_of(&call.array).await;
        uuid.into_iter().for_each(|uuid| self.gather.failed(uuid, slot));
        Ok(Done::changed(format!("slot {slot} of '{}' is out", call.array)))
    }
}

impl Arrays {
    /// Put the device, as it is, into the slot.
    pub(super) async fn replace(&self, mut call: Replace) -> Result<Done, ApiError> {
        let members = self.members(&call.array).await?;
        check_kind(&members, &call.device)?;
        let new_memory = self.memory.make(std::slice::from_mut(&mut call.device))?;
        let slot = Arrays::slot(&call.array, &members, &call.member)?;
        if let Some(has) = slot_of(&members, &call.device).await {
            let is_asked = is_filled(&members, has);
            let slots = Slots { has, wanted: slot, is_asked };
            return already(&call.array, &call.device, slots);
        }
        self.refuse_if_in_use(&call.device).await?;
        let device = new_device(&call.device, call.destroy, call.atomic_write_bytes);
        // Memory is made for this, or it is this process's own.
        if call.dry_run && !memory_devices::is_memory(&call.device) {
            may_take(&call.device, call.destroy).await?;
        }
        if call.dry_run {
            let would = self.engine.would_replace_by(&call.array, slot, &device).await;
            would.map_err(convert::refusal)?;
        }
        let mut stated = self.said_of(Some(&call.array), &device).await?;
        stated.push_str(&self.where_it_is(&call, slot).await?);
        if call.dry_run {
            let message = format!(
                "{} would be put into slot {slot}{stated}; nothing was written",
                call.device
            );
            return Ok(Done::unchanged(message));
        }
        let replaced = self.engine.replace_by(&call.array, slot, device).await;
        replaced.map_err(convert::refusal)?;
        new_memory.keep();
        self.slot_filled(&call.array, slot).await;
        Ok(Done::changed(format!(
            "{} is being filled for slot {slot} of '{}'{stated}",
            call.device, call.array
        )))
    }
}

impl Arrays {
    /// What is to be known of the failure domain that a new device is in.
    async fn where_it_is(&self, call: &Replace, slot: MemberIdx) -> Result<String, ApiError> {
        let all = self.status_of_all().await?;
        let Some(array) = all.iter().find(|array| array.name == call.array) else {
            return Ok(String::new());
        };
        let path = PathBuf::from(&call.device);
        let bay = aside(move || Bay::at(&path)).await;
        domains::check_replacement(array, slot, &bay, call.other_domain)
    }
}

impl Serves<ReAdd> for Arrays {
    async fn serve(&self, call: ReAdd) -> Result<Done, ApiError> {
        let device = partitions::inside_of(call.device.clone()).await;
        let is_other = device != call.device;
        let done = self.re_add(ReAdd { device: device.clone(), ..call }).await?;
        Ok(Done { device: is_other.then_some(device), ..done })
    }
}

impl Arrays {
    async fn re_add(&self, call: ReAdd) -> Result<Done, ApiError> {
        let members = self.members(&call.array).await?;
        check_kind(&members, &call.device)?;
        self.memory.check(std::slice::from_ref(&call.device))?;
        if let Some(has) = slot_of(&members, &call.device).await {
            let slots = Slots { has, wanted: has, is_asked: true };
            return already(&call.array, &call.device, slots);
        }
        self.engine.re_add(&call.array, &call.device).await.map_err(convert::refusal)?;
        let members = self.members(&call.array).await?;
        if let Some(slot) = slot_of(&members, &call.device).await {
            self.slot_filled(&call.array, slot).await;
        }
        Ok(Done::changed(format!(
            "{} is back in '{}'; the blocks that it missed are being written",
            call.device, call.array
        )))
    }
}

impl Serves<Locate> for Arrays {
    async fn serve(&self, call: Locate) -> Result<Done, ApiError> {
        let members = self.members(&call.array).await?;
        let slot = Arrays::slot(&call.array, &members, &call.member)?;
        let wanted = members.get(slot.at()).and_then(wanted).ok_or_else(|| {
            let message = format!("slot {slot} of '{}' has no drive that is known", call.array);
            ApiError::new("member.no_light", message, "no light was switched; see 'ashlar status'")
        })?;
        let tools = self.watch.tools.clone();
        let told = aside(move || tools.light(&wanted, !call.off)).await?;
        Ok(Done::changed(told))
    }
}

/// The drive that is, or was last, in a slot.
fn wanted(member: &MemberStatus) -> Option<Wanted> {
    let MemberStatus { path, serial, bay, last_device, .. } = member.clone();
    let here = Wanted { path, serial, bay, host: None, is_here: true };
    let last = last_device.filter(|last| !last.path.is_empty()).map(|last| Wanted {
        path: last.path,
        serial: last.serial,
        bay: last.bay,
        host: last.host,
        is_here: false,
    });
    last.or(Some(here).filter(|here| !here.path.is_empty()))
}

impl Arrays {
    /// Make the device, as it is, a spare.
    pub(super) async fn add_spare(&self, call: SpareAdd) -> Result<Done, ApiError> {
        if memory_devices::is_memory(&call.device) {
            return Err(memory_devices::no_spare(&call.device));
        }
        if is_among(self.engine.spares(), &call.device).await {
            return Ok(Done::unchanged(format!("{} is a spare already", call.device)));
        }
        self.refuse_if_in_use(&call.device).await?;
        // What an array has dismissed is nobody's: no need to say so by name.
        let may_destroy = call.destroy || self.is_dismissed(&call.device).await;
        let device = new_device(&call.device, may_destroy, call.atomic_write_bytes);
        if call.dry_run {
            may_take(&call.device, may_destroy).await?;
            let would = self.engine.would_add_spare(&call.pool, &device).await;
            would.map_err(convert::refusal)?;
        }
        let stated = self.said_of(None, &device).await?;
        if call.dry_run {
            let message = format!("{} would be a spare{stated}; nothing was written", call.device);
            return Ok(Done::unchanged(message));
        }
        let added = self.engine.add_spare_device(&call.pool, device).await;
        added.map_err(convert::refusal)?;
        let kept = self.gather.remembered.remember_spare(&call.device).await;
        let lacks = kept.err().map(|error| format!("; {}", not_remembered(&error)));
        let lacks = lacks.unwrap_or_default();
        Ok(Done::changed(format!("{} waits for a slot{stated}{lacks}", call.device)))
    }
}

impl Serves<SpareRemove> for Arrays {
    async fn serve(&self, mut call: SpareRemove) -> Result<Done, ApiError> {
        call.device = partitions::inside_of(call.device).await;
        self.engine.remove_spare(&call.device).await.map_err(convert::refusal)?;
        self.gather.remembered.forget_spare(&call.device);
        Ok(Done::changed(format!("{} is no spare any more", call.device)))
    }
}

/// That the device is of the kind that the members are.
fn check_kind(members: &[MemberStatus], device: &str) -> Result<(), ApiError> {
    let paths: Vec<&str> = members.iter().map(|member| member.path.as_str()).collect();
    memory_devices::check_newcomer(&paths, device)
}

/// The slot in which the device serves, or on its way into which it is.
pub(super) async fn slot_of(members: &[MemberStatus], device: &str) -> Option<MemberIdx> {
    let (members, device) = (members.to_vec(), device.to_owned());
    aside(move || repeats::slot_of(&members, &device)).await
}

pub(super) async fn is_among(spares: Vec<SpareStatus>, device: &str) -> bool {
    let device = device.to_owned();
    aside(move || {
        let asked = Physical::of(&device);
        spares.iter().any(|spare| Physical::of(&spare.path) == asked)
    })
    .await
}

/// That the device may be written.
async fn may_take(device: &str, may_destroy: bool) -> Result<(), ApiError> {
    let device = device.to_owned();
    aside(move || look::may_take(&device, may_destroy)).await
}

/// Where a device is, and where it was to be.
struct Slots {
    has: MemberIdx,
    wanted: MemberIdx,
    /// It was put there, so that it is there is what was asked for.
    is_asked: bool,
}

/// What is said of a device that is in a slot.
fn already(array: &str, device: &str, slots: Slots) -> Result<Done, ApiError> {
    let Slots { has, wanted, is_asked } = slots;
    let message = format!("{device} is in slot {has} of '{array}' already; nothing was changed");
    if has == wanted && is_asked {
        return Ok(Done::unchanged(message));
    }
    let hint = format!("name a device that no array uses for slot {wanted}");
    Err(ApiError::new("device.in_use", message, hint))
}

/// A device is on its way into the slot.
fn is_filled(members: &[MemberStatus], slot: MemberIdx) -> bool {
    members
        .get(slot.at())
        .is_some_and(|member| member.state == SlotState::Rebuilding || member.replacement.is_some())
}

impl Arrays {
    /// That no running array has the device, under this or another name.
    ///
    /// # Errors
    /// One line that says which one has it.
    pub(super) async fn refuse_if_in_use(&self, device: &str) -> Result<(), ApiError> {
        for array in self.status_of_all().await? {
            if let Some(slot) = slot_of(&array.members, device).await {
                let name = &array.name;
                let message =
                    format!("{device} is in slot {slot} of '{name}'; nothing was written");
                let hint = "name a device that no array uses";
                return Err(ApiError::new("device.in_use", message, hint));
            }
        }
        Ok(())
    }

    /// Whether the device was a member of a running array that has dismissed it.
    pub(super) async fn is_dismissed(&self, device: &str) -> bool {
        let device = device.to_owned();
        match aside(move || look::member(&device)).await {
            Some(superblock) => self.engine.is_dismissed(superblock).await,
            None => false,
        }
    }

    /// The members of a running array.
    pub(super) async fn members(&self, array: &str) -> Result<Vec<MemberStatus>, ApiError> {
        let found = self.status_of_all().await?.into_iter().find(|it| it.name == array);
        found.map(|it| it.members).ok_or_else(|| ApiError::no_array(array))
    }

    /// The slot that `member` means: a number, a path or a serial. A drive stands for its
    /// partition.
    fn slot(array: &str, members: &[MemberStatus], member: &str) -> Result<MemberIdx, ApiError> {
        if let Ok(slot) = member.parse::<u16>() {
            return Ok(MemberIdx(slot));
        }
        let is_path = |path: &str| path == member || drive::is_first_of(path, member);
        let is_last = |it: &MemberStatus| {
            it.last_device
                .as_ref()
                .is_some_and(|it| is_path(&it.path) || it.serial.as_deref() == Some(member))
        };
        let is_it = |it: &&MemberStatus| {
            is_path(&it.path) || it.serial.as_deref() == Some(member) || is_last(it)
        };
        members.iter().find(is_it).map(|it| it.slot).ok_or_else(|| {
            let message = format!("array '{array}' has no member '{member}'; nothing was changed");
            let hint =
                format!("see 'ashlar status {array} --members' for slots, paths and serials");
            ApiError::new("member.unknown", message, hint)
        })
    }

    /// What comes of a statement about a device, to follow what becomes of that; nothing if nothing
    /// is stated.
    async fn said_of(&self, array: Option<&str>, device: &NewDevice) -> Result<String, ApiError> {
        let in_vain = self.engine.look_at_statement(array, device).await;
        let in_vain = in_vain.map_err(convert::refusal)?;
        let size = ByteSize(device.atomic_write_bytes.into());
        Ok(match device.atomic_write_bytes {
            0 => String::new(),
            _ if in_vain => format!(
                "; that it writes {size} whole makes no difference, for it has a volatile cache"
            ),
            _ => {
                format!(
                    "; Ashlar trusts that it writes {size} whole from the array's next start on"
                )
            }
        })
    }
}

fn new_device(path: &str, may_destroy: bool, atomic_write_bytes: Option<u32>) -> NewDevice {
    let stated = atomic_write_bytes.unwrap_or(0);
    NewDevice { atomic_write_bytes: stated, ..NewDevice::at(path, may_destroy) }
}
