//! The report as Markdown and as CSV.
//!
//! What must stay true: whatever a record says is text in Markdown: no HTML, no link, no cell of a
//! table more.

use super::findings::{engines, headline, whose};
use super::points::{Point, cores};
use super::sections::{self, Section};
use crate::metrics::latency;
use crate::record::Measurement;
use crate::store::Run;
use crate::units;
use std::fmt::Write;

/// A percentile for people, or why there is none.
pub fn percentile(point: &Point, fraction: f64) -> String {
    point.percentile(fraction).map_or_else(|| "too few I/Os".to_owned(), units::microseconds)
}

/// The whole report in Markdown.
pub fn markdown(run: &Run, points: &[Point]) -> String {
    let headline = headline(points, &run.records);
    let mut out = format!("# {}\n\n**{}**\n", cell(title(run)), cell(&headline.sentence));
    if let Some(limit) = &headline.limit {
        let _ = write!(
            out,
            "\nLimiting factor of {}: {}. Next experiment: {}.\n",
            cell(&limit.of),
            cell(&limit.verdict.sentence),
            cell(&limit.verdict.next)
        );
    }
    let _ = write!(
        out,
        "\n{} figures, {} invalid. Engines: {}.\n",
        headline.figures,
        headline.invalid,
        cell(&engines(points).join(", "))
    );
    out.push_str(
        "\n| workload | engine | rate | of BASELINE | CPU | most consumed cores | p50 | p99.9 | \
         mark |\n|---|---|---:|---:|---:|---|---:|---:|---|\n",
    );
    for point in points {
        let efficiency = efficiency(point);
        let cpu = point.cpu.as_ref();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {efficiency} | {} | {} | {} | {} | {} |",
            cell(&point.case()),
            cell(&whose(point, points)),
            units::rate(point.rate(), point.unit()),
            cpu.map_or_else(|| "not taken".to_owned(), |cpu| units::percent(cpu.mean)),
            cpu.map_or_else(|| "not taken".to_owned(), |cpu| cores(&cpu.per_core)),
            percentile(point, 0.5),
            percentile(point, 0.999),
            point.mark(),
        );
    }
    notes(&mut out, points);
    sections::all(&run.records, points).iter().for_each(|section| table(&mut out, section));
    out.push_str("\n## Environment\n\n");
    for (name, value) in &run.facts.environment {
        let _ = writeln!(out, "- {}: {}", cell(name), cell(value));
    }
    for (name, why) in &run.facts.left_out {
        let _ = writeln!(out, "- left out: {}, because {}", cell(name), cell(why));
    }
    out
}

/// An efficiency with that of its worst and its best round; or why there is none.
pub fn efficiency(point: &Point) -> String {
    let Some(share) = point.efficiency() else { return none(point).to_owned() };
    let spread = point.efficiencies().map_or_else(String::new, |(least, most)| {
        format!(" ({:.0} to {:.0})", least * 100.0, most * 100.0)
    });
    format!("{}{spread}", units::percent(share))
}

/// What stands where an efficiency would.
fn none(point: &Point) -> &'static str {
    if point.is_raw() { "is one" } else { "not measured" }
}

fn notes(out: &mut String, points: &[Point]) {
    let noted =
        points.iter().flat_map(|point| point.findings.iter().map(move |finding| (point, finding)));
    for (at, (point, finding)) in noted.enumerate() {
        if at == 0 {
            out.push_str("\n## Notes on figures\n\n");
        }
        let _ = writeln!(
            out,
            "- {} ({}), {}: {}",
            cell(&point.case()),
            cell(&point.engine),
            cell(&finding.rule),
            cell(&finding.reason)
        );
    }
}

fn table(out: &mut String, section: &Section) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let _ = write!(out, "\n## {}\n\n", cell(&section.title));
    out.push_str(&line(section.head.iter().map(|name| (*name).to_owned()).collect()));
    out.push_str(&line(vec!["---".to_owned(); section.head.len()]));
    for row in &section.rows {
        out.push_str(&line(row.iter().map(|text| cell(text)).collect()));
    }
    for note in &section.notes {
        let _ = write!(out, "\n{}\n", cell(note));
    }
}

/// A table as CSV; its first line names the columns.
pub fn csv_of(section: &Section) -> String {
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    let mut out = line(section.head.iter().map(|name| quote(name)).collect());
    for row in &section.rows {
        out.push_str(&line(row.iter().map(|field| quote(field)).collect()));
    }
    out
}

/// What the run is called.
pub fn title(run: &Run) -> &str {
    match run.facts.question.as_str() {
        "" => "A run of the lab",
        question => question,
    }
}

/// Words as text of Markdown, in one line.
fn cell(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '[' | ']' | '`' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A round's percentile, nanoseconds; empty if too few I/Os lie beyond it.
fn percentile_ns(round: &Measurement, fraction: f64) -> String {
    let ns = latency::percentile(&round.latency_bins(), fraction);
    ns.map_or_else(String::new, |ns| ns.to_string())
}

/// One line for each round of each point; rates in plain units, latency in nanoseconds.
pub fn csv(points: &[Point]) -> String {
    let mut out = String::from(
        "stage,target,engine,condition,workload,mix,block_bytes,jobs,depth,round,bytes_per_s,iops,\
         latency_mean_ns_read,latency_mean_ns_write,p50_ns,p99_ns,p999_ns,p9999_ns,cpu_busy_s,\
         cpu_wall_s,mark,rules\n",
    );
    for point in points {
        for round in &point.rounds {
            let rules: Vec<&str> =
                round.findings.iter().map(|finding| finding.rule.as_str()).collect();
            let (busy, wall) = round.cpu.as_ref().map_or((String::new(), String::new()), |cpu| {
                (format!("{:.6}", cpu.busy_s), format!("{:.6}", cpu.wall_s))
            });
            let fields = [
                round.stage.clone(),
                round.target.clone(),
                point.engine.clone(),
                round.condition.to_string(),
                round.workload.name.clone(),
                round.workload.mix.clone(),
                round.workload.block_bytes.to_string(),
                round.workload.jobs.to_string(),
                round.workload.depth.to_string(),
                round.round.to_string(),
                format!("{:.1}", round.bytes_per_s()),
                format!("{:.1}", round.iops()),
                format!("{:.1}", round.read.latency_mean_ns),
                format!("{:.1}", round.write.latency_mean_ns),
                percentile_ns(round, 0.5),
                percentile_ns(round, 0.99),
                percentile_ns(round, 0.999),
                percentile_ns(round, 0.9999),
                busy,
                wall,
                point.mark().to_string(),
                rules.join(" "),
            ];
            let quoted: Vec<String> = fields.iter().map(|field| quote(field)).collect();
            out.push_str(&quoted.join(","));
            out.push('\n');
        }
    }
    out
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
