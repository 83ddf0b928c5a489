//! One delivery by one way, with a time limit.
//!
//! What must stay true: after the time limit a program is ended with all that it started. A message
//! is data for the program: on its standard input and in its environment, never in a command line.

use super::http::{self, Address};
use crate::config::NotifyConfig;
use crate::events::fields;
use ashlar_api::v1::event::Event;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How often to look whether a program has ended.
const POLL: Duration = Duration::from_millis(20);

/// Where messages go.
pub(super) struct Target {
    kind: Kind,
    time_max: Duration,
}

enum Kind {
    Run(Vec<String>),
    Mail { sendmail: PathBuf, to: Vec<String> },
    Url(Address),
}

/// What the configuration names.
pub(super) fn targets(config: &NotifyConfig) -> Vec<Target> {
    let run = (!config.run.is_empty()).then(|| Kind::Run(config.run.clone()));
    let mail = (!config.mail.is_empty())
        .then(|| Kind::Mail { sendmail: config.sendmail(), to: config.mail.clone() });
    let url = config.url.as_ref().and_then(|url| Address::parse(url).ok()).map(Kind::Url);
    let time_max = config.time_max();
    let kinds = [run, mail, url].into_iter().flatten();
    kinds.map(|kind| Target { kind, time_max }).collect()
}

/// An event as programs and servers get it.
#[derive(serde::Serialize)]
struct Document<'e> {
    host: String,
    message: String,
    #[serde(flatten)]
    event: &'e Event,
}

impl Target {
    pub(super) fn way(&self) -> &'static str {
        match &self.kind {
            Kind::Run(_) => "run",
            Kind::Mail { .. } => "mail",
            Kind::Url(_) => "url",
        }
    }

    /// For people. Arguments and queries may hold secrets and are left out.
    pub(super) fn name(&self) -> String {
        match &self.kind {
            Kind::Run(command) => command.first().cloned().unwrap_or_default(),
            Kind::Mail { to, .. } => to.join(", "),
            Kind::Url(address) => address.name(),
        }
    }

    /// Deliver it and wait.
    ///
    /// # Errors
    /// Why it did not arrive, in one line.
    pub(super) fn send(&self, event: &Event) -> Result<(), String> {
        let host = host();
        let document = Document { host: host.clone(), message: event.message(), event };
        let document = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
        match &self.kind {
            Kind::Run(command) => {
                let (program, arguments) = command.split_first().ok_or("no program")?;
                let mut command = Command::new(program);
                command.args(arguments).envs(fields::of(event));
                command.env("ASHLAR_MESSAGE", event.message()).env("ASHLAR_HOST", host);
                run(command, program, &document, self.time_max)
            }
            Kind::Mail { sendmail, to } => {
                let mut command = Command::new(sendmail);
                command.arg("-i").arg("--").args(to);
                let mail = mail(event, &host, to);
                run(command, &sendmail.display().to_string(), mail.as_bytes(), self.time_max)
            }
            Kind::Url(address) => http::post(address, &document, self.time_max),
        }
    }
}

/// What this machine is called.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A mail with its head. All of its lines are made of one-line texts, so nothing adds a header.
fn mail(event: &Event, host: &str, to: &[String]) -> String {
    let ascii = |text: &str| -> String {
        text.chars().map(|it| if it.is_ascii_graphic() || it == ' ' { it } else { '?' }).collect()
    };
    let message = event.message();
    let subject: String = ascii(&format!("[ashlar {host}] {}: {message}", event.severity))
        .chars()
        .take(200)
        .collect();
    let mut text = format!(
        "To: {}\nSubject: {subject}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{message}\n\n",
        to.join(", ")
    );
    text.push_str(&format!("host      {host}\nevent     {}\n", event.name));
    text.push_str(&format!("severity  {}\n", event.severity));
    text.extend(event.array.iter().map(|array| format!("array     {array}\n")));
    for (name, value) in &event.fields {
        let value = ashlar_api::v1::event::one_line(value);
        text.push_str(&format!("{name:<9} {value}\n"));
    }
    text.push_str("\nTo see more: ashlar status; ashlar events --since 1d\n");
    text
}

/// Run a program with this input until it ends or its time is over.
fn run(mut command: Command, name: &str, input: &[u8], time_max: Duration) -> Result<(), String> {
    let until = Instant::now() + time_max;
    // Its output is nobody's; what it complains about goes where our own output goes.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let input = feed(&mut child, input);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL),
            Ok(None) => break Err(format!("{name} did not end within {} s", time_max.as_secs())),
            Err(error) => break Err(format!("{name}: {error}")),
        }
    };
    if ended.is_err() {
        let _gone = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _reaped = child.wait();
    }
    // It ends with the program, which has read it or has let go of it.
    drop(input);
    match ended? {
        status if status.success() => Ok(()),
        status => Err(format!("{name} ended with {status}")),
    }
}

/// Writes the input aside: a program that does not read it must not hold us up.
fn feed(child: &mut Child, input: &[u8]) -> Option<std::thread::JoinHandle<()>> {
    let mut pipe = child.stdin.take()?;
    let input = input.to_vec();
    let write = move || {
        // A program may end without having read it; its exit code says whether that is a fault.
        let _unread = pipe.write_all(&input);
    };
    std::thread::Builder::new().name("ashlar-notify".to_owned()).spawn(write).ok()
}
