//! Governor, SMT and memory.

use super::{Answer, Facts, Found, silent};
use crate::inspect::server::Memory;
use crate::inspect::server::memory::Bank;
use crate::inspect::topology::Link;
use crate::inspect::topology::flow::REBUILD_PASSES;
use crate::metrics::bandwidth::Rate;
use std::collections::BTreeMap;

fn table<'a>(facts: &Facts<'a>) -> Result<&'a Memory, Found> {
    facts.server.memory.as_ref().ok_or_else(|| Found::blind_for(silent(facts, "dmidecode")))
}

fn banks(facts: &Facts<'_>) -> Result<BTreeMap<u64, Bank>, Found> {
    let memory = table(facts)?;
    memory.banks().ok_or_else(|| {
        Found::blind_for(memory.doubt().unwrap_or_default())
            .but("look into the board's manual which slots share a channel")
    })
}

pub fn channels_populated(facts: &Facts<'_>) -> Answer {
    let banks = banks(facts)?;
    let told = |rate: Option<Rate>| rate.map_or("unknown speed".to_owned(), |it| it.to_string());
    let one = |(socket, bank): (&u64, &Bank)| {
        let Bank { modules, populated, channels, .. } = bank;
        let modules = if *modules == 1 { "1 module".into() } else { format!("{modules} modules") };
        let (rate, full) = (told(bank.rate()), told(bank.full_rate()));
        format!(
            "socket {socket}: {modules} on {populated} of {channels} channels, {rate} of {full}"
        )
    };
    let found: Vec<String> = banks.iter().map(one).collect();
    let is_poor = |bank: &Bank| bank.populated * 2 < bank.channels || bank.populated == 0;
    Ok(Found::of(!banks.values().any(is_poor), found.join("; ")))
}

pub fn sockets_balanced(facts: &Facts<'_>) -> Answer {
    let known = facts.server.cpu.sockets().len();
    if known == 1 {
        return Ok(Found::not_applicable("one socket"));
    }
    let banks = banks(facts)?;
    if known == 0 && banks.len() == 1 {
        return Ok(Found::blind_for("how many sockets there are is not known").but("add lscpu"));
    }
    // Without lscpu the slots tell.
    let sockets = if known == 0 { banks.len() } else { known };
    let rates: Vec<_> = banks.values().map(Bank::rate).collect();
    if rates.len() == sockets && rates.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(Found::pass(format!("the same on all {sockets} sockets")));
    }
    let each: Vec<String> = banks.values().map(|it| format!("{} modules", it.modules)).collect();
    Ok(Found::fail(format!("sockets differ: {}", each.join(", "))))
}

pub fn bandwidth_for_rebuild(facts: &Facts<'_>) -> Answer {
    let banks = banks(facts)?;
    let passes = |(at, link): (usize, &Link)| {
        let flows = facts.read.by_link[at];
        let capacity = link.capacity.filter(|_| link.is_memory() && flows.0 > 0)?;
        let passes = 1.0 / flows.share_of(capacity);
        let name = facts.topology.name(link);
        let found = format!(
            "{name}: {capacity} for {flows} from the drives, {passes:.1} passes over each byte; \
             a rebuild makes about {REBUILD_PASSES}"
        );
        Some((passes, found))
    };
    let all = facts.topology.links.iter().enumerate().filter_map(passes);
    let least = all.min_by(|one, other| one.0.total_cmp(&other.0));
    let (passes, found) = least.ok_or_else(Found::blind)?;
    if passes * 1.02 >= REBUILD_PASSES as f64 {
        return Ok(Found::pass(found));
    }
    if banks.values().all(|bank| bank.populated == bank.channels) {
        let ceiling = "every channel is populated, so this is the server's ceiling";
        return Ok(Found::pass(format!("{found}; {ceiling}")));
    }
    let (carried, demand) = (facts.rebuild.carried, facts.rebuild.demand);
    Ok(Found::fail(format!("{found}: {carried} of {demand} at best")))
}

pub fn speed_configured(facts: &Facts<'_>) -> Answer {
    let modules = table(facts)?.modules();
    let speeds: Vec<(u64, u64)> = modules.filter_map(|it| it.rated.zip(it.configured)).collect();
    let (rated, _) = speeds.first().ok_or_else(Found::blind)?;
    let slower: Vec<_> = speeds.iter().filter(|(rated, configured)| configured < rated).collect();
    Ok(match slower.first() {
        None => Found::pass(format!("{rated} MT/s, as rated")),
        Some((rated, configured)) => Found::fail(format!(
            "{} modules run at {configured} MT/s and are made for {rated}",
            slower.len()
        )),
    })
}

pub fn memory_errors(facts: &Facts<'_>) -> Answer {
    let (corrected, uncorrected) = facts.server.software.memory_errors.ok_or_else(Found::blind)?;
    let since = "since the system was started";
    Ok(Found::of(
        corrected == 0 && uncorrected == 0,
        format!("{corrected} corrected, {uncorrected} uncorrected errors {since}"),
    ))
}

pub fn governor(facts: &Facts<'_>) -> Answer {
    let governors = &facts.server.cpu.governors;
    let told = |(name, count): (&String, &u64)| format!("{name} on {count} CPUs");
    let list: Vec<String> = governors.iter().map(told).collect();
    if list.is_empty() {
        return Ok(Found::blind());
    }
    Ok(Found::of(governors.keys().all(|name| name == "performance"), list.join(", ")))
}

pub fn smt_recorded(facts: &Facts<'_>) -> Answer {
    let cpu = &facts.server.cpu;
    let counts = cpu.threads_per_core();
    let state = cpu.smt.as_ref().ok_or_else(Found::blind)?;
    let (threads, _) = counts.first_key_value().ok_or_else(Found::blind)?;
    if counts.len() == 1 {
        let cores = cpu.core_count();
        return Ok(Found::pass(format!("SMT {state}: {cores} cores, {threads} threads each")));
    }
    let told = |(threads, cores): (_, _)| -> String { format!("{cores} cores with {threads}") };
    let list: Vec<String> = counts.iter().map(told).collect();
    Ok(Found::fail(format!("threads differ: {}", list.join(", "))))
}
