//! The world: its disks, its clock and its schedule, and how a program in it is run and stopped.
//!
//! What must stay true: a program runs until it ends or is stopped at a device operation. A stop
//! ends the executor with all its tasks, while disks and clock go on. The seed decides what the
//! disks keep. Not here: what a single disk does (`state`, `device`).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use ashlar_device::{Command, CommandKind};
use ashlar_ring::{Executor, Handle, Schedule, VirtualClock, VirtualReactor};
use ashlar_units::{Extent, Nanos};

use crate::disk::{DiskOptions, SimDisk};
use crate::memory::{Memory, SimMemory};
use crate::opener::SimOpener;
use crate::random::Random;
use crate::state::DiskState;
use crate::trace::{Kept, Operation, Trace};

/// A deterministic world. Not Send: it runs on the thread that made it.
pub struct SimWorld {
    world: Arc<World>,
    host: Option<Host>,
    /// Time at the end of the last host.
    now: Nanos,
}

/// Stops the program of a world from inside it. Clones are the same switch.
#[derive(Clone)]
pub struct SimSwitch(Arc<World>);

impl SimSwitch {
    /// As [`SimWorld::stop_at`], but `operations` from now.
    pub fn stop_after(&self, operations: u64, stop: Stop) {
        let mut state = self.0.lock();
        let number = state.operations + operations.max(1);
        state.stop_at = Some((number, stop));
    }

    /// Stops the program when it submits the `count`-th write from now that begins in `place` of
    /// any disk. That operation counts as under way. [`SimWorld::call_off`] undoes it.
    pub fn stop_at_write_in(&self, place: Extent, count: u64, stop: Stop) {
        self.0.lock().stop_at_write = Some((place, count.max(1), stop));
    }

    /// How many operations were submitted so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }
}

/// The machine that the program runs on: gone after each stop.
struct Host {
    executor: Executor,
    clock: VirtualClock,
}

/// What all disks, openings and devices of a world share.
pub(crate) struct World(Mutex<State>);

pub(crate) struct State {
    seed: u64,
    pub(crate) disks: Vec<DiskState>,
    pub(crate) openings: u64,
    pub(crate) trace: Trace,
    /// Counts hosts, so that operations of one that is gone are known.
    pub(crate) host: u64,
    operations: u64,
    stop_at: Option<(u64, Stop)>,
    /// Writes that begin where count, how many more of them, and how it stops then.
    stop_at_write: Option<(Extent, u64, Stop)>,
    stopped: Option<Stop>,
    /// What programs keep in memory beside the disks: see [`SimMemory`].
    pub(crate) memory: Memory,
    waker: Option<Waker>,
}

/// How a running program is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Power is gone everywhere: of what is not durable a subset of chance survives.
    PowerCut,
    /// The program is killed; disks keep their caches, and commands under way take effect or not,
    /// by chance.
    Kill,
    /// As a power cut, but what becomes of what is not durable is left to the test, which settles
    /// every disk ([`SimDisk::settle`]) before the next program runs.
    Freeze,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended<T> {
    /// The program came to its end.
    Done(T),
    /// It was stopped; disks are as a restart finds them.
    Stopped(Stop),
}

impl<T> Ended<T> {
    /// The program's result.
    ///
    /// # Panics
    /// If it was stopped.
    #[track_caller]
    pub fn done(self) -> T {
        match self {
            Ended::Done(value) => value,
            Ended::Stopped(stop) => panic!("the program was stopped: {stop:?}"),
        }
    }
}

impl SimWorld {
    /// The world of `seed`, without disks.
    pub fn new(seed: u64) -> SimWorld {
        let state = State {
            seed,
            disks: Vec::new(),
            openings: 0,
            trace: Trace::default(),
            host: 0,
            operations: 0,
            stop_at: None,
            stop_at_write: None,
            stopped: None,
            memory: Memory::default(),
            waker: None,
        };
        SimWorld { world: Arc::new(World(Mutex::new(state))), host: None, now: Nanos(0) }
    }

    /// Adds a blank disk.
    ///
    /// # Panics
    /// If there is one of that name, or if the options contradict each other.
    pub fn add_disk(&mut self, name: &str, options: DiskOptions) -> SimDisk {
        options.check();
        let mut state = self.world.lock();
        assert!(state.disk_at(name).is_none(), "disk {name} is there already");
        let at = state.disks.len();
        let purpose = 1 + u64::try_from(at).expect("few disks");
        let random = Random::stream(state.seed, purpose);
        state.disks.push(DiskState::new(name.to_owned(), options, random));
        drop(state);
        SimDisk { world: Arc::clone(&self.world), at }
    }

    /// Gives a disk another name. Exclusive openings by one name do not exclude those by another:
    /// two paths to one drive.
    ///
    /// # Panics
    /// If there is a disk of that name, or none called `of`.
    pub fn add_path(&mut self, of: &str, name: &str) {
        let mut state = self.world.lock();
        assert!(state.disk_at(name).is_none(), "disk {name} is there already");
        let at = state.disk_at(of).expect("a disk to be named");
        state.disks[at].other_paths.push(name.to_owned());
    }

    /// Each of two further names of disks leads where the other one did.
    ///
    /// # Panics
    /// If one of them is no further name of a disk.
    pub fn exchange_paths(&mut self, one: &str, other: &str) {
        let mut state = self.world.lock();
        let place = |name: &str| {
            let at = state.disk_at(name).expect("a disk of that name");
            let path = state.disks[at].other_paths.iter().position(|path| path == name);
            (at, path.expect("a further name"))
        };
        let (one_place, other_place) = (place(one), place(other));
        state.disks[one_place.0].other_paths[one_place.1] = other.to_owned();
        state.disks[other_place.0].other_paths[other_place.1] = one.to_owned();
    }

    /// The disk of that name.
    pub fn disk(&self, name: &str) -> Option<SimDisk> {
        let at = self.world.lock().disk_at(name)?;
        Some(SimDisk { world: Arc::clone(&self.world), at })
    }

    /// What stops the program from inside: for programs that plan their own end.
    pub fn switch(&self) -> SimSwitch {
        SimSwitch(Arc::clone(&self.world))
    }

    /// Memory that outlives a killed program.
    pub fn memory(&self) -> SimMemory {
        SimMemory::of(&self.world)
    }

    /// What opens the disks by name.
    pub fn opener(&self) -> SimOpener {
        SimOpener(Arc::clone(&self.world))
    }

    /// Runs `program` until it ends or is stopped. Tasks it leaves behind go on with the next run,
    /// unless there was a stop: then the executor is made anew.
    ///
    /// # Panics
    /// If the program deadlocks: all its tasks wait, and no disk owes an answer.
    pub fn run<T>(&mut self, program: impl AsyncFnOnce(Handle) -> T) -> Ended<T> {
        let world = Arc::clone(&self.world);
        let host = self.host.get_or_insert_with(|| Host::start(&world, self.now));
        let handle = host.executor.handle();
        let ended = host.executor.block_on(async {
            let mut program = pin!(program(handle));
            poll_fn(|cx| {
                let polled = program.as_mut().poll(cx);
                let mut state = world.lock();
                match (state.stopped, polled) {
                    (Some(stop), _) => Poll::Ready(Ended::Stopped(stop)),
                    (None, Poll::Ready(value)) => Poll::Ready(Ended::Done(value)),
                    (None, Poll::Pending) => {
                        state.waker = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await
        });
        if matches!(ended, Ended::Stopped(_)) {
            self.end_host();
        }
        ended
    }

    /// Stops the program now, between two runs: with all tasks that earlier runs left behind.
    pub fn stop(&mut self, stop: Stop) {
        self.world.lock().stop(stop);
        self.end_host();
    }

    /// Stops the program when it submits operation `number`, counted over all disks from the
    /// world's beginning: see [`operations`](Self::operations). That operation counts as under way.
    pub fn stop_at(&mut self, number: u64, stop: Stop) {
        self.world.lock().stop_at = Some((number, stop));
    }

    /// Undoes [`stop_at`](Self::stop_at). False if there was nothing to undo.
    pub fn call_off(&mut self) -> bool {
        let mut state = self.world.lock();
        let had_place = state.stop_at_write.take().is_some();
        state.stop_at.take().is_some() || had_place
    }

    /// How many operations were submitted so far.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// The last operations, oldest first: what to print when a seed fails.
    pub fn last_operations(&self) -> Vec<Operation> {
        let state = self.world.lock();
        let named = |kept: &Kept| {
            let Kept { number, at, disk, kind, offset, bytes } = *kept;
            Operation { number, at, disk: state.disks[disk].name.clone(), kind, offset, bytes }
        };
        state.trace.last().map(named).collect()
    }

    /// Identifies all that happened so far: the same for the same seed and program.
    pub fn trace_hash(&self) -> u64 {
        self.world.lock().trace.hash()
    }

    /// The world's time.
    pub fn now(&self) -> Nanos {
        self.host.as_ref().map_or(self.now, |host| host.clock.now())
    }

    fn end_host(&mut self) {
        self.now = self.now();
        // Dropping tasks may drop openings, which lock the world: it must not be locked here.
        drop(self.host.take());
        let mut state = self.world.lock();
        state.host += 1;
        state.stopped = None;
        state.waker = None;
    }
}

impl Host {
    fn start(world: &World, now: Nanos) -> Host {
        let seed = {
            let state = world.lock();
            Random::stream(state.seed, u64::MAX - state.host).next_u64()
        };
        let reactor = VirtualReactor::starting_at(now);
        let clock = reactor.clock();
        Host { executor: Executor::new(Box::new(reactor), Schedule::Seeded(seed)), clock }
    }
}

impl World {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic the test is over; what is dropped then still wants to look in.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The number of the disk that is called so, perhaps among other names.
    pub(crate) fn disk_at(&self, name: &str) -> Option<usize> {
        let is_it =
            |disk: &DiskState| disk.name == name || disk.other_paths.iter().any(|it| it == name);
        self.disks.iter().position(is_it)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Counts and traces an operation; returns its number.
    pub(crate) fn note_submitted(
        &mut self,
        at: Nanos,
        disk: usize,
        offset: u64,
        command: &Command,
    ) -> u64 {
        self.operations += 1;
        let operation = Kept {
            number: self.operations,
            at,
            disk,
            kind: command.kind(),
            offset,
            bytes: command.bytes(),
        };
        for number in [disk, operation.kind.at()] {
            self.trace.add(u64::try_from(number).expect("a small index"));
        }
        for number in [at.0, offset, operation.bytes] {
            self.trace.add(number);
        }
        match command {
            Command::Write(buffer) | Command::WriteWhole(buffer) => self.trace.add_bytes(buffer),
            Command::WriteParts { parts, .. } => {
                parts.iter().for_each(|part| self.trace.add_bytes(part));
            }
            _ => {}
        }
        self.trace.keep(operation);
        self.operations
    }

    pub(crate) fn stop_if_due(&mut self, number: u64, (kind, offset): (CommandKind, u64)) {
        if let Some((place, left, stop)) = &mut self.stop_at_write
            && matches!(kind, CommandKind::Write | CommandKind::WriteDurable)
            && (place.offset..place.end()).contains(&offset)
        {
            *left -= 1;
            if *left == 0 {
                let stop = *stop;
                return self.stop(stop);
            }
        }
        if let Some((due, stop)) = self.stop_at
            && number >= due
        {
            self.stop(stop);
        }
    }

    fn stop(&mut self, stop: Stop) {
        self.stop_at = None;
        self.stop_at_write = None;
        self.stopped = Some(stop);
        if stop != Stop::Kill {
            self.memory.lose_power();
        }
        for disk in &mut self.disks {
            match stop {
                Stop::PowerCut => disk.lose_power(),
                Stop::Kill => disk.lose_host(),
                Stop::Freeze => disk.let_go(),
            }
        }
        self.trace.add(u64::from(stop == Stop::PowerCut));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl DiskState {
    pub(crate) fn draw_latency(&mut self, kind: CommandKind) -> Duration {
        let range = self.options.latency.of(kind);
        let (least, most) = (range.start().as_nanos(), range.end().as_nanos());
        let span = u64::try_from(most.saturating_sub(least)).unwrap_or(u64::MAX - 1);
        let least = u64::try_from(least).unwrap_or(u64::MAX);
        Duration::from_nanos(least.saturating_add(self.random.below(span.saturating_add(1).max(1))))
    }
}
