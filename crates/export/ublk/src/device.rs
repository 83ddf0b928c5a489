//! One device from its making to its end; how a dead server's device is taken over.
//!
//! What must stay true: the order of the driver. Made, parameters, queues served, started; stopped,
//! queues ended, deleted. A device that is taken over keeps its number and its queues, and becomes
//! no smaller: file systems are mounted on it. Everything here waits for the driver (see
//! `control`).

use crate::control::{Control, DeviceState, Found};
use crate::limits::{misfit, parameters};
use crate::wire::{DeviceInfo, feature};
use ashlar_units::SECTOR_BYTES;
use ashlar_volume::VolumeFacts;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often to look for the node of a device that was made, and for the end of a dead server's
/// last descriptor; and how long to wait between two looks. Ten seconds.
const LOOKS: u32 = 2000;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Any number.
const ANY: u32 = u32::MAX;

/// By what a successor recognises the devices of a volume: a number made of its UUID. The driver
/// keeps it, so nothing is written down anywhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(pub u64);

impl Owner {
    /// The owner of the devices of a volume.
    pub fn of(uuid: &[u8; 16]) -> Owner {
        let (halves, _) = uuid.as_chunks::<8>();
        let mixed = halves.iter().map(|half| u64::from_be_bytes(*half));
        Owner(mixed.fold(u64::from_be_bytes(*b"ashlar/1"), |mixed, half| mixed ^ half))
    }
}

/// How large a device is.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSetting {
    /// Queues; one for each worker.
    pub queues: u16,
    /// Requests in each queue.
    pub depth: u16,
}

/// A device that this process has.
pub struct Device {
    control: Control,
    info: DeviceInfo,
    is_taken_over: bool,
    file: Arc<OwnedFd>,
}

/// One queue of a device, for the worker that is to serve it.
#[derive(Clone, Debug)]
pub struct QueuePlace {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) number: u16,
    pub(crate) depth: u16,
    /// Largest request with data, in bytes.
    pub(crate) request_bytes_max: u32,
}

impl Device {
    /// Make a device for a volume. It is not to be seen before [`Device::start`].
    ///
    /// # Errors
    /// What the driver says; then there is none.
    pub fn make(
        control: Control,
        facts: &VolumeFacts,
        setting: DeviceSetting,
    ) -> io::Result<Device> {
        let wanted = DeviceInfo {
            queues: setting.queues,
            depth: setting.depth,
            request_bytes_max: facts.request_bytes_max,
            number: ANY,
            features: feature::USER_RECOVER
                | feature::REISSUE
                | feature::IOCTL_NUMBERS
                | control.offered(feature::RESIZE),
            owner: Owner::of(&facts.uuid).0,
            ..DeviceInfo::default()
        };
        let info = control.add(&wanted)?;
        let made = control
            .set_parameters(info.number, &parameters(facts))
            .and_then(|()| open(&control, info.number));
        match made {
            Ok(file) => Ok(Device { control, info, is_taken_over: false, file: Arc::new(file) }),
            Err(error) => {
                // It had no users, and what went wrong is the answer.
                let _gone = control.delete(info.number);
                Err(error)
            }
        }
    }

    /// Take over a device whose server died. Its requests wait until [`Device::start`].
    ///
    /// # Errors
    /// `InvalidInput` if the volume cannot do what the device's users were told; else what the
    /// driver says. It goes on waiting then, unless its server still has it (`ResourceBusy`).
    pub fn take_over(control: Control, found: Found, facts: &VolumeFacts) -> io::Result<Device> {
        let number = found.number();
        let is_foreign = found.info.features & feature::USER_COPY != 0;
        let foreign =
            is_foreign.then_some("its server copies data by calls, and this one does not");
        if let Some(why) = foreign.or(misfit(&control.parameters(number)?, facts)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // The driver notices the end of a server a moment after it came.
        retry(&control, Errno::BUSY, || control.begin_takeover(number))?;
        let file = retry(&control, Errno::BUSY, || open(&control, number))?;
        let info = found.info;
        Ok(Device { control, info, is_taken_over: true, file: Arc::new(file) })
    }

    /// Its queues, each to be served by one thread: before `start`, and until it ends.
    pub fn queues(&self) -> impl Iterator<Item = QueuePlace> {
        let DeviceInfo { depth, request_bytes_max, .. } = self.info;
        let file = &self.file;
        let queue =
            move |number| QueuePlace { file: Arc::clone(file), number, depth, request_bytes_max };
        (0..self.info.queues).map(queue)
    }

    /// Show the block device; waits until all queues are served.
    ///
    /// # Errors
    /// What the driver says.
    pub fn start(&self) -> io::Result<()> {
        match self.is_taken_over {
            true => self.control.end_takeover(self.info.number),
            false => self.control.start(self.info.number),
        }
    }

    /// What gives the device, once it is served, the size of its volume in bytes, if that is
    /// larger. Its users see it at once.
    ///
    /// # Errors
    /// `Unsupported` if the driver or the device cannot (before Linux 6.16, or made there); else
    /// what the driver says. The device keeps its size then.
    pub fn growing(&self, volume_bytes: u64) -> impl FnOnce() -> io::Result<()> + Send + use<> {
        let (control, info) = (self.control.clone(), self.info);
        let sectors = volume_bytes / SECTOR_BYTES;
        move || {
            if control.parameters(info.number)?.device_sectors >= sectors {
                return Ok(());
            }
            match control.offered(info.features & feature::RESIZE) {
                0 => Err(io::ErrorKind::Unsupported.into()),
                _ => control.resize(info.number, sectors),
            }
        }
    }

    /// Take the block device away from its users. Requests under way are answered first, and users
    /// get errors from then on. The queues end.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stop(&self) -> io::Result<()> {
        self.control.stop(self.info.number)
    }

    /// Forget the device: it was stopped, and its queues have ended. Users that still have it open
    /// get errors; the driver keeps its number until they close it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn delete(self) -> io::Result<()> {
        let Device { control, info, file, .. } = self;
        drop(file);
        control.delete(info.number)
    }

    /// Its queues, and the requests in each.
    pub fn setting(&self) -> DeviceSetting {
        DeviceSetting { queues: self.info.queues, depth: self.info.depth }
    }

    /// Whether some server had it before this process.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.info.number))
    }
}

/// Delete a device that no server ever started, or that was stopped.
///
/// # Errors
/// What the driver says; `InvalidInput` if it is served or waits for a server.
pub fn delete_dead(control: &Control, found: Found) -> io::Result<()> {
    match found.state() {
        DeviceState::Dead => control.delete(found.number()),
        DeviceState::Live | DeviceState::Waiting => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// The character device of a number. Its node may come a moment after the device; only one process
/// has it at a time.
fn open(control: &Control, number: u32) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{number}");
    let open = || {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&path, flags, Mode::empty())?)
    };
    retry(control, Errno::NOENT, open)
}

/// Try again as long as the answer is `passing`; not for ever.
fn retry<T>(
    control: &Control,
    passing: Errno,
    attempt: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..LOOKS {
        match attempt() {
            Err(error) if Errno::from_io_error(&error) == Some(passing) => {
                control.pause(LOOK_EVERY)?;
            }
            answer => return answer,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::Owner;

    #[test]
    fn another_volume_is_another_owner() {
        let one = Owner::of(&[1; 16]);
        let mut uuid = [1; 16];
        uuid[15] = 2;
        assert_ne!(one, Owner::of(&uuid));
        assert_eq!(one, Owner::of(&[1; 16]));
        // What other servers leave there is never taken for one of ours.
        assert!(one.0 > u64::from(u32::MAX));
    }
}
