//! A device that is to join an array or a spare pool: opened exclusively, and proved to be unused.
//!
//! What must stay true: a device with any signature, one of ours included, is taken only if the
//! operator named it to be overwritten. Looking changes nothing. The engine writes to the device
//! that it looked at.

use crate::engine_state::EngineState;
use crate::error::Refusal;
use crate::worker::Worker;
use crate::{aside, control_io};
use ashlar_device::{Device, Opened};
use ashlar_ondisk::examine::{examine_ranges, split_copies};
use ashlar_ondisk::{Label, SuperblockCopies};
use std::rc::Rc;
use std::sync::Arc;

/// A device that may be written.
pub(crate) struct JoiningDevice {
    pub(crate) path: String,
    pub(crate) opened: Arc<dyn Opened>,
    pub(crate) device: Rc<dyn Device>,
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
    if !may_destroy {
        let signatures = Arc::clone(&engine_state.config.signatures);
        // Of the open device: its path may lead elsewhere by now.
        let at = opened.descriptor_path().unwrap_or_else(|| path.to_owned());
        let found =
            aside::run(&worker.handle, &engine_state.config.aside, move || signatures(&at)).await;
        if let Some(first) = found.first() {
            return Err(carries(path, &format!("carries {first}")));
        }
    }
    let device = opened.attach(&worker.handle);
    let joining_device = JoiningDevice { path: path.to_owned(), opened, device };
    if !may_destroy && let Some(label) = label_of(worker, &joining_device).await {
        return Err(carries(path, &owner(&label)));
    }
    Ok(joining_device)
}

/// What one of our superblocks on the device says, if there is one.
async fn label_of(worker: &Rc<Worker>, joining_device: &JoiningDevice) -> Option<Label> {
    let device = joining_device.device.as_ref();
    let [head, tail] = examine_ranges(device.facts().size_bytes)?;
    let head = control_io::read(worker, device, head).await.ok();
    let tail = control_io::read(worker, device, tail).await.ok();
    SuperblockCopies::choose(&split_copies(head.as_deref(), tail.as_deref())).newest
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
