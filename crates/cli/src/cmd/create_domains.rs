//! `--domain` of `ashlar create` and `grow`: which drives fail together, and so which drive becomes
//! which member.
//!
//! What must stay true: members of a domain have consecutive slots, and all domains have as many.
//! Nothing is written here, and no device is opened.

use crate::fault::Fault;
use crate::reach::device;
use ashlar_api::v1::domain::{DomainKind, Domains, FailureDomain, FailureDomains};
use ashlar_device::{Bay, SharedPart};
use ashlar_layout::declustered::Declustered;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One `--domain`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DomainChoice {
    /// The kernel tells which drives have this in common.
    Found(DomainKind),
    /// These drives.
    Listed { name: String, devices: Vec<PathBuf> },
}

impl FromStr for DomainChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DomainChoice, String> {
        let kind = match text {
            "enclosure" => DomainKind::Enclosure,
            "path" => DomainKind::Path,
            "hba" => DomainKind::Hba,
            _ => return listed(text),
        };
        Ok(DomainChoice::Found(kind))
    }
}

fn listed(text: &str) -> Result<DomainChoice, String> {
    let wrong = || "write enclosure, path, hba or NAME=DEVICE,DEVICE...".to_owned();
    let (name, devices) = text.split_once('=').ok_or_else(wrong)?;
    let devices: Vec<PathBuf> =
        devices.split(',').filter(|it| !it.is_empty()).map(PathBuf::from).collect();
    if name.is_empty() || devices.is_empty() {
        return Err(wrong());
    }
    Ok(DomainChoice::Listed { name: name.to_owned(), devices })
}

/// Drives by what they have in common, in slot order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grouped {
    kind: DomainKind,
    /// As the kernel or the operator calls them.
    pub domains: Vec<(String, Vec<PathBuf>)>,
}

impl Grouped {
    /// The drives of all domains, in slot order.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.domains.iter().flat_map(|(_, devices)| devices.clone()).collect()
    }

    /// What the daemon is asked for.
    pub fn asked(&self) -> Domains {
        let count = u16::try_from(self.domains.len()).unwrap_or(u16::MAX);
        Domains { kind: self.kind, count }
    }

    /// What the array would have of them, laid out so.
    pub fn status(&self, map: &Declustered) -> FailureDomains {
        let parts = map.parts();
        let each = parts.members / self.domains.len().max(1);
        let small = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let domain = |(at, (name, _)): (usize, &(String, Vec<PathBuf>))| FailureDomain {
            name: Some(name.clone()),
            slots: (at * each..(at + 1) * each).map(small).collect(),
            elsewhere: Vec::new(),
        };
        FailureDomains {
            kind: self.kind,
            strips_lost: small(each / parts.domain_members),
            parity_strips: small(parts.parity_strips),
            domains: self.domains.iter().enumerate().map(domain).collect(),
        }
    }

    /// Groups drives as the operator wants them. Without drives, those of the lists.
    ///
    /// # Errors
    /// If it is not known where a drive belongs, or if domains are of unequal size.
    pub fn of(choices: &[DomainChoice], devices: &[PathBuf]) -> Result<Grouped, Fault> {
        let grouped = match choices {
            [DomainChoice::Found(kind)] => found(*kind, devices, Bay::at)?,
            _ => of_lists(choices, devices)?,
        };
        grouped.check_sizes()?;
        Ok(grouped)
    }

    fn check_sizes(&self) -> Result<(), Fault> {
        let count = |it: &(String, Vec<PathBuf>)| it.1.len();
        let most = self.domains.iter().map(count).max().unwrap_or(0);
        if self.domains.iter().all(|it| count(it) == most) {
            return Ok(());
        }
        let told: Vec<String> =
            self.domains.iter().map(|it| format!("{} has {}", it.0, count(it))).collect();
        let message = format!(
            "each {} needs the same number of drives: {}; nothing was written",
            self.kind.noun(),
            told.join(", ")
        );
        Err(Fault::usage(message, "leave drives out, and add them with --spare"))
    }

    fn add(&mut self, name: String, path: PathBuf) {
        match self.domains.iter_mut().find(|(own, _)| *own == name) {
            Some((_, devices)) => devices.push(path),
            None => self.domains.push((name, vec![path])),
        }
    }
}

/// Grouped by what the kernel says of each drive.
fn found(
    kind: DomainKind,
    devices: &[PathBuf],
    bay: impl Fn(&Path) -> Bay,
) -> Result<Grouped, Fault> {
    let part = match kind {
        DomainKind::Enclosure => SharedPart::Enclosure,
        DomainKind::Path => SharedPart::Path,
        DomainKind::Hba | DomainKind::List => SharedPart::Adapter,
    };
    let mut grouped = Grouped { kind, domains: Vec::new() };
    for path in devices {
        let name = bay(path).part(part).ok_or_else(|| {
            let message = format!(
                "the kernel names no {} of {}; nothing was written",
                kind.noun(),
                path.display()
            );
            Fault::usage(message, "list the drives: --domain NAME=DEVICE,DEVICE... for each domain")
        })?;
        grouped.add(name, path.clone());
    }
    Ok(grouped)
}

/// Grouped by the operator's lists.
fn of_lists(choices: &[DomainChoice], devices: &[PathBuf]) -> Result<Grouped, Fault> {
    let mut grouped = Grouped { kind: DomainKind::List, domains: Vec::new() };
    for choice in choices {
        let DomainChoice::Listed { name, devices } = choice else {
            let message = "--domain takes one word, or lists; nothing was written";
            return Err(Fault::usage(message, "see 'ashlar create --help'"));
        };
        if grouped.domains.iter().any(|(own, _)| own == name) {
            let message = format!("domain {name} is listed twice; nothing was written");
            return Err(Fault::usage(message, "list each domain once"));
        }
        grouped.domains.push((name.clone(), devices.clone()));
    }
    check_lists(&grouped.devices(), devices)?;
    Ok(grouped)
}

/// Each drive is in one list, and there are no others.
fn check_lists(listed: &[PathBuf], given: &[PathBuf]) -> Result<(), Fault> {
    let paths = |all: &[PathBuf]| all.iter().map(|it| device(it)).collect::<Result<Vec<_>, _>>();
    let (listed, given) = (paths(listed)?, paths(given)?);
    let twice = listed.iter().enumerate().find(|(at, path)| listed[..*at].contains(path));
    let unlisted = given.iter().find(|path| !listed.contains(path));
    let unnamed = listed.iter().find(|path| !given.is_empty() && !given.contains(path));
    let message = match (twice, unlisted, unnamed) {
        (Some((_, path)), _, _) => format!("{path} is in two domains"),
        (_, Some(path), _) => format!("{path} is in no domain"),
        (_, _, Some(path)) => format!("{path} is in a domain, and is not among the devices"),
        _ => return Ok(()),
    };
    let hint = "list each drive once; the devices need not be named again";
    Err(Fault::usage(format!("{message}; nothing was written"), hint))
}

#[cfg(test)]
mod tests {
    use super::{DomainChoice, Grouped, found};
    use ashlar_api::v1::domain::{DomainKind, Domains};
    use ashlar_device::Bay;
    use std::path::{Path, PathBuf};

    fn choices(typed: &[&str]) -> Vec<DomainChoice> {
        typed.iter().map(|it| it.parse().expect("a choice")).collect()
    }

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    fn refused(typed: &[&str], devices: &[&str]) -> String {
        let refused = Grouped::of(&choices(typed), &paths(devices)).expect_err("cannot be");
        refused.to_string()
    }

    #[test]
    fn drives_become_members_domain_by_domain() {
        let bay = |path: &Path| Bay {
            enclosure: path.to_str().map(|name| name[..1].to_owned()),
            ..Bay::default()
        };
        let devices = paths(&["a1", "b1", "c1", "b2", "a2", "c2"]);
        let grouped = found(DomainKind::Enclosure, &devices, bay).expect("known");
        assert_eq!(grouped.devices(), paths(&["a1", "a2", "b1", "b2", "c1", "c2"]));
        assert_eq!(grouped.asked(), Domains { kind: DomainKind::Enclosure, count: 3 });
        let hba = found(DomainKind::Hba, &devices, bay).expect_err("nothing is known of those");
        assert!(hba.to_string().contains("names no host bus adapter of a1"), "{hba}");
    }

    #[test]
    fn lists_name_the_drives_and_each_once() {
        let lists = ["x=/d/1,/d/2", "y=/d/3,/d/4"];
        let grouped = Grouped::of(&choices(&lists), &[]).expect("two domains");
        assert_eq!(grouped.devices(), paths(&["/d/1", "/d/2", "/d/3", "/d/4"]));
        assert_eq!(grouped.asked(), Domains { kind: DomainKind::List, count: 2 });
        let all = ["/d/4", "/d/3", "/d/2", "/d/1"];
        assert_eq!(Grouped::of(&choices(&lists), &paths(&all)).expect("the same"), grouped);
        for (typed, devices, says) in [
            (&["x=/d/1", "y=/d/1"] as &[&str], &[] as &[&str], "/d/1 is in two domains"),
            (&lists, &["/d/1", "/d/9"], "/d/9 is in no domain"),
            (&lists, &["/d/1"], "/d/2 is in a domain, and is not among the devices"),
            (&["x=/d/1", "x=/d/2"], &[], "domain x is listed twice"),
            (&["x=/d/1", "hba"], &[], "--domain takes one word, or lists"),
            (&["x=/d/1", "y=/d/2,/d/3"], &[], "same number of drives: x has 1, y has 2"),
        ] {
            let refused = refused(typed, devices);
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn other_words_are_refused_with_those_that_there_are() {
        for typed in ["shelf", "=/d/1", "x=", "x=,"] {
            let refused = typed.parse::<DomainChoice>().expect_err("no choice");
            assert!(refused.contains("enclosure, path, hba or NAME=DEVICE"), "{refused}");
        }
    }
}
