//! Reads what `perf script` prints, line by line: a header for each sample, its frames from the
//! leaf on, an empty line.
//!
//! What must stay true: every sample counts as one, whatever period is printed beside it; headers
//! are read by their marks (`[cpu]`, `time:`), not by column; what is not understood is counted; no
//! input panics.

use super::frame;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    pub comm: String,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub cpu: Option<u32>,
    /// Seconds since an arbitrary beginning, if printed.
    pub seconds: Option<f64>,
    /// Event: `cpu-clock:pppH`, `cycles`.
    pub event: String,
}

/// A sample in the making, and what is given on when it is whole.
#[derive(Debug, Default)]
pub struct Script {
    header: Option<Header>,
    /// Frames of the sample at hand, leaf first, one after the other; `ends` says where each ends.
    text: String,
    ends: Vec<usize>,
    one: String,
    pub unread: u64,
}

/// Deepest stack that is kept; perf itself stops at 127 frames.
const FRAMES_MAX: usize = 1024;

impl Script {
    /// Take the next line. When it ends a sample, that goes to `each`: header, and frames from the
    /// root on.
    pub fn line(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&Header, &mut dyn Iterator<Item = &str>),
    ) {
        let line = String::from_utf8_lossy(line);
        // A header may be indented too, but ends with a colon; a frame ends with its object.
        let is_frame = line.starts_with([' ', '\t'])
            && self.header.is_some()
            && !line.trim_end().ends_with(':');
        if line.trim().is_empty() {
            self.finish(each);
        } else if line.starts_with('#') {
            // Notes about the machine and the command line.
        } else if is_frame && let Some((symbol, object)) = frame_parts(&line) {
            if self.ends.len() < FRAMES_MAX {
                frame::compose(&mut self.one, symbol, object);
                self.text.push_str(&self.one);
                self.ends.push(self.text.len());
            }
        } else if let Some(header) = header(&line) {
            self.finish(each);
            self.header = Some(header);
        } else {
            self.unread += 1;
        }
    }

    /// The end of the text: give the last sample on.
    pub fn finish(&mut self, each: &mut impl FnMut(&Header, &mut dyn Iterator<Item = &str>)) {
        if let Some(header) = self.header.take() {
            let text = &self.text;
            let start = |at: usize| if at == 0 { 0 } else { self.ends[at - 1] };
            let mut frames = (0..self.ends.len()).rev().map(|at| &text[start(at)..self.ends[at]]);
            each(&header, &mut frames);
        }
        self.text.clear();
        self.ends.clear();
    }
}

pub fn is_header(line: &str) -> bool {
    header(line).is_some()
}

/// `comm pid/tid [cpu] time: [period] event:`; pid, cpu and time may be missing, comm may hold
/// blanks.
fn header(line: &str) -> Option<Header> {
    let mut header = Header::default();
    let line = line.trim_end();
    let line = line.strip_suffix(':').unwrap_or(line);
    let (before, after) = split_at_time(line)?;
    header.seconds = after.0;
    // A period may stand before the event; it is not wanted: a sample is one sample.
    header.event = after.1.split_whitespace().last().unwrap_or_default().to_owned();
    let mut before = before.trim_end();
    if let Some((rest, cpu)) = before.strip_suffix(']').and_then(|it| it.rsplit_once('[')) {
        header.cpu = Some(cpu.parse().ok()?);
        before = rest.trim_end();
    }
    let (comm, ids) = before.rsplit_once(char::is_whitespace)?;
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (Some(pid), tid),
        None => (None, ids),
    };
    // perf prints -1 for a thread that has ended.
    header.tid = Some(tid.parse::<i64>().ok()?).and_then(|it| u32::try_from(it).ok());
    header.pid = pid.and_then(|it| it.parse().ok());
    header.comm = comm.trim().to_owned();
    (!header.comm.is_empty()).then_some(header)
}

/// What stands before ` 12.345678:`, the time, and what stands after it.
fn split_at_time(line: &str) -> Option<(&str, (Option<f64>, &str))> {
    let mut from = 0;
    while let Some(at) = line[from..].find(": ").map(|it| it + from) {
        let word = line[..at].rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_time =
            word.contains('.') && word.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        if is_time {
            return Some((&line[..at - word.len()], (word.parse().ok(), &line[at + 2..])));
        }
        from = at + 2;
    }
    None
}

/// `  ffffffff8161df68 symbol+0x1f ([kernel.kallsyms])`: symbol and shared object.
fn frame_parts(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (address, rest) = line.split_once(' ').unwrap_or((line, ""));
    if address.is_empty() || !address.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    let start = [" (/", " ([", " ("].iter().find_map(|mark| rest.rfind(mark));
    let (symbol, object) = match (start, rest.strip_suffix(')')) {
        (Some(at), Some(whole)) => (&rest[..at], &whole[at + 2..]),
        _ if rest.starts_with('(') => ("", rest.trim_matches(['(', ')'])),
        _ => (rest, ""),
    };
    let object = object.trim_end_matches(')').trim_end_matches(" (deleted");
    Some((without_offset(symbol.trim()), if object == "inlined" { "" } else { object }))
}

/// `symbol+0x1f` without the offset.
fn without_offset(symbol: &str) -> &str {
    match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|it| it.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Script};

    /// Header and frames, root first, of each sample; and how many lines were not understood.
    fn read(text: &str) -> (Vec<(Header, Vec<String>)>, u64) {
        let (mut script, mut seen) = (Script::default(), Vec::new());
        let mut each = |header: &Header, frames: &mut dyn Iterator<Item = &str>| {
            seen.push((header.clone(), frames.map(str::to_owned).collect()));
        };
        text.lines().for_each(|line| script.line(line.as_bytes(), &mut each));
        script.finish(&mut each);
        (seen, script.unread)
    }

    const ASKED_FOR: &str = "\
lto cgu.07 31604/531   [000] 24835.101532: cpu-clock:pppH: \n\
\t         884f109 llvm::A<(anonymous namespace)::B>::c (/usr/lib/libLLVM.so.22.1)\n\
\n\
fio 31173/31182 [001] 24835.111631: cpu-clock:pppH: \n\
\tffffffff821e8f67 raid5_make_request ([raid456])\n\
\tffffffff821e8f60 submit_bio_noacct ([kernel.kallsyms])\n\
\t             d98 [unknown] ([unknown])\n\
\n";

    #[test]
    fn samples_are_read_as_perf_prints_them_when_asked_for_fields() {
        let (seen, unread) = read(ASKED_FOR);
        assert_eq!((seen.len(), unread), (2, 0));
        let (first, frames) = &seen[0];
        assert_eq!(
            (first.comm.as_str(), first.pid, first.tid),
            ("lto cgu.07", Some(31604), Some(531))
        );
        assert_eq!((first.cpu, first.event.as_str()), (Some(0), "cpu-clock:pppH"));
        assert_eq!(frames, &["llvm::A<(anonymous namespace)::B>::c [libLLVM.so.22.1]"]);
        assert_eq!(
            seen[1].1,
            ["[unknown]", "submit_bio_noacct_[k]", "raid5_make_request [raid456]_[k]"]
        );
    }

    #[test]
    fn a_period_that_is_printed_changes_nothing() {
        let text = "rustc 28266 [001] 24835.101577:   10101010 cpu-clock:pppH: \n\
                    \t 52bc6c f+0x14c (/usr/bin/x)\n\n";
        let (seen, unread) = read(text);
        assert_eq!((seen.len(), unread), (1, 0));
        assert_eq!((seen[0].0.event.as_str(), seen[0].0.pid), ("cpu-clock:pppH", None));
        assert_eq!(seen[0].1, ["f [x]"]);
    }

    #[test]
    fn samples_without_empty_line_or_frames_are_still_told_apart() {
        let (seen, _) = read(
            "a 1 [000] 1.5: cycles: \n\nb 2 1.6: cycles: \n c 3 [001] 1.7: cycles:\n\
             swapper     0 [002] 1.8: 1 cycles: ",
        );
        let comms: Vec<&str> = seen.iter().map(|(header, _)| header.comm.as_str()).collect();
        assert_eq!(comms, ["a", "b", "c", "swapper"]);
        assert_eq!(seen[1].0.cpu, None);
    }

    #[test]
    fn what_is_not_understood_is_counted() {
        assert_eq!(read("# captured on: x\nhello\n\n\n"), (Vec::new(), 1));
        let (seen, _) =
            read("a 1 [000] 1.5: cycles: \n\t ffff f (/x (deleted))\n\t ffff g (inlined)\n\n");
        assert_eq!(seen[0].1, ["g", "f [x]"]);
    }
}
