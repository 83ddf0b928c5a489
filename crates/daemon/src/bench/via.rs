//! `ashlar bench --via`: what an export costs on top of the engine.
//!
//! A daemon of its own serves an array of memory devices, and a client made for the purpose asks
//! through the export. In turns with it, the same requests go to the engine in this process, and to
//! a peer that serves memory the same way, if one is installed.
//!
//! What must stay true: what is compared was measured in turns, in one run, by one client; figures
//! are medians of the turns; CPU time of the daemon is that of its threads alone, never of the
//! client or of the kernel's own threads.
//!
//! - `load`    what is asked for, and what came of it
//! - `blocks`, `nbd`, `nvme`, `vhost` clients of files and devices, of NBD, of NVMe/TCP, of
//!   vhost-user
//! - `child`   the daemon
//! - `peer`    others that serve memory
//! - `report`  what is told
//! - `interrupt` signals, and what they end

mod blocks;
mod child;
mod interrupt;
mod load;
mod nbd;
mod nvme;
mod peer;
mod report;
mod vhost;

pub use report::{EngineFigures, ExportFigures, Figures, PeerFigures, ViaResult};

use super::clients::FILL_BYTES;
use super::{BenchResult, BenchSpec, Load, run};
use ashlar_api::{ApiError, codes};
use blocks::Blocks;
use child::{Daemon, ExportLooks, Folder, fault};
use load::{Asked, Effort, Until};
use nbd::Nbd;
use nvme::Nvme;
use peer::{Loop, OtherExporter};
use report::Turn;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vhost::Vhost;

/// Requests under way while a volume is filled.
const FILL_DEPTH: usize = 4;
/// How long that may take.
const FILL_MAX: Duration = Duration::from_secs(120);
/// How much larger than the span a member is, in bytes: room for its own areas. What is not touched
/// takes no memory.
const MEMBER_BYTES_MORE: u64 = 256 << 20;

/// A way to a volume that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// NBD on a Unix socket.
    Nbd,
    /// The file of an attached volume.
    Fuse,
    /// A loop device over that file.
    Loop,
    /// The block device of an attached volume, by ublk.
    Ublk,
    /// vhost-user-blk.
    VhostUser,
    /// NVMe/TCP on this machine.
    NvmeTcp,
}

impl Via {
    /// What operators call it.
    pub fn name(self) -> &'static str {
        match self {
            Via::Nbd => "nbd",
            Via::Fuse => "fuse",
            Via::Loop => "loop",
            Via::Ublk => "ublk",
            Via::VhostUser => "vhost-user",
            Via::NvmeTcp => "nvme-tcp",
        }
    }

    /// Whether one connection, and with it one worker, takes all requests.
    fn is_one_connection(self) -> bool {
        matches!(self, Via::Nbd | Via::NvmeTcp | Via::VhostUser)
    }
}

/// What to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViaSpec {
    /// Through what.
    pub via: Via,
    /// The array and the load. Members are memory; `depth` is that of the client.
    pub bench: BenchSpec,
    /// How many turns.
    pub turns: usize,
    /// How long its workers look for work before they sleep, in microseconds; `None`: as usual.
    pub spin_us: Option<u16>,
    /// The program that is the daemon.
    pub program: PathBuf,
}

/// Asks for what is to be measured, over one way.
trait Client {
    /// Ask until there is enough, then wait for what is under way.
    fn drive(&mut self, asked: &Asked, until: Until) -> io::Result<Effort>;
}

/// Measure.
///
/// # Errors
/// The export cannot be had here, an array cannot be, or a request failed.
pub fn measure(spec: &ViaSpec) -> Result<ViaResult, ApiError> {
    let (asked, bench) = (asked(spec)?, engine_spec(spec));
    interrupt::listen().map_err(|error| fault("signals cannot be listened to", error))?;
    let folder = Folder::make().map_err(|error| fault("no temporary directory", error))?;
    let mut peers = peer::peers(spec.via, &asked, &folder);
    let daemon = Daemon::start(spec, &bench, &folder)?;
    let (mut client, under) = reach(spec.via, &daemon.at)
        .map_err(|error| fault(&format!("no way to the volume at {}", daemon.at), error))?;
    fill(&mut *client, &asked, "the volume")?;
    for OtherExporter { name, client, .. } in &mut peers {
        fill(&mut **client, &asked, name)?;
    }
    let mut turns = Vec::new();
    for _ in 0..spec.turns {
        turns.push(turn(&bench, &daemon, &mut *client, &mut peers, &asked)?);
    }
    drop((client, under));
    daemon.detach();
    drop(daemon);
    Ok(report::result(spec, &turns))
}

/// What the client asks for: a whole number of requests.
fn asked(spec: &ViaSpec) -> Result<Asked, ApiError> {
    let load = spec.bench.load;
    let malformed = |message: String| {
        ApiError::new(codes::REQUEST_MALFORMED, message, "take a smaller request or a larger span")
    };
    let bytes = u32::try_from(load.bytes).map_err(|error| malformed(error.to_string()))?;
    let span_bytes = spec.bench.span_bytes / FILL_BYTES * FILL_BYTES;
    if load.start_bytes.saturating_add(u64::from(bytes) * 2) > span_bytes {
        return Err(malformed(format!("requests of {bytes} bytes do not fit the span")));
    }
    let Load { is_write, is_random, streams, start_bytes, depth, .. } = load;
    Ok(Asked { is_write, is_random, streams, start_bytes, bytes, depth, span_bytes })
}

/// The same load for the engine alone: on as many workers as the client reaches, and in total as
/// deep.
fn engine_spec(spec: &ViaSpec) -> BenchSpec {
    let mut bench = spec.bench.clone();
    bench.clients_on = if spec.via.is_one_connection() || bench.load.depth == 1 { 1 } else { 0 };
    if bench.clients_on == 0 {
        bench.load.depth = bench.load.depth.div_ceil(bench.worker_count());
    }
    bench.member_bytes = Some(bench.span_bytes + MEMBER_BYTES_MORE);
    bench
}

/// The client of the export at `at`, and what must be there for it.
fn reach(via: Via, at: &str) -> io::Result<(Box<dyn Client>, Option<Loop>)> {
    let path = Path::new(at);
    Ok(match via {
        Via::Nbd => (Box::new(Nbd::connect(path, super::NAME)?), None),
        Via::NvmeTcp => (Box::new(Nvme::connect(at)?), None),
        Via::Fuse | Via::Ublk => (Box::new(Blocks::open(path)?), None),
        Via::Loop => {
            let device = Loop::over(path)?;
            (Box::new(Blocks::open(device.path())?), Some(device))
        }
        Via::VhostUser => (Box::new(Vhost::connect(path)?), None),
    })
}

/// Write the whole span once: what was never written costs nothing to read.
fn fill(client: &mut dyn Client, asked: &Asked, what: &str) -> Result<(), ApiError> {
    let bytes = u32::try_from(FILL_BYTES).expect("1 MiB");
    let (depth, streams) = (FILL_DEPTH, 1);
    let once = Asked { is_write: true, is_random: false, bytes, depth, streams, ..*asked };
    let once = Asked { start_bytes: 0, ..once };
    let effort = client.drive(&once, Until::asked(asked.span_bytes / FILL_BYTES, FILL_MAX));
    let effort = effort.map_err(|error| fault(&format!("{what} cannot be filled"), error))?;
    interrupt::check()?;
    match effort.requests() * FILL_BYTES >= asked.span_bytes {
        true => Ok(()),
        false => Err(fault(&format!("{what} cannot be filled"), "it takes too long")),
    }
}

/// The engine alone, then the export, then the peers.
fn turn(
    bench: &BenchSpec,
    daemon: &Daemon,
    client: &mut dyn Client,
    peers: &mut [OtherExporter],
    asked: &Asked,
) -> Result<Turn, ApiError> {
    let engine: BenchResult = run(bench)?;
    let before = daemon.look()?;
    let effort = client.drive(asked, Until::after(bench.run_time));
    let mut effort = effort.map_err(|error| fault("a request over the export failed", error))?;
    let looks = ExportLooks { before, after: daemon.look()? };
    let export = report::export_turn(&mut effort, &looks);
    let mut others = Vec::new();
    for peer in peers {
        let effort = peer.client.drive(asked, Until::after(bench.run_time));
        let mut effort =
            effort.map_err(|error| fault(&format!("a request to {} failed", peer.name), error))?;
        others.push((peer.name, report::figures(&mut effort)));
    }
    interrupt::check()?;
    Ok(Turn { engine: report::engine_turn(&engine), export, others })
}
