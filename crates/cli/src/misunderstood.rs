//! What the parser of the command line says, as a [`Fault`] on one line.

use crate::args::Args;
use crate::fault::Fault;
use crate::habits;
use std::process::ExitCode;

/// Print what the parser of the command line has to say: help as it is, a complaint on one line
/// like every other refusal.
pub fn complain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    usage_fault(&error.render().to_string(), typed).report(json)
}

/// The complaint is the first paragraph; the hint names the command whose help has more.
fn usage_fault(rendered: &str, typed: impl Iterator<Item = String>) -> Fault {
    let told = rendered.lines().take_while(|line| !line.trim().is_empty());
    let words: Vec<&str> = told.flat_map(str::split_whitespace).collect();
    let message = words.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let all = Args::definitions();
    let (mut command, mut named) = (&all, String::from("ashlar"));
    for word in typed {
        if let Some(inner) = command.find_subcommand(&word) {
            command = inner;
            named.push_str(&format!(" {word}"));
        }
    }
    let message = in_words(message);
    // The words in the tables are about arrays, and where there are few commands the help has them.
    let is_apart =
        named.starts_with("ashlar lab") || (command.has_subcommands() && named != "ashlar");
    let ours = habits::ours(&message).filter(|_| !is_apart).unwrap_or("");
    let fault = Fault::usage(format!("{message}; nothing was done"), ours);
    fault.and_then(format!("see '{named} --help'"))
}

/// What the parser of numbers says, for people.
fn in_words(message: &str) -> String {
    [
        ("invalid digit found in string", "write a whole number"),
        ("cannot parse integer from empty string", "write a whole number"),
        ("number too large to fit in target type", "that is too much"),
    ]
    .iter()
    .fold(message.to_owned(), |told, (theirs, ours)| told.replace(theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::{Args, usage_fault};
    use clap::Parser;

    #[test]
    fn what_the_parser_does_not_understand_is_told_in_one_line_that_names_the_help() {
        for (typed, says) in [
            (
                &["create", "t", "--levl", "6"] as &[&str],
                "unexpected argument '--levl' found; nothing was done; see 'ashlar create --help'",
            ),
            (
                &["create", "t"],
                "the following required arguments were not provided: --level <LEVEL> <DEVICE>...; \
                 nothing was done; see 'ashlar create --help'",
            ),
            (
                &["spare", "lend"],
                "unrecognized subcommand 'lend'; nothing was done; see 'ashlar spare --help'",
            ),
            (
                &["create", "t", "-l", "raidz2", "a"],
                "invalid value 'raidz2' for '--level <LEVEL>': 'raidz2' is not a level; \
                 write 0, 1, 5, 6, 7.3, n+m, 10, 50, 60 or 70; nothing was done; \
                 two parities are level 6; see 'ashlar create --help'",
            ),
            (
                &["rebuild", "start", "t"],
                "unrecognized subcommand 'start'; nothing was done; see 'ashlar rebuild --help'",
            ),
            (
                &["create", "t", "-n", "three", "-l", "5", "a"],
                "invalid value 'three' for '--raid-devices <COUNT>': write a whole number; \
                 nothing was done; see 'ashlar create --help'",
            ),
            (&["melt"], "unrecognized subcommand 'melt'; nothing was done; see 'ashlar --help'"),
        ] {
            let error = Args::try_parse_from([&["ashlar"], typed].concat()).expect_err("refused");
            let words = typed.iter().map(ToString::to_string);
            assert_eq!(usage_fault(&error.render().to_string(), words).to_string(), says);
        }
    }
}
