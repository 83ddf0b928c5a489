//! What the program says without a daemon: refusals, help, completions, manual pages.

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
const REFUSALS: [(&[&str], i32, &str); 14] = [
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
