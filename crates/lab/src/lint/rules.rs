//! The rules, in groups; each group is a table of rules with the functions that check them below.
//!
//! - caching: what does not reach the device (L01, L02, L04, L16, L31)
//! - time: too short, too early, too much else going on (L03, L15, L22, L23)
//! - shape: sizes, alignment, depths and jobs (L05, L06, L07, L09, L10, L11, L17, L25, L30)
//! - target: what is read, what is destroyed, what is durable (L08, L18, L19)
//! - latency: how latency is measured (L12, L13, L14)
//! - cpu: polling, coalescing, pinning, environment, versions (L20, L21, L24, L26, L27)
//! - finished: results (L28, L29)

mod caching;
mod cpu;
mod finished;
mod latency;
mod shape;
mod target;
mod time;

use super::Rule;

pub(super) use cpu::parse_version;

/// All rules by number.
pub fn all() -> Vec<&'static Rule> {
    let groups: [&'static [Rule]; 7] = [
        &caching::RULES,
        &cpu::RULES,
        &finished::RULES,
        &latency::RULES,
        &shape::RULES,
        &target::RULES,
        &time::RULES,
    ];
    let mut rules: Vec<&Rule> = groups.into_iter().flatten().collect();
    rules.sort_by_key(|rule| rule.id);
    rules
}

/// The rule called `id`, in capitals or not.
pub fn named(id: &str) -> Option<&'static Rule> {
    all().into_iter().find(|rule| rule.id.eq_ignore_ascii_case(id))
}
