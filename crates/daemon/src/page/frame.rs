//! The parts of the page at one moment, and which of them differ from another moment's.
//!
//! What must stay true: a part is made from one status, its history and the newest events, and from
//! nothing else. All text of devices, clients and operators goes through the templates, which
//! escape it. The live part for screen readers changes only when a state does.

use super::chart::{Chart, Line, Measure, Point, Told};
use super::history::{History, Rates};
use super::slots::{self, Array, Badge, Group};
use ashlar_api::v1::array::ArrayStatus;
use ashlar_api::v1::check::{Health, Verdict};
use ashlar_api::v1::event::{Event, one_line};
use ashlar_api::v1::export::ExportStatus;
use ashlar_api::v1::job::JobStatus;
use ashlar_api::v1::member::MemberState;
use ashlar_api::v1::severity::Severity;
use ashlar_api::v1::status::{AbsentArray, FoundArray, Status};
use ashlar_api::words::{grouped, span, utc};
use ashlar_units::ByteSize;
use askama::Template;

/// Everything that a page is made from.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The arrays and everything else.
    pub status: &'a Status,
    /// What the arrays did.
    pub history: &'a History,
    /// The newest events, newest first.
    pub events: &'a [&'a Event],
    /// The wall clock.
    pub unix_ms: u64,
}

/// The parts of a page: the name of each, and its HTML.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame(pub Vec<(&'static str, String)>);

impl Frame {
    /// Draw what is seen.
    pub fn of(seen: Seen<'_>) -> Frame {
        Frame(vec![
            ("said", escaped(&said(seen.status))),
            ("seen", time(seen.unix_ms)),
            ("verdict", drawn(&VerdictPart::of(seen.status))),
            ("arrays-now", drawn(&ArraysPart::of(seen))),
            ("jobs-now", drawn(&JobsPart::of(seen.status))),
            ("load-now", drawn(&LoadPart::of(seen))),
            ("exports-now", drawn(&ExportsPart::of(seen.status))),
            ("events-now", drawn(&EventsPart::of(seen.events))),
            ("about", drawn(&AboutPart::of(seen.status))),
        ])
    }

    /// The HTML of a part; empty if there is none.
    pub fn part(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| *own == name).map_or("", |(_, html)| html)
    }

    /// The parts that `before` does not have like this.
    pub fn since(&self, before: &Frame) -> Vec<&(&'static str, String)> {
        self.0.iter().filter(|part| !before.0.contains(part)).collect()
    }
}

fn drawn(part: &impl Template) -> String {
    part.render().unwrap_or_else(|_| "This part could not be drawn.".to_owned())
}

fn escaped(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map_or(String::new(), |it| it.to_string())
}

/// A moment, to the second.
fn moment(unix_ms: u64) -> String {
    utc(unix_ms).chars().take(19).collect()
}

fn time(unix_ms: u64) -> String {
    let whole = moment(unix_ms);
    let (day, clock) = whole.split_once(' ').unwrap_or(("", &whole));
    format!(r#"<time datetime="{day}T{clock}Z">{day} {clock} UTC</time>"#)
}

/// The states in a few sentences, for those who hear the page: without figures that run.
fn said(status: &Status) -> String {
    let array = |array: &ArrayStatus| {
        let look = slots::look_of(array);
        let out = array.members.iter().filter(|it| it.state != MemberState::InSync);
        let out: String = out.map(|it| format!(", slot {} {}", it.slot, it.state)).collect();
        let paused = if array.pause.is_some() { ", writes wait for space" } else { "" };
        format!(" {} is {}{out}{paused}.", one_line(&array.name), look.word)
    };
    let absent = |absent: &AbsentArray| format!(" {} does not run.", one_line(&absent.name));
    let arrays: String = status.arrays.iter().map(array).collect();
    let found = |found: &FoundArray| format!(" {} is not started.", one_line(&found.name));
    let missing = status.absent.iter().map(absent).chain(status.found.iter().map(found));
    let missing: String = missing.collect();
    format!("{}.{arrays}{missing}", Verdict::of(status).health)
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[derive(Template)]
#[template(path = "page/verdict.html")]
struct VerdictPart {
    look: Badge,
    findings: Vec<String>,
    counts: String,
}

impl VerdictPart {
    fn of(status: &Status) -> VerdictPart {
        let verdict = Verdict::of(status);
        let class = match verdict.health {
            Health::Right => "clean",
            Health::Attention => "attention",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
        };
        let members: usize = status.arrays.iter().map(|it| it.members.len()).sum();
        let spares: usize = status.spare_pools.iter().map(|pool| pool.spares.len()).sum();
        let counts = [
            counted(status.arrays.len(), "array", "arrays"),
            counted(members, "slot", "slots"),
            counted(spares, "spare", "spares"),
            counted(status.arrays.iter().map(|it| it.jobs.len()).sum(), "job", "jobs"),
        ];
        VerdictPart {
            look: Badge { class, word: verdict.health.to_string() },
            findings: verdict.findings.into_iter().map(|it| one_line(&it.what)).collect(),
            counts: counts.join(" · "),
        }
    }
}

#[derive(Template)]
#[template(path = "page/arrays.html")]
struct ArraysPart {
    arrays: Vec<Array>,
    absent: Vec<AbsentArray>,
    found: Vec<FoundArray>,
    pools: Vec<Group>,
    is_starting: bool,
}

impl ArraysPart {
    fn of(seen: Seen<'_>) -> ArraysPart {
        let clean = |absent: &AbsentArray| AbsentArray {
            name: one_line(&absent.name),
            devices: absent.devices.iter().map(|device| one_line(device)).collect(),
            reason: one_line(&absent.reason),
            starting: absent.starting,
        };
        let clean_found = |found: &FoundArray| FoundArray {
            name: one_line(&found.name),
            devices: found.devices.iter().map(|device| one_line(device)).collect(),
            reason: one_line(&found.reason),
            ..found.clone()
        };
        let pools = seen.status.spare_pools.iter().map(slots::spares);
        ArraysPart {
            arrays: seen.status.arrays.iter().map(slots::array).collect(),
            absent: seen.status.absent.iter().map(clean).collect(),
            found: seen.status.found.iter().map(clean_found).collect(),
            pools: pools.filter(|pool| !pool.slots.is_empty()).collect(),
            is_starting: seen.status.starting,
        }
    }
}

struct Job {
    array: String,
    what: String,
    percent: u64,
    speed: String,
    left: String,
    found: String,
}

#[derive(Template)]
#[template(path = "page/jobs.html")]
struct JobsPart {
    jobs: Vec<Job>,
}

impl JobsPart {
    fn of(status: &Status) -> JobsPart {
        let jobs = |array: &ArrayStatus| {
            let name = one_line(&array.name);
            array.jobs.iter().map(move |job| Job::of(&name, job)).collect::<Vec<_>>()
        };
        JobsPart { jobs: status.arrays.iter().flat_map(jobs).collect() }
    }
}

impl Job {
    fn of(array: &str, job: &JobStatus) -> Job {
        let slot = job.slot.map_or(String::new(), |slot| format!(" of slot {slot}"));
        let paused = "paused".to_owned();
        let left = job.left_seconds.map_or("unknown".to_owned(), span);
        let found = [
            (job.mismatches, "mismatches"),
            (job.repaired, "repaired"),
            (job.unrepairable, "cannot be repaired"),
        ];
        let found = found.into_iter().filter(|(count, _)| *count > 0);
        let found: Vec<_> =
            found.map(|(count, words)| format!("{} {words}", grouped(count))).collect();
        Job {
            array: array.to_owned(),
            what: format!("{}{slot}", job.kind),
            percent: job.percent(),
            speed: format!("{}/s", ByteSize(job.bytes_per_second)),
            left: if job.paused { paused } else { left },
            found: found.join(", "),
        }
    }
}

struct Picture {
    title: &'static str,
    anchor: String,
    lines: Vec<Told>,
    svg: String,
}

struct Load {
    name: String,
    pictures: Vec<Picture>,
}

#[derive(Template)]
#[template(path = "page/load.html")]
struct LoadPart {
    arrays: Vec<Load>,
}

impl LoadPart {
    fn of(seen: Seen<'_>) -> LoadPart {
        let load = |(number, array): (usize, &ArrayStatus)| {
            let rates = seen.history.of(&array.uuid);
            let charts = charts(&rates, seen.history);
            let picture = |(place, chart): (usize, Chart)| Picture {
                title: chart.title,
                anchor: format!("chart-{number}-{place}"),
                lines: chart.told(),
                svg: chart.svg(),
            };
            // Three empty pictures say less than a sentence.
            let is_idle = charts[0].is_flat();
            let charts = charts.into_iter().enumerate().filter(|_| !is_idle);
            let pictures = charts.map(picture).collect();
            Load { name: one_line(&array.name), pictures }
        };
        LoadPart { arrays: seen.status.arrays.iter().enumerate().map(load).collect() }
    }
}

/// What clients did to an array.
fn charts(rates: &[Option<Rates>], history: &History) -> [Chart; 3] {
    let newest_ms = history.newest_ms();
    let line = |name, value: fn(&Rates) -> Option<f64>| {
        let point = |rates: &Option<Rates>| -> Point {
            let ago_ms = rates.as_ref().map_or(0, |it| newest_ms.saturating_sub(it.at_ms));
            (ago_ms, rates.as_ref().and_then(value))
        };
        Line { name, points: rates.iter().map(point).collect() }
    };
    let chart = |title, measure, lines| Chart { title, measure, lines, minutes: history.minutes() };
    [
        chart(
            "Requests a second",
            Measure::Rate,
            vec![line("reads", |it| Some(it.reads)), line("writes", |it| Some(it.writes))],
        ),
        chart(
            "Throughput",
            Measure::ByteRate,
            vec![
                line("reads", |it| Some(it.read_bytes)),
                line("writes", |it| Some(it.write_bytes)),
            ],
        ),
        chart(
            "Mean latency",
            Measure::Time,
            vec![line("reads", |it| it.read_us), line("writes", |it| it.write_us)],
        ),
    ]
}

struct Way {
    protocol: String,
    address: String,
    volume: Option<String>,
    clients: u64,
    requests: String,
}

#[derive(Template)]
#[template(path = "page/exports.html")]
struct ExportsPart {
    exports: Vec<Way>,
}

impl ExportsPart {
    fn of(status: &Status) -> ExportsPart {
        let export = |it: &ExportStatus| Way {
            protocol: one_line(&it.protocol),
            address: one_line(&it.address),
            volume: it.array.as_ref().map(|name| one_line(name)),
            clients: it.clients,
            requests: grouped(it.requests),
        };
        ExportsPart { exports: status.exports.iter().map(export).collect() }
    }
}

struct News {
    moment: String,
    look: Badge,
    message: String,
    name: String,
}

#[derive(Template)]
#[template(path = "page/events.html")]
struct EventsPart {
    events: Vec<News>,
}

impl EventsPart {
    fn of(events: &[&Event]) -> EventsPart {
        let event = |event: &&Event| News {
            // Month, day and time; the year is that of the page.
            moment: moment(event.unix_ms).chars().skip(5).collect(),
            look: severity(event.severity),
            message: event.message(),
            name: one_line(&event.name),
        };
        EventsPart { events: events.iter().map(event).collect() }
    }
}

fn severity(severity: Severity) -> Badge {
    let class = match severity {
        Severity::Info => "info",
        Severity::Notice => "notice",
        Severity::Warning => "attention",
        Severity::Error => "degraded",
        Severity::Critical => "failed",
    };
    Badge { class, word: severity.to_string() }
}

#[derive(Template)]
#[template(path = "page/about.html")]
struct AboutPart {
    version: String,
    process_id: u32,
    kernel: String,
    memory: String,
}

impl AboutPart {
    fn of(status: &Status) -> AboutPart {
        // In steps of 16 MiB: a figure that changes all the time would be news all the time.
        let steps = status.resident_bytes.div_ceil(16 << 20);
        AboutPart {
            version: one_line(&status.version),
            process_id: status.process_id,
            kernel: one_line(&status.kernel),
            memory: ByteSize(steps * (16 << 20)).to_string(),
        }
    }
}
