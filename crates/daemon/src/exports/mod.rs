//! Exports: how clients reach volumes, on the engine's workers.
//!
//! - `address` where NBD may listen
//! - `nbd`   listeners that serve every volume by name; a connection goes to the next worker in turn
//! - `fuse`  one mount for each attached volume, with one file in it
//! - `loops` the loop devices over these files
//! - `mounts` the table of mounts, read as the kernel writes it
//!
//! What must stay true: when an export is gone it holds no volume any more, so that an array that was
//! stopped has let go of its devices.

pub mod address;
pub mod fuse;
pub mod loops;
mod mounts;
pub mod nbd;

use ashlar_api::v1::export::ExportStatus;
use ashlar_api::{ApiError, codes};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long clients may take to let go of a volume.
const LET_GO_MAX: Duration = Duration::from_secs(5);
/// How often to look whether they did.
const LET_GO_POLL: Duration = Duration::from_millis(2);

/// All ways to all volumes.
pub struct Exports {
    /// NBD.
    pub nbd: nbd::NbdExports,
    /// FUSE.
    pub fuse: fuse::FuseExports,
}

impl Exports {
    /// No export yet; attached volumes will appear below `folder`.
    pub fn new(
        engine: &ashlar_engine::Engine,
        folder: PathBuf,
        nbd_limits: &crate::config::NbdLimits,
    ) -> Exports {
        Exports {
            nbd: nbd::NbdExports::new(engine.clone(), nbd_limits),
            fuse: fuse::FuseExports::new(engine.clone(), folder),
        }
    }

    /// Each way with its clients.
    pub fn status(&self) -> Vec<ExportStatus> {
        self.nbd.status().into_iter().chain(self.fuse.status()).collect()
    }

    /// Refuse if somebody uses the array.
    ///
    /// # Errors
    /// One line that says who.
    pub fn refuse_if_used(&self, array: &str) -> Result<(), ApiError> {
        if let Some(file) = self.fuse.file_of(array) {
            let message = format!("array '{array}' is attached as {file}; nothing was changed");
            let hint = format!("unmount it and run: ashlar detach {array}");
            return Err(ApiError::new(codes::EXPORT_BUSY, message, hint));
        }
        match self.nbd.clients_of(array) {
            0 => Ok(()),
            clients => Err(ApiError::new(
                codes::EXPORT_BUSY,
                format!("array '{array}' has {clients} NBD clients; nothing was changed"),
                "disconnect them, or drop them with --force",
            )),
        }
    }

    /// Drop everybody who uses the array, and wait until they have let go.
    pub async fn drop_clients_of(&self, array: &str) {
        self.nbd.end_clients_of(array);
        self.fuse.drop_users_of(array).await;
        wait_until(|| self.nbd.clients_of(array) == 0).await;
    }
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
