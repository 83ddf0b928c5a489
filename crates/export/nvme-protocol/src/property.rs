//! Controller properties, and the life of a controller as its host drives it: enabled, ready, shut
//! down, reset.
//!
//! What must stay true: RDY follows EN at once; a controller that was shut down stays so until it
//! is reset, and says "complete" only when told that everything is durable; CC is believed only
//! with sizes and command sets that are served. There is no memory page size to believe: nothing is
//! addressed by pages. Base 2.0, 3.1.3 "Controller Properties" and 3.5 "Controller Initialization".

use crate::Status;
use crate::identify::{ControllerKind, VERSION};

/// OFST of the properties of fabrics controllers.
pub mod offset {
    /// CAP, 8 bytes.
    pub const CAPABILITIES: u32 = 0x00;
    /// VS, 4 bytes.
    pub const VERSION: u32 = 0x08;
    /// CC, 4 bytes.
    pub const CONFIGURATION: u32 = 0x14;
    /// CSTS, 4 bytes.
    pub const STATUS: u32 = 0x1c;
    /// NSSR, 4 bytes.
    pub const SUBSYSTEM_RESET: u32 = 0x20;
    /// CRTO, 4 bytes.
    pub const READY_TIMEOUTS: u32 = 0x68;
}

/// What a write of a property did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertyChange {
    /// Nothing that others need to know.
    None,
    /// The controller is ready for commands.
    Enabled,
    /// The controller was reset: its I/O queues end, its features are as at the beginning.
    Reset,
    /// The host said that it leaves: make everything durable that was answered, then
    /// [`Properties::shutdown_is_complete`].
    ShutDown,
}

/// Where a controller is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Disabled,
    Ready,
    ShuttingDown,
    ShutDown,
}

/// CC and CSTS of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    kind: ControllerKind,
    life: Life,
    configuration: u32,
    /// CFS: the controller can go on only after a reset.
    has_failed: bool,
    /// MQES: most entries of a queue, less one.
    entries_less_one: u16,
}

/// CC.
const ENABLE: u32 = 1;
/// CAP.CSS: the NVM command set (bit 37), and "as Identify says" (bit 43).
const COMMAND_SETS: u64 = 1 << 37 | 1 << 43;
/// CAP.CQR: queues are contiguous, as always over fabrics.
const CONTIGUOUS: u64 = 1 << 16;
/// CAP.CRMS: ready only with media, which is what RDY means here.
const READY_WITH_MEDIA: u64 = 1 << 59;
/// CAP.TO and CRTO.CRWMT: ready within this many half seconds.
const READY_HALF_SECONDS: u64 = 15;

impl Properties {
    /// Of a controller that was just connected to.
    pub fn new(kind: ControllerKind, entries_less_one: u16) -> Properties {
        Properties {
            kind,
            life: Life::Disabled,
            configuration: 0,
            has_failed: false,
            entries_less_one,
        }
    }

    /// Whether commands other than those of fabrics may come.
    pub fn is_ready(&self) -> bool {
        self.life == Life::Ready && !self.has_failed
    }

    /// Whether the host enabled the controller; true too while it is shut down.
    pub fn is_enabled(&self) -> bool {
        self.life != Life::Disabled
    }

    /// Everything that was answered is durable, and the host may go.
    pub fn shutdown_is_complete(&mut self) {
        if self.life == Life::ShuttingDown {
            self.life = Life::ShutDown;
        }
    }

    /// The controller cannot go on: CFS until it is reset.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Read a property.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for a property that is not there, or another size than its own.
    pub fn get(&self, at: u32, is_wide: bool) -> Result<u64, Status> {
        match (at, is_wide) {
            (offset::CAPABILITIES, true) => Ok(self.capabilities()),
            (offset::VERSION, false) => Ok(u64::from(VERSION)),
            (offset::CONFIGURATION, false) => Ok(u64::from(self.configuration)),
            (offset::STATUS, false) => Ok(u64::from(self.status())),
            (offset::SUBSYSTEM_RESET, false) => Ok(0),
            (offset::READY_TIMEOUTS, false) => Ok(READY_HALF_SECONDS),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn capabilities(&self) -> u64 {
        let sets = match self.kind {
            ControllerKind::Io => COMMAND_SETS,
            ControllerKind::Discovery => 1 << 37,
        };
        let ready = READY_WITH_MEDIA | READY_HALF_SECONDS << 24;
        u64::from(self.entries_less_one) | CONTIGUOUS | ready | sets
    }

    /// CSTS.
    pub fn status(&self) -> u32 {
        let (ready, shutdown) = match self.life {
            Life::Disabled => (0, 0),
            Life::Ready => (1, 0),
            // RDY stays as it was; SHST says how far the shutdown is.
            Life::ShuttingDown => (1, 1),
            Life::ShutDown => (1, 2),
        };
        ready | u32::from(self.has_failed) << 1 | shutdown << 2
    }

    /// Write a property. Only CC can be written.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`]; then nothing has changed.
    pub fn set(&mut self, at: u32, is_wide: bool, value: u64) -> Result<PropertyChange, Status> {
        let value = u32::try_from(value).map_err(|_| Status::INVALID_FIELD)?;
        if (at, is_wide) != (offset::CONFIGURATION, false) {
            return Err(Status::INVALID_FIELD);
        }
        let is_enabled = value & ENABLE != 0;
        if is_enabled && !self.is_served(value) {
            return Err(Status::INVALID_FIELD);
        }
        let wants_shutdown = value >> 14 & 3 != 0;
        self.configuration = value;
        let (life, change) = match (self.life, is_enabled, wants_shutdown) {
            (Life::Disabled, true, false) => (Life::Ready, PropertyChange::Enabled),
            (Life::Disabled, _, true) => (Life::ShuttingDown, PropertyChange::ShutDown),
            (Life::Disabled, false, false) => (Life::Disabled, PropertyChange::None),
            (Life::Ready, true, false) => (Life::Ready, PropertyChange::None),
            (Life::Ready, _, true) => (Life::ShuttingDown, PropertyChange::ShutDown),
            (_, false, false) => (Life::Disabled, PropertyChange::Reset),
            (Life::ShuttingDown | Life::ShutDown, _, _) => (self.life, PropertyChange::None),
        };
        self.life = life;
        if change == PropertyChange::Reset {
            self.has_failed = false;
        }
        Ok(change)
    }

    /// Whether a controller can run as CC says: CSS, AMS, and for I/O controllers IOSQES and
    /// IOCQES.
    fn is_served(&self, value: u32) -> bool {
        let (set, arbitration) = (value >> 4 & 7, value >> 11 & 7);
        let (submission, completion) = (value >> 16 & 0xf, value >> 20 & 0xf);
        let has_sizes = match self.kind {
            ControllerKind::Discovery => true,
            // Some hosts tell the sizes only before they create I/O queues, which fabrics do not
            // have; 0 is "not told".
            ControllerKind::Io => matches!(submission, 0 | 6) && matches!(completion, 0 | 4),
        };
        matches!(set, 0 | 6) && arbitration == 0 && has_sizes
    }
}
