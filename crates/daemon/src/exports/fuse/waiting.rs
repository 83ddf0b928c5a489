//! Attachments of a daemon that is gone: their users wait until their volume runs here.
//!
//! What must stay true: one is served again only by a volume that is as it was: of the same array,
//! no smaller, and for writing if it was for writing; else its users go on waiting, because errors
//! would end a file system and waiting does not. Its requests that had no answer are carried out
//! before all others. Not here: serving (`mod`).

use super::label::AttachmentLabel;
use super::{FuseExports, Plan, places};
use crate::aside::aside;
use crate::exports::{Say, locked, loops};
use crate::keeper::Held;
use ashlar_api::{ApiError, codes};
use ashlar_fuse::{Mount, MountBy, PAYLOAD_BYTES_MAX};
use ashlar_volume::VolumeFacts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file whose descriptors are kept, and which nobody serves.
#[derive(Clone)]
pub struct Waiting {
    pub label: AttachmentLabel,
    pub file: PathBuf,
    pub devices: Vec<Arc<OwnedFd>>,
}

impl Waiting {
    /// `None` if its mount is gone, or if it is not understood.
    fn of(held: Held) -> Option<Waiting> {
        let label: AttachmentLabel = held.name.parse().ok()?;
        let first = held.descriptors.first()?;
        let mut one = [PollFd::new(first, PollFlags::empty())];
        poll(&mut one, Some(&Timespec::default())).ok()?;
        let is_gone = one[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL);
        let file = places::with_device(label.device).filter(|_| !is_gone)?;
        Some(Waiting { label, file, devices: held.descriptors.into_iter().map(Arc::new).collect() })
    }

    /// # Errors
    /// Why its users are better off waiting.
    fn check(&self, facts: &VolumeFacts) -> Result<(), &'static str> {
        let AttachmentLabel { read_only, size_bytes, payload_bytes, .. } = self.label;
        if facts.read_only && !read_only {
            return Err("it was attached for writing, and the array is read-only");
        }
        if facts.size_bytes < size_bytes {
            return Err("the volume is smaller than it was");
        }
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err("its requests may be longer than this version takes");
        }
        Ok(())
    }
}

impl FuseExports {
    /// Ask the keeper what daemons before this one have left.
    pub(super) async fn find_waiting(&self, say: Say<'_>) {
        let keeper = Arc::clone(&self.keeper);
        let held = match aside(move || keeper.held()).await {
            Ok(held) => held,
            Err(error) => return say(&format!("the keeper of attached volumes: {error}")),
        };
        for held in held {
            let name = held.name.clone();
            match Waiting::of(held) {
                Some(waiting) => locked(&self.waiting).push(waiting),
                // What somebody else stores in the unit is not ours to give up.
                None if name.parse::<AttachmentLabel>().is_err() => {}
                None => self.give_up(name).await,
            }
        }
        if !locked(&self.waiting).is_empty() {
            self.watch_keeper();
        }
    }

    /// Whose volumes have not started.
    pub(super) fn tell_waiting(&self, say: Say<'_>) {
        for waiting in locked(&self.waiting).iter() {
            let file = waiting.file.display();
            say(&format!("{file} is not served, and its users wait until its array is started"));
        }
    }

    /// Serve what waits for this volume. What is said of it.
    pub(super) async fn resume(&self, volume: &str) -> Option<String> {
        let _changing = self.changing.lock().await;
        let facts = self.facts_of(volume).await.ok()?;
        let is_it = |it: &&Waiting| it.label.uuid == facts.uuid;
        let waiting = locked(&self.waiting).iter().find(is_it).cloned()?;
        let shown = waiting.file.display().to_string();
        match self.resume_one(volume, &facts, waiting).await {
            Ok(()) => {
                let on_it = loops::over(&shown);
                let on_it = on_it.iter().map(|device| format!(", and {device} on it"));
                Some(format!("{shown} is served again{}", on_it.collect::<String>()))
            }
            Err(why) => Some(format!("{shown} is not served, and its users wait: {why}")),
        }
    }

    async fn resume_one(
        &self,
        volume: &str,
        facts: &VolumeFacts,
        waiting: Waiting,
    ) -> io::Result<()> {
        waiting.check(facts).map_err(io::Error::other)?;
        if locked(&self.attached).contains_key(volume) {
            return Err(io::Error::other("the volume is attached already"));
        }
        let Waiting { label, file, devices } = waiting;
        let (by, already) = (MountBy::for_this_user(), devices.len());
        let mount = Mount::taken_over(file, by, devices, self.engine.worker_count())?;
        let plan = Plan { label: label.clone(), already, entries: None };
        self.run(volume, mount, plan).await?;
        locked(&self.waiting).retain(|it| it.label != label);
        let fields = vec![("device", self.file_of(volume).unwrap_or_default())];
        self.engine.events().record(super::ATTACHMENT_RESUMED, volume, fields);
        Ok(())
    }

    /// The file of this name that waits.
    pub(super) fn waiting_as(&self, volume: &str) -> Option<Waiting> {
        let file = self.place_of(volume);
        locked(&self.waiting).iter().find(|it| it.file == file).cloned()
    }

    /// Take a file that waits away, if nobody has it open; or whoever has it open.
    pub(super) async fn let_go(
        &self,
        volume: &str,
        waiting: Waiting,
        is_forced: bool,
    ) -> Result<(), ApiError> {
        let shown = waiting.file.display().to_string();
        let file = waiting.file.clone();
        let unmounted = aside(move || unmount(&file, is_forced)).await;
        if let Err(error) = unmounted {
            return Err(ApiError::new(
                codes::EXPORT_BUSY,
                format!("{shown} stays: its users wait for its array ({error})"),
                format!("start the array; or give them errors: ashlar detach --give-up {volume}"),
            ));
        }
        // Nobody serves it: its loop devices let go once the requests on it have ended.
        loops::let_go_of(&shown, places::CLOSE_MAX).await;
        locked(&self.waiting).retain(|it| it.label != waiting.label);
        self.give_up(waiting.label.to_string()).await;
        places::remove(&waiting.file);
        Ok(())
    }
}

/// Past umount(8), which looks at the file, and waits then as everybody does.
fn unmount(file: &Path, is_forced: bool) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    if !rustix::process::geteuid().is_root() {
        return places::unmount(file);
    }
    // By force its requests end with errors, whoever has it open.
    let forced = UnmountFlags::FORCE | UnmountFlags::DETACH;
    Ok(unmount(file, if is_forced { forced } else { UnmountFlags::empty() })?)
}
