//! Counts from files: folded stacks or the text of `perf script`, told apart by their first lines.
//!
//! What must stay true: files of any size need no more memory than their distinct frames; a line
//! without end costs none.

use super::groups::Groups;
use super::script::{self, Header, Script};
use super::tally::{Counts, Tally};
use crate::metrics::share::Unit;
use crate::{AtPath, Refusal};
use regex::Regex;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line that is looked at, bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
const BUFFER_BYTES: usize = 1 << 18;
/// First line of the folded files that the lab writes, up to the unit.
pub const FOLDED_HEAD: &str = "# folded stacks of ashlar lab, unit: ";

#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    pub groups: &'a Groups,
    /// Names of the client's threads.
    pub client: &'a Regex,
    pub keep_stacks: bool,
}

#[derive(Debug, Default)]
pub struct Taken {
    pub counts: Counts,
    /// Event of the samples, if the files say so.
    pub event: Option<String>,
    /// First and last time in seconds, if the files say when samples were taken.
    pub times: Option<(f64, f64)>,
    /// Unit that a folded file of ours gives.
    pub unit: Option<Unit>,
}

pub fn count(paths: &[PathBuf], how: How<'_>) -> Result<Taken, Refusal> {
    let mut tally = Tally::new(how.groups, how.client, how.keep_stacks);
    let mut all = Taken::default();
    for (at, path) in paths.iter().enumerate() {
        let hint = "give folded stacks or the text of perf script";
        let head = head(path).at(path, hint)?;
        if head.starts_with(b"PERFILE2") {
            let what = format!("{}: perf's own file, not text", path.display());
            let hint = "first run: perf script -i FILE -F comm,pid,tid,cpu,time,event,ip,sym,dso";
            return Err(Refusal::cannot_run("cpu.file_binary", what).hint(hint));
        }
        let unit = unit(&head);
        if at > 0 && all.unit != unit {
            let what = format!("{}: not in the unit of the files before it", path.display());
            let hint = "account for samples and nanoseconds one by one";
            return Err(Refusal::cannot_run("cpu.units_mixed", what).hint(hint));
        }
        all.unit = unit;
        let file = File::open(path).at(path, hint)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        match is_script(&head) {
            true => all.read_script(reader, &mut tally).at(path, hint)?,
            false => {
                let skipped = lines(reader, |line| tally.folded(line)).at(path, hint)?;
                tally.unread(skipped);
            }
        }
    }
    all.counts = tally.finish();
    Ok(all)
}

pub fn read_script(reader: impl BufRead, how: How<'_>) -> io::Result<Taken> {
    let mut tally = Tally::new(how.groups, how.client, how.keep_stacks);
    let mut taken = Taken::default();
    taken.read_script(reader, &mut tally)?;
    taken.counts = tally.finish();
    Ok(taken)
}

impl Taken {
    fn read_script(&mut self, reader: impl BufRead, tally: &mut Tally<'_>) -> io::Result<()> {
        let (mut script, mut other_events) = (Script::default(), 0);
        let (mut event, times) = (None, &mut self.times);
        let mut each = |header: &Header, frames: &mut dyn Iterator<Item = &str>| {
            // One clock at a time: with two events each moment would be counted twice.
            if *event.get_or_insert_with(|| header.event.clone()) != header.event {
                other_events += 1;
                return;
            }
            if let Some(now) = header.seconds {
                let (first, last) = times.unwrap_or((now, now));
                *times = Some((first.min(now), last.max(now)));
            }
            tally.sample(&header.comm, header.cpu, frames);
        };
        let skipped = lines(reader, |line| script.line(line, &mut each))?;
        script.finish(&mut each);
        tally.unread(skipped + script.unread + other_events);
        self.event = self.event.take().or(event);
        Ok(())
    }
}

/// Give each line of `reader` to `each`, without its end; how many were too long to be looked at.
fn lines(mut reader: impl BufRead, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
    let (mut line, mut skipped) = (Vec::new(), 0);
    loop {
        line.clear();
        let got = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\n") {
            _ if got == 0 => return Ok(skipped),
            Some(whole) => each(whole),
            None if u64::try_from(got).is_ok_and(|got| got < LINE_BYTES_MAX) => each(&line),
            None => {
                skipped += 1;
                reader.skip_until(b'\n')?;
            }
        }
    }
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
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
    let units = [Unit::Samples, Unit::Nanoseconds];
    units.into_iter().find(|unit| rest.starts_with(unit.word().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn a_line_without_end_is_passed_over_and_counted() {
        let text = [b"a 1\n".as_slice(), &[b'x'; 3 << 20], b"\nb 2"].concat();
        let mut seen = Vec::new();
        let skipped = lines(&text[..], |line| seen.push(line.to_vec())).expect("read");
        assert_eq!((seen, skipped), (vec![b"a 1".to_vec(), b"b 2".to_vec()], 1));
    }
}
