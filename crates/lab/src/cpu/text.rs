//! How an account looks in a terminal.
//!
//! What must stay true: every share stands with its error; what was not measured is said, not left
//! out.

use super::account::{CpuAccount, GroupAccount, Row};
use super::groups::WorkKind;
use super::tally::CONTEXTS;
use crate::metrics::share::{Share, Unit};
use crate::metrics::spread::Spread;
use crate::validity::Mark;
use std::fmt::Write;

/// The account as text. Writing into a string cannot fail.
pub fn text(account: &CpuAccount) -> String {
    let mut out = String::new();
    let _ = head(&mut out, account);
    for group in &account.groups {
        let _ = one_group(&mut out, group);
    }
    if account.groups.is_empty() {
        out.push_str("engines        none of the function groups was seen\n");
    }
    let _ = tail(&mut out, account);
    out
}

fn head(out: &mut String, account: &CpuAccount) -> std::fmt::Result {
    let (sampling, window) = (&account.sampling, account.sampling.window);
    let unit = match sampling.unit {
        Unit::Samples => "samples",
        Unit::Nanoseconds => "ns",
    };
    writeln!(out, "cpu            {}   {}", account.of, Mark::of(&account.findings))?;
    writeln!(
        out,
        "sampling       {}, {} cores x {} Hz x {:.1} s = {:.0} samples at most; {} {unit} came in",
        sampling.source,
        window.cores,
        window.hz,
        window.seconds,
        window.samples(),
        sampling.total
    )?;
    writeln!(out, "bias           {}", sampling.bias)?;
    let mean = account.spread.as_ref().map_or(account.busy.share * 100.0, |it| it.mean_percent);
    writeln!(
        out,
        "busy           {} of the machine; the average says {mean:.1} %",
        percent(account.busy)
    )?;
    match &account.spread {
        Some(spread) => writeln!(out, "cores          {}", cores(spread))?,
        None => writeln!(
            out,
            "cores          cannot tell: the samples do not say on which core they were taken"
        )?,
    }
    writeln!(
        out,
        "client         {} (threads of the load generator, engine work in them included)",
        percent(account.client)
    )
}

fn one_group(out: &mut String, group: &GroupAccount) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<14} {} of the machine (function group {} version {})",
        group.name,
        percent(group.share),
        group.name,
        group.version
    )?;
    for (context, name) in CONTEXTS {
        if let Some(share) = group.contexts.get(&context) {
            let of = share_of(*share, group.share);
            let note = if context == super::tally::Context::Client {
                "   engine work done on the client's CPU time"
            } else {
                ""
            };
            writeln!(
                out,
                "  in           {name:<14} {:>14}   {of:>5.1} % of {}{note}",
                percent(*share),
                group.name
            )?;
        }
    }
    for (name, share) in [
        ("useful", group.useful),
        ("overhead", group.overhead),
        ("polling", group.polling),
        ("not told apart", group.unsorted),
    ] {
        if share.share > 0.0 {
            writeln!(
                out,
                "  work         {name:<14} {:>14}   {:>5.1} % of {}",
                percent(share),
                share_of(share, group.share),
                group.name
            )?;
        }
    }
    for work in group.work.iter().filter(|it| it.kind != WorkKind::Unsorted) {
        let kind = match work.kind {
            WorkKind::Useful => "useful",
            WorkKind::Polling => "polling",
            WorkKind::Overhead | WorkKind::Unsorted => "overhead",
        };
        writeln!(out, "    {kind:<10} {:<22} {:>8}", work.name, percent(work.share))?;
    }
    if let Some(spread) = &group.spread {
        writeln!(out, "  cores        {}", cores(spread))?;
    }
    rows(out, "  plateaus", &group.plateaus)
}

fn tail(out: &mut String, account: &CpuAccount) -> std::fmt::Result {
    out.push('\n');
    rows(out, "threads", &account.threads)?;
    rows(out, "plateaus", &account.plateaus)?;
    if let Some(work) = &account.per_work {
        let ns = |it: Option<f64>| it.map_or("not measured".to_owned(), |it| format!("{it:.0} ns"));
        writeln!(
            out,
            "per I/O        {} CPU, load generator included; {} without it",
            ns(work.ns_per_io()),
            ns(work.net_ns_per_io())
        )?;
        writeln!(
            out,
            "per MiB        {} CPU, load generator included; {} without it",
            ns(work.ns_per_mib()),
            ns(work.net_ns_per_mib())
        )?;
        writeln!(
            out,
            "generator      {} for an I/O that does nothing (fio's null engine)",
            ns(work.generator_ns_per_io)
        )?;
        if let Some((iops, bytes)) = work.per_core() {
            writeln!(out, "per busy core  {iops:.0} IOPS, {:.1} MB/s", bytes / 1e6)?;
        }
    }
    if let Some(cost) = &account.profiler {
        writeln!(
            out,
            "profiler       itself {:.3} s of CPU, {:.2} % of the machine",
            cost.own_cpu_s,
            cost.own_share * 100.0
        )?;
        if let Some((without, with)) = cost.ns_per_io {
            writeln!(
                out,
                "profiler       {without:.0} ns per I/O without it, {with:.0} ns with it"
            )?;
        }
        if let Some((without, with)) = cost.busy_share {
            writeln!(
                out,
                "profiler       machine busy {:.1} % without it, {:.1} % with it, by /proc/stat",
                without * 100.0,
                with * 100.0
            )?;
        }
    }
    if let Some(share) = account.stat_share {
        writeln!(out, "kernel says    busy {:.1} % by /proc/stat (ticks)", share * 100.0)?;
    }
    for (zoom, file) in &account.flame_graphs {
        writeln!(out, "flame graph    {zoom}: {file}")?;
    }
    for finding in &account.findings {
        let next = finding.correction.as_deref().unwrap_or("nothing to do");
        writeln!(out, "note           {}: {}; {next}", finding.rule, finding.reason)?;
    }
    Ok(())
}

fn rows(out: &mut String, title: &str, rows: &[Row]) -> std::fmt::Result {
    let mut title = title;
    for row in rows {
        writeln!(
            out,
            "{title:<14} {:>14} {:>7.2} cores   {}",
            percent(row.share),
            row.cores,
            row.name
        )?;
        title = "";
    }
    Ok(())
}

fn cores(spread: &Spread) -> String {
    format!(
        "{}   mean {:.1} %, max/mean {:.2}, Jain {:.3}",
        spread.words, spread.mean_percent, spread.max_over_mean, spread.jain
    )
}

fn percent(share: Share) -> String {
    format!("{:.1} +-{:.1} %", share.share * 100.0, share.error * 100.0)
}

fn share_of(part: Share, whole: Share) -> f64 {
    if whole.share > 0.0 { part.share / whole.share * 100.0 } else { 0.0 }
}
