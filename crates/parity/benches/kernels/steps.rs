//! Counts the instructions of a piece of code, on the CPU itself: a child process runs it, and this
//! one steps it through one instruction at a time.
//!
//! What must stay true: the count is that of the code alone, and the same each time. So it works
//! for any instruction set of this CPU, which emulators that count do not.

use std::ffi::{c_int, c_long, c_void};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

const TRACE_ME: c_long = 0;
const STEP: c_long = 9;
const SIGKILL: c_int = 9;
const SIGTRAP: c_int = 5;
const SIGSTOP: c_int = 19;

unsafe extern "C" {
    fn fork() -> c_int;
    fn ptrace(request: c_long, process: c_int, address: *mut c_void, data: *mut c_void) -> c_long;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

/// Both processes on one CPU while they are stepped: waking the other one is what a step costs, and
/// on a CPU of its own that takes several times as long. Where that is not allowed they stay where
/// they are.
struct OnOneCpu(Option<CpuSet>);

impl OnOneCpu {
    fn here() -> OnOneCpu {
        let before = sched_getaffinity(None).ok();
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let is_set = sched_setaffinity(None, &one).is_ok();
        OnOneCpu(before.filter(|_| is_set))
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // If it fails the rest runs on one CPU, which is slow and no more.
            let _stays = sched_setaffinity(None, before);
        }
    }
}

/// Instructions that `work` takes, less than those of doing nothing.
pub fn count(work: &mut dyn FnMut()) -> Result<u64, String> {
    let _on_one_cpu = OnOneCpu::here();
    let nothing = steps(&mut || {})?;
    Ok(steps(work)?.saturating_sub(nothing))
}

/// Steps from one stop of the child to the next, with `work` between them.
fn steps(work: &mut dyn FnMut()) -> Result<u64, String> {
    // SAFETY: this process has one thread; the child runs `work`, which takes no locks, and ends.
    let child = unsafe { fork() };
    match child {
        -1 => Err("fork failed".to_owned()),
        0 => {
            be_stepped(work);
            // SAFETY: ends the child without running what the parent will run at its end.
            unsafe { _exit(0) }
        }
        child => {
            let counted = step_through(child);
            // SAFETY: `child` is a process of ours that nobody has waited for to the end.
            unsafe { kill(child, SIGKILL) };
            let mut status = 0;
            // SAFETY: as above; `status` can be written.
            unsafe { waitpid(child, &raw mut status, 0) };
            counted
        }
    }
}

fn be_stepped(work: &mut dyn FnMut()) {
    let none = std::ptr::null_mut();
    // SAFETY: asks only that the parent may trace this process.
    if unsafe { ptrace(TRACE_ME, 0, none, none) } != 0 {
        return;
    }
    // SAFETY: stops this process until its parent goes on with it.
    unsafe { raise(SIGSTOP) };
    work();
    // SAFETY: as above.
    unsafe { raise(SIGSTOP) };
}

fn step_through(child: c_int) -> Result<u64, String> {
    let mut steps = 0;
    let mut signal = wait(child)?;
    if signal != SIGSTOP {
        return Err("the child may not be traced".to_owned());
    }
    loop {
        let none = std::ptr::null_mut();
        // SAFETY: the child is traced by us and stopped.
        if unsafe { ptrace(STEP, child, none, none) } != 0 {
            return Err("the child cannot be stepped".to_owned());
        }
        signal = wait(child)?;
        match signal {
            SIGTRAP => steps += 1,
            SIGSTOP => return Ok(steps),
            other => return Err(format!("the child got signal {other}")),
        }
    }
}

/// The signal that stopped the child.
fn wait(child: c_int) -> Result<c_int, String> {
    let mut status = 0;
    // SAFETY: `child` is ours and `status` can be written.
    if unsafe { waitpid(child, &raw mut status, 0) } != child || status & 0xff != 0x7f {
        return Err("the child ended".to_owned());
    }
    Ok(status >> 8 & 0xff)
}
