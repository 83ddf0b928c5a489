//! Commands of an operator to a running array: replace a member, return one, keep spares, scrub,
//! pause.
//!
//! What must stay true: a device is written only after it was proved to be unused
//! (`joining_device.rs`), or after the operator named it. Each command runs on the array's
//! coordinator.

use crate::array::Array;
use crate::blank::Blanking;
use crate::config::ArrayTuning;
use crate::control_io::refused;
use crate::coordinator::{join, record};
use crate::ends::ReadEnds;
use crate::engine::Engine;
use crate::error::Refusal;
use crate::event::names;
use crate::joining_device::open_alone;
use crate::local_array::LocalArray;
use crate::member::SlotState;
use crate::read_only::takes_changes;
use crate::spare::{Spare, SpareStatus};
use crate::worker::Worker;
use crate::{background, control_io, joining_device, stated};
use ashlar_device::{DeviceFacts, Opened};
use ashlar_ondisk::format::member_bytes;
use ashlar_ondisk::{ArrayName, Features, JobKind, Label, Role, SpareSuperblock, Superblock, Text};
use ashlar_units::MemberIdx;
use std::rc::Rc;
use std::sync::Arc;

/// A device that is to take a slot or to wait for one, and what the operator says of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDevice {
    /// Its path.
    pub path: String,
    /// What is on it may go.
    pub may_destroy: bool,
    /// Bytes that the device writes whole or not at all, at multiples of them, even when power
    /// fails: a power of two of at least 4 KiB. Ashlar trusts this from the next start of its array
    /// on. 0: nothing is stated.
    pub atomic_write_bytes: u32,
}

impl NewDevice {
    /// A device without a statement.
    pub fn at(path: &str, may_destroy: bool) -> NewDevice {
        NewDevice { path: path.to_owned(), may_destroy, atomic_write_bytes: 0 }
    }
}

impl Engine {
    /// Put the device at `path` into a slot: as the target of a copy while the slot's own device
    /// still serves, or to be rebuilt if the slot is out. `path` may be a spare. Nothing is stated
    /// of it.
    ///
    /// # Errors
    /// If the device is somebody's and `may_destroy` is not said, is too small, or cannot be
    /// written.
    pub async fn replace(
        &self,
        name: &str,
        member: MemberIdx,
        path: &str,
        may_destroy: bool,
    ) -> Result<(), Refusal> {
        self.replace_by(name, member, NewDevice::at(path, may_destroy)).await
    }

    /// The same for a device that may have a statement. A spare keeps its statement.
    ///
    /// # Errors
    /// As [`replace`](Self::replace); if the array keeps no log, or the device reports less than is
    /// stated.
    pub async fn replace_by(
        &self,
        name: &str,
        member: MemberIdx,
        device: NewDevice,
    ) -> Result<(), Refusal> {
        let array = self.array(name)?;
        check_slot(&array, member)?;
        self.check_use(&array, device.atomic_write_bytes).await?;
        let joining_device = self.take_joining_device(device).await?;
        let put_in = async move |local: Rc<LocalArray>| {
            join::may_take(&local, member, joining_device.opened.facts())?;
            match local.array.slot(member).state() {
                SlotState::Out => join::as_rebuilding(&local, member, joining_device).await,
                _ => join::as_replacement(&local, member, joining_device).await,
            }
        };
        self.on_coordinator_of(&array, put_in).await?
    }

    /// Whether [`replace_by`](Self::replace_by) would begin. Nothing is written.
    ///
    /// # Errors
    /// The refusal that it would end in, but for what shows only when the device is written.
    pub async fn would_replace_by(
        &self,
        name: &str,
        member: MemberIdx,
        device: &NewDevice,
    ) -> Result<(), Refusal> {
        let array = self.array(name)?;
        check_slot(&array, member)?;
        self.check_use(&array, device.atomic_write_bytes).await?;
        let facts = self.facts_of(&device.path).await?;
        stated::check_device(device.atomic_write_bytes, &facts)?;
        let may = async move |local: Rc<LocalArray>| join::may_take(&local, member, &facts);
        self.on_coordinator_of(&array, may).await?
    }

    /// Whether what is stated of a device would be taken, of one for the array `name` or for a
    /// pool; true if it would make no difference, because its cache may lose what it wrote. Nothing
    /// is written.
    ///
    /// # Errors
    /// The refusal that the real thing would end in, as far as it is about the statement.
    pub async fn look_at_statement(
        &self,
        name: Option<&str>,
        device: &NewDevice,
    ) -> Result<bool, Refusal> {
        let bytes = device.atomic_write_bytes;
        if bytes == 0 {
            return Ok(false);
        }
        if let Some(name) = name {
            self.check_use(&*self.array(name)?, bytes).await?;
        }
        let facts = self.facts_of(&device.path).await?;
        stated::check_device(bytes, &facts)?;
        Ok(facts.has_volatile_cache)
    }

    /// Of a spare, or of a device that can be had.
    async fn facts_of(&self, path: &str) -> Result<DeviceFacts, Refusal> {
        match self.engine_state().spares.facts(path) {
            Some(facts) => Ok(facts),
            None => Ok(self.open(path).await?.facts().clone()),
        }
    }

    /// Bytes that a device needs to be a member of this array.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn bytes_needed(&self, name: &str) -> Result<u64, Refusal> {
        let array = self.array(name)?;
        let needed =
            async |local: Rc<LocalArray>| join::bytes_needed(&local.coordinator().superblock());
        self.on_coordinator_of(&array, needed).await
    }

    async fn check_use(&self, array: &Array, bytes: u32) -> Result<(), Refusal> {
        let policy = async |local: Rc<LocalArray>| local.coordinator().superblock().policy;
        stated::check_policy(bytes, self.on_coordinator_of(array, policy).await?)
    }

    /// The device, out of its pool if it is a spare; back there if it does not do what is stated of
    /// it.
    async fn take_joining_device(&self, device: NewDevice) -> Result<join::Stated, Refusal> {
        let NewDevice { path, may_destroy, atomic_write_bytes } = device;
        let spares = &self.engine_state().spares;
        let Some(spare) = spares.remove(&path) else {
            let (opened, blanking) = self.open_joining_device(&path, may_destroy).await?;
            stated::check_device(atomic_write_bytes, opened.facts())?;
            return Ok(join::Stated { opened, atomic_write_bytes, blanking: Some(blanking) });
        };
        if let Err(refusal) = stated::check_device(atomic_write_bytes, spare.opened.facts()) {
            spares.add(spare);
            return Err(refusal);
        }
        let stated = spare.record.stated_atomic_bytes;
        let atomic_write_bytes = if atomic_write_bytes == 0 { stated } else { atomic_write_bytes };
        Ok(join::Stated { opened: spare.opened, atomic_write_bytes, blanking: None })
    }

    /// Take back a member that was out: what it missed is written to it, the rest is still there.
    ///
    /// # Errors
    /// If the device is not a member of this array that is out.
    pub async fn re_add(&self, name: &str, path: &str) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let opened = self.open(path).await?;
        let (engine_state, asked) = (Arc::clone(self.engine_state()), Arc::clone(&opened));
        let look = async move |worker: Rc<Worker>| {
            joining_device::signatures_on(&worker, &engine_state, asked.as_ref()).await
        };
        let signatures = self.on_worker(0, look).await?;
        let take_back =
            async move |local: Rc<LocalArray>| join::returned(&local, opened, &signatures).await;
        self.on_coordinator_of(&array, take_back).await?
    }

    /// Make the device at `path` a spare of `pool`. Arrays that lack a member take it at once.
    /// Nothing is stated of it.
    ///
    /// # Errors
    /// If the device is somebody's and `may_destroy` is not said, is too small, or cannot be
    /// written.
    pub async fn add_spare(
        &self,
        pool: &str,
        path: &str,
        may_destroy: bool,
    ) -> Result<(), Refusal> {
        self.add_spare_device(pool, NewDevice::at(path, may_destroy)).await
    }

    /// The same for a device that may have a statement. Arrays that keep a log take the statement
    /// over.
    ///
    /// # Errors
    /// As [`add_spare`](Self::add_spare); if the device reports less than is stated.
    pub async fn add_spare_device(&self, pool: &str, device: NewDevice) -> Result<(), Refusal> {
        let pool_name = pool_name(pool)?;
        let engine_state = Arc::clone(self.engine_state());
        let NewDevice { path, may_destroy, atomic_write_bytes } = device;
        let make = async move |worker: Rc<Worker>| {
            let joining_device =
                joining_device::open(&worker, &engine_state, &path, may_destroy).await?;
            stated::check_device(atomic_write_bytes, joining_device.opened.facts())?;
            let record =
                spare_record(&worker, &engine_state, pool_name, joining_device.opened.as_ref());
            let record = record.stated_to_write_whole(atomic_write_bytes);
            write_spare(&worker, &joining_device, &record).await?;
            let fields = vec![("path", path), ("pool", pool_name.as_str().to_owned())];
            engine_state.events.record(names::SPARE_ADDED, "", fields);
            engine_state.spares.add(Spare { opened: joining_device.opened, record });
            Ok::<(), Refusal>(())
        };
        self.on_worker(0, make).await??;
        self.offer_spares().await;
        Ok(())
    }

    /// Have a device that is a spare already wait in its pool. Nothing is written.
    ///
    /// # Errors
    /// If it cannot be opened, or is no spare.
    pub async fn take_in_spare(&self, path: &str) -> Result<(), Refusal> {
        let engine_state = Arc::clone(self.engine_state());
        let path = path.to_owned();
        let look = async move |worker: Rc<Worker>| {
            let opened = open_alone(&worker, &engine_state, &path).await?;
            let ends = ReadEnds::read(&worker, opened.attach(&worker.handle).as_ref()).await;
            let Some(Label::Spare(record)) = ends.choice.newest else {
                let what = format!("{path} is no spare any more; nothing was changed");
                return Err(Refusal::new("spare.unknown", what, "look at it: `ashlar examine`"));
            };
            engine_state.spares.add(Spare { opened, record });
            Ok::<(), Refusal>(())
        };
        self.on_worker(0, look).await??;
        self.offer_spares().await;
        Ok(())
    }

    /// Whether [`add_spare_device`](Self::add_spare_device) would begin. Nothing is written.
    ///
    /// # Errors
    /// The refusal that it would end in, but for whose the device is, and what shows only when it
    /// is written.
    pub async fn would_add_spare(&self, pool: &str, device: &NewDevice) -> Result<(), Refusal> {
        let pool_name = pool_name(pool)?;
        let engine_state = Arc::clone(self.engine_state());
        let (path, stated) = (device.path.clone(), device.atomic_write_bytes);
        let look = async move |worker: Rc<Worker>| {
            let opened = open_alone(&worker, &engine_state, &path).await?;
            stated::check_device(stated, opened.facts())?;
            let record = spare_record(&worker, &engine_state, pool_name, opened.as_ref());
            encoded(&path, &record).map(drop)
        };
        self.on_worker(0, look).await?
    }

    /// Let a spare go: its superblock is erased, so that nothing takes it for a spare again.
    ///
    /// # Errors
    /// If there is no such spare, or it cannot be written.
    pub async fn remove_spare(&self, path: &str) -> Result<(), Refusal> {
        let Some(spare) = self.engine_state().spares.remove(path) else {
            let what = format!("{path} is not a spare; nothing was changed");
            return Err(Refusal::new("spare.unknown", what, "see `ashlar status` for the spares"));
        };
        let engine_state = Arc::clone(self.engine_state());
        let path = path.to_owned();
        let erase = async move |worker: Rc<Worker>| {
            let device = spare.opened.attach(&worker.handle);
            // Where it ended when it became a spare, and where it ends now.
            let sizes = [spare.record.member_bytes, device.facts().size_bytes];
            let slots = sizes.map(ashlar_ondisk::format::copy_slots);
            for slot in slots.into_iter().flatten().flatten() {
                let zeroed = control_io::zero(&worker, device.as_ref(), slot).await;
                zeroed.map_err(|fault| refused(&path, "erasing its superblock", fault))?;
            }
            engine_state.events.record(names::SPARE_REMOVED, "", vec![("path", path)]);
            Ok(())
        };
        self.on_worker(0, erase).await?
    }

    /// The spares, by pool.
    pub fn spares(&self) -> Vec<SpareStatus> {
        self.engine_state().spares.list()
    }

    /// Read everything that was ever written and compare; with `is_repairing` also put right.
    ///
    /// # Errors
    /// If a scrub runs already, or the array is read-only and repair is asked for.
    pub async fn scrub(&self, name: &str, is_repairing: bool) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let start =
            async move |local: Rc<LocalArray>| background::start_scrub(&local, is_repairing).await;
        self.on_coordinator_of(&array, start).await?
    }

    /// Pause the jobs of that kind; a copy to a replacement counts as a rebuild.
    ///
    /// # Errors
    /// If none runs.
    pub async fn pause(&self, name: &str, kind: JobKind) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let pause = async move |local: Rc<LocalArray>| {
            for (kind, slot) in jobs_of(&local.array, kind)? {
                background::pause(&local, kind, slot).await?;
            }
            Ok(())
        };
        self.on_coordinator_of(&array, pause).await?
    }

    /// Let the paused jobs of that kind go on.
    ///
    /// # Errors
    /// If none runs.
    pub async fn unpause(&self, name: &str, kind: JobKind) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let unpause = async move |local: Rc<LocalArray>| {
            for (kind, slot) in jobs_of(&local.array, kind)? {
                background::unpause(&local, kind, slot).await?;
            }
            Ok(())
        };
        self.on_coordinator_of(&array, unpause).await?
    }

    /// Let the job of this number stand still, or go on.
    ///
    /// # Errors
    /// If there is none.
    pub async fn set_job_paused(&self, name: &str, id: u64, is_on: bool) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let set = async move |local: Rc<LocalArray>| {
            let (kind, slot) = background::of_id(&local.array, id)?;
            match is_on {
                true => background::pause(&local, kind, slot).await,
                false => background::unpause(&local, kind, slot).await,
            }
        };
        self.on_coordinator_of(&array, set).await?
    }

    /// Whether a running array has dismissed the member that carries this superblock, and nobody
    /// ran it apart from the others since: its content is of no use to anybody.
    pub async fn is_dismissed(&self, own: Superblock) -> bool {
        let uuid = own.array_uuid.into_bytes();
        let Some(array) = self.arrays().into_iter().find(|it| it.identity.uuid == uuid) else {
            return false;
        };
        let ask = async move |local: Rc<LocalArray>| {
            let listed = local.coordinator().superblock();
            let entry = listed.member(own.member_uuid).filter(|it| it.role == Role::Removed);
            entry.is_some_and(|entry| {
                own.generation < entry.out_since
                    && entry.out_incarnations.contains(&own.incarnation)
            })
        };
        self.on_coordinator_of(&array, ask).await.unwrap_or(false)
    }

    /// Record another name on the members of a running array. It has it from its next start on.
    ///
    /// # Errors
    /// If the array takes no changes, or its members cannot record it.
    pub async fn rename(&self, name: &str, new: ArrayName) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let record = async move |local: Rc<LocalArray>| {
            takes_changes(&local.array)?;
            let name = local.array.name();
            let renamed = record::locked_update(&local, |next| next.array_name = new).await;
            renamed.map_err(|_| {
                let what = format!("the members of array '{name}' could not record its new name");
                Refusal::new("array.failed", what, "look at its members with `ashlar status`")
            })
        };
        self.on_coordinator_of(&array, record).await?
    }

    /// The tunables of a running array.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn tuning(&self, name: &str) -> Result<ArrayTuning, Refusal> {
        Ok(self.array(name)?.tuning.get())
    }

    /// Give a running array these tunables, until it stops. The memory for the checksum table stays
    /// as it is.
    ///
    /// # Errors
    /// If there is no such array.
    pub async fn set_tuning(&self, name: &str, tuning: ArrayTuning) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let id = array.identity.id;
        array.tuning.set(tuning);
        let tell = move |worker: &Rc<Worker>| {
            let local = worker.local(id);
            local.into_iter().for_each(|it| it.merging.set_wait_max(tuning.merge_wait_max));
        };
        self.engine_state().on_every_worker(tell).await.map(drop)
    }

    /// End the scrub before it is done; that of this number, if one is given.
    ///
    /// # Errors
    /// If none runs.
    pub async fn cancel_scrub(&self, name: &str, id: Option<u64>) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let cancel = async move |local: Rc<LocalArray>| background::cancel_scrub(&local, id);
        self.on_coordinator_of(&array, cancel).await?
    }

    /// Open a device that is known to be ours, or only looked at.
    async fn open(&self, path: &str) -> Result<Arc<dyn Opened>, Refusal> {
        let (engine_state, path) = (Arc::clone(self.engine_state()), path.to_owned());
        let open = async move |worker: Rc<Worker>| open_alone(&worker, &engine_state, &path).await;
        self.on_worker(0, open).await?
    }

    async fn open_joining_device(
        &self,
        path: &str,
        may_destroy: bool,
    ) -> Result<(Arc<dyn Opened>, Blanking), Refusal> {
        let engine_state = Arc::clone(self.engine_state());
        let path = path.to_owned();
        let open = async move |worker: Rc<Worker>| {
            let joining_device =
                joining_device::open(&worker, &engine_state, &path, may_destroy).await?;
            Ok((joining_device.opened, joining_device.blanking))
        };
        self.on_worker(0, open).await?
    }

    /// A spare came: arrays that lack a member look again.
    pub(crate) async fn offer_spares(&self) {
        for array in self.arrays() {
            let look = async move |local: Rc<LocalArray>| background::look_again(&local);
            // An array that is being stopped right now wants no spare.
            let _stopping = self.on_coordinator_of(&array, look).await;
        }
    }
}

/// The jobs that an operator means by `kind`.
fn jobs_of(array: &Array, kind: JobKind) -> Result<Vec<(JobKind, Option<MemberIdx>)>, Refusal> {
    let is_meant =
        |job: JobKind| job == kind || (kind == JobKind::Rebuild && job == JobKind::Replace);
    let jobs = background::status(array).into_iter().filter(|job| is_meant(job.kind));
    let jobs: Vec<_> = jobs.map(|job| (job.kind, job.slot)).collect();
    if jobs.is_empty() {
        let what = format!("array '{}' has no {} under way", array.name(), kind.name());
        return Err(Refusal::new("job.unknown", what, "see `ashlar status` for what runs"));
    }
    Ok(jobs)
}

fn spare_record(
    worker: &Worker,
    engine_state: &crate::engine_state::EngineState,
    pool_name: ArrayName,
    opened: &dyn Opened,
) -> SpareSuperblock {
    SpareSuperblock {
        features: Features::NONE,
        generation: 1,
        member_uuid: worker.draw_uuid(),
        member_bytes: member_bytes(opened.facts().size_bytes),
        created_at_s: (engine_state.config.wall_clock_s)(),
        pool_name,
        serial: Text::cut(opened.facts().serial.as_deref().unwrap_or("")),
        stated_atomic_bytes: 0,
    }
}

fn check_slot(array: &Array, member: MemberIdx) -> Result<(), Refusal> {
    if member.at() < array.slots.len() {
        return Ok(());
    }
    let what = format!("array '{}' has no slot {member}; nothing was changed", array.name());
    let next = format!("its slots are 0 to {}", array.slots.len() - 1);
    Err(Refusal::new("member.unknown", what, next))
}

fn pool_name(pool: &str) -> Result<ArrayName, Refusal> {
    ArrayName::for_new(pool).map_err(|fault| {
        Refusal::new("spare.bad_pool", fault.to_string(), "choose another name for the pool")
    })
}

fn encoded(path: &str, record: &SpareSuperblock) -> Result<Vec<u8>, Refusal> {
    record.encode().map_err(|fault| {
        Refusal::new(
            "member.too_small",
            format!("{path} cannot be a spare: {fault}"),
            "use a larger device; nothing was written",
        )
    })
}

async fn write_spare(
    worker: &Rc<Worker>,
    joining_device: &joining_device::JoiningDevice,
    record: &SpareSuperblock,
) -> Result<(), Refusal> {
    let path = &joining_device.path;
    let bytes = encoded(path, record)?;
    let device = joining_device.device.as_ref();
    joining_device.blanking.run(worker, device).await?;
    let written = control_io::write_copies(worker, device, record.member_bytes, &bytes).await;
    written.map_err(|fault| refused(path, "writing its superblock", fault))
}
