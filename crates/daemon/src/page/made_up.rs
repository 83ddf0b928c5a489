//! Made-up statuses for the tests of the page.

use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::job::JobStatus;
use ashlar_api::v1::member::MemberStatus;
use ashlar_api::v1::status::Status;
use serde_json::json;

/// A clean RAID 6 without members.
pub fn array(name: &str) -> ArrayStatus {
    let latency = json!({"count": 0, "us_p50": 0, "us_p99": 0, "us_max": 0});
    serde_json::from_value(json!({
        "name": name, "uuid": format!("uuid-{name}"), "level": "6",
        "data_strips": 2, "parity_strips": 2, "groups": 1, "strip_bytes": 65_536,
        "volume_bytes": 1u64 << 40, "state": "clean", "tolerates": 2, "policy": "log",
        "kernel": "none", "generation": 1, "intent": {"count": 0, "of": 1},
        "written_stripes": {"count": 0, "of": 1}, "members": [], "jobs": [], "counters": {},
        "read_latency": latency, "write_latency": latency
    }))
    .expect("an array")
}

/// A member.
pub fn member(slot: u16, state: &str, path: &str) -> MemberStatus {
    let latency = json!({"count": 0, "us_p50": 0, "us_p99": 0, "us_max": 0});
    serde_json::from_value(json!({
        "slot": slot, "path": path, "state": state, "device_bytes": 0, "read_errors": 0,
        "write_errors": 0, "repaired_blocks": 0, "slow_reads": 0, "in_flight": 0, "reads": 0,
        "read_bytes": 0, "writes": 0, "write_bytes": 0,
        "read_latency": latency, "write_latency": latency
    }))
    .expect("a member")
}

/// A job that is 41 % done.
pub fn job(kind: &str, slot: Option<u16>) -> JobStatus {
    serde_json::from_value(json!({
        "kind": kind, "slot": slot, "done_stripes": 41, "total_stripes": 100, "bytes": 0,
        "bytes_per_second": 1 << 20, "left_seconds": 7500, "paused": false
    }))
    .expect("a job")
}

/// A daemon that runs these.
pub fn status(arrays: Vec<ArrayStatus>) -> Status {
    let mut status: Status = serde_json::from_value(json!({
        "version": "1", "uptime_seconds": 0, "process_id": 1, "resident_bytes": 0,
        "arrays": [], "spare_pools": [], "exports": [], "workers": [], "pools": []
    }))
    .expect("a status");
    status.arrays = arrays;
    status
}
