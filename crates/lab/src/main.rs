//! `ashlar-lab`: the lab alone, for servers on which the engine is not installed. The same as
//! `ashlar lab`.
#![forbid(unsafe_code)]

use ashlar_lab::cli;
use clap::Parser;
use std::process::ExitCode;

/// Qualify a server, measure any RAID engine honestly, and say what limits it.
#[derive(clap::Parser, Debug)]
#[command(name = "ashlar-lab", version, max_term_width = 100)]
struct Alone {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    lab: cli::Args,
}

fn main() -> ExitCode {
    let alone = Alone::parse();
    match cli::run(alone.lab, alone.json) {
        Ok(code) => code,
        Err(refusal) => {
            eprintln!("ashlar-lab: {refusal}");
            ExitCode::from(refusal.exit_code())
        }
    }
}
