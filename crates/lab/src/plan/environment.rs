//! What the machine was during the run: what must be known to repeat it (rule L26).
//!
//! What must stay true: what cannot be read says so; nothing is left out in silence.

use crate::lint::live::Sysfs;
use crate::units;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Facts by name; `devices` are those that are measured.
pub fn facts(devices: &[PathBuf]) -> BTreeMap<String, String> {
    let cpu = "/sys/devices/system/cpu";
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: String| drop(facts.insert(name.to_owned(), value));
    if !devices.is_empty() {
        add("devices", kinds(devices));
    }
    add("kernel", file("/proc/sys/kernel/osrelease"));
    add("kernel command line", file("/proc/cmdline"));
    add("cpu", line_of("/proc/cpuinfo", "model name", ':'));
    add("cores", file(&format!("{cpu}/online")));
    add("memory", line_of("/proc/meminfo", "MemTotal", ':'));
    add(
        "distribution",
        line_of("/etc/os-release", "PRETTY_NAME", '=').trim_matches('"').to_owned(),
    );
    add("governor", file(&format!("{cpu}/cpu0/cpufreq/scaling_governor")));
    add("turbo", turbo(cpu));
    add("C-states", states(cpu));
    add("SMT", file(&format!("{cpu}/smt/control")));
    add("mitigations", mitigations(cpu));
    let fio = std::process::Command::new("fio").arg("--version").output();
    let fio = fio.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    add("fio", fio.unwrap_or_else(|error| format!("cannot tell: {error}")));
    facts
}

/// How many of which kind: `4 x SAMSUNG MZ..., 1.92 TB`. Names like /dev/sda change from one start
/// to the next, so they are not in it.
fn kinds(devices: &[PathBuf]) -> String {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for device in devices {
        *counts.entry(kind_of(device)).or_default() += 1;
    }
    let shown = counts.iter().map(|(kind, count)| format!("{count} x {kind}"));
    shown.collect::<Vec<_>>().join("; ")
}

fn kind_of(device: &Path) -> String {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(facts) = fs::metadata(device) else { return "something that is not there".to_owned() };
    let size = |bytes: u64| units::bytes(crate::metrics::latency::to_f64(bytes));
    if !facts.file_type().is_block_device() {
        return format!("file, {}", size(facts.len()));
    }
    let Ok(sysfs) = Sysfs::of(facts.rdev()) else { return "block device".to_owned() };
    let name = sysfs.disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let model = fs::read_to_string(sysfs.disk.join("device/model"));
    let kind = model.map_or_else(
        |_| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
        |model| model.trim().to_owned(),
    );
    let sectors = fs::read_to_string(sysfs.own.join("size"));
    let sectors = sectors.ok().and_then(|text| text.trim().parse::<u64>().ok());
    sectors.map_or(kind.clone(), |sectors| format!("{kind}, {}", size(sectors.saturating_mul(512))))
}

fn file(path: &str) -> String {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("cannot tell: {path}: {error}"),
    }
}

fn line_of(path: &str, key: &str, separator: char) -> String {
    let text = file(path);
    let line =
        text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(separator));
    line.map_or(format!("cannot tell: {path} has no {key}"), |value| value.trim().to_owned())
}

fn turbo(cpu: &str) -> String {
    let says = |path: &str, on: &str| {
        let text = fs::read_to_string(format!("{cpu}/{path}")).ok()?;
        Some(if text.trim() == on { "on" } else { "off" })
    };
    let said = says("intel_pstate/no_turbo", "0").or_else(|| says("cpufreq/boost", "1"));
    said.unwrap_or("cannot tell: neither intel_pstate nor cpufreq says").to_owned()
}

fn states(cpu: &str) -> String {
    let folder = format!("{cpu}/cpu0/cpuidle");
    let Ok(items) = fs::read_dir(&folder) else {
        return format!("cannot tell: {folder} is not there");
    };
    let name = |item: fs::DirEntry| {
        let text = |file| Some(fs::read_to_string(item.path().join(file)).ok()?.trim().to_owned());
        text("disable").filter(|off| off == "0").and_then(|_| text("name"))
    };
    let mut names: Vec<String> = items.filter_map(Result::ok).filter_map(name).collect();
    names.sort();
    names.join(", ")
}

fn mitigations(cpu: &str) -> String {
    let Ok(items) = fs::read_dir(format!("{cpu}/vulnerabilities")) else {
        return "cannot tell".to_owned();
    };
    let told = |item: fs::DirEntry| {
        let state = file(&item.path().to_string_lossy());
        let name = item.file_name().to_string_lossy().into_owned();
        (state != "Not affected").then(|| format!("{name}: {state}"))
    };
    let mut all: Vec<String> = items.filter_map(Result::ok).filter_map(told).collect();
    all.sort();
    if all.is_empty() { "none needed".to_owned() } else { all.join("; ") }
}
