//! FUSE: each attached volume is mounted on a file of its own, served by all workers.
//!
//! - `places`  the files, and dead mounts on them
//! - `label`   what a successor must know of an attachment
//! - `over_ring` requests over io_uring: whether, and which worker serves which queue
//! - `waiting` attachments of a daemon that is gone
//!
//! What must stay true: a mount of its own means that unmounting ends exactly the servers that hold
//! the volume; detaching waits for them. Every descriptor of a mount is kept elsewhere before it is
//! read from, if it can be kept at all; one that cannot be is cleared away after a kill.

mod label;
mod over_ring;
mod places;
#[cfg(test)]
mod tests;
mod waiting;

pub use places::KIND;

use super::ublk::UblkExports;
use super::{
    ATTACHMENT_FAILED, ATTACHMENT_RESUMED, Export, Say, Work, locked, loops, mounts, not_attached,
    refuse_if_attached_by, wait_until,
};
use crate::arrays::Arrays;
use crate::aside::aside;
use crate::backend::Serves;
use crate::config::Config;
use crate::convert;
use crate::keeper::Keeper;
use crate::services::{Service, Services};
use ashlar_api::v1::Done;
use ashlar_api::v1::export::{ExportStatus, FuseAttach, FuseAttached, FuseDetach};
use ashlar_api::{ApiError, codes};
use ashlar_engine::Engine;
use ashlar_fuse::{
    Agreed, BusyBlocks, FuseCounters, FuseServer, Leave, Mount, MountBy, PAYLOAD_BYTES_MAX, mount,
};
use ashlar_volume::{Volume, VolumeFacts};
use label::AttachmentLabel;
use places::CLOSE_MAX;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use waiting::Waiting;

/// How many requests a worker carries out at the same time for one volume; each has 1 MiB.
const SLOTS: usize = 16;

/// How often to look whether it was closed.
const CLOSE_POLL: Duration = Duration::from_millis(20);

/// All attached volumes.
pub struct FuseExports {
    engine: Engine,
    folder: PathBuf,
    keeper: Arc<Keeper>,
    /// Requests are to come over io_uring.
    over_ring: bool,
    /// Whoever attaches, detaches or takes over holds this: each is several steps.
    changing: tokio::sync::Mutex<()>,
    attached: Arc<Mutex<BTreeMap<String, Attached>>>,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    services: Arc<Services>,
    /// What waits was told of.
    is_told: AtomicBool,
}

/// One attached volume.
struct Attached {
    mount: Mount,
    file: String,
    label: AttachmentLabel,
    /// Why it does not survive a kill of the daemon; `None` if it does.
    lacks: Option<String>,
    /// Requests of each queue at the same time, if they come over io_uring.
    entries: Option<usize>,
    shared: Shared,
}

/// How a mount is to be served.
struct Plan {
    label: AttachmentLabel,
    /// So many of its descriptors are kept already.
    already: usize,
    /// As in [`Attached`].
    entries: Option<usize>,
}

/// What the servers of one mount share.
#[derive(Clone)]
struct Shared {
    /// Workers that serve it.
    serving: Arc<AtomicUsize>,
    counters: Arc<FuseCounters>,
    busy: Arc<BusyBlocks>,
    agreed: Arc<OnceLock<Agreed>>,
    leave: Leave,
}

impl FuseExports {
    /// Nothing attached yet; volumes will appear below `folder`, and `keeper` will keep them.
    pub fn new(
        engine: Engine,
        folder: PathBuf,
        keeper: Keeper,
        over_ring: bool,
        services: Arc<Services>,
    ) -> FuseExports {
        FuseExports {
            engine,
            folder,
            keeper: Arc::new(keeper),
            over_ring,
            changing: Default::default(),
            attached: Arc::default(),
            waiting: Arc::default(),
            services,
            is_told: AtomicBool::new(false),
        }
    }

    /// Have the folder, if the configuration names one.
    async fn see_to_folder(&self, config: &Config, say: Say<'_>) {
        if config.fuse.is_none() {
            return;
        }
        let (folder, service) =
            (self.folder.clone(), format!("attached files in {}", self.folder.display()));
        let made = self.services.look(&service, move || {
            places::make_folder(&folder).map_err(|error| {
                format!("{error}; name another directory with --fuse or in [fuse]")
            })
        });
        let made = made.await.map(|()| None);
        self.services.note(Service::way(service), made, say);
    }

    /// Show a volume as a file. The array must be running.
    ///
    /// # Errors
    /// The mount cannot be made; or users of an earlier daemon wait for the volume, and this one
    /// does not fit.
    async fn attach(&self, array: &str) -> Result<FuseAttached, ApiError> {
        if self.waiting_as(array).is_some()
            && let Some(told) = self.resume(array).await
            && self.waiting_as(array).is_some()
        {
            let hint = format!("start the array so that it fits, or: ashlar detach {array}");
            return Err(ApiError::new(codes::EXPORT_BUSY, told, hint));
        }
        let _changing = self.changing.lock().await;
        if let Some(before) = self.attached_before(array)? {
            return Ok(before);
        }
        let (asked, patience) = (self.entries_of_next(), over_ring::patience());
        let not_over_ring = self.attach_as_asked(array, asked, patience).await?;
        let answer = self.answer_of(array, true).map(|it| FuseAttached { not_over_ring, ..it });
        answer.ok_or_else(|| impossible(&self.folder, &io::ErrorKind::NotFound.into()))
    }

    /// Mount and serve it; over io_uring with so many requests of each queue at the same time.
    async fn attach_anew(&self, array: &str, entries: Option<usize>) -> Result<(), ApiError> {
        let facts = self.facts_of(array).await?;
        let (file, workers) = (self.place_of(array), self.engine.worker_count());
        let impossible = |error: io::Error| impossible(&file, &error);
        let at = file.clone();
        let made = aside(move || {
            places::prepare(&at)?;
            let mount = mount(&at, MountBy::for_this_user(), workers)?;
            let device = places::device_of(mount.file()).ok_or(io::ErrorKind::NotFound)?;
            Ok((mount, device))
        });
        let (mount, device) = made.await.map_err(impossible)?;
        let label = AttachmentLabel {
            uuid: facts.uuid,
            device,
            read_only: facts.read_only,
            size_bytes: facts.size_bytes,
            payload_bytes: PAYLOAD_BYTES_MAX,
        };
        self.run(array, mount, Plan { label, already: 0, entries }).await.map_err(impossible)
    }

    /// As it is attached already, if it is.
    fn attached_before(&self, array: &str) -> Result<Option<FuseAttached>, ApiError> {
        let mut attached = locked(&self.attached);
        let Some(before) = attached.get(array) else { return Ok(None) };
        if places::is_mounted(before.mount.file()) {
            drop(attached);
            return Ok(self.answer_of(array, false));
        }
        // Somebody took the mount away (umount --lazy). What is open still is served until it is
        // closed.
        if before.shared.serving.load(Ordering::Acquire) != 0 {
            return Err(still_open(&before.file));
        }
        attached.remove(array);
        Ok(None)
    }

    fn answer_of(&self, array: &str, changed: bool) -> Option<FuseAttached> {
        let attached = locked(&self.attached);
        let attached = attached.get(array)?;
        let (file, lacks) = (attached.file.clone(), attached.lacks.clone());
        let (survives, over_ring) = (lacks.is_none(), attached.entries.is_some());
        Some(FuseAttached { changed, file, survives, lacks, over_ring, not_over_ring: None })
    }

    fn place_of(&self, array: &str) -> PathBuf {
        // The folder may be a symbolic link, and the table of mounts has none.
        self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone()).join(array)
    }

    async fn facts_of(&self, volume: &str) -> Result<VolumeFacts, ApiError> {
        let facts = self.engine.with_volume(0, volume, async |volume| volume.facts()).await;
        facts.map_err(convert::refusal)
    }

    /// Keep the descriptors of a mount, if that is of use, and then serve it.
    async fn run(&self, array: &str, mount: Mount, plan: Plan) -> io::Result<()> {
        let Plan { label, already, entries } = plan;
        let shared = Shared {
            serving: Arc::default(),
            counters: Arc::default(),
            busy: Arc::default(),
            agreed: Arc::default(),
            leave: Leave::new()?,
        };
        let lacks = match entries {
            Some(_) => Some(over_ring::LACKS.to_owned()),
            None => {
                let kept = self.keep(&label, &mount, already).await;
                kept.err().map(|error| format!("its descriptors are not kept: {error}"))
            }
        };
        let file = mount.file().display().to_string();
        let mut attached = Attached { mount, file, label, lacks, entries, shared };
        self.start_servers(array, &attached);
        let is_new = already == 0;
        if is_new {
            let agreed = &attached.shared.agreed;
            wait_until(|| agreed.get().is_some()).await;
            let missing = match agreed.get().map(|agreed| agreed.sends_again) {
                Some(true) => None,
                Some(false) => Some("the kernel cannot send requests again (Linux 6.9 can)"),
                None => Some("the kernel did not begin with it in time"),
            };
            attached.lacks = attached.lacks.or(missing.map(str::to_owned));
            if attached.lacks.is_some() && entries.is_none() {
                self.give_up(attached.label.to_string()).await;
            }
        }
        locked(&self.attached).insert(array.to_owned(), attached);
        Ok(())
    }

    async fn keep(&self, label: &AttachmentLabel, mount: &Mount, already: usize) -> io::Result<()> {
        let (keeper, name) = (Arc::clone(&self.keeper), label.to_string());
        let devices = mount.devices().to_vec();
        let is_new = aside(move || keeper.hold(&name, &devices, already)).await?;
        if is_new {
            self.watch_keeper();
        }
        Ok(())
    }

    /// Should the keeper end before the daemon does, another one gets everything.
    fn watch_keeper(&self) {
        let keeper = Arc::clone(&self.keeper);
        let (attached, waiting) = (Arc::clone(&self.attached), Arc::clone(&self.waiting));
        tokio::spawn(async move {
            loop {
                let ended = Arc::clone(&keeper);
                if !aside(move || ended.ended()).await {
                    return;
                }
                let all = to_keep(&attached, &waiting);
                let keeper = Arc::clone(&keeper);
                let hold = move |(name, held): &(String, Vec<_>)| keeper.hold(name, held, 0);
                let held =
                    aside(move || all.iter().try_fold(false, |_, it| hold(it).map(|_| true)));
                // Whoever attaches the next volume starts one, and watches it.
                if !held.await.unwrap_or(false) {
                    return;
                }
            }
        });
    }

    async fn give_up(&self, name: String) {
        let keeper = Arc::clone(&self.keeper);
        // The keeper sees by itself that the mount is gone.
        let _unheard = aside(move || keeper.give_up(&name)).await;
    }

    fn start_servers(&self, array: &str, attached: &Attached) {
        let Attached { mount, shared, entries, .. } = attached;
        for (worker, device) in (0..self.engine.worker_count()).zip(mount.devices()) {
            let (array, device, shared) = (array.to_owned(), Arc::clone(device), shared.clone());
            shared.serving.fetch_add(1, Ordering::AcqRel);
            let engine = self.engine.clone();
            let queues = entries.map(|entries| self.queues_of(worker, entries));
            self.engine.run_on(worker, move |context| {
                let handle = context.handle();
                let Shared { serving, counters, busy, agreed, leave } = shared;
                let (Some(ring), Some(volume)) = (context.ring(), context.volume(&array)) else {
                    serving.fetch_sub(1, Ordering::AcqRel);
                    return;
                };
                let slots = SLOTS;
                let server = FuseServer {
                    handle: handle.clone(),
                    ring,
                    device,
                    volume,
                    busy,
                    counters,
                    slots,
                    agreed,
                    queues,
                    leave,
                };
                handle.spawn(async move {
                    if let Err(error) = server.serve().await {
                        let fields = vec![("reason", error.to_string())];
                        engine.events().record(ATTACHMENT_FAILED, &array, fields);
                    }
                    serving.fetch_sub(1, Ordering::AcqRel);
                });
            });
        }
    }

    fn release(&self, array: &str) -> io::Result<()> {
        let mut attached = locked(&self.attached);
        let Some(attached) = attached.get_mut(array) else { return Ok(()) };
        if places::is_mounted(attached.mount.file()) {
            return attached.mount.release();
        }
        // Somebody took the mount away; what is open still is served until it is closed.
        match attached.shared.serving.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// The mount is gone: wait until the servers have ended, and strike it off the books.
    async fn forget(&self, array: &str) {
        let found = locked(&self.attached).get(array).map(|gone| {
            (Arc::clone(&gone.shared.serving), gone.label.clone(), gone.mount.file().to_owned())
        });
        let Some((serving, label, file)) = found else { return };
        wait_until(|| serving.load(Ordering::Acquire) == 0).await;
        self.give_up(label.to_string()).await;
        locked(&self.attached).remove(array);
        places::remove(&file);
    }

    async fn detach_if_unused(&self, array: &str, gives_up: bool) -> Result<Done, ApiError> {
        let _changing = self.changing.lock().await;
        let detached = || Done::changed(format!("'{array}' is detached"));
        let Some(file) = self.file_of(array) else {
            let Some(waiting) = self.waiting_as(array) else { return Ok(not_attached(array)) };
            if !gives_up {
                refuse_if_mounted(&waiting.file.display().to_string())?;
            }
            return self.let_go(array, waiting, gives_up).await.map(|()| detached());
        };
        refuse_if_mounted(&file)?;
        // One that cannot be let go keeps the file open, and that is what the refusal says.
        loops::let_go_of(&file, CLOSE_MAX).await;
        // Whoever looks at new devices (udev, for one) may have it open for a moment.
        let deadline = tokio::time::Instant::now() + CLOSE_MAX;
        loop {
            match self.release(array) {
                Ok(()) => break,
                Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                    return Err(impossible(&self.place_of(array), &error));
                }
                Err(_) if tokio::time::Instant::now() > deadline => return Err(still_open(&file)),
                Err(_) => tokio::time::sleep(CLOSE_POLL).await,
            }
        }
        self.forget(array).await;
        Ok(detached())
    }

    /// The folder below which volumes appear.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of an attached array.
    fn file_of(&self, array: &str) -> Option<String> {
        locked(&self.attached).get(array).map(|attached| attached.file.clone())
    }
}

impl Export for FuseExports {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn status(&self) -> Vec<ExportStatus> {
        let status = |(array, attached): (&String, &Attached)| {
            let counters = &attached.shared.counters;
            let requests =
                [&counters.reads, &counters.writes, &counters.flushes, &counters.fallocates];
            ExportStatus {
                devices: Vec::new(),
                over_ring: attached.entries.is_some(),
                protocol: "fuse".to_owned(),
                requests: requests.iter().map(|counter| counter.load(Ordering::Relaxed)).sum(),
                address: attached.file.clone(),
                array: Some(array.clone()),
                clients: 1,
            }
        };
        locked(&self.attached).iter().map(status).collect()
    }

    fn prepare<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            self.see_to_folder(config, say).await;
            self.find_waiting(say).await;
            self.tell_ring(say);
            let kept: Vec<_> = locked(&self.waiting).iter().map(|it| it.file.clone()).collect();
            for dead in places::clear_dead(&self.folder, &kept).await {
                say(&format!("{}: took away the mount of a daemon that is gone", dead.display()));
            }
        })
    }

    fn begin<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            if !self.is_told.swap(true, Ordering::Relaxed) {
                self.tell_waiting(say);
            }
            self.see_to_folder(config, say).await;
        })
    }

    fn volume_started<'a>(&'a self, volume: &'a str) -> Work<'a, Option<String>> {
        Box::pin(self.resume(volume))
    }

    /// Loop devices over the file get its new size. Whoever uses the file itself sees it by asking.
    fn volume_grew<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            if let Some(file) = self.file_of(volume) {
                loops::grow_over(&file, CLOSE_MAX).await;
            }
        })
    }

    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        let Some(file) = self.file_of(volume) else { return Ok(()) };
        let message = format!("array '{volume}' is attached as {file}; nothing was changed");
        let hint = format!("unmount it and run: ashlar detach {volume}");
        Err(ApiError::new(codes::EXPORT_BUSY, message, hint))
    }

    /// Whoever has the file open gets errors from now on.
    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing.lock().await;
            if let Some(file) = self.file_of(volume) {
                loops::let_go_of(&file, CLOSE_MAX).await;
            }
            if let Some(attached) = locked(&self.attached).get_mut(volume) {
                // It can only fail because somebody else unmounted it.
                let _gone = attached.mount.unmount();
            }
            self.forget(volume).await;
        })
    }

    fn obstacle_to_hand_over(&self) -> Option<String> {
        let attached = locked(&self.attached);
        let is_served = |it: &Attached| it.shared.serving.load(Ordering::Acquire) != 0;
        attached.iter().filter(|(_, it)| is_served(it)).find_map(|(array, it)| {
            let (file, lacks) = (&it.file, it.lacks.as_ref()?);
            Some(format!("users of {file} would get errors ({lacks}); detach '{array}' first"))
        })
    }

    fn attached(&self) -> Vec<String> {
        locked(&self.attached).keys().cloned().collect()
    }

    fn remove(&self) {
        self.keeper.end();
    }

    /// Waits until the servers have ended. Loop devices over the file are let go first, so that a
    /// device that nobody uses is no user.
    fn detach<'a>(&'a self, volume: &'a str) -> Work<'a, Result<Done, ApiError>> {
        Box::pin(self.detach_if_unused(volume, false))
    }
}

impl Serves<FuseAttach> for Arrays {
    async fn serve(&self, call: FuseAttach) -> Result<FuseAttached, ApiError> {
        self.engine.array(&call.array).map_err(convert::refusal)?;
        refuse_if_attached_by(self.exports.of::<UblkExports>(), &call.array)?;
        self.exports.of::<FuseExports>().attach(&call.array).await
    }
}

impl Serves<FuseDetach> for Arrays {
    async fn serve(&self, call: FuseDetach) -> Result<Done, ApiError> {
        let done =
            self.exports.of::<FuseExports>().detach_if_unused(&call.array, call.give_up).await?;
        if done.changed {
            self.exports.detached(&call.array).await;
            self.forget_attachment(&call.array).await?;
        }
        Ok(done)
    }
}

/// All that is to be kept, by name.
fn to_keep(
    attached: &Mutex<BTreeMap<String, Attached>>,
    waiting: &Mutex<Vec<Waiting>>,
) -> Vec<(String, Vec<Arc<OwnedFd>>)> {
    let attached = locked(attached);
    let kept = attached.values().filter(|it| it.lacks.is_none());
    let kept = kept.map(|it| (it.label.to_string(), it.mount.devices().to_vec()));
    let waiting = locked(waiting);
    let waiting = waiting.iter().map(|it| (it.label.to_string(), it.devices.clone()));
    kept.chain(waiting).collect()
}

/// Detaching would only mark a mounted loop device for later, and the volume would stay in use.
fn refuse_if_mounted(file: &str) -> Result<(), ApiError> {
    let mounts = mounts::here();
    let mounted = loops::over(file)
        .into_iter()
        .find_map(|device| Some((loops::mounted_at(&mounts, &device)?.to_owned(), device)));
    mounted.map_or(Ok(()), |(place, device)| {
        let place = place.display();
        Err(ApiError::new(
            codes::EXPORT_BUSY,
            format!("{device} is mounted at {place}; nothing was changed"),
            format!("unmount it first: umount {place}"),
        ))
    })
}

fn still_open(file: &str) -> ApiError {
    let devices = loops::over(file);
    let (what, look) = match devices.first() {
        Some(device) => (format!("{device}, which lies on it, is"), device.as_str()),
        None => ("it is".to_owned(), file),
    };
    ApiError::new(
        codes::EXPORT_BUSY,
        format!("{file} stays attached: {what} open somewhere"),
        format!("see who has it (fuser -v {look}), close it, and run the command again"),
    )
}

fn impossible(folder: &Path, error: &io::Error) -> ApiError {
    ApiError::new(
        codes::EXPORT_IMPOSSIBLE,
        format!("{}: {error}; the array is as it was", folder.display()),
        "see that /dev/fuse is there and package fuse3 is installed, or use NBD",
    )
}
