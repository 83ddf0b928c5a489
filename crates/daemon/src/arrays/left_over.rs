//! Devices that still carry the superblock of an array that is to be destroyed, and are in none of
//! its slots: members that are out, older copies of members, drives that were pulled.
//!
//! What must stay true: only a device that was in a slot which is out now, and is the only one of
//! that slot, goes with its array. A copy that somebody made stays, and is named with the command
//! that erases it. A device that does not answer holds up no other one, and is named, too.

use super::Arrays;
use crate::{aside::aside, look};
use ashlar_device::Physical;
use ashlar_engine::{ArrayStatus, MemberStatus};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a device may take to say what it is.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What is left of an array beside the devices in its slots.
#[derive(Default)]
pub(super) struct LeftOver {
    /// Members that are out: they go with the array.
    pub(super) out: Vec<String>,
    /// Other devices with its superblock.
    copies: Vec<String>,
    /// Drives that were in slots and are not here.
    gone: Vec<String>,
    /// Devices that did not answer: nobody knows what they have.
    silent: Vec<String>,
}

impl LeftOver {
    /// What keeps a superblock, with the command for it; empty if nothing does.
    pub(super) fn told(&self) -> String {
        let wipe = |path: &String| format!("ashlar wipe {path} --destroy {path}");
        let copies = self.copies.iter().map(|path| {
            format!("; {path} has its superblock, too, and keeps it; to erase that: {}", wipe(path))
        });
        let gone = self.gone.iter().map(|path| {
            format!(
                "; {path} is not here and keeps its superblock; when it is back: {}",
                wipe(path)
            )
        });
        let silent = self.silent.iter().map(|path| {
            format!("; {path} does not answer; if it has the superblock: {}", wipe(path))
        });
        copies.chain(gone).chain(silent).collect()
    }
}

/// What is left of this running array.
pub(super) async fn of(arrays: &Arrays, array: &ArrayStatus) -> LeftOver {
    let last = |it: &MemberStatus| it.last_device.as_ref().map(|last| last.path.clone());
    let is_empty = |it: &&MemberStatus| it.path.is_empty() && it.replacement.is_none();
    let out: Vec<&MemberStatus> = array.members.iter().filter(is_empty).collect();
    let last: Vec<String> =
        out.iter().filter_map(|it| last(it)).filter(|path| !path.is_empty()).collect();
    let own = arrays.gather.remembered.of(array.uuid).map(|own| own.devices).unwrap_or_default();
    let known: BTreeSet<String> = last.iter().cloned().chain(own).collect();
    let all: BTreeSet<String> =
        arrays.gather.known_paths().into_iter().chain(known.clone()).collect();
    let (found, silent) = look_at(all, array).await;
    let mut left = LeftOver { silent, ..LeftOver::default() };
    for (path, slot) in &found {
        let is_out = out.iter().any(|it| it.slot.0 == *slot);
        let is_alone = found.iter().filter(|(_, other)| other == slot).count() == 1;
        match known.contains(path) && is_out && is_alone {
            true => left.out.push(path.clone()),
            false => left.copies.push(path.clone()),
        }
    }
    let is_gone = |path: &String| !Path::new(path).exists();
    left.gone = aside(move || last.into_iter().filter(is_gone).collect()).await;
    left
}

/// Those of the devices that have a superblock of the array and are in none of its slots, each with
/// the slot that it was in; and those that do not answer.
async fn look_at(
    paths: BTreeSet<String>,
    array: &ArrayStatus,
) -> (Vec<(String, u16)>, Vec<String>) {
    let used: Vec<String> = super::erase::devices_of(array);
    let others = aside(move || {
        let mut known: Vec<_> = used.iter().map(|path| Physical::of(path)).collect();
        let mut is_new = |path: &String| {
            let physical = Physical::of(path);
            let is_new = !known.contains(&physical);
            known.push(physical);
            is_new
        };
        paths.into_iter().filter(|path| is_new(path)).collect::<Vec<_>>()
    });
    let mut looks = JoinSet::new();
    for path in others.await {
        looks.spawn(async move {
            let own = path.clone();
            let look = aside(move || look::member(&own));
            (path, tokio::time::timeout(LOOK_MAX, look).await)
        });
    }
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (path, told) in looks.join_all().await {
        match told {
            Ok(Some(own)) if own.array_uuid == array.uuid => found.push((path, own.slot.0)),
            Ok(_) => {}
            Err(_) => silent.push(path),
        }
    }
    found.sort();
    silent.sort();
    (found, silent)
}
