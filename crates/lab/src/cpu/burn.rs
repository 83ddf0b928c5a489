//! A known load: one thread of a known duty cycle on one core, to see whether the sampler of this
//! machine can be believed.
//!
//! What must stay true: what it burned is said by the kernel's own account of the thread over the
//! very window of the samples, not by what was asked for: a busy machine gives less.

use super::kernel;
use crate::Refusal;
use crate::evidence::process::monotonic;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Name of the thread: what the samples are found by.
pub const NAME: &str = "lab-burn";
/// A period that is no multiple of the sampling period, so that both do not run in step.
const PERIOD: Duration = Duration::from_micros(7300);

/// A thread that burns.
#[derive(Debug)]
pub struct Burner {
    stop: Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
    tid: i32,
}

impl Burner {
    /// Burn `percent` of core `core`.
    ///
    /// # Errors
    /// The thread cannot be started or bound to the core.
    pub fn start(core: usize, percent: u32) -> Result<Burner, Refusal> {
        let refuse = |what: String| {
            Refusal::cannot_run("cpu.burner_failed", what, "the sampler was not checked")
        };
        let (stop, stopped) = channel();
        let (ready, is_ready) = channel();
        let body = move || {
            let mut cores = CpuSet::new();
            cores.set(core);
            let bound = sched_setaffinity(None, &cores);
            // As root: before everything else on the core, so that other work does not hide the
            // load.
            let _ = rustix::process::setpriority_process(Some(gettid()), -20);
            let _ = ready.send(bound.map(|()| gettid()));
            if bound.is_ok() {
                burn(percent, &stopped);
            }
        };
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(body);
        let thread = thread.map_err(|error| refuse(format!("no thread to burn: {error}")))?;
        let tid: Pid = match is_ready.recv() {
            Ok(Ok(tid)) => tid,
            Ok(Err(error)) => return Err(refuse(format!("core {core} cannot be used: {error}"))),
            Err(_) => return Err(refuse("the burning thread ended".into())),
        };
        Ok(Burner { stop, thread: Some(thread), tid: tid.as_raw_nonzero().get() })
    }

    /// CPU time it has had so far, nanoseconds, by the kernel's account.
    pub fn run_ns(&self) -> Option<u64> {
        kernel::run_ns(&format!("self/task/{}", self.tid))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn burn(percent: u32, stopped: &Receiver<()>) {
    let busy = PERIOD * percent.min(100) / 100;
    loop {
        let began = monotonic();
        while monotonic() - began < busy {
            std::hint::spin_loop();
        }
        match stopped.recv_timeout(PERIOD.saturating_sub(monotonic() - began)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}
