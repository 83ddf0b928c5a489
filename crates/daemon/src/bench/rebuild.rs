//! How fast members are rebuilt while no client asks for anything.
//!
//! What must stay true: a member comes back into its own place as a new device, so that all written
//! stripes are rebuilt. Memory that a member in memory needs was taken before.

use super::clients::cpu_time;
use super::figures::Look;
use super::{BenchSpec, NAME, devices};
use crate::convert;
use ashlar_api::ApiError;
use ashlar_engine::{Engine, SlotState};
use ashlar_units::MemberIdx;
use rustix::time::ClockId;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two looks whether it has ended.
const POLL: Duration = Duration::from_millis(1);

/// What a rebuild took.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct RebuildResult {
    /// Members that were rebuilt, side by side.
    pub members: u16,
    /// Bytes that each of them got.
    pub member_bytes: u64,
    /// Time that it took.
    pub seconds: f64,
    /// CPU time of the whole process, in seconds.
    pub cpu_seconds: f64,
    /// Bytes a second that each of them got.
    pub member_bytes_per_second: f64,
    /// Reads of members.
    pub member_reads: u64,
    /// Writes of members.
    pub member_writes: u64,
    /// Workers that were used.
    pub workers: usize,
    /// The parity kernel.
    pub kernel: String,
}

/// Replace each lost member by its own device, all at once, and wait for the end.
pub(super) async fn measure(engine: &Engine, spec: &BenchSpec) -> Result<RebuildResult, ApiError> {
    let before = Look::at(engine).await?;
    let (began, cpu_before) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
    for (slot, path) in (0..spec.lost).zip(devices(spec)) {
        let replaced = engine.replace(NAME, MemberIdx(slot), &path, true);
        replaced.await.map_err(convert::refusal)?;
    }
    let after = loop {
        let look = Look::at(engine).await?;
        if look.array.members.iter().all(|member| member.state == SlotState::InSync) {
            break look;
        }
        tokio::time::sleep(POLL).await;
    };
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_time(ClockId::ProcessCPUTime).saturating_sub(cpu_before);
    let (counts, counts_before) = (&after.array.counts, &before.array.counts);
    let stripes: u64 = after.array.ended_jobs.iter().map(|job| job.did.done_stripes).sum();
    let member_bytes = stripes * after.array.geometry.strip_bytes() / u64::from(spec.lost.max(1));
    Ok(RebuildResult {
        members: spec.lost,
        member_bytes,
        seconds,
        cpu_seconds: cpu.as_secs_f64(),
        member_bytes_per_second: member_bytes as f64 / seconds,
        member_reads: counts.member_reads - counts_before.member_reads,
        member_writes: counts.member_writes - counts_before.member_writes,
        workers: engine.worker_count(),
        kernel: after.array.kernel.to_owned(),
    })
}
