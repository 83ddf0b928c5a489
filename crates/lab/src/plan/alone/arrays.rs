//! What each array does while all others work, held against what it does alone.
//!
//! What must stay true: that arrays leave each other alone is said only of the same load and of
//! every array; one without a usable figure of its own cannot tell.

use super::{FULL, fullest, kept};
use crate::record::{Check, CpuCost, Measurement};
use crate::rules;
use crate::units;
use std::collections::BTreeSet;

/// A check of each load that two arrays or more had at once, from usable figures.
pub(super) fn checks<'a>(known: &[&'a Measurement]) -> Vec<Check> {
    let of = |stage: &str, load: Option<&str>| -> Vec<&'a Measurement> {
        let is_it = |it: &Measurement| {
            it.stage == stage && load.is_none_or(|load| it.workload.name == load)
        };
        known.iter().copied().filter(|it| is_it(it)).collect()
    };
    let loads: BTreeSet<&str> =
        of("arrays.all", None).iter().map(|it| it.workload.name.as_str()).collect();
    let of_load = |load| check(load, &of("array.sweep", Some(load)), &of("arrays.all", Some(load)));
    loads.into_iter().filter_map(of_load).collect()
}

fn check(load: &str, alone: &[&Measurement], together: &[&Measurement]) -> Option<Check> {
    let rule = rules::of("arrays.apart");
    let arrays: BTreeSet<&str> = together.iter().map(|it| it.target.as_str()).collect();
    let shares = kept(alone, together);
    let told: Vec<String> =
        shares.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
    let said =
        format!("{} arrays at once, each of what it does alone: {}", arrays.len(), told.join(", "));
    let is_slow = shares.first().is_some_and(|least| least.1 < rule.limit());
    Some(match arrays.len() {
        0 | 1 => return None,
        count if shares.len() < count => {
            let has = |name: &&&str| shares.iter().all(|it| it.0 != **name);
            let without: Vec<&str> = arrays.iter().filter(has).copied().collect();
            let without = without.join(", ");
            rule.blind(load, format!("no usable figure of this load alone: {without}"))
        }
        _ if is_slow => rule.fail(load, format!("{said}: {}", cause(together))),
        _ => rule.pass(load, format!("{said}: no mutual influence")),
    })
}

/// What all of them shared and used up.
fn cause(together: &[&Measurement]) -> String {
    let busy = together.iter().filter_map(|it| it.cpu.as_ref().and_then(CpuCost::share));
    let busiest = busy.fold(0.0, f64::max);
    match fullest(together).filter(|it| it.1 >= FULL) {
        Some((link, share)) => format!("{link} was {} full", units::percent(share)),
        None if busiest >= FULL => format!("all cores were {} busy", units::percent(busiest)),
        None => "they disturb each other, and neither cores nor a link were full".to_owned(),
    }
}
