//! Growth: a declustered array gets more members.

use super::domain::Domains;
use crate::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Grow a declustered array over more devices. Its clients wait for about a second. Then cells move
/// to the new members while the array serves, and at the end its volume is larger.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grow {
    /// The array's name.
    pub array: String,
    /// Paths of the new members, one for each.
    pub devices: Vec<String>,
    /// The failure domains that they come in, as on creation: as large as those of the array.
    /// Needed exactly if the array has some.
    #[serde(default)]
    pub domains: Option<Domains>,
    /// Accept the new drives even if data could be lost when a whole domain fails.
    #[serde(default)]
    pub other_domain: bool,
    /// Devices among them to overwrite even if they carry a signature.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Use whole drives as they are. Default: a drive gets a partition first, so that other
    /// programs see that it is taken.
    #[serde(default)]
    pub whole: bool,
    /// Check everything, write nothing, tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for Grow {
    const PATH: &'static str = "/v1/arrays/grow";
    type Answer = Grown;
}

/// What a growth comes to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Grown {
    /// False after a dry run.
    pub changed: bool,
    /// One sentence for people.
    pub message: String,
    /// Members before it.
    pub members_before: u16,
    /// Members after it.
    pub members: u16,
    /// Cells that move.
    pub moved_cells: u64,
    /// Cells of all members before it.
    pub cells: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Usable size before it, in bytes.
    pub volume_bytes_before: u64,
    /// Usable size at its end, in bytes.
    pub volume_bytes: u64,
    /// Bytes that each new member gets at most. Its rate bounds the time.
    pub bytes_to_each_new: u64,
    /// Things worth knowing.
    #[serde(default)]
    pub notes: Vec<String>,
}
