//! Network interfaces between the load and the storage: whether they share something, and whether
//! one of them carried it all (item 75).
//!
//! What must stay true: interfaces are judged only where the load went over them: those that the
//! plan names, or those that carried at least half of a figure; one interface alone cannot be
//! uneven.

use crate::Refusal;
use crate::meter::{LinkLoad, NETWORK};
use crate::record::{Check, Measurement};
use crate::units;
use crate::validity::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Part of a figure that must have gone over interfaces which no plan names, before they are
/// judged.
const IS_NETWORKED: f64 = 0.5;
/// One interface that carries this part carries it all.
const ALL: f64 = 0.9;
/// Bytes a second below which nothing is told of an interface's share.
const FLOW_MIN: f64 = 1e5;

/// Refuse interfaces that are not there.
///
/// # Errors
/// If one is not.
pub fn refuse_missing(links: &[String], sysfs: &Path) -> Result<(), Refusal> {
    let is_there = |name: &&String| {
        !name.is_empty() && !name.contains('/') && sysfs.join("class/net").join(name).exists()
    };
    links.iter().find(|name| !is_there(name)).map_or(Ok(()), |name| {
        let said = format!("there is no network interface '{name}'; nothing was started");
        Err(Refusal::cannot_run(
            "link.missing",
            said,
            "correct links in the plan; ip link lists them",
        ))
    })
}

/// What is to be said of the interfaces under a run.
pub fn checks<'a>(
    known: impl Iterator<Item = &'a Measurement>,
    links: &[String],
    sysfs: &Path,
) -> Vec<Check> {
    let mut checks: Vec<Check> = apart(links, sysfs).into_iter().collect();
    // Of each target the point at which the load is most uneven.
    let mut worst: BTreeMap<&str, Uneven<'_>> = BTreeMap::new();
    for one in known {
        let Some(uneven) = Uneven::of(one, links) else { continue };
        if worst.get(one.target.as_str()).is_none_or(|known| known.share < uneven.share) {
            worst.insert(&one.target, uneven);
        }
    }
    checks.extend(worst.into_iter().map(|(target, uneven)| uneven.check(target, sysfs)));
    checks
}

/// A point, and what its interfaces carried.
struct Uneven<'a> {
    measured: &'a Measurement,
    links: Vec<&'a LinkLoad>,
    total: f64,
    share: f64,
}

impl<'a> Uneven<'a> {
    fn of(measured: &'a Measurement, named: &[String]) -> Option<Uneven<'a>> {
        let is_meant = |link: &&LinkLoad| {
            let name = link.id.strip_prefix(NETWORK);
            name.is_some_and(|name| named.is_empty() || named.iter().any(|it| it == name))
        };
        let mut links: Vec<&LinkLoad> =
            measured.path.as_ref()?.links.iter().filter(is_meant).collect();
        links.sort_by(|one, other| other.bytes_per_s.total_cmp(&one.bytes_per_s));
        let total: f64 = links.iter().map(|link| link.bytes_per_s).sum();
        let is_networked = !named.is_empty() || total >= measured.bytes_per_s() * IS_NETWORKED;
        let most = links.first()?.bytes_per_s;
        (links.len() > 1 && total >= FLOW_MIN && is_networked).then(|| Uneven {
            measured,
            links,
            total,
            share: most / total,
        })
    }

    fn check(&self, target: &str, sysfs: &Path) -> Check {
        let name = |link: &LinkLoad| link.id.trim_start_matches(NETWORK).to_owned();
        let told: Vec<String> = self
            .links
            .iter()
            .take(4)
            .map(|link| {
                let full = link.share().map_or(String::new(), |share| {
                    format!(" ({} of what it can)", units::percent(share))
                });
                format!("{} {}{full}", name(link), units::percent(link.bytes_per_s / self.total))
            })
            .collect();
        let said = format!(
            "{} of {} over {} links: {}",
            units::bytes_per_s(self.total),
            self.measured.workload.name,
            self.links.len(),
            told.join(", ")
        );
        let is_alone = self.share >= ALL;
        let hashed = self.links.iter().find_map(|link| bond(&name(link), sysfs));
        let next = match (is_alone, hashed) {
            (false, _) => None,
            (true, Some(hashed)) => Some(format!(
                "{hashed}; one pair of addresses stays on one link: \
                 several IPs and connections, and a hash of layer3+4"
            )),
            (true, None) => Some(
                "one path, one session, or one IP for everything: give each link an IP of its own \
                 and each target several sessions (multipath, nconnect), or several clients"
                    .to_owned(),
            ),
        };
        Check {
            name: "links.spread".to_owned(),
            target: target.to_owned(),
            outcome: if is_alone { Outcome::Fail } else { Outcome::Pass },
            found: said,
            next,
        }
    }
}

/// How the bond that an interface belongs to, or is, spreads its load.
fn bond(name: &str, sysfs: &Path) -> Option<String> {
    let folder = sysfs.join("class/net").join(name);
    let text = |path: &str| fs::read_to_string(folder.join(path)).ok();
    let read = |prefix: &str| {
        Some((text(&format!("{prefix}mode"))?, text(&format!("{prefix}xmit_hash_policy"))?))
    };
    let (mode, policy) = read("master/bonding/").or_else(|| read("bonding/"))?;
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    Some(format!("bonded by {}, spread by {}", word(&mode), word(&policy)))
}

/// Whether the named interfaces share a card or a hardware address.
fn apart(links: &[String], sysfs: &Path) -> Option<Check> {
    if links.len() < 2 {
        return None;
    }
    let folder = |name: &String| sysfs.join("class/net").join(name);
    let card = |name: &String| {
        let device = fs::canonicalize(folder(name).join("device")).ok()?;
        // Ports of one card differ in the function behind the last dot only.
        let address = device.file_name()?.to_string_lossy().into_owned();
        Some(address.rsplit_once('.').map_or(address.clone(), |(card, _)| card.to_owned()))
    };
    let address = |name: &String| {
        let text = fs::read_to_string(folder(name).join("address")).ok()?;
        Some(text.trim().to_owned()).filter(|it| !it.is_empty())
    };
    let shared = |of: &dyn Fn(&String) -> Option<String>| -> Vec<String> {
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for name in links {
            groups.entry(of(name).unwrap_or_else(|| name.clone())).or_default().push(name);
        }
        let several = groups.into_iter().filter(|(_, names)| names.len() > 1);
        several.map(|(what, names)| format!("{} share {what}", names.join(" and "))).collect()
    };
    let told = [shared(&card), shared(&address)].concat();
    let is_apart = told.is_empty();
    Some(Check {
        name: "links.apart".to_owned(),
        target: links.join(", "),
        outcome: if is_apart { Outcome::Pass } else { Outcome::Fail },
        found: match is_apart {
            true => {
                format!("{} links, each with a card and a hardware address of its own", links.len())
            }
            false => told.join("; "),
        },
        next: (!is_apart).then(|| {
            "a shared card has one PCIe link; a shared address is a bond, \
             whose hash decides which link a connection takes"
                .to_owned()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::{checks, refuse_missing};
    use crate::meter::{LinkLoad, PathLoad};
    use crate::record::{Measurement, Record};
    use crate::validity::Outcome;
    use std::fs;
    use std::path::Path;

    /// A gigabyte a second, of which the interfaces carried these megabytes.
    fn measured(links: &[(&str, f64)]) -> Measurement {
        let text = include_str!("../../tests/data/two-engines/records.jsonl");
        let only = |record| if let Record::Measurement(it) = record { Some(*it) } else { None };
        let mut all = text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap());
        let mut one: Measurement = all.find_map(only).unwrap();
        one.target = "/dev/nvme1n1".into();
        (one.read.bytes_per_s, one.write.bytes_per_s) = (1e9, 0.0);
        let link = |(name, mega): &(&str, f64)| LinkLoad {
            id: format!("net:{name}"),
            name: format!("network {name}"),
            bytes_per_s: mega * 1e6,
            carries: Some(1.25e9),
        };
        one.path = Some(PathLoad { links: links.iter().map(link).collect(), drives: Vec::new() });
        one
    }

    fn spread(one: &Measurement, named: &[&str]) -> Vec<(Outcome, String, String)> {
        let named: Vec<String> = named.iter().map(|it| (*it).to_owned()).collect();
        let checks = checks(std::iter::once(one), &named, Path::new("/nonexistent"));
        let own = checks.into_iter().filter(|it| it.name == "links.spread");
        own.map(|it| (it.outcome, it.found, it.next.unwrap_or_default())).collect()
    }

    #[test]
    fn one_link_that_carries_it_all_is_named() {
        let told = spread(&measured(&[("eth0", 980.0), ("eth1", 20.0)]), &[]);
        assert_eq!((told.len(), told[0].0), (1, Outcome::Fail));
        assert!(
            told[0].1.contains("eth0 98.0 %") && told[0].1.contains("78.4 % of what it can"),
            "{told:?}"
        );
        assert!(told[0].2.contains("several sessions"), "{told:?}");
        let even = spread(&measured(&[("eth0", 520.0), ("eth1", 480.0)]), &[]);
        assert_eq!(even[0].0, Outcome::Pass, "{even:?}");
    }

    #[test]
    fn what_did_not_go_over_the_network_says_nothing_unless_the_plan_names_links() {
        let beside = measured(&[("eth0", 9.0), ("eth1", 0.0)]);
        assert!(spread(&beside, &[]).is_empty(), "a hundredth of the load is not the load");
        assert_eq!(spread(&beside, &["eth0", "eth1"])[0].0, Outcome::Fail);
        let all = measured(&[("eth0", 900.0), ("eth1", 90.0), ("manage", 5.0)]);
        assert_eq!(spread(&all, &["eth0", "eth1"])[0].1.matches("eth").count(), 2);
        assert!(spread(&all, &["eth0"]).is_empty(), "one link cannot be uneven");
    }

    #[test]
    fn links_that_share_a_card_or_an_address_and_the_hash_of_a_bond_are_told() {
        let place = tempfile::tempdir().expect("a directory");
        let sysfs = place.path();
        for (name, function, address) in [("eth0", "0", "02:01"), ("eth1", "1", "02:01")] {
            let folder = sysfs.join("class/net").join(name);
            let device = sysfs.join(format!("devices/0000:3b:00.{function}"));
            fs::create_dir_all(&folder).expect("made");
            fs::create_dir_all(&device).expect("made");
            std::os::unix::fs::symlink(&device, folder.join("device")).expect("linked");
            fs::write(folder.join("address"), format!("{address}\n")).expect("written");
            fs::create_dir_all(folder.join("master/bonding")).expect("made");
            fs::write(folder.join("master/bonding/mode"), "802.3ad 4\n").expect("written");
            fs::write(folder.join("master/bonding/xmit_hash_policy"), "layer2 0\n")
                .expect("written");
        }
        let one = measured(&[("eth0", 990.0), ("eth1", 0.0)]);
        let named = ["eth0".to_owned(), "eth1".to_owned()];
        let checks = checks(std::iter::once(&one), &named, sysfs);
        assert_eq!((checks[0].name.as_str(), checks[0].outcome), ("links.apart", Outcome::Fail));
        assert!(
            checks[0].found.contains("0000:3b:00") && checks[0].found.contains("02:01"),
            "{checks:?}"
        );
        let next = checks[1].next.as_deref().unwrap_or_default();
        assert!(next.contains("bonded by 802.3ad, spread by layer2"), "{next}");
        assert!(refuse_missing(&named, sysfs).is_ok());
        for wrong in ["eth9", "", "../net"] {
            assert_eq!(
                refuse_missing(&[wrong.to_owned()], sysfs).expect_err(wrong).code,
                "link.missing"
            );
        }
    }
}
