//! `ashlar lab purge`.

use super::{Method, Plan, plan, purge};
use crate::adapter::commands::{Live, Unlogged};
use crate::evidence::log::unix_now_s;
use crate::evidence::{Evidence, Interrupt};
use crate::guard::refuse_unless_named;
use crate::plan::environment;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::store::{FORMAT, RunDir, RunFacts};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Purge drives: sanitize, format or discard everything, so that a round begins as the first one
/// did.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  ashlar lab purge /dev/nvme1n1 --dry-run\n  \
                        ashlar lab purge /dev/nvme1n1 --method format --to runs/purged --destroy \
                        S5XYNA0R\n\n\
                        EVERYTHING on the drive is lost, and with 'sanitize' everything on all of \
                        its namespaces. In a plan it is the stage 'purge'.")]
pub struct Args {
    /// Drives to purge.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// How.
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Directory for the results; created if it does not exist. It must not hold a run.
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    to: Option<PathBuf>,
    /// Purge this drive. Name it by its serial number, or by its path if it has none. Repeatable.
    #[arg(long, value_name = "SERIAL")]
    destroy: Vec<String>,
    /// Check everything and say what would happen. Writes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Do what was asked.
///
/// # Errors
/// If a drive was not named, is in use, has no such method, or does not come to an end.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let sysfs = Path::new("/sys");
    let plans: Vec<Plan> = args
        .devices
        .iter()
        .map(|device| plan(&Unlogged, device, args.method, sysfs))
        .collect::<Result<_, _>>()?;
    if args.dry_run {
        for (device, plan) in args.devices.iter().zip(&plans) {
            let argv = plan.argv.join(" ");
            match json {
                true => crate::say!("{}", json!({"device": device, "argv": plan.argv})),
                false => crate::say!("would purge {} by: {argv}", device.display()),
            }
        }
    }
    refuse_unless_named(&Unlogged, &args.devices, &args.destroy)?;
    let Some(path) = args.to.as_ref().filter(|_| !args.dry_run) else {
        return Ok(ExitCode::SUCCESS);
    };
    let facts = RunFacts {
        format: FORMAT,
        lab: env!("CARGO_PKG_VERSION").to_owned(),
        question: "purge".to_owned(),
        began_unix_s: format!("{:.0}", unix_now_s()).parse().unwrap_or(0),
        environment: environment::facts(&args.devices),
        ..RunFacts::default()
    };
    let interrupt = Interrupt::from_signals()
        .map_err(|error| Refusal::cannot_run("signals.unavailable", error.to_string(), ""))?;
    let dir = RunDir::create(path, &facts)?;
    let evidence = Evidence::open(path, interrupt)?;
    let live = Live::patient(&evidence);
    for (device, plan) in args.devices.iter().zip(&plans) {
        let check = purge(&live, &crate::lint::live::Live, device, plan)?;
        dir.append(&Record::Check(check.clone()))?;
        match json {
            true => crate::say!("{}", json!(check)),
            false => crate::say!("{}: {}", check.target, check.found),
        }
    }
    Ok(ExitCode::SUCCESS)
}
