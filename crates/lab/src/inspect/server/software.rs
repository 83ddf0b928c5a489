//! What software adds: limits, background work, pressure.

use crate::source::Source;
use itertools::Itertools;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Software {
    /// Asynchronous requests the whole system may have in flight.
    pub aio_max: Option<u64>,
    /// How many of them are taken.
    pub aio_used: Option<u64>,
    /// Work in the background: what, and how far. None if nobody could tell.
    pub background: Option<Vec<String>>,
    /// Which sources were asked for background work.
    pub background_asked: Vec<String>,
    /// Percent of the last minute in which something waited: `cpu`, `memory`, `io`.
    pub pressure: BTreeMap<String, f64>,
    pub load: Option<f64>,
    pub memory: Option<Memory>,
    /// Memory errors: (corrected, uncorrected); None without an EDAC driver.
    pub memory_errors: Option<(u64, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Memory {
    /// Bytes, as all of them.
    pub available: u64,
    pub total: u64,
    /// In the kernel's slabs, which cannot give it back, bytes.
    pub kernel: u64,
    /// The largest slabs: name -> bytes. Only root may read them.
    pub slabs: BTreeMap<String, u64>,
}

impl Memory {
    /// As the kernel says it; None if it does not.
    pub fn read(source: &Source) -> Option<Memory> {
        let text = source.text("/proc/meminfo")?;
        let (available, total) = (kibibytes(&text, "MemAvailable")?, kibibytes(&text, "MemTotal")?);
        let kernel = kibibytes(&text, "SUnreclaim").unwrap_or(0);
        let slabs = source.text("/proc/slabinfo").map(|text| slabs(&text)).unwrap_or_default();
        Some(Memory { available, total, kernel, slabs })
    }
}

pub fn read(source: &Source) -> Software {
    let mut software = Software {
        aio_max: source.number("/proc/sys/fs/aio-max-nr"),
        aio_used: source.number("/proc/sys/fs/aio-nr"),
        load: source.text("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        memory: Memory::read(source),
        memory_errors: memory_errors(source),
        ..Software::default()
    };
    for resource in ["cpu", "memory", "io"] {
        let text = source.text(&format!("/proc/pressure/{resource}"));
        if let Some(share) = text.and_then(|text| pressure(&text)) {
            software.pressure.insert(resource.to_owned(), share);
        }
    }
    background(source, &mut software);
    software
}

fn background(source: &Source, software: &mut Software) {
    let mut found = Vec::new();
    if let Some(text) = source.text("/proc/mdstat") {
        software.background_asked.push("/proc/mdstat".to_owned());
        found.extend(md_jobs(&text));
    }
    let zpool = source.run("zpool-status", &["zpool", "status"]);
    if zpool.is_good() {
        software.background_asked.push("zpool status".to_owned());
        let busy = |line: &&str| line.contains("in progress") || line.contains("resilvering");
        found.extend(
            zpool.stdout.lines().filter(busy).map(|line| format!("zpool: {}", line.trim())),
        );
    }
    if let Some(io) = software.pressure.get("io") {
        software.background_asked.push("/proc/pressure/io".to_owned());
        if *io > PRESSURE_PERCENT_MAX {
            found.push(format!("something waited for I/O in {io:.1} % of the last minute"));
        }
    }
    software.background = (!software.background_asked.is_empty()).then_some(found);
}

/// Below this, a server is called idle.
const PRESSURE_PERCENT_MAX: f64 = 1.0;

/// `      [=>....]  resync =  8.4% (4120/48829) finish=120.1min speed=99K/sec`, with the array's
/// name before it.
fn md_jobs(text: &str) -> Vec<String> {
    let (mut jobs, mut array) = (Vec::new(), "");
    for line in text.lines() {
        if let Some((name, _)) = line.split_once(" : ").filter(|it| it.0.starts_with("md")) {
            array = name;
        }
        // The last is md's word for what we call a rebuild.
        for word in ["resync", "check", "reshape", "repair", concat!("reco", "very")] {
            if let Some(at) = line.find(&format!("{word} =")) {
                let progress = line[at..].split_whitespace().take(3).join(" ");
                jobs.push(format!("{array}: {}", progress));
            }
        }
    }
    jobs
}

/// `some avg10=0.00 avg60=0.02 avg300=1.89 total=4912829597`
fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
}

/// `SUnreclaim:  1234 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = super::cpu::field(text, name)?;
    value.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// How many slabs are kept: the largest.
const SLABS: usize = 8;

/// Lines `name active_objs num_objs objsize ...`: the largest, name -> bytes.
fn slabs(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some((number(2)?.saturating_mul(number(3)?), (*words.first()?).to_owned()))
    };
    let mut all: Vec<(u64, String)> = text.lines().filter_map(line).collect();
    all.sort_by(|one, other| other.cmp(one));
    all.into_iter().take(SLABS).map(|(bytes, name)| (name, bytes)).collect()
}

fn memory_errors(source: &Source) -> Option<(u64, u64)> {
    let counts = source.names("/sys/devices/system/edac/mc").into_iter().filter_map(|controller| {
        let folder = format!("/sys/devices/system/edac/mc/{controller}");
        let count = |name: &str| source.number(&format!("{folder}/{name}"));
        count("ce_count").zip(count("ue_count"))
    });
    counts.reduce(|sum, it| (sum.0.saturating_add(it.0), sum.1.saturating_add(it.1)))
}

#[cfg(test)]
mod tests {
    use super::pressure;

    #[test]
    fn pressure_is_that_of_the_last_minute() {
        let text = "some avg10=3.00 avg60=0.02 avg300=1.89 total=49\n\
                    full avg10=0.00 avg60=9.00 avg300=1.18 total=6";
        assert_eq!(pressure(text), Some(0.02));
    }
}
