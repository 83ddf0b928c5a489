//! Each second of a load while it runs: what the drives carry, how much is in flight there, which
//! of them answers slowest, and how busy each core is.
//!
//! What must stay true: seconds are kept whether anybody looks on or not, and what cannot be kept
//! or shown never ends a measurement.

use super::ticker::Tick;
use crate::meter::DriveLoad;
use crate::units;
use indicatif::ProgressBar;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Name of the file in a run's directory that seconds are kept in, as lines of JSON.
pub const FILE: &str = "seconds.jsonl";
/// Less than this in flight is no load.
const QUEUED_MIN: f64 = 0.01;

#[derive(Clone, PartialEq, Debug)]
pub struct Second {
    pub unix_s: f64,
    pub drives: Vec<DriveLoad>,
    pub cores: Vec<f64>,
    /// The drives are below an array.
    pub is_array: bool,
}

impl Second {
    pub fn between(before: &Tick, after: &Tick, live: &Live) -> Second {
        let load = |name: &String| before.drives.load(&after.drives, name);
        Second {
            unix_s: after.unix_s,
            drives: live.drives.iter().filter_map(load).collect(),
            cores: before.cpu.until(&after.cpu).per_core,
            is_array: live.is_array,
        }
    }

    /// Of all drives bytes a second, and I/Os in flight on average. None without a drive that the
    /// kernel counts: files have none.
    pub fn all(&self) -> Option<(f64, f64)> {
        let sum = |of: fn(&DriveLoad) -> f64| self.drives.iter().map(of).sum();
        (!self.drives.is_empty()).then(|| (sum(|it| it.bytes_per_s), sum(|it| it.queued)))
    }

    /// The slowest of several drives at work: where each has a load of its own, by its rate; below
    /// an array, which waits for it, by what it carries for what it has in flight.
    pub fn slowest(&self) -> Option<&DriveLoad> {
        let is_at_work = |it: &&DriveLoad| !self.is_array || it.queued > QUEUED_MIN;
        let carries = |it: &DriveLoad| match self.is_array {
            true => it.bytes_per_s / it.queued,
            false => it.bytes_per_s,
        };
        let at_work = || self.drives.iter().filter(is_at_work);
        let slowest = at_work().min_by(|one, other| carries(one).total_cmp(&carries(other)));
        slowest.filter(|_| at_work().count() > 1 && self.all().is_some_and(|it| it.0 > 0.0))
    }

    fn kept(&self, of: &str) -> String {
        let two = |value: f64| (value * 100.0).round() / 100.0;
        let slowest = self.slowest();
        let line = serde_json::json!({
            "of": of,
            "unix_s": two(self.unix_s),
            "bytes_per_s": self.all().map(|it| it.0.round()),
            "in_flight": self.all().map(|it| two(it.1)),
            "slowest": slowest.map(|it| it.name.as_str()),
            "slowest_bytes_per_s": slowest.map(|it| it.bytes_per_s.round()),
            "cores": self.cores.iter().map(|share| two(*share)).collect::<Vec<f64>>(),
        });
        format!("{line}\n")
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.all() {
            Some((rate, queued)) => {
                write!(f, "drives: {}, {queued:.1} in flight", units::bytes_per_s(rate))?;
            }
            None => f.write_str("drives: none that the kernel counts")?,
        }
        if let Some(DriveLoad { name, bytes_per_s, queued, .. }) = self.slowest() {
            let rate = units::bytes_per_s(*bytes_per_s);
            write!(f, "; slowest {name}: {rate}, {queued:.1} in flight")?;
        }
        f.write_str("\ncores: ")?;
        self.cores.iter().try_for_each(|share| write!(f, "{}", bar(*share)))
    }
}

/// A core that is not busy, and busier ones by an eighth each.
fn bar(share: f64) -> char {
    let bars = ('\u{2581}'..='\u{2588}').zip(0_u8..);
    let reached = bars.take_while(|(_, step)| *step == 0 || share * 8.0 >= f64::from(*step));
    reached.last().map_or(' ', |it| it.0)
}

/// Who is to know each second of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub of: String,
    /// The drives that carry it, as the kernel calls them.
    pub drives: Vec<String>,
    /// They are below an array.
    pub is_array: bool,
    pub file: Option<PathBuf>,
    pub bar: Option<ProgressBar>,
}

impl Live {
    pub fn second(&self, before: &Tick, after: &Tick) {
        let second = Second::between(before, after, self);
        if let Some(bar) = &self.bar {
            bar.set_prefix(second.to_string());
        }
        let file =
            self.file.as_ref().map(|path| OpenOptions::new().create(true).append(true).open(path));
        if let Some(Ok(mut file)) = file {
            let _ = file.write_all(second.kept(&self.of).as_bytes());
        }
    }

    pub fn end(&self) {
        self.bar.iter().for_each(|bar| bar.set_prefix(String::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Live, Second, bar};
    use crate::host_cpu::HostCpu;
    use crate::meter::Reading;
    use crate::watch::ticker::Tick;
    use indicatif::{ProgressBar, ProgressDrawTarget};
    use std::time::Duration;

    /// Two drives with 100 MB/s each, one with four I/Os in flight and one with twelve; one core
    /// of two is busy.
    fn tick(second: u32) -> Tick {
        let taken = Duration::from_secs(second.into());
        let drive = |name: &str, queued: u32| {
            let (sectors, waited_ms) = (195_313 * second, queued * 1000 * second);
            format!("8 0 {name} 1 0 {sectors} 0 0 0 0 0 0 {} {waited_ms}\n", 1000 * second)
        };
        let ticks = 100 * second;
        Tick {
            unix_s: 5000.0 + f64::from(second),
            cpu: HostCpu::parsed(&format!("cpu0 {ticks} 0 0 0\ncpu1 0 0 0 {ticks}\n"), taken),
            drives: Reading::parsed(&(drive("sda", 4) + &drive("sdb", 12)), taken),
        }
    }

    fn drives() -> Vec<String> {
        ["sda", "sdb", "gone"].map(str::to_owned).into()
    }

    #[test]
    fn a_second_tells_rate_queue_cores_and_the_drive_that_answers_slowest() {
        let array = Live { drives: drives(), is_array: true, ..Live::default() };
        let second = Second::between(&tick(1), &tick(2), &array);
        let said = "drives: 200 MB/s, 16.0 in flight; slowest sdb: 100 MB/s, 12.0 in flight\n\
                    cores: \u{2588}\u{2581}";
        assert_eq!(second.to_string(), said);
        let alone = Live { drives: drives()[..1].into(), ..array.clone() };
        let alone = Second::between(&tick(1), &tick(2), &alone);
        assert_eq!((alone.drives.len(), alone.slowest()), (1, None), "slower than none");
        let files = Second { drives: Vec::new(), ..second.clone() };
        assert!(files.to_string().starts_with("drives: none that the kernel counts\ncores: "));
        // Without an array one that hangs has nothing in flight that the kernel tells.
        let mut raw = Second { is_array: false, ..second };
        (raw.drives[0].bytes_per_s, raw.drives[0].queued) = (1e6, 0.0);
        assert_eq!(raw.slowest().map(|it| it.name.as_str()), Some("sda"));
        assert_eq!(
            [0.0, 0.12, 0.13, 0.5, 0.99].map(bar).iter().collect::<String>(),
            "\u{2581}\u{2581}\u{2582}\u{2585}\u{2588}"
        );
    }

    #[test]
    fn seconds_are_shown_until_the_load_ends_and_kept_as_a_series() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join(super::FILE);
        let bar = ProgressBar::with_draw_target(Some(9), ProgressDrawTarget::hidden());
        let live = Live {
            of: "x#0".into(),
            drives: drives(),
            is_array: true,
            file: Some(file.clone()),
            bar: Some(bar.clone()),
        };
        (1..4).for_each(|at| live.second(&tick(at), &tick(at + 1)));
        assert!(bar.prefix().contains("slowest sdb"), "{}", bar.prefix());
        live.end();
        assert_eq!(bar.prefix(), "");
        let text = std::fs::read_to_string(&file).expect("kept");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
        assert_eq!(
            (lines.len(), &lines[2]["unix_s"], &lines[0]["of"]),
            (3, &5004.0.into(), &"x#0".into())
        );
        assert_eq!((&lines[0]["slowest"], &lines[0]["in_flight"]), (&"sdb".into(), &16.0.into()));
        Live { file: Some(place.path().join("no/such")), ..live }.second(&tick(1), &tick(2));
    }
}
