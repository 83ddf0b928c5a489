//! A mount that the kernel never begins to serve over io_uring. No queue of it is registered, so
//! the kernel makes whoever opens its file wait.

use super::FuseExports;
use crate::exports::{Export, locked};
use crate::keeper::Keeper;
use crate::services::Services;
use ashlar_device::PathOpener;
use ashlar_engine::{AssembleSpec, CreateSpec, Engine, EngineConfig};
use ashlar_layout::{Level, Shape};
use ashlar_ondisk::assembly::AssemblyRequest;
use ashlar_ondisk::{ChecksumKind, ConsistencyPolicy};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel's parameter while a mount is made; it is the machine's, so tests take turns.
struct Parameter {
    /// Locked.
    file: File,
    before: String,
}

impl Parameter {
    fn on() -> Parameter {
        let file = File::options().write(true).open(PARAMETER).expect("root may");
        file.lock().expect("lockable");
        let before = std::fs::read_to_string(PARAMETER).expect("readable");
        file.write_all_at(b"Y", 0).expect("settable");
        Parameter { file, before }
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        self.file.write_all_at(self.before.trim().as_bytes(), 0).expect("settable");
    }
}

/// What the kernel says of its FUSE connections, whether this machine has it mounted or not.
struct Connections(PathBuf);

impl Connections {
    fn at(place: PathBuf) -> Connections {
        std::fs::create_dir(&place).expect("a folder");
        let mounted = mount("fusectl", &place, "fusectl", MountFlags::empty(), None);
        mounted.expect("root may");
        Connections(place)
    }

    /// Ends when there is a request for tank that nobody answers.
    async fn somebody_waits(&self, exports: &FuseExports) {
        let device = locked(&exports.attached).get("tank").map(|it| it.label.device);
        let waiting = self.0.join(format!("{}/waiting", device.expect("attached")));
        let count = || std::fs::read_to_string(&waiting).expect("the kernel says it");
        while count().trim() == "0" {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("mounted");
    }
}

fn may_run(test: &str) -> bool {
    let are_there = [PARAMETER, "/dev/fuse"].iter().all(|path| Path::new(path).exists());
    let may = rustix::process::geteuid().is_root() && are_there;
    if !may {
        eprintln!("skipped: {test}: needs root and FUSE over io_uring (Linux 6.14)");
    }
    may
}

/// A mirror of two files, called tank.
async fn engine(folder: &Path) -> Engine {
    let devices = ["a", "b"].map(|name| {
        let path = folder.join(name);
        File::create(&path).and_then(|it| it.set_len(64 << 20)).expect("made");
        path.to_str().expect("text").to_owned()
    });
    let devices = devices.to_vec();
    let mut config = EngineConfig::new(Arc::new(PathOpener::new()));
    config.worker_count = 2;
    let engine = Engine::start(config).expect("started");
    let spec = CreateSpec {
        name: "tank".to_owned(),
        shape: Shape {
            level: Level::Raid1,
            members: 2,
            parity: None,
            group_members: None,
            strip_bytes: 65_536,
            declustered: None,
        },
        devices: devices.clone(),
        enclosures: None,
        policy: ConsistencyPolicy::default(),
        checksums: ChecksumKind::None,
        atomic_write_bytes: 0,
        logical_block_bytes: 4096,
        region_bytes: None,
        member_bytes: None,
        destroy: Vec::new(),
        is_dry_run: false,
    };
    engine.create(spec).await.expect("created");
    let request = AssemblyRequest::default();
    let (is_read_only, tuning, spare_pools) = (false, None, Vec::new());
    let spec = AssembleSpec { devices, request, is_read_only, tuning, spare_pools };
    engine.assemble(spec).await.expect("started");
    engine
}

#[tokio::test]
async fn a_kernel_that_never_comes_to_the_ring_has_the_file_served_without() {
    if !may_run("a_kernel_that_never_comes_to_the_ring_has_the_file_served_without") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path()).await;
    let volumes = folder.path().join("volumes");
    // No keeper can be started there.
    let keeper = Keeper::of(&folder.path().join("none/control"), Duration::ZERO);
    let services = Arc::new(Services::new(engine.event_log()));
    let exports = FuseExports::new(engine.clone(), volumes.clone(), keeper, true, services);
    let connections = Connections::at(folder.path().join("connections"));
    let patience = connections.somebody_waits(&exports);
    let parameter = Parameter::on();
    let attached = exports.attach_as_asked("tank", Ok(Some(0)), patience).await;
    drop(parameter);
    assert_eq!(attached, Ok(Some("the kernel did not begin with it".to_owned())));
    let status = exports.status();
    assert!(matches!(&*status, [it] if !it.over_ring), "{status:?}");
    let file = File::options().read(true).write(true).open(volumes.join("tank"));
    let read = tokio::task::spawn_blocking(move || {
        let (file, mut back) = (file.expect("served"), [0; 4096]);
        file.write_all_at(&[7; 4096], 0).expect("served");
        file.read_exact_at(&mut back, 0).expect("served");
        back
    });
    assert_eq!(read.await.expect("no panic"), [7; 4096]);
    exports.drop_users_of("tank").await;
    engine.shut_down();
}
