//! What the program says without a daemon: refusals, help, completions, manual pages.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};

fn ashlar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashlar"))
        .args(arguments)
        .env("ASHLAR_SOCKET", "/nonexistent/control.sock")
        .output()
        .expect("the program runs")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Command line, exit code, what the line must say.
const REFUSALS: [(&[&str], i32, &str); 19] = [
    (
        &["create", "t", "-l", "6", "-n", "5", "a", "b", "c"],
        2,
        "3 devices given and --raid-devices says 5",
    ),
    (
        &["create", "t", "-l", "6", "--chunk", "64", "a", "b"],
        2,
        "for 64 KiB write --strip-size 64K",
    ),
    (&["create", "t", "-l", "6", "--strip-size", "100K", "a"], 2, "a power of two from 4K to 1M"),
    (&["create", "t", "-l", "4", "a", "b", "c"], 2, "'4' is not a level"),
    (&["create", "t", "-l", "nm", "a", "b", "c"], 2, "add --parity"),
    (&["create", "t", "-l", "6", "--group-size", "4", "a"], 2, "raid6 has no groups"),
    (&["create", "t", "-l", "6", "--size", "12Q", "a"], 2, "'12Q' is not a size"),
    (&["create", "t", "-l", "6"], 2, "<DEVICE>"),
    (&["create", "t", "-l", "6", "--stripe-width", "9", "a"], 2, "--stripe-width is for declust"),
    (&["create", "t", "-l", "draid2:8x", "a"], 2, "'draid2:8x' is not a dRAID layout"),
    (&["create", "t", "-l", "6", "--drives", "9", "--drive-size", "1T"], 2, "add --declustered"),
    (
        &["create", "t", "-l", "draid2:4d:9c", "--dry-run", "--drives", "8", "--drive-size", "1T"],
        2,
        "the level says 9 drives and 8 are given",
    ),
    (
        &[
            "create",
            "t",
            "-l",
            "6",
            "--declustered",
            "--distributed-spares",
            "2",
            "--dry-run",
            "--drives",
            "11",
            "--drive-size",
            "1T",
        ],
        1,
        "stripes of 10 strips and 2 spare columns need 12 members and there are 11",
    ),
    (&["scrub", "t", "--pause", "--repair"], 2, "cannot be used with"),
    (&["attach", "t", "--sector-size", "1000"], 2, "possible values: 512, 4096"),
    (&["explode"], 2, "unrecognized subcommand"),
    (&["stop", "t"], 1, "no daemon answers at /nonexistent/control.sock"),
    (&["examine", "/nonexistent"], 1, "/nonexistent: No such file"),
    (&["status"], 1, "start one with 'ashlar serve'"),
];

#[test]
fn every_refusal_has_its_line_and_its_exit_code() {
    for (arguments, code, line) in REFUSALS {
        let output = ashlar(arguments);
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {complaint}");
        assert!(complaint.contains(line), "{arguments:?}: {complaint}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed to stdout");
        if code == 1 {
            assert_eq!(complaint.lines().count(), 1, "{arguments:?}: {complaint}");
            assert!(complaint.starts_with("ashlar: "), "{arguments:?}: {complaint}");
        }
    }
}

#[test]
fn a_device_that_is_no_member_is_examined_without_complaint() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let zeros = folder.path().join("zeros");
    let file = std::fs::File::create(&zeros).expect("create");
    file.set_len(64 << 20).expect("grow");
    let output = ashlar(&["examine", zeros.to_str().expect("text")]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("no intact copy"), "{text}");
    let output = ashlar(&["examine", "--json", zeros.to_str().expect("text")]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&found[0]["healthy"], &found[0]["member"]),
        (&false.into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_refusal_is_json_when_asked_for() {
    let output = ashlar(&["--json", "stop", "t"]);
    assert_eq!(output.status.code(), Some(1));
    let refusal: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(refusal["error"]["code"], "daemon.unreachable");
    assert!(refusal["error"]["hint"].as_str().expect("hint").contains("--socket"));
}

/// The commands that help lists.
fn commands() -> Vec<String> {
    let help = String::from_utf8(ashlar(&["--help"]).stdout).expect("text");
    let list = help.split("Commands:").nth(1).expect("a list of commands");
    let list = list.split("Options:").next().expect("before the options");
    let names = list
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    names
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn completions_and_manual_pages_know_every_command_of_the_help() {
    let commands = commands();
    assert!(commands.len() >= 17 && commands.contains(&"re-add".to_owned()), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(ashlar(&["completions", shell]).stdout).expect("text");
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} does not know {command}");
        }
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = ashlar(&["man", folder.path().to_str().expect("text")]);
    assert!(output.status.success(), "{}", complaint(&output));
    for command in &commands {
        let page = folder.path().join(format!("ashlar-{command}.1"));
        let page = std::fs::read_to_string(&page).expect("a page for each command");
        assert!(page.contains(r"\-\-json"), "{command}: the page lacks the common flags");
    }
}

#[test]
fn help_has_one_word_for_a_strip() {
    // The alias is for fingers that know mdadm, not a second word.
    for command in commands() {
        let help = String::from_utf8(ashlar(&[&command, "--help"]).stdout).expect("text");
        assert!(!help.is_empty() && !help.to_lowercase().contains("chunk"), "{command}");
    }
}

/// What a dry run prints, as text.
fn dry_run(arguments: &[&str]) -> String {
    let output = ashlar(&[&["create", "t", "--dry-run"], arguments].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_dry_run_of_a_declustered_array_tells_what_it_would_offer() {
    let drives = ["--drives", "42", "--drive-size", "20TB"];
    let wish = ["-l", "6", "--declustered", "--stripe-width", "10", "--distributed-spares", "2"];
    let text = dry_run(&[&wish[..], &drives[..]].concat());
    for says in ["8+2 array of 42 drives", "flat, 4 x (8+2), 2 spare drives", "6.5 h", "27.8 h"] {
        assert!(text.contains(says), "no '{says}' in\n{text}");
    }
    let spelled = dry_run(&[&["-l", "draid2:8d:42c:2s"][..], &drives[..]].concat());
    assert_eq!(spelled, text);
}

#[test]
fn a_dry_run_of_a_declustered_array_looks_at_devices_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<String> = (0..9)
        .map(|at| {
            let path = folder.path().join(format!("d{at}"));
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len((1 << 30) + at * 4096).expect("a size");
            path.display().to_string()
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let wanted = ["-l", "5", "--declustered", "--stripe-width", "5", "--distributed-spares", "1"];
    let text = dry_run(&[&wanted[..], &files[..]].concat());
    assert!(text.contains("4+1 array of 9 drives of 1 GiB, 1 distributed spares"), "{text}");
    for file in files {
        // A sparse file has blocks as soon as something is written.
        let blocks = std::fs::metadata(file).expect("it is there").blocks();
        assert_eq!(blocks, 0, "{file} was written");
    }
}
