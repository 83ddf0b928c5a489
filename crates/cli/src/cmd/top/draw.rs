//! Draws the screen of `ashlar top`.
//!
//! What must stay true: every state has a word, so nobody needs colour to tell them apart. What a
//! device, a client or an operator says is text: it moves no cursor. A small terminal shows less,
//! from below.

use super::view::{Rate, View};
use crate::render::rate::progress;
use ashlar_api::v1::array::{ArrayState, ArrayStatus};
use ashlar_api::v1::check::{Health, Verdict};
use ashlar_api::v1::event::{Event, one_line};
use ashlar_api::v1::member::{MemberState, MemberStatus};
use ashlar_api::v1::severity::Severity;
use ashlar_api::v1::status::Status;
use ashlar_api::words::{grouped, span, utc};
use ashlar_units::ByteSize;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

/// A device that has not answered for so long is told of.
const SILENT_MS: u64 = 2000;

pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(status) = &view.now else {
        let why = view.gone.clone().unwrap_or_else(|| "asking the daemon".to_owned());
        frame.render_widget(Paragraph::new(one_line(&why)), frame.area());
        return;
    };
    let rows = |count: usize| Constraint::Length(u16::try_from(count + 3).unwrap_or(u16::MAX));
    let jobs: Vec<Row<'_>> = jobs(status);
    let slots = view
        .chosen()
        .map_or(0, |(_, array)| array.members.len() - view.first_slot.min(array.members.len()));
    let parts = Layout::vertical([
        Constraint::Length(2),
        rows(status.arrays.len() + status.absent.len() + status.found.len()),
        Constraint::Max(u16::try_from(slots + 3).unwrap_or(u16::MAX)),
        Constraint::Length(if jobs.is_empty() {
            0
        } else {
            u16::try_from(jobs.len() + 2).unwrap_or(u16::MAX)
        }),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [head, arrays, slots, jobs_at, events, keys] = parts.areas(frame.area());
    frame.render_widget(head_of(status, view), head);
    frame.render_widget(arrays_table(status, view), arrays);
    if let Some((_, array)) = view.chosen() {
        frame.render_widget(slots_table(array, view), slots);
    }
    jobs_table(frame, jobs, jobs_at);
    frame.render_widget(events_list(view), events);
    let words = "q end   up, down: choose an array   left, right: its slots";
    frame.render_widget(Paragraph::new(Line::styled(words, dim())), keys);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn of_health(health: Health) -> Style {
    match health {
        Health::Right => Style::new().fg(Color::Green),
        Health::Attention | Health::Degraded => bold().fg(Color::Yellow),
        Health::Failed => bold().fg(Color::Red),
    }
}

/// The verdict, and what is wrong first of all.
fn head_of(status: &Status, view: &View) -> Paragraph<'static> {
    let verdict = Verdict::of(status);
    let first = match &view.gone {
        Some(why) => {
            Line::styled(format!("NO ANSWER  {}", one_line(why)), of_health(Health::Failed))
        }
        None => {
            let found: Vec<String> = verdict.findings.iter().map(|it| one_line(&it.what)).collect();
            Line::from(vec![
                Span::styled(verdict.health.to_string(), of_health(verdict.health)),
                Span::raw(format!("  {}", found.join("; "))),
            ])
        }
    };
    let about = format!(
        "ashlar {}, up {}, {} of memory",
        one_line(&status.version),
        span(status.uptime_seconds),
        ByteSize(status.resident_bytes)
    );
    Paragraph::new(vec![first, Line::styled(about, dim())])
}

/// Reads, writes and their times, as cells.
fn cells(rate: Option<Rate>) -> [String; 6] {
    let Some(rate) = rate else { return [(); 6].map(|()| "-".to_owned()) };
    let time = |us: u64| if us == 0 { "-".to_owned() } else { grouped(us) };
    [
        grouped(rate.reads),
        format!("{}/s", ByteSize(rate.read_bytes)),
        time(rate.read_us),
        grouped(rate.writes),
        format!("{}/s", ByteSize(rate.write_bytes)),
        time(rate.write_us),
    ]
}

const RATES: [&str; 6] = ["reads/s", "read", "us", "writes/s", "written", "us"];

fn arrays_table(status: &Status, view: &View) -> Table<'static> {
    let chosen = view.chosen().map(|(at, _)| at);
    let row = |(at, array): (usize, &ArrayStatus)| {
        let mark = if chosen == Some(at) { "> " } else { "  " };
        let mut words = vec![
            format!("{mark}{}", one_line(&array.name)),
            format!("{} {}", array.level, array.shape()),
            ByteSize(array.volume_bytes).to_string(),
            state(array),
        ];
        words.extend(cells(view.rate_of(array)));
        Row::new(words).style(of_array(array))
    };
    let absent = status.absent.iter().map(|it| {
        let words = [format!("  {}", one_line(&it.name)), String::new(), String::new()];
        let words =
            words.into_iter().chain([if it.starting { "STARTING" } else { "ABSENT" }.to_owned()]);
        Row::new(words.collect::<Vec<_>>()).style(of_health(Health::Failed))
    });
    let found = status.found.iter().map(|it| {
        let words = [format!("  {}", one_line(&it.name)), String::new(), String::new()];
        let words = words.into_iter().chain(["NOT STARTED".to_owned()]);
        Row::new(words.collect::<Vec<_>>()).style(of_health(Health::Failed))
    });
    let rows = status.arrays.iter().enumerate().map(row).chain(absent).chain(found);
    let rows: Vec<Row<'_>> = rows.collect();
    let head = [&["  array", "level", "size", "state"] as &[&str], &RATES].concat();
    let widths = [18, 14, 10, 12, 10, 11, 8, 10, 11, 8].map(Constraint::Length);
    Table::new(rows, widths)
        .header(Row::new(head).style(dim()))
        .block(Block::bordered().title("Arrays"))
}

fn state(array: &ArrayStatus) -> String {
    match array.taken_over_by {
        Some(_) => "TAKEN OVER".to_owned(),
        None if array.pause.is_some() => "PAUSED".to_owned(),
        None => array.state.to_string(),
    }
}

fn of_array(array: &ArrayStatus) -> Style {
    let health = match array.state {
        _ if array.taken_over_by.is_some() || array.pause.is_some() => Health::Failed,
        ArrayState::Clean => return Style::new(),
        ArrayState::Failed => Health::Failed,
        ArrayState::Resyncing | ArrayState::Degraded | ArrayState::ReadOnly => Health::Degraded,
    };
    of_health(health)
}

fn slots_table(array: &ArrayStatus, view: &View) -> Table<'static> {
    let row = |member: &MemberStatus| {
        let mut words = vec![member.slot.to_string(), member.state.to_string(), device(member)];
        words.extend(cells(view.rate_of_member(array, member)));
        words.push(notes(member));
        let is_well = member.state == MemberState::InSync && notes(member).is_empty();
        Row::new(words).style(if is_well { Style::new() } else { of_health(Health::Attention) })
    };
    let rows: Vec<Row<'_>> = array.members.iter().skip(view.first_slot).map(row).collect();
    let head = [&["slot", "state", "device"] as &[&str], &RATES, &["notes"]].concat();
    let widths = [4, 10, 16, 10, 11, 8, 10, 11, 8].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(10)]);
    Table::new(rows, widths)
        .header(Row::new(head).style(dim()))
        .block(Block::bordered().title(format!("Slots of {}", one_line(&array.name))))
}

/// What is in the slot, or was last.
fn device(member: &MemberStatus) -> String {
    let last = member.last_device.as_ref().filter(|_| member.path.is_empty());
    match (last, member.path.as_str()) {
        (Some(last), _) => format!("was {}", one_line(&last.path)),
        (None, "") => "no device".to_owned(),
        (None, path) => one_line(path),
    }
}

fn notes(member: &MemberStatus) -> String {
    let errors = member.faults();
    let concerns = member
        .health
        .iter()
        .flat_map(|health| health.concerns().into_iter().map(|concern| health.words(concern)));
    let last = member.last_device.as_ref();
    let replacement = member.replacement.as_ref().map(|path| format!("by {}", one_line(path)));
    let serial =
        last.and_then(|last| last.serial.as_ref()).map(|it| format!("serial {}", one_line(it)));
    [
        (member.silent_ms >= SILENT_MS).then(|| format!("SILENT {} s", member.silent_ms / 1000)),
        member.slow.map(|slow| format!("SLOW {} us, peers {} us", slow.own_us, slow.peers_us)),
        replacement,
        serial,
        last.and_then(|last| last.bay.words()),
        (errors > 0).then(|| format!("errors {}", grouped(errors))),
    ]
    .into_iter()
    .flatten()
    .chain(concerns)
    .collect::<Vec<_>>()
    .join(", ")
}

fn jobs(status: &Status) -> Vec<Row<'static>> {
    let of = |array: &ArrayStatus| {
        let name = one_line(&array.name);
        let row = move |job: &ashlar_api::v1::job::JobStatus| {
            let slot = job.slot.map_or(String::new(), |slot| format!("slot {slot}"));
            Row::new([name.clone(), job.kind.to_string(), slot, progress(job)])
        };
        array.jobs.iter().map(row).collect::<Vec<_>>()
    };
    status.arrays.iter().flat_map(of).collect()
}

fn jobs_table(frame: &mut Frame<'_>, rows: Vec<Row<'static>>, area: Rect) {
    if rows.is_empty() {
        return;
    }
    let widths = [16, 10, 10].map(Constraint::Length).into_iter().chain([Constraint::Min(20)]);
    frame.render_widget(Table::new(rows, widths).block(Block::bordered().title("Jobs")), area);
}

fn events_list(view: &View) -> Paragraph<'static> {
    let line = |event: &Event| {
        let style = match event.severity {
            Severity::Info | Severity::Notice => Style::new(),
            Severity::Warning => of_health(Health::Attention),
            Severity::Error | Severity::Critical => of_health(Health::Failed),
        };
        let words = format!("{} {:<8} {}", utc(event.unix_ms), event.severity, event.message());
        Line::styled(words, style)
    };
    let lines: Vec<Line<'_>> = view.events.iter().map(line).collect();
    Paragraph::new(lines).block(Block::bordered().title("Events, times in UTC"))
}

#[cfg(test)]
mod tests;
