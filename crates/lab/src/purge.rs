//! Purging a drive: everything it holds and knows is forgotten, so that a round begins as the first
//! one did.
//!
//! What must stay true: a drive is purged only if it was named for it, like every other thing that
//! is destroyed; the method, the time and what was seen afterwards are a record; a method that the
//! drive does not have is refused, never replaced in silence. Not here: filling a drive again (the
//! stage `precondition`). cli: `lab purge`.

pub mod cli;

use crate::adapter::commands::{Answer, Commands};
use crate::adapter::word;
use crate::evidence::process::monotonic;
use crate::lint::machine::Machine;
use crate::record::Check;
use crate::refusal::Refusal;
use crate::units;
use crate::validity::Outcome;
use std::path::Path;
use std::time::Duration;

/// How a drive is purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The strongest that the drive has: sanitize, format, discard.
    #[default]
    Auto,
    /// NVMe sanitize, block erase: all of the drive, all namespaces.
    Sanitize,
    /// NVMe format with secure erase of user data.
    Format,
    /// Discard all blocks (TRIM, UNMAP, deallocate).
    Discard,
}

impl Method {
    /// As a plan calls it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Auto => "auto",
            Method::Sanitize => "sanitize",
            Method::Format => "format",
            Method::Discard => "discard",
        }
    }
}

/// Looks at a sanitize operation before it is given up, and the time between.
const LOOKS_MAX: u32 = 36_000;
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// What a drive can do, and by which command it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The method; never `Auto`.
    pub method: Method,
    /// The command.
    pub argv: Vec<String>,
}

/// Choose: what was `wanted`, if the drive has it. Nothing is changed.
///
/// # Errors
/// If the drive has no such method, or none at all.
pub fn plan(
    commands: &dyn Commands,
    device: &Path,
    wanted: Method,
    sysfs: &Path,
) -> Result<Plan, Refusal> {
    let has = methods(commands, device, sysfs)?;
    let method = match wanted {
        Method::Auto => has.first().copied(),
        wanted => has.iter().copied().find(|method| *method == wanted),
    };
    let Some(method) = method else {
        let known: Vec<&str> = has.iter().map(|method| method.name()).collect();
        let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let said = format!(
            "{} cannot be purged by '{}': nothing was changed",
            device.display(),
            wanted.name()
        );
        return Err(Refusal::cannot_run("purge.no_method", said, format!("methods it has: {has}")));
    };
    let device = word(device)?;
    let argv: &[&str] = match method {
        Method::Sanitize => &["nvme", "sanitize", device, "--sanact=2"],
        Method::Format => &["nvme", "format", device, "--ses=1", "--force"],
        Method::Discard | Method::Auto => &["blkdiscard", "--force", device],
    };
    Ok(Plan { method, argv: argv.iter().map(|word| (*word).to_owned()).collect() })
}

/// Methods of the drive, the strongest first.
fn methods(commands: &dyn Commands, device: &Path, sysfs: &Path) -> Result<Vec<Method>, Refusal> {
    let mut has = Vec::new();
    let real = std::fs::canonicalize(device).map_err(|error| Refusal::file(device, &error, ""))?;
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("nvme") {
        let argv = ["nvme", "id-ctrl", word(device)?, "--output-format=json"];
        let told = commands.succeed(&argv, "what can the drive do?")?.stdout;
        let told: serde_json::Value = serde_json::from_str(&told).map_err(|error| {
            Refusal::cannot_run("purge.not_understood", format!("nvme id-ctrl: {error}"), "")
        })?;
        let bits = |key: &str| told.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        // NVMe base specification, Identify Controller: sanicap bit 1 is block erase, oacs bit 1 is
        // Format NVM.
        has.extend((bits("sanicap") & 2 != 0).then_some(Method::Sanitize));
        has.extend((bits("oacs") & 2 != 0).then_some(Method::Format));
    }
    let most =
        std::fs::read_to_string(sysfs.join("block").join(&name).join("queue/discard_max_bytes"));
    let discards =
        most.ok().and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|most| most > 0);
    has.extend(discards.then_some(Method::Discard));
    Ok(has)
}

/// Purge `device` as planned, and look at it afterwards.
///
/// # Errors
/// If the command fails or does not come to an end.
pub fn purge(
    commands: &dyn Commands,
    machine: &dyn Machine,
    device: &Path,
    plan: &Plan,
) -> Result<Check, Refusal> {
    let words: Vec<&str> = plan.argv.iter().map(String::as_str).collect();
    let began = monotonic();
    commands.succeed(&words, "purge the drive")?;
    if plan.method == Method::Sanitize {
        await_sanitized(commands, device)?;
    }
    let seconds = monotonic().saturating_sub(began).as_secs_f64();
    let seen = machine.target(&device.to_string_lossy());
    let size = seen.size_bytes.map_or_else(
        |why| format!("size not known: {why}"),
        |bytes| units::bytes(crate::metrics::latency::to_f64(bytes)),
    );
    let after = match seen.reads_zeros {
        Ok(true) => "samples of it read as zeros".to_owned(),
        Ok(false) => {
            "samples of it do not read as zeros, which a drive may do after this".to_owned()
        }
        Err(why) => format!("what it reads as is not known: {why}"),
    };
    Ok(Check {
        name: "drive.purged".to_owned(),
        target: device.display().to_string(),
        outcome: Outcome::Pass,
        found: format!(
            "{} by '{}' in {seconds:.1} s ({size}); {after}",
            plan.method.name(),
            plan.argv.join(" ")
        ),
        next: Some("precondition it before reads or steady state are measured".to_owned()),
    })
}

/// A sanitize goes on after its command has ended: wait for it.
fn await_sanitized(commands: &dyn Commands, device: &Path) -> Result<(), Refusal> {
    let device = word(device)?;
    for _ in 0..LOOKS_MAX {
        let answer: Answer = commands.succeed(
            &["nvme", "sanitize-log", device, "--output-format=json"],
            "has the sanitize ended?",
        )?;
        match status(&answer.stdout) {
            // Sanitize Status: 1 ended well, 2 in progress, 3 failed, 4 ended well without
            // deallocation.
            Some(1 | 4) => return Ok(()),
            Some(2) => commands.pause(LOOK_EVERY),
            other => {
                let state =
                    other.map_or_else(|| "not understood".to_owned(), |state| state.to_string());
                let said = format!("the sanitize of {device} did not end well (status {state})");
                return Err(Refusal::cannot_run(
                    "purge.failed",
                    said,
                    "the drive may be unusable until a sanitize succeeds",
                ));
            }
        }
    }
    let said = format!("the sanitize of {device} still goes on");
    Err(Refusal::cannot_run("purge.too_long", said, "wait for it: nvme sanitize-log"))
}

/// `sstat` of the sanitize log, which newer versions of nvme print within an object named after the
/// device, or as an object.
fn status(json: &str) -> Option<u64> {
    fn find(value: &serde_json::Value) -> Option<u64> {
        let object = value.as_object()?;
        match object.get("sstat") {
            Some(serde_json::Value::Number(bits)) => bits.as_u64(),
            Some(serde_json::Value::Object(parts)) => {
                parts.get("status").and_then(serde_json::Value::as_u64)
            }
            _ => object.values().find_map(find),
        }
    }
    find(&serde_json::from_str(json).ok()?).map(|bits| bits & 7)
}

#[cfg(test)]
mod tests {
    use super::{Method, plan, purge, status};
    use crate::adapter::commands::Recorded;
    use crate::lint::away::Away;
    use crate::validity::Outcome;
    use std::path::{Path, PathBuf};

    fn drive(place: &Path, name: &str, discards: u64) -> PathBuf {
        let queue = place.join("block").join(name).join("queue");
        std::fs::create_dir_all(&queue).expect("made");
        std::fs::write(queue.join("discard_max_bytes"), format!("{discards}\n")).expect("written");
        let device = place.join(name);
        std::fs::write(&device, "").expect("written");
        device
    }

    fn identified(device: &Path, oacs: u64, sanicap: u64) -> Recorded {
        let path = device.display();
        Recorded::parse(&format!(
            "$ nvme id-ctrl {path} --output-format=json\n\
             {{\"oacs\":{oacs},\"sanicap\":{sanicap}}}\n"
        ))
    }

    #[test]
    fn the_strongest_method_that_the_drive_has_is_taken_and_no_other_than_the_one_asked_for() {
        let place = tempfile::tempdir().expect("a directory");
        let nvme = drive(place.path(), "nvme0n1", 4096);
        let planned = |oacs, sanicap, wanted| {
            plan(&identified(&nvme, oacs, sanicap), &nvme, wanted, place.path())
        };
        assert_eq!(planned(2, 2, Method::Auto).expect("planned").method, Method::Sanitize);
        assert_eq!(planned(2, 1, Method::Auto).expect("planned").method, Method::Format);
        assert_eq!(planned(0, 0, Method::Auto).expect("planned").method, Method::Discard);
        assert_eq!(planned(2, 2, Method::Discard).expect("planned").argv[0], "blkdiscard");
        let refusal = planned(2, 0, Method::Sanitize).expect_err("it has none");
        assert!(refusal.to_string().contains("methods it has: format, discard"), "{refusal}");
        let sda = drive(place.path(), "sda", 0);
        let refusal =
            plan(&Recorded::default(), &sda, Method::Auto, place.path()).expect_err("none");
        assert!(refusal.to_string().contains("methods it has: none"), "{refusal}");
    }

    #[test]
    fn a_sanitize_is_waited_for_and_one_that_fails_is_said() {
        let place = tempfile::tempdir().expect("a directory");
        let nvme = drive(place.path(), "nvme0n1", 4096);
        let wanted =
            plan(&identified(&nvme, 2, 2), &nvme, Method::Auto, place.path()).expect("planned");
        let path = nvme.display();
        let begin = format!("$ nvme sanitize {path} --sanact=2\n");
        let look = |status: u64| {
            format!(
                "$ nvme sanitize-log {path} --output-format=json\n\
                 {{\"{path}\":{{\"sprog\":9,\"sstat\":{status}}}}}\n"
            )
        };
        let ends = Recorded::parse(&(begin.clone() + &look(2) + &look(0x101)));
        let check = purge(&ends, &Away, &nvme, &wanted).expect("purged");
        assert_eq!(check.outcome, Outcome::Pass);
        assert_eq!(ends.left(), 0, "it was looked at until it had ended");
        assert!(check.found.starts_with("sanitize by 'nvme sanitize "), "{}", check.found);
        let fails = Recorded::parse(&(begin + &look(3)));
        assert_eq!(purge(&fails, &Away, &nvme, &wanted).expect_err("failed").code, "purge.failed");
        assert_eq!(status("{\"sstat\":{\"status\":1,\"media\":0}}"), Some(1));
        assert_eq!(status("nothing"), None);
    }
}
