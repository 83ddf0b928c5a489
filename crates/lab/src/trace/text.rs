//! How a trace's account looks in a terminal.

use super::account::{DeviceAccount, Flow, TraceAccount, percent};
use crate::validity::Mark;
use std::fmt::Write;

/// Rows of a histogram; the rest is summed.
const ROWS: usize = 12;

/// The account as text.
pub fn text(account: &TraceAccount) -> String {
    let mut out = String::new();
    let _ = write_all(&mut out, account);
    out
}

fn write_all(out: &mut String, account: &TraceAccount) -> std::fmt::Result {
    writeln!(
        out,
        "trace          {} during {}   {}",
        account.device.device,
        account.of,
        Mark::of(&account.findings)
    )?;
    let size =
        |bytes: Option<u64>| bytes.map_or("not given".to_owned(), |it| format!("{} KiB", it >> 10));
    writeln!(
        out,
        "geometry       strip {}, data of a full stripe {}",
        size(account.strip_bytes),
        size(account.stripe_data_bytes)
    )?;
    device(out, &account.device)?;
    for member in &account.members {
        writeln!(out, "\nmember         {}", member.device)?;
        device(out, member)?;
    }
    if let Some((writes, reads)) = account.members_per_write {
        writeln!(
            out,
            "\nper write      {writes:.2} member writes and {reads:.2} member reads for each write \
             that came in"
        )?;
    }
    for finding in &account.findings {
        let next = finding.correction.as_deref().unwrap_or("nothing to do");
        writeln!(out, "note           {}: {}; {next}", finding.rule, finding.reason)?;
    }
    Ok(())
}

fn device(out: &mut String, device: &DeviceAccount) -> std::fmt::Result {
    for (title, flow) in [
        ("submitted writes", &device.submitted_writes),
        ("issued writes", &device.issued_writes),
        ("submitted reads", &device.submitted_reads),
        ("issued reads", &device.issued_reads),
    ] {
        if flow.ios > 0 {
            self::flow(out, title, flow)?;
        }
    }
    let of = device.submitted_writes.ios + device.submitted_reads.ios;
    let off = device
        .splits_off_stripe
        .map_or(String::new(), |off| format!(", {off} of them off the full stripe"));
    writeln!(
        out,
        "splits         {} of {of} I/Os ({:.0} %){off}",
        device.splits,
        percent(device.splits, of)
    )?;
    writeln!(out, "merges         {}   failed {}", device.merges, device.failed)?;
    let limits: Vec<String> =
        device.limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
    writeln!(
        out,
        "limits         {}",
        if limits.is_empty() { "cannot tell".to_owned() } else { limits.join(", ") }
    )
}

fn flow(out: &mut String, title: &str, flow: &Flow) -> std::fmt::Result {
    let off = |name: &str, count: Option<u64>| {
        count.map_or(String::new(), |it| {
            format!(", off {name} {it} ({:.0} %)", percent(it, flow.ios))
        })
    };
    writeln!(
        out,
        "{title:<16} {} I/Os, {:.1} MiB{}{}{}",
        flow.ios,
        flow.bytes as f64 / f64::from(1 << 20),
        off("4 KiB", Some(flow.off_4k)),
        off("strip", flow.off_strip),
        off("full stripe", flow.off_stripe)
    )?;
    let mut sizes = flow.sizes.clone();
    sizes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (bytes, count) in sizes.iter().take(ROWS) {
        let share = percent(*count, flow.ios);
        let bar = "#".repeat((0..50).filter(|at| f64::from(*at) * 2.0 < share).count());
        writeln!(out, "  {:>9.1} KiB {count:>8}  {share:>5.1} %  {bar}", *bytes as f64 / 1024.0)?;
    }
    let rest: u64 = sizes.iter().skip(ROWS).map(|(_, count)| count).sum();
    match rest {
        0 => Ok(()),
        _ => writeln!(out, "  {:>13} {rest:>8}  {:>5.1} %", "other sizes", percent(rest, flow.ios)),
    }
}
