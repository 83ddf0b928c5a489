//! Counts from files: folded stacks or the text of `perf script`, told apart by their first lines.
//!
//! What must stay true: files of any size need no more memory than their distinct frames; what
//! several threads count is what one would have counted.

use super::groups::Groups;
use super::lines::{self, Range};
use super::script::{self, Header, Script};
use super::tally::{Counts, Tally};
use crate::Refusal;
use crate::metrics::share::Unit;
use regex::Regex;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// First line of the folded files that the lab writes, up to the unit.
pub const FOLDED_HEAD: &str = "# folded stacks of ashlar lab, unit: ";

/// How files are to be counted.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Function groups.
    pub groups: &'a Groups,
    /// Names of the client's threads.
    pub client: &'a Regex,
    /// Keep distinct stacks for flame graphs.
    pub keep_stacks: bool,
    /// Threads that count.
    pub threads: usize,
}

/// What files say.
#[derive(Debug, Default)]
pub struct Taken {
    /// The counts.
    pub counts: Counts,
    /// Event of the samples, if the files say so.
    pub event: Option<String>,
    /// First and last time in seconds, if the files say when samples were taken.
    pub times: Option<(f64, f64)>,
    /// Unit that a folded file of ours gives.
    pub unit: Option<Unit>,
}

/// Count all `paths` together.
///
/// # Errors
/// A file that cannot be read, or that is none of ours, by name; files in different units.
pub fn count(paths: &[PathBuf], how: How<'_>) -> Result<Taken, Refusal> {
    let (mut ranges, mut all) = (
        Vec::new(),
        Taken {
            counts: Tally::new(how.groups, how.client, how.keep_stacks).finish(),
            ..Taken::default()
        },
    );
    let mut is_first = true;
    for path in paths {
        let unusable = |error: &std::io::Error| {
            Refusal::file(path, error, "give folded stacks or the text of perf script")
        };
        let head = head(path).map_err(|error| unusable(&error))?;
        if head.starts_with(b"PERFILE2") {
            let what = format!("{}: perf's own file, not text", path.display());
            let hint = "first run: perf script -i FILE -F comm,pid,tid,cpu,time,event,ip,sym,dso";
            return Err(Refusal::cannot_run("cpu.file_binary", what, hint));
        }
        let unit = unit(&head);
        if !is_first && all.unit != unit {
            let what = format!("{}: not in the unit of the files before it", path.display());
            return Err(Refusal::cannot_run(
                "cpu.units_mixed",
                what,
                "account for samples and nanoseconds one by one",
            ));
        }
        (all.unit, is_first) = (unit, false);
        if is_script(&head) {
            let file = File::open(path).map_err(|error| unusable(&error))?;
            let one = read_script(BufReader::new(file), how).map_err(|error| unusable(&error))?;
            all.add(one);
        } else {
            ranges.extend(Range::cut(path).map_err(|error| unusable(&error))?);
        }
    }
    all.counts.add(folded(ranges, how)?);
    Ok(all)
}

/// Count what `perf script` prints.
///
/// # Errors
/// It cannot be read.
pub fn read_script(mut reader: impl BufRead, how: How<'_>) -> std::io::Result<Taken> {
    let mut tally = Tally::new(how.groups, how.client, how.keep_stacks);
    let (mut script, mut other_events) = (Script::default(), 0);
    let (mut event, mut times): (Option<String>, Option<(f64, f64)>) = (None, None);
    let mut each = |header: &Header, frames: &mut dyn Iterator<Item = &str>| {
        // One clock at a time: with two events each moment would be counted twice.
        if *event.get_or_insert_with(|| header.event.clone()) != header.event {
            other_events += 1;
            return;
        }
        if let Some(now) = header.seconds {
            let (first, last) = times.unwrap_or((now, now));
            times = Some((first.min(now), last.max(now)));
        }
        tally.sample(&header.comm, header.cpu, frames);
    };
    let skipped = lines::lines(&mut reader, |line| script.line(line, &mut each))?;
    script.finish(&mut each);
    tally.unread(skipped + script.unread + other_events);
    Ok(Taken { counts: tally.finish(), event, times, unit: None })
}

fn folded(ranges: Vec<Range>, how: How<'_>) -> Result<Counts, Refusal> {
    let queue = Mutex::new(ranges.into_iter().rev().collect::<Vec<_>>());
    let take = || queue.lock().map_or(None, |mut ranges| ranges.pop());
    let work = || {
        let mut tally = Tally::new(how.groups, how.client, how.keep_stacks);
        while let Some(range) = take() {
            let skipped = range.lines(|line| tally.folded(line)).map_err(|error| {
                Refusal::file(&range.path, &error, "the other files were not accounted for either")
            })?;
            tally.unread(skipped);
        }
        Ok(tally.finish())
    };
    let mut all = Tally::new(how.groups, how.client, how.keep_stacks).finish();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..how.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let counts: Result<Counts, Refusal> = thread.join().unwrap_or_else(|_| {
                let what = "a thread that counted stacks ended early";
                Err(Refusal::cannot_run("cpu.count_failed", what, "this is a bug of the lab"))
            });
            all.add(counts?);
        }
        Ok(all)
    })
}

impl Taken {
    fn add(&mut self, other: Taken) {
        self.counts.add(other.counts);
        self.event = self.event.take().or(other.event);
        self.times = match (self.times, other.times) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(1 << 16).read_to_end(&mut head)?;
    Ok(head)
}

/// The first line that is not a note looks like the header of a sample, not like `a;b 12`.
fn is_script(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let first = lines.find(|line| !line.starts_with(b"#")).unwrap_or_default();
    script::is_header(&String::from_utf8_lossy(first))
}

fn unit(head: &[u8]) -> Option<Unit> {
    let rest = head.strip_prefix(FOLDED_HEAD.as_bytes())?;
    [(&b"samples"[..], Unit::Samples), (b"nanoseconds", Unit::Nanoseconds)]
        .into_iter()
        .find_map(|(word, unit)| rest.starts_with(word).then_some(unit))
}
