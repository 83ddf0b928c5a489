//! The SAS fabric: phys with their error counters, ports with their lanes, expanders; sysfs first,
//! SMP tools beside it.
//!
//! What must stay true: a counter that was not read is absent, not zero; a vacant phy is no phy.
//! Nothing is ever sent that changes an expander: zoning stays with its vendor's command in the
//! operator's hands.

use crate::metrics::bandwidth::sas_mega_bits;
use crate::source::Source;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a phy has counted since it was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PhyErrors {
    pub invalid_dwords: u64,
    pub disparity_errors: u64,
    pub sync_losses: u64,
    /// Resets that did not end well.
    pub reset_problems: u64,
}

impl PhyErrors {
    pub fn sum(self) -> u64 {
        [self.invalid_dwords, self.disparity_errors, self.sync_losses, self.reset_problems]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// How much each has grown since `before`. A counter that fell was reset: what it shows has
    /// grown since then.
    pub fn since(self, before: PhyErrors) -> PhyErrors {
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        PhyErrors {
            invalid_dwords: grown(self.invalid_dwords, before.invalid_dwords),
            disparity_errors: grown(self.disparity_errors, before.disparity_errors),
            sync_losses: grown(self.sync_losses, before.sync_losses),
            reset_problems: grown(self.reset_problems, before.reset_problems),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Phy {
    pub name: String,
    /// What it runs at, Mbit/s; None if nothing is attached.
    pub negotiated: Option<u64>,
    /// What it could run at, Mbit/s.
    pub capable: Option<u64>,
    pub errors: Option<PhyErrors>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Lanes {
    /// Mbit/s of one lane, the slowest.
    pub mega_bits: u64,
    pub count: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Expander {
    pub name: String,
    pub product: Option<String>,
    /// How often its topology has changed.
    pub change_count: Option<u64>,
    /// Addresses of initiators that it sees and that are not ours; None if nobody could ask it.
    pub foreign_initiators: Option<BTreeSet<String>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Enclosure {
    pub name: String,
    /// Elements that are not well: `Power supply 1: Critical`; None if nobody could ask it.
    pub unwell: Option<Vec<String>>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sas {
    pub phys: Vec<Phy>,
    pub ports: BTreeMap<String, Lanes>,
    pub expanders: Vec<Expander>,
    pub enclosures: Vec<Enclosure>,
}

pub fn read(source: &Source) -> Sas {
    let mut sas = Sas::default();
    let mut own_addresses = BTreeSet::new();
    for name in source.names("/sys/class/sas_phy") {
        let text = |file: &str| source.text(&format!("/sys/class/sas_phy/{name}/{file}"));
        // A controller's phy is `phy-HOST:N`; an expander's has a part more.
        if name.matches(':').count() == 1 {
            own_addresses
                .extend(text("sas_address").map(|it| it.trim_start_matches("0x").to_owned()));
        }
        let rate = |file: &str| text(file).and_then(|text| sas_mega_bits(&text));
        let (negotiated, capable) = (rate("negotiated_linkrate"), rate("maximum_linkrate"));
        sas.phys.push(Phy { errors: errors(source, &name), negotiated, capable, name });
    }
    for name in source.names("/sys/class/sas_port") {
        if let Some(lanes) = lanes(source, &name, &sas.phys) {
            sas.ports.insert(name, lanes);
        }
    }
    let mut names = source.names("/sys/class/sas_expander");
    names.extend(source.names("/dev/bsg").into_iter().filter(|it| it.starts_with("expander-")));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == ':';
    let names: BTreeSet<String> = names.into_iter().filter(|it| it.chars().all(is_plain)).collect();
    for name in names {
        let expander = expander(source, &name, &own_addresses, &mut sas.phys);
        sas.expanders.push(expander);
    }
    sas.enclosures = enclosures(source);
    sas
}

fn enclosures(source: &Source) -> Vec<Enclosure> {
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_digit() || c == ':');
    let names = source.names("/sys/class/enclosure").into_iter().filter(is_plain);
    let one = |name: String| {
        let generic = source.names(&format!("/sys/class/enclosure/{name}/device/scsi_generic"));
        let text = generic.first().and_then(|generic| {
            let device = format!("/dev/{generic}");
            source.output(&format!("sg_ses-{name}"), &["sg_ses", "-p", "2", &device])
        });
        Enclosure { unwell: text.map(|text| unwell(&text)), name }
    };
    names.map(one).collect()
}

/// Elements that `sg_ses -p 2` calls something else than well. What is not there is not unwell.
fn unwell(text: &str) -> Vec<String> {
    let (mut kind, mut element, mut found) = ("", "", Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Element type: ") {
            kind = rest.split(',').next().unwrap_or(rest);
        } else if let Some(rest) = line.strip_prefix("Element ") {
            element = rest.trim_end_matches(':').trim_end_matches(" descriptor");
        } else if line.starts_with("Overall descriptor") {
            element = "";
        }
        let Some((flags, status)) = line.split_once("status: ").filter(|_| !element.is_empty())
        else {
            continue;
        };
        let status = status.split(',').next().unwrap_or(status).trim();
        let is_bad = ["Critical", "Noncritical", "Unrecoverable"].contains(&status);
        match flags.contains("Predicted failure=1") {
            true => found.push(format!("{kind} {element}: failure predicted")),
            false if is_bad => found.push(format!("{kind} {element}: {status}")),
            false => {}
        }
    }
    found
}

fn errors(source: &Source, phy: &str) -> Option<PhyErrors> {
    let number = |file: &str| source.number(&format!("/sys/class/sas_phy/{phy}/{file}"));
    Some(PhyErrors {
        invalid_dwords: number("invalid_dword_count")?,
        disparity_errors: number("running_disparity_error_count")?,
        sync_losses: number("loss_of_dword_sync_count")?,
        reset_problems: number("phy_reset_problem_count")?,
    })
}

fn lanes(source: &Source, port: &str, phys: &[Phy]) -> Option<Lanes> {
    let names = source.names(&format!("/sys/class/sas_port/{port}/device"));
    let names: BTreeSet<String> = names.into_iter().filter(|it| it.starts_with("phy-")).collect();
    let rates = phys.iter().filter(|phy| names.contains(&phy.name)).filter_map(|it| it.negotiated);
    let rates: Vec<u64> = rates.collect();
    let mega_bits = rates.iter().copied().min()?;
    Some(Lanes { mega_bits, count: u64::try_from(rates.len()).ok()? })
}

fn expander(source: &Source, name: &str, own: &BTreeSet<String>, phys: &mut Vec<Phy>) -> Expander {
    let words = ["vendor_id", "product_id", "product_rev"];
    let words = words.map(|file| source.text(&format!("/sys/class/sas_expander/{name}/{file}")));
    let words: Vec<String> =
        words.into_iter().flatten().map(|word| word.trim().to_owned()).collect();
    let device = format!("/dev/bsg/{name}");
    let seen = source.output(&format!("smp_discover-{name}"), &["smp_discover", &device]);
    // What the operator of the story typed, for every phy an expander may have.
    let all =
        format!("for phy in $(seq 0 67); do smp_rep_phy_err_log -p $phy {device} 2>&1; done; true");
    let log = source.output(&format!("smp_rep_phy_err_log-{name}"), &["sh", "-c", &all]);
    let log = error_log(&log.unwrap_or_default());
    for (id, errors) in log.phys {
        let phy = format!("{}:{id}", name.replacen("expander", "phy", 1));
        match phys.iter_mut().find(|it| it.name == phy) {
            Some(known) => known.errors = known.errors.or(Some(errors)),
            None => {
                phys.push(Phy { name: phy, negotiated: None, capable: None, errors: Some(errors) })
            }
        }
    }
    Expander {
        name: name.to_owned(),
        product: (!words.is_empty()).then(|| words.join(" ")),
        change_count: log.change_count,
        foreign_initiators: seen.map(|text| foreign(&text, own)),
    }
}

#[derive(Debug, Default, PartialEq)]
struct ErrorLog {
    change_count: Option<u64>,
    phys: BTreeMap<u64, PhyErrors>,
}

/// What `smp_rep_phy_err_log` printed for one phy after the other. "Phy vacant" gives nothing.
fn error_log(text: &str) -> ErrorLog {
    let mut log = ErrorLog::default();
    let mut phy = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value: Option<u64> = value.trim().parse().ok();
        let Some(value) = value else {
            phy = None;
            continue;
        };
        let name = name.trim().to_ascii_lowercase();
        if name == "expander change count" {
            log.change_count = Some(value);
        } else if name == "phy identifier" {
            phy = Some(value);
            log.phys.insert(value, PhyErrors::default());
        }
        let Some(errors) = phy.and_then(|phy| log.phys.get_mut(&phy)) else { continue };
        match name.as_str() {
            "invalid dword count" => errors.invalid_dwords = value,
            "running disparity error count" => errors.disparity_errors = value,
            "loss of dword synchronization count" => errors.sync_losses = value,
            "phy reset problem count" => errors.reset_problems = value,
            _ => {}
        }
    }
    log
}

/// Addresses of initiators in what `smp_discover` printed that are not ours:
/// `  phy  48:S:attached:[500605b00a1b2c30:00  i(SSP+STP+SMP)]  12 Gbps`.
fn foreign(text: &str, own: &BTreeSet<String>) -> BTreeSet<String> {
    let attached = |line: &str| {
        let (_, rest) = line.split_once("attached:[")?;
        let (inside, _) = rest.split_once(']')?;
        let address = inside.split(':').next()?;
        inside.contains(" i(").then(|| address.to_owned())
    };
    text.lines().filter_map(attached).filter(|address| !own.contains(address)).collect()
}

#[cfg(test)]
mod tests {
    use super::PhyErrors;

    #[test]
    fn a_counter_that_was_reset_has_grown_by_what_it_shows() {
        let errors = |invalid_dwords| PhyErrors { invalid_dwords, ..PhyErrors::default() };
        assert_eq!(errors(12).since(errors(10)), errors(2));
        assert_eq!(errors(3).since(errors(10)), errors(3));
    }
}
