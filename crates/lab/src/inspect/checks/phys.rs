//! Phys of SAS: their rates, and the errors that they count.

use super::{Answer, Facts, Found};
use crate::inspect::server::{DriveKind, PciDevice, PhyErrors, Server};
use std::collections::BTreeMap;

/// Nothing was counted: there is no SAS, or it does not tell.
fn none(server: &Server) -> Found {
    let is_sas = |it: &PciDevice| it.class >> 8 == 0x0107;
    let has_sas =
        server.drives.iter().any(|it| it.kind == DriveKind::Sas) || server.pci.values().any(is_sas);
    if has_sas { Found::blind() } else { Found::not_applicable("no SAS") }
}

pub fn negotiated(facts: &Facts<'_>) -> Answer {
    let phys = facts.server.phys.iter();
    let both: Vec<(&str, u64, u64)> =
        phys.filter_map(|it| Some((it.name.as_str(), it.negotiated?, it.capable?))).collect();
    let giga = |mega_bits: u64| format!("{}.{}", mega_bits / 1_000, mega_bits % 1_000 / 100);
    let (_, rate, _) = both.first().ok_or_else(|| none(facts.server))?;
    let slow: Vec<_> = both.iter().filter(|it| it.1 < it.2).collect();
    let (all, count) = (both.len(), slow.len());
    Ok(match slow.first() {
        None => Found::pass(format!("{all} phys at {} Gbit/s", giga(*rate))),
        Some((_, runs, could)) => Found::fail(format!(
            "{count} of {all} phys at {} of {} Gbit/s",
            giga(*runs),
            giga(*could)
        ))
        .about(slow.iter().map(|it| it.0)),
    })
}

/// What phys count, by name.
type Counted<'a> = BTreeMap<&'a str, PhyErrors>;

fn counted(server: &Server) -> Counted<'_> {
    server.phys.iter().filter_map(|it| Some((it.name.as_str(), it.errors?))).collect()
}

fn sum(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}

pub fn errors_growing(facts: &Facts<'_>) -> Answer {
    let now = counted(facts.server);
    if now.is_empty() {
        return Ok(none(facts.server));
    }
    let total = sum(now.values().map(|it| it.sum()));
    let changed = changes(facts.server);
    let before = facts.before.map(counted).unwrap_or_default();
    if !now.keys().any(|name| before.contains_key(name)) {
        return Ok(match total {
            0 => Found::pass(format!(
                "none of {} phys has counted an error since its reset{changed}",
                now.len()
            )),
            _ => {
                let found = format!("{}{changed}; growth needs two looks", since_reset(&now));
                Found::blind_for(found).but(
                    "capture before and after a load, then: \
                     lab inspect --from AFTER --before BEFORE",
                )
            }
        });
    }
    let growth = |name: &str, now: &PhyErrors| Some(now.since(*before.get(name)?).sum());
    let since = now.iter().filter_map(|(name, now)| Some((*name, growth(name, now)?)));
    let grown: Vec<(&str, u64)> = since.filter(|it| it.1 > 0).collect();
    let (all, bad) = (now.len(), grown.len());
    Ok(match sum(grown.iter().map(|it| it.1)) {
        0 => Found::pass(format!(
            "{all} phys counted no error between the two captures; {total} before"
        )),
        more => Found::fail(format!("{more} more errors between the two captures on {bad} phys"))
            .about(grown.iter().map(|it| it.0)),
    })
}

/// What phys have counted since their reset, by kind: an invalid dword is a disparity error, too.
fn since_reset(counted: &Counted<'_>) -> String {
    let bad: Vec<_> = counted.iter().filter(|it| it.1.sum() > 0).collect();
    let all = |kind: fn(&PhyErrors) -> u64| sum(bad.iter().map(|it| kind(it.1)));
    let worst = bad.iter().max_by_key(|it| it.1.sum()).map_or("", |it| it.0);
    let verb = if bad.len() == 1 { "has" } else { "have" };
    format!(
        "{} of {} phys {verb} counted {} invalid dwords, {} disparity errors, {} losses of \
         synchronization, {} reset problems since their reset, most {worst}{}",
        bad.len(),
        counted.len(),
        all(|it| it.invalid_dwords),
        all(|it| it.disparity_errors),
        all(|it| it.sync_losses),
        all(|it| it.reset_problems),
        neighbours(bad.iter().map(|it| *it.0))
    )
}

/// Phys that follow one another belong to one cable or port.
fn neighbours<'a>(names: impl Iterator<Item = &'a str>) -> &'static str {
    let place = |name: &'a str| {
        let (expander, number) = name.rsplit_once(':')?;
        Some((expander, number.parse::<u64>().ok()?))
    };
    let mut places: Vec<(&str, u64)> = names.filter_map(place).collect();
    places.sort_unstable();
    let follows = |pair: &[(&str, u64)]| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1;
    match places.len() > 1 && places.windows(2).all(follows) {
        true => "; they are neighbours: one cable or port",
        false => "",
    }
}

/// How often expanders have seen their topology change.
fn changes(server: &Server) -> String {
    let changed = server.expanders.iter().filter_map(|it| Some((&it.name, it.change_count?)));
    let told = changed.filter(|(_, count)| *count > 1).take(2);
    told.map(|(name, count)| format!("; {name} has seen its topology change {count} times"))
        .collect()
}
