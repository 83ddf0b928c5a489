//! FUSE: each attached volume is a mount of its own with one file in it, served by all workers.
//!
//! What must stay true: a mount of its own means that unmounting ends exactly the servers that hold
//! the volume; detaching waits for them. A mount that a killed daemon left behind is cleared away
//! first.

use super::ublk::UblkExports;
use super::{
    ATTACHMENT_FAILED, Export, Say, Work, locked, loops, mounts, not_attached,
    refuse_if_attached_by, wait_until,
};
use crate::arrays::Arrays;
use crate::backend::Serves;
use crate::config::Config;
use crate::convert;
use ashlar_api::v1::Done;
use ashlar_api::v1::export::{ExportStatus, FuseAttach, FuseAttached, FuseDetach};
use ashlar_api::{ApiError, codes};
use ashlar_engine::{ArrayVolume, Engine};
use ashlar_fuse::{BusyBlocks, Files, FuseCounters, FuseServer, Mount, MountBy, mount};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a start waits for the server of a mount to answer before it leaves the mount alone.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long a file that is to go may stay open.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// How often to look whether it was closed.
const CLOSE_POLL: Duration = Duration::from_millis(20);

/// All attached volumes.
pub struct FuseExports {
    engine: Engine,
    folder: PathBuf,
    attached: Mutex<BTreeMap<String, Attached>>,
}

/// One attached volume.
struct Attached {
    mount: Mount,
    file: String,
    /// Workers that serve it.
    serving: Arc<AtomicUsize>,
    counters: Arc<FuseCounters>,
}

impl FuseExports {
    /// Nothing attached yet; volumes will appear below `folder`.
    pub fn new(engine: Engine, folder: PathBuf) -> FuseExports {
        FuseExports { engine, folder, attached: Mutex::default() }
    }

    /// Show a volume as a file. The array must be running.
    ///
    /// # Errors
    /// The mount cannot be made.
    pub fn attach(&self, array: &str) -> Result<FuseAttached, ApiError> {
        let mut attached = locked(&self.attached);
        let folder = self.folder.join(array);
        if let Some(before) = attached.get(array) {
            if is_mounted(&folder) {
                return Ok(FuseAttached { changed: false, file: before.file.clone() });
            }
            // Somebody took the mount away (umount --lazy). What is open still is served until it
            // is closed.
            if before.serving.load(Ordering::Acquire) != 0 {
                return Err(still_open(&before.file));
            }
            attached.remove(array);
        }
        let mount = prepare(&folder).and_then(|()| mount(&folder, MountBy::for_this_user()));
        let mount = mount.map_err(|error| impossible(&folder, &error))?;
        let file = folder.join(array).display().to_string();
        let new = Attached {
            mount,
            file: file.clone(),
            serving: Arc::default(),
            counters: Arc::default(),
        };
        self.start_servers(array, &new);
        attached.insert(array.to_owned(), new);
        Ok(FuseAttached { changed: true, file })
    }

    fn start_servers(&self, array: &str, attached: &Attached) {
        let busy = Arc::new(BusyBlocks::default());
        for worker in 0..self.engine.worker_count() {
            let array = array.to_owned();
            let (device, busy) = (attached.mount.device(), Arc::clone(&busy));
            let (serving, counters) =
                (Arc::clone(&attached.serving), Arc::clone(&attached.counters));
            serving.fetch_add(1, Ordering::AcqRel);
            let engine = self.engine.clone();
            self.engine.run_on(worker, move |context| {
                let handle = context.handle();
                let (Some(ring), Some(volume)) = (context.ring(), context.volume(&array)) else {
                    serving.fetch_sub(1, Ordering::AcqRel);
                    return;
                };
                let files = OneFile { name: array.clone(), volume };
                let mut server = FuseServer::new((handle.clone(), ring), device, files, busy);
                server.counters = counters;
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
        if is_mounted(attached.mount.directory()) {
            return attached.mount.release();
        }
        // Somebody took the mount away; what is open still is served until it is closed.
        match attached.serving.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// The mount is gone: wait until the servers have ended, and strike it off the books.
    async fn forget(&self, array: &str) {
        let serving = locked(&self.attached).get(array).map(|gone| Arc::clone(&gone.serving));
        let Some(serving) = serving else { return };
        wait_until(|| serving.load(Ordering::Acquire) == 0).await;
        locked(&self.attached).remove(array);
        // Only an empty folder goes, and it does no harm if it stays.
        let _kept = std::fs::remove_dir(self.folder.join(array));
    }

    async fn detach_if_unused(&self, array: &str) -> Result<Done, ApiError> {
        let Some(file) = self.file_of(array) else {
            return Ok(not_attached(array));
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
                    return Err(impossible(&self.folder.join(array), &error));
                }
                Err(_) if tokio::time::Instant::now() > deadline => return Err(still_open(&file)),
                Err(_) => tokio::time::sleep(CLOSE_POLL).await,
            }
        }
        self.forget(array).await;
        Ok(Done::changed(format!("'{array}' is detached")))
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
            let counters = &attached.counters;
            let requests =
                [&counters.reads, &counters.writes, &counters.flushes, &counters.fallocates];
            ExportStatus {
                protocol: "fuse".to_owned(),
                requests: requests.iter().map(|counter| counter.load(Ordering::Relaxed)).sum(),
                address: attached.file.clone(),
                array: Some(array.clone()),
                clients: 1,
            }
        };
        locked(&self.attached).iter().map(status).collect()
    }

    fn prepare<'a>(&'a self, config: &'a Config, say: Say<'a>) -> Work<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if config.fuse.is_some() {
                make_folder(&self.folder).map_err(|error| {
                    let message =
                        format!("{}: {error}; nothing was started", self.folder.display());
                    let hint =
                        "volumes are to appear below it: name another with --fuse or in [fuse]";
                    ApiError::new(codes::SYSTEM_FAULT, message, hint)
                })?;
            }
            for dead in clear_dead(&self.folder).await {
                say(&format!("{}: took away the mount of a daemon that is gone", dead.display()));
            }
            Ok(())
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

    fn attached(&self) -> Vec<String> {
        locked(&self.attached).keys().cloned().collect()
    }

    /// Waits until the servers have ended. Loop devices over the file are let go first, so that a
    /// device that nobody uses is no user.
    fn detach<'a>(&'a self, volume: &'a str) -> Work<'a, Result<Done, ApiError>> {
        Box::pin(self.detach_if_unused(volume))
    }
}

impl Serves<FuseAttach> for Arrays {
    async fn serve(&self, call: FuseAttach) -> Result<FuseAttached, ApiError> {
        self.engine.array(&call.array).map_err(convert::refusal)?;
        refuse_if_attached_by(self.exports.of::<UblkExports>(), &call.array)?;
        self.exports.of::<FuseExports>().attach(&call.array)
    }
}

impl Serves<FuseDetach> for Arrays {
    async fn serve(&self, call: FuseDetach) -> Result<Done, ApiError> {
        self.exports.of::<FuseExports>().detach(&call.array).await
    }
}

/// Make the folder, and clear away what a killed daemon left mounted there.
fn prepare(folder: &Path) -> io::Result<()> {
    for _ in 0..left_behind(&mounts::here(), folder) {
        unmount(folder)?;
    }
    std::fs::create_dir_all(folder)
}

fn is_mounted(folder: &Path) -> bool {
    folder.canonicalize().is_ok_and(|folder| left_behind(&mounts::here(), &folder) > 0)
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

/// How many of these mounts are ours, and on `folder`.
fn left_behind(mounts: &[mounts::Mount], folder: &Path) -> usize {
    ours(mounts).filter(|place| *place == folder).count()
}

/// Where our mounts are, in the order in which they were made.
fn ours(mounts: &[mounts::Mount]) -> impl Iterator<Item = &Path> {
    mounts.iter().filter(|it| it.kind == "fuse.ashlar").map(|it| it.place.as_path())
}

fn unmount(folder: &Path) -> io::Result<()> {
    let by_root = Command::new("umount").arg("--lazy").arg(folder).output();
    if !by_root.is_ok_and(|output| output.status.success()) {
        Command::new("fusermount3").args(["-u", "-z", "--"]).arg(folder).output()?;
    }
    Ok(())
}

/// Make the folder below which volumes appear, and see that they can.
///
/// # Errors
/// It cannot be made or written to.
fn make_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?)
}

/// Take away the mounts right below `folder` that a killed daemon left behind: whatever looks at
/// one is told that nobody answers. One that answers, or whose server is still on its way out,
/// stays. What was taken away.
async fn clear_dead(folder: &Path) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    let mounts = mounts::here();
    let Ok(folder) = folder.canonicalize() else { return gone };
    for place in ours(&mounts).filter(|place| place.parent() == Some(&folder)) {
        let at = place.to_owned();
        // Attributes are kept for a second after the server went; a list is asked for each time.
        // Somebody who is stopped never answers, and the start does not wait for ever.
        let look = tokio::task::spawn_blocking(move || std::fs::read_dir(at).map(drop));
        let looked = tokio::time::timeout(ANSWER_MAX, look).await;
        let Ok(Ok(Err(error))) = looked else { continue };
        // The second if the server went while it was being asked.
        let dead = [Errno::NOTCONN, Errno::CONNABORTED];
        let is_dead = Errno::from_io_error(&error).is_some_and(|errno| dead.contains(&errno));
        if is_dead {
            // Its loop devices can be told by their path only as long as it is mounted.
            let name = place.file_name().unwrap_or_default();
            loops::let_go_of(&place.join(name).display().to_string(), CLOSE_MAX).await;
        }
        if is_dead && unmount(place).is_ok() {
            // Only an empty folder goes, and it does no harm if it stays.
            let _kept = std::fs::remove_dir(place);
            gone.push(place.to_owned());
        }
    }
    gone
}

fn impossible(folder: &Path, error: &io::Error) -> ApiError {
    ApiError::new(
        codes::EXPORT_IMPOSSIBLE,
        format!("{}: {error}; the array is as it was", folder.display()),
        "see that /dev/fuse is there and package fuse3 is installed, or use NBD",
    )
}

/// One volume under its own name.
#[derive(Clone)]
struct OneFile {
    name: String,
    volume: ArrayVolume,
}

impl Files for OneFile {
    type Volume = ArrayVolume;

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str) -> Option<ArrayVolume> {
        (name == self.name).then(|| self.volume.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::left_behind;
    use crate::exports::mounts::parse;
    use std::path::Path;

    #[test]
    fn only_our_own_mounts_on_that_very_folder_are_cleared_away() {
        let mounts = "ashlar /run/v/a fuse.ashlar rw 0 0\nashlar /run/v/a fuse.ashlar rw 0 0\n\
                      x /run/v/b fuse.other rw 0 0\nashlar /run/v/c\\040d fuse.ashlar rw 0 0\n";
        let mounts: Vec<_> = parse(mounts).collect();
        let count = |folder: &str| left_behind(&mounts, Path::new(folder));
        assert_eq!((count("/run/v/a"), count("/run/v/b"), count("/run/v/c d")), (2, 0, 1));
        assert_eq!(count("/run/v"), 0);
    }
}
