//! Reads what lies on devices, all at once.
//!
//! What must stay true: a device that does not answer holds up no other one. It is asked once: as
//! soon as it does answer, somebody looks at all again. How long programs take that are asked about
//! a device says nothing of the device: they run a few at a time.

use super::Gather;
use crate::aside::aside;
use crate::look;
use ashlar_ondisk::assembly::{MemberReading, ReadLabel, recorded_sizes};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a device may take to say what it is.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How long programs may take to say what others put on a device, from when they run.
const PROGRAMS_MAX: Duration = Duration::from_secs(60);
/// Of so many devices at once: they compute more than they wait.
const PROGRAMS_AT_ONCE: usize = 2;

/// A device with a superblock, and the host that ran its array last.
pub(super) type Found = (MemberReading, Option<String>);

/// What lies on devices.
#[derive(Default)]
pub(super) struct Looked {
    /// Members.
    pub(super) found: Vec<Found>,
    pub(super) spares: Vec<String>,
    /// Devices that cannot be read.
    pub(super) unread: Vec<MemberReading>,
    /// Why these told nothing; also of devices that cannot be opened.
    pub(super) why: BTreeMap<String, String>,
}

/// What lies on the devices: members, and spares.
pub(super) async fn read_all(gather: &Arc<Gather>, paths: Vec<String>) -> Looked {
    let unanswered = gather.known().unanswered.clone();
    let paths = paths.into_iter().filter(|path| !unanswered.contains(path)).collect();
    let mut looked = Looked::default();
    let all = look_at_each(gather, paths, Arc::default(), &mut looked.why).await;
    let is_spare = |it: &&Found| matches!(it.0.label, ReadLabel::Spare(_));
    looked.spares = all.iter().filter(is_spare).map(|it| it.0.path.clone()).collect();
    let is_member = |it: &Found| it.0.superblock().is_some();
    let (mut found, mut silent): (Vec<Found>, Vec<Found>) = all.into_iter().partition(is_member);
    // One that tells nothing may have grown: the others know how large members were.
    let sizes = recorded_sizes(found.iter().filter_map(|it| it.0.superblock()));
    if !sizes.is_empty() {
        let paths = silent.into_iter().map(|it| it.0.path).collect();
        let again = look_at_each(gather, paths, Arc::new(sizes), &mut looked.why).await;
        let more: Vec<Found>;
        (more, silent) = again.into_iter().partition(is_member);
        found.extend(more);
    }
    looked.found = with_foreign(gather, found).await;
    looked.found.sort_by(|one, other| one.0.path.cmp(&other.0.path));
    for (reading, _) in silent {
        let Some(fault) = &reading.unread else { continue };
        looked.why.insert(reading.path.clone(), format!("cannot be read: {fault}"));
        looked.unread.push(reading);
    }
    looked.unread.sort_by(|one, other| one.path.cmp(&other.path));
    looked
}

/// What each device is. One that does not answer is left out; `why` has those that cannot be
/// opened.
async fn look_at_each(
    gather: &Arc<Gather>,
    paths: Vec<String>,
    sizes: Arc<BTreeSet<u64>>,
    why: &mut BTreeMap<String, String>,
) -> Vec<Found> {
    let mut looks = JoinSet::new();
    for path in paths {
        let (gather, sizes, own) = (Arc::clone(gather), Arc::clone(&sizes), path.clone());
        looks.spawn(async move {
            let look = aside(move || look::found(&own, &sizes).map_err(|it| it.reason));
            (path.clone(), answer(gather, path, LOOK_MAX, look).await)
        });
    }
    let mut found = Vec::new();
    for (path, looked) in looks.join_all().await {
        match looked {
            Some(Ok(one)) => found.push(one),
            Some(Err(reason)) => drop(why.insert(path, reason)),
            None => {}
        }
    }
    found
}

/// The same members, with what others put on each.
async fn with_foreign(gather: &Arc<Gather>, found: Vec<Found>) -> Vec<Found> {
    let places = Arc::new(Semaphore::new(PROGRAMS_AT_ONCE));
    let mut looks = JoinSet::new();
    for (reading, host) in found {
        let (gather, places) = (Arc::clone(gather), Arc::clone(&places));
        looks.spawn(async move {
            let _place = places.acquire_owned().await;
            let path = reading.path.clone();
            let look = aside(move || look::with_foreign(reading));
            Some((answer(gather, path, PROGRAMS_MAX, look).await?, host))
        });
    }
    looks.join_all().await.into_iter().flatten().collect()
}

/// What the look at a device says, if it does in time. Else all is looked at again once it has.
async fn answer<T: Send + 'static>(
    gather: Arc<Gather>,
    path: String,
    limit: Duration,
    look: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut look = tokio::spawn(look);
    if let Ok(answer) = tokio::time::timeout(limit, &mut look).await {
        return answer.ok();
    }
    gather.known().unanswered.insert(path.clone());
    tokio::spawn(async move {
        let _late = look.await;
        gather.known().unanswered.remove(&path);
        gather.wake.notify_one();
    });
    None
}

#[cfg(test)]
mod tests {
    use super::answer;
    use crate::config::Config;
    use crate::gather::Gather;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn a_device_that_answers_late_is_named_meanwhile_and_wakes_who_looks() {
        let gather = Gather::new(&Config::default(), Path::new("/"), "here".to_owned(), |_| {});
        let (gather, path) = (Arc::new(gather), "/dev/a".to_owned());
        let at_once = answer(Arc::clone(&gather), path.clone(), Duration::MAX, async { 7 });
        assert_eq!(at_once.await, Some(7));
        let says = Arc::new(Notify::new());
        let own = Arc::clone(&says);
        let look = async move { own.notified().await };
        let late = answer(Arc::clone(&gather), path.clone(), Duration::ZERO, look);
        assert_eq!(late.await, None);
        assert!(gather.known().unanswered.contains(&path));
        says.notify_one();
        gather.wake.notified().await;
        assert!(gather.known().unanswered.is_empty());
    }
}
