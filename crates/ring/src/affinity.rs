//! Which cores this process may use, and binding a thread to one of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The cores the calling thread may run on, in ascending order.
///
/// # Errors
/// What sched_getaffinity(2) says.
pub fn cores() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// The core that the calling thread is bound to; `None` if it may run on others as well.
pub fn core() -> Option<usize> {
    match cores().ok()?.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// Binds the calling thread to `core`.
///
/// # Errors
/// `InvalidInput` if there can be no such core, else what sched_setaffinity(2) says.
pub fn pin_to(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

#[cfg(test)]
mod tests {
    use super::{core, cores, pin_to};

    #[test]
    fn pinned_thread_may_use_that_core_only() {
        let last = *cores().expect("affinity is readable").last().expect("some core");
        let seen = std::thread::spawn(move || {
            pin_to(last).expect("an allowed core");
            (cores().expect("affinity is readable"), core())
        });
        assert_eq!(seen.join().expect("thread ran"), (vec![last], Some(last)));
    }

    #[test]
    fn core_beyond_any_machine_is_refused() {
        assert!(pin_to(usize::MAX).is_err());
    }
}
