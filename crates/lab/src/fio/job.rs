//! Job files: sections, what jobs inherit from `[global]`, and writing them again.
//!
//! What must stay true: what was parsed and written again parses to the same; the later setting of
//! two wins, as in fio, but each further `filename` adds targets, those of `[global]` to the job's;
//! `${VARIABLES}` stay as they are, for fio to fill in.

use super::value;
use crate::Refusal;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A job file as it stands: sections in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobFile {
    pub sections: Vec<Section>,
}

/// `[name]` and what stands below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Section {
    pub name: String,
    /// Line of the file, from 1; 0 if it comes from elsewhere.
    pub line: usize,
    pub settings: Vec<Setting>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    pub key: String,
    pub value: Option<String>,
    /// Line of the file, from 1; 0 if it comes from elsewhere.
    pub line: usize,
}

/// A job with everything it inherits; keys by their first name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    pub name: String,
    /// Line of its section, from 1; 0 if it comes from elsewhere.
    pub line: usize,
    options: BTreeMap<String, (String, usize)>,
}

/// Options with two names, and the one the lab uses.
const ALIASES: [(&str, &str); 11] = [
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("blockalign", "ba"),
    ("readwrite", "rw"),
    ("io_limit", "io_size"),
    ("fill_fs", "fill_device"),
    ("wait_for_previous", "stonewall"),
    ("steadystate", "ss"),
    ("steadystate_duration", "ss_dur"),
    ("iodepth_batch_submit", "iodepth_batch"),
];

pub fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

impl Setting {
    /// `key=value` from nowhere in particular.
    pub fn new(key: &str, value: impl Into<String>) -> Setting {
        Setting { key: key.to_owned(), value: Some(value.into()), line: 0 }
    }
}

/// A path as the name of one file: fio parts names by colons.
pub fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(':', "\\:")
}

impl Section {
    pub fn new(name: &str, settings: Vec<Setting>) -> Section {
        Section { name: name.to_owned(), line: 0, settings }
    }

    /// Whether it is for the jobs below it: to fio, every name that begins so.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

impl JobFile {
    /// Give `key` another value wherever it is set.
    pub fn set(&mut self, key: &str, value: &str) {
        let settings = self.sections.iter_mut().flat_map(|section| &mut section.settings);
        for setting in settings.filter(|setting| setting.key == key) {
            setting.value = Some(value.to_owned());
        }
    }

    pub fn parse(text: &str) -> Result<JobFile, Refusal> {
        let mut sections: Vec<Section> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, _)) = rest.rsplit_once(']').filter(|(name, _)| !name.is_empty())
                else {
                    return Err(not_understood(number, "a section without a name or without ]"));
                };
                sections.push(Section { line: number, ..Section::new(name, Vec::new()) });
                continue;
            }
            // Whatever character comes next, fio follows it.
            if line.starts_with("include") {
                return Err(not_understood(number, "included files are not followed"));
            }
            let Some(section) = sections.last_mut() else {
                let what = "a setting before the first [section]: is it a job file?";
                return Err(not_understood(number, what));
            };
            section.settings.push(setting(line, number));
        }
        match sections.is_empty() {
            true => {
                Err(Refusal::cannot_run("fio.job_not_understood", "no [section] in this job file"))
            }
            false => Ok(JobFile { sections }),
        }
    }

    /// Its jobs, each with everything it inherits.
    pub fn jobs(&self) -> Vec<Job> {
        let mut inherited = BTreeMap::new();
        let mut jobs = Vec::new();
        for section in &self.sections {
            if section.is_global() {
                add(&mut inherited, &section.settings);
                continue;
            }
            let mut options = inherited.clone();
            add(&mut options, &section.settings);
            jobs.push(Job { name: section.name.clone(), line: section.line, options });
        }
        jobs
    }
}

impl fmt::Display for JobFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, section) in self.sections.iter().enumerate() {
            let gap = if at == 0 { "" } else { "\n" };
            writeln!(f, "{gap}[{}]", section.name)?;
            for setting in &section.settings {
                match &setting.value {
                    Some(value) => writeln!(f, "{}={value}", setting.key)?,
                    None => writeln!(f, "{}", setting.key)?,
                }
            }
        }
        Ok(())
    }
}

impl Job {
    /// A job from options as fio repeats them in its results.
    pub fn from_options<'a>(
        name: &str,
        options: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Job {
        let settings: Vec<_> =
            options.into_iter().map(|(key, value)| Setting::new(key, value.clone())).collect();
        let mut all = BTreeMap::new();
        add(&mut all, &settings);
        Job { name: name.to_owned(), line: 0, options: all }
    }

    /// The value of an option; the empty text if the key stands alone.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.options.get(canonical(key)).map(|(value, _)| value.as_str())
    }

    /// The line in which an option was set, from 1; that of the job if it was not.
    pub fn line_of(&self, key: &str) -> usize {
        self.options.get(canonical(key)).map_or(self.line, |(_, line)| *line)
    }

    pub fn is_on(&self, key: &str) -> bool {
        self.get(key).and_then(value::truth).unwrap_or(false)
    }

    pub fn bytes(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(value::bytes)
    }

    pub fn seconds(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(value::seconds)
    }

    /// An option that counts something, or what fio takes without it.
    pub fn count(&self, key: &str, default: u64) -> u64 {
        self.get(key).and_then(value::bytes).unwrap_or(default)
    }

    pub fn is_direct(&self) -> bool {
        match (self.get("direct"), self.get("buffered")) {
            (Some(_), _) => self.is_on("direct"),
            (None, Some(_)) => !self.is_on("buffered"),
            (None, None) => false,
        }
    }

    /// The I/O engine; fio takes `psync` on Linux.
    pub fn engine(&self) -> &str {
        self.get("ioengine").unwrap_or("psync")
    }

    /// fio's `rw` without its modifiers; fio takes `read`.
    pub fn mix(&self) -> &str {
        let rw = self.get("rw").and_then(|rw| rw.split(':').next());
        rw.filter(|rw| !rw.is_empty()).unwrap_or("read")
    }

    pub fn reads(&self) -> bool {
        matches!(self.mix(), "read" | "randread" | "rw" | "readwrite" | "randrw")
    }

    pub fn writes(&self) -> bool {
        !matches!(self.mix(), "read" | "randread")
    }

    pub fn is_sequential(&self) -> bool {
        !self.mix().contains("rand")
    }

    /// Block sizes of reads, writes and trims: `bs=4k` or `bs=4k,8k`, `bsrange`, `bssplit`; fio
    /// takes 4096.
    pub fn block_bytes(&self) -> Vec<u64> {
        let text = match (self.get("bs"), self.get("bsrange"), self.get("bssplit")) {
            (_, _, Some(split)) => {
                split.split([':', ',']).filter_map(|part| part.split('/').next()).collect()
            }
            (_, Some(range), _) => range.split(['-', ',']).collect(),
            (Some(plain), ..) => plain.split(',').collect(),
            (None, None, None) => vec!["4096"],
        };
        text.into_iter().filter_map(value::bytes).collect()
    }

    /// Files and devices named by `filename`, separated by `:` (`\:` is part of a name).
    pub fn filenames(&self) -> Vec<String> {
        let Some(text) = self.get("filename") else { return Vec::new() };
        let (mut names, mut name, mut chars) = (Vec::new(), String::new(), text.chars());
        while let Some(c) = chars.next() {
            match c {
                ':' => names.push(std::mem::take(&mut name)),
                '\\' => name.extend(chars.next()),
                c => name.push(c),
            }
        }
        names.push(name);
        names.retain(|name| !name.is_empty());
        names
    }
}

fn setting(text: &str, line: usize) -> Setting {
    match text.split_once('=') {
        Some((key, value)) => Setting { line, ..Setting::new(key.trim(), value.trim()) },
        None => Setting { key: text.to_owned(), value: None, line },
    }
}

fn add(options: &mut BTreeMap<String, (String, usize)>, settings: &[Setting]) {
    for setting in settings {
        let key = canonical(&setting.key);
        let own = setting.value.clone().unwrap_or_default();
        let value = match options.get(key) {
            // fio adds targets to those that it has.
            Some((before, _)) if key == "filename" => format!("{before}:{own}"),
            _ => own,
        };
        options.insert(key.to_owned(), (value, setting.line));
    }
}

fn not_understood(line: usize, what: &str) -> Refusal {
    Refusal::cannot_run("fio.job_not_understood", format!("job file, line {line}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::{JobFile, Section, Setting};
    use proptest::prelude::*;

    const TEXT: &str = "; a comment\n[global]\nioengine=libaio\nblocksize=128k\ndirect=1\n\n[one]\n\
                        rw=write\ntime_based\n\
                        [global]\niodepth = 8\n[two]\nbuffered=1\ndirect=0\n\
                        filename=/dev/a:/dev/b\\:c\n";

    #[test]
    fn jobs_inherit_what_stands_before_them_and_the_later_setting_wins() {
        let jobs = JobFile::parse(TEXT).unwrap().jobs();
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        let (one, two) = (&jobs[0], &jobs[1]);
        assert_eq!((one.bytes("bs"), one.get("iodepth")), (Some(131_072), None));
        assert!(
            one.is_direct()
                && one.is_on("time_based")
                && one.writes()
                && !one.reads()
                && one.is_sequential()
        );
        assert_eq!(one.line_of("bs"), 4);
        assert_eq!((two.count("iodepth", 1), two.is_direct(), two.mix()), (8, false, "read"));
        assert_eq!(two.filenames(), ["/dev/a", "/dev/b:c"]);
    }

    /// As fio 3.33 does it: the job below writes to all four.
    #[test]
    fn each_further_filename_adds_targets_also_to_those_of_global() {
        let text = "[globals]\nfilename=/dev/a\n[one]\nrw=write\nfilename=/dev/b:/dev/c\n\
                    filename=/dev/d\n";
        let jobs = JobFile::parse(text).unwrap().jobs();
        assert_eq!(jobs.len(), 1, "every section whose name begins with global is global");
        assert_eq!(jobs[0].filenames(), ["/dev/a", "/dev/b", "/dev/c", "/dev/d"]);
    }

    #[test]
    fn what_is_no_job_file_is_refused_with_its_line() {
        for (text, what) in [
            ("rw=read\n", "line 1: a setting before"),
            ("[a]\n[b\n", "line 2: a section without"),
            ("[]\n", "line 1"),
            ("[a]\ninclude other.fio\n", "line 2: included files"),
            ("[a]\ninclude\tother.fio\n", "line 2: included files"),
            ("# nothing\n", "no [section]"),
        ] {
            let refusal = JobFile::parse(text).unwrap_err();
            assert!(refusal.message.contains(what), "{text:?}: {refusal}");
        }
    }

    #[test]
    fn block_sizes_of_all_three_notations_are_seen() {
        let sizes =
            |line: &str| JobFile::parse(&format!("[a]\n{line}\n")).unwrap().jobs()[0].block_bytes();
        assert_eq!(sizes(""), [4096]);
        assert_eq!(sizes("bs=4k,8k"), [4096, 8192]);
        assert_eq!(sizes("bsrange=1k-4k"), [1024, 4096]);
        assert_eq!(sizes("bssplit=4k/60:2300/40"), [4096, 2300]);
    }

    fn written() -> impl Strategy<Value = JobFile> {
        let setting = ("[a-z_]{1,9}", prop::option::of("[a-z0-9/:%=.-]{0,12}"))
            .prop_map(|(key, value)| Setting { key, value, line: 0 });
        let section = ("[a-zA-Z0-9 ._-]{1,12}", prop::collection::vec(setting, 0..6));
        prop::collection::vec(section, 1..6).prop_map(|sections| JobFile {
            sections: sections
                .into_iter()
                .map(|(name, settings)| Section::new(&name, settings))
                .collect(),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(file in written()) {
            let mut read = JobFile::parse(&file.to_string()).unwrap();
            for section in &mut read.sections {
                section.line = 0;
                section.settings.iter_mut().for_each(|setting| setting.line = 0);
            }
            prop_assert_eq!(read, file);
        }
    }
}
