//! Exports: how clients reach volumes. NBD listeners serve every volume by name; FUSE shows each
//! attached volume as one file, ublk as one block device.

use super::Done;
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Serve all volumes over NBD at an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NbdListen {
    /// `unix:/run/ashlar/nbd.sock`, or `192.0.2.1:10809`.
    pub listen: String,
    /// Whoever can reach the address may read and destroy every volume, and may see all that goes
    /// over the wire: needed for TCP addresses other than loopback ones without `tls`.
    #[serde(default)]
    pub trusted_network: bool,
    /// Demand TLS 1.3 and a certificate of every client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<NbdTls>,
}

/// Files in PEM form that the daemon reads, for a listener with TLS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NbdTls {
    /// Path of the server's certificate, followed by those between it and its authority.
    pub certificate: String,
    /// Path of its private key; refused if others than its owner may read it.
    pub key: String,
    /// Path of the certificate of the authority whose clients are let in.
    pub ca: String,
}

impl Call for NbdListen {
    const PATH: &'static str = "/v1/exports/nbd/listen";
    type Answer = Done;
}

/// Make a volume a block device of this machine, or a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The array's name.
    pub array: String,
    /// The way; default: as it is attached already, else by ublk, else by a loop device.
    #[serde(default)]
    pub via: Option<Via>,
    /// Logical block of a loop device in bytes, 512 or 4096. Default that of the array.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// Do not attach it again when the array starts the next time.
    #[serde(default)]
    pub not_remembered: bool,
}

impl Call for Attach {
    const PATH: &'static str = "/v1/exports/attach";
    type Answer = Attached;
}

/// How a volume is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The kernel's ublk driver.
    Ublk,
    /// A loop device over a file.
    Loop,
    /// A file only.
    File,
}

/// Where an attached volume is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attached {
    /// False when it was there already.
    pub changed: bool,
    /// The way.
    pub via: Via,
    /// Why that way.
    pub reason: String,
    /// Path of the file, if there is one.
    #[serde(default)]
    pub file: Option<String>,
    /// Path of the block device, if there is one.
    #[serde(default)]
    pub device: Option<String>,
    /// The same under a name that stays, if this daemon gives such names.
    #[serde(default)]
    pub link: Option<String>,
    /// Whoever has it open sees a pause and no error when the daemon is killed and comes back.
    pub survives: bool,
    /// Why not, in a line, if it does not.
    #[serde(default)]
    pub lacks: Option<String>,
    /// Its requests come over io_uring.
    #[serde(default)]
    pub over_ring: bool,
    /// Why they do not, in a line, if the daemon was configured so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_over_ring: Option<String>,
}

/// Show a volume as a file in the daemon's FUSE folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FuseAttach {
    /// The array's name.
    pub array: String,
}

impl Call for FuseAttach {
    const PATH: &'static str = "/v1/exports/fuse/attach";
    type Answer = FuseAttached;
}

/// Where the volume is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FuseAttached {
    /// False when it was there already.
    pub changed: bool,
    /// Path of the file.
    pub file: String,
    /// Whoever has it open sees a pause and no error when the daemon is killed and comes back.
    #[serde(default)]
    pub survives: bool,
    /// Why not, in a line, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Its requests come over io_uring.
    #[serde(default)]
    pub over_ring: bool,
    /// Why they do not, in a line, if the daemon was configured so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_over_ring: Option<String>,
}

/// Remove the file of a volume from the FUSE folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FuseDetach {
    /// The array's name.
    pub array: String,
    /// If nobody serves the file, because its array has not started since the daemon did: take it
    /// away although somebody has it open, who gets errors then.
    #[serde(default)]
    pub give_up: bool,
}

impl Call for FuseDetach {
    const PATH: &'static str = "/v1/exports/fuse/detach";
    type Answer = Done;
}

/// Make a volume a block device of this machine by ublk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UblkAttach {
    /// The array's name.
    pub array: String,
}

impl Call for UblkAttach {
    const PATH: &'static str = "/v1/exports/ublk/attach";
    type Answer = UblkAttached;
}

/// Where the block device is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UblkAttached {
    /// False when it was there already.
    pub changed: bool,
    /// Path of the block device.
    pub device: String,
}

/// Remove the ublk device of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UblkDetach {
    /// The array's name.
    pub array: String,
}

impl Call for UblkDetach {
    const PATH: &'static str = "/v1/exports/ublk/detach";
    type Answer = Done;
}

/// One way to a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportStatus {
    /// `nbd`, `nbds` (NBD that demands TLS), `nvme-tcp`, `fuse` or `ublk`.
    pub protocol: String,
    /// Requests answered so far.
    pub requests: u64,
    /// Address of the listener, or path of the file or of the block device.
    pub address: String,
    /// The one array it serves; `None` when it serves all of them by name.
    #[serde(default)]
    pub array: Option<String>,
    /// Clients connected now.
    pub clients: u64,
    /// Of a FUSE file: its requests come over io_uring.
    #[serde(default)]
    pub over_ring: bool,
    /// Block devices over its file, such as `/dev/loop3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}
