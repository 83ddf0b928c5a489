//! Governor, SMT and memory.

use super::{Facts, Found, silent};
use crate::inspect::server::Memory;
use crate::inspect::server::memory::Bank;
use crate::inspect::topology::flow::REBUILD_PASSES;
use std::collections::BTreeMap;

const AS_ROOT: &str = "run it as root where /dev/mem or the SMBIOS tables can be read; \
                       a guest cannot see its host's modules";

fn banks(facts: &Facts<'_>) -> Result<BTreeMap<u64, Bank>, Found> {
    let Some(memory) = &facts.server.memory else {
        return Err(Found::cannot_tell(silent(facts, "dmidecode"), AS_ROOT));
    };
    Memory::banks(memory).ok_or_else(|| {
        let doubt = memory.doubt().unwrap_or_default();
        Found::cannot_tell(doubt, "look into the board's manual which slots share a channel")
    })
}

/// At least half of every socket's channels have a module.
pub fn channels_populated(facts: &Facts<'_>) -> Found {
    let banks = match banks(facts) {
        Ok(banks) => banks,
        Err(found) => return found,
    };
    let tell = |(socket, bank): (&u64, &Bank)| {
        let modules = if bank.modules == 1 { "1 module" } else { "modules" };
        let count = if bank.modules == 1 { String::new() } else { format!("{} ", bank.modules) };
        let rate = |rate: Option<crate::metrics::bandwidth::Rate>| {
            rate.map_or("unknown speed".to_owned(), |rate| rate.to_string())
        };
        format!(
            "socket {socket}: {count}{modules} on {} of {} channels, {} of {}",
            bank.populated,
            bank.channels,
            rate(bank.rate()),
            rate(bank.full_rate())
        )
    };
    let found: Vec<String> = banks.iter().map(tell).collect();
    let poor = |bank: &&Bank| bank.populated * 2 < bank.channels || bank.populated == 0;
    match banks.values().filter(poor).count() {
        0 => Found::pass("memory", found.join("; ")),
        _ => Found::fail(
            "memory",
            found.join("; "),
            "add modules in matching slots: at least one on half of each socket's channels, \
             best one on every channel",
        ),
    }
}

/// All sockets have the same memory.
pub fn sockets_balanced(facts: &Facts<'_>) -> Found {
    if facts.server.cpu.sockets().len() == 1 {
        return Found::not_applicable("one socket");
    }
    let banks = match banks(facts) {
        Ok(banks) => banks,
        Err(found) => return found,
    };
    let rates: Vec<_> = banks.values().map(Bank::rate).collect();
    let each: Vec<String> = banks.values().map(|it| format!("{} modules", it.modules)).collect();
    let sockets = match facts.server.cpu.sockets().len() {
        0 if banks.len() == 1 => {
            return Found::cannot_tell("how many sockets there are is not known", "add lscpu");
        }
        // Without lscpu the slots tell.
        0 => banks.len(),
        count => count,
    };
    if rates.len() == sockets && rates.windows(2).all(|pair| pair[0] == pair[1]) {
        return Found::pass("memory", format!("the same on all {sockets} sockets"));
    }
    Found::fail(
        "memory",
        format!("sockets differ: {}", each.join(", ")),
        "give every socket the same modules in the same slots",
    )
}

/// Memory carries a rebuild of all drives at their full speed.
pub fn bandwidth_for_rebuild(facts: &Facts<'_>) -> Found {
    let banks = match banks(facts) {
        Ok(banks) => banks,
        Err(found) => return found,
    };
    let memory = facts.topology.links.iter().enumerate().filter(|(_, link)| link.is_memory());
    let mut least: Option<(f64, String)> = None;
    for (at, link) in memory {
        let flows = facts.read.by_link[at];
        let Some(capacity) = link.capacity.filter(|_| flows.0 > 0) else { continue };
        let passes = 1.0 / flows.share_of(capacity);
        if least.as_ref().is_none_or(|(fewest, _)| passes < *fewest) {
            let name = facts.topology.name(link);
            least = Some((
                passes,
                format!(
                    "{name}: {capacity} for {flows} from the drives, \
                     {passes:.1} passes over each byte; a rebuild makes about {REBUILD_PASSES}"
                ),
            ));
        }
    }
    let (carried, demand) = (facts.rebuild.carried, facts.rebuild.demand);
    match least {
        None => Found::cannot_tell(
            "no flow is known: neither the drives' rates nor their links",
            "give --drive-rate",
        ),
        Some((passes, found)) if passes * 1.02 >= REBUILD_PASSES as f64 => {
            Found::pass("memory", found)
        }
        Some((_, found)) if banks.values().all(|bank| bank.populated == bank.channels) => {
            Found::pass(
                "memory",
                format!("{found}; every channel is populated, so this is the server's ceiling"),
            )
        }
        Some((_, found)) => Found::fail(
            "memory",
            format!("{found}: {carried} of {demand} at best"),
            "populate more channels; until then a rebuild runs at memory's pace, \
             not at the drives'",
        ),
    }
}

/// Modules run as fast as they are made for.
pub fn speed_configured(facts: &Facts<'_>) -> Found {
    let Some(memory) = &facts.server.memory else {
        return Found::cannot_tell(silent(facts, "dmidecode"), AS_ROOT);
    };
    let speeds: Vec<(u64, u64)> =
        memory.modules().filter_map(|it| it.rated.zip(it.configured)).collect();
    let slower = speeds.iter().filter(|(rated, configured)| configured < rated).count();
    match (speeds.first(), speeds.iter().find(|(rated, configured)| configured < rated)) {
        (None, _) => {
            Found::cannot_tell("the tables give no speeds", "look into the firmware's setup")
        }
        (Some((rated, _)), None) => Found::pass("memory", format!("{rated} MT/s, as rated")),
        (_, Some((rated, configured))) => Found::fail(
            "memory",
            format!("{slower} modules run at {configured} MT/s and are made for {rated}"),
            "compare with what the processor's data sheet allows; \
             if it allows more, set it in the firmware",
        ),
    }
}

/// No memory errors were counted.
pub fn memory_errors(facts: &Facts<'_>) -> Found {
    match facts.server.software.memory_errors {
        None => Found::cannot_tell(
            "no EDAC driver counts memory errors",
            "load the EDAC driver of this platform, or ask the BMC's event log",
        ),
        Some((0, 0)) => {
            Found::pass("memory", "0 corrected, 0 uncorrected since the system was started")
        }
        Some((corrected, uncorrected)) => Found::fail(
            "memory",
            format!(
                "{corrected} corrected and {uncorrected} uncorrected errors since the system was \
                 started"
            ),
            "find the module by its EDAC labels and replace it",
        ),
    }
}

/// All CPUs run at full frequency when they have work.
pub fn governor(facts: &Facts<'_>) -> Found {
    let governors = &facts.server.cpu.governors;
    let list: Vec<String> =
        governors.iter().map(|(name, count)| format!("{name} on {count} CPUs")).collect();
    match governors.keys().all(|name| name == "performance") {
        _ if governors.is_empty() => Found::cannot_tell(
            "this kernel sets no frequencies",
            "ask the firmware's setup, or the host of this guest",
        ),
        true => Found::pass("cpu", list.join(", ")),
        false => Found::fail(
            "cpu",
            list.join(", "),
            "while measuring: cpupower frequency-set -g performance",
        ),
    }
}

/// SMT is the same on all cores, so that it can be written beside a result.
pub fn smt_recorded(facts: &Facts<'_>) -> Found {
    let cpu = &facts.server.cpu;
    let counts = cpu.threads_per_core();
    match (counts.len(), &cpu.smt) {
        (0, _) | (_, None) => Found::cannot_tell(
            "neither lscpu nor /sys tell of threads and cores",
            "install util-linux; needs Linux 4.19",
        ),
        (1, Some(state)) => {
            let threads = counts.keys().next().copied().unwrap_or(1);
            Found::pass(
                "cpu",
                format!("SMT {state}: {} cores, {threads} threads each", cpu.core_count()),
            )
        }
        _ => {
            let list: Vec<String> = counts
                .iter()
                .map(|(threads, cores)| format!("{cores} cores with {threads}"))
                .collect();
            Found::fail(
                "cpu",
                format!("threads differ: {}", list.join(", ")),
                "bring all threads online, or switch SMT off for all",
            )
        }
    }
}
