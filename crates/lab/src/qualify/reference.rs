//! What a server of a class offers in good order: that of a capture, or one that ships with the lab
//! (`models/references.toml`).
//!
//! What must stay true: a made-up reference is called synthetic wherever it is named; what a server
//! does not tell is open, never as good.

use super::Verdict;
use crate::inspect::Inspection;
use crate::inspect::server::memory::Bank;
use crate::metrics::bandwidth::Rate;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// Begins the names of those that ship with the lab: no server was measured for them.
pub const SYNTHETIC: &str = "synthetic:";

/// What a server offers; 0 is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// `synthetic:nvme-24-dual-socket`, or the directory of a capture.
    pub name: String,
    pub drives: u64,
    /// Processors as the kernel counts them.
    pub cpus: u64,
    /// All populated memory channels, bytes a second.
    pub memory_bytes_per_s: u64,
    /// All drives read at once, bytes a second into memory.
    pub read_bytes_per_s: u64,
    /// All drives in a rebuild, bytes a second of them.
    pub rebuild_bytes_per_s: u64,
}

/// A figure of a reference: its name, whether it is a rate, and where it is.
type Row = (&'static str, bool, fn(&Reference) -> u64);

const ROWS: [Row; 5] = [
    ("drives", false, |it| it.drives),
    ("processors", false, |it| it.cpus),
    ("bandwidth of memory", true, |it| it.memory_bytes_per_s),
    ("all drives at once", true, |it| it.read_bytes_per_s),
    ("all drives in a rebuild", true, |it| it.rebuild_bytes_per_s),
];

impl Reference {
    pub fn of(name: &str, inspection: &Inspection) -> Reference {
        let server = &inspection.server;
        let count = |all: usize| u64::try_from(all).unwrap_or(u64::MAX);
        let banks = server.memory.as_ref().and_then(|it| it.banks()).unwrap_or_default();
        let memory: Option<Vec<Rate>> = banks.values().map(Bank::rate).collect();
        Reference {
            name: name.to_owned(),
            drives: count(server.drives.len()),
            cpus: count(server.cpu.threads.len()),
            memory_bytes_per_s: memory.map_or(0, |rates| rates.iter().map(|it| it.0).sum()),
            read_bytes_per_s: inspection.read.carried.0,
            rebuild_bytes_per_s: inspection.rebuild.carried.0,
        }
    }

    pub fn shipped() -> Vec<Reference> {
        type Table = std::collections::BTreeMap<String, Vec<Reference>>;
        let read = toml::from_str::<Table>(include_str!("../../models/references.toml"));
        read.unwrap_or_default().remove("reference").unwrap_or_default()
    }

    pub fn named(name: &str) -> Result<Reference, Refusal> {
        let all = Reference::shipped();
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        let hint = format!("{}, or the directory of a capture", names.join(", "));
        let found = all.iter().find(|it| it.name == name).cloned();
        found.ok_or_else(|| {
            let said = format!("the lab has no reference {name}; nothing was done");
            Refusal::cannot_run("reference.unknown", said).hint(&hint)
        })
    }

    /// What `own` has less of: fewer drives or processors, or rates below this share.
    pub(super) fn judge(&self, own: &Reference, least: f64, verdict: &mut Verdict) {
        for (what, is_rate, figure) in ROWS {
            let (wanted, found) = (figure(self), figure(own));
            let told = |value: u64| match is_rate {
                true => Rate(value).to_string(),
                false => value.to_string(),
            };
            let share = Rate(found).share_of(Rate(wanted.max(1)));
            if wanted == 0 {
                continue;
            }
            if found == 0 {
                verdict.open.push(format!("{what}: not known; {} in {}", told(wanted), self.name));
            } else if share < if is_rate { least } else { 1.0 } {
                let (found, wanted) = (told(found), told(wanted));
                verdict.change.push(format!("{what}: {found} of {wanted} in {}", self.name));
            }
        }
    }
}
