//! How fast a disk is, and what passed it: a bucket of tokens in the world's time.
//!
//! What must stay true: a command waits until those before it have passed, and then for its own
//! bytes. A disk without a rate lets everything through at once. Commands without bytes pass free.

use std::time::Duration;

use ashlar_device::CommandKind;
use ashlar_units::{Extent, Nanos};

/// Bytes that passed a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Read.
    pub read_bytes: u64,
    /// Written.
    pub written_bytes: u64,
}

/// The gate of one disk.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    free_at: Nanos,
    /// Commands that begin elsewhere are not counted.
    pub(crate) counted: Extent,
    pub(crate) traffic: Traffic,
}

impl Gate {
    /// A command comes at this moment. Says how long the gate keeps it.
    pub(crate) fn pass(
        &mut self,
        now: Nanos,
        bytes_per_second: Option<u64>,
        (kind, offset, bytes): (CommandKind, u64, u64),
    ) -> Duration {
        let is_counted = (self.counted.offset..self.counted.end()).contains(&offset);
        let counted = if is_counted { bytes } else { 0 };
        match kind {
            CommandKind::Read => self.traffic.read_bytes += counted,
            CommandKind::Write | CommandKind::WriteDurable => self.traffic.written_bytes += counted,
            // They move nothing.
            CommandKind::Flush | CommandKind::Discard | CommandKind::WriteZeroes => {
                return Duration::ZERO;
            }
        }
        let Some(rate) = bytes_per_second else { return Duration::ZERO };
        let own = Duration::from_nanos(bytes * 1_000_000_000 / rate.max(1));
        self.free_at = self.free_at.max(now).after(own);
        self.free_at.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Traffic};
    use ashlar_device::CommandKind;
    use ashlar_units::{Extent, Nanos};
    use std::time::Duration;

    #[test]
    fn commands_pass_one_after_the_other_at_the_rate_of_the_disk() {
        let ms = Duration::from_millis;
        let mut gate = Gate { counted: Extent::new(100, 200), ..Gate::default() };
        let mut pass = |at: u64, kind, offset| {
            gate.pass(Nanos(at * 1_000_000), Some(1000), (kind, offset, 10))
        };
        assert_eq!(pass(0, CommandKind::Read, 100), ms(10));
        assert_eq!(pass(5, CommandKind::Write, 200), ms(15), "5 ms of the first are left");
        assert_eq!(pass(6, CommandKind::Flush, 0), ms(0));
        assert_eq!(pass(100, CommandKind::Write, 0), ms(10), "idle time is not saved up");
        assert_eq!(pass(200, CommandKind::Write, 300), ms(10));
        assert_eq!(gate.traffic, Traffic { read_bytes: 10, written_bytes: 10 });
        let free = gate.pass(Nanos(0), None, (CommandKind::Read, 500, 1 << 30));
        assert_eq!(free, ms(0));
    }
}
