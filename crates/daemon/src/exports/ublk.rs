//! ublk: each attached volume is a block device of this machine, with one queue for each worker.
//!
//! What must stay true: a device whose daemon was killed waits. The daemon takes it over when its
//! volume runs again, even if it is mounted. A device in use is detached by force only. Nothing is
//! written down: the driver keeps which volume a device belongs to.

use super::fuse::FuseExports;
use super::{
    ATTACHMENT_FAILED, ATTACHMENT_RESUMED, Export, Work, locked, loops, mounts, not_attached,
    refuse_if_attached_by,
};
use crate::arrays::Arrays;
use crate::aside::aside;
use crate::backend::Serves;
use crate::convert;
use ashlar_api::v1::Done;
use ashlar_api::v1::export::{ExportStatus, UblkAttach, UblkAttached, UblkDetach};
use ashlar_api::{ApiError, codes};
use ashlar_engine::Engine;
use ashlar_ublk::{
    Control, Device, DeviceSetting, DeviceState, Found, Owner, QueueServer, UblkCounters,
    check_available, delete_dead,
};
use ashlar_volume::{Volume, VolumeFacts};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Requests in one queue. Each waits in the ring of its worker.
const DEPTH: u16 = 64;

/// Places of a worker's ring that the requests of all devices may take: half of it. More would
/// leave none for the members, and everything would stand still.
const PLACES_MAX: usize = 512;

/// How long the driver may take to end a device.
const END_MAX: Duration = Duration::from_secs(30);

/// Somebody else ended an attached device. Fields: `device`.
const ATTACHMENT_ENDED: &str = "attachment.ended";

/// A volume has grown, and its device has not. Fields: `device`, `reason`.
const ATTACHMENT_NOT_GROWN: &str = "attachment.not_grown";

/// All attached volumes.
pub struct UblkExports {
    engine: Engine,
    /// Whoever attaches, detaches or takes over holds this: each is several steps.
    changing: tokio::sync::Mutex<()>,
    attached: Arc<Mutex<BTreeMap<String, Attached>>>,
}

/// One attached volume.
#[derive(Clone)]
struct Attached {
    device: Arc<Device>,
    path: String,
    counters: Arc<UblkCounters>,
    /// How many queues are served.
    serving: watch::Receiver<usize>,
}

impl UblkExports {
    /// Nothing attached yet.
    pub fn new(engine: Engine) -> UblkExports {
        UblkExports { engine, changing: Default::default(), attached: Arc::default() }
    }

    /// Make a block device of a volume. The array must be running.
    ///
    /// # Errors
    /// `EXPORT_IMPOSSIBLE` if the kernel has no ublk, or not for this process.
    async fn attach(&self, volume: &str) -> Result<UblkAttached, ApiError> {
        let _changing = self.changing.lock().await;
        if let Some(device) = self.path_of(volume) {
            return Ok(UblkAttached { changed: false, device });
        }
        let control = aside(check_available).await.map_err(|why| impossible(volume, why))?;
        let facts = self.facts_of(volume).await?;
        let queues = u16::try_from(self.engine.worker_count()).unwrap_or(u16::MAX);
        let setting = DeviceSetting { queues, depth: DEPTH };
        self.check_room(setting).map_err(|why| impossible(volume, why))?;
        let made = aside(move || Device::make(control, &facts, setting)).await;
        let device = made.map_err(|error| impossible(volume, error))?;
        let device = self.run(volume, device).await.map_err(|error| impossible(volume, error))?;
        Ok(UblkAttached { changed: true, device })
    }

    /// # Errors
    /// One line: the workers' rings have no room for one more device.
    fn check_room(&self, one_more: DeviceSetting) -> Result<(), String> {
        let workers = self.engine.worker_count();
        let places =
            |it: DeviceSetting| usize::from(it.queues).div_ceil(workers) * usize::from(it.depth);
        let attached = locked(&self.attached);
        let taken: usize = attached.values().map(|it| places(it.device.setting())).sum();
        match taken + places(one_more) <= PLACES_MAX {
            true => Ok(()),
            false => Err(format!("there are {} ublk devices already", attached.len())),
        }
    }

    /// Serve the queues of a device and show it. Its path.
    async fn run(&self, volume: &str, device: Device) -> io::Result<String> {
        let path = device.path().display().to_string();
        let (device, counters) = (Arc::new(device), Arc::default());
        let serving = self.serve_queues(volume, &device, &counters);
        let attached = Attached { device, path: path.clone(), counters, serving };
        let device = Arc::clone(&attached.device);
        if let Err(error) = aside(move || device.start()).await {
            // A device that was taken over, and that nobody serves, waits for the next daemon.
            let (is_left, is_served) =
                (attached.device.is_taken_over(), *attached.serving.borrow() > 0);
            if is_served || !is_left {
                // What went wrong first is the answer.
                let _ended = end(attached).await;
            }
            return Err(error);
        }
        locked(&self.attached).insert(volume.to_owned(), attached.clone());
        self.watch(volume, attached);
        Ok(path)
    }

    /// One queue after the other to the workers in turn. How many are served, from now on.
    fn serve_queues(
        &self,
        volume: &str,
        device: &Device,
        counters: &Arc<UblkCounters>,
    ) -> watch::Receiver<usize> {
        let workers = self.engine.worker_count();
        let (serving, seen) = watch::channel(device.queues().count());
        for (number, place) in device.queues().enumerate() {
            let (volume, engine) = (volume.to_owned(), self.engine.clone());
            let served = Served(serving.clone());
            let counters = Arc::clone(counters);
            self.engine.run_on(number % workers, move |context| {
                let handle = context.handle();
                let (Some(ring), Some(own)) = (context.ring(), context.volume(&volume)) else {
                    return drop(served);
                };
                let server =
                    QueueServer { handle: handle.clone(), ring, volume: own, place, counters };
                handle.spawn(async move {
                    if let Err(error) = server.serve().await {
                        let fields = vec![("reason", error.to_string())];
                        engine.events().record(ATTACHMENT_FAILED, &volume, fields);
                    }
                    drop(served);
                });
            });
        }
        seen
    }

    /// Let go of a device that somebody else ended, once all its queues have ended.
    fn watch(&self, volume: &str, attached: Attached) {
        let (volume, engine) = (volume.to_owned(), self.engine.clone());
        let all = Arc::clone(&self.attached);
        tokio::spawn(async move {
            let Attached { device, path, mut serving, .. } = attached;
            let device = {
                let weak = Arc::downgrade(&device);
                drop(device);
                weak
            };
            // Whoever served them last is gone with the process only.
            let _gone = serving.wait_for(|count| *count == 0).await.is_err();
            let is_it = |it: &Attached| device.ptr_eq(&Arc::downgrade(&it.device));
            let found = {
                let mut all = locked(&all);
                let is_ours = all.get(&volume).is_some_and(is_it);
                is_ours.then(|| all.remove(&volume)).flatten()
            };
            let Some(found) = found else { return };
            engine.events().record(ATTACHMENT_ENDED, &volume, vec![("device", path)]);
            // It is gone, or goes with the last descriptor.
            let _gone = end(found).await;
        });
    }

    /// Give the device of a volume the size of the volume; one that keeps its size is told of.
    async fn grow_device(&self, volume: &str) {
        let Ok(bytes) = self.engine.array(volume).map(|it| it.volume_bytes()) else { return };
        let growing = |it: &Attached| (it.device.growing(bytes), it.path.clone());
        let found = locked(&self.attached).get(volume).map(growing);
        let Some((growing, path)) = found else { return };
        let Err(error) = aside(growing).await else { return };
        let reason = match error.kind() {
            io::ErrorKind::Unsupported => "the driver cannot before Linux 6.16".to_owned(),
            _ => error.to_string(),
        };
        let fields = vec![("device", path), ("reason", reason)];
        self.engine.events().record(ATTACHMENT_NOT_GROWN, volume, fields);
    }

    async fn facts_of(&self, volume: &str) -> Result<VolumeFacts, ApiError> {
        let facts = self.engine.with_volume(0, volume, async |volume| volume.facts()).await;
        facts.map_err(convert::refusal)
    }

    fn path_of(&self, volume: &str) -> Option<String> {
        locked(&self.attached).get(volume).map(|attached| attached.path.clone())
    }

    async fn detach_if_unused(&self, volume: &str) -> Result<Done, ApiError> {
        let _changing = self.changing.lock().await;
        let Some(path) = self.path_of(volume) else { return Ok(not_attached(volume)) };
        aside(move || refuse_if_open(&path)).await?;
        self.end(volume).await.map_err(|error| impossible(volume, error))?;
        Ok(Done::changed(format!("'{volume}' is detached")))
    }

    /// End a device whoever uses it.
    async fn end(&self, volume: &str) -> io::Result<()> {
        let attached = locked(&self.attached).remove(volume);
        match attached {
            Some(attached) => end(attached).await,
            None => Ok(()),
        }
    }

    /// Take over the devices that a daemon which is gone has left of this volume. What is said of
    /// it.
    async fn take_over(&self, volume: &str) -> Option<String> {
        let _changing = self.changing.lock().await;
        let control = aside(check_available).await.ok()?;
        let facts = self.facts_of(volume).await.ok()?;
        let (asked, owner) = (control.clone(), Owner::of(&facts.uuid));
        let found = aside(move || asked.owned_by(owner.0)).await.ok()?;
        let mut told = Vec::new();
        for found in found {
            let number = found.number();
            match self.take_over_one(volume, &facts, control.clone(), found).await {
                Ok(Some(path)) => told.push(format!("{path} is served again")),
                Ok(None) => {}
                Err(error) => told
                    .push(format!("/dev/ublkb{number} is not served, and its users wait: {error}")),
            }
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Its path; `None` if it was none that anybody uses.
    async fn take_over_one(
        &self,
        volume: &str,
        facts: &VolumeFacts,
        control: Control,
        found: Found,
    ) -> io::Result<Option<String>> {
        if found.state() == DeviceState::Dead {
            // It was cut off while it was made or ended: nobody uses it.
            let _gone = aside(move || delete_dead(&control, found)).await;
            return Ok(None);
        }
        if let Some(other) = self.path_of(volume) {
            return Err(io::Error::other(format!("the volume is attached as {other}")));
        }
        self.check_room(found.setting()).map_err(io::Error::other)?;
        let facts = facts.clone();
        let device = aside(move || Device::take_over(control, found, &facts)).await?;
        let path = self.run(volume, device).await?;
        // It may have grown while nobody served it.
        self.grow_device(volume).await;
        self.engine.events().record(ATTACHMENT_RESUMED, volume, vec![("device", path.clone())]);
        Ok(Some(path))
    }
}

/// One queue that is served, or about to be.
struct Served(watch::Sender<usize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Stop a device, wait until its queues have ended, and forget it.
async fn end(attached: Attached) -> io::Result<()> {
    let Attached { device, mut serving, .. } = attached;
    let stopping = Arc::clone(&device);
    timed(aside(move || stopping.stop())).await?;
    let all_ended = serving.wait_for(|count| *count == 0);
    // Nobody serves any more once all senders are gone.
    let _ended = timeout(END_MAX, all_ended).await.map_err(|_| io::ErrorKind::TimedOut)?.is_ok();
    let device = Arc::into_inner(device).ok_or(io::ErrorKind::ResourceBusy)?;
    timed(aside(move || device.delete())).await
}

async fn timed(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(END_MAX, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Export for UblkExports {
    fn name(&self) -> &'static str {
        "ublk"
    }

    fn status(&self) -> Vec<ExportStatus> {
        let status = |(array, attached): (&String, &Attached)| ExportStatus {
            devices: Vec::new(),
            over_ring: false,
            protocol: "ublk".to_owned(),
            requests: attached.counters.requests(),
            address: attached.path.clone(),
            array: Some(array.clone()),
            clients: 1,
        };
        locked(&self.attached).iter().map(status).collect()
    }

    fn volume_started<'a>(&'a self, volume: &'a str) -> Work<'a, Option<String>> {
        Box::pin(self.take_over(volume))
    }

    fn volume_grew<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing.lock().await;
            self.grow_device(volume).await;
        })
    }

    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        let Some(path) = self.path_of(volume) else { return Ok(()) };
        let message = format!("array '{volume}' is attached as {path}; nothing was changed");
        let hint = format!("unmount it and run: ashlar detach {volume}");
        Err(ApiError::new(codes::EXPORT_BUSY, message, hint))
    }

    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing.lock().await;
            if let Err(error) = self.end(volume).await {
                let fields = vec![("reason", error.to_string())];
                self.engine.events().record(ATTACHMENT_FAILED, volume, fields);
            }
        })
    }

    fn attached(&self) -> Vec<String> {
        locked(&self.attached).keys().cloned().collect()
    }

    fn detach<'a>(&'a self, volume: &'a str) -> Work<'a, Result<Done, ApiError>> {
        Box::pin(self.detach_if_unused(volume))
    }
}

/// Stopping a device gives its users errors, so somebody who has it open is a reason not to.
fn refuse_if_open(path: &str) -> Result<(), ApiError> {
    let mounts = mounts::here();
    if let Some(place) = loops::mounted_at(&mounts, path) {
        let place = place.display();
        return Err(ApiError::new(
            codes::EXPORT_BUSY,
            format!("{path} is mounted at {place}; nothing was changed"),
            format!("unmount it first: umount {place}"),
        ));
    }
    if is_held(path) || is_open(path) {
        return Err(ApiError::new(
            codes::EXPORT_BUSY,
            format!("{path} is open somewhere; nothing was changed"),
            format!("see who has it (fuser -v {path}; lsblk {path}), and close it"),
        ));
    }
    Ok(())
}

/// Whether a file system, another device or swap has it.
fn is_held(path: &str) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).err() == Some(rustix::io::Errno::BUSY)
}

/// Whether some process has it open, as far as this one may see.
fn is_open(path: &str) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let descriptors =
        processes.flatten().filter_map(|it| std::fs::read_dir(it.path().join("fd")).ok());
    let mut descriptors = descriptors.flat_map(Iterator::flatten);
    descriptors.any(|it| std::fs::read_link(it.path()).is_ok_and(|to| is_of(&to, path)))
}

/// Whether `node` is the device at `path`, or one of its partitions.
fn is_of(node: &Path, path: &str) -> bool {
    let part = node.to_str().and_then(|node| node.strip_prefix(path));
    part.is_some_and(|part| part.is_empty() || part.starts_with('p'))
}

fn impossible(volume: &str, why: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        codes::EXPORT_IMPOSSIBLE,
        format!("no ublk device of '{volume}': {why}; the array is as it was"),
        format!("take a loop device: ashlar attach --via loop {volume}"),
    )
}

impl Serves<UblkAttach> for Arrays {
    async fn serve(&self, call: UblkAttach) -> Result<UblkAttached, ApiError> {
        self.engine.array(&call.array).map_err(convert::refusal)?;
        refuse_if_attached_by(self.exports.of::<FuseExports>(), &call.array)?;
        self.exports.of::<UblkExports>().attach(&call.array).await
    }
}

impl Serves<UblkDetach> for Arrays {
    async fn serve(&self, call: UblkDetach) -> Result<Done, ApiError> {
        let done = self.exports.of::<UblkExports>().detach(&call.array).await?;
        if done.changed {
            self.exports.detached(&call.array).await;
            self.forget_attachment(&call.array).await?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::is_of;
    use std::path::Path;

    #[test]
    fn a_partition_is_of_its_device_and_a_neighbour_is_not() {
        let is_of = |node| is_of(Path::new(node), "/dev/ublkb1");
        assert!(is_of("/dev/ublkb1") && is_of("/dev/ublkb1p2"));
        assert!(!is_of("/dev/ublkb10") && !is_of("/dev/ublkb10p1") && !is_of("/dev/ublkb"));
        assert!(!is_of("/tmp/ublkb1") && !is_of("socket:[7]"));
    }
}
