//! Which member is slow, and what the slow ones share.
//!
//! What must stay true: a component is named only if all its members are slow and no member outside
//! it is; otherwise the members are named one by one.

use itertools::Itertools;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Below this share of the median a member is slow.
pub const SLOW_SHARE: f64 = 0.9;
/// Beyond this robust z-score it is an outlier.
pub const ROBUST_Z: f64 = 3.5;
/// An outlier nearer to the median than this is not worth a name.
const NEAR_SHARE: f64 = 0.97;
/// Scales a median absolute deviation to a standard deviation of a normal distribution.
const MAD_SCALE: f64 = 0.6745;

#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    pub name: String,
    /// Bytes a second, or IOPS; the same for all.
    pub rate: f64,
    /// What it hangs on, nearest first: (`controller`, `0000:3b:00.0`), (`numa`, `1`).
    pub hangs_on: Vec<(String, String)>,
}

/// A slow member and how far behind it is.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Slow {
    pub name: String,
    pub share: f64,
    /// Robust z-score; absent when all others are equal.
    pub z: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// The slow members, slowest first.
    pub slow: Vec<Slow>,
    /// The smallest component that explains them all: its kind and name.
    pub shared: Option<(String, String)>,
}

impl Finding {
    /// One sentence; `None` if no member is slow.
    pub fn sentence(&self) -> Option<String> {
        let slowest = self.slow.first()?;
        Some(match (&self.shared, self.slow.len()) {
            (_, 1) => {
                format!("{} is slow: {:.0} % of the median", slowest.name, slowest.share * 100.0)
            }
            (Some((kind, name)), many) => {
                format!("all {many} slow members share {kind} {name}: look there first")
            }
            (None, _) => {
                let names = self.slow.iter().map(|slow| slow.name.as_str()).join(", ");
                format!("slow, with nothing that only they share: {}", names)
            }
        })
    }
}

/// Look for slow members among at least three.
pub fn find(members: &[Member]) -> Finding {
    if members.len() < 3 {
        return Finding::default();
    }
    let middle = median(members.iter().map(|member| member.rate));
    let deviation = median(members.iter().map(|member| (member.rate - middle).abs()));
    let mut slow: Vec<Slow> = members
        .iter()
        .filter_map(|member| {
            let share = member.rate / middle;
            let z = (deviation > 0.0).then(|| MAD_SCALE * (member.rate - middle) / deviation);
            let is_outlier = z.is_some_and(|z| z < -ROBUST_Z) && share < NEAR_SHARE;
            let is_slow = share < SLOW_SHARE || is_outlier;
            is_slow.then(|| Slow { name: member.name.clone(), share, z })
        })
        .collect();
    slow.sort_by(|one, other| one.share.total_cmp(&other.share));
    let shared = shared_by(members, &slow);
    Finding { slow, shared }
}

/// The smallest component whose members are exactly the slow ones.
fn shared_by(members: &[Member], slow: &[Slow]) -> Option<(String, String)> {
    let slow: BTreeSet<&str> = slow.iter().map(|slow| slow.name.as_str()).collect();
    if slow.len() < 2 {
        return None;
    }
    // How far it is from the nearest drive, and who hangs on it.
    let mut of: BTreeMap<(&str, &str), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for member in members {
        for (distance, (kind, name)) in member.hangs_on.iter().enumerate() {
            let (nearest, hanging) =
                of.entry((kind, name)).or_insert_with(|| (distance, BTreeSet::new()));
            *nearest = distance.min(*nearest);
            hanging.insert(&member.name);
        }
    }
    of.into_iter()
        .filter(|(_, (_, hanging))| *hanging == slow)
        .min_by_key(|(_, (nearest, _))| *nearest)
        .map(|((kind, name), _)| (kind.to_owned(), name.to_owned()))
}

/// What a disk hangs on by its directory in sysfs, nearest first: expanders and the ports of HBAs,
/// remote ports of a SAN, HBAs, PCIe functions.
pub fn components(disk: &Path) -> Vec<(String, String)> {
    let one = |name: &str| {
        let colons = name.matches(':').count();
        let kind = match name.split_once('-').map_or(name, |(kind, _)| kind) {
            "expander" => "SAS expander",
            // port-0:1:4 belongs to an expander, and to one drive alone.
            "port" if colons == 1 => "SAS port",
            "rport" => "SAN port",
            // 0000:3b:00.0
            _ if name.len() == 12 && colons == 2 && name.contains('.') => "PCIe function",
            host => {
                let number = host.strip_prefix("host").filter(|it| !it.is_empty())?;
                number.chars().all(|it| it.is_ascii_digit()).then_some("HBA")?
            }
        };
        Some((kind.to_owned(), name.to_owned()))
    };
    let names = disk.components().rev().map(|part| part.as_os_str().to_string_lossy());
    names.filter_map(|name| one(&name)).collect()
}

/// The middle value; of an even number the mean of the two middle ones; 0 of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, components, find};
    use std::path::PathBuf;

    /// Eight drives behind two expanders of one HBA, as sysfs has them.
    fn shelf(slow: &[usize]) -> Vec<Member> {
        let one = |at: usize| {
            let (shelf, bay) = (at / 4, at % 4);
            let path = PathBuf::from(format!(
                "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/host0/port-0:{shelf}/\
                 expander-0:{shelf}/port-0:{shelf}:{bay}/\
                 end_device-0:{shelf}:{bay}/target0:0:{at}/0:0:{at}:0/block/sd{at}"
            ));
            let rate = if slow.contains(&at) { 100e6 } else { 250e6 };
            Member { name: format!("sd{at}"), rate, hangs_on: components(&path) }
        };
        (0..8).map(one).collect()
    }

    #[test]
    fn an_expander_whose_drives_are_all_slow_is_named_and_what_lies_on_the_way_is_known() {
        let kinds: Vec<(String, String)> = shelf(&[]).remove(5).hangs_on;
        let told: Vec<&str> = kinds.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(told, ["expander-0:1", "port-0:1", "host0", "0000:02:00.0", "0000:00:01.0"]);
        let shared =
            |slow: &[usize]| find(&shelf(slow)).shared.map(|(kind, name)| format!("{kind} {name}"));
        assert_eq!(shared(&[4, 5, 6]), None, "not all of its drives");
        // Of eight drives four are no outliers: three of seven and an expander with three.
        let mut seven = shelf(&[4, 5, 6]);
        seven.truncate(7);
        assert_eq!(find(&seven).shared, Some(("SAS expander".into(), "expander-0:1".into())));
        let odd = PathBuf::from("/sys/devices/virtual/block/loop0/hostile/host/hosts1/port-x");
        assert!(components(&odd).is_empty(), "{:?}", components(&odd));
        let san = PathBuf::from(
            "/sys/devices/pci0000:00/0000:05:00.1/host7/rport-7:0-3/target7:0:1/7:0:1:0/block/sdz",
        );
        assert_eq!(components(&san)[0], ("SAN port".to_owned(), "rport-7:0-3".to_owned()));
    }

    fn members(rates: &[f64]) -> Vec<Member> {
        let hangs_on = |at: usize| [("controller", at / 4), ("numa", at / 8)];
        let named = |(at, rate): (usize, &f64)| Member {
            name: format!("d{at}"),
            rate: *rate,
            hangs_on: hangs_on(at).map(|(kind, number)| (kind.into(), number.to_string())).into(),
        };
        rates.iter().enumerate().map(named).collect()
    }

    #[test]
    fn slow_members_are_named_by_what_they_share_or_one_by_one() {
        let said = |rates: &[f64]| find(&members(rates)).sentence();
        let mut rates = [500e6; 16];
        assert_eq!(said(&rates), None);
        let noisy: Vec<f64> = (0..10).map(|at| 500e6 + f64::from(at) * 1e6).collect();
        assert_eq!(said(&noisy), None);
        rates[7] = 180e6;
        assert_eq!(said(&rates[..10]).as_deref(), Some("d7 is slow: 36 % of the median"));
        rates[4..8].fill(300e6);
        let shared = "all 4 slow members share controller 1: look there first";
        assert_eq!(said(&rates).as_deref(), Some(shared));
        rates[8] = 300e6;
        assert!(said(&rates).expect("slow").contains("nothing that only they share"));
    }
}
