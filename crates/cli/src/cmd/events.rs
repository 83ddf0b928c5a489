//! `ashlar events`: what happened.

use crate::fault::Fault;
use crate::reach::Reach;
use crate::render::moment;
use crate::say;
use ashlar_api::v1::event::Event;

/// Show events, oldest first.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Keep running and print new events as they happen.
    #[arg(short, long)]
    follow: bool,
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    let mut fault = None;
    reach.client()?.events(args.follow, |event| {
        // One object a line also as JSON, so that it can be followed by a program.
        let line = if reach.json { serde_json::to_string(&event) } else { Ok(line(&event)) };
        fault = line.map_err(Fault::from).and_then(say::line).err();
        fault.is_none()
    })?;
    fault.map_or(Ok(()), Err)
}

fn line(event: &Event) -> String {
    let array = event.array.as_deref().unwrap_or("");
    let fields: Vec<String> =
        event.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{}  {:<22} {array:<10} {}", moment::utc(event.unix_ms), event.name, fields.join("  "))
}
