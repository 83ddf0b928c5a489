//! How an account looks in a terminal.
//!
//! What must stay true: every share stands with its error; what was not measured is said, not left
//! out.

use super::account::{CpuAccount, GroupAccount, Row, Sampling};
use super::groups::WorkKind;
use super::tally::Context;
use crate::metrics::per_work::PerWork;
use crate::metrics::share::{Share, Unit};
use crate::metrics::spread::Spread;
use crate::rows::Rows;
use crate::validity::Mark;

pub fn text(account: &CpuAccount) -> String {
    let mut out = Rows::default();
    head(&mut out, account);
    for group in &account.groups {
        one_group(&mut out, group);
    }
    if account.groups.is_empty() {
        out.row("engines", "none of the function groups was seen");
    }
    tail(&mut out, account);
    out.with_notes(&account.findings)
}

fn head(out: &mut Rows, account: &CpuAccount) {
    out.row("cpu", format_args!("{}   {}", account.of, Mark::of(&account.findings)));
    out.row("sampling", sampled(&account.sampling));
    out.row("bias", &account.sampling.bias);
    let busy = percent(account.busy);
    let mean = account.spread.as_ref().map_or(account.busy.share * 100.0, |it| it.mean_percent);
    out.row("busy", format_args!("{busy} of the machine; the average says {mean:.1} %"));
    let untold = "cannot tell: the samples do not say on which core they were taken";
    out.row("cores", account.spread.as_ref().map_or(untold.to_owned(), cores));
    let what = "threads of the load generator, engine work in them included";
    out.row("client", format_args!("{} ({what})", percent(account.client)));
}

fn sampled(it: &Sampling) -> String {
    let (window, most) = (it.window, it.window.full(Unit::Samples));
    let unit = match it.unit {
        Unit::Samples => "samples",
        Unit::Nanoseconds => "ns",
    };
    format!(
        "{}, {} cores x {} Hz x {:.1} s = {most:.0} samples at most; {} {unit} came in",
        it.source, window.cores, window.hz, window.seconds, it.total
    )
}

fn one_group(out: &mut Rows, group: &GroupAccount) {
    let (name, version) = (&group.name, group.version);
    let share = percent(group.share);
    out.gap();
    out.row(name, format_args!("{share} of the machine (function group {name} version {version})"));
    let mut part = |title: &str, part: &str, share: Share, note: &str| {
        let of = share_of(share, group.share);
        let share = percent(share);
        out.row(title, format_args!("{part:<14} {share:>14}   {of:>5.1} % of {name}{note}"));
    };
    for (context, share) in &group.contexts {
        let note = match context {
            Context::Client => "   engine work done on the client's CPU time",
            _ => "",
        };
        part("  in", context.title(), *share, note);
    }
    for (title, share) in [
        ("useful", group.useful),
        ("overhead", group.overhead),
        ("polling", group.polling),
        ("not told apart", group.unsorted),
    ] {
        if share.share > 0.0 {
            part("  work", title, share, "");
        }
    }
    for work in group.work.iter().filter(|it| it.kind != WorkKind::Unsorted) {
        let kind = match work.kind {
            WorkKind::Useful => "useful",
            WorkKind::Polling => "polling",
            WorkKind::Overhead | WorkKind::Unsorted => "overhead",
        };
        let said = format!("{:<22} {:>8}", work.name, percent(work.share));
        out.row(&format!("    {kind}"), said);
    }
    if let Some(spread) = &group.spread {
        out.row("  cores", cores(spread));
    }
    rows(out, "  plateaus", &group.plateaus);
}

fn tail(out: &mut Rows, account: &CpuAccount) {
    out.gap();
    rows(out, "threads", &account.threads);
    rows(out, "plateaus", &account.plateaus);
    if let Some(work) = &account.per_work {
        per_work(out, work);
    }
    if let Some(cost) = &account.profiler {
        let (own, share) = (cost.own_cpu_s, cost.own_share * 100.0);
        out.row("profiler", format_args!("itself {own:.3} s of CPU, {share:.2} % of the machine"));
    }
    if let Some(share) = account.stat_share {
        let share = share * 100.0;
        out.row("kernel says", format_args!("busy {share:.1} % by /proc/stat (ticks)"));
    }
    for (zoom, file) in &account.flame_graphs {
        out.row("flame graph", format_args!("{zoom}: {file}"));
    }
}

fn per_work(out: &mut Rows, work: &PerWork) {
    let ns = |it: Option<f64>| it.map_or("not measured".to_owned(), |it| format!("{it:.0} ns"));
    for (of, all, net) in [
        ("per I/O", work.ns_per_io(), work.net_ns_per_io()),
        ("per MiB", work.ns_per_mib(), work.net_ns_per_mib()),
    ] {
        let (all, net) = (ns(all), ns(net));
        out.row(of, format_args!("{all} CPU, load generator included; {net} without it"));
    }
    let own = ns(work.generator_ns_per_io);
    out.row("generator", format_args!("{own} for an I/O that does nothing (fio's null engine)"));
    if let Some((iops, bytes)) = work.per_core() {
        out.row("per busy core", format_args!("{iops:.0} IOPS, {:.1} MB/s", bytes / 1e6));
    }
}

fn rows(out: &mut Rows, title: &str, rows: &[Row]) {
    for (at, Row { share, cores, name, .. }) in rows.iter().enumerate() {
        let title = if at == 0 { title } else { "" };
        out.row(title, format_args!("{:>14} {cores:>7.2} cores   {name}", percent(*share)));
    }
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
