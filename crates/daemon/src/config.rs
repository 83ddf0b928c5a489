//! The TOML configuration of `ashlar serve`: what to assemble and how to export it.
//!
//! What must stay true: the members hold the truth about arrays. A file only says where to look and
//! what to serve. An unknown key is refused with its line, and nothing is started.

mod drives;
mod events;
mod nvme;
mod polling;
mod workers;

use crate::exports::address;
use crate::{memory_devices, partition};
use ashlar_api::v1::export::{NbdListen, NbdTls};
use ashlar_device::{Signature, signatures, wipe_signatures};
use ashlar_engine::{
    ArrayTuning, Ends, ForeignSignature, RateLimit, Signatures, SilenceLimits, SlowLimits,
    SlowReaction, VolumeLimits, Wiper,
};
use ashlar_nbd::{TlsFiles, only_we_change};
use ashlar_session::SessionLimits;
use ashlar_units::ByteSize;
use serde::Deserialize;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use drives::DrivesConfig;
pub use events::{EventsConfig, NotifyConfig};
pub use nvme::{HostConfig, NvmeConfig};
pub use polling::Polling;
pub use workers::Workers;

/// Everything a file may say; all of it is optional.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The process itself.
    #[serde(default)]
    pub serve: Serve,
    /// What is started without being named here.
    #[serde(default)]
    pub start: StartConfig,
    /// Arrays to assemble at start.
    #[serde(default)]
    pub array: Vec<ArrayConfig>,
    /// Tunables of all arrays.
    #[serde(default)]
    pub tuning: Tuning,
    /// The history of events and the journal.
    #[serde(default)]
    pub events: EventsConfig,
    /// How operators are told.
    #[serde(default)]
    pub notify: NotifyConfig,
    /// Programs that know drives.
    #[serde(default)]
    pub drives: DrivesConfig,
    /// NBD listeners.
    #[serde(default)]
    pub nbd: Vec<NbdConfig>,
    /// What NBD clients may hold.
    #[serde(default)]
    pub nbd_limits: NbdLimits,
    /// NVMe/TCP.
    #[serde(default)]
    pub nvme_tcp: Option<NvmeConfig>,
    /// Volumes as disks of virtual machines.
    #[serde(default)]
    pub vhost_user: Option<VhostConfig>,
    /// Volumes as files.
    #[serde(default)]
    pub fuse: Option<FuseConfig>,
}

/// `[serve]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// Control socket; default /run/ashlar/control.sock.
    pub socket: Option<PathBuf>,
    /// Folder for what survives the daemon; default /var/lib/ashlar for the usual socket, else
    /// `state` beside the socket.
    pub state: Option<PathBuf>,
    /// Address of the metrics listener; default none.
    pub metrics: Option<SocketAddr>,
    /// How many workers, or on which cores; default one for each core.
    #[serde(deserialize_with = "number_or_text")]
    pub workers: Option<Workers>,
    /// Whether each worker is bound to a core; default yes.
    pub pin: Option<bool>,
    /// How long an idle worker polls before it sleeps, at most.
    #[serde(deserialize_with = "number_or_text")]
    pub spin_us: Option<Polling>,
    /// Bytes of buffers, for all workers together.
    #[serde(deserialize_with = "size")]
    pub pool: Option<ByteSize>,
    /// The most that memory devices may take together; default half of what the process may have.
    #[serde(deserialize_with = "size")]
    pub memory_devices: Option<ByteSize>,
    /// Name of the parity kernel; default the best this CPU has.
    pub kernel: Option<String>,
}

/// `[start]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StartConfig {
    /// Look at the block devices and start every array of this host; default no.
    pub scan: bool,
    /// Look at these devices only: paths, with `*` and `?`.
    pub devices: Vec<String>,
    /// Seconds that an array waits for members before it starts degraded; default 30.
    pub grace_s: Option<u64>,
    /// Remember what was created, assembled and attached by hand, in the folder for state; default
    /// no.
    pub remember: bool,
}

/// Seconds that an array waits for its members.
const GRACE_S: u64 = 30;
/// What may be said of it.
const GRACE_S_MAX: u64 = 86_400;

impl StartConfig {
    /// How long an array waits for members before it starts degraded.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s.unwrap_or(GRACE_S))
    }

    fn check(&self) -> Result<(), String> {
        match self.grace_s {
            Some(grace) if grace > GRACE_S_MAX => {
                Err(format!("grace_s must be 0 to {GRACE_S_MAX}"))
            }
            _ => check_patterns(&self.devices),
        }
    }
}

/// The lowest limits of a volume. With lower ones clients that have many requests under way would
/// take their wait for a device that hangs.
const RATE_MIN: ByteSize = ByteSize(1 << 20);
const IOPS_MIN: u64 = 100;

/// `[tuning]` for all arrays, `[array.tuning]` for one. What is left out stays as it is.
/// docs/tuning.md says when to change what.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// A member read that takes longer is reconstructed from the others.
    pub read_deadline_ms: Option<u64>,
    /// A member on flash that answers nothing for so long is put out, if its group can do without
    /// it.
    pub silent_flash_ms: Option<u64>,
    /// The same for rotational drives.
    pub silent_rotational_ms: Option<u64>,
    /// The same for files.
    pub silent_file_ms: Option<u64>,
    /// What follows when a member is much slower than its peers.
    pub slow_member: Option<SlowMember>,
    /// How many times as long as on its peers its commands take then; default 4.
    pub slow_times: Option<u32>,
    /// How long that must last; default 30.
    pub slow_after_s: Option<u64>,
    /// How long a piece of a sequential stream may wait to become a full stripe; 0 never waits.
    pub merge_wait_us: Option<u64>,
    /// Read errors after which a member is put out.
    pub read_errors_max: Option<u64>,
    /// Client latency (95th percentile) that background jobs try to leave alone.
    pub job_latency_target_ms: Option<u64>,
    /// Bytes a second that a background job moves whatever clients do.
    #[serde(deserialize_with = "size")]
    pub job_floor: Option<ByteSize>,
    /// How long writes wait for space behind the members; 0: without end, which is the default.
    pub space_wait_s: Option<u64>,
    /// Members are told what clients gave back, once that is safe.
    pub pass_discards: Option<bool>,
    /// Bytes of client reads that begin in a second; 0: without a limit.
    #[serde(deserialize_with = "size")]
    pub read_rate_max: Option<ByteSize>,
    /// The same for writes.
    #[serde(deserialize_with = "size")]
    pub write_rate_max: Option<ByteSize>,
    /// Client reads that begin in a second; 0: without a limit.
    pub read_iops_max: Option<u64>,
    /// The same for writes.
    pub write_iops_max: Option<u64>,
    /// Memory for the checksum table of an array that keeps one.
    #[serde(deserialize_with = "size")]
    pub checksum_cache: Option<ByteSize>,
}

impl Tuning {
    /// `base` with what is said here.
    pub fn over(&self, base: ArrayTuning) -> ArrayTuning {
        let millis = |own: Option<u64>, base| own.map_or(base, Duration::from_millis);
        ArrayTuning {
            read_deadline: millis(self.read_deadline_ms, base.read_deadline),
            silence: SilenceLimits {
                flash: millis(self.silent_flash_ms, base.silence.flash),
                rotational: millis(self.silent_rotational_ms, base.silence.rotational),
                file: millis(self.silent_file_ms, base.silence.file),
            },
            slow: SlowLimits {
                reaction: self.slow_member.map_or(base.slow.reaction, SlowMember::reaction),
                times: self.slow_times.unwrap_or(base.slow.times),
                after: self.slow_after_s.map_or(base.slow.after, Duration::from_secs),
                ..base.slow
            },
            merge_wait_max: self.merge_wait_us.map_or(base.merge_wait_max, Duration::from_micros),
            read_errors_max: self.read_errors_max.unwrap_or(base.read_errors_max),
            job_latency_target: millis(self.job_latency_target_ms, base.job_latency_target),
            no_room_wait_max: match self.space_wait_s {
                None => base.no_room_wait_max,
                Some(0) => None,
                Some(seconds) => Some(Duration::from_secs(seconds)),
            },
            pass_discards: self.pass_discards.unwrap_or(base.pass_discards),
            checksum_cache_bytes: self.checksum_cache.map_or(base.checksum_cache_bytes, |it| it.0),
            job_floor_bytes: self.job_floor.map_or(base.job_floor_bytes, |floor| floor.0),
            limits: self.limits_over(base.limits),
        }
    }

    fn limits_over(&self, base: VolumeLimits) -> VolumeLimits {
        let limit = |rate: Option<ByteSize>, iops: Option<u64>, base: RateLimit| RateLimit {
            bytes: rate.map_or(base.bytes, |it| it.0),
            requests: iops.unwrap_or(base.requests),
        };
        VolumeLimits {
            reads: limit(self.read_rate_max, self.read_iops_max, base.reads),
            writes: limit(self.write_rate_max, self.write_iops_max, base.writes),
        }
    }

    /// # Errors
    /// What makes no sense, in one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("read_deadline_ms", self.read_deadline_ms),
            ("read_errors_max", self.read_errors_max),
            ("job_latency_target_ms", self.job_latency_target_ms),
            ("job_floor", self.job_floor.map(|floor| floor.0)),
            ("checksum_cache", self.checksum_cache.map(|cache| cache.0)),
        ] {
            if value == Some(0) {
                return Err(format!("{name} must be more than 0"));
            }
        }
        for (name, value) in
            [("read_rate_max", self.read_rate_max), ("write_rate_max", self.write_rate_max)]
        {
            if value.is_some_and(|it| it.0 > 0 && it.0 < RATE_MIN.0) {
                return Err(format!("{name} must be 0 (no limit) or at least {RATE_MIN} a second"));
            }
        }
        for (name, value) in
            [("read_iops_max", self.read_iops_max), ("write_iops_max", self.write_iops_max)]
        {
            if value.is_some_and(|it| it > 0 && it < IOPS_MIN) {
                return Err(format!("{name} must be 0 (no limit) or at least {IOPS_MIN}"));
            }
        }
        for (name, value) in [
            ("silent_flash_ms", self.silent_flash_ms),
            ("silent_rotational_ms", self.silent_rotational_ms),
            ("silent_file_ms", self.silent_file_ms),
        ] {
            if value.is_some_and(|value| !SILENT_MS.contains(&value)) {
                let (least, most) = (SILENT_MS.start(), SILENT_MS.end());
                return Err(format!("{name} must be {least} to {most}"));
            }
        }
        let said = |value: Option<u64>, may: &RangeInclusive<u64>| {
            value.is_none_or(|value| may.contains(&value))
        };
        for (name, value, may) in [
            ("slow_times", self.slow_times.map(u64::from), SLOW_TIMES),
            ("slow_after_s", self.slow_after_s, SLOW_AFTER_S),
        ] {
            if !said(value, &may) {
                return Err(format!("{name} must be {} to {}", may.start(), may.end()));
            }
        }
        Ok(())
    }
}

/// `slow_member` of a `[tuning]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlowMember {
    /// It is told.
    Warn,
    /// Reads are served by the others.
    Avoid,
    /// A spare takes its slot.
    Replace,
}

impl SlowMember {
    /// The one of this name.
    pub(crate) fn of(word: &str) -> Option<SlowMember> {
        let all = [SlowMember::Warn, SlowMember::Avoid, SlowMember::Replace];
        all.into_iter().find(|it| it.reaction().word() == word)
    }

    fn reaction(self) -> SlowReaction {
        match self {
            SlowMember::Warn => SlowReaction::Warn,
            SlowMember::Avoid => SlowReaction::Avoid,
            SlowMember::Replace => SlowReaction::Replace,
        }
    }
}

/// What may be said of how many times as long commands take on a slow member: ordinary drives of
/// one kind differ by less than two.
const SLOW_TIMES: RangeInclusive<u64> = 2..=1000;
/// What may be said of how long that must last: in less, bursts and pauses of flash are taken for
/// it.
const SLOW_AFTER_S: RangeInclusive<u64> = 6..=86_400;

/// What may be said of how long a member may be silent: below, ordinary pauses of drives cost
/// members; the kernel itself gives commands up after a minute or so.
const SILENT_MS: RangeInclusive<u64> = 1000..=600_000;

/// `[[array]]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayConfig {
    /// Its name; may be left out if the devices hold one array only, or with a UUID.
    #[serde(default)]
    pub name: Option<String>,
    /// Its UUID; decides where two arrays have the same name.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Where to look for its members and for spares: paths, with `*` and `?`.
    pub devices: Vec<String>,
    /// Refuse all changes; default no.
    #[serde(default)]
    pub read_only: bool,
    /// Make its volume a block device whenever it starts; default no.
    #[serde(default)]
    pub attach: bool,
    /// Pools it takes spares from, in this order; default the pool `spares`.
    #[serde(default)]
    pub spare_pools: Vec<String>,
    /// Tunables of this array only.
    #[serde(default)]
    pub tuning: Tuning,
}

/// `[[nbd]]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdConfig {
    /// `unix:/run/ashlar/nbd.sock`, or `192.0.2.1:10809`.
    pub listen: String,
    /// Everybody who can reach the address may read and destroy every volume: needed for TCP
    /// addresses without TLS, those of this machine alone included.
    #[serde(default)]
    pub trusted_network: bool,
    /// Demand TLS 1.3 and a certificate of every client.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
}

/// `tls` of a `[[nbd]]`: a directory, or three files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// A directory with `server-cert.pem`, `server-key.pem` and `ca-cert.pem`.
    #[serde(rename = "directory", alias = "folder")]
    pub folder: Option<PathBuf>,
    /// The server's certificate, followed by those between it and its authority.
    pub certificate: Option<PathBuf>,
    /// Its private key, which only its owner may read.
    pub key: Option<PathBuf>,
    /// The authority whose clients are let in.
    pub ca: Option<PathBuf>,
}

impl TlsConfig {
    /// The three files.
    ///
    /// # Errors
    /// Neither a directory alone nor all three files are named; one line.
    fn files(&self) -> Result<TlsFiles, String> {
        match (&self.folder, &self.certificate, &self.key, &self.ca) {
            (Some(folder), None, None, None) => Ok(TlsFiles::in_folder(folder)),
            (None, Some(certificate), Some(key), Some(ca)) => {
                let [certificate, key, ca] = [certificate, key, ca].map(PathBuf::clone);
                Ok(TlsFiles { certificate, key, ca })
            }
            _ => Err("tls wants a directory, or all of certificate, key and ca".to_owned()),
        }
    }
}

impl NbdConfig {
    /// What is asked of the exports.
    ///
    /// # Errors
    /// Its `tls` names neither a directory alone nor all three files; one line.
    pub fn call(&self) -> Result<NbdListen, String> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let tls = self.tls.as_ref().map(TlsConfig::files).transpose()?.map(|files| NbdTls {
            certificate: text(files.certificate),
            key: text(files.key),
            ca: text(files.ca),
        });
        let (listen, trusted_network) = (self.listen.clone(), self.trusted_network);
        Ok(NbdListen { listen, trusted_network, tls })
    }

    fn check(&self) -> Result<(), String> {
        // What is in the files is seen when the address is served.
        self.tls.as_ref().map(TlsConfig::files).transpose()?;
        let is_safe = self.trusted_network || self.tls.is_some();
        let address = address::parse(&self.listen, is_safe);
        address.map(drop).map_err(|refusal| format!("{}; {}", refusal.message, refusal.hint))
    }
}

/// `[nbd_limits]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NbdLimits {
    /// Connections at the same time; default 1024.
    pub connections: Option<u64>,
    /// Connections from one address at the same time; default 64. Unix sockets are not counted
    /// here.
    pub connections_per_peer: Option<u64>,
    /// Payload that one connection may hold; default 16 MiB.
    #[serde(deserialize_with = "size")]
    pub in_flight: Option<ByteSize>,
    /// Seconds for the handshake; default 10.
    pub handshake_s: Option<u64>,
    /// Seconds that a payload or a reply may be stuck before the connection is dropped; default 60.
    pub stall_s: Option<u64>,
}

/// Connections from one address, unless the configuration says otherwise.
const CONNECTIONS_PER_PEER: u64 = 64;

impl NbdLimits {
    /// The bounds of each session.
    pub fn limits(&self) -> ashlar_nbd::Limits {
        let base = SessionLimits::default();
        let seconds = |own: Option<u64>, base| own.map_or(base, Duration::from_secs);
        ashlar_nbd::Limits::from(SessionLimits {
            sessions_max: self.connections.unwrap_or(base.sessions_max),
            bytes_in_flight_max: self.in_flight.map_or(base.bytes_in_flight_max, |it| it.0),
            handshake_time: seconds(self.handshake_s, base.handshake_time),
            payload_time: seconds(self.stall_s, base.payload_time),
            send_time: seconds(self.stall_s, base.send_time),
            ..base
        })
    }

    /// Connections from one address at the same time.
    pub fn per_peer(&self) -> u64 {
        self.connections_per_peer.unwrap_or(CONNECTIONS_PER_PEER)
    }

    fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("connections", self.connections),
            ("connections_per_peer", self.connections_per_peer),
            ("in_flight", self.in_flight.map(|it| it.0)),
            ("handshake_s", self.handshake_s),
            ("stall_s", self.stall_s),
        ] {
            if value == Some(0) {
                return Err(format!("{name} must be more than 0"));
            }
        }
        Ok(())
    }
}

/// That a pool may have this name.
///
/// # Errors
/// Why not, in one line.
pub(crate) fn check_pool(name: &str) -> Result<(), String> {
    let valid = ashlar_ondisk::ArrayName::new(name);
    valid.map(drop).map_err(|fault| format!("a spare pool cannot be called '{name}': {fault}"))
}

/// `[fuse]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FuseConfig {
    /// The folder in which attached volumes appear as files.
    #[serde(rename = "directory", alias = "folder")]
    pub folder: PathBuf,
    /// Seconds for which the users of attached files wait while no daemon runs; default 3600. They
    /// get errors after that. 0: at once. Not for files that systemd keeps: its unit says how long.
    #[serde(default)]
    pub keeper_wait_s: Option<u64>,
    /// Take requests over io_uring where the kernel offers it; default no. Whoever has a file open
    /// gets errors if the daemon dies.
    #[serde(default)]
    pub io_uring: bool,
}

/// `[vhost_user]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VhostConfig {
    /// The folder in which each volume that runs has a socket, `NAME.sock`. It is made if it is not
    /// there.
    #[serde(rename = "directory", alias = "folder")]
    pub folder: PathBuf,
}

/// Why a file was refused: one line that names file and line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{file}{}: {what}; nothing was started",
    line.map_or(String::new(), |line| format!(" line {line}"))
)]
pub struct ConfigError {
    file: String,
    line: Option<usize>,
    what: String,
}

impl Config {
    /// Read a file.
    ///
    /// # Errors
    /// It cannot be read, or says something that makes no sense.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let file = path.display().to_string();
        let refuse = |what: String| ConfigError { file: file.clone(), line: None, what };
        let unread = |error: std::io::Error| refuse(error.to_string());
        let mut opened = std::fs::File::open(path).map_err(unread)?;
        // It says who may reach volumes, and which devices are taken.
        only_we_change(&opened.metadata().map_err(unread)?).map_err(refuse)?;
        let mut text = String::new();
        opened.read_to_string(&mut text).map_err(unread)?;
        Config::parse(&file, &text)
    }

    /// Read a text; `file` is for complaints.
    ///
    /// # Errors
    /// It says something that makes no sense.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            // Some messages show the source over several lines; the first says what is wrong.
            let what = in_words(error.message().lines().next().unwrap_or("cannot be read"));
            ConfigError { file: file.to_owned(), line, what }
        })?;
        config.check().map_err(|what| ConfigError { file: file.to_owned(), line: None, what })?;
        Ok(config)
    }

    /// What can be seen to be wrong before anything is started.
    ///
    /// # Errors
    /// One line.
    pub fn check(&self) -> Result<(), String> {
        for array in &self.array {
            if array.devices.is_empty() {
                return Err("an [[array]] without devices cannot be assembled".to_owned());
            }
            if let Some(device) = array.devices.iter().find(|it| memory_devices::is_memory(it)) {
                return Err(format!(
                    "{device} is a memory device: it is lost when a daemon ends, so none is there \
                     at a start; make the array with 'ashlar create' once the daemon serves"
                ));
            }
            check_patterns(&array.devices)?;
            array.spare_pools.iter().try_for_each(|pool| check_pool(pool))?;
            array.tuning.check()?;
        }
        self.start.check()?;
        self.tuning.check()?;
        self.events.check()?;
        self.notify.check()?;
        self.drives.check()?;
        self.nbd_limits.check()?;
        self.nbd.iter().try_for_each(NbdConfig::check)?;
        self.nvme_tcp.as_ref().map_or(Ok(()), NvmeConfig::check)?;
        sizes::check(&self.serve)
    }
}

/// The paths that `patterns` stand for, sorted, each once. A pattern without `*` and `?` stands for
/// itself, whether it is there or not; one that matches nothing stands for nothing.
///
/// # Errors
/// One line for the first pattern that makes no sense.
pub fn expand(patterns: &[String]) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for pattern in patterns {
        if !pattern.contains(['*', '?', '[']) {
            paths.push(pattern.clone());
            continue;
        }
        let matches = glob::glob(pattern).map_err(|error| format!("{pattern}: {error}"))?;
        let found = matches.filter_map(|path| path.ok()?.to_str().map(str::to_owned));
        paths.extend(found);
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// # Errors
/// One line for the first pattern that makes no sense.
fn check_patterns(patterns: &[String]) -> Result<(), String> {
    let check = |text: &String| match glob::Pattern::new(text) {
        Ok(_) => Ok(()),
        // Without a wildcard it is a path, whatever is in it.
        Err(_) if !text.contains(['*', '?', '[']) => Ok(()),
        Err(error) => Err(format!("{text}: {error}")),
    };
    patterns.iter().try_for_each(check)
}

/// What the parser says, for people.
fn in_words(message: &str) -> String {
    [
        ("expected u64", "expected a whole number from 0"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("invalid socket address syntax", "not an address; write for example \"127.0.0.1:9309\""),
    ]
    .iter()
    .fold(message.to_owned(), |told, (theirs, ours)| told.replace(theirs, ours))
}

/// How the engine finds out whose data is on a device.
pub(crate) fn foreign_signatures() -> Signatures {
    Arc::new(|path, ends| {
        // Memory and null devices are nobody's. What is not there, or is no device, is refused when
        // it is opened, and there the reason is clear.
        if !is_device(path) {
            return Vec::new();
        }
        let mut found = match ends {
            Ends::Ours => Vec::new(),
            Ends::Unknown => on_itself(path),
        };
        // Whoever has the drive has its partitions, from the first byte on.
        let beside = partition::beside::signature(path);
        found.extend(beside.map(|words| ForeignSignature { words, offset: Some(0) }));
        found
    })
}

/// The signatures of others on a device, each with the byte where it begins, as a start sees them.
pub fn signatures_on(path: &str) -> Vec<(String, u64)> {
    let found = foreign_signatures()(path, Ends::Unknown).into_iter();
    found.filter_map(|it| Some((it.words, it.offset?))).collect()
}

fn on_itself(path: &str) -> Vec<ForeignSignature> {
    match signatures(Path::new(path)) {
        Ok(probe) => probe.signatures.iter().map(known).collect(),
        Err(error) => {
            let words = format!("content that cannot be looked at ({error})");
            vec![ForeignSignature { words, offset: None }]
        }
    }
}

fn known(signature: &Signature) -> ForeignSignature {
    ForeignSignature { words: signature.to_string(), offset: Some(signature.offset) }
}

/// How the engine wipes what it finds so.
pub(crate) fn wiper() -> Wiper {
    Arc::new(|path| match is_device(path) {
        true => wipe_signatures(Path::new(path)).map(drop).map_err(|error| error.to_string()),
        false => Ok(()),
    })
}

/// Whether it is a block device or a file, and no memory of ours.
fn is_device(path: &str) -> bool {
    let is_memory =
        memory_devices::is_memory(path) || path.starts_with("mem:") || path.starts_with("null:");
    let is_device =
        |about: std::fs::Metadata| about.is_file() || about.file_type().is_block_device();
    !is_memory && std::fs::metadata(path).is_ok_and(is_device)
}

/// What is a number in the usual case, and may be words.
fn number_or_text<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr<Err = String>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number or a text")]
    enum Said {
        Number(i64),
        Text(String),
    }
    let text = match Said::deserialize(from)? {
        Said::Number(number) => number.to_string(),
        Said::Text(text) => text,
    };
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

mod sizes;
#[cfg(test)]
mod tests;
