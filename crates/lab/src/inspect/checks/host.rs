//! Governor, SMT, memory, background work and limits.

use super::drives::each;
use super::{Answer, Facts, blind, blind_for, fail, judge, not_applicable, pass, silent};
use crate::inspect::server::Memory;
use crate::inspect::server::memory::Bank;
use crate::inspect::topology::Link;
use crate::inspect::topology::flow::REBUILD_PASSES;
use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::record::Check;
use crate::units;
use itertools::Itertools;
use std::collections::BTreeMap;

fn table<'a>(facts: &Facts<'a>) -> Result<&'a Memory, Check> {
    facts.server.memory.as_ref().ok_or_else(|| blind_for(silent(facts, "dmidecode")))
}

fn banks(facts: &Facts<'_>) -> Result<BTreeMap<u64, Bank>, Check> {
    let memory = table(facts)?;
    memory.banks().ok_or_else(|| {
        blind_for(memory.doubt().unwrap_or_default())
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
    let found = banks.iter().map(one).join("; ");
    let is_poor = |bank: &Bank| bank.populated * 2 < bank.channels || bank.populated == 0;
    Ok(judge(!banks.values().any(is_poor), found))
}

pub fn sockets_balanced(facts: &Facts<'_>) -> Answer {
    let known = facts.server.cpu.sockets().len();
    if known == 1 {
        return Ok(not_applicable("one socket"));
    }
    let banks = banks(facts)?;
    if known == 0 && banks.len() == 1 {
        return Ok(blind_for("how many sockets there are is not known").but("add lscpu"));
    }
    // Without lscpu the slots tell.
    let sockets = if known == 0 { banks.len() } else { known };
    let rates: Vec<_> = banks.values().map(Bank::rate).collect();
    if rates.len() == sockets && rates.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(pass(format!("the same on all {sockets} sockets")));
    }
    let each = banks.values().map(|it| format!("{} modules", it.modules)).join(", ");
    Ok(fail(format!("sockets differ: {}", each)))
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
    let (passes, found) = least.ok_or_else(blind)?;
    if passes * 1.02 >= REBUILD_PASSES as f64 {
        return Ok(pass(found));
    }
    if banks.values().all(|bank| bank.populated == bank.channels) {
        let ceiling = "every channel is populated, so this is the server's ceiling";
        return Ok(pass(format!("{found}; {ceiling}")));
    }
    let (carried, demand) = (facts.rebuild.carried, facts.rebuild.demand);
    Ok(fail(format!("{found}: {carried} of {demand} at best")))
}

pub fn speed_configured(facts: &Facts<'_>) -> Answer {
    let modules = table(facts)?.modules();
    let speeds: Vec<(u64, u64)> = modules.filter_map(|it| it.rated.zip(it.configured)).collect();
    let (rated, _) = speeds.first().ok_or_else(blind)?;
    let slower: Vec<_> = speeds.iter().filter(|(rated, configured)| configured < rated).collect();
    Ok(match slower.first() {
        None => pass(format!("{rated} MT/s, as rated")),
        Some((rated, configured)) => fail(format!(
            "{} modules run at {configured} MT/s and are made for {rated}",
            slower.len()
        )),
    })
}

pub fn memory_errors(facts: &Facts<'_>) -> Answer {
    let (corrected, uncorrected) = facts.server.software.memory_errors.ok_or_else(blind)?;
    let since = "since the system was started";
    Ok(judge(
        corrected == 0 && uncorrected == 0,
        format!("{corrected} corrected, {uncorrected} uncorrected errors {since}"),
    ))
}

pub fn governor(facts: &Facts<'_>) -> Answer {
    let governors = &facts.server.cpu.governors;
    let told = |(name, count): (&String, &u64)| format!("{name} on {count} CPUs");
    let list: Vec<String> = governors.iter().map(told).collect();
    if list.is_empty() {
        return Ok(blind());
    }
    Ok(judge(governors.keys().all(|name| name == "performance"), list.join(", ")))
}

pub fn smt_recorded(facts: &Facts<'_>) -> Answer {
    let cpu = &facts.server.cpu;
    let counts = cpu.threads_per_core();
    let state = cpu.smt.as_ref().ok_or_else(blind)?;
    let (threads, _) = counts.first_key_value().ok_or_else(blind)?;
    if counts.len() == 1 {
        let cores = cpu.core_count();
        return Ok(pass(format!("SMT {state}: {cores} cores, {threads} threads each")));
    }
    let told = |(threads, cores): (_, _)| -> String { format!("{cores} cores with {threads}") };
    let list = counts.iter().map(told).join(", ");
    Ok(fail(format!("threads differ: {}", list)))
}

pub fn background_activity(facts: &Facts<'_>) -> Answer {
    let software = &facts.server.software;
    let work = software.background.as_ref().ok_or_else(blind)?;
    Ok(match work.is_empty() {
        true => pass(format!("nothing in {}", software.background_asked.join(", "))),
        false => fail(work.join("; ")),
    })
}

/// Below this share of available memory the kernel is busy taking it back.
const AVAILABLE_MIN: f64 = 0.1;
/// The kernel's own memory may grow by this share of all between two looks.
const KERNEL_GROWTH_MAX: f64 = 0.1;

pub fn memory_space(facts: &Facts<'_>) -> Answer {
    let memory = facts.server.software.memory.as_ref().filter(|it| it.total > 0);
    let memory = memory.ok_or_else(blind)?;
    let of_all = |bytes: u64| to_f64(bytes) / to_f64(memory.total);
    let size = |bytes: u64| units::bytes(to_f64(bytes));
    let most = memory.slabs.iter().max_by_key(|it| it.1);
    let most = most.map_or(String::new(), |(name, it)| format!(", most {name}: {}", size(*it)));
    let kernel = match memory.kernel {
        0 => String::new(),
        bytes => format!("; the kernel holds {} that it cannot give back{most}", size(bytes)),
    };
    let available = units::percent(of_all(memory.available));
    let found = format!("{available} of {} available{kernel}", size(memory.total));
    if of_all(memory.available) < AVAILABLE_MIN {
        return Ok(fail(found));
    }
    let before = facts.before.and_then(|it| it.software.memory.as_ref());
    let Some(before) = before else { return Ok(pass(found)) };
    let growth = memory.kernel.saturating_sub(before.kernel);
    if of_all(growth) <= KERNEL_GROWTH_MAX {
        return Ok(pass(found));
    }
    let grown = |(name, now): (&String, &u64)| {
        let was = before.slabs.get(name).copied().unwrap_or(0);
        (now.saturating_sub(was), name.clone())
    };
    let most = memory.slabs.iter().map(grown).max();
    let most = most.map_or(String::new(), |(by, name)| format!(", most {name} by {}", size(by)));
    let grew = format!("that grew by {} between the two captures{most}", size(growth));
    let next = "an engine that keeps what it reads or logs: look at its cache limits, \
                and watch slabtop during a rebuild";
    Ok(fail(format!("{found}; {grew}")).but(next))
}

/// Asynchronous requests in flight that each drive may need: 16 jobs of depth 32.
const AIO_PER_DRIVE: u64 = 512;

pub fn aio_max_nr(facts: &Facts<'_>) -> Answer {
    let software = &facts.server.software;
    let (max, used) = software.aio_max.zip(software.aio_used).ok_or_else(blind)?;
    let drives = u64::try_from(facts.server.drives.len()).unwrap_or(0);
    let (free, needed) = (max.saturating_sub(used), drives * AIO_PER_DRIVE);
    let found =
        format!("{free} of {max} free; {drives} drives with 16 jobs of depth 32 need {needed}");
    Ok(judge(free >= needed, found))
}

pub fn scheduler(facts: &Facts<'_>) -> Answer {
    let all = each(facts, |it| {
        // Spinning drives may have any.
        let is_fast = it.is_rotational == Some(false);
        if is_fast { it.scheduler.as_deref().map(Some) } else { Some(None) }
    })?;
    let fast: Vec<(&str, &str)> = all.into_iter().filter_map(|it| Some((it.0, it.1?))).collect();
    if fast.is_empty() {
        return Ok(not_applicable("spinning drives only"));
    }
    let other: Vec<&str> = fast.iter().filter(|it| it.1 != "none").map(|it| it.0).collect();
    Ok(match other.len() {
        0 => pass(format!("none on {} fast drives", fast.len())),
        count => fail(format!("{count} fast drives have a scheduler")).about(other),
    })
}

/// Smaller requests than this are not cut by a limit that could be wider.
const REQUEST_KIB: u64 = 512;

pub fn request_size(facts: &Facts<'_>) -> Answer {
    let known = each(facts, |it| it.request_kib)?;
    let cut: Vec<_> = known.iter().filter(|it| it.1.0 < it.1.1.min(REQUEST_KIB)).collect();
    Ok(match cut.first() {
        None => {
            let least = known.iter().map(|it| it.1.0).min().unwrap_or(0);
            pass(format!("at least {least} KiB in one request"))
        }
        Some((_, (now, could))) => fail(format!(
            "{} drives cut requests at {now} KiB; the hardware takes {could}",
            cut.len()
        ))
        .about(cut.iter().map(|it| it.0)),
    })
}
