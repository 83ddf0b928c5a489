//! Failure domains of a declustered array: drives that fail together, and what that costs.
//!
//! What must stay true: what a lost domain costs is put into words once, here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the drives of a failure domain have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DomainKind {
    /// The enclosure that the kernel's enclosure driver names.
    Enclosure,
    /// The port that leads to them, by their names in `/dev/disk/by-path`.
    Path,
    /// The host bus adapter; for NVMe drives the PCI root port.
    Hba,
    /// The operator listed them.
    List,
}

impl DomainKind {
    /// One such domain, in words.
    pub fn noun(self) -> &'static str {
        match self {
            DomainKind::Enclosure => "enclosure",
            DomainKind::Path => "path",
            DomainKind::Hba => "host bus adapter",
            DomainKind::List => "domain",
        }
    }
}

/// The failure domains that a new array is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Domains {
    /// What they are.
    pub kind: DomainKind,
    /// How many: the devices of the first come first, then those of the second, and so on, as many
    /// of each.
    pub count: u16,
}

/// The failure domains of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureDomains {
    /// What they are.
    pub kind: DomainKind,
    /// Most strips of a stripe that a lost domain costs, as the drives are plugged in now.
    pub strips_lost: u16,
    /// Strips of a stripe that parity replaces.
    pub parity_strips: u16,
    /// In slot order.
    pub domains: Vec<FailureDomain>,
}

/// One failure domain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureDomain {
    /// What the kernel calls it, if its drives are there and it does.
    #[serde(default)]
    pub name: Option<String>,
    /// Its slots.
    pub slots: Vec<u16>,
    /// Slots whose drive is plugged in elsewhere, each with the name of that place.
    #[serde(default)]
    pub elsewhere: Vec<(u16, String)>,
}

impl FailureDomains {
    /// What the loss of one domain costs.
    pub fn cost(&self) -> String {
        let noun = self.kind.noun();
        let strips = match self.strips_lost {
            1 => "1 strip".to_owned(),
            strips => format!("{strips} strips"),
        };
        let left = match self.parity_strips.checked_sub(self.strips_lost) {
            None => "stripes that lose so many lose data".to_owned(),
            Some(0) => "all data stays readable, but no further drive may fail".to_owned(),
            Some(1) => "all data stays readable, and 1 more drive may fail".to_owned(),
            Some(left) => format!("all data stays readable, and {left} more drives may fail"),
        };
        format!("a lost {noun} costs at most {strips} of a stripe: {left}")
    }
}

#[cfg(test)]
mod tests {
    use super::{DomainKind, FailureDomains};

    #[test]
    fn what_a_lost_domain_costs_is_said_in_one_sentence() {
        let cost = |kind, strips_lost| {
            FailureDomains { kind, strips_lost, parity_strips: 3, domains: Vec::new() }.cost()
        };
        for (strips, says) in [
            (1, "1 strip of a stripe: all data stays readable, and 2 more drives may fail"),
            (2, "2 strips of a stripe: all data stays readable, and 1 more drive may fail"),
            (3, "3 strips of a stripe: all data stays readable, but no further drive may fail"),
            (4, "4 strips of a stripe: stripes that lose so many lose data"),
        ] {
            let wanted = format!("a lost enclosure costs at most {says}");
            assert_eq!(cost(DomainKind::Enclosure, strips), wanted);
        }
        assert!(cost(DomainKind::Hba, 1).starts_with("a lost host bus adapter costs"));
    }
}
