//! What looks for each rule, in groups.
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

use super::Case;

pub(super) use cpu::parse_version;

type Look = fn(&mut Case<'_>);

pub(super) const LOOKS: [(&str, Look); 31] = [
    ("L01", caching::direct),
    ("L02", caching::libaio),
    ("L03", time::runtime),
    ("L04", caching::size),
    ("L05", shape::block_size),
    ("L06", shape::alignment),
    ("L07", shape::full_stripe),
    ("L08", target::unwritten),
    ("L09", shape::synchronous),
    ("L10", shape::same_blocks),
    ("L11", shape::several_devices),
    ("L12", latency::grouped),
    ("L13", latency::measured),
    ("L14", latency::percentiles),
    ("L15", time::ramp),
    ("L16", caching::buffers),
    ("L17", shape::repeats),
    ("L18", target::occupied),
    ("L19", target::durable),
    ("L20", cpu::polling),
    ("L21", cpu::coalescing),
    ("L22", time::preconditioning),
    ("L23", time::background),
    ("L24", cpu::pinning),
    ("L25", shape::depth),
    ("L26", cpu::environment),
    ("L27", cpu::version),
    ("L28", finished::errors),
    ("L29", finished::ceilings),
    ("L30", shape::understood),
    ("L31", caching::engine),
];
