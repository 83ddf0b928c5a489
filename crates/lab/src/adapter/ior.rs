//! IOR, the parallel file system benchmark, as a second opinion after fio: what is started, and
//! what its table says.
//!
//! What must stay true: it works through the page cache, so its writes end with fsync and its reads
//! begin after the caches were dropped; it prints means over whole phases and no histogram, so no
//! percentile is made of it.

use crate::record::Direction;
use crate::refusal::Refusal;
use std::path::{Path, PathBuf};

/// Bytes of one transfer.
pub const TRANSFER: u64 = 1 << 20;

/// One phase of IOR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Every task writes a file of its own and syncs it.
    Write,
    /// Every task reads it.
    Read,
}

impl Phase {
    /// As IOR's table calls it, and fio's `rw`.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Read => "read",
        }
    }
}

/// The command of a phase: a file for each task (`-F`), `bytes` each, in transfers of 1 MiB, kept
/// for the next phase (`-k`).
pub fn command(phase: Phase, tasks: u32, bytes: u64, folder: &Path) -> Vec<String> {
    let file: PathBuf = folder.join("ior");
    let (tasks_word, bytes_word) = (tasks.to_string(), bytes.to_string());
    let mut words: Vec<&str> = match tasks {
        1 => Vec::new(),
        _ => vec!["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", &tasks_word],
    };
    words.extend(["ior", "-a", "POSIX", "-F", "-k", "-t", "1m", "-b", &bytes_word]);
    words.extend(match phase {
        Phase::Write => ["-w", "-e"].as_slice(),
        Phase::Read => &["-r"],
    });
    let mut argv: Vec<String> = words.into_iter().map(str::to_owned).collect();
    argv.extend(["-o".to_owned(), file.display().to_string()]);
    argv
}

/// What IOR's table says about a phase: MiB a second and seconds in all, the mean of its
/// repetitions. Columns are found by their names: they differ by version.
///
/// # Errors
/// There is no table, or no line of that phase in it.
pub fn parse(text: &str, phase: Phase) -> Result<(f64, f64), Refusal> {
    let unreadable = |what: &str| {
        let said = format!("ior: {what}; its output is kept");
        Refusal::cannot_run("ior.unreadable", said, "see whether it ran to its end")
    };
    let is_head = |line: &&str| line.starts_with("access ") && line.contains("bw(MiB/s)");
    let head = text.lines().find(is_head).ok_or_else(|| unreadable("no table"))?;
    let column = |name: &str| head.split_whitespace().position(|word| word == name);
    let (Some(rate), Some(total)) = (column("bw(MiB/s)"), column("total(s)")) else {
        return Err(unreadable("a table without bw(MiB/s) or total(s)"));
    };
    let number = |words: &[&str], at: usize| -> Option<f64> {
        words.get(at)?.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
    };
    let rows: Vec<(f64, f64)> = text
        .lines()
        .skip_while(|line| !is_head(line))
        .take_while(|line| !line.starts_with("Max "))
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&phase.word()))
        .filter_map(|words| Some((number(&words, rate)?, number(&words, total)?)))
        .collect();
    let count = crate::metrics::latency::to_f64(u64::try_from(rows.len()).unwrap_or(0));
    if rows.is_empty() {
        return Err(unreadable(&format!("no line of the phase {}", phase.word())));
    }
    let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / count;
    Ok((mean(|row| row.0), mean(|row| row.1)))
}

/// What a phase moved, from its rate and its time.
pub fn direction((mib_per_s, seconds): (f64, f64)) -> Direction {
    let bytes_per_s = mib_per_s * 1_048_576.0;
    let iops = mib_per_s;
    Direction {
        bytes: whole(bytes_per_s * seconds),
        ios: whole(iops * seconds),
        bytes_per_s,
        iops,
        ..Direction::default()
    }
}

fn whole(value: f64) -> u64 {
    format!("{value:.0}").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Phase, command, direction, parse};
    use std::path::Path;

    /// Written by hand after what versions 3.4 and 4.0 print; no IOR ran here.
    const NEW: &str = include_str!("../../tests/data/ior-4.0.txt");
    /// Before 3.3 there were fewer columns.
    const OLD: &str = include_str!("../../tests/data/ior-3.2.txt");

    #[test]
    fn columns_are_found_by_their_names_in_old_and_new_tables() {
        assert_eq!(parse(NEW, Phase::Write).unwrap(), (1024.0, 8.0));
        assert_eq!(parse(NEW, Phase::Read).unwrap(), (2048.0, 4.0));
        assert_eq!(parse(OLD, Phase::Write).unwrap(), (600.0, 3.5), "the mean of both repetitions");
        let moved = direction(parse(NEW, Phase::Write).unwrap());
        assert_eq!((moved.bytes, moved.ios), (8 << 30, 8192));
    }

    #[test]
    fn what_has_no_table_or_not_that_phase_is_refused() {
        for (text, phase) in
            [("", Phase::Read), (OLD, Phase::Read), ("ior: no space", Phase::Write)]
        {
            assert_eq!(parse(text, phase).unwrap_err().code, "ior.unreadable");
        }
        let broken = NEW.replace("1024.00    1030.10", "inf        1030.10");
        assert!(parse(&broken, Phase::Write).is_err());
    }

    #[test]
    fn one_task_needs_no_launcher_and_writes_are_synced() {
        let words = |phase, tasks| command(phase, tasks, 8 << 30, Path::new("/mnt/x")).join(" ");
        assert_eq!(
            words(Phase::Write, 1),
            "ior -a POSIX -F -k -t 1m -b 8589934592 -w -e -o /mnt/x/ior"
        );
        let many = words(Phase::Read, 4);
        assert!(many.starts_with("mpirun") && many.contains("-n 4 ior") && many.contains(" -r "));
    }
}
