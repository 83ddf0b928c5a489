//! Serve a volume in memory: `memory SOCKET MEBIBYTES`, and with a folder of certificates `memory
//! SOCKET MEBIBYTES FOLDER` through TLS. For trying clients and for measuring the export alone.

use ashlar_nbd::{Limits, NbdCounters, NbdServer, OneExport, TlsFiles, TlsTerms};
use ashlar_ring::{Executor, Ring, RingConfig, Schedule};
use ashlar_session::{Acceptor, Listen, listen};
use ashlar_volume::MemVolume;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (socket, mebibytes, folder) = match &arguments[..] {
        [_, socket, mebibytes] => (socket, mebibytes, None),
        [_, socket, mebibytes, folder] => (socket, mebibytes, Some(folder)),
        _ => return Err("memory SOCKET MEBIBYTES [FOLDER]".into()),
    };
    let files = folder.map(|folder| TlsFiles::in_folder(folder.as_ref()));
    let tls = files.map(|files| TlsTerms::read(&files)).transpose()?;
    let volume = MemVolume::new("memory", mebibytes.parse::<u64>()? << 20).with_pool()?;
    let listener = listen(&Listen::Unix(socket.into(), 0o600))?;
    let ring = Ring::new(RingConfig::of(256))?;
    let mut executor = Executor::new(ring.reactor(), Schedule::InOrder);
    let handle = executor.handle();
    let (limits, counters) = (Limits::default(), Arc::new(NbdCounters::default()));
    let server = NbdServer {
        handle: handle.clone(),
        ring: ring.clone(),
        exports: OneExport(volume),
        limits: limits.clone(),
        counters: counters.clone(),
        share: None,
        tls,
    };
    let sessions_max = limits.session.sessions_max;
    let sessions = counters.sessions.clone();
    let acceptor = Acceptor { handle: handle.clone(), ring, listener, sessions_max, sessions };
    let error = executor.block_on(acceptor.run(|connection| {
        let server = server.clone();
        handle.spawn(async move {
            let end = server.serve(connection).await;
            eprintln!("a session ended: {end:?}");
        });
    }));
    Err(error.into())
}
