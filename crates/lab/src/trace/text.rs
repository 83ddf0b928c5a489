//! How a trace's account looks in a terminal.

use super::account::{DeviceAccount, Flow, TraceAccount, percent};
use crate::rows::Rows;
use crate::validity::Mark;

/// Rows of a histogram; the rest is summed.
const ROWS: usize = 12;

pub fn text(account: &TraceAccount) -> String {
    let mut out = Rows::default();
    let (of, mark) = (&account.of, Mark::of(&account.findings));
    out.row("trace", format_args!("{} during {of}   {mark}", account.device.device));
    let size =
        |bytes: Option<u64>| bytes.map_or("not given".to_owned(), |it| format!("{} KiB", it >> 10));
    let geometry = account.geometry;
    let (strip, stripe) = (size(geometry.strip_bytes), size(geometry.stripe_data_bytes));
    out.row("geometry", format_args!("strip {strip}, data of a full stripe {stripe}"));
    device(&mut out, &account.device);
    for member in &account.members {
        out.gap();
        out.row("member", &member.device);
        device(&mut out, member);
    }
    if let Some((writes, reads)) = account.members_per_write {
        let each = "for each write that came in";
        let said = format!("{writes:.2} member writes and {reads:.2} member reads {each}");
        out.gap();
        out.row("per write", said);
    }
    out.with_notes(&account.findings)
}

fn device(out: &mut Rows, device: &DeviceAccount) {
    for (title, flow) in [
        ("submitted writes", &device.submitted_writes),
        ("issued writes   ", &device.issued_writes),
        ("submitted reads ", &device.submitted_reads),
        ("issued reads    ", &device.issued_reads),
    ] {
        if flow.ios > 0 {
            self::flow(out, title, flow);
        }
    }
    let of = device.submitted_writes.ios + device.submitted_reads.ios;
    let off = device.splits_off_stripe;
    let off = off.map_or(String::new(), |off| format!(", {off} of them off the full stripe"));
    let (splits, share) = (device.splits, percent(device.splits, of));
    out.row("splits", format_args!("{splits} of {of} I/Os ({share:.0} %){off}"));
    out.row("merges", format_args!("{}   failed {}", device.merges, device.failed));
    let limits = device.limits.iter().map(|(name, value)| format!("{name} {value}"));
    let limits = limits.collect::<Vec<_>>().join(", ");
    out.row("limits", if limits.is_empty() { "cannot tell" } else { &limits });
}

fn flow(out: &mut Rows, title: &str, flow: &Flow) {
    let off = |name: &str, count: Option<u64>| {
        count.map_or(String::new(), |it| {
            format!(", off {name} {it} ({:.0} %)", percent(it, flow.ios))
        })
    };
    let off = [
        off("4 KiB", Some(flow.off_4k)),
        off("strip", flow.off_strip),
        off("full stripe", flow.off_stripe),
    ];
    let (ios, mib) = (flow.ios, flow.bytes as f64 / f64::from(1 << 20));
    out.row(title, format_args!("{ios} I/Os, {mib:.1} MiB{}", off.concat()));
    let mut sizes: Vec<(&u64, &u64)> = flow.sizes.iter().collect();
    sizes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (bytes, count) in sizes.iter().take(ROWS) {
        let share = percent(**count, flow.ios);
        let bar = "#".repeat((0..50).filter(|at| f64::from(*at) * 2.0 < share).count());
        let size = format!("  {:>9.1} KiB", **bytes as f64 / 1024.0);
        out.row(&size, format_args!("{count:>8}  {share:>5.1} %  {bar}"));
    }
    let rest: u64 = sizes.iter().skip(ROWS).map(|(_, count)| *count).sum();
    if rest > 0 {
        let share = percent(rest, flow.ios);
        out.row("    other sizes", format_args!("{rest:>8}  {share:>5.1} %"));
    }
}
