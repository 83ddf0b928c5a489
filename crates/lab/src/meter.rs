//! What flowed over drives and links while a load ran: bytes and busy time of drives from
//! /proc/diskstats, led along the links of the topology.
//!
//! What must stay true: a drive that several ways lead to gives each an equal part; a link whose
//! capacity nobody knows has a flow and no share. Not here: what the links could carry (inspect).

use crate::evidence::process::monotonic;
use crate::inspect::Inspection;
use crate::inspect::diagram::Measured;
use crate::inspect::topology::Topology;
use crate::metrics::bandwidth::Rate;
use crate::metrics::latency::to_f64;
use crate::units;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What drives and links carried during a measurement.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PathLoad {
    pub drives: Vec<DriveLoad>,
    pub links: Vec<LinkLoad>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DriveLoad {
    /// `sda`, `nvme0n1`.
    pub name: String,
    /// Bytes a second, read and written.
    pub bytes_per_s: f64,
    /// Share of the time with at least one I/O in flight, 0 to 1.
    pub busy: f64,
    /// I/Os in flight on average.
    pub queued: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkLoad {
    pub id: String,
    /// For people: from where to where, and what it is.
    pub name: String,
    pub bytes_per_s: f64,
    /// Bytes a second that it can carry, if that is known.
    pub carries: Option<f64>,
}

impl LinkLoad {
    pub fn share(&self) -> Option<f64> {
        self.carries.filter(|carries| *carries > 0.0).map(|carries| self.bytes_per_s / carries)
    }
}

impl PathLoad {
    /// The link that is fullest by share, with that share.
    pub fn fullest(&self) -> Option<(&LinkLoad, f64)> {
        let shares = self.links.iter().filter_map(|link| Some((link, link.share()?)));
        shares.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    pub fn measured(&self) -> Measured {
        let rate = |link: &LinkLoad| Rate(units::whole(link.bytes_per_s));
        self.links.iter().map(|link| (link.id.clone(), rate(link))).collect()
    }
}

/// Looks at the drives of one server.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    topology: Topology,
}

#[derive(Clone, Debug, Default)]
pub struct Reading {
    drives: BTreeMap<String, Counters>,
    taken: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counters {
    bytes: u64,
    busy_ms: u64,
    waited_ms: u64,
}

impl Reading {
    /// Look now. Without /proc/diskstats there is nothing to see, and no load later.
    pub fn now() -> Reading {
        let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
        Reading::parsed(&text, monotonic())
    }

    /// What that file said at `taken`.
    pub(crate) fn parsed(drives: &str, taken: Duration) -> Reading {
        Reading { drives: parse(drives), taken }
    }

    fn seconds(&self, later: &Reading) -> Option<f64> {
        let seconds = later.taken.saturating_sub(self.taken).as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    }

    /// What the drive that the kernel calls `name` did until `later`.
    pub fn load(&self, later: &Reading, name: &str) -> Option<DriveLoad> {
        let (was, is) = (self.drives.get(name)?, later.drives.get(name)?);
        let seconds = self.seconds(later)?;
        let grown = |of: fn(&Counters) -> u64| to_f64(of(is).saturating_sub(of(was))) / seconds;
        Some(DriveLoad {
            name: name.to_owned(),
            bytes_per_s: grown(|it| it.bytes),
            busy: (grown(|it| it.busy_ms) / 1e3).min(1.0),
            queued: grown(|it| it.waited_ms) / 1e3,
        })
    }

    /// Bytes a second that the block device at `path` moved until `later`, if it is one.
    pub fn rate(&self, later: &Reading, path: &Path) -> Option<f64> {
        Some(self.load(later, &kernel_name(path)?)?.bytes_per_s)
    }
}

/// What the kernel calls the block device at `path`: `sda`, `dm-0`.
pub fn kernel_name(path: &Path) -> Option<String> {
    let real = std::fs::canonicalize(path).ok()?;
    Some(real.strip_prefix("/dev").ok()?.to_string_lossy().into_owned())
}

impl Meter {
    pub fn of(inspection: &Inspection) -> Meter {
        Meter { topology: inspection.topology.clone() }
    }

    /// What was carried between two looks; `None` if no drive of the server was seen in both.
    pub fn between(&self, before: &Reading, after: &Reading) -> Option<PathLoad> {
        let names = self.topology.drive_names.iter().flat_map(|(_, names)| names);
        let drives: Vec<DriveLoad> = names.filter_map(|name| before.load(after, name)).collect();
        (!drives.is_empty()).then(|| PathLoad { links: self.links(&drives), drives })
    }

    /// Lead each drive's flow along the links above it.
    fn links(&self, drives: &[DriveLoad]) -> Vec<LinkLoad> {
        let links = &self.topology.links;
        let mut flows = vec![0.0; links.len()];
        for (node, names) in &self.topology.drive_names {
            let own = drives.iter().filter(|drive| names.contains(&drive.name));
            self.lead(*node, own.map(|drive| drive.bytes_per_s).sum(), &mut flows, links.len());
        }
        let told =
            links.iter().zip(flows).filter(|(link, _)| !link.is_media() && !link.is_memory());
        told.filter(|(link, _)| !link.standard.is_empty())
            .map(|(link, bytes_per_s)| LinkLoad {
                id: link.id.clone(),
                name: self.topology.name(link),
                bytes_per_s,
                carries: link.capacity.map(|rate| to_f64(rate.0)),
            })
            .collect()
    }

    /// `left` bounds the way: a graph with a circle in it ends there.
    fn lead(&self, node: usize, flow: f64, flows: &mut [f64], left: usize) {
        let from_socket = self.topology.is_socket(node);
        let links = &self.topology.links;
        let up: Vec<usize> = (0..links.len()).filter(|at| links[*at].from == Some(node)).collect();
        if left == 0 || up.is_empty() || from_socket {
            return;
        }
        let part = flow / to_f64(u64::try_from(up.len()).unwrap_or(1));
        for at in up {
            flows[at] += part;
            if let Some(next) = links[at].to {
                self.lead(next, part, flows, left - 1);
            }
        }
    }
}

/// Lines `major minor name reads merged sectors ms writes merged sectors ms in_flight busy_ms
/// waited_ms ...`.
fn parse(text: &str) -> BTreeMap<String, Counters> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let sectors = number(5)?.saturating_add(number(9)?);
        let counters = Counters {
            bytes: sectors.saturating_mul(512),
            busy_ms: number(12)?,
            waited_ms: number(13)?,
        };
        Some(((*words.get(2)?).to_owned(), counters))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{Counters, Meter, Reading, parse};
    use crate::inspect::{Inspection, captured, topology::Given};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn lines_of_diskstats_become_bytes_and_times() {
        let text =
            "   8       0 sda 10 0 2048 5 20 0 4096 9 1 300 700 0 0 0 0\ngarbage\n 8 1 sda1 x\n";
        let all = parse(text);
        let sda = Counters { bytes: 6144 * 512, busy_ms: 300, waited_ms: 700 };
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("sda".to_owned(), sda)]);
    }

    /// Sixty drives on four controllers, each drive at 100 MB/s: every controller carries its own
    /// fifteen.
    #[test]
    fn flows_of_drives_are_led_over_expanders_and_controllers() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jbod-60-four-hba");
        let inspection =
            Inspection::of(captured(&place).expect("a capture"), None, Given::default());
        let meter = Meter::of(&inspection);
        let names = meter.topology.drive_names.iter().flat_map(|(_, names)| names);
        let names: Vec<String> = names.cloned().collect();
        assert_eq!(names.len(), 60);
        let reading = |seconds: u64| {
            let (bytes, busy_ms, waited_ms) =
                (100_000_000 * seconds, 500 * seconds, 3000 * seconds);
            let counters = Counters { bytes, busy_ms, waited_ms };
            let drives = names.iter().map(|name| (name.clone(), counters)).collect();
            Reading { drives, taken: Duration::from_secs(seconds) }
        };
        let load = meter.between(&reading(10), &reading(20)).expect("seen");
        let controllers = load.links.iter().filter(|link| link.id.contains(">socket"));
        let controllers: Vec<f64> = controllers.map(|link| link.bytes_per_s / 1e6).collect();
        assert_eq!(controllers.len(), 4, "{:?}", load.links);
        assert!(controllers.iter().all(|rate| (rate - 1500.0).abs() < 1e-6), "{controllers:?}");
        assert!(load.drives.iter().all(|drive| (drive.busy - 0.5).abs() < 1e-9));
        assert!((load.drives[0].queued - 3.0).abs() < 1e-9);
        let (link, share) = load.fullest().expect("capacities are known");
        assert!((link.share().expect("known") - share).abs() < 1e-12 && share > 0.0);
        assert_eq!(load.measured().len(), load.links.len());
        assert_eq!(meter.between(&reading(10), &reading(10)), None);
    }
}
