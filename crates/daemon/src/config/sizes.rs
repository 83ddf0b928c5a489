//! Checks that the numbers of workers and the pool make sense on this machine.
//!
//! What must stay true: only settings that could not take effect are refused. A worker has a pool
//! of a least size, and more workers than cores only wait for each other.

use super::{Serve, Workers};
use ashlar_engine::EngineConfig;
use ashlar_units::{ByteSize, to_u64};

/// Workers for each core, at most.
const WORKERS_PER_CORE: usize = 4;
/// As many workers are possible on every machine.
const WORKERS_ALWAYS: usize = 16;

/// What can be seen to be wrong.
///
/// # Errors
/// One line, with the range.
pub(super) fn check(serve: &Serve) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (cores * WORKERS_PER_CORE).max(WORKERS_ALWAYS);
    let workers = serve.workers.as_ref().map_or(cores, Workers::count);
    if workers == 0 || serve.workers.is_some() && workers > most {
        return Err(format!(
            "{workers} workers are not possible on {cores} cores: take 1 to {most}; \
             one for each core is the default"
        ));
    }
    let least = to_u64(EngineConfig::payload_bytes_min() * workers);
    match serve.pool {
        Some(pool) if pool.0 < least => Err(format!(
            "a pool of {pool} is not possible for {workers} workers: take {} or more",
            ByteSize(least)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::config::{Serve, Workers};
    use ashlar_units::ByteSize;

    #[test]
    fn sizes_beyond_sense_are_refused_with_the_range() {
        let serve = |workers: Option<u16>, pool| Serve {
            workers: workers.map(Workers::Count),
            pool: Some(ByteSize(pool)),
            ..Serve::default()
        };
        assert_eq!(check(&serve(Some(2), 96 << 20)), Ok(()));
        let told = check(&serve(Some(2), 1 << 10)).expect_err("refused");
        assert!(told.contains("a pool of 1 KiB is not possible for 2 workers: take"), "{told}");
        for workers in [0, 60_000] {
            let told = check(&serve(Some(workers), 1 << 40)).expect_err("refused");
            assert!(told.contains("take 1 to"), "{told}");
        }
        assert_eq!(check(&Serve::default()), Ok(()));
    }
}
