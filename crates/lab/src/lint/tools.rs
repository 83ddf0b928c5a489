//! Programs that people take for benchmarks of storage and that are none: why, and what
//! to run instead.
//!
//! What must stay true: a program that is not in the list is not judged; fio itself never is.

use crate::Refusal;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// `rules/programs.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    starters: Vec<String>,
    benchmarks: Vec<String>,
    watchers: BTreeMap<String, String>,
    none: BTreeMap<String, String>,
}

static PROGRAMS: LazyLock<Programs> =
    LazyLock::new(|| toml::from_str(include_str!("../../rules/programs.toml")).unwrap_or_default());

impl Programs {
    fn has(&self, name: &String) -> bool {
        let is_named = self.watchers.contains_key(name) || self.none.contains_key(name);
        is_named || self.benchmarks.contains(name)
    }
}

fn program(command: &[String]) -> String {
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let is_known = |name: &String| name == "fio" || PROGRAMS.has(name);
    let first = command.first().map(name).unwrap_or_default();
    match PROGRAMS.starters.contains(&first) {
        true => command.iter().map(name).find(is_known).unwrap_or(first),
        false => first,
    }
}

/// Refuse to lint a program that measures something else than storage, or that is not fio.
pub fn refuse(command: &[String]) -> Result<(), Refusal> {
    let program = program(command);
    if PROGRAMS.benchmarks.contains(&program.to_ascii_lowercase()) {
        let said = format!("this is a command line of {program}, and the rules are about fio");
        let hint = "measure the same blocks, jobs and depth with fio, and lint that";
        return Err(Refusal::new("lint.not_fio", said).hint(hint));
    }
    if let Some(verb) = PROGRAMS.watchers.get(&program) {
        let said = format!("{program} watches a load and makes none, so there is nothing to lint");
        return Err(
            Refusal::new("lint.not_fio", said).hint(format!("for its purpose there is `{verb}`"))
        );
    }
    let has = |begin: &str| command.iter().any(|word| word.starts_with(begin));
    if program == "hdparm" && has("-W") {
        let said = "hdparm -W switches a drive's write cache and measures nothing";
        let hint = "`lab compare --set-a` and `--set-b` measure with the cache off and on";
        return Err(Refusal::new("lint.no_benchmark", said).hint(hint));
    }
    let Some(why) = PROGRAMS.none.get(&program) else { return Ok(()) };
    let reads =
        program == "dd" && has("if=/dev/") && !has("if=/dev/zero") && !has("if=/dev/urandom");
    let (load, why) = match reads {
        true => ("--rw=read --bs=1m", "one request at a time, and a mean without latency"),
        false => ("--rw=randread --bs=4k --randrepeat=0", why.as_str()),
    };
    let hint = format!(
        "for example: lab lint -- fio --name=a --filename=/dev/X {load} --direct=1 --iodepth=32 \
         --ioengine=io_uring --time_based --runtime=60 --ramp_time=5; \
         all drives at once are the stage `raw.all` of `lab run`"
    );
    Err(Refusal::new("lint.no_benchmark", format!("{program} is no benchmark of storage: {why}"))
        .hint(hint))
}

#[cfg(test)]
mod tests {
    use super::refuse;

    fn refused(line: &str) -> (String, String) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        refuse(&words).map_or_else(
            |it| (it.code, format!("{}; {}", it.message, it.hint)),
            |()| Default::default(),
        )
    }

    #[test]
    fn what_is_no_benchmark_is_refused_by_name_with_what_does_the_same_and_fio_is_not() {
        for (line, said) in [
            ("dd if=/dev/zero of=/dev/sda", "mostly zeros"),
            ("dd if=/dev/sda of=/dev/null bs=1M", "--rw=read --bs=1m"),
            ("/usr/sbin/hdparm -t /dev/sda", "fast edge"),
            ("hdparm -W 0 /dev/sdb", "`lab compare --set-a`"),
            ("rados bench 60 write", "fio --name"),
        ] {
            let (code, told) = refused(line);
            assert!(code == "lint.no_benchmark" && told.contains(said), "{line}: {told}");
        }
        for line in ["fio --name=dd", "", "sudo numactl -N 0 fio --name=ior"] {
            assert_eq!(refused(line).0, "", "{line}");
        }
    }

    #[test]
    fn another_benchmark_is_called_by_its_name() {
        for (line, said) in [
            ("ior -F -w -r -b 8g -t 1m -e", "of ior"),
            ("mpirun -n 4 /usr/bin/ior -F -w", "of ior"),
            ("vdbench -f x", "of vdbench"),
            ("perf record -e block:*", "lab cpu"),
            ("blktrace -d /dev/sda", "lab trace"),
        ] {
            let (code, told) = refused(line);
            assert!(code == "lint.not_fio" && told.contains(said), "{line}: {told}");
        }
    }
}
