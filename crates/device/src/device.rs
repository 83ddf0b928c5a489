//! The interface between the engine and the devices: commands, devices, and how they are opened.
//!
//! What must stay true: a command starts with `submit` and ends with its completion, exactly once,
//! whatever happens to the device. A fault is an outcome, never a panic. A request that is not
//! aligned to the device's blocks is a bug of the caller and asserted. Not here: RAID, formats, and
//! what the engine does about a fault.

use std::rc::Rc;
use std::sync::Arc;

use ashlar_iobuf::{Buf, BufMut};
use ashlar_ring::{Completion, Handle};
use ashlar_units::{SECTOR_BYTES, to_u64};

use crate::bay::Bay;
use crate::fault::Fault;
use crate::flights::Owed;

/// What to do at an offset. Offsets and lengths are multiples of
/// `DeviceFacts::logical_block_bytes`.
#[derive(Debug)]
pub enum Command {
    /// Fill the buffer.
    Read(BufMut),
    /// Store the buffer. Durable after the next flush that starts when this has completed.
    Write(Buf),
    /// Store the buffer, and only that durably: on stable media when this completes (FUA where the
    /// device has it). It says nothing about writes before it.
    WriteDurable(Buf),
    /// Store the buffer, which is a block of 4 KiB at a multiple of that, as
    /// [`Write`](Command::Write) does. A device that
    /// [says so](DeviceFacts::takes_whole_blocks) is given it as one command, joined with no more
    /// than it writes whole.
    WriteWhole(Buf),
    /// Store the parts, one after the other, as one [`Write`](Command::Write) or
    /// [`WriteDurable`](Command::WriteDurable). The kernel is asked once for up to
    /// [`PARTS_MAX`](ashlar_ring::PARTS_MAX) of them.
    WriteParts {
        /// What, in order; each a multiple of the logical block.
        parts: Vec<Buf>,
        /// On stable media when this completes.
        is_durable: bool,
    },
    /// Make everything durable that completed before.
    Flush,
    /// The content is not needed any more. Reads zeros afterwards only if the facts say so.
    Discard {
        /// How much.
        bytes: u64,
    },
    /// Make it read as zeros.
    WriteZeroes {
        /// How much.
        bytes: u64,
    },
}

/// How it went; a read's buffer comes back in either case, unless its device was given up: then
/// that still has it.
#[derive(Debug)]
pub struct Outcome {
    /// Done, or why not.
    pub result: Result<(), Fault>,
    /// The buffer of a read. Its content is unspecified after a fault.
    pub buffer: Option<BufMut>,
}

impl Outcome {
    /// The outcome of a command that was done.
    pub fn done(buffer: Option<BufMut>) -> Outcome {
        Outcome { result: Ok(()), buffer }
    }

    /// The outcome of `command`, refused before anything was done.
    pub fn refused(command: Command, fault: Fault) -> Outcome {
        let buffer = match command {
            Command::Read(buffer) => Some(buffer),
            _ => None,
        };
        Outcome { result: Err(fault), buffer }
    }
}

/// The kinds of commands, where it is not about their content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CommandKind {
    /// [`Command::Read`].
    Read,
    /// [`Command::Write`].
    Write,
    /// [`Command::Flush`].
    Flush,
    /// [`Command::Discard`].
    Discard,
    /// [`Command::WriteZeroes`].
    WriteZeroes,
    /// [`Command::WriteDurable`].
    WriteDurable,
}

impl CommandKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [CommandKind; 6] = [
        CommandKind::Read,
        CommandKind::Write,
        CommandKind::Flush,
        CommandKind::Discard,
        CommandKind::WriteZeroes,
        CommandKind::WriteDurable,
    ];

    /// As an index into arrays with an entry for each kind.
    pub fn at(self) -> usize {
        match self {
            CommandKind::Read => 0,
            CommandKind::Write => 1,
            CommandKind::Flush => 2,
            CommandKind::Discard => 3,
            CommandKind::WriteZeroes => 4,
            CommandKind::WriteDurable => 5,
        }
    }
}

impl Command {
    /// Which kind it is; a write in parts is of the kind of one without.
    pub fn kind(&self) -> CommandKind {
        match self {
            Command::Read(_) => CommandKind::Read,
            Command::Write(_)
            | Command::WriteWhole(_)
            | Command::WriteParts { is_durable: false, .. } => CommandKind::Write,
            Command::Flush => CommandKind::Flush,
            Command::Discard { .. } => CommandKind::Discard,
            Command::WriteZeroes { .. } => CommandKind::WriteZeroes,
            Command::WriteDurable(_) | Command::WriteParts { is_durable: true, .. } => {
                CommandKind::WriteDurable
            }
        }
    }

    /// How many bytes of the device it is about; 0 for a flush.
    pub fn bytes(&self) -> u64 {
        match self {
            Command::Read(buffer) => to_u64(buffer.len()),
            Command::Write(buffer)
            | Command::WriteWhole(buffer)
            | Command::WriteDurable(buffer) => to_u64(buffer.len()),
            Command::WriteParts { parts, .. } => parts.iter().map(|part| to_u64(part.len())).sum(),
            Command::Flush => 0,
            Command::Discard { bytes } | Command::WriteZeroes { bytes } => *bytes,
        }
    }
}

/// What is fixed about an opened device.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Path or name, for people.
    pub path: String,
    /// Usable size in bytes: a multiple of the logical block.
    pub size_bytes: u64,
    /// Smallest unit of I/O, in bytes.
    pub logical_block_bytes: u32,
    /// Memory alignment that direct I/O needs, in bytes.
    pub memory_alignment: u32,
    /// What the device calls itself.
    pub model: Option<String>,
    /// Serial number or world-wide name.
    pub serial: Option<String>,
    /// Where it is plugged in.
    pub bay: Bay,
    /// Seeks cost time.
    pub is_rotational: bool,
    /// Writes can be lost in a power cut until they are flushed.
    pub has_volatile_cache: bool,
    /// Bytes of the largest write that the device says is whole or not at all whatever happens to
    /// its power; `None`: it says nothing. The kernel may make one command of several writes, or
    /// several of one: no more than a limit to what an operator states.
    pub atomic_write_bytes: Option<u64>,
    /// The kernel can be asked to hand it a block of 4 KiB as a command that it writes whole or not
    /// at all, by its own report ([`Command::WriteWhole`]).
    pub takes_whole_blocks: bool,
    /// `Discard` is there and afterwards the range reads as zeros.
    pub discard_reads_zeros: bool,
    /// What it takes space from when it is written to: devices with the same number run out of it
    /// together. `None`: nobody knows, or it has all it needs.
    pub store: Option<u64>,
    /// What sort of thing it is.
    pub kind: DeviceKind,
    /// What an exclusive opening keeps others out of: two openings with the same numbers exclude
    /// each other on one boot of one host, two paths to one drive may not. `None`: nothing is
    /// known.
    pub exclusion: Option<[u64; 2]>,
    /// Which appearance of its disk it is, as the kernel counts them since the boot: another one
    /// after the disk has gone and come. `None`: nobody counts.
    pub appearance: Option<u64>,
    /// I/O goes around the page cache. False only for files on a file system that refuses
    /// `O_DIRECT`, which nothing is written to.
    pub is_direct: bool,
}

/// What sort of thing holds the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A block device or a partition.
    Block,
    /// A regular file.
    File,
    /// Memory of this process.
    Memory,
    /// Nothing: accepts all, keeps none.
    Null,
    /// A simulated disk of a test.
    Simulated,
}

impl DeviceFacts {
    /// Facts of a device without anything special: 512-byte blocks, no volatile cache, no names,
    /// discard reads zeros. What differs is set by the caller.
    pub fn plain(path: &str, size_bytes: u64, kind: DeviceKind) -> DeviceFacts {
        DeviceFacts {
            path: path.to_owned(),
            size_bytes,
            logical_block_bytes: u32::try_from(SECTOR_BYTES).expect("512"),
            memory_alignment: 1,
            model: None,
            serial: None,
            bay: Bay::default(),
            is_rotational: false,
            has_volatile_cache: false,
            atomic_write_bytes: None,
            takes_whole_blocks: false,
            discard_reads_zeros: true,
            store: None,
            kind,
            exclusion: None,
            appearance: None,
            is_direct: true,
        }
    }

    /// Asserts that a command is aligned to the device's blocks, and tells whether it ends within
    /// it.
    ///
    /// # Panics
    /// If offset or length are not multiples of the logical block.
    pub fn contains(&self, offset: u64, command: &Command) -> bool {
        if matches!(command, Command::Flush) {
            return true;
        }
        let unit = u64::from(self.logical_block_bytes);
        let bytes = command.bytes();
        assert!(
            offset.is_multiple_of(unit),
            "offset {offset} in blocks of {unit} on {}",
            self.path
        );
        assert!(bytes.is_multiple_of(unit), "length {bytes} in blocks of {unit} on {}", self.path);
        offset.checked_add(bytes).is_some_and(|end| end <= self.size_bytes)
    }
}

/// An opened device on one worker. Object-safe; submission never blocks and never allocates once
/// warm.
pub trait Device {
    /// What is fixed about it.
    fn facts(&self) -> &DeviceFacts;

    /// Starts `command` at `offset` (bytes from the device's start; ignored by `Flush`); `done` is
    /// completed later or at once.
    ///
    /// # Panics
    /// If offset or length are not multiples of the logical block.
    ///
    /// # Ordering
    /// None between commands in flight. A flush covers the writes that completed before it was
    /// submitted.
    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>);

    /// Looks at the commands that are under way: what they owe. One watcher asks, again and again
    /// in equal distances.
    fn look_at_commands(&self) -> Owed;

    /// Gives the device up: every command under way is answered at once with [`Fault::TIMED_OUT`],
    /// every later one is refused with it. Commands that the device itself still has keep their
    /// buffers until they come back from it, and what they bring is not believed; until the last
    /// one has, the device cannot be opened exclusively.
    fn give_up(&self);

    /// What tells whether the device is still what was opened; `None` for devices that cannot
    /// change.
    fn look(&self) -> Option<Look> {
        None
    }

    /// Whether [`run_now`](Device::run_now) carries commands out. Never changes.
    fn runs_now(&self) -> bool {
        false
    }

    /// Carries `command` out within this call, if that is how this device works (memory): its
    /// caller then needs no completion.
    ///
    /// # Errors
    /// The command, untouched: `submit` it.
    ///
    /// # Panics
    /// As `submit`.
    fn run_now(&self, offset: u64, command: Command) -> Result<Outcome, Command> {
        let _somewhen = offset;
        Err(command)
    }
}

/// What happened beneath a device while it was open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// It is smaller than when it was opened: what lay beyond its end is lost, also if it grows
    /// again.
    Shorter,
    /// It is a loop device, and the file beneath it is another one.
    BackingFileReplaced,
    /// The device itself is there; the path that it was opened by leads elsewhere, or nowhere.
    PathReplaced,
}

impl Change {
    /// The fault that a member with this change has; `None` if what is open can be used as before.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Change::Shorter => Some(Fault::SHORTER),
            Change::BackingFileReplaced => Some(Fault::REPLACED),
            Change::PathReplaced => None,
        }
    }
}

/// Looks at a device from outside; may block, so it is carried out where no request waits.
pub type Look = Box<dyn FnOnce() -> Option<Change> + Send>;

/// An opened device before it is placed on workers: holds the exclusive open. Closed when it and
/// all that was attached are dropped and no command is in flight any more.
pub trait Opened: Send + Sync {
    /// What is fixed about it.
    fn facts(&self) -> &DeviceFacts;

    /// A path to what is open, wherever the path that it was opened by leads by now; `None` if it
    /// is no file of this system. It leads there as long as this is open.
    fn descriptor_path(&self) -> Option<String> {
        None
    }

    /// A handle to it for the worker behind `handle`.
    fn attach(&self, handle: &Handle) -> Rc<dyn Device>;
}

/// How devices are found by name: real paths in life, memory or simulated ones in tests.
pub trait Opener: Send + Sync {
    /// Opens the device at `path`. May block for as long as the opener was told to wait for a
    /// holder to go.
    ///
    /// # Errors
    /// Why not, in a line for the operator.
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal>;
}

/// What the opener wants to do with a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Look at it, also while somebody else has it.
    ReadOnly,
    /// Have it alone.
    Exclusive,
}

/// Why a device was not opened. Its text is one line for the operator: what happened, to what, what
/// to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct OpenRefusal {
    /// What was to be opened.
    pub path: String,
    /// What is in the way, and what to do.
    pub reason: String,
    /// It is this process that lacks what it takes, file descriptors or memory: the device may be
    /// as good as the others.
    pub is_own_want: bool,
    /// It refuses to be written only: what it holds can be read.
    pub is_write_protected: bool,
}

impl OpenRefusal {
    /// A refusal to open `path`.
    pub fn new(path: &str, reason: impl Into<String>) -> OpenRefusal {
        OpenRefusal {
            path: path.to_owned(),
            reason: reason.into(),
            is_own_want: false,
            is_write_protected: false,
        }
    }
}
