//! Requests over io_uring: whether a file has them, and which worker serves which queue.
//!
//! What must stay true: entries that wait for requests leave a worker's ring the places that its
//! members need. Until every queue is served the kernel answers nobody, so a mount that does not
//! answer is aborted and made again without. Such a mount ends with the daemon: nobody keeps its
//! descriptors, because the kernel repeats no request of such a mount.

use super::{FuseExports, places};
use crate::exports::{Say, locked};
use ashlar_api::ApiError;
use ashlar_fuse::{Queues, RingOffer, possible_cpus, ring_offer};
use rustix::mount::{UnmountFlags, unmount};
use std::future::Future;
use std::path::Path;
use std::time::Duration;

/// Why such a file does not survive the daemon.
pub const LACKS: &str = "its requests come over io_uring, and the kernel does not repeat them";

/// Places of each worker's ring that the requests of one file take.
const PLACES: usize = 64;
/// Places that all files together may take: a fourth. Devices of ublk have half.
const PLACES_MAX: usize = 256;
/// How long a mount may take until it answers.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl FuseExports {
    /// Requests of each queue at the same time, for the next file; `None` if nobody asked for that.
    ///
    /// # Errors
    /// Why the next file has no requests over io_uring: one line.
    pub(super) fn entries_of_next(&self) -> Result<Option<usize>, String> {
        if !self.over_ring {
            return Ok(None);
        }
        check_offer()?;
        let queues = self.queues_a_worker();
        let entries = (PLACES / queues.max(1)).max(1);
        let attached = locked(&self.attached);
        let taken: usize = attached.values().filter_map(|it| it.entries).sum();
        match (taken + entries) * queues <= PLACES_MAX {
            true => Ok(Some(entries)),
            false => Err("the workers' rings have no room for one more such file".to_owned()),
        }
    }

    /// Say at a start if files will not have what was asked for.
    pub(super) fn tell_ring(&self, say: Say<'_>) {
        if let (true, Err(why)) = (self.over_ring, check_offer()) {
            say(&format!("requests of attached files do not come over io_uring: {why}"));
        }
    }

    /// Attach with so many requests of each queue at the same time, if there is an answer before
    /// `patience` ends; else the classic way. Why the classic way, if over io_uring was asked for.
    pub(super) async fn attach_as_asked(
        &self,
        array: &str,
        asked: Result<Option<usize>, String>,
        patience: impl Future<Output = ()>,
    ) -> Result<Option<String>, ApiError> {
        let not_over_ring = match asked {
            Ok(Some(entries)) if self.attach_over_ring(array, entries, patience).await? => {
                return Ok(None);
            }
            Ok(Some(_)) => Some("the kernel did not begin with it".to_owned()),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        self.attach_anew(array, None).await?;
        Ok(not_over_ring)
    }

    /// Whether the kernel goes along. If not, it is not attached.
    async fn attach_over_ring(
        &self,
        array: &str,
        entries: usize,
        patience: impl Future<Output = ()>,
    ) -> Result<bool, ApiError> {
        self.attach_anew(array, Some(entries)).await?;
        let made = locked(&self.attached).get(array).map(|it| {
            (it.mount.file().to_owned(), it.label.device, it.shared.agreed.get().copied())
        });
        let Some((file, device, agreed)) = made else { return Ok(false) };
        if agreed.is_some_and(|agreed| agreed.over_ring) && answers(&file, patience).await {
            return Ok(true);
        }
        abort(device, &file);
        if let Some(attached) = locked(&self.attached).get_mut(array) {
            // It can only fail because somebody else unmounted it.
            let _gone = attached.mount.unmount();
        }
        self.forget(array).await;
        Ok(false)
    }

    /// The queues that a worker serves.
    pub(super) fn queues_of(&self, worker: usize, entries: usize) -> Queues {
        let workers = self.engine.worker_count();
        let (all, cores) = (0..possible_cpus().unwrap_or(0), self.engine.cores());
        let numbers = all.filter(|cpu| worker_of(usize::from(*cpu), workers, cores) == worker);
        Queues { numbers: numbers.collect(), entries }
    }

    /// The most that one worker has.
    fn queues_a_worker(&self) -> usize {
        let all = 0..self.engine.worker_count();
        all.map(|worker| self.queues_of(worker, 0).numbers.len()).max().unwrap_or(0)
    }
}

/// The worker on this CPU, if one is bound to it; else one for each in turn.
fn worker_of(cpu: usize, workers: usize, cores: &[usize]) -> usize {
    cores.iter().take(workers).position(|core| *core == cpu).unwrap_or(cpu % workers)
}

fn check_offer() -> Result<(), String> {
    match ring_offer() {
        RingOffer::Offered => Ok(()),
        RingOffer::Off => Err("the kernel does not offer it; as root: \
             echo Y > /sys/module/fuse/parameters/enable_uring"
            .to_owned()),
        RingOffer::Unknown => Err("the kernel cannot do that (Linux 6.14 can)".to_owned()),
    }
}

/// Ends when a new mount has had its time to answer.
pub async fn patience() {
    tokio::time::sleep(ANSWER_MAX).await;
}

/// Whether somebody who opens it gets an answer before `patience` ends.
async fn answers(file: &Path, patience: impl Future<Output = ()>) -> bool {
    let at = file.to_owned();
    let opened = tokio::task::spawn_blocking(move || std::fs::File::open(at).map(drop));
    let is_open = tokio::select! {
        opened = opened => matches!(opened, Ok(Ok(()))),
        () = patience => false,
    };
    is_open && places::is_mounted(file)
}

/// End all requests of a mount with errors.
fn abort(device: u32, file: &Path) {
    let told = std::fs::write(format!("/sys/fs/fuse/connections/{device}/abort"), "1");
    if told.is_err() {
        // Where that is not mounted. If this user may not, others wait until the daemon ends.
        let _kept = unmount(file, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::worker_of;

    #[test]
    fn each_queue_has_one_worker_and_that_of_its_cpu_if_there_is_one() {
        let of = |workers, cores: &[usize]| -> Vec<usize> {
            (0..6).map(|cpu| worker_of(cpu, workers, cores)).collect()
        };
        assert_eq!(of(2, &[0, 1]), [0, 1, 0, 1, 0, 1]);
        assert_eq!(of(2, &[3, 4, 5]), [0, 1, 0, 0, 1, 1]);
        assert_eq!(of(4, &[2]), [0, 1, 0, 3, 0, 1]);
        assert_eq!(of(1, &[]), [0; 6]);
    }
}
