//! Commands to the driver, through `/dev/ublk-control`.
//!
//! What must stay true: these calls wait for the driver, some of them for all requests under way,
//! so they are made on a thread that nobody else waits for. Each has a small ring of wide entries
//! of its own; workers keep narrow ones.

use crate::device::DeviceSetting;
use crate::wire::{
    DeviceInfo, PARAMETERS_BYTES, Parameters, command, control_area, feature, state,
};
use ashlar_iobuf::BufMut;
use ashlar_ring::{EntryBytes, Executor, Ring, RingConfig, Schedule, WideCommand, within};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const CONTROL: &str = "/dev/ublk-control";

/// Where the kernel lists character devices of ublk, as `ublkcN`.
const LISTED: &str = "/sys/class/ublk-char";

/// What a device here needs of its driver.
const NEEDED: u64 = feature::USER_RECOVER | feature::REISSUE | feature::IOCTL_NUMBERS;

/// How long the queues of a device may take until they are served.
const QUEUES_MAX: Duration = Duration::from_secs(30);

/// Why there can be no ublk device here: one line.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// No driver.
    #[error("the kernel has no ublk driver, or it is not loaded (modprobe ublk_drv)")]
    NoDriver,
    /// Not for this user.
    #[error("{CONTROL} may not be opened by this user")]
    NotAllowed,
    /// The driver is too old.
    #[error("the kernel's ublk driver is too old: Linux 6.5 or later is needed")]
    TooOld,
    /// Anything else.
    #[error("{CONTROL}: {0}")]
    Fault(#[from] io::Error),
}

/// How a device is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceState {
    /// Not started, or stopped.
    Dead,
    /// Some server has it.
    Live,
    /// Its server is gone, and requests wait for the next one.
    Waiting,
}

/// A device that is there.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(crate) info: DeviceInfo,
}

impl Found {
    /// N of `/dev/ublkbN`.
    pub fn number(&self) -> u32 {
        self.info.number
    }

    /// How it is served.
    pub fn state(&self) -> DeviceState {
        match self.info.state {
            state::DEAD => DeviceState::Dead,
            state::QUIESCED => DeviceState::Waiting,
            _ => DeviceState::Live,
        }
    }

    /// Its queues, and the requests in each.
    pub fn setting(&self) -> DeviceSetting {
        DeviceSetting { queues: self.info.queues, depth: self.info.depth }
    }
}

/// The driver.
#[derive(Clone)]
pub struct Control {
    device: Arc<OwnedFd>,
    features: u64,
}

/// The driver, if it can do what a device here needs.
///
/// # Errors
/// Why not.
pub fn check_available() -> Result<Control, Unavailable> {
    let opened = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = opened.map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => Unavailable::NoDriver,
        Errno::ACCESS | Errno::PERM => Unavailable::NotAllowed,
        other => Unavailable::Fault(other.into()),
    })?;
    let mut control = Control { device: Arc::new(device), features: 0 };
    let memory = Some(BufMut::zeroed(size_of::<u64>()));
    let answer = control.ask(command::GET_FEATURES, 0, 0, memory);
    let memory = answer.map_err(|_| Unavailable::TooOld)?;
    let features = memory.and_then(|memory| u64::read_from_bytes(&memory).ok());
    control.features = features.unwrap_or(0);
    let has_all = control.features & NEEDED == NEEDED;
    if has_all { Ok(control) } else { Err(Unavailable::TooOld) }
}

impl Control {
    /// The devices whose maker said `owner`, made by this user and by none without privileges: what
    /// others left is theirs, whatever they wrote into it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn owned_by(&self, owner: u64) -> io::Result<Vec<Found>> {
        let listed = match std::fs::read_dir(LISTED) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = listed.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
        // One that went meanwhile is none.
        let found = numbers.filter_map(|number| self.find(number).ok());
        let user = rustix::process::geteuid().as_raw();
        let is_ours = |info: &DeviceInfo| {
            info.owner == owner && info.uid == user && info.features & feature::UNPRIVILEGED == 0
        };
        Ok(found.filter(|found| is_ours(&found.info)).collect())
    }

    /// The device of a number.
    ///
    /// # Errors
    /// What the driver says: there is none.
    pub(crate) fn find(&self, number: u32) -> io::Result<Found> {
        let memory = BufMut::zeroed(size_of::<DeviceInfo>());
        let info = read_info(self.ask(command::GET_INFO, number, 0, Some(memory))?)?;
        Ok(Found { info })
    }

    /// Make a device; what the driver made of it.
    pub(crate) fn add(&self, info: &DeviceInfo) -> io::Result<DeviceInfo> {
        let memory = BufMut::copied(info.as_bytes());
        read_info(self.ask(command::ADD, info.number, 0, Some(memory))?)
    }

    pub(crate) fn set_parameters(&self, number: u32, parameters: &Parameters) -> io::Result<()> {
        let memory = BufMut::copied(parameters.as_bytes());
        self.ask(command::SET_PARAMETERS, number, 0, Some(memory)).map(drop)
    }

    pub(crate) fn parameters(&self, number: u32) -> io::Result<Parameters> {
        let empty = Parameters { bytes: PARAMETERS_BYTES, ..Parameters::default() };
        let memory = BufMut::copied(empty.as_bytes());
        let memory = self.ask(command::GET_PARAMETERS, number, 0, Some(memory))?;
        let read = memory.and_then(|memory| Parameters::read_from_bytes(&memory).ok());
        read.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Those of `wanted` that the driver has.
    pub(crate) fn offered(&self, wanted: u64) -> u64 {
        self.features & wanted
    }

    /// Give a device that is served another size, in sectors.
    pub(crate) fn resize(&self, number: u32, sectors: u64) -> io::Result<()> {
        self.ask(command::RESIZE, number, sectors, None).map(drop)
    }

    /// Show the block device; waits until all its queues are served, and not for ever.
    pub(crate) fn start(&self, number: u32) -> io::Result<()> {
        self.ask_for(command::START, number)
    }

    /// Take the block device away; waits until all its requests are answered.
    pub(crate) fn stop(&self, number: u32) -> io::Result<()> {
        self.ask(command::STOP, number, 0, None).map(drop)
    }

    /// Forget the device: at once, or when its last user closes it. Before Linux 6.9 the driver
    /// answers only then.
    pub(crate) fn delete(&self, number: u32) -> io::Result<()> {
        match self.ask(command::DELETE_LATER, number, 0, None).map(drop) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                self.ask(command::DELETE, number, 0, None).map(drop)
            }
            answer => answer,
        }
    }

    /// `ResourceBusy` as long as the server that had it is not quite gone.
    pub(crate) fn begin_takeover(&self, number: u32) -> io::Result<()> {
        self.ask(command::BEGIN_TAKEOVER, number, 0, None).map(drop)
    }

    /// Waits until all queues are served again, and not for ever.
    pub(crate) fn end_takeover(&self, number: u32) -> io::Result<()> {
        self.ask_for(command::END_TAKEOVER, number)
    }

    /// Let some time pass, on this thread.
    pub(crate) fn pause(&self, wait: Duration) -> io::Result<()> {
        let ring = Ring::new(RingConfig::of(2))?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        executor.block_on(handle.sleep(wait));
        Ok(())
    }

    /// Give a command that names this process, and wait for its answer as long as queues may take.
    fn ask_for(&self, number: u32, device: u32) -> io::Result<()> {
        let ring = Ring::new(RingConfig { entries: 2, entry_bytes: EntryBytes::Wide })?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let handle = executor.handle();
        let command = WideCommand::new(number, control_area(device, own_pid()), None);
        let asked = async { ring.wide_command(&self.device, command).await.0.map(drop) };
        let answer = executor.block_on(within(&handle, QUEUES_MAX, asked));
        answer.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Give a command and wait for its answer. Memory that it was given comes back.
    fn ask(
        &self,
        number: u32,
        device: u32,
        data: u64,
        memory: Option<BufMut>,
    ) -> io::Result<Option<BufMut>> {
        let ring = Ring::new(RingConfig { entries: 2, entry_bytes: EntryBytes::Wide })?;
        let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
        let command = WideCommand::new(number, control_area(device, data), memory);
        let (answer, memory) = executor.block_on(ring.wide_command(&self.device, command));
        answer.map(|_| memory)
    }
}

fn read_info(memory: Option<BufMut>) -> io::Result<DeviceInfo> {
    let info = memory.and_then(|memory| DeviceInfo::read_from_bytes(&memory).ok());
    info.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn own_pid() -> u64 {
    u64::from(std::process::id())
}
