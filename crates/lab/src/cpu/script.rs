//! Reads what `perf script` prints, line by line: a header for each sample, its frames from the
//! leaf on, an empty line; and frames as text: `symbol`, ` [module]` when it is not the kernel
//! itself, `_[k]` on kernel frames. This is FlameGraph's own spelling with the module in between,
//! so any flame graph program reads it.
//!
//! What must stay true: every sample counts as one, whatever period is printed beside it; headers
//! are read by their marks (`[cpu]`, `time:`), not by column; what is not understood is counted;
//! `parse(compose(x)) == x` for what perf prints; no input panics.

/// A frame, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frame<'a> {
    /// Name of the function without the compiler's `.isra.0` and the like; empty if perf did not
    /// know it.
    pub symbol: &'a str,
    /// Kernel module, program or library; empty for the kernel itself or if nothing is said.
    pub module: &'a str,
}

/// What compilers append to the name of a function they cut up.
const CLONES: [&str; 6] = [".isra.", ".constprop.", ".part.", ".cold", ".llvm.", ".lto_priv."];

impl<'a> Frame<'a> {
    /// Take a frame's text apart. Text without a module is a bare symbol.
    pub fn parse(text: &'a str) -> Frame<'a> {
        let marks = ["_[k]", "_[i]", "_[j]", "_[w]"];
        let bare = marks.iter().find_map(|mark| text.strip_suffix(mark)).unwrap_or(text);
        let (symbol, module) = match bare.strip_suffix(']').and_then(|it| it.rsplit_once('[')) {
            Some(("", module)) => ("", module),
            Some((symbol, module)) if symbol.ends_with(' ') => (symbol.trim_end(), module),
            _ => (bare, ""),
        };
        let end = CLONES.iter().filter_map(|mark| symbol.find(mark)).min();
        Frame { symbol: &symbol[..end.unwrap_or(symbol.len())], module }
    }
}

/// A frame's text, from what perf printed as symbol and shared object. `;` parts frames and a line
/// ends a stack: neither may be inside a name.
fn compose(symbol: &str, object: &str) -> String {
    let is_kernel_itself = object.starts_with("[kernel")
        || object.ends_with("/vmlinux")
        || object.contains("[guest.kernel");
    let is_kernel = is_kernel_itself
        || (object.starts_with('[') && !object.starts_with("[unknown") && object != "[vdso]")
        || object.ends_with(".ko")
        || object.contains(".ko.");
    let name = object.rsplit('/').next().unwrap_or(object);
    let module = name.trim_start_matches('[').trim_end_matches(']');
    let module = module.split(".ko").next().unwrap_or(module);
    let text = match (symbol, is_kernel_itself) {
        ("[unknown]" | "", true) => "[kernel]".to_owned(),
        ("[unknown]" | "", false) => format!("[{module}]"),
        (symbol, false) if !module.is_empty() => format!("{symbol} [{module}]"),
        (symbol, _) => symbol.to_owned(),
    };
    let text = text.replace(|c: char| c == ';' || c.is_control(), ":");
    if is_kernel { text + "_[k]" } else { text }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    pub comm: String,
    /// Core, if printed.
    pub cpu: Option<u32>,
    /// Since an arbitrary beginning, if printed.
    pub seconds: Option<f64>,
    /// `cpu-clock:pppH`, `cycles`.
    pub event: String,
}

/// A sample in the making, and what is given on when it is whole.
#[derive(Debug, Default)]
pub struct Script {
    header: Option<Header>,
    /// Frames of the sample at hand, leaf first.
    frames: Vec<String>,
    /// Lines that were not understood.
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
            if self.frames.len() < FRAMES_MAX {
                self.frames.push(compose(symbol, object));
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
            each(&header, &mut self.frames.iter().rev().map(String::as_str));
        }
        self.frames.clear();
    }
}

pub fn is_header(line: &str) -> bool {
    header(line).is_some()
}

/// `comm pid/tid [cpu] time: [period] event:`; pid, cpu and time may be missing, comm may hold
/// blanks.
fn header(line: &str) -> Option<Header> {
    let line = line.trim_end();
    let line = line.strip_suffix(':').unwrap_or(line);
    let (before, seconds, after) = split_at_time(line)?;
    let before = before.trim_end();
    let (before, cpu) = match before.strip_suffix(']').and_then(|it| it.rsplit_once('[')) {
        Some((rest, cpu)) => (rest.trim_end(), Some(cpu.parse().ok()?)),
        None => (before, None),
    };
    let (comm, ids) = before.rsplit_once(char::is_whitespace)?;
    // perf prints -1 for a thread that has ended.
    ids.rsplit('/').next()?.parse::<i64>().ok()?;
    // A period may stand before the event; it is not wanted: a sample is one sample.
    let event = after.split_whitespace().last().unwrap_or_default().to_owned();
    let comm = comm.trim().to_owned();
    (!comm.is_empty()).then_some(Header { comm, cpu, seconds, event })
}

/// What stands before ` 12.345678:`, the time, and what stands after it.
fn split_at_time(line: &str) -> Option<(&str, Option<f64>, &str)> {
    line.match_indices(": ").find_map(|(at, _)| {
        let word = line[..at].rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_time =
            word.contains('.') && word.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        is_time.then(|| (&line[..at - word.len()], word.parse().ok(), &line[at + 2..]))
    })
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
    let symbol = match symbol.trim().rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|it| it.is_ascii_hexdigit()) => name,
        _ => symbol.trim(),
    };
    Some((symbol, if object == "inlined" { "" } else { object }))
}

#[cfg(test)]
mod tests {
    use super::{Frame, Header, Script, compose};

    #[test]
    fn frames_of_the_kernel_of_modules_and_of_programs_are_told_apart_in_both_directions() {
        for (symbol, object, text) in [
            ("do_idle", "[kernel.kallsyms]", "do_idle_[k]"),
            ("raid5d", "[raid456]", "raid5d [raid456]_[k]"),
            ("zio_execute", "/lib/modules/6.1/extra/zfs.ko.xz", "zio_execute [zfs]_[k]"),
            ("fio_io", "/usr/bin/fio", "fio_io [fio]"),
            ("[unknown]", "/usr/lib/libc.so.6", "[libc.so.6]"),
            ("[unknown]", "[unknown]", "[unknown]"),
            ("a;b", "/x", "a:b [x]"),
        ] {
            assert_eq!(compose(symbol, object), text);
        }
        for (text, symbol, module) in [
            ("raid5d [raid456]_[k]", "raid5d", "raid456"),
            ("lo_rw_aio.isra.0_[k]", "lo_rw_aio", ""),
            ("[libc.so.6]", "", "libc.so.6"),
            ("operator[]", "operator[]", ""),
            ("raid5_make_request", "raid5_make_request", ""),
            ("]", "]", ""),
        ] {
            assert_eq!(Frame::parse(text), Frame { symbol, module });
        }
    }

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
fio 31173/31182 [001] 24835.111631:   10101010 cpu-clock:pppH: \n\
\tffffffff821e8f67 raid5_make_request+0x14c ([raid456])\n\
\tffffffff821e8f60 submit_bio_noacct ([kernel.kallsyms])\n\
\t             d98 [unknown] ([unknown])\n\
\n";

    #[test]
    fn samples_are_read_as_perf_prints_them_with_a_period_or_without() {
        let (seen, unread) = read(ASKED_FOR);
        assert_eq!((seen.len(), unread), (2, 0));
        let (first, frames) = &seen[0];
        assert_eq!((first.comm.as_str(), first.cpu), ("lto cgu.07", Some(0)));
        assert_eq!(frames, &["llvm::A<(anonymous namespace)::B>::c [libLLVM.so.22.1]"]);
        let (second, frames) = &seen[1];
        assert_eq!((second.event.as_str(), second.cpu), ("cpu-clock:pppH", Some(1)));
        assert_eq!(
            frames,
            &["[unknown]", "submit_bio_noacct_[k]", "raid5_make_request [raid456]_[k]"]
        );
    }

    #[test]
    fn samples_without_empty_line_or_frames_are_told_apart_and_what_is_not_understood_is_counted() {
        let (seen, _) = read(
            "a 1 [000] 1.5: cycles: \n\nb 2 1.6: cycles: \n c 3 [001] 1.7: cycles:\n\
             swapper     0 [002] 1.8: 1 cycles: ",
        );
        let comms: Vec<&str> = seen.iter().map(|(header, _)| header.comm.as_str()).collect();
        assert_eq!(comms, ["a", "b", "c", "swapper"]);
        assert_eq!(seen[1].0.cpu, None);
        assert_eq!(read("# captured on: x\nhello\n\n\n"), (Vec::new(), 1));
        let (seen, _) =
            read("a 1 [000] 1.5: cycles: \n\t ffff f (/x (deleted))\n\t ffff g (inlined)\n\n");
        assert_eq!(seen[0].1, ["g", "f [x]"]);
    }
}
