//! Progress and speed of a job in a few words.

use ashlar_api::v1::job::JobStatus;
use ashlar_api::words::span;
use ashlar_units::ByteSize;

/// `41 %  612 MiB/s  left 2 h 05 m`, or `41 %  paused`.
pub fn progress(job: &JobStatus) -> String {
    let percent = job.percent();
    if job.paused {
        return format!("{percent} %  paused");
    }
    let speed = ByteSize(job.bytes_per_second);
    let left = job.left_seconds.map_or(String::new(), |left| format!("  left {}", span(left)));
    format!("{percent} %  {speed}/s{left}")
}
