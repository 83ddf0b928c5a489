//! Lines of a file as bytes, with a bound on their length, and files cut into ranges for several
//! threads.
//!
//! What must stay true: every line is given once, whichever way a file is cut; a line without end
//! costs no memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Longest line that is looked at, bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Buffer of a reader, bytes.
const BUFFER_BYTES: usize = 1 << 18;
/// Pieces of a file that one thread takes at a time, bytes.
const RANGE_BYTES: u64 = 32 << 20;

/// A piece of a file: the lines that begin in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The file.
    pub path: PathBuf,
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

impl Range {
    /// Cut a file into ranges.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn cut(path: &Path) -> io::Result<Vec<Range>> {
        let bytes = std::fs::metadata(path)?.len();
        let range =
            |start| Range { path: path.to_owned(), start, end: (start + RANGE_BYTES).min(bytes) };
        Ok((0..bytes.div_ceil(RANGE_BYTES)).map(|at| range(at * RANGE_BYTES)).collect())
    }

    /// Give each line that begins in the range to `each`, without its end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lines(&self, each: impl FnMut(&[u8])) -> io::Result<Skipped> {
        let mut file = File::open(&self.path)?;
        // A line that began before is the range before's: start one byte earlier and pass its rest
        // over.
        file.seek(SeekFrom::Start(self.start.saturating_sub(1)))?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut at = self.start;
        if self.start > 0 {
            at = self.start - 1 + pass_over_line(&mut reader)?;
        }
        lines_until(&mut reader, self.end.saturating_sub(at), each)
    }
}

/// Lines that were too long to be looked at.
pub type Skipped = u64;

/// Give each line of `reader` to `each`, without its end.
///
/// # Errors
/// It cannot be read.
pub fn lines(reader: &mut impl BufRead, each: impl FnMut(&[u8])) -> io::Result<Skipped> {
    lines_until(reader, u64::MAX, each)
}

/// Lines that begin in the next `bytes` bytes.
fn lines_until(
    reader: &mut impl BufRead,
    bytes: u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<Skipped> {
    let (mut line, mut read, mut skipped) = (Vec::new(), 0, 0);
    while read < bytes {
        line.clear();
        let got = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if got == 0 {
            break;
        }
        read += u64::try_from(got).unwrap_or(u64::MAX);
        match line.strip_suffix(b"\n") {
            Some(whole) => each(whole),
            None if line.len() < usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX) => {
                each(&line)
            }
            None => {
                skipped += 1;
                read += pass_over_line(reader)?;
            }
        }
    }
    Ok(skipped)
}

/// Read up to and with the next line end, keeping nothing. Bytes read.
fn pass_over_line(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut passed = 0;
    loop {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        let is_done = end.is_some() || buffer.is_empty();
        reader.consume(used);
        passed += u64::try_from(used).unwrap_or(u64::MAX);
        if is_done {
            return Ok(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Range, lines};
    use proptest::prelude::*;
    use std::io::{BufReader, Write};

    #[test]
    fn a_line_without_end_is_passed_over_and_counted() {
        let mut text = b"a 1\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 3 << 20));
        text.extend(b"\nb 2");
        let mut seen = Vec::new();
        let skipped =
            lines(&mut BufReader::new(&text[..]), |line| seen.push(line.to_vec())).expect("read");
        assert_eq!((seen, skipped), (vec![b"a 1".to_vec(), b"b 2".to_vec()], 1));
    }

    proptest! {
        #[test]
        fn every_line_is_in_one_range_wherever_a_file_is_cut(
            text in prop::collection::vec(prop::collection::vec(97u8..123, 0..9), 0..20),
            cut in 0u64..100,
        ) {
            let mut file = tempfile::NamedTempFile::new().expect("file");
            let text = text.join(&b'\n');
            file.write_all(&text).expect("written");
            let bytes = u64::try_from(text.len()).expect("small");
            let cut = cut.min(bytes);
            let mut seen = Vec::new();
            for (start, end) in [(0, cut), (cut, bytes)] {
                let range = Range { path: file.path().to_owned(), start, end };
                range.lines(|line| seen.push(line.to_vec())).expect("read");
            }
            let whole: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n')
                .map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()).collect();
            prop_assert_eq!(seen, whole);
        }
    }
}
