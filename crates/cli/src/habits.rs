//! Words that users of mdadm, ZFS and xiRAID type, and what they are called here.
//!
//! What must stay true: none of these words is obeyed. A foreign word is refused, with ours beside
//! it. Every command and flag that is named here exists (a test looks).

/// Words of others, and what to type here.
type Habit = (&'static [&'static str], &'static str);

/// Commands that others have.
const COMMANDS: [Habit; 18] = [
    (
        &["list", "show", "detail", "state", "health", "get", "info"],
        "'ashlar status --members' shows all",
    ),
    (&["iostat", "iotop"], "'ashlar top' shows what goes on"),
    (
        &["import", "start", "activate", "scan", "restore"],
        "'ashlar assemble DEVICES' puts an array together",
    ),
    (&["export", "unload", "deactivate"], "'ashlar stop ARRAY' lets its devices go"),
    (
        &["delete", "zero-superblock", "labelclear"],
        "'ashlar stop ARRAY' keeps its data; 'ashlar destroy ARRAY' ends it, 'ashlar wipe DEVICE' \
         clears a device",
    ),
    (
        &["add", "sparepool"],
        "'ashlar spare add DEVICE' for a new device, 'ashlar re-add ARRAY DEVICE' for one that was \
         away",
    ),
    (
        &["remove", "offline", "set-faulty"],
        "'ashlar fail ARRAY MEMBER' takes a member out, 'ashlar spare remove DEVICE' a spare",
    ),
    (&["online", "clear"], "'ashlar re-add ARRAY DEVICE' takes a member back"),
    (
        &["reshape", "expand", "resize"],
        "'ashlar grow ARRAY DEVICE...' for declustered arrays; others keep their geometry",
    ),
    (
        &["resilver", "recover", "recon", "recovery"],
        "rebuilds start by themselves; 'ashlar rebuild pause ARRAY' and resume",
    ),
    (
        &["init", "resync"],
        "needs no command: a new array is usable at once, and a resync starts by itself",
    ),
    (&["check", "verify", "scrubbing"], "'ashlar scrub ARRAY' reads and compares everything"),
    (&["query", "dump", "zdb"], "'ashlar examine DEVICE' prints what a device says"),
    (&["monitor", "history", "log", "eventlog"], "'ashlar events --follow'"),
    (
        &["mount", "share", "nbd"],
        "'ashlar attach ARRAY' makes a block device, 'ashlar serve --nbd ADDRESS' exports over NBD",
    ),
    (&["unmount", "umount"], "'ashlar detach ARRAY'"),
    (
        &["settings", "config", "modify", "tune"],
        "'ashlar set ARRAY' changes tunables; others are for 'ashlar serve --config FILE'",
    ),
    (
        &["raid", "pool", "zpool", "mdadm", "xicli", "drive", "array"],
        "leave it out: the command comes first, as in 'ashlar create'",
    ),
];

/// Flags that others have.
const FLAGS: [Habit; 17] = [
    (&["--name", "-N"], "the name comes first: 'ashlar create NAME --level LEVEL DEVICES'"),
    (&["-C", "--create"], "'ashlar create'"),
    (&["-A", "--assemble"], "'ashlar assemble'"),
    (&["-S", "--stop"], "'ashlar stop'"),
    (&["-D", "--detail", "-Q", "--query"], "'ashlar status --members'"),
    (&["-E", "--examine"], "'ashlar examine'"),
    (&["-F", "--monitor"], "'ashlar events --follow'"),
    (
        &["--force", "-f", "--run", "-R"],
        "nothing is forced as a whole; each risk has an option of its own, as --destroy",
    ),
    (&["--assume-clean"], "leave it out: a new array needs no initial sync"),
    (
        &["--bitmap", "--consistency-policy", "--write-journal", "-k"],
        "--policy log, bitmap or none says how it stays consistent",
    ),
    (&["--metadata", "-e"], "leave it out: there is one format"),
    (&["--layout", "-p"], "leave it out: levels with parity rotate left-symmetric"),
    (&["--spare-devices", "-x"], "name each spare: --spare DEVICE"),
    (
        &["-c", "--stripe-size", "--strip_size", "--raidz", "-ss"],
        "--strip-size SIZE, as in --strip-size 64K",
    ),
    (&["--all", "-a"], "name the array; 'ashlar status' lists them"),
    (&["-o"], "each setting has an option of its own, as --block-size and --checksums"),
    (
        &["--add", "--remove", "--fail", "--re-add", "--replace"],
        "these are commands: 'ashlar spare add', 'ashlar fail', 'ashlar re-add', 'ashlar replace'",
    ),
];

/// Levels that others have.
const LEVELS: [Habit; 6] = [
    (&["raid-1"], "a mirror is level 1"),
    (
        &["raidz", "raidz1", "z1", "raid-5", "4", "raid4", "draid", "draid1"],
        "one parity is level 5",
    ),
    (&["raidz2", "z2", "raid-6", "draid2"], "two parities are level 6"),
    (&["raidz3", "z3", "draid3"], "three parities are level 7.3"),
    (&["linear", "stripe", "striped", "concat", "raid-0"], "without redundancy it is level 0"),
    (&["01", "0+1", "mirrors"], "mirrors side by side are level 10"),
];

/// What our program calls it, for the complaint about a foreign word.
pub fn ours(complaint: &str) -> Option<&'static str> {
    let word = complaint.split('\'').nth(1)?;
    let (table, is_flag): (&[Habit], bool) = if complaint.starts_with("unrecognized subcommand") {
        (&COMMANDS, false)
    } else if complaint.starts_with("unexpected argument") {
        (&FLAGS, true)
    } else if complaint.contains("for '--level") {
        (&LEVELS, false)
    } else {
        return None;
    };
    // A flag of one letter means something else as a capital.
    let is_it = |theirs: &&str| {
        if is_flag { *theirs == word } else { theirs.eq_ignore_ascii_case(word) }
    };
    table.iter().find(|(words, _)| words.iter().any(is_it)).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, FLAGS, LEVELS, ours};
    use crate::args::Args;
    use ashlar_layout::Level;
    use clap::{CommandFactory, Parser};

    #[test]
    fn what_is_explained_is_not_ours_and_is_explained_once() {
        let root = Args::command();
        let all: Vec<&str> = [&COMMANDS[..], &FLAGS[..], &LEVELS[..]]
            .concat()
            .into_iter()
            .flat_map(|(words, _)| words.to_vec())
            .collect();
        for (at, word) in all.iter().enumerate() {
            assert!(!all[..at].contains(word), "{word} is explained twice");
        }
        for word in COMMANDS.iter().flat_map(|(words, _)| words.iter()) {
            assert!(root.find_subcommand(word).is_none(), "{word} is a command of ours");
            let error = Args::try_parse_from(["ashlar", word]).expect_err("not ours").to_string();
            let complaint = error.strip_prefix("error: ").unwrap_or(&error);
            assert!(ours(complaint).is_some(), "{complaint}");
        }
        for word in LEVELS.iter().flat_map(|(words, _)| words.iter()) {
            assert!(word.parse::<Level>().is_err(), "{word} is a level of ours");
        }
    }

    #[test]
    fn flags_and_levels_of_others_are_explained() {
        for (typed, says) in [
            (&["create", "t", "--assume-clean", "-l", "5", "a"] as &[&str], "no initial sync"),
            (&["create", "t", "-x", "1", "-l", "5", "a"], "--spare DEVICE"),
            (&["create", "t", "-l", "raidz2", "a"], "level 6"),
            (&["create", "t", "-l", "raid-1", "a"], "level 1"),
            (&["-D", "tank"], "status --members"),
            (&["stop", "--all"], "name the array"),
        ] {
            let typed = ["ashlar"].iter().chain(typed);
            let error = Args::try_parse_from(typed.clone()).expect_err("not ours").to_string();
            let complaint = error.strip_prefix("error: ").unwrap_or(&error);
            let hint = ours(complaint);
            assert!(hint.is_some_and(|hint| hint.contains(says)), "{complaint}: {hint:?}");
        }
        assert_eq!(ours("unexpected argument '--levl' found"), None);
    }
}
