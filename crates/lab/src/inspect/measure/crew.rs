//! Threads bound to CPUs that do rounds of the same work: a round ends when the last of them is
//! done.
//!
//! What must stay true: all begin a round together; a thread that could not be bound spoils
//! everything, so nothing is reported then; rounds end by count or by time, whichever allows more
//! rounds.

use crate::evidence::process::monotonic;
use crate::metrics::latency::to_f64;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Rounds that there are at least, whatever they take.
const ROUNDS_MIN: usize = 5;
/// And at most.
const ROUNDS_MAX: usize = 25;
/// Steps of one round of the score, each thread.
const STEPS: u64 = if cfg!(debug_assertions) { 400_000 } else { 20_000_000 };
/// What memory is filled with: not zero, which the kernel could share between all pages.
const FILL: u64 = 0x5a5a_a5a5_c3c3_3c3c;

/// Memory that lies where the threads run that wrote it first.
#[derive(Debug)]
pub struct Memory {
    parts: Vec<Vec<u64>>,
}

impl Memory {
    /// `bytes` of memory, an equal part written by a thread on each of `cpus`.
    ///
    /// # Errors
    /// There is not enough, or a thread cannot run there.
    pub fn on(cpus: &[u64], bytes: u64) -> Result<Memory, String> {
        let count = u64::try_from(cpus.len()).unwrap_or(1).max(1);
        // Two halves of each part, whole pages.
        let words = usize::try_from(bytes / count / 8_192 * 1_024).unwrap_or(0);
        let fill = |cpu: u64| -> Result<Vec<u64>, String> {
            bind(cpu)?;
            let mut part = Vec::new();
            let room = part.try_reserve_exact(words);
            room.map_err(|_| format!("{} bytes of memory cannot be had", words * 8))?;
            part.resize(words, FILL);
            Ok(part)
        };
        let parts = std::thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || fill(*cpu))).collect();
            let join = |it: std::thread::ScopedJoinHandle<'_, Result<Vec<u64>, String>>| {
                it.join().unwrap_or_else(|_| Err("a thread ended early".to_owned()))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Memory { parts })
    }

    /// All of it, bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| bytes(part)).fold(0, u64::saturating_add)
    }

    /// Its parts, in the order of the CPUs.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut [u64]> {
        self.parts.iter_mut().map(Vec::as_mut_slice)
    }
}

/// CPUs, each with what its thread works on.
#[derive(Debug)]
pub struct Crew<T> {
    all: Vec<(u64, T)>,
}

impl<T: Send> Crew<T> {
    /// These.
    pub fn of(all: impl Iterator<Item = (u64, T)>) -> Crew<T> {
        Crew { all: all.collect() }
    }

    /// Rounds of `work`, each giving how much was done a second by all together. `work` says how
    /// much one thread did.
    fn rounds(
        self,
        time: Duration,
        work: impl Fn(&mut T) -> Result<u64, String> + Sync,
    ) -> Result<Vec<f64>, String> {
        let (barrier, state) = (Barrier::new(self.all.len()), State::default());
        std::thread::scope(|scope| {
            for (order, (cpu, mut item)) in self.all.into_iter().enumerate() {
                let (barrier, state, work) = (&barrier, &state, &work);
                scope.spawn(move || {
                    if let Err(why) = bind(cpu) {
                        state.refuse(why);
                    }
                    state.go(barrier, order == 0, time, || work(&mut item));
                });
            }
        });
        state.finish()
    }
}

impl Crew<&mut [u64]> {
    /// Read it all: its two halves are compared, and are equal.
    ///
    /// # Errors
    /// A thread cannot run on its CPU.
    pub fn read(self, time: Duration) -> Result<Vec<f64>, String> {
        self.rounds(time, |part| {
            let (one, other) = part.split_at(part.len() / 2);
            match black_box(one) == black_box(other) {
                true => Ok(bytes(part)),
                false => {
                    Err("memory does not hold what was written: look for memory errors".into())
                }
            }
        })
    }

    /// Copy one half over the other: read and written bytes count.
    ///
    /// # Errors
    /// A thread cannot run on its CPU.
    pub fn copy(self, time: Duration) -> Result<Vec<f64>, String> {
        self.rounds(time, |part| {
            let (one, other) = part.split_at_mut(part.len() / 2);
            black_box(other).copy_from_slice(black_box(one));
            Ok(bytes(part))
        })
    }
}

impl Crew<u64> {
    /// Steps of integer arithmetic a second: four chains of multiply, rotate and add, in registers.
    ///
    /// # Errors
    /// A thread cannot run on its CPU.
    pub fn score(self, time: Duration) -> Result<Vec<f64>, String> {
        self.rounds(time, |seed| {
            *seed = black_box(steps(STEPS, *seed));
            Ok(STEPS)
        })
    }
}

fn bytes(part: &[u64]) -> u64 {
    u64::try_from(size_of_val(part)).unwrap_or(0)
}

/// `count` steps, spread over four chains that do not wait for each other.
fn steps(count: u64, seed: u64) -> u64 {
    let mut chains = [seed, seed ^ 1, seed ^ 2, seed ^ 3];
    for _ in 0..count / 4 {
        for chain in &mut chains {
            *chain = chain.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(seed);
        }
    }
    chains.into_iter().fold(0, u64::wrapping_add)
}

/// What the threads of a crew share.
#[derive(Default)]
struct State {
    is_over: AtomicBool,
    refused: Mutex<Option<String>>,
    /// Of each round: when the first began, when the last ended, how much was done.
    rounds: Mutex<Vec<(Duration, Duration, u64)>>,
}

impl State {
    fn refuse(&self, why: String) {
        lock(&self.refused).get_or_insert(why);
    }

    fn go(
        &self,
        barrier: &Barrier,
        is_leader: bool,
        time: Duration,
        mut work: impl FnMut() -> Result<u64, String>,
    ) {
        let began = monotonic();
        // Between these two barriers nobody works, so all that was refused before is known; only
        // the leader decides, only here, so all threads see the same after the second one, and
        // nobody waits for one that has left.
        let is_over = |round: usize| {
            barrier.wait();
            let is_late = round >= ROUNDS_MIN && monotonic().saturating_sub(began) > time;
            if is_leader && (is_late || lock(&self.refused).is_some()) {
                self.is_over.store(true, Ordering::SeqCst);
            }
            barrier.wait();
            self.is_over.load(Ordering::SeqCst)
        };
        for round in 0..ROUNDS_MAX {
            if is_over(round) {
                return;
            }
            let from = monotonic();
            let done = work();
            let to = monotonic();
            // Whoever is refused goes on to the barrier, so that nobody waits there for ever.
            match done {
                Ok(done) => self.note(round, from, to, done),
                Err(why) => self.refuse(why),
            }
        }
    }

    fn note(&self, round: usize, from: Duration, to: Duration, done: u64) {
        let mut rounds = lock(&self.rounds);
        if rounds.len() <= round {
            rounds.resize(round + 1, (Duration::MAX, Duration::ZERO, 0));
        }
        let all = &mut rounds[round];
        *all = (all.0.min(from), all.1.max(to), all.2.saturating_add(done));
    }

    fn finish(self) -> Result<Vec<f64>, String> {
        if let Some(why) = lock(&self.refused).take() {
            return Err(why);
        }
        let rounds = lock(&self.rounds);
        let rate = |(from, to, done): &(Duration, Duration, u64)| {
            to_f64(*done) / to.saturating_sub(*from).as_secs_f64().max(1e-9)
        };
        Ok(rounds.iter().map(rate).collect())
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Run this thread on `cpu` only.
fn bind(cpu: u64) -> Result<(), String> {
    let at = usize::try_from(cpu).ok().filter(|at| *at < CpuSet::MAX_CPU);
    let at =
        at.ok_or_else(|| format!("CPU {cpu} is beyond what the kernel's interface takes here"))?;
    let mut cpus = CpuSet::new();
    cpus.set(at);
    sched_setaffinity(None, &cpus).map_err(|error| {
        format!("no thread may run on CPU {cpu}: {error}; is this a container with fewer CPUs?")
    })
}

#[cfg(test)]
mod tests {
    use super::{Crew, FILL, Memory, ROUNDS_MAX, ROUNDS_MIN, steps};
    use std::time::Duration;

    #[test]
    fn a_crew_reads_and_copies_all_of_its_memory_in_rounds() {
        let mut memory = Memory::on(&[0], 1 << 20).expect("CPU 0 and a MiB");
        assert_eq!(memory.bytes(), 1 << 20);
        let read = Crew::of([0].into_iter().zip(memory.parts())).read(Duration::ZERO);
        assert_eq!(read.expect("rounds").len(), ROUNDS_MIN);
        let copied = Crew::of([0].into_iter().zip(memory.parts())).copy(Duration::from_secs(3_600));
        assert_eq!(copied.expect("rounds").len(), ROUNDS_MAX);
        assert!(memory.parts().all(|part| part.iter().all(|word| *word == FILL)));
    }

    #[test]
    fn the_amount_of_a_round_is_that_of_all_threads_over_the_longest_time() {
        let state = super::State::default();
        let second = Duration::from_secs;
        state.note(0, second(10), second(12), 300);
        state.note(0, second(11), second(14), 100);
        state.note(1, second(20), second(21), 7);
        assert_eq!(state.finish(), Ok(vec![100.0, 7.0]));
    }

    #[test]
    fn a_cpu_that_is_not_there_gives_a_reason_and_no_figure() {
        let crew = Crew::of([(0_u64, 1_u64), (1_000_000, 1)].into_iter());
        assert!(crew.score(Duration::ZERO).expect_err("no such CPU").contains("CPU 1000000"));
        assert!(Memory::on(&[1_000_000], 8_192).is_err());
    }

    #[test]
    fn memory_that_changed_by_itself_is_told_and_nobody_hangs() {
        let mut memory = Memory::on(&[0, 0], 1 << 20).expect("CPU 0 and a MiB");
        memory.parts[1][5] ^= 1 << 40;
        let crew = Crew::of([0, 0].into_iter().zip(memory.parts()));
        assert!(crew.read(Duration::ZERO).expect_err("a flipped bit").contains("memory errors"));
    }

    #[test]
    fn the_score_s_steps_cannot_be_left_out() {
        // Known values: another number of steps or another seed gives another sum.
        assert_ne!(steps(4, 1), steps(8, 1));
        assert_ne!(steps(4, 1), steps(4, 2));
    }
}
