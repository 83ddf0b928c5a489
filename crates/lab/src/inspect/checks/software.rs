//! Background work and limits.

use super::{Answer, Facts, Found};
use crate::inspect::checks::drives::each;
use crate::metrics::latency::to_f64;
use crate::units;

pub fn background_activity(facts: &Facts<'_>) -> Answer {
    let software = &facts.server.software;
    let work = software.background.as_ref().ok_or_else(Found::blind)?;
    Ok(match work.is_empty() {
        true => Found::pass(format!("nothing in {}", software.background_asked.join(", "))),
        false => Found::fail(work.join("; ")),
    })
}

/// Below this share of available memory the kernel is busy taking it back.
const AVAILABLE_MIN: f64 = 0.1;
/// The kernel's own memory may grow by this share of all between two looks.
const KERNEL_GROWTH_MAX: f64 = 0.1;

pub fn memory_space(facts: &Facts<'_>) -> Answer {
    let memory = facts.server.software.memory.as_ref().filter(|it| it.total > 0);
    let memory = memory.ok_or_else(Found::blind)?;
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
        return Ok(Found::fail(found));
    }
    let before = facts.before.and_then(|it| it.software.memory.as_ref());
    let Some(before) = before else { return Ok(Found::pass(found)) };
    let growth = memory.kernel.saturating_sub(before.kernel);
    if of_all(growth) <= KERNEL_GROWTH_MAX {
        return Ok(Found::pass(found));
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
    Ok(Found::fail(format!("{found}; {grew}")).but(next))
}

/// Asynchronous requests in flight that each drive may need: 16 jobs of depth 32.
const AIO_PER_DRIVE: u64 = 512;

pub fn aio_max_nr(facts: &Facts<'_>) -> Answer {
    let software = &facts.server.software;
    let (max, used) = software.aio_max.zip(software.aio_used).ok_or_else(Found::blind)?;
    let drives = u64::try_from(facts.server.drives.len()).unwrap_or(0);
    let (free, needed) = (max.saturating_sub(used), drives * AIO_PER_DRIVE);
    let found =
        format!("{free} of {max} free; {drives} drives with 16 jobs of depth 32 need {needed}");
    Ok(Found::of(free >= needed, found))
}

pub fn scheduler(facts: &Facts<'_>) -> Answer {
    let all = each(facts, |it| {
        // Spinning drives may have any.
        let is_fast = it.is_rotational == Some(false);
        if is_fast { it.scheduler.as_deref().map(Some) } else { Some(None) }
    })?;
    let fast: Vec<(&str, &str)> = all.into_iter().filter_map(|it| Some((it.0, it.1?))).collect();
    if fast.is_empty() {
        return Ok(Found::not_applicable("spinning drives only"));
    }
    let other: Vec<&str> = fast.iter().filter(|it| it.1 != "none").map(|it| it.0).collect();
    Ok(match other.len() {
        0 => Found::pass(format!("none on {} fast drives", fast.len())),
        count => Found::fail(format!("{count} fast drives have a scheduler")).about(other),
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
            Found::pass(format!("at least {least} KiB in one request"))
        }
        Some((_, (now, could))) => Found::fail(format!(
            "{} drives cut requests at {now} KiB; the hardware takes {could}",
            cut.len()
        ))
        .about(cut.iter().map(|it| it.0)),
    })
}
