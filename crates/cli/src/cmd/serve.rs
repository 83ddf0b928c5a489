//! `ashlar serve`: own arrays and export them, until told to stop.

use crate::fault::Fault;
use crate::reach::{Reach, absolute, devices, make_usual_folder};
use crate::say;
use crate::sizes::sizes;
use ashlar_daemon::config::{
    ArrayConfig, Config, FuseConfig, NbdConfig, Polling, TlsConfig, Tuning, VhostConfig, Workers,
};
use ashlar_daemon::events::usual_state;
use ashlar_daemon::serve::{ServeOptions, serve};
use ashlar_units::ByteSize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Run the daemon: start arrays and export their volumes.
///
/// SIGTERM and SIGINT stop all arrays cleanly. SIGUSR2 also stops all arrays cleanly, but leaves
/// volumes attached. Requests to attached volumes then wait until the next daemon runs.
///
/// The daemon starts the array of the DEVICE arguments and the arrays that the configuration names.
/// With `remember` in the section `[start]` of the configuration, the daemon also starts arrays
/// that it remembers from the last run. With `scan` in the same section, the daemon also starts
/// arrays that it finds on the drives of this machine.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(
    sizes!(),
    "\n\nExample: ashlar serve --nbd unix:/run/ashlar/nbd.sock /dev/sd[b-k]"
))]
pub struct Args {
    /// Members of an array to start.
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Name of a spare pool. Its spares replace failed members of the array that the DEVICE
    /// arguments start. Repeatable, in order of preference [default: spares].
    #[arg(long = "spare-pool", value_name = "NAME", requires = "devices")]
    spare_pools: Vec<String>,

    /// Configuration file (TOML). DEVICE, --nbd and --nvme-tcp add to the file; other options
    /// override the file [default: no file].
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Serve all volumes over NBD at unix:PATH or IP:PORT. Repeatable. IP:PORT needs --nbd-tls or
    /// --nbd-trusted-network. Root and the daemon's group may open the Unix socket.
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<String>,

    /// Require TLS 1.3 and a client certificate at the addresses of --nbd. DIR holds
    /// server-cert.pem, server-key.pem and ca-cert.pem. The authority of ca-cert.pem signs the
    /// certificates of the clients.
    #[arg(long, value_name = "DIR", requires = "nbd")]
    nbd_tls: Option<PathBuf>,

    /// Allow NBD over TCP without TLS. Whoever can reach the addresses of --nbd may then read and
    /// destroy every volume. Every local user can reach 127.0.0.1.
    #[arg(long)]
    nbd_trusted_network: bool,

    /// Serve all volumes over NVMe/TCP at IP:PORT; the usual port is 4420. Repeatable. This option
    /// needs --nvme-tcp-trusted-network, or `trusted_network` in the configuration.
    #[arg(long, value_name = "ADDRESS")]
    nvme_tcp: Vec<String>,

    /// Allow NVMe/TCP, which is not encrypted. Whoever sees the network traffic can read the data.
    /// Unless the configuration lists hosts with secrets, whoever can reach the addresses may read
    /// and destroy every volume.
    #[arg(long)]
    nvme_tcp_trusted_network: bool,

    /// Directory in which NVMe/TCP keeps identity, namespace numbers and reservations [default:
    /// /var/lib/ashlar/nvme].
    #[arg(long, value_name = "DIR")]
    nvme_tcp_state: Option<PathBuf>,

    /// Serve every volume as a disk for one virtual machine (vhost-user-blk), at the socket
    /// DIR/NAME.sock. Root and the daemon's group may open the sockets.
    #[arg(long, value_name = "DIR")]
    vhost_user: Option<PathBuf>,

    /// Directory for the files of attached volumes [default: `volumes` beside the control socket].
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,

    /// Directory for state that outlives the daemon, such as the history of events [default:
    /// /var/lib/ashlar with root's default socket, else `state` beside the socket].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Serve metrics and a status page for browsers over HTTP at this address, for instance
    /// 127.0.0.1:9309.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,

    /// Number of workers, or the cores to bind one worker to each, for instance 0-3,8-11 [default:
    /// one for each core].
    #[arg(long, value_name = "COUNT|CORES")]
    workers: Option<Workers>,

    /// Do not bind workers to cores.
    #[arg(long)]
    no_pin: bool,

    /// Maximum time in microseconds that an idle worker polls for work before the worker sleeps; 0
    /// turns polling off. A worker whose last polls found no work sleeps at once. With `always`,
    /// workers never sleep, and each takes a whole core [default: 50].
    #[arg(long, value_name = "MICROSECONDS|always")]
    spin_us: Option<Polling>,

    /// Code for parity, by SIMD instruction set: avx512+gfni, avx2+gfni, avx512bw, avx2, ssse3,
    /// neon or portable [default: the fastest that this CPU supports].
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,

    /// Memory of the data buffers of all workers together [default: 64M for each worker, at most an
    /// eighth of the RAM].
    #[arg(long, value_name = "SIZE")]
    pool: Option<ByteSize>,

    /// Maximum memory of all memory devices (`memory:SIZE`, see `create`) together [default: half
    /// of the RAM, or of the cgroup's limit].
    #[arg(long, value_name = "SIZE")]
    memory_devices: Option<ByteSize>,

    /// Record every change of a device in this file, for power-cut tests
    /// (crates/device/src/record/entry.rs).
    #[arg(long, value_name = "FILE", hide = true)]
    record_writes: Option<PathBuf>,
}

impl Args {
    /// The configuration of the file, with what the flags add.
    fn config(&self) -> Result<Config, Fault> {
        let mut config = match &self.config {
            Some(file) => Config::read(file)?,
            None => Config::default(),
        };
        if !self.devices.is_empty() {
            config.array.push(ArrayConfig {
                name: None,
                uuid: None,
                devices: devices(&self.devices)?,
                read_only: false,
                attach: false,
                spare_pools: self.spare_pools.clone(),
                tuning: Tuning::default(),
            });
        }
        let trusted_network = self.nbd_trusted_network;
        let listeners = self.nbd.iter().cloned();
        let folder = self.nbd_tls.as_deref().map(absolute).transpose()?;
        let tls = folder.map(|it| TlsConfig { folder: Some(it), ..TlsConfig::default() });
        let listeners =
            listeners.map(|listen| NbdConfig { listen, trusted_network, tls: tls.clone() });
        config.nbd.extend(listeners);
        self.add_nvme(&mut config)?;
        if let Some(folder) = &self.vhost_user {
            config.vhost_user = Some(VhostConfig { folder: absolute(folder)? });
        }
        if let Some(folder) = &self.fuse {
            let told = config.fuse.as_ref();
            let keeper_wait_s = told.and_then(|fuse| fuse.keeper_wait_s);
            let io_uring = told.is_some_and(|fuse| fuse.io_uring);
            config.fuse = Some(FuseConfig { folder: absolute(folder)?, keeper_wait_s, io_uring });
        }
        config.serve.metrics = self.metrics.or(config.serve.metrics);
        config.serve.workers = self.workers.clone().or(config.serve.workers);
        config.serve.spin_us = self.spin_us.or(config.serve.spin_us);
        config.serve.pool = self.pool.or(config.serve.pool);
        config.serve.memory_devices = self.memory_devices.or(config.serve.memory_devices);
        config.serve.kernel = self.kernel.clone().or(config.serve.kernel);
        if self.no_pin {
            config.serve.pin = Some(false);
        }
        Ok(config)
    }
}

impl Args {
    fn add_nvme(&self, config: &mut Config) -> Result<(), Fault> {
        let is_told = !self.nvme_tcp.is_empty()
            || self.nvme_tcp_trusted_network
            || self.nvme_tcp_state.is_some();
        if !is_told {
            return Ok(());
        }
        let nvme = config.nvme_tcp.get_or_insert_default();
        nvme.listen.extend(self.nvme_tcp.iter().cloned());
        nvme.trusted_network |= self.nvme_tcp_trusted_network;
        if let Some(folder) = &self.nvme_tcp_state {
            nvme.state = Some(absolute(folder)?);
        }
        Ok(())
    }
}

pub fn run(args: Args, reach: &Reach) -> Result<(), Fault> {
    let config = args.config()?;
    let socket = match (&reach.socket, &config.serve.socket) {
        (None, Some(socket)) => absolute(socket)?,
        _ => reach.socket()?,
    };
    let folder = match &config.fuse {
        Some(fuse) => fuse.folder.clone(),
        None => socket.parent().unwrap_or(Path::new("/")).join("volumes"),
    };
    let state = match args.state.as_ref().or(config.serve.state.as_ref()) {
        Some(state) => absolute(state)?,
        None => usual_state(&socket),
    };
    make_usual_folder(&socket)?;
    let options = ServeOptions { socket, state, folder, config, record: args.record_writes };
    Ok(serve(options, |line| say::in_passing(format_args!("ashlar: {line}")))?)
}
