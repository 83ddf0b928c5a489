//! Two or three programs that run one array by different paths to its devices: programs of one
//! host, as multipath gives a drive two names, or of several hosts with the same drives.
//!
//! What must stay true: at most one of them runs it, however the steps of their starts interleave.
//! A start that is refused because the array runs has written nothing. The running program is not
//! disturbed, and stays right. If one ended in the middle of its work, another one follows through
//! other paths.

use crate::abuse::{Abuses, write_some};
use crate::audit;
use crate::life::{Outlook, assemble_on, engine_of, stop};
use crate::stage::Stage;
use ashlar_device::{
    Access, Command, Device, DeviceFacts, OpenRefusal, Opened, Opener, Outcome, Owed,
};
use ashlar_engine::{ArrayState, AssembleSpec, Engine, ProcessState, Runner, event_names};
use ashlar_ondisk::ProcessName;
use ashlar_ring::mailbox::mailbox;
use ashlar_ring::{Completion, Handle};
use ashlar_sim::{SimOpener, Stop};
use ashlar_units::to_usize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// Until the heartbeat has gone on for a while after all starts have ended, and was read on the
/// slowest devices.
const A_WHILE: Duration = Duration::from_secs(15);

impl Abuses<'_> {
    /// One of three: the second comes later, at the same moment, or when the first has ended.
    pub(crate) fn run_twice(&mut self, outlook: &Outlook) {
        match self.random.below(3) {
            0 => self.second_comes_later(outlook),
            1 => self.all_at_once(outlook),
            _ => self.first_has_ended(outlook),
        }
    }

    fn second_comes_later(&mut self, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let (names, second_paths) = (self.drive_slots.names(), self.drive_slots.second_paths());
        let others = match self.random.percent(50) {
            true => ProcessState::Lives,
            false => ProcessState::Unknown,
        };
        let drive_slots = &mut *self.drive_slots;
        let is_stopped = self.world.run(async |handle| {
            let first = engine_by((&opener, 1), ProcessState::Ended, &handle, &stage);
            let running =
                assemble_on((first, names), &handle, &stage, (drive_slots, outlook)).await;
            if running.is_read_only {
                // It is only read, and says so to nobody.
                return true;
            }
            let changes = Arc::new(AtomicU64::new(0));
            let watched = Watched { inner: opener.clone(), changes: Arc::clone(&changes) };
            let runner = process(2, others);
            let second = engine_of((Arc::new(watched), Some(runner)), &handle, &stage);
            let spec = AssembleSpec { devices: second_paths, ..AssembleSpec::default() };
            if second.assemble(spec).await.is_ok() {
                stage.fail("an array that runs was started again by other paths to its devices");
            }
            if changes.load(Ordering::Relaxed) > 0 {
                stage.fail("a start that was refused because the array runs changed a device");
            }
            stage.mark("abuse.second_runner_later");
            goes_on(&running.engine, &stage).await;
            stop((&running.engine, &handle), &stage).await
        });
        if !is_stopped.done() {
            self.stage.mark("abuse.not_stopped_cleanly");
        }
    }

    /// Whoever wins, if anybody does, is not disturbed; the next start finds everything.
    fn all_at_once(&mut self, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let starts = 2 + to_usize(self.random.below(2));
        let are_apart = self.random.percent(50);
        let mut paths = self.drive_slots.all_paths();
        paths.truncate(starts);
        let mut late = || {
            let most = 1 << (4 + self.random.below(21));
            Duration::from_micros(self.random.below(most))
        };
        let paths: Vec<(Duration, Vec<String>)> = paths.drain(..).map(|it| (late(), it)).collect();
        let drive_slots = &mut *self.drive_slots;
        drive_slots.note_start(stage.config());
        self.world
            .run(async |handle| {
                let (mut engines, mut answers) = (Vec::new(), Vec::new());
                for (number, (late, devices)) in (1..).zip(paths) {
                    let runner = match are_apart {
                        true => on_host(number),
                        false => process(number, ProcessState::Lives),
                    };
                    let engine =
                        engine_of((Arc::new(opener.clone()), Some(runner)), &handle, &stage);
                    let (sender, receiver) = mailbox(&handle);
                    let (own, timer) = (engine.clone(), handle.clone());
                    handle.spawn(async move {
                        timer.sleep(late).await;
                        let spec = AssembleSpec { devices, ..AssembleSpec::default() };
                        sender.send(own.assemble(spec).await.is_ok());
                    });
                    engines.push(engine);
                    answers.push(receiver);
                }
                let mut started = Vec::new();
                for (engine, mut answer) in engines.iter().zip(answers) {
                    if answer.receive().await {
                        started.push(engine);
                    }
                }
                handle.sleep(A_WHILE).await;
                let mut are_written = false;
                for engine in &started {
                    are_written |= is_written(engine).await;
                }
                if started.len() > 1 && are_written {
                    stage.fail("two starts at the same moment both came about");
                }
                engines.iter().for_each(|engine| not_disturbed(engine, &stage));
                stage.mark("abuse.second_runner_at_once");
                if are_apart {
                    stage.mark("abuse.second_runner_on_another_host");
                }
                if starts > 2 {
                    stage.mark("abuse.third_runner");
                }
            })
            .done();
        self.world.stop(Stop::Kill);
        self.stage.crashed(Stop::Kill, false);
        self.follow(4, &self.after_a_crash(outlook));
    }

    fn first_has_ended(&mut self, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let names = self.drive_slots.names();
        let drive_slots = &mut *self.drive_slots;
        let may_go_on = self.world.run(async |handle| {
            let first = engine_by((&opener, 1), ProcessState::Ended, &handle, &stage);
            let running =
                assemble_on((first, names), &handle, &stage, (drive_slots, outlook)).await;
            goes_on(&running.engine, &stage).await;
            !running.is_read_only && !stage.errors_are_allowed()
        });
        let may_go_on = may_go_on.done();
        self.world.stop(Stop::Kill);
        self.stage.crashed(Stop::Kill, false);
        if may_go_on {
            self.stage.mark("abuse.second_runner_of_one_that_ended");
            self.follow(2, &self.after_a_crash(outlook));
        }
    }

    fn after_a_crash(&self, outlook: &Outlook) -> Outlook {
        let slots = self.drive_slots.slots();
        let rest = self.drive_slots.at_rest();
        let out = rest.map(|rest| self.drive_slots.maybe_out_at_rest(&rest, slots));
        let is_degraded = out.is_none_or(|out| out.contains(&true));
        let was_degraded = outlook.was_degraded || is_degraded;
        Outlook { was_crash: true, was_degraded, ..*outlook }
    }

    /// A start by the second paths when nobody runs it any more.
    fn follow(&mut self, number: u32, outlook: &Outlook) {
        let (opener, stage) = (self.world.opener(), self.stage.clone());
        let second_paths = self.drive_slots.second_paths();
        let drive_slots = &mut *self.drive_slots;
        self.world
            .run(async |handle| {
                let next = engine_by((&opener, number), ProcessState::Ended, &handle, &stage);
                let next = (next, second_paths);
                let running = assemble_on(next, &handle, &stage, (drive_slots, outlook)).await;
                audit::read_all(&running.engine, &stage).await;
            })
            .done();
    }
}

/// Clients are answered, and what they find is right.
async fn goes_on(engine: &Engine, stage: &Stage) {
    let are_allowed = stage.errors_are_allowed();
    if !are_allowed {
        write_some(engine, stage).await;
    }
    audit::read_all(engine, stage).await;
    not_disturbed(engine, stage);
}

fn not_disturbed(engine: &Engine, stage: &Stage) {
    let events = engine.events().since(0);
    if events.iter().any(|event| event.name == event_names::ARRAY_TAKEN_OVER) {
        stage.fail("an array that runs stopped because of a start that was refused");
    }
}

/// What is only read may be read by both.
async fn is_written(engine: &Engine) -> bool {
    let status = engine.status().await;
    let arrays = status.map_or_else(|_| Vec::new(), |status| status.arrays);
    arrays.iter().any(|array| array.state != ArrayState::ReadOnly)
}

/// Process `number` of the one host, and what it knows of all others.
fn process(number: u32, others: ProcessState) -> Runner {
    Runner {
        host_id: "host".to_owned(),
        boot_id: [1; 16],
        process: Some(ProcessName { id: number, started: u64::from(number), namespaces: 1 }),
        interval: INTERVAL,
        look: Arc::new(move |_| others),
    }
}

/// A process on a host of its own: the others cannot be asked there.
fn on_host(number: u32) -> Runner {
    let boot = u8::try_from(number).expect("few");
    let own = process(number, ProcessState::Unknown);
    Runner { host_id: format!("host-{number}"), boot_id: [boot; 16], ..own }
}

fn engine_by(
    (opener, number): (&SimOpener, u32),
    others: ProcessState,
    handle: &Handle,
    stage: &Stage,
) -> Engine {
    engine_of((Arc::new(opener.clone()), Some(process(number, others))), handle, stage)
}

/// Opens the world's disks, and counts what is done to change them.
struct Watched {
    inner: SimOpener,
    changes: Arc<AtomicU64>,
}

impl Opener for Watched {
    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn Opened>, OpenRefusal> {
        let inner = self.inner.open(path, access)?;
        Ok(Arc::new(WatchedOpening { inner, changes: Arc::clone(&self.changes) }))
    }
}

struct WatchedOpening {
    inner: Arc<dyn Opened>,
    changes: Arc<AtomicU64>,
}

impl Opened for WatchedOpening {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn attach(&self, handle: &Handle) -> Rc<dyn Device> {
        let changes = Arc::clone(&self.changes);
        Rc::new(WatchedDevice { inner: self.inner.attach(handle), changes })
    }
}

struct WatchedDevice {
    inner: Rc<dyn Device>,
    changes: Arc<AtomicU64>,
}

impl Device for WatchedDevice {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn look_at_commands(&self) -> Owed {
        self.inner.look_at_commands()
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    fn submit(&self, offset: u64, command: Command, done: Completion<Outcome>) {
        if !matches!(command, Command::Read(_)) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.submit(offset, command, done);
    }
}
