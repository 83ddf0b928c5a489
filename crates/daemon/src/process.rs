//! Names this process as no other one of this boot, and tells whether another process lives: for
//! heartbeats.
//!
//! What must stay true: a process counts as ended only if that is certain. Otherwise its state is
//! unknown, and a start watches.

use ashlar_engine::ProcessState;
use ashlar_ondisk::{ProcessName, tag_of};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The name of this process; `None` if /proc does not tell.
pub fn own() -> Option<ProcessName> {
    let id = std::process::id();
    Some(ProcessName { id, started: Told::of(id)?.started, namespaces: namespaces()? })
}

/// Whether the process still lives; it ran on this boot of this host.
pub fn look(process: ProcessName) -> ProcessState {
    // In other namespaces its number is another process, and its start another time.
    if namespaces() != Some(process.namespaces) {
        return ProcessState::Unknown;
    }
    let Some(id) = i32::try_from(process.id).ok().and_then(Pid::from_raw) else {
        return ProcessState::Unknown;
    };
    // The kernel answers also where /proc shows nothing of other users' processes.
    match test_kill_process(id) {
        Err(Errno::SRCH) => ProcessState::Ended,
        Ok(()) | Err(Errno::PERM) => match Told::of(process.id) {
            None => ProcessState::Unknown,
            Some(told) if told.started != process.started || told.is_dead() => ProcessState::Ended,
            Some(_) => ProcessState::Lives,
        },
        Err(_) => ProcessState::Unknown,
    }
}

/// What the kernel tells of a process.
struct Told {
    state: char,
    threads: u64,
    /// Ticks since boot.
    started: u64,
}

impl Told {
    fn of(id: u32) -> Option<Told> {
        Told::in_text(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// The name in parentheses may hold blanks and parentheses itself.
    fn in_text(text: &str) -> Option<Told> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        // The state is the third field; threads are the 20th, the start is the 22nd.
        let threads = fields.nth(16)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        Some(Told { state, threads, started })
    }

    /// Nobody has waited for it yet. With more threads only the first of them has ended.
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

fn namespaces() -> Option<u32> {
    let inode = |kind| fs::metadata(format!("/proc/self/ns/{kind}")).ok().map(|about| about.ino());
    // A kernel without time namespaces has one time.
    Some(tag_of([inode("pid")?, inode("time").unwrap_or(0)]))
}

#[cfg(test)]
mod tests {
    use super::{Told, look, own};
    use ashlar_engine::ProcessState;
    use ashlar_ondisk::ProcessName;
    use std::process::{Command, Stdio};

    fn sleeper() -> (std::process::Child, ProcessName) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is everywhere");
        let started = Told::of(child.id()).expect("it is there").started;
        let name = ProcessName { id: child.id(), started, ..own().expect("it is told") };
        (child, name)
    }

    #[test]
    fn a_process_lives_until_it_has_ended_whether_or_not_somebody_waited_for_it() {
        let (mut child, name) = sleeper();
        assert_eq!(look(name), ProcessState::Lives);
        child.kill().expect("it ran");
        while Told::of(name.id).is_some_and(|told| !told.is_dead()) {
            std::thread::yield_now();
        }
        assert_eq!(look(name), ProcessState::Ended, "a zombie starts nothing any more");
        child.wait().expect("it ends");
        assert_eq!(look(name), ProcessState::Ended);
    }

    #[test]
    fn a_number_that_was_used_again_is_another_process_and_other_namespaces_are_unknown() {
        let (mut child, name) = sleeper();
        let earlier = ProcessName { started: name.started.wrapping_sub(1), ..name };
        assert_eq!(look(earlier), ProcessState::Ended);
        let elsewhere = ProcessName { namespaces: name.namespaces ^ 2, ..name };
        assert_eq!(look(elsewhere), ProcessState::Unknown);
        child.kill().expect("it ran");
        child.wait().expect("it ends");
    }

    #[test]
    fn names_with_parentheses_and_blanks_do_not_shift_the_fields() {
        let text =
            "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 5 0 4711 1 1 18446744073709551615";
        let told = Told::in_text(text).expect("it is told");
        assert_eq!((told.state, told.threads, told.started), ('S', 5, 4711));
    }
}
