//! Every page of the documents by task is tried as it stands, in a machine with a clean Debian.
//!
//! The machine runs the commands of the blocks of each page, in order. `pages_guest.sh` looks
//! whether what the page promises has come. A page that is changed is tried as changed.
//!
//! What must stay true: a command that is not tried, or not as the page has it, is in [`OTHERWISE`]
//! with the reason, and is told. What stands there and no page has fails the test.

use crate::guest::{Talk, alone, skipped};
use crate::machine::{DebianMachine, Setting};
use crate::page::{PageCommand, commands};
use How::{After, Endless, LeftOut, Means};

const INSTALL: &str = "install";
const FIRST: &str = "first-array";
const REPLACE: &str = "replace-a-drive";
const RECOVER: &str = "recover";
const UPGRADE: &str = "upgrade";

/// All of them.
const PAGES: [&str; 7] = [INSTALL, FIRST, REPLACE, "monitor", UPGRADE, RECOVER, "tuning"];

/// What drives are called on the pages and in the machine, whose first is its own.
const NAMES: [&str; 2] = ["/dev/sd", "/dev/vd"];

/// Six members and two new drives: `b` to `i` of the pages.
const DRIVES: [&str; 8] = ["b", "c", "d", "e", "f", "g", "h", "i"];
/// Their size. A file system on four of them must be possible.
const DRIVE_BYTES: u64 = 96 << 20;
/// The one that becomes a spare: a rebuild onto it takes long enough to be paused.
const SLOW_DRIVE: &str = "i";

/// Eight more for the declustered arrays.
const MORE_DRIVES: [&str; 8] = ["j", "k", "l", "m", "n", "o", "p", "q"];

/// How a command is tried otherwise than the page has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is not tried.
    LeftOut,
    /// The words stand for these.
    Means(&'static str),
    /// This command, or function of `pages_guest.sh`, comes first.
    After(&'static str),
    /// It never ends by itself: it must tell something meanwhile.
    Endless,
}

/// Commands that are tried otherwise.
struct Otherwise {
    page: &'static str,
    /// Every command of the page that has these words is meant.
    words: &'static str,
    how: How,
    why: &'static str,
}

const fn of(page: &'static str, words: &'static str, how: How, why: &'static str) -> Otherwise {
    Otherwise { page, words, how, why }
}

const OTHERWISE: [Otherwise; 16] = [
    of(INSTALL, "just deb", LeftOut, "the machine has no compiler, and gets the package made"),
    of(FIRST, "/dev/sd[b-i]", Means("/dev/sd[j-q]"), "the first array has the drives"),
    of(FIRST, "--domain enclosure", LeftOut, "the machine has no enclosures"),
    of(FIRST, "--domain a=", After("pool0_is_made_and_destroyed"), "it takes the same drives"),
    of(FIRST, "/dev/sdb,/dev/sdc", Means("/dev/sdj,/dev/sdk"), "the first array has the drives"),
    of(FIRST, "/dev/sdd,/dev/sde", Means("/dev/sdl,/dev/sdm"), "the first array has the drives"),
    of(FIRST, "/dev/sdf,/dev/sdg", Means("/dev/sdn,/dev/sdo"), "the first array has the drives"),
    of(FIRST, "ashlar grow", LeftOut, "the machine has too few drives; end_to_end grows pools"),
    of(FIRST, "job pause pool0", LeftOut, "nothing grows here"),
    of(RECOVER, "ssh host", Means("sh -c"), "there is no other machine"),
    of(REPLACE, "ashlar locate", LeftOut, "no bay here has a light"),
    of(REPLACE, "ashlar re-add", After("ashlar fail tank0 2"), "a drive must be out"),
    of(REPLACE, "rebuild pause", After("a_long_rebuild"), "a rebuild must be under way"),
    of(REPLACE, "ashlar scrub", After("the_rebuild_goes_on"), "the rebuild is paused"),
    of(REPLACE, "events --follow", Endless, "it follows"),
    of(UPGRADE, "status --check", After("the_successor_serves"), "that takes about a second"),
];

impl Otherwise {
    fn is_about(&self, page: &str, command: &PageCommand) -> bool {
        self.page == page && command.text.contains(self.words)
    }
}

/// What the machine runs for a command: functions of `pages_guest.sh`.
fn calls(page: &str, command: &PageCommand) -> String {
    let PageCommand { place, text } = command;
    let (mut text, mut first, mut verb) = (text.clone(), String::new(), "run");
    for own in OTHERWISE.iter().filter(|it| it.is_about(page, command)) {
        match own.how {
            LeftOut => {
                return format!("  say {}\n", quoted(&format!("left out: {text}: {}", own.why)));
            }
            Means(other) => text = text.replace(own.words, other),
            After(before) => first.push_str(&format!("  {before}\n")),
            Endless => verb = "run_endless",
        }
    }
    let text = text.replace(NAMES[0], NAMES[1]);
    format!("{first}  {verb} {place} {}\n", quoted(&text))
}

/// As one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A function of the shell for each page.
fn functions() -> String {
    let function = |page: &str| {
        let calls: String = commands(page).iter().map(|it| calls(page, it)).collect();
        format!("page_{}() {{\n{calls}}}\n", page.replace('-', "_"))
    };
    PAGES.map(function).concat()
}

#[test]
fn every_page_has_commands_and_what_is_tried_otherwise_is_among_them() {
    for page in PAGES {
        assert!(!commands(page).is_empty(), "{page} has no commands");
    }
    for own in &OTHERWISE {
        let found = commands(own.page);
        let is_there = found.iter().any(|it| own.is_about(own.page, it));
        assert!(is_there, "no command of {} has '{}'", own.page, own.words);
    }
}

#[test]
fn what_a_page_has_reaches_the_machine() {
    let command = |text: &str| PageCommand { place: "here:7".to_owned(), text: text.to_owned() };
    for (page, text, wanted) in [
        (INSTALL, "a '/dev/sdb'", "  run here:7 'a '\\''/dev/vdb'\\'''\n"),
        (
            REPLACE,
            "ashlar locate 3",
            "  say 'left out: ashlar locate 3: no bay here has a light'\n",
        ),
        (REPLACE, "ashlar re-add x", "  ashlar fail tank0 2\n  run here:7 'ashlar re-add x'\n"),
        (REPLACE, "events --follow", "  run_endless here:7 'events --follow'\n"),
        (RECOVER, "x | ssh host y", "  run here:7 'x | sh -c y'\n"),
    ] {
        assert_eq!(calls(page, &command(text)), wanted);
    }
}

#[test]
fn the_commands_of_every_page_work_in_a_clean_machine() {
    let test = "the_commands_of_every_page_work_in_a_clean_machine";
    let _alone = alone();
    let all: Vec<&str> = DRIVES.into_iter().chain(MORE_DRIVES).collect();
    let drives: Vec<_> = all.iter().map(|name| (*name, DRIVE_BYTES)).collect();
    let functions = functions();
    let setting = Setting {
        script: "pages_guest.sh",
        drives: &drives,
        files: &[("pages.sh", &functions)],
        slow: Some(SLOW_DRIVE),
        // Several pages are tried in a boot.
        patience_seconds: "5400",
    };
    let machine = match DebianMachine::new(&setting) {
        Ok(machine) => machine,
        Err(why) => return skipped(test, &why),
    };
    println!("{}", machine.boot_and_cut(1, &all));
    let freed = |talk: &mut Talk| {
        talk.wait_for("drive i is fast");
        machine.set_free(SLOW_DRIVE);
    };
    println!("{}", machine.boot(2, &all, freed));
}
