//! The configuration of NVMe/TCP.
//!
//! What must stay true: nothing listens unless the file says that everybody who can reach the
//! address is trusted. A secret that others than its owner may read is refused.

use ashlar_nvme_protocol::auth::{Group, Secret};
use ashlar_nvme_protocol::nqn::{Admitted, Nqn};
use ashlar_nvme_tcp::{HostTerms, Limits};
use ashlar_session::SessionLimits;
use serde::Deserialize;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[nvme_tcp]`
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NvmeConfig {
    /// `192.0.2.1:4420`: one or several.
    pub listen: Vec<String>,
    /// Everybody who can reach the addresses sees all that is read and written there, and, unless
    /// hosts are listed with secrets, may read and destroy every volume. There is no TLS.
    pub trusted_network: bool,
    /// Where identity, namespace numbers and reservations are kept; default /var/lib/ashlar/nvme.
    pub state: Option<PathBuf>,
    /// Name of the subsystem; default one that is made once and kept in `state`.
    pub nqn: Option<String>,
    /// Hosts that may connect; all of them if none is listed.
    pub host: Vec<HostConfig>,
    /// Connections at the same time; default 1024.
    pub connections: Option<u64>,
    /// Connections from one address at the same time; default 256.
    pub connections_per_peer: Option<u64>,
    /// Seconds that data or an answer may be stuck before the connection is dropped; default 60.
    pub stall_s: Option<u64>,
}

/// `[[nvme_tcp.host]]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Its name: `/etc/nvme/hostnqn` of the host.
    pub nqn: String,
    /// A file with the secret that the host must prove that it knows (`nvme gen-dhchap-key`).
    pub secret: Option<PathBuf>,
    /// A file with the secret that the daemon proves that it knows, if the host asks.
    pub controller_secret: Option<PathBuf>,
    /// The weakest Diffie-Hellman group of a proof, `none` or `ffdhe2048` to `ffdhe8192`; default
    /// none.
    pub least_dh_group: Option<String>,
}

/// Where state is kept unless the file says otherwise.
const STATE_FOLDER: &str = "/var/lib/ashlar/nvme";
/// Connections from one address: a host has one for each of its cores, and one more.
const CONNECTIONS_PER_PEER: u64 = 256;

impl NvmeConfig {
    /// Where state is kept.
    pub fn state_folder(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| PathBuf::from(STATE_FOLDER))
    }

    /// The addresses to listen at.
    ///
    /// # Errors
    /// An address makes no sense, or nobody said that its network is trusted; one line.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        self.listen.iter().map(|text| self.address(text)).collect()
    }

    fn address(&self, text: &str) -> Result<SocketAddr, String> {
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "'{text}' is not an address; nothing was started; write IP:PORT such as \
                 192.0.2.1:4420"
            )
        })?;
        if self.trusted_network {
            return Ok(address);
        }
        let reach = match address.ip().to_canonical().is_loopback() {
            true => "every user of this machine",
            false => "a whole network",
        };
        Err(format!(
            "NVMe/TCP at {text} would be clear text for {reach}; nothing was started; if \
             everybody who can reach it may see all data, say --nvme-tcp-trusted-network, in the \
             configuration trusted_network = true, and list the hosts that may connect"
        ))
    }

    /// Who may connect.
    ///
    /// # Errors
    /// A name or a secret makes no sense, or others may read it; one line that never shows a
    /// secret.
    pub fn hosts(&self) -> Result<Admitted<HostTerms>, String> {
        if self.host.is_empty() {
            return Ok(Admitted::Anybody(HostTerms::default()));
        }
        let host = |host: &HostConfig| {
            let (nqn, least_group) = host.named()?;
            let read = |path: &Option<PathBuf>| path.as_deref().map(secret).transpose();
            let host_secret = read(&host.secret)?;
            let controller_secret = read(&host.controller_secret)?;
            Ok((nqn, HostTerms { host_secret, controller_secret, least_group }))
        };
        self.host.iter().map(host).collect::<Result<Vec<_>, String>>().map(Admitted::Only)
    }

    /// The name of the subsystem, if the file chooses one.
    ///
    /// # Errors
    /// It is not a name; one line.
    pub fn name(&self) -> Result<Option<Nqn>, String> {
        let name = self.nqn.as_deref().map(str::parse).transpose();
        name.map_err(|fault| format!("nvme_tcp.nqn: {fault}"))
    }

    /// The bounds of each connection.
    pub fn limits(&self) -> Limits {
        let base = SessionLimits::default();
        let stall = |base| self.stall_s.map_or(base, Duration::from_secs);
        Limits::from(SessionLimits {
            sessions_max: self.connections.unwrap_or(base.sessions_max),
            payload_time: stall(base.payload_time),
            send_time: stall(base.send_time),
            ..base
        })
    }

    /// Connections from one address at the same time.
    pub fn per_peer(&self) -> u64 {
        self.connections_per_peer.unwrap_or(CONNECTIONS_PER_PEER)
    }

    /// See that all of it makes sense. The files of secrets are read when it is served.
    ///
    /// # Errors
    /// One line.
    pub fn check(&self) -> Result<(), String> {
        self.addresses()?;
        self.host.iter().try_for_each(|host| host.named().map(drop))?;
        self.name()?;
        for (name, value) in [
            ("connections", self.connections),
            ("connections_per_peer", self.connections_per_peer),
            ("stall_s", self.stall_s),
        ] {
            if value == Some(0) {
                return Err(format!("nvme_tcp.{name} must be at least 1"));
            }
        }
        Ok(())
    }
}

impl HostConfig {
    /// Its name, and the weakest group of a proof.
    ///
    /// # Errors
    /// One line: a name makes no sense, or something is said that needs a secret.
    fn named(&self) -> Result<(Nqn, Group), String> {
        let nqn: Nqn = self.nqn.parse().map_err(|fault| format!("nvme_tcp.host: {fault}"))?;
        let others = [
            ("controller_secret", self.controller_secret.is_some()),
            ("least_dh_group", self.least_dh_group.is_some()),
        ];
        if let (None, Some((name, _))) = (&self.secret, others.iter().find(|(_, is)| *is)) {
            return Err(format!("nvme_tcp.host {nqn}: {name} without secret"));
        }
        Ok((nqn, group(self.least_dh_group.as_deref())?))
    }
}

fn group(name: Option<&str>) -> Result<Group, String> {
    let Some(name) = name else { return Ok(Group::Null) };
    let names = Group::ALL.map(Group::name).join(", ");
    let unknown = || format!("nvme_tcp.host.least_dh_group '{name}' is none of {names}");
    Group::from_name(name).ok_or_else(unknown)
}

/// Others than the owner may do something with a file of this mode.
const OTHERS: u32 = 0o077;

fn secret(path: &Path) -> Result<Secret, String> {
    let fault = |what: String| format!("secret {}: {what}", path.display());
    let metadata = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?;
    if metadata.mode() & OTHERS != 0 {
        let hint = format!("others than its owner may use it; run: chmod 600 {}", path.display());
        return Err(fault(hint));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    text.trim()
        .parse()
        .map_err(|what: ashlar_nvme_protocol::auth::NotASecret| fault(what.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{HostConfig, NvmeConfig};
    use ashlar_nvme_protocol::auth::Group;
    use ashlar_nvme_protocol::nqn::Admitted;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    fn listening(at: &str, trusted_network: bool) -> NvmeConfig {
        NvmeConfig { listen: vec![at.to_owned()], trusted_network, ..NvmeConfig::default() }
    }

    fn with_host(nqn: &str, secret: Option<PathBuf>) -> NvmeConfig {
        let nqn = nqn.to_owned();
        let host = HostConfig { nqn, secret, controller_secret: None, least_dh_group: None };
        NvmeConfig { host: vec![host], ..NvmeConfig::default() }
    }

    #[test]
    fn no_address_is_served_unless_its_network_is_trusted() {
        for (address, reach) in [
            ("127.0.0.1:4420", "every user of this machine"),
            ("[::1]:4420", "every user of this machine"),
            ("0.0.0.0:4420", "a whole network"),
            ("192.0.2.1:4420", "a whole network"),
            ("[::ffff:192.0.2.1]:4420", "a whole network"),
        ] {
            let refusal = listening(address, false).check().expect_err(address);
            assert!(refusal.contains(reach), "{refusal}");
            assert!(refusal.contains("--nvme-tcp-trusted-network"), "{refusal}");
            assert_eq!(listening(address, true).check(), Ok(()), "{address}");
        }
        for text in ["", "localhost", "4420", "unix:/run/nvme.sock"] {
            let refusal = listening(text, true).check().expect_err(text);
            assert!(refusal.contains("192.0.2.1:4420"), "{refusal}");
        }
    }

    #[test]
    fn secrets_are_read_from_files_of_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, format!("{SECRET}\n")).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            with_host("nqn.2014-08.org.nvmexpress:uuid:1", Some(path.clone())).hosts()
        };
        let refusal = mode(0o640).expect_err("others may read it");
        assert!(refusal.contains("chmod 600"), "{refusal}");
        let Ok(Admitted::Only(list)) = mode(0o600) else { panic!("refused") };
        assert!(list[0].1.host_secret.is_some());
        let mut asks = with_host("nqn.2014-08.org.nvmexpress:uuid:1", Some(path.clone()));
        asks.host[0].least_dh_group = Some("ffdhe3072".to_owned());
        let Ok(Admitted::Only(list)) = asks.hosts() else { panic!("refused") };
        assert_eq!(list[0].1.least_group, Group::Ffdhe3072);
        asks.host[0].least_dh_group = Some("modp2048".to_owned());
        let refusal = asks.hosts().expect_err("no such group");
        assert!(refusal.contains("ffdhe2048, ffdhe3072"), "{refusal}");
        asks.host[0] = HostConfig { secret: None, ..asks.host[0].clone() };
        assert!(asks.hosts().expect_err("no proof").contains("least_dh_group without secret"));
        std::fs::write(&path, "DHHC-1:00:AAEC:").unwrap();
        let refusal = mode(0o600).expect_err("no secret");
        assert!(!refusal.contains("AAEC"), "{refusal}");
    }

    #[test]
    fn names_and_bounds_are_checked() {
        assert!(with_host("iqn.2001", None).check().is_err());
        assert!(NvmeConfig { nqn: Some("x".to_owned()), ..NvmeConfig::default() }.check().is_err());
        let none = NvmeConfig { connections: Some(0), ..NvmeConfig::default() };
        assert_eq!(none.check(), Err("nvme_tcp.connections must be at least 1".to_owned()));
        assert!(matches!(NvmeConfig::default().hosts(), Ok(Admitted::Anybody(_))));
    }
}
