//! Calls that erase RAID metadata: of devices that no array needs, and of a whole array.
//!
//! What must stay true: a device of a running array, and a spare of a pool, is never erased. A
//! device that an array may still need is erased only if it is named for that. All devices of a
//! call are held and judged before the first is written.

use super::{Arrays, left_over, partitions};
use crate::aside::aside;
use crate::backend::Serves;
use crate::erase::HeldDevice;
use crate::look::{self, Label};
use crate::{config, memory_devices, partition};
use ashlar_api::ApiError;
use ashlar_api::v1::Done;
use ashlar_api::v1::array::Destroy;
use ashlar_api::v1::member::Wipe;
use ashlar_device::Physical;
use ashlar_engine::{ArrayStatus, Ends, WhyReadOnly};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long to wait for a device that was let go just now, by udev or by its array: a replaced
/// device that still owes answers is closed after 5 s.
const LET_GO: Duration = Duration::from_secs(8);
/// How long between tries.
const TRY_AGAIN: Duration = Duration::from_millis(50);

impl Serves<Wipe> for Arrays {
    async fn serve(&self, mut call: Wipe) -> Result<Done, ApiError> {
        for devices in [&mut call.devices, &mut call.destroy] {
            *devices = partitions::inside(std::mem::take(devices)).await;
        }
        let running = self.status_of_all().await?;
        let mut held = Vec::new();
        for path in &call.devices {
            self.refuse_if_in_use(path).await?;
            self.refuse_if_spare(path).await?;
            let device = take(path).await?;
            let named = call.destroy.iter().any(|it| Physical::of(it) == Physical::of(path));
            let is_nothing = matches!(device.label(), Label::Nothing);
            let may_go = named || is_nothing && is_empty_partition(path.clone()).await;
            if !may_go {
                may_erase(&device, &running)?;
                refuse_if_given_away(path).await?;
            }
            held.push(device);
        }
        let was: Vec<String> =
            held.iter().map(|it| format!("{} ({})", it.path(), words(it.label()))).collect();
        let was = was.join(", ");
        if call.dry_run {
            return Ok(Done::unchanged(format!("would erase {was}; nothing was written")));
        }
        let (failed, blank) = self.erase_with_tables(held).await;
        match failed.is_empty() {
            true => Ok(Done::changed(format!("erased the RAID metadata of {was}{blank}"))),
            false => Err(not_erased(&failed, "the others are erased")),
        }
    }
}

impl Serves<Destroy> for Arrays {
    async fn serve(&self, call: Destroy) -> Result<Done, ApiError> {
        let arrays = self.status_of_all().await?;
        let name = &call.array;
        let array = arrays.iter().find(|it| it.name == *name);
        let array = array.ok_or_else(|| ApiError::no_array(name))?;
        refuse_if_to_be_kept(array)?;
        let mut devices = devices_of(array);
        self.exports.refuse_if_used(name)?;
        let away = left_over::of(self, array).await;
        devices.extend(away.out.iter().cloned());
        let kept = away.told();
        if call.dry_run {
            let message = format!(
                "would destroy '{name}' and erase {}; nothing was written{kept}",
                list(&devices)
            );
            return Ok(Done::unchanged(message));
        }
        if call.confirm.as_deref() != Some(name) {
            let message = format!(
                "all data of '{name}' would be lost, on {} devices; nothing was changed",
                devices.len()
            );
            let hint = format!("if it may go: ashlar destroy {name} --confirm {name}");
            return Err(ApiError::new("array.not_confirmed", message, hint));
        }
        let uuid = array.uuid;
        self.gather.stopped(uuid);
        self.stop(name).await?;
        let (mut held, mut failed) = (Vec::new(), Vec::new());
        for path in devices.iter().filter(|path| !memory_devices::is_memory(path)) {
            match take(path).await {
                Ok(device) if is_of(device.label(), uuid) => held.push(device),
                Ok(device) if matches!(device.label(), Label::Unread(_)) => {
                    failed.push(format!("{path} ({})", words(device.label())));
                }
                Ok(_) => failed.push(format!("{path} (it is no member of the array now)")),
                Err(refusal) => failed.push(format!("{path} ({})", refusal.message)),
            }
        }
        let (not_erased_too, blank) = self.erase_with_tables(held).await;
        failed.extend(not_erased_too);
        // Whatever is left of it does not start by itself.
        self.gather.remembered.note(uuid, |own| *own = Default::default());
        match failed.is_empty() {
            true => {
                let erased = list(&devices);
                Ok(Done::changed(format!("'{name}' is destroyed; erased {erased}{blank}{kept}")))
            }
            false => {
                let rest = format!("'{name}' is stopped, the rest is erased{kept}");
                Err(not_erased(&failed, &rest))
            }
        }
    }
}

/// Whoever started it read-only wants nothing of it changed. An array that cannot be written may be
/// destroyed.
fn refuse_if_to_be_kept(array: &ArrayStatus) -> Result<(), ApiError> {
    if array.read_only != Some(WhyReadOnly::Asked) {
        return Ok(());
    }
    let name = &array.name;
    let message = format!("array '{name}' was started read-only on request; nothing was changed");
    let hint = format!(
        "to destroy it, run: ashlar stop {name}; ashlar assemble --name {name} DEVICE...; ashlar \
         destroy {name} --confirm {name}"
    );
    Err(ApiError::new("array.read_only", message, hint))
}

impl Arrays {
    async fn refuse_if_spare(&self, path: &str) -> Result<(), ApiError> {
        if !super::members::is_among(self.engine.spares(), path).await {
            return Ok(());
        }
        let message = format!("{path} waits as a spare; nothing was written");
        Err(ApiError::new("device.in_use", message, format!("ashlar spare remove {path}")))
    }

    /// Erases the devices, forgets them, and takes the tables away of drives that had nothing but
    /// them. What could not be erased, and which drives are blank.
    async fn erase_with_tables(&self, held: Vec<HeldDevice>) -> (Vec<String>, String) {
        let paths = held.iter().map(|it| it.path().to_owned()).collect();
        let mut failed = self.erase_all(held).await;
        // A drive that still has a member keeps its table.
        if !failed.is_empty() {
            return (failed, String::new());
        }
        let blank = partitions::taken_away(paths).await;
        failed.extend(blank.clone().err());
        (failed, blank.unwrap_or_default())
    }

    /// Erases the devices and forgets them. Those that it could not erase, and why.
    async fn erase_all(&self, held: Vec<HeldDevice>) -> Vec<String> {
        let mut failed = Vec::new();
        for device in held {
            let path = device.path().to_owned();
            let array = match device.label() {
                Label::Member { array, .. } | Label::Newer { array } => array.parse::<Uuid>().ok(),
                _ => None,
            };
            if let Err(error) = aside(move || device.erase()).await {
                failed.push(format!("{path} ({error})"));
                continue;
            }
            let Some(array) = array else { continue };
            // If this is not written down, the worst is a device that is looked at in vain.
            self.gather.remembered.note(array, |own| {
                own.devices.retain(|it| *it != path);
                if own.devices.is_empty() {
                    *own = Default::default();
                }
            });
        }
        failed
    }
}

/// Takes the device, or says what is wrong with it after it had time to be let go.
async fn take(path: &str) -> Result<HeldDevice, ApiError> {
    let until = Instant::now() + LET_GO;
    loop {
        let asked = path.to_owned();
        let refusal = match aside(move || HeldDevice::take(&asked)).await {
            Ok(held) => return Ok(held),
            Err(refusal) => refusal.to_string(),
        };
        if Instant::now() >= until {
            return Err(ApiError::new("device.not_opened", refusal, "nothing was written"));
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Whether it is a partition of Ashlar's type, alone on its drive, and nobody's.
async fn is_empty_partition(path: String) -> bool {
    aside(move || {
        partition::behind(&path).is_some()
            && config::foreign_signatures()(&path, Ends::Unknown).is_empty()
    })
    .await
}

/// That nobody else has put anything on it: that would go with what is ours.
async fn refuse_if_given_away(path: &str) -> Result<(), ApiError> {
    let asked = path.to_owned();
    let Some(signature) = aside(move || look::given_away(&asked)).await else { return Ok(()) };
    let message = format!(
        "{path} was Ashlar's and carries {signature} now, which would be overwritten; nothing was \
         written"
    );
    let hint = format!("if that may go, too: ashlar wipe {path} --destroy {path}");
    Err(ApiError::new("device.has_signature", message, hint))
}

/// That no array needs the device.
fn may_erase(device: &HeldDevice, running: &[ArrayStatus]) -> Result<(), ApiError> {
    let path = device.path();
    let is_running = |uuid: &str| running.iter().any(|array| array.uuid.to_string() == uuid);
    let needed = match device.label() {
        Label::Nothing => {
            let message = format!("{path} has no RAID metadata of Ashlar; nothing was written");
            let hint = format!("for other signatures: wipefs {path}");
            return Err(ApiError::new("device.not_ours", message, hint));
        }
        Label::Spare => return Ok(()),
        Label::Member { array, .. } if is_running(array) => return Ok(()),
        Label::Member { name, .. } => format!("'{name}' does not run and may need it"),
        Label::Newer { .. } => "a newer program wrote it".to_owned(),
        Label::Unknown => "its metadata is damaged, so an array may need it".to_owned(),
        Label::Unread(_) => "an array may need it".to_owned(),
    };
    let message = format!("{path} is {}: {needed}; nothing was written", words(device.label()));
    let hint = format!("if it may go: ashlar wipe {path} --destroy {path}");
    Err(ApiError::new("device.needed", message, hint))
}

fn words(label: &Label) -> String {
    match label {
        Label::Member { name, .. } => format!("a member of '{name}'"),
        Label::Newer { .. } => "a member of a newer format".to_owned(),
        Label::Spare => "a spare".to_owned(),
        Label::Unknown => "damaged".to_owned(),
        Label::Unread(fault) => format!("not readable: {fault}"),
        Label::Nothing => "nothing of Ashlar".to_owned(),
    }
}

fn is_of(label: &Label, uuid: Uuid) -> bool {
    matches!(label, Label::Member { array, .. } if *array == uuid.to_string())
}

pub(super) fn devices_of(array: &ArrayStatus) -> Vec<String> {
    let members = array.members.iter();
    let paths = members.flat_map(|it| [Some(it.path.clone()), it.replacement.clone()]);
    paths.flatten().filter(|path| !path.is_empty()).collect()
}

fn list(devices: &[String]) -> String {
    devices.join(", ")
}

fn not_erased(failed: &[String], rest: &str) -> ApiError {
    let message = format!("could not erase {}; {rest}", failed.join(", "));
    let hint = "erase them later: ashlar wipe DEVICE --destroy DEVICE; 'ashlar examine' shows them";
    ApiError::new("device.not_erased", message, hint)
}
