//! The log of one member, for people.

use std::fmt;

use ashlar_units::{ByteSize, to_u64};

use super::batch::LogIdentity;
use super::record::{LogLimits, RecordKind};
use super::scan::{LogScan, MemberLog};
use crate::bitmap::array_tag;
use crate::superblock::Superblock;

impl LogScan {
    /// The scan of this member's log area, counting batches of other starts as well; `None` if the
    /// array keeps no log, or the member has no part in it (it is out, or never had a log tag).
    pub fn of_member(superblock: &Superblock) -> Option<LogScan> {
        let log_tag = superblock.member(superblock.member_uuid)?.log_tag;
        let area = superblock.areas.intent_log;
        if log_tag == 0 || area.bytes == 0 {
            return None;
        }
        let identity = LogIdentity {
            array_tag: array_tag(superblock.array_uuid),
            log_tag,
            incarnation: superblock.incarnation,
        };
        let limits = LogLimits::of(&superblock.geometry);
        Some(LogScan::new(identity, limits, area.bytes).counting_others())
    }
}

impl MemberLog {
    /// Batches of the last start.
    pub fn batches(&self) -> u64 {
        self.log_rings.values().map(|log_ring| log_ring.batches).sum()
    }

    /// Records in them.
    pub fn records_written(&self) -> u64 {
        self.log_rings.values().map(|log_ring| log_ring.records).sum()
    }

    /// Records of the kind of that name that the member itself does not call settled.
    pub fn counting(&self, name: &str) -> u64 {
        to_u64(self.records.iter().filter(|logged| logged.record.kind.name() == name).count())
    }
}

impl fmt::Display for MemberLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batches, records) = (self.batches(), self.records_written());
        writeln!(f, "{:<14} {batches} batches of the last start, {records} records", "log")?;
        write!(f, "{:<14} {} of them", "counting", self.records.len())?;
        for name in RecordKind::NAMES {
            write!(f, ", {} {name}", self.counting(name))?;
        }
        writeln!(f, " (what other members call settled does not count either)")?;
        if self.other_batches > 0 {
            let (batches, records) = (self.other_batches, self.other_records);
            writeln!(f, "{:<14} {batches} batches, {records} records: they mean nothing", "older")?;
        }
        if let Some(fault) = self.fault {
            writeln!(f, "{:<14} {fault}", "log damaged")?;
        }
        for (number, log_ring) in &self.log_rings {
            writeln!(
                f,
                "{:<14} {} batches, {} records, {}; settled below update {}",
                format!("log ring {number}"),
                log_ring.batches,
                log_ring.records,
                ByteSize(log_ring.bytes),
                log_ring.settled_below
            )?;
        }
        Ok(())
    }
}
