//! Memory devices: members whose content is memory of this process.
//!
//! What must stay true: memory is made by `create` and `replace` alone, because these erase what
//! they take; every other command opens memory that is there, so lost content is never taken for an
//! empty device. All memory devices together stay below a limit of their own. An array lies in
//! memory or on devices, never on both: half of it would be lost with the process. Not here: the
//! bytes (`ashlar_device`).

use ashlar_api::v1::status::{MemoryDevice, MemoryStatus};
use ashlar_api::{ApiError, codes};
use ashlar_device::PathOpener;
use ashlar_units::ByteSize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the name of a memory device begins.
pub const PREFIX: &str = "memory:";

/// The pool from which arrays in memory take spares: nothing can be in it, because no pool may have
/// this name.
pub const NO_POOL: &str = "/";

/// Longest name of a memory device, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// Least size of a memory device, in bytes: the metadata of a member fits.
const DEVICE_BYTES_MIN: u64 = 1 << 20;

/// Part of the memory limit that memory devices take at most if nobody says otherwise: a half.
const SHARE: u64 = 2;

/// The same where the system tells no limit, in bytes.
const LIMIT_UNKNOWN_BYTES: u64 = 1 << 30;

/// The memory devices of this process.
pub struct MemoryDevices {
    opener: PathOpener,
    limit_bytes: u64,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// By name, in bytes.
    sizes: BTreeMap<String, u64>,
}

impl Made {
    fn total_bytes(&self) -> u64 {
        self.sizes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The first name that no device has.
    fn free_name(&self) -> String {
        let mut names = (1_u64..).map(|number| format!("m{number}"));
        names.find(|name| !self.sizes.contains_key(name)).expect("numbers do not end")
    }
}

/// What an operator wrote behind `memory:`.
#[derive(PartialEq, Eq, Debug)]
enum Written<'t> {
    /// A device that is there.
    Name(&'t str),
    /// A new one.
    New { name: Option<&'t str>, bytes: u64 },
}

/// Whether `device` names a memory device.
pub fn is_memory(device: &str) -> bool {
    device.starts_with(PREFIX)
}

/// The most that memory devices may take together, in bytes.
///
/// # Errors
/// More is asked for than the process may have beside its pool of `pool_bytes`.
pub fn limit_bytes(
    asked: Option<u64>,
    pool_bytes: u64,
    process: Option<u64>,
) -> Result<u64, String> {
    let usual = process.map_or(LIMIT_UNKNOWN_BYTES, |bytes| bytes / SHARE);
    let rest = process.map_or(u64::MAX, |bytes| bytes.saturating_sub(pool_bytes));
    match asked {
        Some(asked) if asked > rest => Err(format!(
            "memory devices of {} are more than this process may have beside its pool, {}",
            ByteSize(asked),
            ByteSize(rest)
        )),
        Some(asked) => Ok(asked),
        None => Ok(usual.min(rest)),
    }
}

/// Devices that were made for a command: forgotten again unless they are kept.
pub struct NewMemory<'d> {
    devices: &'d MemoryDevices,
    names: Vec<String>,
}

impl NewMemory<'_> {
    /// The command was carried out.
    pub fn keep(mut self) {
        self.names.clear();
    }
}

impl Drop for NewMemory<'_> {
    fn drop(&mut self) {
        let mut made = self.devices.locked();
        for name in &self.names {
            if self.devices.opener.forget_memory(name) {
                made.sizes.remove(name);
            }
        }
    }
}

impl MemoryDevices {
    /// None yet; what `opener` opens will be among them, and all take at most `limit_bytes`.
    pub fn new(opener: PathOpener, limit_bytes: u64) -> MemoryDevices {
        MemoryDevices { opener, limit_bytes, made: Mutex::default() }
    }

    /// Make the new ones among `devices`, and put their paths in place of what was written.
    ///
    /// # Errors
    /// A name or a size makes no sense, is taken, or there is too little room; nothing was made.
    pub fn make(&self, devices: &mut [String]) -> Result<NewMemory<'_>, ApiError> {
        let mut new = NewMemory { devices: self, names: Vec::new() };
        for device in devices.iter_mut().filter(|device| is_memory(device)) {
            let (name, bytes) = match parse(device)? {
                Written::Name(name) => {
                    self.known(name)?;
                    continue;
                }
                Written::New { name, bytes } => (name.map(str::to_owned), bytes),
            };
            let mut made = self.locked();
            let name = name.unwrap_or_else(|| made.free_name());
            self.check_room(&made, bytes)?;
            self.opener.make_memory(&name, bytes).map_err(|refusal| {
                let hint = format!(
                    "to erase it and use it again, write {PREFIX}{name} and \
                    --destroy {PREFIX}{name}"
                );
                refused("memory.exists", refusal.to_string(), hint)
            })?;
            made.sizes.insert(name.clone(), bytes);
            drop(made);
            *device = format!("{PREFIX}{name}");
            new.names.push(name);
        }
        Ok(new)
    }

    /// That all memory devices among these are there.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self, devices: &[String]) -> Result<(), ApiError> {
        for device in devices.iter().filter(|device| is_memory(device)) {
            match parse(device)? {
                Written::Name(name) => self.known(name)?,
                Written::New { .. } => {
                    let message = format!("{device} would be an empty memory device");
                    let hint = "a memory device that is there is called memory:NAME; 'ashlar \
                        create' makes new ones";
                    return Err(refused(codes::REQUEST_MALFORMED, message, hint));
                }
            }
        }
        Ok(())
    }

    fn known(&self, name: &str) -> Result<(), ApiError> {
        if self.locked().sizes.contains_key(name) {
            return Ok(());
        }
        let message = format!(
            "this daemon has no memory device {PREFIX}{name}: what memory devices hold is lost \
             when \
             their daemon ends"
        );
        let hint = "if it was an array of an earlier daemon, its data is gone; make a new one \
            with 'ashlar create'";
        Err(refused("memory.lost", message, hint))
    }

    fn check_room(&self, made: &Made, bytes: u64) -> Result<(), ApiError> {
        let (taken, limit) = (made.total_bytes(), self.limit_bytes);
        if bytes < DEVICE_BYTES_MIN {
            let message = format!("a memory device of {} is too small", ByteSize(bytes));
            let hint = format!("take {} or more", ByteSize(DEVICE_BYTES_MIN));
            return Err(refused(codes::REQUEST_MALFORMED, message, hint));
        }
        if taken.checked_add(bytes).is_some_and(|sum| sum <= limit) {
            return Ok(());
        }
        let message = format!(
            "no room for a memory device of {}: there are {} of at most {}",
            ByteSize(bytes),
            ByteSize(taken),
            ByteSize(limit)
        );
        let hint = "take smaller ones, or start the daemon with a larger --memory-devices; \
            those of stopped arrays can \
                    be erased and used again by name with --destroy";
        Err(refused("memory.limit", message, hint))
    }

    /// What there is. `array_of` tells which array has a path.
    pub fn status(&self, array_of: impl Fn(&str) -> Option<String>) -> MemoryStatus {
        let sizes = self.locked().sizes.clone();
        let devices = sizes.into_iter().map(|(name, size_bytes)| {
            let path = format!("{PREFIX}{name}");
            let used = self.opener.memory(&name).map_or(0, |memory| memory.used_bytes());
            MemoryDevice { array: array_of(&path), path, size_bytes, used_bytes: used }
        });
        MemoryStatus { devices: devices.collect(), limit_bytes: self.limit_bytes }
    }

    fn locked(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That an array of `devices` lies in memory or on devices, and has no spares if it is in memory.
/// Whether it is in memory.
///
/// # Errors
/// It would be on both, or a spare would be one of memory or for memory.
pub fn check_kinds(devices: &[String], spares: &[String]) -> Result<bool, ApiError> {
    let in_memory = devices.iter().filter(|device| is_memory(device)).count();
    if in_memory > 0 && in_memory < devices.len() {
        let message = format!(
            "{in_memory} of {} devices are memory: that part of the array would be lost when \
             the daemon ends",
            devices.len()
        );
        return Err(refused("memory.mixed", message, "take memory devices only, or none of them"));
    }
    match spares.iter().find(|_| in_memory > 0).or_else(|| spares.iter().find(|it| is_memory(it))) {
        Some(spare) => Err(no_spare(spare)),
        None => Ok(in_memory > 0),
    }
}

/// That a device may replace a member of an array with `members`.
///
/// # Errors
/// One is memory and the others are not.
pub fn check_newcomer(members: &[&str], device: &str) -> Result<(), ApiError> {
    let array_is_memory = members.iter().any(|path| is_memory(path));
    if array_is_memory == is_memory(device) {
        return Ok(());
    }
    let (has, is) = match array_is_memory {
        true => ("memory devices", "not memory"),
        false => ("drives or files", "memory, which is lost when the daemon ends"),
    };
    let message = format!("the array has {has} as members, and {device} is {is}");
    Err(refused("memory.mixed", message, "name a device of the kind that the array has"))
}

/// A memory device is no spare.
pub fn no_spare(device: &str) -> ApiError {
    let message = format!(
        "{device} cannot be a spare here: spares outlive the daemon and memory devices do not"
    );
    let hint = "arrays in memory have no spares; 'ashlar replace' takes a new memory device";
    refused("memory.no_spare", message, hint)
}

fn parse(device: &str) -> Result<Written<'_>, ApiError> {
    let malformed = |what: String| {
        let hint = "write memory:SIZE or memory:NAME:SIZE for a new one, as memory:1G or \
            memory:a:1G, and memory:NAME for \
                    one that is there";
        refused(codes::REQUEST_MALFORMED, format!("{device}: {what}"), hint)
    };
    let written = device.strip_prefix(PREFIX).unwrap_or(device);
    let (name, size) = match written.split_once(':') {
        Some((name, size)) => (Some(name), Some(size)),
        // A size begins with a digit, a name with a letter.
        None if written.starts_with(|first: char| first.is_ascii_digit()) => (None, Some(written)),
        None => (Some(written), None),
    };
    if let Some(name) = name {
        let is_of = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.len() <= NAME_BYTES_MAX
            && name.bytes().all(is_of);
        if !is_name {
            return Err(malformed(format!(
                "a name begins with a letter, has letters, digits, '-' and '_', and at most \
                 {NAME_BYTES_MAX} of them"
            )));
        }
    }
    match (name, size.map(str::parse::<ByteSize>)) {
        (Some(name), None) => Ok(Written::Name(name)),
        (name, Some(Ok(ByteSize(bytes)))) => Ok(Written::New { name, bytes }),
        (_, Some(Err(error))) => Err(malformed(error.to_string())),
        (None, None) => Err(malformed("it has no size".to_owned())),
    }
}

/// A refusal after which nothing was written.
fn refused(code: &str, message: String, hint: impl Into<String>) -> ApiError {
    ApiError::new(code, format!("{message}; nothing was written"), hint.into())
}

#[cfg(test)]
mod tests {
    use super::{MemoryDevices, check_kinds, check_newcomer, limit_bytes};
    use ashlar_device::{Access, Opener, PathOpener};

    const MIB: u64 = 1 << 20;

    fn devices(written: &[&str]) -> Vec<String> {
        written.iter().map(ToString::to_string).collect()
    }

    fn made(memory: &MemoryDevices, written: &[&str]) -> Result<Vec<String>, String> {
        let mut devices = devices(written);
        match memory.make(&mut devices) {
            Ok(new) => {
                new.keep();
                Ok(devices)
            }
            Err(refusal) => Err(refusal.message),
        }
    }

    #[test]
    fn equal_devices_get_names_of_their_own_and_named_ones_keep_theirs() {
        let memory = MemoryDevices::new(PathOpener::new(), 64 * MIB);
        let paths = made(&memory, &["memory:m2:1M", "memory:2M", "memory:2M", "/dev/sda"]);
        assert_eq!(paths, Ok(devices(&["memory:m2", "memory:m1", "memory:m3", "/dev/sda"])));
        assert_eq!(memory.check(&devices(&["memory:m1", "/dev/sda"])), Ok(()));
        let status = memory.status(|path| (path == "memory:m1").then(|| "tank".to_owned()));
        let sizes: Vec<_> = status.devices.iter().map(|it| (&*it.path, it.size_bytes)).collect();
        assert_eq!(sizes, [("memory:m1", 2 * MIB), ("memory:m2", MIB), ("memory:m3", 2 * MIB)]);
        assert_eq!(status.devices[0].array.as_deref(), Some("tank"));
    }

    #[test]
    fn together_they_stay_below_the_limit_and_a_refusal_leaves_nothing_behind() {
        let opener = PathOpener::new();
        let memory = MemoryDevices::new(opener.clone(), 8 * MIB);
        assert!(made(&memory, &["memory:a:4M"]).is_ok());
        let told = made(&memory, &["memory:b:4M", "memory:c:1M"]).expect_err("full");
        assert!(told.contains("there are 8 MiB of at most 8 MiB"), "{told}");
        assert!(opener.open("memory:b", Access::ReadOnly).is_err(), "b was forgotten");
        assert!(made(&memory, &["memory:b:4M"]).is_ok());
        for huge in ["memory:18446744073709551615", "memory:x:16E"] {
            assert!(made(&memory, &[huge]).is_err(), "{huge}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_not_made_by_opening_it() {
        let memory = MemoryDevices::new(PathOpener::new(), 8 * MIB);
        for (written, told) in [
            ("memory:a", "is lost when their daemon ends"),
            ("memory:1M", "would be an empty memory device"),
            ("memory:a:1M", "would be an empty memory device"),
            ("memory:", "a name begins with a letter"),
            ("memory:../x", "a name begins with a letter"),
            ("memory:a:b", "memory:a:b: "),
        ] {
            let refusal = memory.check(&devices(&[written])).expect_err(written).message;
            assert!(refusal.contains(told), "{refusal}");
            assert!(refusal.ends_with("; nothing was written"), "{refusal}");
        }
        assert!(made(&memory, &["memory:a"]).is_err());
        assert!(made(&memory, &["memory:a:1K"]).expect_err("small").contains("too small"));
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_kept() {
        let memory = MemoryDevices::new(PathOpener::new(), 8 * MIB);
        assert!(made(&memory, &["memory:a:1M"]).is_ok());
        let told = made(&memory, &["memory:b:1M", "memory:a:1M"]).expect_err("taken");
        assert!(told.contains("memory:a: is there already"), "{told}");
        assert_eq!(memory.check(&devices(&["memory:a"])), Ok(()));
        assert!(memory.check(&devices(&["memory:b"])).is_err());
    }

    #[test]
    fn an_array_is_in_memory_or_on_devices_and_memory_is_no_spare() {
        let kinds = |members: &[&str], spares: &[&str]| {
            check_kinds(&devices(members), &devices(spares)).map_err(|it| it.code)
        };
        assert_eq!(kinds(&["memory:1M", "memory:b"], &[]), Ok(true));
        assert_eq!(kinds(&["/dev/sda", "/dev/sdb"], &["/dev/sdc"]), Ok(false));
        assert_eq!(kinds(&["memory:1M", "/dev/sdb"], &[]), Err("memory.mixed".to_owned()));
        let no_spare = || Err("memory.no_spare".to_owned());
        assert_eq!(kinds(&["memory:1M", "memory:1M"], &["/dev/sdc"]), no_spare());
        assert_eq!(kinds(&["/dev/sda", "/dev/sdb"], &["memory:1M"]), no_spare());
        assert!(check_newcomer(&["memory:a", "memory:b"], "memory:1G").is_ok());
        assert!(check_newcomer(&["/dev/sda"], "/dev/sdb").is_ok());
        assert!(check_newcomer(&["memory:a", "memory:b"], "/dev/sdb").is_err());
        assert!(check_newcomer(&["/dev/sda"], "memory:1G").is_err());
    }

    #[test]
    fn the_limit_is_half_of_what_the_process_may_have_or_what_is_asked_for() {
        let gib = 1_u64 << 30;
        assert_eq!(limit_bytes(None, gib, Some(8 * gib)), Ok(4 * gib));
        assert_eq!(limit_bytes(Some(7 * gib), gib, Some(8 * gib)), Ok(7 * gib));
        assert_eq!(limit_bytes(None, 6 * gib, Some(8 * gib)), Ok(2 * gib));
        assert_eq!(limit_bytes(None, gib, None), Ok(gib));
        assert!(limit_bytes(Some(8 * gib), gib, Some(8 * gib)).is_err());
    }
}
