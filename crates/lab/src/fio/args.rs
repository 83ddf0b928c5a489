//! fio's command line as a job file: `fio --name=a --rw=read ...`.
//!
//! What must stay true: options before the first `--name` are global, as in fio; options of the
//! program itself (`--output`) are kept apart from those of jobs.

use super::job::{JobFile, Section, Setting};
use crate::Refusal;
use crate::fio::value::is_among;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// Options of the program: `output-format`.
    pub program: Vec<Setting>,
    /// Jobs that stand on the command line itself; no sections if there are none.
    pub jobs: JobFile,
    pub files: Vec<String>,
}

/// Options of the program that take a value.
const PROGRAM_VALUES: &str = "\
    debug output output-format eta eta-newline eta-interval status-interval section \
    alloc-size max-jobs server daemonize client remote-config idle-prof inflate-log \
    trigger-file trigger trigger-timeout aux-path terse-version";

/// Options of the program that stand alone.
const PROGRAM_FLAGS: &str = "\
    parse-only merge-blktrace-only minimal append-terse version help cpuclock-test crctest \
    showcmd readonly warnings-fatal bandwidth-log";

/// What begins an option: fio takes one dash or two, and text processors make one long one of them.
const DASHES: [char; 3] = ['-', '\u{2013}', '\u{2014}'];

/// Options of jobs that stand alone.
const JOB_FLAGS: &str = "\
    time_based group_reporting stonewall wait_for_previous thread norandommap exitall \
    exitall_on_error new_group zero_buffers refill_buffers hipri sqthread_poll fixedbufs \
    registerfiles nonvectored uncached userspace_reap force_async file_append \
    unified_rw_reporting";

impl CommandLine {
    /// Read the arguments of fio; the name `fio` itself may come first.
    pub fn parse(arguments: &[String]) -> Result<CommandLine, Refusal> {
        let mut line = CommandLine::default();
        let skip = usize::from(
            arguments.first().is_some_and(|first| first == "fio" || first.ends_with("/fio")),
        );
        let mut rest = arguments.iter().skip(skip).peekable();
        while let Some(argument) = rest.next() {
            let option = argument.trim_start_matches(DASHES);
            if option.len() == argument.len() {
                line.files.push(argument.clone());
                continue;
            }
            let (key, value) = match option.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None if is_among(PROGRAM_FLAGS, option) || is_among(JOB_FLAGS, option) => {
                    (option, None)
                }
                None => match rest.next() {
                    Some(value) => (option, Some(value.clone())),
                    None => return Err(not_understood(argument, "its value is missing")),
                },
            };
            line.add(Setting { key: key.to_owned(), value, line: 0 });
        }
        Ok(line)
    }

    fn add(&mut self, setting: Setting) {
        let key = setting.key.as_str();
        if is_among(PROGRAM_VALUES, key) || is_among(PROGRAM_FLAGS, key) {
            self.program.push(setting);
            return;
        }
        let sections = &mut self.jobs.sections;
        if key == "name" {
            sections.push(Section::new(setting.value.as_deref().unwrap_or_default(), Vec::new()));
            return;
        }
        if sections.is_empty() {
            sections.push(Section::new("global", Vec::new()));
        }
        if let Some(section) = sections.last_mut() {
            section.settings.push(setting);
        }
    }
}

fn not_understood(argument: &str, what: &str) -> Refusal {
    Refusal::cannot_run("fio.arguments_not_understood", format!("fio argument {argument}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::CommandLine;

    fn parse(text: &str) -> CommandLine {
        CommandLine::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn options_before_the_first_name_are_global_and_later_ones_belong_to_their_job() {
        let line = parse(
            "fio --direct=1 --name a --rw=read --time_based --name=b --bs 4k --output-format=json \
             more.fio",
        );
        let jobs = line.jobs.jobs();
        assert_eq!(jobs.len(), 2);
        assert!(jobs[0].is_direct() && jobs[0].is_on("time_based"));
        assert!(jobs[1].is_direct() && !jobs[1].is_on("time_based"));
        assert_eq!(jobs[1].bytes("bs"), Some(4096));
        assert_eq!(line.files, ["more.fio"]);
        assert_eq!(line.program[0].key, "output-format");
    }

    /// As a talk printed it.
    #[test]
    fn one_dash_and_the_long_dashes_of_slides_are_understood() {
        let line = parse(
            "fio \u{2014}ioengine=libaio \u{2014}-name=test -filename=/dev/sdb -sync=1 -direct=1 \
             -bs=4k -iodepth=32 -rw=randwrite",
        );
        let job = &line.jobs.jobs()[0];
        assert_eq!(
            (job.engine(), job.get("iodepth"), job.mix()),
            ("libaio", Some("32"), "randwrite")
        );
        assert!(job.is_direct() && line.files.is_empty());
    }

    #[test]
    fn a_value_that_is_missing_is_said() {
        let refusal = CommandLine::parse(&["--name=a".to_owned(), "--rw".to_owned()]).unwrap_err();
        assert!(refusal.to_string().contains("--rw: its value is missing"));
        assert!(CommandLine::parse(&["-x".to_owned()]).is_err(), "its value is missing");
    }
}
