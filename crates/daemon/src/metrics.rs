//! A status as OpenMetrics text.
//!
//! What must stay true: a family is declared once and its samples follow it. Counters end in
//! `_total`, names carry their unit, and the text ends with `# EOF`. Everything is made from one
//! status, so the numbers of one answer belong together.

use crate::backend::{Backend, Serves};
use ashlar_api::v1::array::{ArrayCounters, ArrayState, ArrayStatus, Replayed};
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::v1::job::JobStatus;
use ashlar_api::v1::latency::Latency;
use ashlar_api::v1::member::{DriveHealth, MemberState, MemberStatus};
use ashlar_api::v1::notify::{HistoryStatus, NotifyStatus};
use ashlar_api::v1::status::{GetStatus, PoolStatus, Status, WorkerStatus};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answer a scrape.
pub async fn answer<B: Backend>(State(backend): State<B>) -> Response {
    match Serves::<GetStatus>::serve(&backend, GetStatus {}).await {
        Ok(status) => {
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], openmetrics(&status)).into_response()
        }
        Err(refusal) => (StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()).into_response(),
    }
}

/// The status as OpenMetrics text.
pub fn openmetrics(status: &Status) -> String {
    let mut text = Text::default();
    facts(&mut text, &status.arrays);
    arrays(&mut text, &status.arrays);
    starts(&mut text, &status.arrays);
    waits(&mut text, &status.arrays);
    exposure(&mut text, &status.arrays);
    limits(&mut text, &status.arrays);
    counters(&mut text, &status.arrays);
    members(&mut text, &status.arrays);
    jobs(&mut text, &status.arrays);
    exports(&mut text, &status.exports);
    told(&mut text, status);
    process(&mut text, status);
    text.0.push_str("# EOF\n");
    text.0
}

#[derive(Default)]
struct Text(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# TYPE {name} {kind}\n# HELP {name} {help}\n"));
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        self.0.push_str(&format!("{name}{{{}}} {value}\n", labels.join(",")));
    }

    /// Quantiles and count of a latency, in seconds.
    fn latency(&mut self, name: &str, labels: Labels<'_>, latency: Latency) {
        for (quantile, micros) in
            [("0.5", latency.us_p50), ("0.99", latency.us_p99), ("1", latency.us_max)]
        {
            self.sample(name, &[labels, &[("quantile", quantile)]].concat(), seconds(micros));
        }
        self.sample(&format!("{name}_count"), labels, latency.count);
    }

    /// Cumulative buckets, sum and count of a latency, in seconds.
    fn histogram(&mut self, name: &str, labels: Labels<'_>, latency: Latency) {
        let mut below = 0;
        let last = latency.histogram.len() - 1;
        for (power, count) in latency.histogram.iter().enumerate() {
            below += count;
            let end = if power == last { "+Inf".to_owned() } else { seconds(1 << power) };
            self.sample(&format!("{name}_bucket"), &[labels, &[("le", &end)]].concat(), below);
        }
        self.sample(&format!("{name}_sum"), labels, seconds(latency.us_sum));
        self.sample(&format!("{name}_count"), labels, below);
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn arrays(text: &mut Text, arrays: &[ArrayStatus]) {
    text.family("ashlar_array_state", "stateset", "What the array can promise now.");
    for array in arrays {
        for (state, word) in ARRAY_STATES {
            let is_it = u8::from(array.state == state);
            text.sample(
                "ashlar_array_state",
                &[("array", &array.name), ("ashlar_array_state", word)],
                is_it,
            );
        }
    }
    type Gauge = (&'static str, &'static str, fn(&ArrayStatus) -> u64);
    const GAUGES: [Gauge; 8] = [
        ("ashlar_array_paused_writes", "Member writes that wait for space.", |it| {
            it.pause.as_ref().map_or(0, |pause| pause.waiting)
        }),
        ("ashlar_array_volume_bytes", "Usable size.", |it| it.volume_bytes),
        ("ashlar_array_tolerated_members", "Members that may still be lost.", |it| {
            it.tolerates.into()
        }),
        ("ashlar_array_missing_cells", "Cells of lost members to be rebuilt.", |it| {
            it.lost_members.iter().map(|lost| lost.missing_cells).sum()
        }),
        ("ashlar_array_spare_cells", "Cells of lost members on distributed spares.", |it| {
            it.lost_members.iter().map(|lost| lost.spare_cells).sum()
        }),
        ("ashlar_array_in_place_cells", "Cells of lost members that are back.", |it| {
            it.lost_members.iter().map(|lost| lost.in_place_cells).sum()
        }),
        ("ashlar_array_dirty_regions", "Regions that may be inconsistent.", |it| it.intent.count),
        ("ashlar_array_written_stripes", "Stripes that were ever written.", |it| {
            it.written_stripes.count
        }),
    ];
    for (name, help, value) in GAUGES {
        text.family(name, "gauge", help);
        for array in arrays {
            text.sample(name, &[("array", &array.name)], value(array));
        }
    }
}

/// How many losses the stripes of arrays with distributed spares survive.
fn exposure(text: &mut Text, arrays: &[ArrayStatus]) {
    let exposed = || arrays.iter().filter_map(|it| Some((&*it.name, it.exposure.as_ref()?)));
    let name = "ashlar_array_stripes";
    text.family(name, "gauge", "Stripes by the further losses that they survive.");
    for (array, exposure) in exposed() {
        for (losses, stripes) in exposure.surviving.iter().enumerate() {
            let losses = losses.to_string();
            text.sample(name, &[("array", array), ("losses", &losses)], stripes);
        }
    }
    let name = "ashlar_array_stripes_beyond_parity";
    text.family(name, "gauge", "Stripes that lost more strips than can be replaced.");
    for (array, exposure) in exposed() {
        text.sample(name, &[("array", array)], exposure.beyond_parity);
    }
    let name = "ashlar_array_critical_left_seconds";
    text.family(name, "gauge", "Time until the most endangered stripes are rebuilt, if known.");
    for (array, exposure) in exposed() {
        if let Some(left) = exposure.critical.and_then(|it| it.left_seconds) {
            text.sample(name, &[("array", array)], left);
        }
    }
}

/// The limits of volumes that have any.
fn limits(text: &mut Text, arrays: &[ArrayStatus]) {
    let name = "ashlar_array_limit";
    text.family(name, "gauge", "What may begin in a second, of volumes with a limit.");
    for array in arrays {
        let own = &array.tuning;
        for (of, limit) in [
            ("read_bytes", own.read_rate_max),
            ("write_bytes", own.write_rate_max),
            ("reads", own.read_iops_max),
            ("writes", own.write_iops_max),
        ] {
            if let Some(limit) = limit.filter(|it| *it > 0) {
                text.sample(name, &[("array", &array.name), ("of", of)], limit);
            }
        }
    }
}

/// What the last start made of the stripe intent log, of arrays where it had to look at it.
fn starts(text: &mut Text, arrays: &[ArrayStatus]) {
    type Figure = (&'static str, &'static str, fn(&Replayed) -> u64);
    const FIGURES: [Figure; 5] = [
        ("ashlar_start_rolled_forward", "Updates rolled forward at the last start.", |it| {
            it.rolled_forward
        }),
        ("ashlar_start_dropped", "Updates of which nothing was in place.", |it| it.dropped),
        ("ashlar_start_rows_in_doubt", "Rows whose parity or copies were made anew.", |it| {
            it.rows_in_doubt
        }),
        ("ashlar_start_rows_left", "Rows in doubt that could not be read.", |it| it.rows_left),
        ("ashlar_start_put_back", "Blocks in doubt put back by checksums.", |it| it.put_back),
    ];
    for (name, help, value) in FIGURES {
        text.family(name, "gauge", help);
        for array in arrays {
            if let Some(replayed) = &array.replayed {
                text.sample(name, &[("array", &array.name)], value(replayed));
            }
        }
    }
}

/// Histograms of what clients waited for, and of the stages of writes.
fn waits(text: &mut Text, arrays: &[ArrayStatus]) {
    type Times = (&'static str, &'static str, fn(&ArrayStatus) -> Latency);
    const LATENCIES: [Times; 3] = [
        ("ashlar_array_read_seconds", "Time that client reads took.", |it| it.read_latency),
        ("ashlar_array_write_seconds", "Time that client writes took.", |it| it.write_latency),
        ("ashlar_array_flush_seconds", "Time that client flushes took.", |it| it.flush_latency),
    ];
    for (name, help, value) in LATENCIES {
        text.family(name, "histogram", help);
        for array in arrays {
            text.histogram(name, &[("array", &array.name)], value(array));
        }
    }
    let name = "ashlar_write_stage_seconds";
    text.family(name, "histogram", "Time in each stage of a stripe write, of a sample of them.");
    for array in arrays {
        for it in &array.write_stages {
            text.histogram(name, &[("array", &array.name), ("stage", &it.stage)], it.latency);
        }
    }
}

const ARRAY_STATES: [(ArrayState, &str); 5] = [
    (ArrayState::Clean, "clean"),
    (ArrayState::Resyncing, "resyncing"),
    (ArrayState::Degraded, "degraded"),
    (ArrayState::ReadOnly, "read_only"),
    (ArrayState::Failed, "failed"),
];

const MEMBER_STATES: [(MemberState, &str); 5] = [
    (MemberState::InSync, "in_sync"),
    (MemberState::Rebuilding, "rebuilding"),
    (MemberState::Replacing, "replacing"),
    (MemberState::Failing, "failing"),
    (MemberState::Out, "out"),
];

/// Each counter of an array under its own name; new ones appear without a change here.
fn counters(text: &mut Text, arrays: &[ArrayStatus]) {
    let fields = |counters: &ArrayCounters| match serde_json::to_value(counters) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    for name in fields(&ArrayCounters::default()).keys() {
        let family = format!("ashlar_array_{name}");
        text.family(&family, "counter", "Counted since the array was assembled.");
        for array in arrays {
            let fields = fields(&array.counters);
            let value = fields.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
            text.sample(&format!("{family}_total"), &[("array", &array.name)], value);
        }
    }
}

fn members(text: &mut Text, arrays: &[ArrayStatus]) {
    type Figure = (&'static str, &'static str, &'static str, fn(&MemberStatus) -> u64);
    const FIGURES: [Figure; 14] = [
        ("ashlar_member_in_flight_high_water", "gauge", "The most in flight at once.", |it| {
            it.in_flight_max
        }),
        ("ashlar_member_in_sync", "gauge", "1 while the member is read and written.", |it| {
            u64::from(it.state == MemberState::InSync)
        }),
        ("ashlar_member_in_flight", "gauge", "Operations in flight.", |it| it.in_flight),
        ("ashlar_member_reads", "counter", "Reads done.", |it| it.reads),
        ("ashlar_member_read_bytes", "counter", "Bytes read.", |it| it.read_bytes),
        ("ashlar_member_writes", "counter", "Writes done.", |it| it.writes),
        ("ashlar_member_write_bytes", "counter", "Bytes written.", |it| it.write_bytes),
        ("ashlar_member_read_errors", "counter", "Reads that failed.", |it| it.read_errors),
        ("ashlar_member_write_errors", "counter", "Writes that failed.", |it| it.write_errors),
        ("ashlar_member_checksum_mismatches", "counter", "Blocks found wrong.", |it| {
            it.checksum_mismatches
        }),
        (
            "ashlar_member_silent_seconds",
            "gauge",
            "Time without an answer, commands under way.",
            |it| it.silent_ms / 1000,
        ),
        (
            "ashlar_member_located_mismatches",
            "counter",
            "Blocks that parity, or other copies, point at.",
            |it| it.located_mismatches,
        ),
        ("ashlar_member_slow", "gauge", "1 while much slower than its peers.", |it| {
            u64::from(it.slow.is_some())
        }),
        ("ashlar_member_slow_reads", "counter", "Reads given up after the deadline.", |it| {
            it.slow_reads
        }),
    ];
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        each_member(arrays, |labels, member| text.sample(&sample, labels, value(member)));
    }
    drives(text, arrays);
    health(text, arrays);
    for (name, is_read) in
        [("ashlar_member_read_seconds", true), ("ashlar_member_write_seconds", false)]
    {
        text.family(name, "summary", "Time that the device took.");
        each_member(arrays, |labels, member| {
            let latency = if is_read { member.read_latency } else { member.write_latency };
            text.latency(name, labels, latency);
        });
    }
}

/// What is, or was last, in each slot: for labels of alerts.
fn drives(text: &mut Text, arrays: &[ArrayStatus]) {
    let name = "ashlar_member";
    text.family(name, "info", "The drive in the slot, or the last one that was there.");
    for array in arrays {
        for it in &array.members {
            let slot = it.slot.to_string();
            let last = it.last_device.as_ref();
            let of = |own: &Option<String>, last: Option<&Option<String>>| {
                own.clone().or_else(|| last.cloned().flatten()).unwrap_or_default()
            };
            let device = last.map_or(&it.path, |last| &last.path);
            let bay = last.map_or(&it.bay, |last| &last.bay);
            let serial = of(&it.serial, last.map(|last| &last.serial));
            let model = of(&it.model, last.map(|last| &last.model));
            let labels = [
                ("array", array.name.as_str()),
                ("slot", &slot),
                ("device", device),
                ("serial", &serial),
                ("model", &model),
                ("by_path", bay.by_path.as_deref().unwrap_or("")),
                ("enclosure", bay.enclosure.as_deref().unwrap_or("")),
                ("bay", bay.name.as_deref().unwrap_or("")),
                (
                    "state",
                    MEMBER_STATES
                        .iter()
                        .find(|(state, _)| *state == it.state)
                        .map_or("", |(_, word)| word),
                ),
            ];
            text.sample("ashlar_member_info", &labels, 1);
        }
    }
}

/// What drives say of their health; nothing of those that say nothing.
fn health(text: &mut Text, arrays: &[ArrayStatus]) {
    type Figure = (&'static str, &'static str, &'static str, fn(&DriveHealth) -> Option<i64>);
    const FIGURES: [Figure; 6] = [
        ("ashlar_drive_concerns", "gauge", "Concerns about the drive.", |it| {
            it.error.is_none().then(|| i64::try_from(it.concerns().len()).unwrap_or(i64::MAX))
        }),
        ("ashlar_drive_temperature_celsius", "gauge", "Its temperature.", |it| it.temperature_c),
        ("ashlar_drive_media_errors", "counter", "Media errors in its life.", |it| {
            signed(it.media_errors)
        }),
        ("ashlar_drive_worn_percent", "gauge", "Used part of its rated life.", |it| {
            signed(it.worn_percent)
        }),
        ("ashlar_drive_spare_percent", "gauge", "Spare blocks that are left.", |it| {
            signed(it.spare_percent)
        }),
        ("ashlar_drive_power_on_hours", "gauge", "Hours in operation.", |it| {
            signed(it.power_on_hours)
        }),
    ];
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        each_member(arrays, |labels, member| {
            if let Some(value) = member.health.as_ref().and_then(value) {
                text.sample(&sample, labels, value);
            }
        });
    }
}

fn signed(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

fn each_member(arrays: &[ArrayStatus], mut each: impl FnMut(Labels<'_>, &MemberStatus)) {
    for array in arrays {
        for member in &array.members {
            let slot = member.slot.to_string();
            each(&[("array", &array.name), ("slot", &slot), ("device", &member.path)], member);
        }
    }
}

fn jobs(text: &mut Text, arrays: &[ArrayStatus]) {
    type Figure = (&'static str, &'static str, fn(&JobStatus) -> u64);
    const FIGURES: [Figure; 3] = [
        ("ashlar_job_done_stripes", "Stripes that the job has visited.", |it| it.done_stripes),
        ("ashlar_job_stripes", "Stripes that the job has to visit.", |it| it.total_stripes),
        ("ashlar_job_mismatches", "Blocks that the job found wrong.", |it| it.mismatches),
    ];
    for (name, help, value) in FIGURES {
        text.family(name, "gauge", help);
        for array in arrays {
            for job in &array.jobs {
                let kind = job.kind.to_string();
                let slot = job.slot.map_or(String::new(), |slot| slot.to_string());
                let labels = [("array", array.name.as_str()), ("kind", &kind), ("slot", &slot)];
                text.sample(name, &labels, value(job));
            }
        }
    }
}

/// Listeners and attached volumes. `array` is empty where one serves all of them.
fn exports(text: &mut Text, exports: &[ExportStatus]) {
    type Figure = (&'static str, &'static str, &'static str, fn(&ExportStatus) -> u64);
    const FIGURES: [Figure; 2] = [
        ("ashlar_export_requests", "counter", "Requests that it answered.", |it| it.requests),
        ("ashlar_export_clients", "gauge", "Clients it has now.", |it| it.clients),
    ];
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        for it in exports {
            text.sample(&sample, &labels_of(it), value(it));
        }
    }
    let name = "ashlar_export_over_ring";
    text.family(name, "gauge", "1 for a file whose requests come over io_uring.");
    for it in exports.iter().filter(|it| it.protocol == "fuse") {
        text.sample(name, &labels_of(it), u8::from(it.over_ring));
    }
}

fn labels_of(it: &ExportStatus) -> [(&str, &str); 3] {
    let array = it.array.as_deref().unwrap_or_default();
    [("protocol", &it.protocol), ("address", &it.address), ("array", array)]
}

/// Arrays that are missing, and how events reach the operators.
fn told(text: &mut Text, status: &Status) {
    let name = "ashlar_array_absent";
    text.family(name, "gauge", "1 for an array that should run and does not.");
    for absent in &status.absent {
        text.sample(name, &[("array", &absent.name)], 1);
    }
    let name = "ashlar_array_not_started";
    text.family(name, "gauge", "1 for an array that was found and is not started.");
    for found in &status.found {
        text.sample(name, &[("array", &found.name), ("uuid", &found.uuid)], 1);
    }
    let name = "ashlar_service_missing";
    text.family(name, "gauge", "1 for what cannot be had beside the arrays.");
    for missing in &status.missing {
        text.sample(name, &[("service", &missing.name)], 1);
    }
    text.family("ashlar_starting", "gauge", "1 while configured arrays are being started.");
    text.sample("ashlar_starting", &[], u8::from(status.starting));
    type Figure = (&'static str, &'static str, &'static str, fn(&NotifyStatus) -> u64);
    const FIGURES: [Figure; 5] = [
        ("ashlar_notify_delivered", "counter", "Messages that arrived.", |it| it.delivered),
        ("ashlar_notify_failures", "counter", "Deliveries that failed.", |it| it.failed),
        ("ashlar_notify_summed_up", "counter", "Events told by their number.", |it| it.summed_up),
        ("ashlar_notify_waiting", "gauge", "Messages that wait.", |it| it.waiting),
        ("ashlar_notify_failing", "gauge", "1 while deliveries fail.", |it| {
            u64::from(it.error.is_some())
        }),
    ];
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        for way in &status.notify {
            text.sample(&sample, &[("way", &way.way)], value(way));
        }
    }
    type Kept = (&'static str, &'static str, &'static str, fn(&HistoryStatus) -> u64);
    const KEPT: [Kept; 4] = [
        ("ashlar_history_bytes", "gauge", "Bytes that the history of events takes.", |it| it.bytes),
        ("ashlar_history_written", "counter", "Events written to it.", |it| it.written),
        ("ashlar_history_missed", "counter", "Events that are missing in it.", |it| it.missed),
        ("ashlar_history_failing", "gauge", "1 while it cannot be written.", |it| {
            u64::from(it.error.is_some())
        }),
    ];
    for (name, kind, help, value) in KEPT {
        text.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        if let Some(history) = &status.history {
            text.sample(&sample, &[], value(history));
        }
    }
}

/// What arrays are, as labels to join other metrics with.
fn facts(text: &mut Text, arrays: &[ArrayStatus]) {
    text.family("ashlar_array", "info", "Level, parity kernel and crash policy of the array.");
    for array in arrays {
        let level = array.level.to_string();
        let labels = [
            ("array", array.name.as_str()),
            ("level", &level),
            ("kernel", &array.kernel),
            ("policy", &array.policy),
            ("checksums", &array.checksums),
        ];
        text.sample("ashlar_array_info", &labels, 1);
    }
}

fn process(text: &mut Text, status: &Status) {
    text.family("ashlar_build", "info", "Version of the daemon.");
    text.sample("ashlar_build_info", &[("version", &status.version)], 1);
    text.family("ashlar_kernel", "info", "Parity kernel of arrays that start now.");
    text.sample("ashlar_kernel_info", &[("kernel", &status.kernel)], 1);
    text.family("ashlar_resident_bytes", "gauge", "Memory of the daemon.");
    text.sample("ashlar_resident_bytes", &[], status.resident_bytes);
    type Work = (&'static str, &'static str, fn(&WorkerStatus) -> u64);
    const WORK: [Work; 10] = [
        ("ashlar_worker_requests", "Client requests that arrived at the worker.", |it| it.requests),
        ("ashlar_worker_pieces", "Pieces of stripe work that the worker did.", |it| it.pieces),
        ("ashlar_worker_hops", "Messages that the worker sent to other workers.", |it| it.hops),
        ("ashlar_worker_system_calls", "System calls of the worker's ring.", |it| it.system_calls),
        ("ashlar_worker_sleeps", "Times that the worker had nothing to do.", |it| it.sleeps),
        ("ashlar_worker_wake_ups", "Times that another thread woke the worker.", |it| it.wake_ups),
        ("ashlar_worker_looks", "Looks for work before a sleep.", |it| it.looks),
        ("ashlar_worker_looks_of_use", "Such looks that found work.", |it| it.looks_of_use),
        ("ashlar_worker_look_nanoseconds", "CPU time of such looks.", |it| it.look_ns),
        ("ashlar_worker_operations", "Operations asked of the kernel.", |it| it.operations),
    ];
    for (name, help, value) in WORK {
        text.family(name, "counter", help);
        for worker in &status.workers {
            let number = worker.worker.to_string();
            text.sample(&format!("{name}_total"), &[("worker", &number)], value(worker));
        }
    }
    const DEPTHS: [Work; 2] = [
        ("ashlar_worker_in_flight", "Requests and pieces in hand.", |it| it.in_flight),
        ("ashlar_worker_in_flight_high_water", "The most in hand at once.", |it| it.in_flight_max),
    ];
    for (name, help, value) in DEPTHS {
        text.family(name, "gauge", help);
        for worker in &status.workers {
            let number = worker.worker.to_string();
            text.sample(name, &[("worker", &number)], value(worker));
        }
    }
    type Level = (&'static str, &'static str, fn(&PoolStatus) -> u64);
    const LEVELS: [Level; 3] = [
        ("ashlar_pool_limit", "How many there are.", |it| it.limit),
        ("ashlar_pool_in_use", "How many are taken.", |it| it.in_use),
        ("ashlar_pool_high_water", "The most that were taken at once.", |it| it.high_water),
    ];
    for (name, help, value) in LEVELS {
        text.family(name, "gauge", help);
        for pool in &status.pools {
            text.sample(name, &[("pool", &pool.name)], value(pool));
        }
    }
    let name = "ashlar_repeated_events";
    text.family(name, "counter", "Faults that come in crowds, by their event.");
    for event in &status.repeated_events {
        text.sample(&format!("{name}_total"), &[("event", &event.name)], event.count);
    }
    text.family("ashlar_pool", "info", "The pages its memory is on.");
    for pool in status.pools.iter().filter(|pool| !pool.pages.is_empty()) {
        text.sample("ashlar_pool_info", &[("pool", &pool.name), ("pages", &pool.pages)], 1);
    }
    text.family("ashlar_pool_waits", "counter", "How often a request had to wait.");
    for pool in &status.pools {
        text.sample("ashlar_pool_waits_total", &[("pool", &pool.name)], pool.waits);
    }
}
