//! Exports: how clients reach volumes, on the engine's workers.
//!
//! An export is one file here that implements [`Export`], and one line in [`Exports::new`]; its
//! protocol is a crate of its own. Its calls are lines of the list in `backend`, and are answered
//! in its file.
//!
//! - `nbd`   listeners that serve every volume by name; a connection goes to the next worker in
//!   turn; `address` says where they may listen
//! - `nvme`  one NVMe/TCP subsystem, whose namespaces are the volumes
//! - `ublk`  one block device for each attached volume, `/dev/ublkbN`
//! - `vhost_user`  one socket for each volume, for a virtual machine
//! - `fuse`  one file for each attached volume; `loops` are the loop devices over these files,
//!   `mounts` the table of mounts, read as the kernel writes it
//! - `attach` the best of these for a block device; `links` gives it a name that stays
//!
//! What must stay true: when an export has dropped the users of a volume it holds that volume no
//! more, so that an array that was stopped has let go of its devices.

pub mod address;
mod attach;
pub mod fuse;
mod links;
pub mod loops;
pub mod mounts;
pub mod nbd;
pub mod nvme;
pub mod ublk;
pub mod vhost_user;

use crate::aside::aside;
use crate::config::{Config, NbdLimits};
use crate::keeper::Keeper;
use crate::services::Services;
use ashlar_api::v1::Done;
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::{ApiError, codes};
use ashlar_engine::Engine;
use fuse::FuseExports;
use nbd::NbdExports;
use nvme::NvmeExports;
use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn, ready};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use ublk::UblkExports;
use vhost_user::VhostExports;

/// An attached volume is not served as it should be. Fields: `reason`.
const ATTACHMENT_FAILED: &str = "attachment.failed";

/// What a daemon that is gone has left is served again. Fields: `device`.
const ATTACHMENT_RESUMED: &str = "attachment.resumed";

/// How long clients may take to let go of a volume.
const LET_GO_MAX: Duration = Duration::from_secs(5);
/// How often to look whether they did.
const LET_GO_POLL: Duration = Duration::from_millis(2);

/// How often to look whether a volume has grown.
const SIZES_EVERY: Duration = Duration::from_secs(1);

/// What an export does over some time.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes lines for people.
pub type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A way to volumes.
///
/// Some serve every volume to whoever comes to a listener (NBD); some make one volume at a time a
/// part of this machine (FUSE: *attached* volumes). The life of an export: `prepare`, then the
/// arrays of the configuration start, `begin`, and calls until a signal comes. Then every attached
/// volume is detached as soon as nobody uses it, the arrays stop, each with `drop_users_of`, and
/// `remove` is the end. A daemon that was killed did none of that: its successor's `prepare` finds
/// what it left.
pub trait Export: Any + Send + Sync {
    /// The protocol, as `status` says it.
    fn name(&self) -> &'static str;

    /// Its listeners, and its attached volumes.
    fn status(&self) -> Vec<ExportStatus>;

    /// Before any array starts: clear away what a daemon that was killed has left.
    fn prepare<'a>(&'a self, _: &'a Config, _: Say<'a>) -> Work<'a, ()> {
        Box::pin(ready(()))
    }

    /// Once the arrays of the configuration have started, and again as long as something is
    /// missing: serve what the configuration names and is not served yet. What cannot be had is
    /// told to [`Services`].
    fn begin<'a>(&'a self, _: &'a Config, _: Say<'a>) -> Work<'a, ()> {
        Box::pin(ready(()))
    }

    /// A volume has started: serve again what a daemon that is gone has left of it. What to tell.
    fn volume_started<'a>(&'a self, _: &'a str) -> Work<'a, Option<String>> {
        Box::pin(ready(None))
    }

    /// A volume has grown: tell its users of it, as far as the protocol can.
    fn volume_grew<'a>(&'a self, _: &'a str) -> Work<'a, ()> {
        Box::pin(ready(()))
    }

    /// Refuse if somebody uses the volume.
    ///
    /// # Errors
    /// One line that says who.
    fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError>;

    /// End everybody who uses the volume, and wait until they have let go of it; not for ever.
    fn drop_users_of<'a>(&'a self, volume: &'a str) -> Work<'a, ()>;

    /// Why users of it would get errors if the daemon handed over: a line. `None` if they wait, or
    /// connect again.
    fn obstacle_to_hand_over(&self) -> Option<String> {
        None
    }

    /// The volumes that are attached.
    fn attached(&self) -> Vec<String> {
        Vec::new()
    }

    /// Detach a volume, if nobody uses it.
    ///
    /// # Errors
    /// `EXPORT_BUSY` if somebody does: it stays attached.
    fn detach<'a>(&'a self, volume: &'a str) -> Work<'a, Result<Done, ApiError>> {
        Box::pin(ready(Ok(not_attached(volume))))
    }

    /// At the end of the process: take away what outlives it.
    fn remove(&self) {}
}

/// What the exports are made of.
pub struct ExportSetting {
    /// Whose volumes they are.
    pub engine: Engine,
    /// The folder below which attached volumes appear as files.
    pub folder: PathBuf,
    /// What NBD clients may hold.
    pub nbd_limits: NbdLimits,
    /// This boot of the host: another one is another.
    pub boot: [u8; 16],
    /// Who keeps the descriptors of attached files.
    pub keeper: Keeper,
    /// Who knows what is missing.
    pub services: Arc<Services>,
    /// Requests of attached files come over io_uring where the kernel offers it.
    pub over_ring: bool,
    /// Attached volumes get names below /dev/ashlar.
    pub gives_links: bool,
}

/// All ways to all volumes.
pub struct Exports {
    all: Vec<Box<dyn Export>>,
    gives_links: bool,
}

impl Exports {
    /// All of them; nothing is served yet.
    pub fn new(setting: ExportSetting) -> Exports {
        let ExportSetting { engine, folder, nbd_limits, boot, keeper, services, .. } = setting;
        let (over_ring, gives_links) = (setting.over_ring, setting.gives_links);
        let known = || Arc::clone(&services);
        let all: Vec<Box<dyn Export>> = vec![
            Box::new(NbdExports::new(engine.clone(), &nbd_limits, known())),
            Box::new(NvmeExports::new(engine.clone(), boot, known())),
            Box::new(VhostExports::new(engine.clone(), known())),
            Box::new(UblkExports::new(engine.clone())),
            Box::new(FuseExports::new(engine, folder, keeper, over_ring, known())),
        ];
        Exports { all, gives_links }
    }

    /// Whether attached volumes get names below /dev/ashlar.
    pub fn gives_links(&self) -> bool {
        self.gives_links
    }

    /// A volume is attached no more.
    pub async fn detached(&self, volume: &str) {
        if self.gives_links {
            let volume = volume.to_owned();
            aside(move || links::take(&volume)).await;
        }
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Export> {
        self.all.iter().map(AsRef::as_ref)
    }

    /// The one of this type, for its own calls.
    ///
    /// # Panics
    /// If it is not in the list of [`Exports::new`].
    pub fn of<E: Export>(&self) -> &E {
        let found = self.iter().find_map(|export| (export as &dyn Any).downcast_ref());
        found.expect("every export is in the list")
    }

    /// Each way with its clients.
    pub fn status(&self) -> Vec<ExportStatus> {
        self.iter().flat_map(Export::status).collect()
    }

    /// The same, with the loop devices over files of volumes.
    pub async fn status_with_devices(&self) -> Vec<ExportStatus> {
        let mut status = self.status();
        aside(move || {
            loops::name_devices(&mut status);
            status
        })
        .await
    }

    /// A volume has started: what its exports have to tell of that.
    pub async fn volume_started(&self, volume: &str) -> Vec<String> {
        let mut told = Vec::new();
        for export in self.iter() {
            told.extend(export.volume_started(volume).await);
        }
        told
    }

    /// Tell the users of volumes that have grown of it, as long as the process runs.
    pub async fn watch_sizes(self: Arc<Self>, engine: Engine) {
        let mut known: BTreeMap<[u8; 16], u64> = BTreeMap::new();
        loop {
            for array in engine.arrays() {
                let (uuid, bytes) = (array.uuid(), array.volume_bytes());
                let name = array.name().to_owned();
                drop(array);
                if known.insert(uuid, bytes).is_some_and(|before| before < bytes) {
                    for export in self.iter() {
                        export.volume_grew(&name).await;
                    }
                }
            }
            tokio::time::sleep(SIZES_EVERY).await;
        }
    }

    /// Refuse if somebody uses the volume.
    ///
    /// # Errors
    /// One line that says who.
    pub fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
        self.iter().try_for_each(|export| export.refuse_if_used(volume))
    }

    /// Drop everybody who uses the volume, and wait until they have let go.
    pub async fn drop_users_of(&self, volume: &str) {
        let mut works: Vec<_> = self.iter().map(|export| export.drop_users_of(volume)).collect();
        poll_fn(|context| {
            works.retain_mut(|work| work.as_mut().poll(context).is_pending());
            if works.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.detached(volume).await;
    }
}

/// Refuse if a volume is attached another way: the two would not know what the other has in its
/// cache.
fn refuse_if_attached_by(other: &dyn Export, volume: &str) -> Result<(), ApiError> {
    if !other.attached().iter().any(|it| it == volume) {
        return Ok(());
    }
    Err(ApiError::new(
        codes::EXPORT_BUSY,
        format!("'{volume}' is attached by {} already; nothing was changed", other.name()),
        format!("detach it first: ashlar detach {volume}"),
    ))
}

fn not_attached(volume: &str) -> Done {
    Done::unchanged(format!("'{volume}' is not attached"))
}

/// Wait until `is_so`, or until clients have had their time. Whether it is so.
async fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + LET_GO_MAX;
    while !is_so() {
        if tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(LET_GO_POLL).await;
    }
    true
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Export, Exports, Work};
    use ashlar_api::v1::export::ExportStatus;
    use ashlar_api::{ApiError, codes};
    use std::sync::Arc;
    use tokio::sync::Barrier;

    /// Lets go of a volume once all others do.
    struct Patient(Arc<Barrier>);

    /// Has a user.
    struct Busy;

    impl Export for Patient {
        fn name(&self) -> &'static str {
            "patient"
        }

        fn status(&self) -> Vec<ExportStatus> {
            Vec::new()
        }

        fn refuse_if_used(&self, _: &str) -> Result<(), ApiError> {
            Ok(())
        }

        fn drop_users_of<'a>(&'a self, _: &'a str) -> Work<'a, ()> {
            Box::pin(async {
                let _one_of_them_leads = self.0.wait().await;
            })
        }
    }

    impl Export for Busy {
        fn name(&self) -> &'static str {
            "busy"
        }

        fn status(&self) -> Vec<ExportStatus> {
            Vec::new()
        }

        fn refuse_if_used(&self, volume: &str) -> Result<(), ApiError> {
            Err(ApiError::new(codes::EXPORT_BUSY, format!("'{volume}' has a user"), ""))
        }

        fn drop_users_of<'a>(&'a self, _: &'a str) -> Work<'a, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn exports_let_go_side_by_side_and_one_user_is_enough_to_refuse() {
        let barrier = Arc::new(Barrier::new(2));
        let patient = || Box::new(Patient(Arc::clone(&barrier)));
        let all: Vec<Box<dyn Export>> = vec![patient(), Box::new(Busy), patient()];
        let exports = Exports { all, gives_links: false };
        // One after the other they would wait for each other for ever.
        exports.drop_users_of("tank").await;
        let refusal = exports.refuse_if_used("tank").expect_err("somebody uses it");
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            (codes::EXPORT_BUSY, "'tank' has a user")
        );
        assert_eq!(exports.of::<Busy>().name(), "busy");
    }
}
