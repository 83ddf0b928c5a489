//! Reachability marks: named events, counted over a universe and summed over a run.
//!
//! What must stay true: counting changes nothing in a universe. A run in `./check --full` fails if
//! a mark of [`EXPECTED`] is never reached: then the universes do not go where they are thought to
//! go.

use std::collections::BTreeMap;
use std::fmt;

/// How often each mark was reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks(BTreeMap<String, u64>);

impl Marks {
    /// Count `name` so many times.
    pub fn add(&mut self, name: &str, times: u64) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += times,
            None => drop(self.0.insert(name.to_owned(), times)),
        }
    }

    /// Add all of `other`.
    pub fn merge(&mut self, other: &Marks) {
        for (name, times) in &other.0 {
            self.add(name, *times);
        }
    }

    /// How often `name` was reached.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Faults of devices, of hosts, and abuses.
    pub fn faults(&self) -> u64 {
        let is_fault = |name: &str| {
            let of_host =
                name.starts_with("crash.in_") || ["crash.power", "crash.kill"].contains(&name);
            name.starts_with("fault.") || of_host || ABUSES.contains(&name)
        };
        self.0.iter().filter(|(name, _)| is_fault(name)).map(|(_, times)| times).sum()
    }

    /// How many different marks were reached.
    pub fn reached(&self) -> usize {
        self.0.values().filter(|times| **times > 0).count()
    }

    /// How many are expected of a long run.
    pub fn expected() -> usize {
        EXPECTED.len()
    }

    /// Expected marks that were never reached.
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|name| self.of(name) == 0).collect()
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in &self.0 {
            writeln!(f, "  {times:>10}  {name}")?;
        }
        Ok(())
    }
}

/// What may be done to members while nobody uses them.
pub(crate) const ABUSES: [&str; 13] = [
    "abuse.swapped",
    "abuse.shrunk",
    "abuse.foreign",
    "abuse.stale_copy",
    "abuse.stale_copies",
    "abuse.twice",
    "abuse.damaged_copies",
    "abuse.too_many_gone",
    "abuse.too_many_lost",
    "abuse.second_runner",
    "abuse.nothing",
    "abuse.cut_and_grown",
    "abuse.cut_while_running",
];

/// What some thousand universes must reach.
pub const EXPECTED: &[&str] = &[
    "abuse.kept_map_missed",
    "array.is_paused",
    "audit.stripes_checked",
    "client.came_during_a_start",
    "client.error_within_contract",
    "count.decode_writes",
    "count.degraded_reads",
    "count.discards",
    "count.discarded_bytes",
    "count.errors",
    "count.first_writes",
    "count.flushes",
    "count.full_stripe_writes",
    "count.handed_over",
    "count.intent_page_writes",
    "count.job_member_writes",
    "count.parity_only_records",
    "count.log_batches",
    "count.log_records",
    "count.log_settles",
    "count.log_space_waits",
    "count.merged_writes",
    "count.rcw_writes",
    "count.repaired_blocks",
    "count.rmw_writes",
    "count.written_page_writes",
    "crash.degraded",
    "crash.device_went_unseen",
    "crash.device_went_unseen_and_unknown",
    "crash.before_a_growth_had_begun",
    "crash.during_grow",
    "crash.during_rebuild",
    "crash.during_replace",
    "crash.during_resync",
    "crash.during_scrub",
    "crash.in_create",
    "crash.in_start",
    "crash.in_start_thrice",
    "crash.in_start_twice",
    "crash.kill",
    "crash.power",
    "uncertain.on_a_lost_member",
    "uncertain.damaged",
    "uncertain.read",
    "device.all_grew",
    "device.came_back_by_another_path",
    "device.grew",
    "device.paths_moved",
    "device.serials_accepted",
    "device.serials_accepted_and_cut_off",
    "device.serials_refused",
    "export.sent_again",
    "fault.flush_fails",
    "fault.lost_write",
    "fault.misdirected_write",
    "fault.no_room",
    "fault.reads_fail",
    "fault.rot",
    "fault.sectors_broken",
    "fault.silent",
    "fault.slow",
    "fault.stood_still",
    "fault.torn_write",
    "fault.vanished",
    "fault.vanished_at_rest",
    "fault.vanished_together",
    "fault.vanished_with_its_cache",
    "fault.writes_fail",
    "growth.member_lost",
    "job.finished (rebuild)",
    "job.finished (replace)",
    "job.finished (resync)",
    "job.finished (scrub)",
    "job.paused (scrub)",
    "job.started (rebuild)",
    "job.started (replace)",
    "job.started (resync)",
    "job.started (scrub)",
    "job.stopped (rebuild)",
    "job.stopped (replace)",
    "job.stopped (scrub)",
    "level.n+m",
    "level.raid0",
    "level.raid1",
    "level.raid10",
    "level.raid5",
    "level.raid50",
    "level.raid6",
    "level.raid60",
    "level.raid7.3",
    "level.raid70",
    "log.replayed",
    "member.block_repaired",
    "member.block_unrepaired",
    "member.checksum_mismatch",
    "member.failed",
    "member.failed (replacement)",
    "member.joined (rebuilding)",
    "member.joined (replacement)",
    "member.answered",
    "member.read_late",
    "member.silent",
    "member.slow",
    "older.beyond_the_budget",
    "older.taken_at_a_crash",
    "older.taken_at_a_stop",
    "older.with_checksums",
    "older.within_the_budget",
    "older.without_checksums",
    "operator.copy",
    "operator.grown",
    "operator.paused",
    "operator.put_out",
    "operator.re_added",
    "operator.rebuild",
    "operator.refused",
    "operator.spare_added",
    "operator.spare_removed",
    "operator.unpaused",
    "abuse.cut_and_grown",
    "abuse.cut_while_running",
    "abuse.damaged_copies",
    "abuse.degraded",
    "abuse.foreign",
    "abuse.read_failed",
    "abuse.nothing",
    "abuse.refused",
    "abuse.second_runner",
    "abuse.second_runner_at_once",
    "abuse.second_runner_later",
    "abuse.second_runner_of_one_that_ended",
    "abuse.shrunk",
    "abuse.damaged_beyond",
    "abuse.damaged_is_an_error",
    "abuse.stale_copies",
    "abuse.stale_copy",
    "abuse.stopped_after_a_failure",
    "abuse.stale_copy_of_this_generation",
    "abuse.swapped",
    "abuse.too_many_gone",
    "abuse.too_many_lost",
    "abuse.twice",
    "abuse.whole",
    "abuse.write_done",
    "abuse.write_refused",
    "layout.declustered",
    "layout.growing",
    "policy.bitmap, class.crashes",
    "policy.bitmap, class.losses",
    "policy.bitmap, class.losses-then-crash",
    "policy.log, class.everything",
    "policy.log, class.losses",
    "policy.log, with checksums",
    "rebuild.awaited",
    "rehearsal.option_named",
    "rehearsal.refused",
    "rehearsal.started",
    "remnant.left_alone",
    "remnant.none_left",
    "remnant.refused",
    "remnant.taken_back",
    "replay.blocks",
    "replay.dropped",
    "replay.rolled_forward",
    "replay.rows_in_doubt",
    "rollback.believed",
    "rollback.missing",
    "rollback.newer",
    "spare.added",
    "spare.missing",
    "spare.removed",
    "damaged.repaired_and_named",
    "start.after_a_crash",
    "start.degraded",
    "start.degraded_after_a_crash",
    "start.done",
    "start.read_only",
    "stop.clean",
    "stop.nothing_leaks",
    "universe.whole_at_the_end",
];
