//! What an operator asks of a running array: replace a member, take one back, keep spares, scrub, pause.
//!
//! What must stay true: a device is written only after it was shown to be nobody's (`newcomer.rs`) or the
//! operator named it; each command is carried out on the array's home worker.

use crate::background;
use crate::control_io::{self, refused};
use crate::engine::Engine;
use crate::error::Refusal;
use crate::event::names;
use crate::home::join;
use crate::member::SlotState;
use crate::newcomer;
use crate::shard::Shard;
use crate::spare::{Spare, SpareStatus};
use crate::worker::Worker;
use ashlar_device::{Access, Opened};
use ashlar_ondisk::format::{FIRST_AREA_OFFSET, HEAD_COPIES_BYTES, member_bytes};
use ashlar_ondisk::{ArrayName, Features, JobKind, SpareSuperblock, Text};
use ashlar_units::{Extent, MemberIdx};
use std::rc::Rc;
use std::sync::Arc;

impl Engine {
    /// Put the device at `path` into a slot: as the target of a copy while the slot's own device still
    /// serves, or to be rebuilt if the slot is out. `path` may be a spare.
    ///
    /// # Errors
    /// If the device is somebody's and `may_destroy` is not said, is too small, or cannot be written.
    pub async fn replace(
        &self,
        name: &str,
        member: MemberIdx,
        path: &str,
        may_destroy: bool,
    ) -> Result<(), Refusal> {
        let array = self.array(name)?;
        if member.at() >= array.slots.len() {
            let what = format!("array '{name}' has no slot {member}; nothing was changed");
            let next = format!("its slots are 0 to {}", array.slots.len() - 1);
            return Err(Refusal::new("member.unknown", what, next));
        }
        let opened = match self.roster().spares.remove(path) {
            Some(spare) => spare.opened,
            None => self.open_newcomer(path, may_destroy).await?,
        };
        let put_in = async move |shard: Rc<Shard>| match shard.array.slot(member).state() {
            SlotState::Out => join::as_rebuilding(&shard, member, opened).await,
            _ => join::as_replacement(&shard, member, opened).await,
        };
        self.on_home_of(&array, put_in).await?
    }

    /// Take back a member that was out: what it missed is written to it, the rest is still there.
    ///
    /// # Errors
    /// If the device is not a member of this array that is out.
    pub async fn re_add(&self, name: &str, path: &str) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let opened =
            self.roster().config.opener.open(path, Access::Exclusive).map_err(|refusal| {
                Refusal::new("device.not_opened", refusal.to_string(), "nothing was written")
            })?;
        let take_back = async move |shard: Rc<Shard>| join::returned(&shard, opened).await;
        self.on_home_of(&array, take_back).await?
    }

    /// Make the device at `path` a spare of `pool`. Arrays that lack a member take it at once.
    ///
    /// # Errors
    /// If the device is somebody's and `may_destroy` is not said, is too small, or cannot be written.
    pub async fn add_spare(
        &self,
        pool: &str,
        path: &str,
        may_destroy: bool,
    ) -> Result<(), Refusal> {
        let pool_name = ArrayName::new(pool).map_err(|fault| {
            Refusal::new("spare.bad_pool", fault.to_string(), "choose another name for the pool")
        })?;
        let roster = Arc::clone(self.roster());
        let path = path.to_owned();
        let make = async move |worker: Rc<Worker>| {
            let newcomer = newcomer::open(&worker, &roster, &path, may_destroy).await?;
            let record = spare_record(&worker, &roster, pool_name, newcomer.opened.as_ref());
            write_spare(&worker, &newcomer, &record).await?;
            let fields = vec![("path", path), ("pool", pool_name.as_str().to_owned())];
            roster.events.record(names::SPARE_ADDED, "", fields);
            roster.spares.add(Spare { opened: newcomer.opened, record });
            Ok::<(), Refusal>(())
        };
        self.on_worker(0, make).await??;
        self.offer_spares().await;
        Ok(())
    }

    /// Let a spare go: its superblock is erased, so that nothing takes it for a spare again.
    ///
    /// # Errors
    /// If there is no such spare, or it cannot be written.
    pub async fn remove_spare(&self, path: &str) -> Result<(), Refusal> {
        let Some(spare) = self.roster().spares.remove(path) else {
            let what = format!("{path} is not a spare; nothing was changed");
            return Err(Refusal::new("spare.unknown", what, "see `ashlar status` for the spares"));
        };
        let roster = Arc::clone(self.roster());
        let path = path.to_owned();
        let erase = async move |worker: Rc<Worker>| {
            let device = spare.opened.attach(&worker.handle);
            let slots = ashlar_ondisk::format::copy_slots(device.facts().size_bytes);
            for slot in slots.into_iter().flatten() {
                let zeroed = control_io::zero(&worker, device.as_ref(), slot).await;
                zeroed.map_err(|fault| refused(&path, "erasing its superblock", fault))?;
            }
            roster.events.record(names::SPARE_REMOVED, "", vec![("path", path)]);
            Ok(())
        };
        self.on_worker(0, erase).await?
    }

    /// The spares, by pool.
    pub fn spares(&self) -> Vec<SpareStatus> {
        self.roster().spares.list()
    }

    /// Read everything that was ever written and compare; with `is_repairing` also put right.
    ///
    /// # Errors
    /// If a scrub runs already, or the array is read-only and repair is asked for.
    pub async fn scrub(&self, name: &str, is_repairing: bool) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let start =
            async move |shard: Rc<Shard>| background::start_scrub(&shard, is_repairing).await;
        self.on_home_of(&array, start).await?
    }

    /// Pause the jobs of that kind; a copy to a replacement counts as a rebuild.
    ///
    /// # Errors
    /// If none runs.
    pub async fn pause(&self, name: &str, kind: JobKind) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let pause = async move |shard: Rc<Shard>| {
            for (kind, slot) in jobs_of(&shard, kind)? {
                background::pause(&shard, kind, slot).await?;
            }
            Ok(())
        };
        self.on_home_of(&array, pause).await?
    }

    /// Let the paused jobs of that kind go on.
    ///
    /// # Errors
    /// If none runs.
    pub async fn unpause(&self, name: &str, kind: JobKind) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let unpause = async move |shard: Rc<Shard>| {
            for (kind, slot) in jobs_of(&shard, kind)? {
                background::unpause(&shard, kind, slot).await?;
            }
            Ok(())
        };
        self.on_home_of(&array, unpause).await?
    }

    /// End the scrub before it is done.
    ///
    /// # Errors
    /// If none runs.
    pub async fn cancel_scrub(&self, name: &str) -> Result<(), Refusal> {
        let array = self.array(name)?;
        let cancel = async move |shard: Rc<Shard>| background::cancel_scrub(&shard);
        self.on_home_of(&array, cancel).await?
    }

    async fn open_newcomer(
        &self,
        path: &str,
        may_destroy: bool,
    ) -> Result<Arc<dyn Opened>, Refusal> {
        let roster = Arc::clone(self.roster());
        let path = path.to_owned();
        let open = async move |worker: Rc<Worker>| {
            let newcomer = newcomer::open(&worker, &roster, &path, may_destroy).await?;
            Ok(newcomer.opened)
        };
        self.on_worker(0, open).await?
    }

    /// A spare came: arrays that lack a member look again.
    pub(crate) async fn offer_spares(&self) {
        for array in self.arrays() {
            let look = async move |shard: Rc<Shard>| background::look_again(&shard);
            // An array that is being stopped right now wants no spare.
            let _stopping = self.on_home_of(&array, look).await;
        }
    }
}

/// The jobs that an operator means by `kind`.
fn jobs_of(shard: &Rc<Shard>, kind: JobKind) -> Result<Vec<(JobKind, Option<MemberIdx>)>, Refusal> {
    let is_meant =
        |job: JobKind| job == kind || (kind == JobKind::Rebuild && job == JobKind::Replace);
    let jobs = background::status(shard).into_iter().filter(|job| is_meant(job.kind));
    let jobs: Vec<_> = jobs.map(|job| (job.kind, job.slot)).collect();
    if jobs.is_empty() {
        let what = format!("array '{}' has no {} under way", shard.array.name(), kind.name());
        return Err(Refusal::new("job.unknown", what, "see `ashlar status` for what runs"));
    }
    Ok(jobs)
}

fn spare_record(
    worker: &Worker,
    roster: &crate::roster::Roster,
    pool_name: ArrayName,
    opened: &dyn Opened,
) -> SpareSuperblock {
    SpareSuperblock {
        features: Features::NONE,
        generation: 1,
        member_uuid: crate::create::draw_uuid(worker),
        member_bytes: member_bytes(opened.facts().size_bytes),
        created_at_s: (roster.config.wall_clock_s)(),
        pool_name,
        serial: Text::cut(opened.facts().serial.as_deref().unwrap_or("")),
    }
}

async fn write_spare(
    worker: &Rc<Worker>,
    newcomer: &newcomer::Newcomer,
    record: &SpareSuperblock,
) -> Result<(), Refusal> {
    let path = &newcomer.path;
    let bytes = record.encode().map_err(|fault| {
        Refusal::new(
            "member.too_small",
            format!("{path} cannot be a spare: {fault}"),
            "use a larger device; nothing was written",
        )
    })?;
    let device = newcomer.device.as_ref();
    let heartbeats = Extent::new(HEAD_COPIES_BYTES, FIRST_AREA_OFFSET - HEAD_COPIES_BYTES);
    let zeroed = control_io::zero(worker, device, heartbeats).await;
    zeroed.map_err(|fault| refused(path, "clearing its head area", fault))?;
    let written = control_io::write_copies(worker, device, record.member_bytes, &bytes).await;
    written.map_err(|fault| refused(path, "writing its superblock", fault))
}
