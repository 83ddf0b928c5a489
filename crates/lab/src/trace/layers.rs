//! The same I/Os traced in a guest and on its host: what each layer made of them, and which one
//! split (item 80).
//!
//! What must stay true: a layer is judged by the mean size of what came and what went, for two
//! traces never cover the same moment; where the bytes differ too much they were not the same I/Os,
//! and nothing is said of that step. Not here: what became of I/Os within one kernel (account).

use super::account::{Flow, TraceAccount, cause, percent};
use crate::Refusal;
use crate::metrics::latency::to_f64;
use crate::record::Record;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Bytes of two stations may differ by this share and still be the same I/Os, begun and ended a
/// little apart.
const SAME_BYTES: f64 = 0.15;
/// A mean size that changes by less is as it came.
const SAME_SIZE: f64 = 0.02;
/// Percentage points by which the share off the stripe rises before a layer is named for it.
const MORE_OFF: f64 = 1.0;

/// One trace, and where it was taken: `guest`, `host`.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// Where.
    pub name: String,
    /// What was seen there.
    pub account: TraceAccount,
}

/// I/Os of one direction at one place on the way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Station {
    /// `guest submitted`.
    pub name: String,
    /// I/Os.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Mean size, bytes; 0 without I/Os.
    pub mean_bytes: f64,
    /// Share that begins or ends off the full stripe, percent, if the stripe was given there.
    pub off_stripe_percent: Option<f64>,
}

/// What one layer made of what came to it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Made {
    /// Pieces for each I/O.
    Split(f64),
    /// I/Os joined into each one that went on.
    Merged(f64),
    /// As it came.
    AsItCame,
    /// Too little, or not the same I/Os.
    CannotTell,
}

/// One layer in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// `guest kernel`, `between guest and host`.
    pub layer: String,
    /// `writes` or `reads`.
    pub direction: &'static str,
    /// What it did.
    pub made: Made,
    /// Percentage points by which the share off the full stripe rose, if it is known on both sides.
    pub more_off_stripe: Option<f64>,
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Layers {
    /// Places on the way of writes, in order.
    pub writes: Vec<Station>,
    /// Places on the way of reads, in order.
    pub reads: Vec<Station>,
    /// What lies between them.
    pub steps: Vec<Step>,
    /// Which layer it was, in sentences.
    pub findings: Vec<String>,
}

/// `NAME=FILE` of the command line.
///
/// # Errors
/// If there is no name or no file in it.
pub fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), file.to_owned()))
        }
        _ => Err("say NAME=FILE, for example guest=guest.json".to_owned()),
    }
}

/// What `lab trace --json` printed into `path`.
///
/// # Errors
/// If the file cannot be read or holds no trace.
pub fn read(name: &str, path: &Path) -> Result<Layer, Refusal> {
    let hint = "make it with: ashlar lab trace DEVICE --json > FILE";
    let text = std::fs::read_to_string(path).map_err(|error| Refusal::file(path, &error, hint))?;
    let mut traces = text.lines().filter_map(|line| match serde_json::from_str(line) {
        Ok(Record::Trace(account)) => Some(*account),
        _ => None,
    });
    let account = traces.next_back().ok_or_else(|| {
        let said = format!("{}: no trace of the lab is in it", path.display());
        Refusal::cannot_run("trace.no_layer", said, hint)
    })?;
    Ok(Layer { name: name.to_owned(), account })
}

impl Layers {
    /// Put traces together, outermost (the guest) first.
    pub fn of(layers: &[Layer]) -> Layers {
        let stations = |pick: fn(&TraceAccount) -> [&Flow; 2]| -> Vec<Station> {
            let of_layer = |layer: &Layer| {
                let [came, went] = pick(&layer.account);
                [station(&layer.name, "submitted", came), station(&layer.name, "issued", went)]
            };
            layers.iter().flat_map(of_layer).collect()
        };
        let writes = stations(|it| [&it.device.submitted_writes, &it.device.issued_writes]);
        let reads = stations(|it| [&it.device.submitted_reads, &it.device.issued_reads]);
        let mut steps = Vec::new();
        for (direction, stations) in [("writes", &writes), ("reads", &reads)] {
            for (at, pair) in stations.windows(2).enumerate() {
                steps.push(Step {
                    layer: between(layers, at),
                    direction,
                    ..step(&pair[0], &pair[1])
                });
            }
        }
        let findings = findings(layers, &steps);
        Layers { writes, reads, steps, findings }
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _never_fails = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (direction, stations) in [("writes", &self.writes), ("reads", &self.reads)] {
            // What only the host does, such as reading a partition table, is no layer's work on the
            // guest's I/Os.
            if stations.first().is_none_or(|it| it.ios == 0) {
                continue;
            }
            writeln!(
                out,
                "{direction:<26} {:>10} {:>12} {:>12} {:>11}",
                "I/Os", "MiB", "mean KiB", "off stripe"
            )?;
            for (at, it) in stations.iter().enumerate() {
                let off =
                    it.off_stripe_percent.map_or("not given".to_owned(), |it| format!("{it:.0} %"));
                writeln!(
                    out,
                    "  {:<24} {:>10} {:>12.1} {:>12.1} {off:>11}",
                    it.name,
                    it.ios,
                    to_f64(it.bytes) / f64::from(1 << 20),
                    it.mean_bytes / 1024.0
                )?;
                let own = self.steps.iter().filter(|step| step.direction == direction).nth(at);
                if let Some(step) = own {
                    writeln!(out, "    {}: {}", step.layer, step.made)?;
                }
            }
        }
        self.findings.iter().try_for_each(|it| writeln!(out, "note  {it}"))
    }
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Made::Split(pieces) => write!(f, "split, {pieces:.1} pieces of one"),
            Made::Merged(joined) => write!(f, "merged, {joined:.1} into one"),
            Made::AsItCame => f.write_str("as it came"),
            Made::CannotTell => f.write_str("cannot tell: not the same bytes on both sides"),
        }
    }
}

fn station(layer: &str, what: &str, flow: &Flow) -> Station {
    let mean_bytes = if flow.ios > 0 { to_f64(flow.bytes) / to_f64(flow.ios) } else { 0.0 };
    Station {
        name: format!("{layer} {what}"),
        ios: flow.ios,
        bytes: flow.bytes,
        mean_bytes,
        off_stripe_percent: flow.off_stripe.map(|off| percent(off, flow.ios)),
    }
}

/// What lies after the station number `at`: a kernel, or what joins two of them.
fn between(layers: &[Layer], at: usize) -> String {
    let name = |layer: usize| layers.get(layer).map_or("", |it| it.name.as_str());
    match at.is_multiple_of(2) {
        true => format!("{} kernel", name(at / 2)),
        false => format!("between {} and {}", name(at / 2), name(at / 2 + 1)),
    }
}

fn step(came: &Station, went: &Station) -> Step {
    let ratio = came.mean_bytes / went.mean_bytes;
    let apart = (to_f64(came.bytes) - to_f64(went.bytes)).abs();
    let made = match () {
        () if came.ios == 0 || went.ios == 0 => Made::CannotTell,
        () if apart > to_f64(came.bytes.max(went.bytes)) * SAME_BYTES => Made::CannotTell,
        () if ratio > 1.0 + SAME_SIZE => Made::Split(ratio),
        () if ratio < 1.0 - SAME_SIZE => Made::Merged(1.0 / ratio),
        () => Made::AsItCame,
    };
    let more_off_stripe = came
        .off_stripe_percent
        .zip(went.off_stripe_percent)
        .filter(|_| made != Made::CannotTell)
        .map(|(before, after)| after - before);
    Step { layer: String::new(), direction: "", made, more_off_stripe }
}

fn findings(layers: &[Layer], steps: &[Step]) -> Vec<String> {
    let mut told = Vec::new();
    for step in steps {
        let (layer, direction) = (&step.layer, step.direction);
        if let Made::Split(_) | Made::Merged(_) = step.made {
            let own = layers.iter().find(|it| *layer == format!("{} kernel", it.name));
            let why = match own {
                Some(own) if direction == "writes" => cause(&own.account.device),
                Some(_) => String::new(),
                None => {
                    "; the virtual disk and its emulator lie there: see how it is attached (--vm)"
                        .to_owned()
                }
            };
            told.push(format!("{direction}: {layer}: {}{why}", step.made));
        }
    }
    let most = steps
        .iter()
        .filter_map(|step| Some((step, step.more_off_stripe.filter(|it| *it > MORE_OFF)?)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((step, more)) = most {
        told.push(format!(
            "{}: {} puts most of them off the full stripe: \
             {more:.0} percentage points more than came",
            step.direction, step.layer
        ));
    }
    let lost = layers.iter().filter(|it| it.account.lost > 0);
    told.extend(lost.map(|it| {
        format!("{}: {} events were lost: its counts are too low", it.name, it.account.lost)
    }));
    if told.is_empty() && steps.iter().any(|it| it.made == Made::AsItCame) {
        told.push("no layer splits or merges".to_owned());
    }
    told
}

#[cfg(test)]
mod tests {
    use super::{Layer, Layers, Made, named, read};
    use crate::record::Record;
    use crate::trace::account::{DeviceAccount, Flow, TraceAccount};
    use std::path::Path;

    fn flow(ios: u64, kib: u64, off: u64) -> Flow {
        Flow { ios, bytes: ios * kib * 1024, off_stripe: Some(off), ..Flow::default() }
    }

    fn layer(name: &str, came: Flow, went: Flow) -> Layer {
        let mut device = DeviceAccount { device: "/dev/x".into(), ..DeviceAccount::default() };
        (device.submitted_writes, device.issued_writes) = (came, went);
        device.limits.insert("max_sectors_kb".into(), "512".into());
        let account = TraceAccount::of("x".into(), (None, Some(1 << 20)), device, Vec::new(), 0);
        Layer { name: name.into(), account }
    }

    fn writes(layers: &Layers) -> Vec<Made> {
        let own = layers.steps.iter().filter(|it| it.direction == "writes");
        own.map(|it| it.made).collect()
    }

    /// A guest writes whole MiB, its virtual disk cuts them at 256 KiB, the host's kernel joins two
    /// and two.
    #[test]
    fn the_layer_that_split_is_named_and_the_one_that_joined() {
        let guest = layer("guest", flow(100, 1024, 0), flow(100, 1024, 0));
        let host = layer("host", flow(400, 256, 400), flow(200, 512, 200));
        let layers = Layers::of(&[guest, host]);
        assert_eq!(writes(&layers), [Made::AsItCame, Made::Split(4.0), Made::Merged(2.0)]);
        let text = layers.text();
        assert!(text.contains("between guest and host: split, 4.0 pieces of one"), "{text}");
        assert!(text.contains("host kernel: merged, 2.0 into one"), "{text}");
        assert!(
            text.contains(
                "between guest and host puts most of them off the full stripe: 100 percentage"
            ),
            "{text}"
        );
        assert!(!text.contains("reads"), "nothing was read: {text}");
    }

    /// Recorded by crates/lab/layers-guest: a guest's kernel cuts 2560 KiB at 1280, its emulator
    /// joins some of them again, and the host's kernel cuts them once more at its own limit.
    #[test]
    fn a_real_guest_and_its_host_are_told_apart() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let side =
            |name: &str| read(name, &data.join(format!("layers-{name}.json"))).expect("read");
        let layers = Layers::of(&[side("guest"), side("host")]);
        let told: Vec<String> = layers
            .steps
            .iter()
            .filter(|it| it.direction == "writes")
            .map(|it| format!("{}: {}", it.layer, it.made))
            .collect();
        let wanted = [
            "guest kernel: split, 2.0 pieces of one",
            "between guest and host: merged, 1.7 into one",
            "host kernel: split, 1.7 pieces of one",
        ];
        assert_eq!(told, wanted);
        assert!(!layers.text().contains("reads"), "the host's own reads are not the guest's");
        assert!(layers.findings[0].contains("max_sectors_kb 1280"), "{:?}", layers.findings);
    }

    #[test]
    fn a_kernel_that_splits_is_named_with_its_limit() {
        let guest = layer("guest", flow(100, 1024, 0), flow(200, 512, 200));
        let host = layer("host", flow(201, 512, 0), flow(201, 512, 0));
        let layers = Layers::of(&[guest, host]);
        assert_eq!(writes(&layers), [Made::Split(2.0), Made::AsItCame, Made::AsItCame]);
        assert!(
            layers.findings[0].contains("guest kernel")
                && layers.findings[0].contains("max_sectors_kb")
        );
    }

    #[test]
    fn other_bytes_on_the_other_side_say_nothing() {
        let guest = layer("guest", flow(100, 1024, 0), flow(100, 1024, 0));
        let host = layer("host", flow(1000, 256, 0), flow(1000, 256, 0));
        let layers = Layers::of(&[guest, host]);
        assert_eq!(writes(&layers)[1], Made::CannotTell);
        let idle = layer("host", flow(0, 0, 0), flow(0, 0, 0));
        assert_eq!(writes(&Layers::of(&[idle])), [Made::CannotTell]);
    }

    #[test]
    fn a_layer_is_read_from_what_the_verb_printed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("guest.json");
        let guest = layer("guest", flow(1, 4, 0), flow(1, 4, 0));
        let line = serde_json::to_string(&Record::Trace(Box::new(guest.account.clone()))).unwrap();
        std::fs::write(&path, format!("garbage\n{line}\n")).expect("written");
        assert_eq!(read("guest", &path).expect("read"), guest);
        std::fs::write(&path, "{}\n").expect("written");
        assert_eq!(read("guest", &path).expect_err("no trace").code, "trace.no_layer");
        assert!(read("guest", Path::new("/nonexistent")).is_err());
        assert_eq!(named("guest=a=b"), Ok(("guest".into(), "a=b".into())));
        assert!(named("guest").is_err() && named("=x").is_err());
    }
}
