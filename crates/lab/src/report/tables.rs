//! Tables of a report beside the figures: engines side by side, CPU time by function group,
//! resources, checks.
//!
//! What must stay true: an empty cell is shown as empty, so that it is missed; a share has its
//! error beside it.

use super::findings::engines;
use super::pictures::Budget;
use super::points::{Point, cores, of_arrays};
use super::sections::Section;
use crate::cpu::account::{CpuAccount, GroupAccount};
use crate::metrics::share::Share;
use crate::order::one_of;
use crate::record::{ArrayCondition, Check, Record, Workload};
use crate::units;
use crate::validity::Outcome;
use itertools::Itertools;
use std::path::Path;

pub struct SideBySide<'a> {
    /// Engines, in the order of their columns.
    pub engines: Vec<&'a str>,
    /// Case, and the figure of each engine.
    pub rows: Vec<(String, Vec<Option<&'a Point>>)>,
}

/// What stands in one row: the same load, condition and stage.
fn row(point: &Point) -> (&Workload, ArrayCondition, &str) {
    (&point.workload, point.condition, &point.stage)
}

pub fn side_by_side(points: &[Point]) -> Option<SideBySide<'_>> {
    let engines = Some(engines(points)).filter(|engines| engines.len() > 1)?;
    let mut rows: Vec<&Point> = Vec::new();
    for point in of_arrays(points) {
        one_of(&mut rows, |known| row(known) == row(point), || point);
    }
    let is_again = |like: &Point| rows.iter().filter(|it| it.case() == like.case()).count() > 1;
    let told = |like: &Point| match is_again(like) {
        true => format!("{}, {} ({})", like.case(), like.workload.name, like.stage),
        false => like.case(),
    };
    let of = |like: &Point, engine: &str| {
        of_arrays(points).find(|it| it.engine == engine && row(it) == row(like))
    };
    let cells = |like: &Point| engines.iter().map(|engine| of(like, engine)).collect();
    let rows = rows.iter().map(|like| (told(like), cells(like))).collect();
    Some(SideBySide { engines, rows })
}

fn accounts(records: &[Record]) -> impl Iterator<Item = &CpuAccount> {
    records.iter().filter_map(|record| match record {
        Record::Cpu(account) => Some(account.as_ref()),
        _ => None,
    })
}

/// Flame graphs, by measurement: looked for in `dir` and taken as long as they fit; of each
/// measurement the whole machine first, then its engines, then the client.
pub fn flames<'a>(
    records: &'a [Record],
    dir: &Path,
    budget: &mut Budget,
) -> Vec<(&'a str, Vec<(String, String)>)> {
    let order = |zoom: &str| match zoom {
        "whole" => 0,
        "client" => 2,
        _ => 1,
    };
    let graphs = |(at, account): (usize, &'a CpuAccount)| {
        account.flame_graphs.iter().map(move |(zoom, file)| (order(zoom), at, zoom, file))
    };
    let mut graphs: Vec<_> = accounts(records).enumerate().flat_map(graphs).collect();
    graphs.sort();
    let mut all: Vec<_> = accounts(records).map(|it| (it.of.as_str(), Vec::new())).collect();
    for (_, at, zoom, file) in graphs {
        let Ok(svg) = std::fs::read_to_string(dir.join(file)) else { continue };
        let Some(address) = budget.take(&svg) else { continue };
        let name = match zoom.as_str() {
            "whole" => "the whole machine".to_owned(),
            "client" => "the load generator alone".to_owned(),
            engine => format!("{engine} alone"),
        };
        all[at].1.push((name, address));
    }
    all.retain(|(_, flames)| !flames.is_empty());
    all
}

fn of_machine(share: &Share) -> String {
    format!("{} ± {}", units::percent(share.share), units::percent(share.error))
}

pub fn cpu(records: &[Record]) -> Section {
    let head = "measurement|functions of|of all cores|useful work|overhead|in whose context";
    let section = Section::new("cpu", "Whose CPU time is it?", head).note(
        "Shares of all cores over the whole time, with one standard error of sampling. An \
         engine's work is charged to it wherever it ran: in the load generator's context, a \
         kernel thread, a kworker or a softirq.",
    );
    section.rows(accounts(records).flat_map(cpu_rows))
}

fn cpu_rows(account: &CpuAccount) -> Vec<Vec<String>> {
    let of_group = |group: &GroupAccount| {
        let contexts = group.contexts.iter();
        let contexts = contexts
            .map(|(context, share)| format!("{} {}", context.title(), units::percent(share.share)))
            .join(", ");
        vec![
            account.of.clone(),
            format!("{} (functions of version {})", group.name, group.version),
            of_machine(&group.share),
            of_machine(&group.useful),
            of_machine(&group.overhead),
            contexts,
        ]
    };
    let told = |what: String, share: String| {
        let nothing = String::new;
        vec![account.of.clone(), what, share, nothing(), nothing(), nothing()]
    };
    let threads = account.threads.iter().take(6);
    let threads = threads.map(|it| format!("{} {:.2} cores", it.name, it.cores)).join(", ");
    let threads = format!("busiest threads: {threads}");
    let cost = account.profiler.as_ref().map_or_else(String::new, |cost| {
        format!("; the sampler itself took {}", units::percent(cost.own_share))
    });
    let all = told("everything but idle".to_owned(), of_machine(&account.busy));
    let last =
        told(format!("{threads}; sampled by {}{cost}", account.sampling.source), String::new());
    std::iter::once(all).chain(account.groups.iter().map(of_group)).chain([last]).collect()
}

/// The USE checklist: what was measured under load where it was, what the server said before where
/// it was not.
pub fn resources(records: &[Record]) -> Section {
    let before = |it: &Option<String>| {
        it.as_ref().map_or_else(String::new, |it| format!("{it} (before the run)"))
    };
    let server = records.iter().find_map(|record| match record {
        Record::Resources(table) => Some(table.rows.as_slice()),
        _ => None,
    });
    let title = "Utilisation, saturation, errors: what was looked at, and what was not";
    let mut section = Section::new("use", title, "resource|utilisation|saturation|errors").note(
        "The highest figure of any measurement; where nothing was measured, what the server said \
         before the first load. An empty cell is a resource that nobody looked at: the limit may \
         hide there.",
    );
    for row in server.unwrap_or_default() {
        let (utilisation, saturation) = (before(&row.utilisation), before(&row.saturation));
        let errors = row.errors.clone().unwrap_or_default();
        section.rows.push(vec![row.resource.clone(), utilisation, saturation, errors]);
    }
    if section.rows.is_empty() {
        return section;
    }
    if let Some(text) = busiest_processors(records)
        && let Some(row) = section.rows.iter_mut().find(|row| row[0] == "processors")
    {
        row[1] = text;
    }
    section.rows.extend(measured(records));
    section
}

fn busiest_processors(records: &[Record]) -> Option<String> {
    let measured = records.iter().filter_map(Record::measurement);
    let costs = measured.filter_map(|it| Some((it.cpu.as_ref()?, &it.id)));
    let shares = costs.filter_map(|(cost, id)| Some((cost.share()?, cost, id)));
    let (share, cost, id) = shares.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!("{} at most, {} ({id})", units::percent(share), cores(&cost.per_core)))
}

/// Drives and links at their fullest.
fn measured(records: &[Record]) -> Vec<Vec<String>> {
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    let mut keep = |resource: String, rank: f64, utilisation: String, saturation: String| {
        let row = vec![resource, utilisation, saturation, String::new()];
        match rows.iter_mut().find(|(_, known)| known[0] == row[0]) {
            Some(known) if known.0 < rank => *known = (rank, row),
            Some(_) => {}
            None => rows.push((rank, row)),
        }
    };
    for path in records.iter().filter_map(|it| it.measurement()?.path.as_ref()) {
        for drive in &path.drives {
            let (busy, flow) = (units::percent(drive.busy), units::bytes_per_s(drive.bytes_per_s));
            let queued = format!("{} I/Os in flight on average", units::three_digits(drive.queued));
            let busy = format!("{busy} busy at most, {flow}");
            keep(format!("drive {}", drive.name), drive.busy, busy, queued);
        }
        for link in &path.links {
            let flow = units::bytes_per_s(link.bytes_per_s);
            let told = match link.share() {
                Some(share) => format!("{} at most, {flow}", units::percent(share)),
                None => format!("{flow} at most, of an unknown capacity"),
            };
            keep(format!("link {}", link.name), link.bytes_per_s, told, String::new());
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// All checks of a run: what fails first, then what could not be told.
pub fn checks(records: &[Record]) -> Section {
    const WORDS: [(Outcome, &str); 4] = [
        (Outcome::Fail, "FAIL"),
        (Outcome::CannotTell, "cannot tell"),
        (Outcome::Pass, "pass"),
        (Outcome::NotApplicable, "not applicable"),
    ];
    let order = |check: &&Check| WORDS.iter().position(|(outcome, _)| *outcome == check.outcome);
    let checks = records.iter().filter_map(Record::check).sorted_by_key(order);
    let cells = |check: &Check| {
        let Check { name, target, found, next, .. } = check.clone();
        let word = order(&check).map_or("", |at| WORDS[at].1);
        vec![word.to_owned(), name, target, found, next.unwrap_or_default()]
    };
    Section::new("checks", "Checks", "outcome|check|of|found|next").rows(checks.map(cells))
}

/// Checks whose failing changes what every figure means.
const ALARMS: [&str; 2] = ["machine.idle", "drives.slow_member"];

pub fn alarms(records: &[Record]) -> Vec<String> {
    let is_alarm =
        |check: &&Check| check.outcome == Outcome::Fail && ALARMS.contains(&check.name.as_str());
    let told = |check: &Check| match check.name.as_str() {
        "machine.idle" => format!(
            "The machine was not idle: {}. The figures include what others did.",
            check.found
        ),
        _ => format!("{}: {}.", check.target, check.found),
    };
    records.iter().filter_map(Record::check).filter(is_alarm).map(told).collect()
}
