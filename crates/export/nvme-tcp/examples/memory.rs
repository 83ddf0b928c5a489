//! Serve a volume in memory over NVMe/TCP: `memory IP:PORT MEBIBYTES`. For trying hosts, and for
//! measuring the export alone. Everybody may connect, and reservations end with the process.

use ashlar_nvme_protocol::nqn::Admitted;
use ashlar_nvme_tcp::{
    HostTerms, Identity, Limits, Namespace, NvmeServer, ReservationStore, Target, TargetConfig,
    Volumes,
};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_session::{Acceptor, Listen, listen};
use ashlar_volume::{MemVolume, Volume, VolumeFacts};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The only volume there is.
#[derive(Clone)]
struct Memory(MemVolume);

impl Volumes for Memory {
    type Volume = MemVolume;

    fn open(&self, name: &str) -> Option<MemVolume> {
        (name == "memory").then(|| self.0.clone())
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
    let volume = MemVolume::new("memory", mebibytes.parse::<u64>()? << 20).with_pool()?;
    let listener = listen(&Listen::Tcp(address))?;
    let ring = Ring::new(RingConfig::of(256))?;
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    let target = target(address, volume.facts())?;
    let sessions = Arc::clone(&target.counters().sessions);
    let server = NvmeServer {
        handle: handle.clone(),
        ring: ring.clone(),
        volumes: Memory(volume),
        target,
        share: None,
    };
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
