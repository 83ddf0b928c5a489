//! Faults of a command, told apart by what the engine does about them.
//!
//! What must stay true: every errno of the block layer has one kind, here and nowhere else. Making
//! a fault allocates nothing. Not here: what the engine does (it reconstructs around a media fault,
//! and a device that is gone leaves).

use std::io;

use rustix::io::Errno;

/// A device fault. Copy, no allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.words())]
pub struct Fault {
    /// What to do about it.
    pub kind: FaultKind,
    /// What the kernel said.
    pub errno: i32,
}

/// Kinds of faults.
///
/// As wide as the number beside it: outcomes are moved several times for each command, and in
/// halves where the compiler has split a byte off them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum FaultKind {
    /// These blocks cannot be read or written (EIO, EILSEQ, ENODATA): others may.
    Media,
    /// The device is gone or broken as a whole (ENODEV, ENXIO, ESHUTDOWN, EBADF), or is not ours
    /// any more (EBADE: another host holds the reservation; EROFS and EPERM: it is
    /// write-protected), or it ends too early.
    Gone,
    /// No space behind the device: a sparse file on a full file system, a thin device, a write
    /// beyond the end.
    NoSpace,
    /// The device does not know the command.
    Unsupported,
    /// It took too long or was put off; the same command may work when tried again.
    TimedOut,
}

impl Fault {
    /// A block that cannot be read: what a medium error looks like.
    pub const MEDIA: Fault = Fault { kind: FaultKind::Media, errno: Errno::IO.raw_os_error() };
    /// The device is not there any more.
    pub const GONE: Fault = Fault { kind: FaultKind::Gone, errno: Errno::NODEV.raw_os_error() };
    /// There is no space behind the device, or the device ends here.
    pub const NO_SPACE: Fault =
        Fault { kind: FaultKind::NoSpace, errno: Errno::NOSPC.raw_os_error() };
    /// The device does not know the command.
    pub const UNSUPPORTED: Fault =
        Fault { kind: FaultKind::Unsupported, errno: Errno::OPNOTSUPP.raw_os_error() };
    /// The device did not answer in time.
    pub const TIMED_OUT: Fault =
        Fault { kind: FaultKind::TimedOut, errno: Errno::TIMEDOUT.raw_os_error() };
    /// The device ends before it should: it is smaller than when it was opened.
    pub const SHORTER: Fault =
        Fault { kind: FaultKind::Gone, errno: Errno::OVERFLOW.raw_os_error() };
    /// What lies beneath the device is not what was opened.
    pub const REPLACED: Fault = Fault { kind: FaultKind::Gone, errno: Errno::STALE.raw_os_error() };

    /// For people: what is wrong, and what the kernel said.
    fn words(self) -> String {
        let words = match (self.kind, Errno::from_raw_os_error(self.errno)) {
            (_, Errno::OVERFLOW) => return "the device is smaller than it was".to_owned(),
            (_, Errno::STALE) => return "the file beneath the device was replaced".to_owned(),
            (_, Errno::ROFS) => "the device is read-only",
            (_, Errno::PERM | Errno::ACCESS) => "the device refuses to be written",
            (FaultKind::Media, _) => "media error",
            (FaultKind::Gone, _) => "the device is gone",
            (FaultKind::NoSpace, _) => "no space behind the device",
            (FaultKind::Unsupported, _) => "the device does not know the command",
            (FaultKind::TimedOut, _) => "the device did not answer in time",
        };
        format!("{words} (errno {})", self.errno)
    }

    /// The fault a kernel's errno (a positive number) stands for.
    ///
    /// An errno that no driver is known to answer with counts as [`FaultKind::Media`]: the
    /// narrowest claim, about these blocks and not about the device.
    pub fn from_errno(errno: i32) -> Fault {
        let kind = match Errno::from_raw_os_error(errno) {
            Errno::NODEV
            | Errno::NXIO
            | Errno::SHUTDOWN
            | Errno::BADF
            | Errno::BADE
            | Errno::NOLINK
            | Errno::PERM
            | Errno::ROFS => FaultKind::Gone,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FaultKind::NoSpace,
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL => FaultKind::Unsupported,
            Errno::TIMEDOUT
            | Errno::TIME
            | Errno::AGAIN
            | Errno::BUSY
            | Errno::INTR
            | Errno::NOMEM
            | Errno::CANCELED => FaultKind::TimedOut,
            _ => FaultKind::Media,
        };
        Fault { kind, errno }
    }

    /// The fault behind an I/O error; one without an errno counts as EIO.
    pub fn from_io(error: &io::Error) -> Fault {
        Fault::from_errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    }

    /// Whether it is about these blocks only: others of the device may be fine.
    pub fn is_about_blocks(self) -> bool {
        self.kind == FaultKind::Media
    }

    /// Whether the device as a whole cannot be used any more.
    pub fn is_about_device(self) -> bool {
        self.kind == FaultKind::Gone
    }
}

impl From<FaultKind> for Fault {
    /// The fault with the kind's most usual errno.
    fn from(kind: FaultKind) -> Fault {
        match kind {
            FaultKind::Media => Fault::MEDIA,
            FaultKind::Gone => Fault::GONE,
            FaultKind::NoSpace => Fault::NO_SPACE,
            FaultKind::Unsupported => Fault::UNSUPPORTED,
            FaultKind::TimedOut => Fault::TIMED_OUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultKind};
    use std::io;

    #[track_caller]
    fn kind(errno: i32) -> FaultKind {
        let fault = Fault::from_errno(errno);
        assert_eq!(fault.errno, errno, "what the kernel said is kept");
        fault.kind
    }

    // The numbers are the kernel's ABI, written out so that a wrong constant shows.
    macro_rules! errno_is {
        ($($name:ident: $errno:literal => $kind:ident;)*) => {
            $(#[test]
            fn $name() {
                assert_eq!(kind($errno), FaultKind::$kind);
            })*
        };
    }

    errno_is! {
        eio_is_about_blocks: 5 => Media;
        eilseq_is_about_blocks: 84 => Media;
        enodata_is_about_blocks: 61 => Media;
        eremoteio_is_about_blocks: 121 => Media;
        an_unknown_errno_is_about_blocks: 4000 => Media;
        enodev_is_about_the_device: 19 => Gone;
        enxio_is_about_the_device: 6 => Gone;
        eshutdown_is_about_the_device: 108 => Gone;
        ebadf_is_about_the_device: 9 => Gone;
        ebade_reservation_lost_is_about_the_device: 52 => Gone;
        enolink_is_about_the_device: 67 => Gone;
        erofs_is_about_the_device: 30 => Gone;
        eperm_of_a_write_protected_device_is_about_the_device: 1 => Gone;
        enospc_is_no_space: 28 => NoSpace;
        edquot_is_no_space: 122 => NoSpace;
        efbig_is_no_space: 27 => NoSpace;
        eopnotsupp_is_unsupported: 95 => Unsupported;
        enotty_is_unsupported: 25 => Unsupported;
        enosys_is_unsupported: 38 => Unsupported;
        einval_is_unsupported: 22 => Unsupported;
        etimedout_is_worth_another_try: 110 => TimedOut;
        etime_is_worth_another_try: 62 => TimedOut;
        eagain_is_worth_another_try: 11 => TimedOut;
        ebusy_is_worth_another_try: 16 => TimedOut;
        eintr_is_worth_another_try: 4 => TimedOut;
        enomem_is_worth_another_try: 12 => TimedOut;
        ecanceled_is_worth_another_try: 125 => TimedOut;
    }

    #[test]
    fn every_kind_is_the_kind_of_its_usual_errno() {
        for fault_kind in [
            FaultKind::Media,
            FaultKind::Gone,
            FaultKind::NoSpace,
            FaultKind::Unsupported,
            FaultKind::TimedOut,
        ] {
            assert_eq!(kind(Fault::from(fault_kind).errno), fault_kind);
        }
    }

    #[test]
    fn faults_are_told_in_words() {
        let told = |errno| Fault::from_errno(errno).to_string();
        assert_eq!(told(30), "the device is read-only (errno 30)");
        assert_eq!(told(5), "media error (errno 5)");
        assert_eq!(Fault::SHORTER.to_string(), "the device is smaller than it was");
    }

    #[test]
    fn an_error_without_errno_is_an_eio() {
        assert_eq!(Fault::from_io(&io::Error::other("made up")), Fault::MEDIA);
        let gone = Fault::from_io(&io::Error::from_raw_os_error(19));
        assert!(gone.is_about_device() && !gone.is_about_blocks());
    }
}
