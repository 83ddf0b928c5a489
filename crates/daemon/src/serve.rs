//! From configuration to a running process, and its orderly end.
//!
//! What must stay true: two daemons never share a control socket. SIGTERM or SIGINT stops every
//! array cleanly, and SIGUSR2 does for the next daemon (`handover`). An array that cannot be
//! assembled is reported and does not stop the others.

use crate::arrays::{Arrays, ListenerSeats};
use crate::config::{Config, NbdLimits};
use crate::configured::Configured;
use crate::descriptors::{self, DESCRIPTORS_MIN};
use crate::drives::watch::Watch;
use crate::events::Events;
use crate::exports::{Export, ExportSetting, Exports, Say};
use crate::gather::{Gather, remembered};
use crate::handover::{HANDED_OVER, hand_over};
use crate::keeper::{self, Keeper};
use crate::kept_memory::TmpfsMemory;
use crate::memory::{self, Sources};
use crate::memory_devices::{self, MemoryDevices};
use crate::nested::{self, NotOwn};
use crate::peer::{Gate, PeerLimits};
use crate::placement::{self, place_workers};
use crate::reclaim::WaitsForWriteBack;
use crate::scrape;
use crate::services::{Service, Services};
use crate::waits::Waits;
use crate::{begin, config, control, convert, panics, process, reclaim, unit};
use ashlar_api::{ApiError, codes};
use ashlar_device::{Opener, PathOpener, Recorder, RecordingOpener};
use ashlar_engine::{Engine, EngineConfig, Event, KeptMemory, Runner};
use ashlar_ring::EntryBytes;
use ashlar_units::{ByteSize, to_u64};
use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// The control socket of the daemon of this machine.
const USUAL_SOCKET: &str = "/run/ashlar/control.sock";
/// How long to wait for devices that a killed predecessor has not let go of yet.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(5);
/// How often to look whether users of attached volumes are gone, once a signal came.
const USERS_POLL: Duration = Duration::from_millis(100);
/// How often to look whether it is time to try again what is missing.
const MISSING_POLL: Duration = Duration::from_secs(1);
/// How long equal faults are counted before they are told once more.
const EVENTS_COUNTED_FOR: Duration = Duration::from_secs(10);

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The control socket.
    pub socket: PathBuf,
    /// The folder for what survives the daemon.
    pub state: PathBuf,
    /// The folder below which attached volumes appear.
    pub folder: PathBuf,
    /// Everything else.
    pub config: Config,
    /// Where to record all that changes devices, for tests of what a power cut leaves
    /// (crates/device/src/record/entry.rs).
    pub record: Option<PathBuf>,
}

/// Run until a signal comes. `say` gets a line for people whenever there is one.
///
/// # Errors
/// The process cannot run arrays, or could not be told anything: the configuration makes no sense,
/// the control socket is taken, the system has no resources. Whatever else cannot be had is missing
/// (`services`), and arrays run without it.
pub fn serve(options: ServeOptions, say: impl Fn(&str) + Send + Sync) -> Result<(), ApiError> {
    let in_reclaim = reclaim::keep_out(&say);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| fault("no resources for an event loop", &error))?;
    panics::end_the_process();
    #[cfg(debug_assertions)]
    std::env::var("ASHLAR_PANIC_AT").into_iter().for_each(ashlar_engine::plant_panic);
    let served = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(options, in_reclaim, say))));
    // Whoever said why ends the process there already, but for panics that were handed on.
    let served = served.unwrap_or_else(|_| std::process::abort());
    // Whoever waits for a device that does not answer may do so for ever.
    runtime.shutdown_background();
    served
}

async fn run(
    mut options: ServeOptions,
    in_reclaim: WaitsForWriteBack,
    say: impl Fn(&str) + Send + Sync,
) -> Result<(), ApiError> {
    options.config.check().map_err(|what| {
        ApiError::new(codes::REQUEST_MALFORMED, what, "correct it; nothing was started")
    })?;
    let descriptors = enough_descriptors()?;
    bound_nvme(&mut options.config, descriptors, &say);
    let opener = PathOpener::with_wait(PREDECESSOR_WAIT);
    let waits = Waits::new(Arc::new(NotOwn::new(Arc::new(opener.clone()))));
    let (mut engine_config, placed, mut lacks) = placed_config(&options, &waits).await?;
    in_reclaim.settle(&mut engine_config, &mut lacks);
    let memory = memory_limit(&options.config, &engine_config, &mut lacks);
    let memory = Arc::new(MemoryDevices::new(opener, memory));
    if let Some(record) = &options.record {
        engine_config.opener = recording(engine_config.opener, record)?;
        say(&format!("recording all writes to {}: this is for tests", record.display()));
    }
    // A thread for each device that is waited for; the workers have requests to carry out.
    let runtime = tokio::runtime::Handle::current();
    engine_config.aside = Arc::new(move |work| drop(runtime.spawn_blocking(work)));
    let kernel = parity_kernel(&mut engine_config, &mut lacks)?;
    let listener = listen(&options.socket)?;
    engine_config.kept_memory = kept_memory(&options, &say);
    let engine = started(engine_config)?;
    reclaim::move_workers(&engine, &in_reclaim, &say);
    let gather = Arc::new(Gather::new(&options.config, &options.state, runner().host_id, &say));
    let events = follow_events(&engine, &options, &gather, &say);
    let services = services(&engine, lacks, &say);
    say(&format!("parity kernel {kernel}"));
    placed.iter().for_each(|line| say(line));
    let setting = ExportSetting {
        engine: engine.clone(),
        folder: options.folder,
        nbd_limits: nbd_limits(&options.config, descriptors, &say),
        boot: runner().boot_id,
        services: Arc::clone(&services),
        keeper: Keeper::of(&options.socket, keeper_wait(&options.config)),
        over_ring: options.config.fuse.as_ref().is_some_and(|fuse| fuse.io_uring),
        gives_links: options.socket == Path::new(USUAL_SOCKET),
    };
    let exports = nested::own(Exports::new(setting));
    let seats = Arc::new(ListenerSeats { control: listener.seats(), metrics: Default::default() });
    let (ready, is_ready) = watch::channel(false);
    let configured = Arc::new(Configured::of(&options.config.array));
    let arrays = Arrays {
        engine: engine.clone(),
        exports,
        memory,
        gather,
        seats,
        started: Instant::now(),
        kernel,
        is_ready,
        events: Arc::clone(&events),
        configured,
        watch: Arc::new(Watch::new(&options.config.drives)),
        services,
    };
    keep_telling(&arrays);
    let starting = Starting { begun: begin(&arrays, &options.config, &waits, &say), ready };
    let control = ControlSocket { gate: listener, path: &options.socket, config: &options.config };
    let because = serve_until_signal(control, &arrays, starting, &say).await;
    if because != HAND_OVER {
        end(&arrays, because, &say).await;
    }
    events.end(because);
    // Somebody may have taken it away already.
    let _gone = std::fs::remove_file(&options.socket);
    if because == HAND_OVER {
        // Nothing is dropped: see there.
        std::process::exit(HANDED_OVER.into());
    }
    Ok(())
}

fn started(config: EngineConfig) -> Result<Engine, ApiError> {
    let engine =
        Engine::start(config).map_err(|error| fault("the workers cannot be started", &error))?;
    reclaim::grow_heaps(&engine);
    Ok(engine)
}

/// What is missing from the beginning.
fn services(engine: &Engine, lacks: Lacks, say: Say<'_>) -> Arc<Services> {
    let services = Arc::new(Services::new(engine.event_log()));
    for (what, reason) in lacks {
        // It is so until the daemon is started anew.
        let line = format!("{what} is missing: {reason}; the arrays run");
        if services.lost(Service::side(what.to_owned()), reason) {
            say(&line);
        }
    }
    services
}

/// Events go out of the process, and what they say of devices that join is remembered.
fn follow_events(
    engine: &Engine,
    options: &ServeOptions,
    gather: &Arc<Gather>,
    say: Say<'_>,
) -> Arc<Events> {
    engine.events().count_within(EVENTS_COUNTED_FOR);
    let gather = Arc::clone(gather);
    let remember = move |event: &Event| gather.note_event(event);
    Events::begin(engine.event_log(), &options.config, &options.state, say, remember)
}

/// Tell the service manager and ask the drives, as long as the process runs.
fn keep_telling(arrays: &Arrays) {
    tokio::spawn(unit::keep_telling(arrays.clone()));
    tokio::spawn(Arc::clone(&arrays.exports).watch_sizes(arrays.engine.clone()));
    tokio::spawn(Arc::clone(&arrays.watch).keep_watching(arrays.clone()));
}

/// How many descriptors this process may have.
///
/// # Errors
/// They are too few.
fn enough_descriptors() -> Result<u64, ApiError> {
    let descriptors = descriptors::raise_limit();
    if descriptors >= DESCRIPTORS_MIN {
        return Ok(descriptors);
    }
    let message = format!("{descriptors} descriptors are too few; nothing was started");
    let hint = format!(
        "raise the limit to {DESCRIPTORS_MIN} or more: ulimit -n, or LimitNOFILE= of its unit"
    );
    Err(ApiError::new(codes::SYSTEM_FAULT, message, &hint))
}

/// NVMe/TCP has a quarter of the descriptors at most; says so if that is less than asked for.
fn bound_nvme(config: &mut Config, descriptors: u64, say: Say<'_>) {
    let Some(nvme) = &mut config.nvme_tcp else { return };
    let most = (descriptors / 4).max(1);
    if nvme.limits().session.sessions_max > most {
        say(&format!(
            "at most {most} NVMe/TCP connections: this process may have {descriptors} descriptors"
        ));
        nvme.connections = Some(most);
    }
}

/// The limits of NBD with no more connections than `descriptors` are enough for; says so if these
/// are fewer than asked for.
fn nbd_limits(config: &Config, descriptors: u64, say: Say<'_>) -> NbdLimits {
    let others = PeerLimits::default().connections + scrape::CONNECTIONS;
    let nvme = config.nvme_tcp.as_ref().map_or(0, |it| it.limits().session.sessions_max);
    let most = descriptors::nbd_connections(descriptors, others).saturating_sub(nvme).max(1);
    let mut limits = config.nbd_limits.clone();
    if limits.limits().session.sessions_max > most {
        say(&format!(
            "at most {most} NBD connections: this process may have {descriptors} descriptors"
        ));
        limits.connections = Some(most);
    }
    limits
}

fn listen(socket: &Path) -> Result<Gate, ApiError> {
    control::listen(socket).map_err(|error| {
        let (what, hint) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                "a daemon runs there already".to_owned(),
                "use it, or name another socket with --socket",
            ),
            io::ErrorKind::AlreadyExists => {
                ("that is not a socket".to_owned(), "name another path with --socket")
            }
            io::ErrorKind::NotFound => (
                "its directory is not there".to_owned(),
                "make the directory, or name another path with --socket",
            ),
            _ => (error.to_string(), "name a path that you may write to with --socket"),
        };
        ApiError::new(
            codes::SYSTEM_FAULT,
            format!("{}: {what}; nothing was started", socket.display()),
            hint,
        )
    })
}

/// How long users of attached files wait while no daemon runs.
fn keeper_wait(config: &Config) -> Duration {
    let seconds = config.fuse.as_ref().and_then(|fuse| fuse.keeper_wait_s);
    seconds.map_or(keeper::WAIT, Duration::from_secs)
}

/// Memory beside the control socket that outlives this process. Not where tests cut the power
/// though the machine runs on.
fn kept_memory(options: &ServeOptions, say: Say<'_>) -> Option<Arc<dyn KeptMemory>> {
    if options.record.is_some() {
        return None;
    }
    let why = match TmpfsMemory::beside(&options.socket, runner().boot_id) {
        Ok(Some(memory)) => return Some(Arc::new(memory)),
        Ok(None) => "its directory is not on tmpfs".to_owned(),
        Err(error) => error.to_string(),
    };
    let socket = options.socket.display();
    say(&format!("first writes of stripes wait for flushes: no kept map beside {socket}, {why}"));
    None
}

/// `opener`, with a record of all that changes what it opens.
fn recording(opener: Arc<dyn Opener>, record: &Path) -> Result<Arc<dyn Opener>, ApiError> {
    let recorder = Recorder::create(record)
        .map_err(|error| fault(&format!("no record at {}", record.display()), &error))?;
    Ok(Arc::new(RecordingOpener::new(opener, Arc::new(recorder))))
}

/// Settings that this machine cannot follow, and why: it goes on with the usual ones.
type Lacks = Vec<(&'static str, String)>;

/// Also what to say of where the workers are, and what of it cannot be had.
///
/// # Errors
/// The workers can never be there.
async fn placed_config(
    options: &ServeOptions,
    waits: &Waits,
) -> Result<(EngineConfig, Option<String>, Lacks), ApiError> {
    let config = &options.config;
    let near = placement::nodes_of_drives(config, &options.state).await;
    let mut engine = engine_config(config, waits);
    let placed = place_workers(&config.serve, &near, &mut engine)?;
    let mut lacks: Lacks =
        placed.lacks.into_iter().map(|why| ("the cores of workers", why)).collect();
    size_pools(config, &mut engine, &mut lacks);
    Ok((engine, placed.told, lacks))
}

/// Kernels of other CPUs: a server may get another one.
const KERNELS: [&str; 6] = ["avx512+gfni", "avx2+gfni", "avx512bw", "avx2", "ssse3", "neon"];

/// The name of the parity kernel: the one that was asked for, or the fastest where this CPU is of
/// another kind.
///
/// # Errors
/// No CPU has it.
fn parity_kernel(engine: &mut EngineConfig, lacks: &mut Lacks) -> Result<&'static str, ApiError> {
    let refusal = match engine.parity_kernel() {
        Ok(kernel) => return Ok(kernel.name()),
        Err(refusal) => refusal,
    };
    let asked = engine.kernel.take().unwrap_or_default();
    if !KERNELS.contains(&asked.as_str()) {
        return Err(convert::refusal(refusal));
    }
    let name = engine.parity_kernel().map_err(convert::refusal)?.name();
    lacks.push(("the parity kernel", format!("this CPU has no '{asked}', so it is {name}")));
    Ok(name)
}

fn engine_config(config: &Config, waits: &Waits) -> EngineConfig {
    let mut engine = EngineConfig::new(Arc::new(waits.clone()));
    engine.signatures = Some(config::foreign_signatures());
    engine.wiper = config::wiper();
    engine.runner = Some(runner());
    engine.panics_end_process = true;
    engine.spin_most = config.serve.spin_us.unwrap_or_default().most();
    if config.fuse.as_ref().is_some_and(|fuse| fuse.io_uring) {
        engine.ring_entry_bytes = EntryBytes::Wide;
    }
    engine.kernel.clone_from(&config.serve.kernel);
    engine.tuning = config.tuning.over(engine.tuning);
    engine
}

/// Memory for payloads, of all workers: what is asked for, or the usual if that is more than this
/// process may have. A machine may have lost memory since it was configured.
fn size_pools(config: &Config, engine: &mut EngineConfig, lacks: &mut Lacks) {
    let usual = to_u64(engine.payload_bytes * engine.worker_count);
    let limit = Sources::own().limit_bytes();
    let sized = |asked| memory::payload_bytes(asked, usual, limit);
    let payload = sized(config.serve.pool.map(|pool| pool.0));
    let payload = payload.or_else(|what| {
        lacks.push(("the pool", format!("{what}, so it has the usual size; {LESS}")));
        sized(None)
    });
    let payload = payload.unwrap_or(usual);
    engine.payload_bytes = convert::payload_bytes(ByteSize(payload), engine.worker_count);
}

/// What to do where more memory is asked for than there is.
const LESS: &str = "ask for less, or raise the limit, and restart the daemon";

/// The most that memory devices may take, in bytes: what is asked for, or the usual.
fn memory_limit(config: &Config, engine: &EngineConfig, lacks: &mut Lacks) -> u64 {
    let pool_bytes = to_u64(engine.payload_bytes).saturating_mul(to_u64(engine.worker_count));
    let process = Sources::own().limit_bytes();
    let sized = |asked| memory_devices::limit_bytes(asked, pool_bytes, process);
    let limit = sized(config.serve.memory_devices.map(|size| size.0));
    let limit = limit.or_else(|what| {
        lacks.push(("memory for memory devices", format!("{what}, so it is the usual; {LESS}")));
        sized(None)
    });
    limit.unwrap_or(0)
}

/// Time between two heartbeats on the members.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// This host, this boot and this process, as the heartbeats name them.
fn runner() -> Runner {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let boot = read("/proc/sys/kernel/random/boot_id").replace('-', "");
    Runner {
        host_id: read("/proc/sys/kernel/hostname"),
        boot_id: u128::from_str_radix(&boot, 16).unwrap_or(0).to_be_bytes(),
        process: process::own(),
        interval: HEARTBEAT_EVERY,
        look: Arc::new(process::look),
    }
}

/// The signal that hands over.
const HAND_OVER: &str = "SIGUSR2";

/// Everything that the configuration names.
async fn begin(arrays: &Arrays, config: &Config, waits: &Waits, say: Say<'_>) {
    for export in arrays.exports.iter() {
        export.prepare(config, say).await;
    }
    begin::begin(arrays, config, waits, &say).await;
    arrays.gather.look_and_say(arrays, say).await;
    serve_ways(arrays, config, say).await;
}

/// Serve what is configured and is not served yet.
async fn serve_ways(arrays: &Arrays, config: &Config, say: Say<'_>) {
    for export in arrays.exports.iter() {
        export.begin(config, say).await;
    }
    scrape::begin(arrays, config, say).await;
}

/// Try again what is missing, for ever.
async fn keep_serving(arrays: &Arrays, config: &Config, say: Say<'_>) {
    loop {
        tokio::time::sleep(MISSING_POLL).await;
        tell_remembered(arrays, say);
        if arrays.services.is_due(Instant::now()) {
            serve_ways(arrays, config, say).await;
            arrays.attach_what_is_missing(say).await;
            arrays.gather.remembered.try_again().await;
            look_at_damage(arrays).await;
            tell_remembered(arrays, say);
        }
    }
}

/// What should be remembered and is not is missing like anything else beside the arrays.
fn tell_remembered(arrays: &Arrays, say: Say<'_>) {
    let missing = arrays.gather.remembered.missing();
    for name in [remembered::UNWRITTEN, remembered::DAMAGED] {
        if !missing.iter().any(|it| it.name == name) {
            arrays.services.there(name);
        }
    }
    for it in missing {
        let is_told = it.name == remembered::DAMAGED;
        let service = Service { name: it.name, array: String::new(), is_way: it.is_way };
        match is_told {
            // At the start.
            true => drop(arrays.services.lost(service, it.reason)),
            false => arrays.services.note(service, Err(it.reason), say),
        }
    }
}

async fn look_at_damage(arrays: &Arrays) {
    let gather = Arc::clone(&arrays.gather);
    let look = move || {
        gather.remembered.look_at_damage();
        Ok(())
    };
    // A directory that does not answer changes nothing.
    let _late = arrays.services.look(remembered::DAMAGED, look).await;
}

/// Where calls come in.
struct ControlSocket<'a> {
    gate: Gate,
    path: &'a Path,
    config: &'a Config,
}

/// What is configured, while it is being started.
struct Starting<F> {
    begun: F,
    /// Told when it runs.
    ready: watch::Sender<bool>,
}

/// Starts what is configured, and answers meanwhile and from then on, until a signal comes and no
/// attached volume is in use, or a second signal comes, or all arrays are handed over. Which signal
/// it was.
async fn serve_until_signal(
    control: ControlSocket<'_>,
    arrays: &Arrays,
    starting: Starting<impl Future<Output = ()>>,
    say: Say<'_>,
) -> &'static str {
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut successor)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::user_defined2()),
    ) else {
        return "signals cannot be received";
    };
    const GONE: &str = "the control socket is gone";
    let mut server = pin!(async {
        let mut is_ready = arrays.is_ready.clone();
        let gather = async {
            // Without a sender the process ends.
            drop(is_ready.wait_for(|is_ready| *is_ready).await);
            tokio::join!(
                arrays.gather.keep_looking(arrays, say),
                keep_serving(arrays, control.config, say),
            );
        };
        tokio::select! {
            // It never ends by itself.
            _ = control::answer(control.gate, arrays.clone()) => {}
            () = gather => {}
        }
    });

    let mut begun = pin!(starting.begun);
    let mut next_signal = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let is_begun = tokio::select! {
        // It never ends by itself.
        _ = &mut server => return GONE,
        () = &mut begun => Ok(()),
        first = next_signal() => Err(first),
    };
    let first = match is_begun {
        Ok(()) => {
            starting.ready.send_replace(true);
            unit::tell_ready();
            say(&format!("serving, control socket {}", control.path.display()));
            loop {
                tokio::select! {
                    _ = &mut server => return GONE,
                    first = next_signal() => break first,
                    _ = successor.recv() => match hand_over(arrays, say).await {
                        Ok(()) => return HAND_OVER,
                        Err(why) => say(&format!("not handed over: {why}; it goes on here")),
                    },
                }
            }
        }
        Err(first) => {
            say(&format!("{first}: arrays that are being started are stopped when they run"));
            tokio::select! {
                _ = &mut begun => {}
                _ = next_signal() => {}
            }
            first
        }
    };
    unit::tell_stopping();
    arrays.gather.end();
    tokio::select! {
        _ = &mut server => {}
        () = let_users_finish(arrays, say) => {}
        second = next_signal() => say(&format!("{second} again: volumes in use are dropped")),
    }
    first
}

/// Detach all volumes, each as soon as nobody has it open: a mounted file system would lose what it
/// has not written.
async fn let_users_finish(arrays: &Arrays, say: Say<'_>) {
    let mut told = BTreeSet::new();
    loop {
        let attached = |export| Export::attached(export).into_iter().map(move |it| (export, it));
        let attached: Vec<_> = arrays.exports.iter().flat_map(attached).collect();
        if attached.is_empty() {
            return;
        }
        for (export, volume) in attached {
            match export.detach(&volume).await {
                Ok(_) => {}
                Err(refusal) if refusal.code == codes::EXPORT_BUSY => {
                    if told.insert((export.name(), volume)) {
                        say(&format!("waiting for users (a second signal drops them): {refusal}"));
                    }
                }
                Err(_) => export.drop_users_of(&volume).await,
            }
        }
        tokio::time::sleep(USERS_POLL).await;
    }
}

/// Let go of everything, in the order that lets clients finish first.
async fn end(arrays: &Arrays, because: &str, say: Say<'_>) {
    say(&format!("stopping ({because})"));
    for array in arrays.engine.arrays() {
        let name = array.name().to_owned();
        drop(array);
        let is_in_memory = !arrays.memory_of(&name).await.is_empty();
        match arrays.stop(&name).await {
            Ok(line) if is_in_memory => say(&format!("{line}; it was in memory and is gone now")),
            Ok(line) => say(&line),
            Err(refusal) => say(&refusal.to_string()),
        }
    }
    arrays.gather.remembered.settle().await.iter().for_each(|line| say(line));
    arrays.exports.iter().for_each(Export::remove);
    arrays.engine.shut_down();
}

fn fault(what: &str, error: &io::Error) -> ApiError {
    let message = format!("{what}: {error}; nothing was started");
    ApiError::new(
        codes::SYSTEM_FAULT,
        message,
        "see limits on memory, files and io_uring of this user",
    )
}
