//! `lab redact`: a capture or a run without what names its owner: serial numbers, WWNs, UUIDs, host
//! names, IP and MAC addresses.
//!
//! - find: which words are identifiers
//! - fields: those that are by where they stand: after a name, below the head of a column, at the
//!   end of a link
//! - shapes: those of hexadecimal digits, and addresses
//! - hosts: names of hosts and domains, and those of NVMe and iSCSI
//! - names: what they are replaced by
//! - run_dir: a run's directory
//!
//! What must stay true: every identifier that was found is replaced everywhere, in contents and in
//! names; the same identifier and salt give the same name, so two redacted captures still compare;
//! without the salt nobody can try names until one fits.

mod fields;
mod find;
mod hosts;
mod names;
mod run_dir;
mod shapes;

use crate::Refusal;
use crate::source::tool::Run;
use crate::source::tree::{Entry, Tree};
use crate::source::{Capture, folder};
use names::Names;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `lab redact` is asked for.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: ashlar lab redact before-repair to-send --salt 'a sentence of yours'"
)]
pub struct Args {
    /// Directory of the capture or the run. This directory is not changed.
    from: PathBuf,

    /// Directory for the copy: an empty directory, or a new directory, which is created.
    to: PathBuf,

    /// Secret that determines the replacements: with the same secret, a name always gets the same
    /// replacement [default: a random secret, used once].
    #[arg(long, value_name = "TEXT")]
    salt: Option<String>,
}

#[derive(serde::Serialize)]
struct Answer {
    folder: PathBuf,
    replaced: BTreeMap<&'static str, usize>,
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Refusal> {
    let salt = match &args.salt {
        Some(salt) => salt.clone(),
        None => random()?,
    };
    let replaced = if args.from.join("run.json").is_file() {
        let copied = run_dir::copy(&args.from, &args.to, &salt)?;
        for path in &copied.left_out {
            eprintln!("{}: no text, or made of the rest; left out", path.display());
        }
        copied.replaced
    } else {
        let (capture, _) = folder::read(&args.from)?;
        let (redacted, replaced) = redact(&capture, &salt);
        folder::write(&redacted, &args.to)?;
        replaced
    };
    let answer = Answer { folder: args.to.clone(), replaced };
    if json {
        crate::say!("{}", serde_json::to_string(&answer).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let counts: Vec<String> =
        answer.replaced.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let told = match counts.as_slice() {
        [] => "no identifier was found in it, so nothing is replaced: \
               look yourself before you send it"
            .to_owned(),
        counts => format!("replaced {}", counts.join(", ")),
    };
    crate::say!("{}: {told}", args.to.display());
    if args.salt.is_none() {
        crate::say!(
            "with a salt that is forgotten now; to compare two captures, redact both with --salt"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn random() -> Result<String, Refusal> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let said = format!("the kernel gives no random numbers: {error}");
        Refusal::cannot_run("redact.no_salt", said).hint("give a --salt")
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

pub fn redact(capture: &Capture, salt: &str) -> (Capture, BTreeMap<&'static str, usize>) {
    let found = find::identifiers(capture);
    let counts = found.counts();
    let names = Names::new(found, salt);
    let mut tree = Tree::default();
    for (path, entry) in capture.tree.iter() {
        let entry = match entry {
            Entry::Text(text) => Entry::Text(names.clean(text)),
            Entry::Link(target) => Entry::Link(names.clean(target)),
            Entry::Unreadable(why) => Entry::Unreadable(names.clean(why)),
            Entry::Present => Entry::Present,
        };
        tree.insert(names.clean(path), entry);
    }
    let clean = |run: &Run| Run {
        argv: run.argv.iter().map(|word| names.clean(word)).collect(),
        ending: run.ending.clone(),
        stdout: names.clean(&run.stdout),
        stderr: names.clean(&run.stderr),
    };
    let runs = capture.runs.iter().map(|(name, run)| (names.clean(name), clean(run))).collect();
    let mut origin = capture.origin.clone();
    origin.is_redacted = true;
    (Capture { tree, runs, origin }, counts)
}

#[cfg(test)]
mod tests;
