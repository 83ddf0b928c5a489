//! `ashlar top`: what the status page shows, in a terminal.
//!
//! - here    the loop: what the daemon says and what is typed, one thread for each
//! - `view`  what is known, and what the keys do
//! - `draw`  the screen
//!
//! What must stay true: it only asks. A daemon that goes away is said on the screen, and asked
//! again. The terminal is as it was when the command ends, also after a panic.

mod draw;
mod view;

use crate::fault::Fault;
use crate::reach::Reach;
use ashlar_api::v1::event::Event;
use ashlar_api::v1::status::{GetStatus, Status};
use ashlar_api::{codes, words};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Typed};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use view::View;

/// Show a live view of arrays, slots, rates, jobs and events.
///
/// Keys: up and down choose an array, page up and page down move through its slots, q ends.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Seconds between updates.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    every: u64,
}

/// How long to wait for a key before the screen is drawn anew.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// How long to wait before a daemon that is gone is asked again.
const RETRY: Duration = Duration::from_secs(2);

/// What the daemon says.
enum Said {
    Status(Box<Status>),
    Event(Box<Event>),
    /// Nobody answers: why.
    Gone(String),
}

pub fn run(args: &Args, reach: &Reach) -> Result<(), Fault> {
    if !std::io::stdout().is_terminal() || reach.json {
        return Err(Fault::usage(
            "ashlar top needs a terminal",
            "use 'ashlar status' for text, and 'ashlar status --json' for programs",
        ));
    }
    // Refusals are for the shell, not for a screen that ends at once.
    reach.call(&GetStatus {})?;
    let (said, heard) = channel();
    let socket = reach.socket()?;
    ask(&socket, Duration::from_secs(args.every), said.clone());
    follow(&socket, said);
    let terminal = ratatui::try_init().map_err(|error| {
        Fault::new(codes::SYSTEM_FAULT, format!("the terminal cannot be used: {error}"), "")
    })?;
    let shown = show(terminal, &heard);
    ratatui::restore();
    shown.map_err(|error| Fault::new(codes::SYSTEM_FAULT, format!("the terminal: {error}"), ""))
}

/// Until the user ends it.
fn show(mut terminal: DefaultTerminal, heard: &Receiver<Said>) -> std::io::Result<()> {
    let mut view = View::default();
    loop {
        for said in heard.try_iter() {
            match said {
                Said::Status(status) => view.take(*status, words::now_ms()),
                Said::Event(event) => view.hear(*event),
                Said::Gone(why) => view.lose(why),
            }
        }
        terminal.draw(|frame| draw::draw(frame, &view))?;
        if event::poll(KEY_WAIT)?
            && let Typed::Key(key) = event::read()?
            && view.press(key)
        {
            return Ok(());
        }
    }
}

/// Ask for the status again and again, on a thread that ends with the process.
fn ask(socket: &std::path::Path, every: Duration, said: Sender<Said>) {
    let reach = Reach { socket: Some(PathBuf::from(socket)), json: false };
    thread::spawn(move || {
        loop {
            let answer = match reach.call(&GetStatus {}) {
                Ok(status) => Said::Status(Box::new(status)),
                Err(fault) => Said::Gone(fault.to_string()),
            };
            if said.send(answer).is_err() {
                return;
            }
            thread::sleep(every);
        }
    });
}

/// Hear of events as they happen, on a thread that ends with the process.
fn follow(socket: &std::path::Path, said: Sender<Said>) {
    let reach = Reach { socket: Some(PathBuf::from(socket)), json: false };
    thread::spawn(move || {
        loop {
            if let Ok(client) = reach.client() {
                let hear = |event| said.send(Said::Event(Box::new(event))).is_ok();
                // The thread that asks for the status says that nobody answers.
                let _ended = client.events(true, hear);
            }
            thread::sleep(RETRY);
        }
    });
}
