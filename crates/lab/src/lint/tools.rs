//! Programs that people take for benchmarks of storage and that are none (item 112): why, and what
//! to run instead.
//!
//! What must stay true: a program that is not in the list is not judged; fio itself never is.

use crate::Refusal;

/// A program, and what its figure is of.
const TOOLS: [(&str, &str); 7] = [
    (
        "dd",
        "one request at a time, through the page cache unless told otherwise, mostly zeros, \
         and a mean without latency",
    ),
    ("cp", "two devices and the page cache at once, and it ends before anything is written"),
    ("cat", "one request at a time through the page cache and a pipe"),
    ("rsync", "it computes and compares beside its I/O"),
    (
        "hdparm",
        "three seconds of sequential reads at the fast edge of a drive (-t), or of memory (-T)",
    ),
    ("rados", "objects that it makes itself, written once and read from caches that hold them"),
    ("time", "a whole program's time, in which its start, its caches and its I/O are one number"),
];

/// Refuse to lint a program that measures something else than storage.
///
/// # Errors
/// If it is one of them: with the reason.
pub fn refuse(command: &[String]) -> Result<(), Refusal> {
    let first = command.first().map_or("", String::as_str);
    let program = first.rsplit('/').next().unwrap_or(first);
    let Some((name, why)) = TOOLS.iter().find(|(name, _)| *name == program) else { return Ok(()) };
    let hint = "for example: lab lint -- fio --name=a --filename=/dev/X --rw=randread --bs=4k \
                --direct=1 --iodepth=32 --ioengine=io_uring --time_based --runtime=60";
    Err(Refusal::new(
        "lint.no_benchmark",
        format!("{name} is no benchmark of storage: {why}"),
        hint,
    ))
}

#[cfg(test)]
mod tests {
    use super::refuse;

    #[test]
    fn what_is_no_benchmark_is_refused_by_name_and_fio_is_not() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in
            ["dd if=/dev/zero of=/x", "/usr/sbin/hdparm -t /dev/sda", "rados bench 60 write"]
        {
            let refusal = refuse(&words(line)).expect_err(line);
            assert_eq!(
                (refusal.code.as_str(), refusal.exit_code()),
                ("lint.no_benchmark", 1),
                "{line}"
            );
            assert!(refusal.hint.contains("fio --name"), "{refusal:?}");
        }
        assert!(refuse(&words("fio --name=dd")).is_ok() && refuse(&[]).is_ok());
    }
}
