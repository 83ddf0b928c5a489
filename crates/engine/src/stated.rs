//! Statements of the operator about devices: a device writes blocks whole or not at all, even when
//! power fails. A statement is checked when a device joins an array or a spare pool. Each start
//! decides what follows from it.
//!
//! What must stay true: nothing is assumed. A device that reports less than the statement is
//! refused. A device has full records if nothing was stated about it, if it has a volatile cache,
//! or if it joined its slot since the start. A device's own report is no statement: it only backs
//! one, because the device is then given the block as one command (`Command::WriteWhole`).
//!
//! Not here: which updates have parity-only records (`datapath/parity_only.rs`).

use crate::error::Refusal;
use crate::joining_device::JoiningDevice;
use crate::local_array::LocalArray;
use ashlar_device::DeviceFacts;
use ashlar_ondisk::{ConsistencyPolicy, Features, Role, Superblock};
use ashlar_units::{BLOCK_BYTES, ByteSize};

/// What is stated of the devices must mean something, and they must not say otherwise.
///
/// # Errors
/// If the array keeps no log, the size is of no use, or a device reports less.
pub(crate) fn check(
    bytes: u32,
    policy: ConsistencyPolicy,
    candidates: &[JoiningDevice],
) -> Result<(), Refusal> {
    check_policy(bytes, policy)?;
    candidates.iter().try_for_each(|candidate| check_device(bytes, candidate.opened.facts()))
}

/// It must matter to an array of this policy, or be nothing.
///
/// # Errors
/// If the array keeps no log.
pub(crate) fn check_policy(bytes: u32, policy: ConsistencyPolicy) -> Result<(), Refusal> {
    if bytes == 0 || policy == ConsistencyPolicy::Log {
        return Ok(());
    }
    Err(Refusal::new(
        "array.atomic_write_needs_log",
        format!(
            "what devices write whole matters to the policy 'log' only, not to '{}'",
            policy.name()
        ),
        "use the policy 'log', or state nothing; nothing was written",
    ))
}

/// It must mean something, and the device must not say otherwise.
///
/// # Errors
/// If the size is of no use, or the device reports less.
pub(crate) fn check_device(bytes: u32, facts: &DeviceFacts) -> Result<(), Refusal> {
    if bytes == 0 {
        return Ok(());
    }
    if !bytes.is_power_of_two() || u64::from(bytes) < BLOCK_BYTES {
        return Err(Refusal::new(
            "array.bad_atomic_write",
            format!("{bytes} bytes that are written whole are of no use"),
            "state a power of two of at least 4K, or nothing; nothing was written",
        ));
    }
    if let Some(less) = facts.atomic_write_bytes.filter(|less| *less < u64::from(bytes)) {
        return Err(Refusal::new(
            "array.atomic_write_denied",
            format!(
                "{} reports that it writes {} whole, not {}",
                facts.path,
                ByteSize(less),
                ByteSize(bytes.into())
            ),
            "state no more than the devices do, or nothing; nothing was written",
        ));
    }
    Ok(())
}

/// The devices whose statement has no effect: a volatile cache may lose writes.
pub(crate) fn in_vain(bytes: u32, candidates: &[JoiningDevice]) -> Vec<String> {
    let is_stated = bytes != 0;
    let in_vain = candidates
        .iter()
        .filter(|candidate| is_stated && candidate.opened.facts().has_volatile_cache);
    in_vain.map(|candidate| candidate.path.clone()).collect()
}

/// Parity-only records may be written from this start on, if a member's device writes blocks whole
/// and has no volatile cache; the members say so before there is one.
pub(crate) fn allow_parity_only(local: &LocalArray, next: &mut Superblock) {
    let array = &local.array;
    let is_for_parity_only = array.log.is_some() && array.checksums.is_none();
    let mut says_so = false;
    for entry in &next.members {
        let is_stated = u64::from(entry.stated_atomic_bytes) >= BLOCK_BYTES;
        says_so |= entry.stated_atomic_bytes != 0;
        if !(is_for_parity_only && is_stated && entry.role == Role::Active) {
            continue;
        }
        let device = local.device(entry.slot);
        if device.is_some_and(|device| !device.facts().has_volatile_cache) {
            array.slot(entry.slot).set_writes_whole();
            array.set_may_be_parity_only();
        }
    }
    // The flag stands for the statements, too: who does not know of them must not drop them.
    if says_so {
        next.features.incompatible |= Features::PARITY_ONLY_RECORDS;
    }
}
