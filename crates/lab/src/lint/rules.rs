//! What looks for each rule, in groups.
//!
//! - caching: what does not reach the device (L01, L02, L04, L16, L31)
//! - run: how long and how it is measured, and what came out (L03, L12 to L15, L22, L23, L28, L29)
//! - shape: sizes, alignment, depths and jobs (L05, L06, L07, L09, L10, L11, L17, L25, L30)
//! - target: what is read, what is destroyed, what is durable (L08, L18, L19)
//! - cpu: polling, coalescing, pinning, environment, versions (L20, L21, L24, L26, L27)

mod caching;
mod cpu;
mod run;
mod shape;
mod target;

use super::Case;

pub(super) use cpu::parse_version;

type Look = fn(&mut Case<'_>);

pub(super) const LOOKS: [(&str, Look); 31] = [
    ("L01", caching::direct),
    ("L02", caching::libaio),
    ("L03", run::runtime),
    ("L04", caching::size),
    ("L05", shape::block_size),
    ("L06", shape::alignment),
    ("L07", shape::full_stripe),
    ("L08", target::unwritten),
    ("L09", shape::synchronous),
    ("L10", shape::same_blocks),
    ("L11", shape::several_devices),
    ("L12", run::grouped),
    ("L13", run::measured),
    ("L14", run::percentiles),
    ("L15", run::ramp),
    ("L16", caching::buffers),
    ("L17", shape::repeats),
    ("L18", target::occupied),
    ("L19", target::durable),
    ("L20", cpu::polling),
    ("L21", cpu::coalescing),
    ("L22", run::preconditioning),
    ("L23", run::background),
    ("L24", cpu::pinning),
    ("L25", shape::depth),
    ("L26", cpu::environment),
    ("L27", cpu::version),
    ("L28", run::errors),
    ("L29", run::ceilings),
    ("L30", shape::understood),
    ("L31", caching::engine),
];
