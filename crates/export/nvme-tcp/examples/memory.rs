//! Serve a volume in memory over NVMe/TCP: `memory IP:PORT MEBIBYTES`. For trying hosts, and for
//! measuring the export alone. Everybody may connect, and reservations end with the process.

use ashlar_iobuf::{BufMut, Pool, PoolClass};
use ashlar_nvme_protocol::nqn::Admitted;
use ashlar_nvme_tcp::{
    HostTerms, Identity, Limits, Namespace, NvmeServer, ReservationStore, Target, TargetConfig,
    Volumes,
};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_session::{Acceptor, Listen, listen};
use ashlar_units::Extent;
use ashlar_volume::{AllocationRun, MemVolume, Reply, Request, Volume, VolumeError, VolumeFacts};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A volume in memory whose buffers come from a pool, as the engine's do.
#[derive(Clone)]
struct Pooled {
    inner: MemVolume,
    pool: Pool,
}

impl Volume for Pooled {
    fn facts(&self) -> VolumeFacts {
        self.inner.facts()
    }

    async fn buffer(&self, bytes: usize) -> BufMut {
        self.pool.get(bytes).await
    }

    async fn submit(&self, request: Request) -> Result<Reply, VolumeError> {
        self.inner.submit(request).await
    }

    async fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<AllocationRun>, VolumeError> {
        self.inner.allocation(extent, runs_max).await
    }
}

impl Volumes for Pooled {
    type Volume = Pooled;

    fn open(&self, name: &str) -> Option<Pooled> {
        (name == "memory").then(|| self.clone())
    }
}

/// Remembers nothing.
struct Forgetful;

impl ReservationStore for Forgetful {
    fn load(&self, _nguid: &[u8; 16]) -> io::Result<Option<(Vec<u8>, bool)>> {
        Ok(None)
    }

    fn save(&self, _nguid: &[u8; 16], _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

const CLASSES: [PoolClass; 3] = [
    PoolClass { buffer_bytes: 4 << 10, count: 512 },
    PoolClass { buffer_bytes: 64 << 10, count: 128 },
    PoolClass { buffer_bytes: 1 << 20, count: 64 },
];

fn target(address: SocketAddr, facts: VolumeFacts) -> Result<Arc<Target>, Box<dyn Error>> {
    let target = Target::new(TargetConfig {
        identity: Identity {
            nqn: "nqn.2024-01.example:memory".parse()?,
            serial: "1".to_owned(),
            model: "memory".to_owned(),
            firmware: "1".to_owned(),
        },
        hosts: Admitted::Anybody(HostTerms::default()),
        limits: Limits::default(),
        store: Arc::new(Forgetful),
        aside: Arc::new(|work| drop(std::thread::spawn(work))),
    });
    target.set_portals(vec![address]);
    target.set_namespaces(vec![Namespace { id: 1, facts }]);
    Ok(target)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, mebibytes] = &arguments[..] else {
        return Err("memory IP:PORT MEBIBYTES".into());
    };
    let address: SocketAddr = address.parse()?;
    let inner = MemVolume::new("memory", mebibytes.parse::<u64>()? << 20);
    let volume = Pooled { inner, pool: Pool::new(&CLASSES)? };
    let listener = listen(&Listen::Tcp(address))?;
    let ring = Ring::new(RingConfig::of(256))?;
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    let target = target(address, volume.facts())?;
    let sessions = Arc::clone(&target.counters().sessions);
    let server = NvmeServer { handle: handle.clone(), ring: ring.clone(), volumes: volume, target };
    let sessions_max = 64;
    let acceptor = Acceptor { handle: handle.clone(), ring, listener, sessions_max, sessions };
    let error = executor.block_on(acceptor.run(|connection| {
        let server = server.clone();
        handle.spawn(async move {
            let end = server.serve(connection).await;
            eprintln!("a connection ended: {end:?}");
        });
    }));
    Err(error.into())
}
