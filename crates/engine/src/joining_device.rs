//! A device that is to join an array or a spare pool: opened exclusively, and proved to be unused.
//!
//! What must stay true: a device with any signature, one of ours included, is taken only if the
//! operator named it to be overwritten. Looking changes nothing. The engine writes to the device
//! that it looked at.

use crate::aside;
use crate::blank::Blanking;
use crate::config::{Ends, ForeignSignature};
use crate::control_io::{self, refused};
use crate::ends::ReadEnds;
use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::worker::Worker;
use ashlar_device::{Device, Opened};
use ashlar_ondisk::Label;
use ashlar_ondisk::format::WRITTEN_MAP_MAGIC;
use ashlar_units::Extent;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A device that may be written.
pub(crate) struct JoiningDevice {
    pub(crate) path: String,
    pub(crate) opened: Arc<dyn Opened>,
    pub(crate) device: Rc<dyn Device>,
    /// What comes before the first write.
    pub(crate) blanking: Blanking,
}

/// Open `path` and make sure that nobody will miss what is on it; `may_destroy` is the operator's
/// word.
pub(crate) async fn open(
    worker: &Rc<Worker>,
    engine_state: &EngineState,
    path: &str,
    may_destroy: bool,
) -> Result<JoiningDevice, Refusal> {
    let opened = open_alone(worker, engine_state, path).await?;
    let config = &engine_state.config;
    let blanking = if may_destroy {
        Blanking::of_given_up(&config.wiper, &config.aside, path_to(opened.as_ref()))
    } else {
        if let Some(first) = signatures_on(worker, engine_state, opened.as_ref()).await.first() {
            return Err(carries(path, &format!("carries {}", first.words)));
        }
        Blanking::of_unused()
    };
    let device = opened.attach(&worker.handle);
    let joining_device = JoiningDevice { path: path.to_owned(), opened, device, blanking };
    if !may_destroy && let Some(label) = label_of(worker, &joining_device).await {
        return Err(carries(path, &owner(&label)));
    }
    Ok(joining_device)
}

/// A path to the open device: the one by which it was opened may lead elsewhere by now.
fn path_to(opened: &dyn Opened) -> String {
    opened.descriptor_path().unwrap_or_else(|| opened.facts().path.clone())
}

/// The signatures of others on an open device.
pub(crate) async fn signatures_on(
    worker: &Worker,
    engine_state: &EngineState,
    opened: &dyn Opened,
) -> Vec<ForeignSignature> {
    let Some(signatures) = engine_state.config.signatures.clone() else { return Vec::new() };
    let at = path_to(opened);
    aside::run(&worker.handle, &engine_state.config.aside, move || signatures(&at, Ends::Unknown))
        .await
}

/// What one of our superblocks on the device says, if there is one.
async fn label_of(worker: &Rc<Worker>, joining_device: &JoiningDevice) -> Option<Label> {
    ReadEnds::read(worker, joining_device.device.as_ref()).await.choice.newest
}

fn owner(label: &Label) -> String {
    match label {
        Label::Member(superblock) => {
            format!("is a member of array '{}'", superblock.array_name.as_str())
        }
        Label::Spare(spare) => format!("is a spare of pool '{}'", spare.pool_name.as_str()),
    }
}

fn carries(path: &str, what: &str) -> Refusal {
    Refusal::new(
        "device.has_signature",
        format!("{path} {what}; nothing was written"),
        format!("if its content may go, say so by name: --destroy {path}"),
    )
}

/// That what was written to one of the devices is not read from another: the pages of their written
/// maps at `page`, which differ from member to member. Names and numbers of devices may hide that
/// they are one.
///
/// # Errors
/// Two of them are one device, or one cannot be read.
pub(crate) async fn check_distinct(
    worker: &Rc<Worker>,
    devices: &[JoiningDevice],
    page: Extent,
) -> Result<(), Refusal> {
    let mut pages: BTreeMap<Vec<u8>, &str> = BTreeMap::new();
    for JoiningDevice { path, device, .. } in devices {
        let read = control_io::read(worker, device.as_ref(), page).await;
        let read = read.map_err(|fault| refused(path, "reading its written map", fault))?;
        // A device that forgets what it is told, for measurements, tells nothing of others.
        if !read.starts_with(&WRITTEN_MAP_MAGIC) {
            continue;
        }
        if let Some(twin) = pages.insert(read.to_vec(), path) {
            return Err(Refusal::new(
                "device.given_twice",
                format!(
                    "{twin} and {path} are one device: what is written to one is read from the \
                     other; no array has them, and what they carried is gone"
                ),
                "each member needs a device of its own",
            ));
        }
    }
    Ok(())
}

/// Open the device at `path`, to have it alone.
///
/// # Errors
/// If it cannot be had.
pub(crate) async fn open_alone(
    worker: &Worker,
    engine_state: &EngineState,
    path: &str,
) -> Result<Arc<dyn Opened>, Refusal> {
    let (opener, path) = (Arc::clone(&engine_state.config.opener), path.to_owned());
    let opened = aside::run(&worker.handle, &engine_state.config.aside, move || {
        opener.open(&path, ashlar_device::Access::Exclusive)
    })
    .await;
    opened.map_err(|refusal| {
        Refusal::new("device.not_opened", refusal.to_string(), "nothing was written")
    })
}
