//! The kinds of requests that are counted, each on an array of its own.

use crate::members::{Keep, Manner, MemberOpener};
use ashlar_engine::{ArrayVolume, AssembleSpec, CreateSpec, Engine, EngineConfig};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use ashlar_ring::local::Signal;
use ashlar_ring::{Executor, Handle, Schedule, VirtualReactor};
use ashlar_units::{BLOCK_BYTES, Extent, MemberIdx, to_u64, to_usize};
use ashlar_volume::{Command, Reply, Request, Volume};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Requests under way.
const DEPTH: u64 = 32;
/// Part of the volume that is written once, and then asked for, bytes.
const SPAN_BYTES: u64 = 32 << 20;
const FILL_BYTES: u64 = 1 << 20;
const MEMBER_BYTES: u64 = 128 << 20;
const STRIP_BYTES: u64 = 64 << 10;
const NAME: &str = "counted";

/// One kind of request.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name in the file of limits.
    pub name: &'static str,
    members: usize,
    lost: u16,
    policy: ConsistencyPolicy,
    checksums: ChecksumKind,
    keep: Keep,
    is_write: bool,
    bytes: u64,
}

/// A random write of one block to RAID 6 4+2 that forgets.
const WRITE: Kind = Kind {
    name: "write",
    members: 6,
    lost: 0,
    policy: ConsistencyPolicy::Bitmap,
    checksums: ChecksumKind::None,
    keep: Keep::Nothing,
    is_write: true,
    bytes: BLOCK_BYTES,
};
const READ: Kind = Kind { name: "read", is_write: false, ..WRITE };

/// With checksums. They need what was written, so the count includes copies of blocks.
const fn checked(name: &'static str, kind: Kind) -> Kind {
    let (policy, checksums) = (ConsistencyPolicy::Log, ChecksumKind::Crc32c);
    Kind { name, policy, checksums, keep: Keep::All, ..kind }
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        WRITE,
        READ,
        Kind { name: "full-stripe", members: 10, bytes: 8 * STRIP_BYTES, ..WRITE },
        Kind { name: "late-write", keep: Keep::NothingAndLate, ..WRITE },
        Kind { name: "logged-write", policy: ConsistencyPolicy::Log, ..WRITE },
        Kind { name: "degraded-read", lost: 2, ..READ },
        checked("checked-read", READ),
        checked("checked-write", WRITE),
    ];

    /// The kind of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> Kind {
        let found = Kind::ALL.into_iter().find(|kind| kind.name == name);
        found.unwrap_or_else(|| panic!("no kind of request is called '{name}'"))
    }

    fn create_spec(self) -> CreateSpec {
        CreateSpec {
            name: NAME.to_owned(),
            devices: self.devices(),
            shape: Shape {
                level: Level::Raid6,
                members: self.members,
                parity: None,
                group_members: None,
                strip_bytes: STRIP_BYTES,
                declustered: None,
            },
            enclosures: None,
            policy: self.policy,
            checksums: self.checksums,
            atomic_write_bytes: 0,
            logical_block_bytes: 4096,
            region_bytes: None,
            member_bytes: None,
            destroy: Vec::new(),
            is_dry_run: false,
        }
    }

    fn devices(self) -> Vec<String> {
        (0..self.members).map(|at| format!("member{at}")).collect()
    }
}

/// How requests are carried out.
#[derive(Clone, Copy)]
pub struct Setting {
    /// How many there are.
    pub count: u64,
    /// Workers that they begin on, each with as many clients. All run in the one thread.
    pub workers: usize,
    /// A slow step for each member command.
    pub planted: Option<u64>,
}

impl Setting {
    /// So many requests, on one worker.
    pub fn of(count: u64) -> Setting {
        Setting { count, workers: 1, planted: None }
    }
}

/// Have an engine carry out requests of a kind, and end.
pub fn carry_out(kind: Kind, setting: Setting) {
    let Setting { workers, planted, .. } = setting;
    let mut executor = Executor::new(Box::new(VirtualReactor::new()), Schedule::InOrder);
    let handle = executor.handle();
    let manner = Manner { keep: kind.keep, planted };
    let opener = Arc::new(MemberOpener::new(manner, MEMBER_BYTES));
    let config = EngineConfig {
        worker_count: workers,
        // The widest that valgrind knows on x86-64; elsewhere the best there is.
        kernel: cfg!(target_arch = "x86_64").then(|| "avx2".to_owned()),
        wall_clock_s: || 1_700_000_000,
        ..EngineConfig::new(Arc::<MemberOpener>::clone(&opener))
    };
    let engine = Engine::on_executor(config, &handle).expect("memory for pools");
    executor.block_on(async {
        let created = engine.create(kind.create_spec()).await.expect("created");
        opener.data_begins(created.data_offset);
        let assemble = AssembleSpec { devices: kind.devices(), ..AssembleSpec::default() };
        engine.assemble(assemble).await.expect("assembled");
        let filled = engine.with_volume(0, NAME, async |volume| fill(&volume).await);
        filled.await.expect("it runs");
        for slot in 0..kind.lost {
            engine.fail(NAME, MemberIdx(slot)).await.expect("two can be lost");
        }
        ask_on_each(&engine, &handle, kind, setting).await;
        engine.stop(NAME).await.expect("stopped");
    });
}

/// Unwritten stripes would read as zeros without a member.
async fn fill(volume: &ArrayVolume) {
    for offset in (0..SPAN_BYTES).step_by(to_usize(FILL_BYTES)) {
        let mut buffer = volume.buffer(to_usize(FILL_BYTES)).await;
        buffer.fill(u8::try_from(offset / FILL_BYTES % 251).expect("below 251"));
        let extent = Extent::new(offset, FILL_BYTES);
        submit(volume, Command::Write(buffer.freeze()), extent).await;
    }
}

async fn ask_on_each(engine: &Engine, handle: &Handle, kind: Kind, setting: Setting) {
    let (left, ended) = (Rc::new(Cell::new(setting.workers)), Signal::new());
    let count = setting.count / to_u64(setting.workers);
    for worker in 0..setting.workers {
        let (engine, left, ended) = (engine.clone(), Rc::clone(&left), ended.clone());
        handle.spawn(async move {
            let asked = async move |volume| ask_all(volume, kind, count).await;
            engine.with_volume(worker, NAME, asked).await.expect("it runs");
            left.set(left.get() - 1);
            ended.notify_all();
        });
    }
    while left.get() > 0 {
        ended.changed().await;
    }
}

async fn ask_all(volume: ArrayVolume, kind: Kind, count: u64) {
    let handle = volume.handle();
    let left = Rc::new(Cell::new(DEPTH));
    let ended = Signal::new();
    for client in 0..DEPTH {
        let (volume, left, ended) = (volume.clone(), Rc::clone(&left), ended.clone());
        let own = count / DEPTH + u64::from(client < count % DEPTH);
        handle.spawn(async move {
            ask(&volume, kind, own, client).await;
            left.set(left.get() - 1);
            ended.notify_all();
        });
    }
    while left.get() > 0 {
        ended.changed().await;
    }
}

/// One client: one request after the other, each at a place of its own.
async fn ask(volume: &ArrayVolume, kind: Kind, count: u64, client: u64) {
    let handle = volume.handle();
    let mut seed = (client + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for number in 1..=count {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let places = SPAN_BYTES / kind.bytes;
        let extent = Extent::new(seed % places * kind.bytes, kind.bytes);
        let mut buffer = volume.buffer(to_usize(kind.bytes)).await;
        if kind.is_write {
            buffer[..8].copy_from_slice(&seed.to_le_bytes());
            submit(volume, Command::Write(buffer.freeze()), extent).await;
        } else {
            submit(volume, Command::Read(buffer), extent).await;
        }
        // Members that answer at once must not keep the other clients waiting.
        if number % 16 == 0 {
            handle.yield_now().await;
        }
    }
}

async fn submit(volume: &ArrayVolume, command: Command, extent: Extent) {
    let is_read = matches!(command, Command::Read(_));
    let reply = volume.submit(Request { command, extent, fua: false }).await;
    match reply.expect("a request that goes well") {
        Reply::Data(bytes) => assert!(is_read && to_u64(bytes.len()) == extent.bytes),
        Reply::Done => assert!(!is_read),
    }
}
