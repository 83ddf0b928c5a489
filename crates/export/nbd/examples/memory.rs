//! Serve a volume in memory: `memory SOCKET MEBIBYTES`. For trying clients and for measuring the export alone.

use ashlar_nbd::{Acceptor, Limits, Listen, NbdCounters, NbdServer, OneExport, listen};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_volume::MemVolume;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, mebibytes] = &arguments[..] else {
        return Err("memory SOCKET MEBIBYTES".into());
    };
    let volume = MemVolume::new("memory", mebibytes.parse::<u64>()? << 20);
    let listener = listen(&Listen::Unix(socket.into(), 0o600))?;
    let ring = Ring::new(RingConfig { entries: 256 })?;
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    let (limits, counters) = (Limits::default(), Arc::new(NbdCounters::default()));
    let server = NbdServer {
        handle: handle.clone(),
        ring: ring.clone(),
        exports: OneExport(volume),
        limits: limits.clone(),
        counters: counters.clone(),
    };
    let acceptor = Acceptor { handle: handle.clone(), ring, listener, limits, counters };
    let error = executor.block_on(acceptor.run(|connection| {
        let server = server.clone();
        handle.spawn(async move {
            let end = server.serve(connection).await;
            eprintln!("a session ended: {end:?}");
        });
    }));
    Err(error.into())
}
